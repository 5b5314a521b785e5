package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// A record is read as it was written, and begins with its phase, which admission policies match.
func TestRecord(t *testing.T) {
	r := &Record{Phase: PhaseCanary, Schema: RecordSchema, Of: RevisionNamed("web-b"), Began: seconds(build.Start), Since: seconds(build.Start.Add(time.Second)), From: "web-a"}
	m := judge.Member{Place: judge.Place{Name: "web-0", Pod: build.Pod("web-0", build.Size(t, "requests: {cpu: 100m}"))}}
	m.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: 2}}
	r.ask(&m, build.Start)
	text := r.String()
	if !strings.HasPrefix(text, `{"phase":"Canary",`) || strings.Contains(text, "\n") {
		t.Errorf("written as %s", text)
	}
	switch read, err := ReadRecord(map[string]string{api.RolloutAnnotation: text}); {
	case err != nil:
		t.Error(err)
	case read.String() != text || read.canary(m.Pod.UID).Containers["app"].Restarts != 2:
		t.Errorf("read as %s, want %s", read, text)
	}
}

// What a controller cannot read, it does not touch.
func TestUnknownRecord(t *testing.T) {
	for text, want := range map[string]string{
		"true":                            "cannot be read",
		`{"phase":"Stopped"}`:             "its version is 0, and this controller knows version 1",
		`{"phase":"Stopped","version":2}`: "its version is 2, and this controller knows version 1",
	} {
		annotations := map[string]string{api.HoldAnnotation: "0", api.RolloutAnnotation: text}
		p, err := Facts{}.Plan(nil, annotations)
		if err != nil || len(p.Writes) > 0 || p.Condition.Reason != judge.ReasonInvalidPolicy || !strings.Contains(p.Condition.Message(), want) || !Stopped(annotations) {
			t.Errorf("%s: %+v, %v", text, p, err)
		}
	}
}

// No canary is asked that could not be recorded.
func TestNoRoomForTheRecord(t *testing.T) {
	newer := build.Size(t, "requests: {cpu: 200m}")
	for length, want := range map[int]int{0: 1, 256<<10 - 100: 0} {
		settings := must.Get(policy.Read(map[string]string{api.CanaryAnnotation: "1"}))(t)
		f := Facts{Settings: settings, Places: &anywhere{}, Annotations: map[string]string{"note": strings.Repeat("x", length)}, Now: build.Start}
		older := build.Size(t, "requests: {cpu: 100m}")
		pod := build.Pod("web-0", older)
		target := must.Get(f.Target(pod, older, newer))(t)
		options := f.Options()
		options.Limit, options.Guard = 1, f.Guard(Edit{Version: "b", Newest: "b", Former: func() string { return "a" }}, 0)
		v := f.member(judge.Place{Name: "web-0", Pod: pod, Available: true, Target: target}, Revision{Name: "b", Template: newer}, options.Guard).Judge(options.Terms)
		if s := Next([]*judge.Verdict{v}, options); len(s.Resize) != want || len(s.record.Canaries) != want || (want == 0) != strings.Contains(s.Condition().Message(), "want fewer of these") {
			t.Errorf("beside %d bytes %d pods are asked: %+v", length, len(s.Resize), s.Condition())
		}
	}
}

// A record stays small, also where a rollout of many pods is tried again.
func TestRecordOfMany(t *testing.T) {
	size := build.Size(t, "requests: {cpu: 200m}")
	r := &Record{Phase: PhaseStopped, Schema: RecordSchema, Of: "b", From: "a", Most: 1, Began: seconds(build.Start.Add(-time.Hour)), Since: seconds(build.Start.Add(-time.Hour)), Failed: "web-7 was OOMKilled"}
	settings := must.Get(policy.Read(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual}))(t)
	f := Facts{Settings: settings, Places: &anywhere{}, Annotations: map[string]string{api.RetryAnnotation: r.Name()}, Now: build.Start, Record: r}
	options, verdicts := f.Options(), []*judge.Verdict(nil)
	options.Guard = f.Guard(Edit{Version: "b", Newest: "b"}, 0)
	for i := range 2500 {
		pod := build.Pod(fmt.Sprintf("web-7d9f8c6b5-%05d", i), size, build.Ours(build.CPURequest))
		pod.Status.ContainerStatuses[0].RestartCount = 1
		pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.NewTime(build.Start)}
		v := f.member(judge.Place{Name: pod.Name, Pod: pod, Available: true, Updated: true, Target: must.Get(f.Target(pod, size, size))(t)}, Revision{Name: "b", Template: size}, options.Guard).Judge(options.Terms)
		verdicts = append(verdicts, v)
	}
	if s := Next(verdicts, options); len(s.record.Canaries) == 0 || len(s.record.String()) > maxRecord*2/3 {
		t.Errorf("the record has %d canaries and %d bytes", len(s.record.Canaries), len(s.record.String()))
	}
}

