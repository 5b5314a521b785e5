//go:build around

package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/faults"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestGuardedKilled has no controller live for longer than until its first write, which arrives or does not, nor than a third of the
// canary's time. By that no other pod becomes the canary, and it has proved its size no sooner and not much later.
func TestGuardedKilled(t *testing.T) {
	t.Run("StatefulSet", func(t *testing.T) { t.Parallel(); testGuardedKilled(t, newWorkload(t, options{}).sandbox) })
	t.Run("Deployment", func(t *testing.T) { t.Parallel(); testGuardedKilled(t, newDeployment(t, options{}).sandbox) })
	t.Run("DaemonSet", func(t *testing.T) { t.Parallel(); testGuardedKilled(t, newDaemonSet(t, options{}).sandbox) })
}

func testGuardedKilled[W metav1.Object](t *testing.T, s *sandbox[W]) {
	t.Helper()
	const duration = 12 * time.Second
	proxy := newProxy(t)
	process := s.ownController(t, controller.Options{})
	s.waitComplete()
	process.Stop()
	before := s.uids()
	s.markAudit()
	s.guard("canary", "1", "canary-duration", duration.String())
	s.setResources("cpu=150m", "")
	var write *faults.Held
	lives := 0
	for began := time.Now(); !isComplete(s.get()); lives++ {
		if time.Since(began) > 2*patience {
			t.Fatalf("after %d controllers: %s", lives, describe(s.get()))
		}
		if write == nil {
			write = proxy.Hold(func(r *http.Request, _ []byte) bool {
				return strings.Contains(r.URL.Path, "/namespaces/"+s.namespace+"/") && !strings.Contains(r.URL.Path, "/events") && r.URL.Query().Get("dryRun") == ""
			})
		}
		process := must.Get(launch(controller.Options{Server: proxy.URL(), Args: []string{"--namespace=" + s.namespace}}))(t)
		life := duration / 3
		if len(s.askedPods()) > 1 {
			life = patience
		}
		select {
		case <-write.Reached:
			if lives%2 > 0 {
				write.Release()
			}
			write = nil
		case <-time.After(life):
		}
		process.Kill()
	}
	t.Logf("%d controllers", lives)

	canaries, well := map[types.UID]bool{}, time.Time{}
	for _, e := range s.audited(controlplane.ByUser(controller.User), controlplane.OnResource(strings.ToLower(s.kind)+"s", "")) {
		var o unstructured.Unstructured
		must.Do(t, o.UnmarshalJSON(e.ResponseObject.Raw))
		record := must.Get(rollout.ReadRecord(o.GetAnnotations()))(t)
		if record == nil {
			continue
		}
		for _, c := range record.Canaries {
			canaries[c.UID] = true
			if c.Well != nil && well.IsZero() {
				well = c.Well.Time
			}
		}
	}
	var asked []time.Time
	for name, uid := range before {
		at := s.audit("patch", "pods", "resize", name)
		if asked = append(asked, at...); len(at) != 1 || canaries[uid] && at[0].Truncate(time.Second).After(well) {
			t.Errorf("%s, a canary: %t, was asked at %v", name, canaries[uid], at)
		}
	}
	slices.SortFunc(asked, time.Time.Compare)
	if after := asked[1].Sub(well); len(canaries) != 1 || well.IsZero() || after < duration || after > 2*duration {
		t.Errorf("of the canaries %v, one was well at %s, and the others were asked %s later, want %s: %s", canaries, well, after, duration, fmt.Sprint(asked))
	}
	s.assertReplaced(before)
}
