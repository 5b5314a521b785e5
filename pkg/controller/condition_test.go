package controller

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestBeganByTheirClock: what others have set since the rollout began is told from what they set
// before, however far ahead the clock of the API server is, or behind.
func TestBeganByTheirClock(t *testing.T) {
	template, others := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 130m}")
	for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		e := newEngine(t, Options{})
		theirs := func(after time.Duration) time.Time { return build.Start.Add(ahead + after) }
		e.w.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Time: ptr.To(metav1.NewTime(theirs(0)))}, {Manager: "cron", Time: ptr.To(metav1.NewTime(theirs(-time.Hour)))}, {Manager: "someone"},
		}
		w := must.Get(e.strip(e.w))(t)
		progressing := rollout.Plan{Condition: rollout.Condition{Reason: judge.ReasonProgressing}}
		must.Get(e.writeCondition(t.Context(), w, progressing))(t)
		for after, overruled := range map[time.Duration]bool{-time.Minute: false, time.Minute: true} {
			pod := build.Pod("web-0", template, build.Resized(others), build.ResizedBy("vpa", theirs(after), build.CPURequest))
			f := rollout.Facts{Places: capacity.NewPlaces(nil, true, capacity.Limits{}), Now: build.Start.Add(time.Minute), Defaults: policy.Standard}
			target, err := f.Leftover(pod, rollout.Revision{Template: template}, e.kind.condition, true)
			if err != nil || target.Overrules != overruled {
				t.Errorf("the clock is %s ahead: what was set %s after the edit is overruled: %t, %v", ahead, after, target.Overrules, err)
			}
		}
	}
}

// TestWithdraw: what is said of a workload goes with its label, and nothing else is written of one that is not opted in.
func TestWithdraw(t *testing.T) {
	const taken = `status {"metadata":{"annotations":{"inplace-rollout.io/said-of":null},"resourceVersion":"1","uid":"web"},"status":{"conditions":[` +
		`{"$patch":"delete","type":"inplace-rollout.io/Complete"},{"$patch":"delete","type":"inplace-rollout.io/Observed"}]}}`
	said := &rollout.StoredCondition{Status: corev1.ConditionFalse, Reason: judge.ReasonProgressing}
	optedOut := func(w *appsv1.ReplicaSet) { w.Labels = nil }
	for _, tt := range []struct {
		name   string
		gone   bool
		change func(*appsv1.ReplicaSet)
		said   *rollout.StoredCondition
		dryRun bool
		fails  error
		unread error
		again  bool
		want   string
	}{
		{name: "opted out", change: optedOut, said: said, want: taken},
		{name: "opted out by a value", change: func(w *appsv1.ReplicaSet) { w.Labels[api.EnabledLabel] = "false" }, said: said, want: taken},
		{name: "nothing was said", change: optedOut},
		{name: "deleted", gone: true, said: said},
		{name: "about to be deleted", change: func(w *appsv1.ReplicaSet) { w.Labels, w.DeletionTimestamp = nil, ptr.To(metav1.Now()) }, said: said},
		{name: "opted in again meanwhile", change: func(*appsv1.ReplicaSet) {}, said: said},
		{name: "an older ClusterRole", change: optedOut, said: said, unread: apierrors.NewForbidden(schema.GroupResource{Resource: "plains"}, "web", nil), again: true},
		{name: "a dry run", change: optedOut, said: said, dryRun: true},
		{name: "it fails", change: optedOut, said: said, fails: errors.New("the API server is tired")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, Options{DryRun: tt.dryRun, Ready: func() error { return nil }})
			e.kind.condition, e.kind.fails, e.kind.unread = tt.said, tt.fails, tt.unread
			if !tt.gone {
				tt.change(e.w)
				e.kind.there = func() *appsv1.ReplicaSet { return e.w }
			}
			again, err := e.Sync(t.Context(), e.session.name)
			if !errors.Is(err, tt.fails) || e.kind.patched != tt.want || again > 0 != (tt.again || tt.want != "") {
				t.Errorf("wrote %q, looks again in %s: %v; want %q", e.kind.patched, again, err, tt.want)
			}
			if _, err := e.Sync(t.Context(), e.session.name); !errors.Is(err, tt.fails) || e.kind.patches > 1 && tt.fails == nil {
				t.Errorf("%d writes: %v", e.kind.patches, err)
			}
		})
	}
}

