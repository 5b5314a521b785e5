//go:build integration

package integration

import (
	"sync"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

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
