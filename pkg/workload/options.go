package workload

import (
	"maps"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Options of a Controller.
type Options struct {
	// Namespace whose workloads are looked after; all namespaces if empty.
	Namespace string
	// Workers that sync workloads at the same time; at least 1.
	Workers int
	// DryRun plans and logs, and writes nothing.
	DryRun bool
	// Defaults where a workload says nothing.
	Defaults Defaults
	// Ready gates every sync: while it returns an error, nothing is touched.
	Ready func() error
	// Metrics to count in; nil counts nothing.
	Metrics *Metrics
}

// Defaults are what flags say where a workload says nothing.
type Defaults struct {
	// DeferredTimeout is how long a pod may be Deferred before that counts as final.
	DeferredTimeout time.Duration
	// ErrorTimeout is how long a pod's resize may fail before that counts as final.
	ErrorTimeout time.Duration
	// ResizePolicy of a changed resource.
	ResizePolicy policy.Policy
}

// Standard are the defaults of the flags.
var Standard = Defaults{DeferredTimeout: 5 * time.Minute, ErrorTimeout: 10 * time.Minute, ResizePolicy: policy.LiveResizeable}

// Rollout returns what the settings and the defaults say about a rollout now. The
// strategy and the limit are the caller's to say.
func (d Defaults) Rollout(settings policy.Settings, now time.Time) rollout.Options {
	return rollout.Options{
		Strategy: policy.RollingUpdate, Action: settings.Action,
		DeferredTimeout: ptr.Deref(settings.DeferredTimeout, d.DeferredTimeout),
		ErrorTimeout:    d.ErrorTimeout, Now: now,
	}
}

// Settings are those in force: what action and policy said when the template was
// edited. If that is malformed, which is possible only if it was there before the
// admission policy was, what they say now counts, so that mending them helps.
func Settings(annotations map[string]string) (policy.Settings, error) {
	said := maps.Clone(annotations)
	if said == nil {
		return policy.Settings{}, nil
	}
	said[api.ResizeActionAnnotation], said[api.ResizePolicyAnnotation], _ = strings.Cut(said[api.InForceAnnotation], ";")
	settings, err := policy.Read(said)
	if err != nil {
		return policy.Read(annotations)
	}
	return settings, nil
}
