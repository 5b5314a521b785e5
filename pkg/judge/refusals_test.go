package judge

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// What is refused is asked for again later and later; another size, at once less late.
func TestRefusals(t *testing.T) {
	var r *Refused
	for i, tt := range []struct {
		size, kind string
		wait       time.Duration
		since      time.Duration // when it was refused first
	}{
		{"small", ReasonQuotaExceeded, time.Second, 0},
		{"small", ReasonQuotaExceeded, 2 * time.Second, 0},
		{"small", ReasonAdmissionDenied, 4 * time.Second, 2 * time.Minute}, // for another reason
		{"small", ReasonAdmissionDenied, 8 * time.Second, 2 * time.Minute},
		{"small", ReasonAdmissionDenied, 16 * time.Second, 2 * time.Minute},
		{"small", ReasonAdmissionDenied, MaxAskInterval, 2 * time.Minute},
		{"small", ReasonAdmissionDenied, MaxAskInterval, 2 * time.Minute},
		{"large", ReasonAdmissionDenied, time.Second, 7 * time.Minute},
		{"small", ReasonAdmissionDenied, time.Second, 8 * time.Minute},
	} {
		now := build.Start.Add(time.Duration(i) * time.Minute)
		r = r.Again(tt.size, Refusal{Reason: "no", Kind: tt.kind}, now)
		want := Refusal{Of: tt.size, Reason: "no", Kind: tt.kind, Until: now.Add(tt.wait), Since: build.Start.Add(tt.since)}
		if got := r.Of(tt.size); got != want || r.Last() != want || r.Of("other") != (Refusal{}) {
			t.Errorf("try %d: got %+v, want %+v", i, got, want)
		}
	}
}

// TestRefusalLog: what one object is refused says nothing of another one.
func TestRefusalLog(t *testing.T) {
	log, now := RefusalLog{}, build.Start
	for _, object := range []types.UID{"a", "b", "b"} {
		log.Add(object, "small", Refusal{Reason: "no"}, now)
	}
	for object, want := range map[types.UID]time.Duration{"a": time.Second, "b": 2 * time.Second} {
		if wait := log.Of(object, "small").Until.Sub(now); wait != want {
			t.Errorf("%s waits for %s, want %s", object, wait, want)
		}
	}
	if got := log.Of("c", "small"); got != (Refusal{}) {
		t.Errorf("nothing was refused to c: %+v", got)
	}
}
