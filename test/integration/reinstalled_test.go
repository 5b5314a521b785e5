//go:build around

package integration

import (
	"strconv"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestAbsentReinstalled takes everything away and installs it again, three times: the API server still sees whether a
// controller is there. Of other kinds of parameters it keeps what it knew (kubernetes/kubernetes#130887).
func TestAbsentReinstalled(t *testing.T) {
	needsPolicies(t)
	x := newTrio(t, options{Replicas: 1})
	defer reinstall(t)()
	t.Cleanup(func() { fall(t) })
	for i := range 3 {
		must.Do(t, controller.Uninstall(t.Context(), cp))
		must.Do(t, controller.Install(t.Context(), cp))
		letsGo(t)
		beat(t, time.Minute)
		x.waitThere(true)
		x.setImage("app:" + strconv.Itoa(2*i+2))
		x.assertHeld("an edit while a controller is there", true)
		fall(t)
		x.waitThere(false)
		x.setImage("app:" + strconv.Itoa(2*i+3))
		x.assertHeld("an edit while none is there", false)
		x.waitRolledOut()
	}
}
