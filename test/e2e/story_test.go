//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// TestNobodyNotices is what this project is for: cpu and memory go up and down
// under running programs, which lose neither a request nor what they remember.
// Beside it the same edits of the same workload, without the label, lose both.
func TestNobodyNotices(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testNobodyNotices(t, kind)
		})
	}
}

func testNobodyNotices(t *testing.T, kind string) {
	ours, theirs := newApp(t, options{Kind: kind}), newApp(t, options{Kind: kind, OptedOut: true})
	before := ours.pods()
	ours.assertMoved()
	atOurs, atTheirs := ours.visit(), theirs.visit()

	inPlace := ours.upAndDown(func() {
		ours.complete()
		ours.assertKept(before, 0)
		ours.assertMoved()
	})
	builtIn := theirs.upAndDown(theirs.rolledOut)

	ours.event(kind, rollout.EventStarted, "app: cpu request 40m→60m, app: cpu limit 80m→120m, app: memory request 32Mi→48Mi, app: memory limit 64Mi→96Mi")
	ours.event(kind, rollout.EventComplete, fmt.Sprintf("%[1]d of %[1]d pods", ours.replicas))
	ours.podEvents(rollout.EventResized)
	ours.podEvents("ResizeStarted")
	ours.podEvents("ResizeCompleted")

	withUs, without := atOurs.report(), atTheirs.report()
	t.Logf("%s, in place:  %s; up in %s, down in %s", kind, withUs, inPlace[0], inPlace[1])
	t.Logf("%s, built in:  %s; up in %s, down in %s", kind, without, builtIn[0], builtIn[1])
	if withUs.somebody() {
		t.Errorf("somebody noticed the rollout in place: %s: %s", withUs, withUs.Why)
	}
	if withUs.Replaced > 0 || withUs.Started > 0 || withUs.NotReady > 0 {
		t.Errorf("the rollout in place replaced %d pods, started %d containers, and had %d pods not Ready", withUs.Replaced, withUs.Started, withUs.NotReady)
	}
	if without.Lost == 0 || without.Forgotten == 0 {
		t.Errorf("nobody noticed the built-in rollout, so the visitors are blind: %s", without)
	}
}

// upAndDown edits the size up and down again, calls done after each, and returns how long each took.
func (a *app) upAndDown(done func()) []time.Duration {
	a.t.Helper()
	var took []time.Duration
	for _, size := range [][2]string{{largeRequests, largeLimits}, {smallRequests, smallLimits}} {
		began := time.Now()
		a.setResources(size[0], size[1])
		done()
		took = append(took, time.Since(began).Round(10*time.Millisecond))
	}
	return took
}