// TestUnanswerableChecks: no pod is asked where it would have to pass a check that nobody can answer, and the condition says so.
func TestUnanswerableChecks(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 200m}")
	for why, want := range map[string]int{"": 1, "there is no check latncy": 0} {
		for _, canary := range []string{"", "1"} {
			settings := must.Get(policy.Read(map[string]string{api.CanaryAnnotation: canary, api.ChecksAnnotation: "errors, latncy"}))(t)
			f := Facts{Settings: settings, Places: &anywhere{}, Now: build.Start, Unanswerable: func([]string) string { return why }}
			pod := build.Pod("web-0", older)
			target := must.Get(f.Target(pod, older, newer))(t)
			options := f.Options()
			options.Limit, options.Guard = 1, f.Guard(Edit{Version: "b", Newest: "b", Former: func() string { return "a" }}, 0)
			v := f.member(judge.Place{Name: "web-0", Pod: pod, Available: true, Target: target}, Revision{Name: "b", Template: newer}, options.Guard).Judge(options.Terms)
			s := Next([]*judge.Verdict{v}, options)
			have := s.Condition()
			if len(s.Resize) != want || (have.Reason == judge.ReasonCheckUnknown) != (want == 0) || strings.Contains(have.Message(), "web-0: not resized, because there is no check latncy") != (want == 0) {
				t.Errorf("because %q, with the canary %q: %d pods are asked: %+v", why, canary, len(s.Resize), have)
			}
		}
	}
}

// TestRetriedRecord: who is the canary, and that it is over, is forgotten by a retry only where a pod has failed, and the retry names that
// very rollout: a value that is new to it, such as of a manifest that was saved before, means another one. What is tried again has
// another name, however soon.
func TestRetriedRecord(t *testing.T) {
	for stored, want := range map[Phase]Phase{PhaseCanary: PhaseCanary, PhaseRolling: PhaseRolling, PhaseStopped: PhaseCanary, PhaseReverted: PhaseCanary} {
		r := &Record{Of: "edit 1", Phase: stored, Since: seconds(build.Start), Canaries: []Canary{{UID: "a"}}}
		for retry, lifts := range map[string]bool{
			r.Name(): true, r.Name() + ";Restart": true, "now": false, "": false, build.Start.Format(time.RFC3339): false, "edit 1@2025-01-01T00:00:00Z": false,
		} {
			f := Facts{
				Settings: policy.Settings{Guard: &policy.Guard{Canary: ptr.To(intstr.FromInt32(1)), Manual: true}}, Annotations: map[string]string{api.RetryAnnotation: retry},
				Record: r, Now: build.Start,
			}
			want := want
			if !lifts {
				want = stored
			}
			got := f.Guard(Edit{Version: "edit 1"}, 0).Record
			again := lifts && r.Stopped()
			if got.Phase != want || (len(got.Canaries) == 0) != again || (got.Name() != r.Name()) != again {
				t.Errorf("%s, retried by %q: %+v", stored, retry, got)
			}
		}
	}
}

// TestPendingRecord: what the hold has begun is a new rollout, also where it is of the version that was recorded before. Of that, only
// what the pods had before counts. Where nothing is to be guarded, it goes.
func TestPendingRecord(t *testing.T) {
	for text, from := range map[string]string{
		`{"phase":"Pending","version":1}`:                                                       "most",
		`{"phase":"Pending","version":1,"of":"revision b","from":"a","promoted":true}`:          "a",
		`{"phase":"Pending","version":1,"of":"revision c","from":"a","canaries":[{"uid":"x"}]}`: "a",
	} {
		annotations := map[string]string{api.HoldAnnotation: "0", api.RolloutAnnotation: text}
		stored, err := Unproved(annotations)
		if stored == nil || err != nil {
			t.Fatalf("%s is taken for proved: %v", text, err)
		}
		f := Facts{Settings: policy.Settings{Guard: &policy.Guard{Canary: ptr.To(intstr.FromInt32(1))}}, Annotations: annotations, Record: stored, Now: build.Start}
		edit := Edit{Version: "revision c", Newest: "c", Former: func() string { return "most" }}
		if r := f.Guard(edit, 0).Record; r.Phase != PhaseCanary || r.From != from || r.Promoted || len(r.Canaries) > 0 || r.Since != seconds(f.Now) {
			t.Errorf("%s becomes %+v", text, r)
		}
		looked := Plan{Step: Step{Verdicts: []*judge.Verdict{{}}}}
		if p := looked.recorded(f); len(p.Writes) != 1 || p.Writes[0].String() != "remove the record of a guarded rollout" {
			t.Errorf("unguarded, %s leads to %v", text, p.Writes)
		}
		looked.Writes = []Write{Release{}}
		if p := looked.recorded(f); len(p.Writes) != 1 || p.Writes[0].String() != "release the hold" {
			t.Errorf("let go, %s leads to %v", text, p.Writes)
		}
		if p := (Plan{}).recorded(f); len(p.Writes) > 0 {
			t.Errorf("before a look, %s leads to %v", text, p.Writes)
		}
	}
}

