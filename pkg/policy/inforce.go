package policy

import (
	"maps"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// InForce returns the settings that count for the rollout in flight: the action and the policy
// are those of the time when the template was edited, see [ActionInForce]. If those are malformed, which is possible
// only if they were there before the admission policy was, those of now count, so that mending
// them helps. It fails if those are malformed, too.
func InForce(annotations map[string]string) (Settings, error) {
	edited := maps.Clone(annotations)
	if edited == nil {
		return Settings{}, nil
	}
	edited[api.ResizeActionAnnotation], edited[api.ResizePolicyAnnotation] = ActionInForce(annotations)
	settings, err := Read(edited)
	if err != nil {
		return Read(annotations)
	}
	return settings, nil
}

// ActionInForce returns what the annotations for action and policy said when the template was edited. They are written down
// where they have changed since then; else what they say is in force.
func ActionInForce(annotations map[string]string) (action, resizePolicy string) {
	inForce, changed := annotations[api.InForceAnnotation]
	if !changed {
		return annotations[api.ResizeActionAnnotation], annotations[api.ResizePolicyAnnotation]
	}
	action, resizePolicy, _ = strings.Cut(inForce, ";")
	return action, resizePolicy
}
