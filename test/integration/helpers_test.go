//go:build integration

package integration

import (
	"sync"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// tooSmall has the kubelets of these pods refuse what their nodes can never hold. From 1.36 on nobody asks
// them: the API server refuses it itself. The simulated kubelet does not add up; it is told.
func (s *sandbox[W]) tooSmall(pods ...string) {
	s.t.Helper()
	if cp.AtLeast("1.36") {
		return
	}
	for _, pod := range pods {
		s.annotatePod(pod, simInfeasible)
	}
}

// largeEnough takes tooSmall back.
func (s *sandbox[W]) largeEnough(pods ...string) {
	s.t.Helper()
	if cp.AtLeast("1.36") {
		return
	}
	for _, pod := range pods {
		s.annotatePod(pod, simAccepted)
	}
}

// needsPolicies skips a test that takes the policies away which hold.
func needsPolicies(t *testing.T) {
	t.Helper()
	if way := controller.Hold(cp); way != prerequisite.Policy {
		t.Skipf("not applicable to the way %s: here no MutatingAdmissionPolicies v1 hold", way)
	}
}

// reinstall returns what installs deploy/ again, once, in a test that takes
// something away from it.
func reinstall(t *testing.T) func() {
	t.Helper()
	return sync.OnceFunc(func() {
		if err := install(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
