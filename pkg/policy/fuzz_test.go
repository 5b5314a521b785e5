package policy_test

import (
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// FuzzRead: Go accepts what the API server accepts, evaluated by the API server's own library.
//
// Two differences are known. Go rounds what is below a nanosecond, maybe to nothing. And CEL fails
// at durations beyond 292 years, where Go says why; either way they are refused.
func FuzzRead(f *testing.F) {
	accepts := annotationsPolicy(f)
	for _, entries := range []string{
		"cpu=LiveResizeable, app/memory:decrease=RestartOnly", "cpu=LiveResizeable,cpu=RestartOnly", " ,", "a.b/cpu=RestartOnly",
		"cpu\n=RestartOnly", "cpu=RestartOnly\n", "/cpu=RestartOnly", "cpu:=RestartOnly", "CPU=RestartOnly",
	} {
		f.Add(entries, "", "")
	}
	for _, action := range []string{"LiveResizePreferred", "Restart ", "live", "\u00a0LiveResize", "\x00", "Restart\n", "LiveResize,Restart", "\ufeffRestart", "\u2028Restart"} {
		f.Add("", action, "")
	}
	for _, timeout := range []string{"1h30m", "+.5s", "-1s", "0", "0s", "1µs1μs", "9999999h", "1.s", "0.1ns", "1e3s", "٣s", "."} {
		f.Add("", "", timeout)
	}
	f.Fuzz(func(t *testing.T, resizePolicy, action, timeout string) {
		agree(t, accepts, timeout, map[string]string{
			api.ResizePolicyAnnotation: resizePolicy, api.ResizeActionAnnotation: action, api.DeferredTimeoutAnnotation: timeout,
		})
	})
}

// FuzzReadGuard: so it does for what guards a rollout.
func FuzzReadGuard(f *testing.F) {
	accepts := annotationsPolicy(f)
	for _, canary := range []string{"1", "10%", "0", "100%", "101%", "1.5", " 2 ", "-1", "1000000"} {
		f.Add(canary, "", "", "")
	}
	for _, duration := range []string{"manual", "10m", "Manual", "0s", "9999999h", "1µs"} {
		f.Add("1", duration, "", "")
	}
	for _, onFailure := range []string{"Hold", "Revert", "revert", "Hold,Revert"} {
		f.Add("", "", onFailure, "")
	}
	for _, checks := range []string{"cpu-throttling, memory-near-limit", ",", "a,,b", "A", "a\u00a0,b", "a\"b", "a\nb", strings.Repeat("a,", 10) + "a"} {
		f.Add("", "", "", checks)
	}
	f.Fuzz(func(t *testing.T, canary, duration, onFailure, checks string) {
		agree(t, accepts, duration, map[string]string{
			api.CanaryAnnotation: canary, api.CanaryDurationAnnotation: duration, api.OnFailureAnnotation: onFailure, api.ChecksAnnotation: checks,
		})
	})
}

// agree has Go and the API server judge annotations alike, one of which is a duration.
func agree(t *testing.T, accepts func(*testing.T, map[string]string) (bool, string), duration string, annotations map[string]string) {
	t.Helper()
	if strings.ContainsAny(duration, ".") && strings.Contains(duration, "ns") {
		t.Skip("fractions of a nanosecond")
	}
	for _, text := range annotations {
		if strings.ToValidUTF8(text, "") != text {
			t.Skip("JSON cannot say it")
		}
	}
	_, err := policy.Read(annotations)
	if got, said := accepts(t, annotations); got != (err == nil) {
		t.Errorf("%q: Go says %v; the API server %q", annotations, err, said)
	}
}