// The message is read as it is written, and nothing else is.
func TestObserved(t *testing.T) {
	for _, o := range []Observed{0, 1, 9007199254740993} {
		if got := ParseObserved(o.String()); got != o {
			t.Errorf("%q is %d", o, got)
		}
	}
	for _, other := range []string{"", "observed generation", "observed generation x", "observed generation 7; and more", "generation 7"} {
		if got := ParseObserved(other); got != 0 {
			t.Errorf("%q is %d", other, got)
		}
	}
	for _, tt := range []struct {
		field int64
		said  *StoredCondition
		want  int64
	}{{7, nil, 7}, {6, &StoredCondition{Message: Observed(7).String()}, 7}, {8, &StoredCondition{Message: Observed(7).String()}, 8}} {
		if got := ObservedGeneration(tt.field, tt.said); got != tt.want {
			t.Errorf("%d and %v are of generation %d, want %d", tt.field, tt.said, got, tt.want)
		}
	}
}

// Complete is believed only of what it was said of; what nobody holds may be the built-in controller's.
func TestAtRest(t *testing.T) {
	is := func(status corev1.ConditionStatus, c Condition) *StoredCondition {
		return &StoredCondition{Status: status, Of: c.Of()}
	}
	now := Over(RevisionNamed("b"), 0)
	complete := is(corev1.ConditionTrue, now)
	u := BuiltInStatus{Condition: now, Over: now, Counted: true}
	with := func(change func(*BuiltInStatus)) BuiltInStatus {
		changed := u
		change(&changed)
		return changed
	}
	notCounted := func(u *BuiltInStatus) { u.Counted = false }
	builtIn := func(u *BuiltInStatus) { u.BuiltIn, u.Counted = true, false }
	stale := func(u *BuiltInStatus) { u.Stale = true }
	for _, tt := range []struct {
		name   string
		status BuiltInStatus
		held   bool
		have   *StoredCondition
		rests  bool
		says   Condition
	}{
		{"Complete", u, false, complete, true, Condition{}},
		{"Complete, and not counted yet", with(notCounted), false, complete, true, Condition{}},
		{"Complete of another revision", u, false, is(corev1.ConditionTrue, Over(RevisionNamed("a"), 0)), false, Condition{}},
		{"Complete of a partition", u, false, is(corev1.ConditionTrue, Over(RevisionNamed("b"), 1)), false, Condition{}},
		{"Complete of a version before, which has not noted of what", u, false, is(corev1.ConditionTrue, Condition{}), false, Condition{}},
		{"Complete of a Deployment", with(func(u *BuiltInStatus) { u.Over = Over("", 0) }), false, is(corev1.ConditionTrue, Condition{}), true, Condition{}},
		{"Complete, and stale pods are counted", with(stale), false, complete, false, Condition{}},
		{"held", u, true, is(corev1.ConditionFalse, Condition{}), false, Condition{}},
		{"held, and Complete is of before", u, true, complete, true, UnseenHold()},
		{"nothing is said yet", u, false, nil, false, Condition{}},
		{"the built-in controller is at it", with(builtIn), false, nil, true, now},
		{"the built-in controller is at it, and Complete is of before", with(builtIn), false, is(corev1.ConditionTrue, Condition{Why: "a"}), true, now},
		{"the built-in controller is done", with(func(u *BuiltInStatus) { u.BuiltIn = true }), false, nil, false, Condition{}},
	} {
		p, rests := tt.status.AtRest(tt.held, tt.have)
		if rests != tt.rests || rests && p.Condition != tt.says {
			t.Errorf("%s: at rest: %t, want %t; says %+v, want %+v", tt.name, rests, tt.rests, p.Condition, tt.says)
		}
	}
}

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
