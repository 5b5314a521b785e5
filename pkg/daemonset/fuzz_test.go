package daemonset

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// FuzzPlan: under LiveResize no plan lets go of a pod that differs only in its size, nor deletes one,
// whatever state the pods and nodes are in. Let go of, the DaemonSet controller replaces pods whose
// labels say neither the newest revision nor the template's generation. No plan, whatever the action,
// deletes two available pods of a set of which one may be down, nor one that its node could not hold.
func FuzzPlan(f *testing.F) {
	build.AddSeeds(f)
	situations := []string{
		"updated", "updated, just born", "updated, terminating", "updated, not ready", "relabelled", "relabelled long ago",
		"left with another cpu", "left with a limit", "resized by others", "live", "live, just born", "live, not ready", "live, counted",
		"resizing", "resized", "resized, counted", "deferred", "infeasible", "infeasible, not ready", "limited", "terminating", "failed",
		"unscheduled", "missing", "live+updated", "updated+resized", "terminating+live", "live+terminating",
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		rapid.MakeFuzz(func(r *rapid.T) {
			places := rapid.SliceOfN(rapid.SampledFrom(situations), 1, 5).Draw(r, "places")
			var changes []change
			for _, change := range []change{maxSurge("1"), lagging, minReady, lost(0), small(0), misscheduled(0), notHeld, userWaits} {
				if rapid.Bool().Draw(r, "changed") {
					changes = append(changes, change)
				}
			}
			live := rapid.Bool().Draw(r, "LiveResize")
			if live {
				changes = append(changes, inForce("LiveResize;"))
			}
			o := observed(t, strings.Join(places, "|"), changes...)
			p := must.Get(planned(o))(t)
			deleted := 0
			for _, write := range p.Writes {
				switch w := write.(type) {
				case rollout.DeletePod:
					pod := w.Restart.Member.Pod
					if deleted += asInt(o.available(pod)); deleted > 1 {
						t.Errorf("%s: the plan (%s) deletes more than one available pod", places, does(p))
					}
					if live || !rolling(o.set) {
						t.Errorf("%s: the plan deletes %s", places, pod.Name)
					}
					if node := o.Node(capacity.TargetNode(pod)); !runs(node) || node.Status.Allocatable.Cpu().MilliValue() < 2 {
						t.Errorf("%s: the plan deletes %s, which cannot come back to %s", places, pod.Name, node.Name)
					}
				case rollout.Release:
					for _, pod := range o.pods {
						if live && pod.DeletionTimestamp == nil && !terminal(pod) && !o.labelled(pod) {
							t.Errorf("%s: the plan lets go of %s", places, pod.Name)
						}
					}
				}
			}
		})(t, input)
	})
}
