package statefulset

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// FuzzPlan: under LiveResize no plan lets go of a pod that differs only in its size, whatever
// state the pods are in. The StatefulSet controller replaces pods from the partition on whose
// label is not that of the newest revision.
func FuzzPlan(f *testing.F) {
	build.AddSeeds(f)
	f.Fuzz(func(t *testing.T, input []byte) {
		rapid.MakeFuzz(func(r *rapid.T) {
			places := rapid.SliceOfN(rapid.SampledFrom([]string{
				"updated", "updated, terminating", "relabelled", "relabelled long ago", "updated, not ready", "updated, resized by others",
				"updated, resized by others during the rollout", "left with another cpu", "left with another cpu, not ready", "left pending",
				"live, resized by others", "left with a limit", "live", "live, just born", "live, not ready", "resizing", "resized",
				"infeasible", "infeasible, not ready", "limited", "terminating", "missing",
			}), 1, 5).Draw(r, "places")
			changes := []func(*appsv1.StatefulSet){inForce("LiveResize;"), held("0", everything)}
			for _, change := range []func(*appsv1.StatefulSet){startAt5, parallel, two, lagging, currentIsNewest, minReady, says("Restart", "cpu=RestartOnly")} {
				if rapid.Bool().Draw(r, "changed") {
					changes = append(changes, change)
				}
			}
			o := observed(t, strings.Join(places, "|"), changes...)
			p := must.Get(planned(o))(t)
			partition := everything
			for _, write := range p.Writes {
				switch w := write.(type) {
				case rollout.DeletePod:
					t.Errorf("%s: the plan deletes %s", places, w.Restart.Member.Name)
				case lowerPartition:
					partition = w.to
				case rollout.Release:
					partition = 0
				}
			}
			for _, pod := range o.pods {
				if place, ours := o.index(pod); ours && place >= partition && label(pod) != revisionOf(newer) && pod.DeletionTimestamp == nil {
					t.Errorf("%s: the plan (%s) lets go of %s", places, does(p), pod.Name)
				}
			}
		})(t, input)
	})
}
