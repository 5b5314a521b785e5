package rollout

import (
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// A pod that a startup booster is about to put back is waited for until the timeout, counted from when it is well
// with its size, and takes no share of the limits meanwhile.
func TestAwaitBooster(t *testing.T) {
	const timeout = 5 * time.Minute
	for _, tt := range []struct {
		name    string
		putBack string
		well    time.Duration // since when; negative if it is not
		timeout time.Duration
		stale   bool
		waits   bool
	}{
		{name: "no booster", timeout: timeout},
		{name: "for the first time", putBack: "cpu", timeout: timeout, waits: true},
		{name: "for long", putBack: "cpu", well: timeout - time.Second, timeout: timeout, waits: true},
		{name: "for too long", putBack: "cpu", well: timeout, timeout: timeout},
		{name: "for none", putBack: "cpu"},
		{name: "it is not well with its size", putBack: "cpu", well: -1, timeout: timeout},
		{name: "it has still to get its size", putBack: "cpu", timeout: timeout, stale: true},
	} {
		template := build.Size(t, "requests: {cpu: 100m}")
		pod := build.Pod("web-0", template)
		target := must.Get(resize.For(pod, template, template))(t)
		now := build.Start.Add(time.Hour)
		m := judge.Member{Place: judge.Place{Name: pod.Name, Pod: pod, Updated: !tt.stale, Available: true, Target: target}, PutBack: tt.putBack, Policy: policy.LiveResizeable}
		if tt.well >= 0 {
			m.Proof.Since = now.Add(-tt.well)
		}
		o := Options{Limit: 1, Terms: judge.Terms{Unavailable: 1, BoosterTimeout: tt.timeout, Now: now}}
		v := m.Judge(o.Terms)
		if waits := v.Decision == policy.Wait && v.Reason == judge.ReasonProgressing && v.Message != ""; waits != tt.waits {
			t.Errorf("%s: %q, %s %q; want it to wait: %t", tt.name, v.Decision, v.Reason, v.Message, tt.waits)
		}
		if want := m.Proof.Since.Add(tt.timeout); tt.waits && !v.Until.Equal(want) {
			t.Errorf("%s: until %s, want %s", tt.name, v.Until, want)
		}
		if s := Next([]*judge.Verdict{v}, o); s.Hold != (tt.waits || tt.stale) || newBudget(s.Verdicts, o).shares > 0 {
			t.Errorf("%s: hold %t, %d shares", tt.name, s.Hold, newBudget(s.Verdicts, o).shares)
		}
	}
}
