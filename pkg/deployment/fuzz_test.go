package deployment

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// FuzzPlan: under LiveResize no plan lets go of a pod that differs only in its size, whatever
// state the pods are in. The Deployment controller replaces those of other ReplicaSets than the
// one that has the Deployment's template.
func FuzzPlan(f *testing.F) {
	build.AddSeeds(f)
	situations := []string{
		"older", "newer", "other", "limited", "resizing", "resized", "infeasible", "deferred", "of other", "resized by others", "of admission",
		"left with a limit", "terminating", "failed", "not yet scheduled", "with a deletion cost", "older, not ready", "resized, not ready", "infeasible, not ready",
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		rapid.MakeFuzz(func(r *rapid.T) {
			pods := strings.Join(rapid.SliceOfN(rapid.SampledFrom(situations), 1, 5).Draw(r, "pods"), "|")
			sets := rapid.SampledFrom([]string{
				"a older: %s", "a older 6: %s", "a older: %s; b other", "a older: %s; b image", "a older: %s; b image: image",
				"a newer was-older: %s", "a newer was-older: %s; b older", "a newer was-older acknowledged: %s; b older",
				"a newer was-older closed: %s; b older", "a newer: %s; b older",
			}).Draw(r, "sets")
			adopted := !strings.HasPrefix(sets, "a older")
			sets = fmt.Sprintf(sets, pods)
			changes := []change{inForce("LiveResize;")}
			if rapid.Bool().Draw(r, "bounds") {
				changes = append(changes, bounds(int32(rapid.IntRange(0, 2).Draw(r, "surge")), int32(rapid.IntRange(0, 2).Draw(r, "unavailable"))))
			}
			for _, c := range []change{recreate, lagging, minReady, failing, restartsContainer} {
				if rapid.IntRange(0, 3).Draw(r, "changed") == 0 {
					changes = append(changes, c)
				}
			}
			o := observed(t, sets, changes...)
			p := must.Get(planned(o))(t)
			for _, write := range p.Writes {
				switch w := write.(type) {
				case evict, detach:
					t.Errorf("%s: the plan is to %s", sets, does(p))
				case rollout.Release:
					if !adopted {
						t.Errorf("%s: the plan (%s) lets go while the pods are of another template", sets, w)
					}
				}
			}
		})(t, input)
	})
}
