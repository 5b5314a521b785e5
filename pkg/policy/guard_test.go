package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestGuard(t *testing.T) {
	for _, tt := range []struct {
		name                                string
		canary, duration, onFailure, checks string
		err                                 string
	}{
		{name: "a number of pods", canary: "1", duration: "10m", onFailure: "Revert", checks: "cpu-throttling, memory-near-limit"},
		{name: "a percentage", canary: "10%", duration: "manual", onFailure: "Hold"},
		{name: "no pods", canary: "0", err: `canary: "0" must be a number of pods such as 1, or a percentage from 1% to 100%`},
		{name: "more than all pods", canary: "101%", err: `canary: "101%" must be`},
		{name: "no time", canary: "1", duration: "0s", err: `canary-duration: "0s" must be manual, or a positive duration such as 90s, 5m or 1h30m`},
		{name: "another action", onFailure: "Restart", err: `on-failure: "Restart" must be Hold or Revert`},
		{name: "no name", checks: "up, ", err: `checks: "" must be the name of a check`},
		{name: "a query", checks: `up{job="a"}`, err: `checks: "up{job=\"a\"}" must be`},
		{name: "a line break", checks: "a\nb", err: "checks: "},
		{name: "many", checks: strings.Repeat("a,", 10) + "b", err: `checks: "b" must be the name of a check, of lower case letters, digits and dashes; commas separate names, at most 10`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := policy.Read(map[string]string{
				api.CanaryAnnotation: tt.canary, api.CanaryDurationAnnotation: tt.duration, api.OnFailureAnnotation: tt.onFailure, api.ChecksAnnotation: tt.checks,
			})
			must.Fails(t, "reading it", err, strings.ReplaceAll(tt.err, `\"`, `"`))
			must.Equal(t, s.Guard != nil, tt.err == "", "there is a guard %+v", s.Guard)
		})
	}
}

func TestGuardSays(t *testing.T) {
	read := func(canary string) *policy.Guard {
		s := must.Get(policy.Read(map[string]string{api.CanaryAnnotation: canary, api.CanaryDurationAnnotation: "90s", api.OnFailureAnnotation: "Revert"}))(t)
		return s.Guard
	}
	for _, tt := range []struct {
		canary string
		of     int
		want   int
	}{{"1", 5, 1}, {"3", 2, 3}, {"10%", 15, 2}, {"10%", 1, 1}, {"100%", 7, 7}, {"1%", 0, 1}, {"100%", 130, 50}, {"60", 130, 50}} {
		must.Equal(t, read(tt.canary).Canaries(tt.of), tt.want, "canaries by %s of %d pods", tt.canary, tt.of)
	}
	if g := read("1"); g.Duration != 90*time.Second || g.Manual || !g.Revert {
		t.Errorf("%+v", g)
	}
	for _, none := range []map[string]string{nil, {api.CanaryDurationAnnotation: "10m"}, {api.PromoteAnnotation: "revision web-1"}} {
		if s, err := policy.Read(none); err != nil || s.Guard != nil {
			t.Errorf("%v: %+v, %v", none, s.Guard, err)
		}
	}
}
