//go:build integration

package integration

import (
	"sync"
	"testing"

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

// needs skips a test of what only this version of Kubernetes and later ones have.
func needs(t *testing.T, minor, what string) {
	t.Helper()
	if !cp.AtLeast(minor) {
		t.Skipf("not applicable to %s: %s needs %s", cp.Version(), what, minor)
	}
}

// reinstall returns what installs deploy/ again, once, in a test that takes
// something away from it.
func reinstall(t *testing.T) func() {
	t.Helper()
	return sync.OnceFunc(func() {
		if err := controller.Install(t.Context(), cp); err != nil {
			t.Error(err)
		}
	})
}