// TestSaidOf: what the condition speaks of is written with it, and goes with it. Whoever takes it away alone sees it again once a minute at most.
func TestSaidOf(t *testing.T) {
	e := newEngine(t, Options{})
	write := func(what, there string, c rollout.Condition, want string) {
		t.Helper()
		e.w.Annotations, e.kind.patched = map[string]string{}, ""
		if there != "" {
			e.w.Annotations[api.SaidOfAnnotation] = there
		}
		due, err := e.writeCondition(t.Context(), e.w, rollout.Plan{Condition: c})
		_, got, is := strings.Cut(e.kind.patched, `"annotations":`)
		if got, _, _ = strings.Cut(got, "}"); is {
			got += "}"
		}
		if err != nil || got != want || due > 0 != (e.kind.patched == "" && there != it.Of().String()) {
			t.Errorf("%s: wrote %q, due in %s: %v; want %q", what, e.kind.patched, due, err, want)
		}
	}
	said, gone := `{"inplace-rollout.io/said-of":"Over;revision it;"}`, `{"inplace-rollout.io/said-of":null}`
	write("nothing was said", "", it, said)
	write("the same", "Over;revision it;", it, "")
	write("somebody has removed it", "", it, "")
	e.pass(longProgressInterval)
	write("somebody has removed it a minute ago", "", it, said)
	write("admission has taken it back", "Over;revision it;", rollout.UnseenHold(), gone)
	for c, goes := range map[rollout.Condition]bool{it: true, rollout.UnseenHold(): false} {
		e.w.Annotations, e.kind.condition, e.kind.patched = map[string]string{api.NotHeldAnnotation: "3"}, nil, ""
		if _, err := e.writeCondition(t.Context(), e.w, rollout.Plan{Condition: c}); err != nil || strings.Contains(e.kind.patched, `"`+api.NotHeldAnnotation+`":null`) != goes {
			t.Errorf("with %+v it wrote %q, %v; the mark of an edit that was not held goes: want %t", c, e.kind.patched, err, goes)
		}
	}
	e.w.Labels, e.w.Annotations = nil, map[string]string{api.SaidOfAnnotation: "Over;revision it;"}
	if e.kind.condition = nil; !e.says(e.w) {
		t.Error("it stays at opt-out where the built-in controller has dropped the condition")
	}
}

// TestWithdrawnAgain: the built-in controller may write back what it read before. Whatever is looked at in between, our conditions
// are looked for when it has had the time to.
func TestWithdrawnAgain(t *testing.T) {
	e := newEngine(t, Options{Ready: func() error { return nil }})
	e.w.Labels = nil
	e.kind.there = func() *appsv1.ReplicaSet { return e.w }
	look := func(what string, want time.Duration, patches int) {
		t.Helper()
		again, err := e.Sync(t.Context(), e.session.name)
		if err != nil || again != want || e.kind.patches != patches {
			t.Errorf("%s: looks again in %s, after %d writes: %v; want %s, %d", what, again, e.kind.patches, err, want, patches)
		}
	}
	said := &rollout.StoredCondition{Status: corev1.ConditionFalse, Reason: judge.ReasonProgressing}
	e.kind.condition = said
	look("opted out", ProgressInterval, 1)
	e.pass(time.Second)
	look("a look that was due before", ProgressInterval-time.Second, 1)
	e.pass(ProgressInterval - time.Second)
	e.kind.condition = said
	look("it came back", ProgressInterval, 2)
	e.pass(ProgressInterval)
	look("it stayed away", 0, 2)

	e.kind.condition = said
	look("it came back late", ProgressInterval, 3)
	e.w.Labels = map[string]string{api.EnabledLabel: "true"}
	look("opted in again", 0, 3)
	if len(e.withdrawn) > 0 {
		t.Errorf("%v is remembered", e.withdrawn)
	}
}

// TestFindOptedOut: a controller that begins to lead looks for what was opted out before, again if that fails.
func TestFindOptedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, Options{})
		said := appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "said"}}
		said.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: api.ConditionComplete}}
		e.kind.listed = []appsv1.ReplicaSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}}, said}
		e.kind.unread = errors.New("the API server is tired")
		e.findOptedOut(t.Context())
		if name, _ := e.queue.Get(); name.Name != "said" || e.queue.Len() > 0 {
			t.Errorf("%s is requeued, and %d others", name, e.queue.Len())
		}
		if len(e.kind.lists) != 2 || e.kind.lists[1].LabelSelector != "inplace-rollout.io/enabled!=true" || e.kind.lists[1].Limit == 0 {
			t.Errorf("asked for %+v", e.kind.lists)
		}
		e.queue.ShutDown()
	})
}
