package policy

import (
	"maps"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// InForce returns the settings that count for the rollout in flight: the action and the policy
// are those of the time when the template was edited. If those are malformed, which is possible
// only if they were there before the admission policy was, those of now count, so that mending
// them helps. It fails if those are malformed, too.
func InForce(annotations map[string]string) (Settings, error) {
	edited := maps.Clone(annotations)
	if edited == nil {
		return Settings{}, nil
	}
	edited[api.ResizeActionAnnotation], edited[api.ResizePolicyAnnotation], _ = strings.Cut(edited[api.InForceAnnotation], ";")
	settings, err := Read(edited)
	if err != nil {
		return Read(annotations)
	}
	return settings, nil
}
