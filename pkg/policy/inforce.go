package policy

import (
	"maps"
	"strings"
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Defaults are what flags say where a workload says nothing.
type Defaults struct {
	// DeferredTimeout is how long a pod may be Deferred before that counts as final.
	DeferredTimeout time.Duration
	// ErrorTimeout is how long a pod's resize may fail before that counts as final.
	ErrorTimeout time.Duration
	// ResizePolicy of a changed resource.
	ResizePolicy Policy
}

// Standard are the defaults of the flags.
var Standard = Defaults{DeferredTimeout: 5 * time.Minute, ErrorTimeout: 10 * time.Minute, ResizePolicy: LiveResizeable}

// InForce returns the settings that count for the rollout in flight: what action and policy
// said when the template was edited. If that is malformed, which is possible only if it was
// there before the admission policy was, what they say now counts, so that mending them
// helps. It fails if that is malformed, too.
func InForce(annotations map[string]string) (Settings, error) {
	said := maps.Clone(annotations)
	if said == nil {
		return Settings{}, nil
	}
	said[api.ResizeActionAnnotation], said[api.ResizePolicyAnnotation], _ = strings.Cut(said[api.InForceAnnotation], ";")
	settings, err := Read(said)
	if err != nil {
		return Read(annotations)
	}
	return settings, nil
}
