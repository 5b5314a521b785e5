package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Faulty are the pods whose resize may meet the same fault of their kubelets.
type Faulty struct {
	resize.Fault

	// Pods with the versions of their kubelets, as `web-1 on node a (kubelet v1.35.8)`.
	Pods []string
}

// faultyNamed is how many of the pods are named.
const faultyNamed = 5

// String says it in one line, and names some of the pods.
func (f Faulty) String() string {
	named := f.Pods[:min(len(f.Pods), faultyNamed)]
	text := f.Issue + " might affect " + strings.Join(named, ", ")
	if more := len(f.Pods) - len(named); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ": " + f.Says
}

// Faults puts those members together whose resizes may meet the same fault.
func Faults(members []*Member) []Faulty {
	var found []Faulty
	for _, m := range members {
		for _, fault := range m.Target.Faults() {
			i := slices.IndexFunc(found, func(f Faulty) bool { return f.Fault == fault })
			if i < 0 {
				i, found = len(found), append(found, Faulty{Fault: fault})
			}
			found[i].Pods = append(found[i].Pods, fmt.Sprintf("%s on %s (kubelet %s)", m.Name, OnNode(m.Node()), m.Kubelet.Version))
		}
	}
	return found
}

// meetsFault reports whether the pod is resized, or was, and that may meet a fault of its kubelet.
func (v *Verdict) meetsFault() bool {
	switch v.Decision {
	case "", policy.Resize, policy.Wait, policy.MarkUpdated:
		return !Gone(v.Member.Pod) && len(v.Member.Target.Faults()) > 0
	default:
		return false
	}
}
