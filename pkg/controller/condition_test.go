package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
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
	recreated := func(w *appsv1.ReplicaSet) {
		w.Labels, w.Annotations = nil, map[string]string{api.SaidOfAnnotation: "Over;generation 3 of web;"}
	}
	for _, tt := range []struct {
		name       string
		gone       bool
		unobserved bool
		change     func(*appsv1.ReplicaSet)
		said       *rollout.StoredCondition
		dryRun     bool
		fails      error
		unread     error
		again      bool
		want       string
	}{
		{name: "opted out", change: optedOut, said: said, want: taken},
		{name: "opted out by a value", change: func(w *appsv1.ReplicaSet) { w.Labels[api.EnabledLabel] = "false" }, said: said, want: taken},
		{name: "nothing was said", change: optedOut},
		{name: "deleted", gone: true, said: said},
		{name: "about to be deleted", change: func(w *appsv1.ReplicaSet) { w.Labels, w.DeletionTimestamp = nil, ptr.To(metav1.Now()) }, said: said},
		{name: "opted in again meanwhile", change: func(*appsv1.ReplicaSet) {}, said: said},
		{name: "an older ClusterRole", change: optedOut, said: said, unread: apierrors.NewForbidden(schema.GroupResource{Resource: "plains"}, "web", nil), again: true},
		{name: "a Recreate was over, and the status does not show that", change: recreated, unobserved: true, said: said, again: true},
		{name: "a dry run", change: optedOut, said: said, dryRun: true},
		{name: "it fails", change: optedOut, said: said, fails: errors.New("the API server is tired")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, Options{DryRun: tt.dryRun, Ready: func() error { return nil }})
			e.kind.condition, e.kind.fails, e.kind.unread, e.kind.unobserved = tt.said, tt.fails, tt.unread, tt.unobserved
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
	e.kind.unobserved = true
	e.pass(time.Hour)
	look("the built-in controller is away", ProgressInterval, 3)
	e.kind.unobserved, e.kind.condition = false, said
	look("it wrote what it had read", ProgressInterval, 4)
	e.w.Labels = map[string]string{api.EnabledLabel: "true"}
	look("opted in again", 0, 4)
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

// TestRetryWhileAway: a controller that takes over obeys a retry that was written after the last status, and no older one, and no
// other write.
func TestRetryWhileAway(t *testing.T) {
	at := func(seconds int) *metav1.Time {
		return &metav1.Time{Time: time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC)}
	}
	status := metav1.ManagedFieldsEntry{Manager: api.FieldManager, Subresource: "status", Time: at(10), FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)}
	for name, tt := range map[string]struct {
		others []metav1.ManagedFieldsEntry
		again  bool
	}{
		"written after it":     {[]metav1.ManagedFieldsEntry{{Manager: api.RetryFieldManager, Time: at(11)}, status}, true},
		"written before it":    {[]metav1.ManagedFieldsEntry{{Manager: api.RetryFieldManager, Time: at(9)}, status}, false},
		"in the same second":   {[]metav1.ManagedFieldsEntry{{Manager: api.RetryFieldManager, Time: at(10)}, status}, false},
		"by somebody else":     {[]metav1.ManagedFieldsEntry{status, {Manager: "kubectl-annotate", Time: at(11)}}, false},
		"no status of ours":    {[]metav1.ManagedFieldsEntry{{Manager: api.RetryFieldManager, Time: at(11)}}, false},
		"the spec, not status": {[]metav1.ManagedFieldsEntry{{Manager: api.RetryFieldManager, Time: at(11)}, {Manager: api.FieldManager, Time: at(10)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.RetryAnnotation: "1"}, ManagedFields: tt.others}}
			keepWritten(w)
			for _, entry := range w.ManagedFields {
				if entry.FieldsV1 != nil {
					t.Errorf("kept fields in %+v", entry)
				}
			}
			if again := askedAgain(w); again != tt.again {
				t.Errorf("asked again: %t, want %t", again, tt.again)
			}
			if last := written(w); last == nil || last.Before(tt.others[0].Time) {
				t.Errorf("written at %v", last)
			}
		})
	}
	w := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{status}}}
	if keepWritten(w); len(w.ManagedFields) != 1 || w.ManagedFields[0].Manager != "" {
		t.Errorf("without a retry, %+v is kept", w.ManagedFields)
	}
	w.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: at(3), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{}}}`)}, {Manager: "cron", Time: at(9)}}
	want := []metav1.ManagedFieldsEntry{{Time: at(3)}, {Subresource: "status", Time: at(9)}}
	if keepWritten(w); !equality.Semantic.DeepEqual(w.ManagedFields, want) {
		t.Errorf("of an edit and an annotation of others, %+v is kept", w.ManagedFields)
	}
}

// TestAdvance: only what has not been reached before is news.
func TestAdvance(t *testing.T) {
	plan := func(updated, asked, yet int) (p rollout.Plan) {
		p.Updated = updated
		for i := range asked + yet {
			m := judge.Member{Place: judge.Place{Pod: &corev1.Pod{}}}
			if i >= asked {
				m.Target.Changes = []resize.Change{{}}
			}
			p.Verdicts = append(p.Verdicts, &judge.Verdict{Member: m})
		}
		return p
	}
	proving := func(p rollout.Plan) rollout.Plan {
		p.Canary = true
		return p
	}
	var m movement
	for i, tt := range []struct {
		what string
		edit string
		p    rollout.Plan
		want bool
	}{
		{"it begins", "2;", plan(0, 0, 3), true},
		{"nothing happens", "2;", plan(0, 0, 3), false},
		{"a pod is asked", "2;", plan(0, 1, 2), true},
		{"it is to be asked once more", "2;", plan(0, 0, 3), false},
		{"it is", "2;", plan(0, 1, 2), false},
		{"it has the size", "2;", plan(1, 1, 2), true},
		{"it goes", "2;", plan(0, 0, 2), false},
		{"another one comes", "2;", plan(1, 1, 2), false},
		{"another edit", "3;", plan(0, 0, 3), true},
		{"begins anew", "3;", plan(0, 1, 2), true},
		{"it is to be tried again", "3;1", plan(0, 1, 2), true},
		{"a canary proves itself", "3;1", proving(plan(1, 1, 2)), true},
		{"still", "3;1", proving(plan(1, 1, 2)), true},
		{"it has proved itself since", "3;1", plan(1, 1, 2), true},
		{"nobody asks the others", "3;1", plan(1, 1, 2), false},
	} {
		if got := m.advance(tt.edit, tt.p); got != tt.want {
			t.Errorf("%d: %s: moved %t, want %t", i, tt.what, got, tt.want)
		}
	}
}

// TestLeftOut: of what is opted in where nothing is held, only the condition is written, once. A hold from before is let go with what
// the user wants, in one write for this version of the workload.
func TestLeftOut(t *testing.T) {
	const condition = `{"metadata":{"uid":"web"},"status":{"conditions":[null]}}`
	release := `{"metadata":{"annotations":{"inplace-rollout.io/hold":null,"inplace-rollout.io/partition":null,"inplace-rollout.io/rollout":null},"resourceVersion":"1","uid":"web"},"spec":{"paused":false}}`
	for about, tt := range map[string]struct {
		annotations map[string]string
		dryRun      bool
		again       error // of the second look
		back        bool  // it is not left out any more
		patches     []string
		says, event string
		fails       bool
	}{
		"it is not held": {patches: []string{condition}, says: "the Plain controller makes the rollouts"},
		"it is held": {
			annotations: map[string]string{api.HoldAnnotation: "false", api.InForceAnnotation: ";"}, patches: []string{release, release},
			event: "Warning HandedOver the namespaceSelector of the webhooks excludes namespace default",
		},
		"it is held by a new hold":         {annotations: map[string]string{api.HoldAnnotation: ""}, back: true},
		"whether it is, cannot be seen":    {annotations: map[string]string{api.HoldAnnotation: ""}, again: errors.New("away"), fails: true},
		"it is held, and nothing is to be": {annotations: map[string]string{api.HoldAnnotation: ""}, dryRun: true},
		"it is held, and may restart nothing": {
			annotations: map[string]string{api.HoldAnnotation: "", api.InForceAnnotation: "LiveResize;"}, patches: []string{condition},
			says: "this rollout stays held, because its action is LiveResize. `kubectl inplace-rollout release` lets go of it",
		},
		"it is held, and its size has failed": {
			annotations: map[string]string{api.HoldAnnotation: "", api.RolloutAnnotation: `{"phase":"Stopped","version":1}`}, patches: []string{condition},
			says: "this rollout stays held, because the size has failed, or its canary has not proved it. `kubectl inplace-rollout release` lets go of it",
		},
		"it is held, and its canary is over": {
			annotations: map[string]string{api.HoldAnnotation: "", api.RolloutAnnotation: `{"phase":"Rolling","version":1}`}, patches: []string{release, release},
			event: "Warning HandedOver",
		},
		"it is held, and what it may is not known": {
			annotations: map[string]string{api.HoldAnnotation: "", api.InForceAnnotation: "Nonsense;", api.ResizeActionAnnotation: "Nonsense"}, patches: []string{condition},
			says: "stays held, because annotation inplace-rollout.io/resource-resize-action",
		},
	} {
		t.Run(about, func(t *testing.T) {
			e := newEngine(t, Options{
				Ready: func() error { return nil }, DryRun: tt.dryRun,
				LeftOut:    func(namespace string) bool { return namespace == "default" },
				LeftOutNow: func(context.Context, string) (bool, error) { return !tt.back, tt.again },
			})
			var patches []string
			patch := e.access.Patch
			e.access.Patch = func(ctx context.Context, w *appsv1.ReplicaSet, kind types.PatchType, body []byte, sub ...string) (runtime.Object, error) {
				patches = append(patches, string(body))
				return patch(ctx, w, kind, body, sub...)
			}
			e.w.Annotations = tt.annotations
			must.Do(t, e.informer.GetStore().Add(e.w))
			for range 2 {
				if _, err := e.Sync(t.Context(), e.session.name); (err != nil) != tt.fails {
					t.Fatal(err)
				}
			}
			if !slices.Equal(patches, tt.patches) {
				t.Errorf("written was %q, want %q", patches, tt.patches)
			}
			if got := e.kind.condition; (tt.says != "") != (got != nil && got.Reason == judge.ReasonNamespaceLeftOut && !got.Complete() && strings.Contains(got.Message, tt.says)) {
				t.Errorf("the condition is %+v, want %q", got, tt.says)
			}
			select {
			case event := <-e.events:
				if tt.event == "" || !strings.HasPrefix(event, tt.event) {
					t.Errorf("the event %q came, want %q", event, tt.event)
				}
			default:
				if tt.event != "" {
					t.Error("no event came")
				}
			}
			if len(e.sessions) > 0 {
				t.Error("its pods are watched")
			}
		})
	}
}

// TestMessageOfWhatIsComplete: one that changes again and again is brought up to date all the same.
func TestMessageOfWhatIsComplete(t *testing.T) {
	e := newEngine(t, Options{})
	for second := range 600 {
		p := rollout.Plan{Step: rollout.Step{Total: 1}, Condition: rollout.Condition{Complete: true, Reason: judge.ReasonComplete, Why: fmt.Sprint(second/5, " have the size of their class")}}
		must.Get(e.record(t.Context(), e.session, e.w, p))(t)
		e.pass(time.Second)
	}
	if n := e.kind.patches; n < 5 || n > 15 {
		t.Errorf("%d writes: it says %q", n, e.kind.condition.Message)
	}
}
