package rollout

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// What is refused is asked for again later and later; another size, at once less late.
func TestRefusals(t *testing.T) {
	r, now := NewRefusalLog(), build.Start
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
		now = build.Start.Add(time.Duration(i) * time.Minute)
		r.Add("a", tt.size, Refusal{Reason: "no", Kind: tt.kind}, now)
		want := Refusal{Of: tt.size, Reason: "no", Kind: tt.kind, Until: now.Add(tt.wait), Since: build.Start.Add(tt.since)}
		if got := r.Known()["a"]; got != want {
			t.Errorf("try %d: got %+v, want %+v", i, got, want)
		}
	}
	refuse := func(objects ...types.UID) {
		for _, object := range objects {
			r.Add(object, "small", Refusal{Reason: "no"}, now)
		}
	}
	refuse("b", "b", "c", "c")
	r.Remove("b")
	if _, known := r.Known()["b"]; known || len(r.Known()) != 2 {
		t.Errorf("b is forgotten, and known are %v", r.Known())
	}
	r.Clear()
	if len(r.Known()) > 0 {
		t.Errorf("all are forgotten, and known are %v", r.Known())
	}
	refuse("b", "c")
	for object, refusal := range r.Known() {
		if wait := refusal.Until.Sub(now); wait != time.Second {
			t.Errorf("%s was forgotten, and waits for %s", object, wait)
		}
	}
}

// TestRefusalsForgotten: neither what is known, nor when to ask again, stays of objects that are gone.
func TestRefusalsForgotten(t *testing.T) {
	r := NewRefusalLog()
	for _, object := range []types.UID{"a", "b", "c"} {
		r.Add(object, "small", Refusal{Reason: "no"}, build.Start)
	}
	r.Forget(sets.New[types.UID]("b"))
	if len(r.known) != 1 || len(r.backoffs) != 1 || r.known["b"].Reason != "no" {
		t.Errorf("known are %v, with %d times to ask again", r.known, len(r.backoffs))
	}
}
