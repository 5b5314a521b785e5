package resize

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// Fault is an error of some kubelets that a resize may meet.
type Fault struct {
	// Issue of Kubernetes that tells of it.
	Issue string
	// Says what may happen, and what helps.
	Says string
}

// faults are those that are known. The first versions with and without them are those whose source
// shows it, but for what docs/compatibility.md says.
var faults = []struct {
	Fault

	since string   // the first version with it
	fixed []string // the first patch of each minor version without it; all that are newer than the last have none
	meets func(Target) bool
}{
	{
		Fault: Fault{
			"kubernetes#138760",
			"the kubelet raises the memory limit of a container that is not running, but not the limit of its pod. If the container is still OOMKilled, delete the pod",
		},
		since: "1.33.0", fixed: []string{"1.35.9", "1.36.4", "1.37.0"}, meets: Target.growsOOMKilled,
	},
	{
		Fault: Fault{
			"kubernetes#141100",
			"if the runtime reports no memory usage of pods, the kubelet panics when a memory limit is lowered below the usage",
		},
		since: "1.34.0", fixed: []string{"1.38.0"}, meets: Target.ShrinksMemory,
	},
}

// Faults returns those of the pod's kubelet that the resize may meet, by the kubelet's version:
// before it is asked for, and while the pod is not Ready after it.
func (t Target) Faults() []Fault {
	var found []Fault
	for _, f := range faults {
		if !f.meets(t) {
			continue
		}
		v, err := version.ParseGeneric(t.kubelet.Version)
		if err == nil && !v.LessThan(version.MustParseGeneric(f.since)) && v.LessThan(firstWithout(f.fixed, v)) {
			found = append(found, f.Fault)
		}
	}
	return found
}

// firstWithout returns the first version without a fault of the minor version of v, or of all.
func firstWithout(fixed []string, v *version.Version) *version.Version {
	var first *version.Version
	for _, f := range fixed {
		if first = version.MustParseGeneric(f); first.Major() == v.Major() && first.Minor() == v.Minor() {
			break
		}
	}
	return first
}

// growsOOMKilled reports whether the memory limit of a container is raised, or was by a resize after
// which the pod is not Ready, that was killed because it had reached its limit. Only a pod whose
// containers all have a limit has one itself.
func (t Target) growsOOMKilled() bool {
	return slices.ContainsFunc(t.named, func(p part) bool {
		status := t.status(p)
		if p.container == nil || status == nil || !oomKilled(status.State) && !oomKilled(status.LastTerminationState) {
			return false
		}
		raised := slices.ContainsFunc(t.Effects, func(c Change) bool {
			return c.Container == p.name && c.Resource == corev1.ResourceMemory && c.Side == Limit && c.From != nil && c.To != nil && c.To.Cmp(*c.From) > 0
		})
		return (raised || t.harmedBy(p)) && allLimit(&t.pod.Spec, corev1.ResourceMemory)
	})
}

// harmedBy reports whether the pod is not Ready since a resize, which has set the memory limit of p.
func (t Target) harmedBy(p part) bool {
	set, err := ownersOf(t.pod)
	state, _ := t.Observe()
	return err == nil && state == Unready && set.in(p).of(Limit, corev1.ResourceMemory) != owner{}
}

func oomKilled(s corev1.ContainerState) bool {
	const reason = "OOMKilled"
	return s.Terminated != nil && s.Terminated.Reason == reason
}
