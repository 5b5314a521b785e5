package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/mutationcache"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/watchdog"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// plainKind is a kind with nothing of its own, that notes what it is to write.
type plainKind struct {
	Kind[*appsv1.ReplicaSet, plainState]

	condition, written *rollout.StoredCondition
	patches            int
	patched            string                    // the last patch
	there              func() *appsv1.ReplicaSet // what the API server has; nil for nothing
	unread             error                     // why that cannot be read
	listed             []appsv1.ReplicaSet       // what is not opted in
	lists              []metav1.ListOptions      // how that was asked for
	applied            []string
	fails              error // of writes
	left               rollout.Write
	hang               chan struct{} // writes take until it is closed
	unobserved, rolls  bool
	watched            error // why pods cannot be watched
	workloads          watch.Interface
	size               int // that a session is likely to have
}

type plainState struct{ size int }

func (plainState) HasSynced() bool { return true }

func (s plainState) Size() int { return s.size }

func (k *plainKind) Access() Access[*appsv1.ReplicaSet] {
	return Access[*appsv1.ReplicaSet]{
		Kind: "Plain",
		NewInformer: func(string, func(*metav1.ListOptions)) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(&cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					return &appsv1.ReplicaSetList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
				},
				WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
					if o.SendInitialEvents != nil { // the list has them
						return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
					}
					return k.workloads, nil
				},
			}, &appsv1.ReplicaSet{}, 0, cache.Indexers{})
		},
		NewPodInformer: func(string, string) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(&cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return &corev1.PodList{}, k.watched },
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					return watch.NewFake(), k.watched
				},
			}, &corev1.Pod{}, 0, cache.Indexers{})
		},
		Decode: DecodeTyped[*appsv1.ReplicaSet],
		Size:   func(*appsv1.ReplicaSet) int { return k.size },
		Strip: func(w *appsv1.ReplicaSet, atRest bool) *appsv1.ReplicaSet {
			stripped := *w
			if atRest {
				stripped.Spec.Template = corev1.PodTemplateSpec{}
			}
			return &stripped
		},
		Get: func(_ context.Context, name cache.ObjectName) (*appsv1.ReplicaSet, error) {
			if k.unread != nil {
				return nil, k.unread
			}
			if k.there == nil {
				return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "plains"}, name.Name)
			}
			return k.there(), nil
		},
		List: func(_ context.Context, _ string, o metav1.ListOptions) (runtime.Object, error) {
			k.lists = append(k.lists, o)
			if k.unread != nil {
				err := k.unread
				k.unread = nil
				return nil, err
			}
			return &appsv1.ReplicaSetList{Items: k.listed}, nil
		},
		Patch: func(_ context.Context, w *appsv1.ReplicaSet, _ types.PatchType, patch []byte, subresources ...string) (runtime.Object, error) {
			if k.patches++; k.fails != nil {
				return nil, k.fails
			}
			k.condition, k.patched = k.written, strings.Join(subresources, "")+" "+string(patch)
			return w, nil
		},
		Selector: func(w *appsv1.ReplicaSet) *metav1.LabelSelector { return w.Spec.Selector },
		ObservedGeneration: func(w *appsv1.ReplicaSet) int64 {
			if k.unobserved {
				return w.Generation - 1
			}
			return w.Generation
		},
		ConditionOf: func(w *appsv1.ReplicaSet, of string) *rollout.StoredCondition {
			if of != api.ConditionComplete && len(w.Status.Conditions) > 0 {
				return &rollout.StoredCondition{}
			} else if of != api.ConditionComplete {
				return nil
			}
			return k.condition
		},
		NewCondition: func(c rollout.StoredCondition, _ metav1.Time) any {
			k.written = &c
			return nil
		},
		LeftBehind: func(cache.ObjectName) (rollout.Write, error) { return k.left, nil },
	}
}

func (*plainKind) Open(context.Context, *appsv1.ReplicaSet, func()) (plainState, error) {
	return plainState{}, nil
}

// it is that the rollout is over.
var it = rollout.Over(rollout.RevisionNamed("it"), 0)

func (k *plainKind) BuiltInStatus(*appsv1.ReplicaSet) rollout.BuiltInStatus {
	return rollout.BuiltInStatus{Over: it, BuiltIn: k.rolls}
}

func (k *plainKind) Apply(_ context.Context, _ *Session[*appsv1.ReplicaSet, plainState], _ *appsv1.ReplicaSet, write rollout.Write) error {
	k.applied = append(k.applied, write.String())
	if k.hang != nil {
		<-k.hang
	}
	return k.fails
}

func (*plainKind) Unrestored(_, _ *appsv1.ReplicaSet) map[string]any {
	return map[string]any{"spec": map[string]any{"paused": false}}
}

// tight and loose are writes.
type (
	tight  struct{}
	loose  struct{}
	broken struct{ tight }
)

func (tight) String() string  { return "tight" }
func (tight) Harmless()       {}
func (loose) String() string  { return "loose" }
func (broken) String() string { panic("broken") }

type noNodes struct{}

func (noNodes) List() []*corev1.Node { return nil }
func (noNodes) OnChange(func())      {}
func (noNodes) HasSynced() bool      { return true }

// engine is a controller with one workload, and its session.
type engine struct {
	*Controller[*appsv1.ReplicaSet, plainState]
	kind    *plainKind
	session *Session[*appsv1.ReplicaSet, plainState]
	w       *appsv1.ReplicaSet
	clock   *testingclock.FakePassiveClock
	events  chan string
}

func newEngine(t *testing.T, options Options) *engine {
	t.Helper()
	recorder := record.NewFakeRecorder(100)
	e := &engine{kind: &plainKind{}, clock: testingclock.NewFakePassiveClock(build.Start), events: recorder.Events}
	e.w = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "web", ResourceVersion: "1",
		Labels: map[string]string{api.EnabledLabel: "true"}, Annotations: map[string]string{api.HoldAnnotation: ""},
	}}
	options.Clock = e.clock
	e.Controller = must.Get(New(t.Context(), e.kind, nil, recorder, noNodes{}, options))(t)
	e.session = &Session[*appsv1.ReplicaSet, plainState]{
		memory: newMemory(e.w.UID), controller: e.Controller, name: cache.MetaObjectToName(e.w),
	}
	return e
}

// watches has the session see the pods that the client does.
func (e *engine) watches(t *testing.T, s *Session[*appsv1.ReplicaSet, plainState], client kubernetes.Interface) {
	t.Helper()
	e.client = client
	s.Pods = must.Get(mutationcache.New(t.Context(), coreinformers.NewPodInformer(client, "default", 0, nil), pods.Strip, func() {}))(t)
}

func (e *engine) pass(d time.Duration) { e.clock.SetTime(e.clock.Now().Add(d)) }

// A new leader waits until it has seen what is held, and what the built-in controller still rolls out.
func TestPromised(t *testing.T) {
	e := newEngine(t, Options{})
	other := e.w.DeepCopy()
	other.Name, other.Annotations = "let-go", nil
	must.Do(t, errors.Join(e.informer.GetStore().Add(e.w), e.informer.GetStore().Add(other)))
	for rolls, want := range map[bool]string{false: "[Plain default/web]", true: "[Plain default/let-go Plain default/web]"} {
		e.kind.rolls = rolls
		promised := e.promised()
		if slices.Sort(promised); fmt.Sprint(promised) != want {
			t.Errorf("rolls %t: got %v, want %s", rolls, promised, want)
		}
	}
}

// Of a workload at rest, nothing of the template is kept in memory, nor is of any what nothing reads.
// Whoever writes it gets it whole.
func TestStrip(t *testing.T) {
	for _, tt := range []struct {
		name      string
		condition *rollout.StoredCondition
		kept      bool
	}{
		{"at rest", &rollout.StoredCondition{Status: corev1.ConditionTrue}, false},
		{"under way", &rollout.StoredCondition{Status: corev1.ConditionFalse}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, Options{})
			e.kind.written = tt.condition
			e.w.Spec.Template = *build.Size(t, "")
			e.w.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
			e.w.Annotations[corev1.LastAppliedConfigAnnotation], e.w.Annotations["example.com/large"], e.w.Annotations["deployment.kubernetes.io/revision"] = "{}", "large", "2"
			must.Do(t, e.informer.GetStore().Add(e.w.DeepCopy()))
			whole := e.w.DeepCopy()
			e.w.ResourceVersion = "2"
			written, err := e.patch(t.Context(), e.w, types.MergePatchType, nil)
			if err != nil || len(written.Spec.Template.Spec.Containers) == 0 {
				t.Errorf("the answer to a write is %+v: %v", written, err)
			}
			kept, exists, err := e.get(e.session.name)
			if err != nil || !exists {
				t.Fatalf("there: %t, %v", exists, err)
			}
			if has := len(kept.Spec.Template.Spec.Containers) > 0; has != tt.kept {
				t.Errorf("the template is kept: %t, want %t", has, tt.kept)
			}
			want := map[string]string{api.HoldAnnotation: "", "deployment.kubernetes.io/revision": "2"} // a message names the revision
			if len(kept.ManagedFields) > 0 || !maps.Equal(kept.Annotations, want) || kept.ResourceVersion != "2" {
				t.Errorf("kept is %+v", kept.ObjectMeta)
			}
			whole.ResourceVersion = "2"
			if !equality.Semantic.DeepEqual(e.w, whole) {
				t.Errorf("what was stripped has changed, to %+v", e.w)
			}
		})
	}
}

// TestReplayedVersions: a watch that brings an older version once more does not take back what was seen. If it has come further than that,
// and has not brought it, there is no such version any more: etcd was restored from a backup.
func TestReplayedVersions(t *testing.T) {
	e, events := newEngine(t, Options{}), watch.NewFake()
	e.kind.workloads = events
	go e.informer.RunWithContext(t.Context())
	version := func(version string) *appsv1.ReplicaSet {
		w := e.w.DeepCopy()
		w.ResourceVersion = version
		return w
	}
	// seen waits until the handler has seen a version, and returns the one that a sync sees.
	seen := func(comes string) (got string) {
		must.Do(t, wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
			stored, exists, err := e.informer.GetStore().GetByKey(e.session.name.String())
			if err != nil || !exists || stored.(*appsv1.ReplicaSet).ResourceVersion != comes || e.queue.Len() == 0 {
				return false, err
			}
			name, _ := e.queue.Get()
			e.queue.Done(name)
			w, _, err := e.get(e.session.name)
			got = w.ResourceVersion
			return true, err
		}))
		return got
	}
	events.Add(version("5"))
	seen("5")
	for _, tt := range []struct{ comes, want string }{{"9", "9"}, {"7", "9"}, {"6", "9"}, {"12", "12"}, {"8", "12"}} {
		events.Modify(version(tt.comes))
		if got := seen(tt.comes); got != tt.want {
			t.Errorf("after version %s it is version %s, want %s", tt.comes, got, tt.want)
		}
	}
	events.Action(watch.Bookmark, version("1000"))
	must.Eventually(t, time.Millisecond, 10*time.Second, "version 8, watched up to 1000", func() (bool, string) {
		w, _, err := e.get(e.session.name)
		return w.ResourceVersion == "8", fmt.Sprint(w.ResourceVersion, err)
	})
}

// A write that is never answered is told, with the workload. The others' syncs are not.
func TestPulse(t *testing.T) {
	dog := watchdog.New(100 * time.Millisecond)
	e := newEngine(t, Options{Watchdog: dog, Ready: func() error { return nil }})
	e.kind.left, e.kind.hang = tight{}, make(chan struct{})
	e.queue.Add(e.session.name) // it is gone, and has left something behind
	done := make(chan bool)
	go func() { done <- e.workOne(t.Context()) }()
	var err error
	for deadline := time.Now().Add(time.Minute); err == nil && time.Now().Before(deadline); err = dog.Err() {
		time.Sleep(time.Millisecond)
		dog.Progress("the sync of Plain default/large") // goes on
	}
	if err == nil || !strings.HasPrefix(err.Error(), "the sync of Plain default/web hangs: it has made no progress for ") {
		t.Errorf("it says: %v", err)
	}
	dog.Done("the sync of Plain default/large")
	close(e.kind.hang)
	<-done
	must.Fails(t, "after the answer it says", dog.Err(), "")
}

// A refusal is remembered for the next plan, which is made soon; what has only changed meanwhile is none,
// nor is it one that nobody has answered: that is looked at live.
func TestRememberRefusal(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	pod := build.Pod("web-0", older)
	target := must.Get(resize.For(pod, older, newer))(t)
	m, revision, what := judge.Member{Place: judge.Place{Pod: pod, Target: target}}, rollout.Revision{Name: "b", Template: newer}, schema.GroupResource{Resource: "pods"}
	for _, tt := range []struct {
		err              error
		kept, unanswered bool
	}{
		{err: apierrors.NewForbidden(what, "web-0", errors.New("exceeded quota: compute")), kept: true},
		{err: apierrors.NewInternalError(errors.New("failed calling webhook")), kept: true},
		{err: apierrors.NewConflict(what, "web-0", errors.New("modified"))},
		{err: apierrors.NewNotFound(what, "web-0")},
		{err: errors.New("connection reset by peer"), unanswered: true},
		{err: apierrors.NewTimeoutError("too late", 1), unanswered: true},
		{err: apierrors.NewServerTimeout(what, "patch", 1), unanswered: true},
		{err: apierrors.NewServiceUnavailable("apiserver not ready"), unanswered: true},
		{err: apierrors.NewTooManyRequests("later", 1), unanswered: true},
	} {
		e := newEngine(t, Options{})
		if err := e.session.rememberRefusal(e.w, m, revision, tt.err); tt.kept && err != nil || !tt.kept && !errors.Is(err, tt.err) {
			t.Errorf("%v: returned %v", tt.err, err)
		}
		if known := e.session.Notes.Of(pod.UID).Size.Of(revision.Size(target.Changes)); (known.Reason != "") != tt.kept {
			t.Errorf("%v: known is %+v", tt.err, known)
		}
		if queued := e.queue.Len() == 1; queued != tt.kept {
			t.Errorf("%v: queued: %t", tt.err, queued)
		}
		if e.session.unanswered != tt.unanswered {
			t.Errorf("%v: unanswered: %t", tt.err, e.session.unanswered)
		}
	}
}

// TestResizedOtherwise: the answer to a resize tells what has become of it. Before 1.36 the API server
// leaves a pod's own resources out, as often as it is asked.
func TestResizedOtherwise(t *testing.T) {
	const edit = "{resources: {limits: {cpu: 1}}, containers: [{name: app, resources: {requests: {cpu: 150m, memory: 1Gi}}}]}"
	older, newer := build.Size(t, "requests: {cpu: 100m, memory: 1Gi}"), build.Template(t, edit)
	for _, tt := range []struct {
		answer string
		want   judge.Refusal
		beside string
	}{
		{answer: edit},
		{answer: strings.Replace(edit, "1Gi", "2Gi", 1), beside: "app: memory request 2Gi→1Gi"},
		{answer: "containers: [{name: app, resources: {requests: {cpu: 150m, memory: 1Gi}}}]", want: judge.Refusal{
			Kind: judge.ReasonInfeasible, Final: true, Reason: "the API server does not set pod-level resources of a running pod: pod: cpu limit none→1",
		}},
		{answer: strings.Replace(edit, "150m", "120m", 1), want: judge.Refusal{
			Kind: judge.ReasonAdmissionDenied, Reason: "an admission plugin changed the size in the request: app: cpu request 120m→150m",
		}},
	} {
		pod := build.Pod("web-0", older)
		target := must.Get(resize.For(pod, older, newer))(t)
		e, client := newEngine(t, Options{}), fake.NewClientset()
		build.Answers(client, "patch", "pods", build.Pod("web-0", build.Template(t, tt.answer)), nil)
		e.watches(t, e.session, client)
		m, revision := judge.Member{Place: judge.Place{Pod: pod, Target: target}}, rollout.Revision{Name: "b", Template: newer}
		must.Do(t, e.session.resize(t.Context(), e.w, rollout.Plan{Revision: revision}, m))
		if got := e.session.Notes.Of(pod.UID).Size.Last(); got.Kind != tt.want.Kind || got.Final != tt.want.Final || got.Reason != tt.want.Reason {
			t.Errorf("%s: known is %+v, want %+v", tt.answer, got, tt.want)
		}
		if got := resize.Describe(e.session.Notes.Of(pod.UID).Beside); got != tt.beside || (got != "" && e.queue.Len() != 1) {
			t.Errorf("%s: %q was changed beside it, want %q; queued: %d", tt.answer, got, tt.beside, e.queue.Len())
		}
	}
}

// TestBesideAskedAgain: admission can change more than is asked for also where the kubelet is to look once more.
func TestBesideAskedAgain(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m, memory: 1Gi}"), build.Size(t, "requests: {cpu: 150m, memory: 1Gi}")
	pod := build.Pod("web-0", older, build.WithSize(newer))
	e, client := newEngine(t, Options{}), fake.NewClientset()
	build.Answers(client, "patch", "pods", build.Pod("web-0", build.Size(t, "requests: {cpu: 100m, memory: 2Gi}")), nil)
	e.watches(t, e.session, client)
	m := judge.Member{Place: judge.Place{Pod: pod, Target: must.Get(resize.For(pod, older, newer))(t)}}
	must.Do(t, e.session.resize(t.Context(), e.w, rollout.Plan{Revision: rollout.Revision{Name: "b", Template: newer}}, m))
	if got := resize.Describe(e.session.Notes.Of(pod.UID).Beside); got != "app: memory request 2Gi→1Gi" {
		t.Errorf("%q was changed beside it", got)
	}
}

// TestNotAskedAgain: a pod that the API server does not let have what it has is not asked for that for ever, and its size is not refused.
func TestNotAskedAgain(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	pod := build.Pod("web-0", older, build.WithSize(newer))
	e, m := newEngine(t, Options{}), judge.Member{Place: judge.Place{Pod: pod, Target: must.Get(resize.For(pod, older, newer))(t)}}
	e.session.Notes.See([]*judge.Verdict{{Member: m}})
	e.session.Notes.AskAgain()
	must.Do(t, e.session.rememberRefusal(e.w, m, rollout.Revision{Name: "b", Template: newer}, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-0", errors.New("no"))))
	if refused := e.session.Notes.Of(pod.UID).Size.Last(); refused.Reason != "" || e.session.Notes.Sighted(pod.UID).Again || e.queue.Len() != 1 || len(e.events) == 0 {
		t.Errorf("refused: %+v, asks again: %t, queued: %d, events: %d", refused, e.session.Notes.Sighted(pod.UID).Again, e.queue.Len(), len(e.events))
	}
}

// TestAskedAgainUntilAnswered: a retry is not lost where the API server does not answer.
func TestAskedAgainUntilAnswered(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	pod := build.Pod("web-0", older, build.WithSize(newer))
	e, client := newEngine(t, Options{}), fake.NewClientset()
	m := judge.Member{Place: judge.Place{Pod: pod, Target: must.Get(resize.For(pod, older, newer))(t)}}
	build.Answers(client, "patch", "pods", nil, apierrors.NewServiceUnavailable("busy"))
	e.watches(t, e.session, client)
	e.session.Notes.See([]*judge.Verdict{{Member: m}})
	e.session.Notes.AskAgain()
	_ = e.session.resize(t.Context(), e.w, rollout.Plan{Revision: rollout.Revision{Name: "b", Template: newer}}, m)
	if !e.session.Notes.Sighted(pod.UID).Again {
		t.Error("nobody asks it again")
	}
}

// TestOneDecidesAtATime: who cannot decide about a restart now, as another one does, takes no step, and looks again soon.
func TestOneDecidesAtATime(t *testing.T) {
	e := newEngine(t, Options{})
	pod := build.Pod("web-0", build.Size(t, "requests: {cpu: 100m}"))
	pod.Spec.NodeName = "node"
	p := rollout.Plan{Replaced: []rollout.Restart{{Member: judge.Member{Place: judge.Place{Name: pod.Name, Pod: pod}}}}, Writes: []rollout.Write{loose{}}}
	must.Get(e.options.Ledger.Decide(t.Context(), func(context.Context) error {
		_, again, err := e.checkCapacity(t.Context(), e.session, e.w, three{}, rollout.Facts{}, p, sets.New[types.UID]())
		must.Equal(t, again, untilDecided, "when it looks again")
		return err
	}))(t)
}

// TestDeletedAsTold: a pod that its user deletes because the condition says so is not lost to others, though it was asked just before.
func TestDeletedAsTold(t *testing.T) {
	pod := build.Pod("web-0", build.Size(t, ""))
	for _, tt := range []struct {
		decision policy.Decision
		lost     int
	}{{policy.WaitForDelete, 0}, {policy.Wait, 1}} {
		e := newEngine(t, Options{})
		e.session.losses.Asked(pod, build.Start)
		verdict := &judge.Verdict{Member: judge.Member{Place: judge.Place{Name: pod.Name, Pod: pod}}, Decision: tt.decision}
		e.note(e.session, e.w, []*corev1.Pod{pod}, rollout.Facts{Now: build.Start}, rollout.Plan{Step: rollout.Step{Verdicts: []*judge.Verdict{verdict}}})
		lost := e.session.losses.See(nil, func(*corev1.Pod, []*corev1.Pod) bool { return false }, func(*corev1.Pod) bool { return false }, build.Start.Add(time.Second))
		if len(lost) != tt.lost {
			t.Errorf("%s: %v are lost, want %d", tt.decision, lost, tt.lost)
		}
	}
}

// TestLookAfterOwnWrites: the watch does not tell of what this controller writes to pods. Where a kubelet has the next word, one
// more look comes a second later at the latest; where nobody has, it comes at once.
func TestLookAfterOwnWrites(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	for _, tt := range []struct {
		name    string
		node    string
		answer  *corev1.PodTemplateSpec // to the resize; nil if none is asked for
		marks   bool
		within  time.Duration
		atOnce  bool
		refused error
	}{
		{name: "nothing is written"},
		{name: "a kubelet is asked", node: "node", answer: newer, within: time.Second},
		{name: "no kubelet has the pod yet", answer: newer, atOnce: true},
		{name: "admission has changed the size", node: "node", answer: older, within: time.Second, atOnce: true},
		{name: "the size is refused", node: "node", answer: newer, refused: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-0", errors.New("no")), atOnce: true},
		{name: "a pod is marked, and another one asked", node: "node", answer: newer, marks: true, within: time.Second},
		{name: "the last pod is marked", node: "node", marks: true, atOnce: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := build.Pod("web-0", older)
			pod.Spec.NodeName = tt.node
			target := must.Get(resize.For(pod, older, newer))(t)
			e, client := newEngine(t, Options{}), fake.NewClientset()
			must.Do(t, e.informer.GetStore().Add(e.w))
			client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				answer := pod.DeepCopy()
				if answer.ResourceVersion = "2"; action.GetSubresource() == "resize" {
					answer.Spec.Containers = tt.answer.Spec.DeepCopy().Containers
				}
				return true, answer, tt.refused
			})
			e.watches(t, e.session, client)
			p := rollout.Plan{Revision: rollout.Revision{Name: "b", Template: newer}}
			m := judge.Member{Place: judge.Place{Name: pod.Name, Pod: pod, Target: target}}
			if tt.marks {
				p.Writes = append(p.Writes, rollout.MarkPod{Member: m, Label: "b", Revision: "b"})
			}
			if tt.answer != nil {
				p.Writes = append(p.Writes, rollout.ResizePod{Member: m})
			}
			must.Get(e.apply(t.Context(), e.session, e.w, p))(t)
			within := e.session.lookAgain()
			if atOnce := e.queue.Len() > 0; within != tt.within || atOnce != tt.atOnce {
				t.Errorf("looks again within %s, at once: %t; want %s, %t", within, atOnce, tt.within, tt.atOnce)
			}
			if asked := e.session.Notes.Of(pod.UID).Request != nil; asked != (tt.answer != nil && tt.refused == nil) {
				t.Errorf("it counts as asked: %t", asked) // and is recorded, and measured, as resized when it has the size
			}
			if again := e.session.lookAgain(); again != 0 {
				t.Errorf("and then within %s, without another write", again)
			}
		})
	}
}

// While admission edits the template in the writes that let the built-in controller loose, these
// wait, longer each time. Others do not.
func TestLooseWritesWait(t *testing.T) {
	e := newEngine(t, Options{})
	must.Do(t, e.informer.GetStore().Add(e.w))
	p := rollout.Plan{Writes: []rollout.Write{tight{}, loose{}}}
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		e.kind.applied, e.kind.fails = nil, nil
		p.Writes = []rollout.Write{loose{}}
		e.kind.fails = ErrEdited
		if due, err := e.apply(t.Context(), e.session, e.w, p); !errors.Is(err, ErrEdited) || due != 0 || len(e.events) != 1 {
			t.Fatalf("edited: %v, due in %s, %d events", err, due, len(e.events))
		}
		<-e.events
		e.kind.applied, e.kind.fails = nil, nil
		p.Writes = []rollout.Write{loose{}, tight{}}
		if due, err := e.apply(t.Context(), e.session, e.w, p); err != nil || due != wait || !slices.Equal(e.kind.applied, []string{"tight"}) {
			t.Errorf("wrote %q, %v, due in %s, want it in %s", e.kind.applied, err, due, wait)
		}
		e.pass(wait)
	}
	e.kind.applied = nil
	if due, err := e.apply(t.Context(), e.session, e.w, p); err != nil || due != 0 || !slices.Equal(e.kind.applied, []string{"loose", "tight"}) {
		t.Errorf("wrote %q, %v, due in %s", e.kind.applied, err, due)
	}
}

// A write that fails keeps no other from being made.
func TestWritesFailAlone(t *testing.T) {
	e := newEngine(t, Options{})
	must.Do(t, e.informer.GetStore().Add(e.w))
	e.kind.fails = errors.New("the connection broke")
	if _, err := e.apply(t.Context(), e.session, e.w, rollout.Plan{Writes: []rollout.Write{tight{}, loose{}}}); !errors.Is(err, e.kind.fails) || len(e.kind.applied) != 2 {
		t.Errorf("wrote %q: %v", e.kind.applied, err)
	}
	// One that is opted out, or deleted, is not there any more.
	e.kind.fails, e.kind.applied = nil, nil
	must.Do(t, e.informer.GetStore().Delete(e.w))
	if _, err := e.apply(t.Context(), e.session, e.w, rollout.Plan{Writes: []rollout.Write{tight{}, loose{}}}); !apierrors.IsConflict(err) || !slices.Equal(e.kind.applied, []string{"tight"}) {
		t.Errorf("without the workload, wrote %q: %v", e.kind.applied, err)
	}
	if _, err := e.apply(t.Context(), e.session, e.w, rollout.Plan{Writes: []rollout.Write{rollout.ResizePod{}}}); !apierrors.IsConflict(err) {
		t.Errorf("without the workload, a pod is resized: %v", err)
	}
}

// three is that so many pods are wanted, and none is there.
type three struct{ rollout.Observation }

func (three) Edit() string                                { return "1" }
func (three) Replicas() int                               { return 3 }
func (three) Pods() (_ []*corev1.Pod, _ []rollout.Coming) { return nil, nil }
func (three) MadeOfNewest(*corev1.Pod) bool               { return false }
func (three) Unwanted(*corev1.Pod, []*corev1.Pod) bool    { return false }

// TestLossesOfNewest: pods that are gone because their workload was scaled in, which its watch has yet to bring, are not lost.
func TestLossesOfNewest(t *testing.T) {
	for name, edits := range map[string]int64{"it was scaled in": 1, "nobody has scaled": 0} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, Options{})
			newest := e.w.DeepCopy()
			newest.Generation += edits
			e.kind.there = func() *appsv1.ReplicaSet { return newest }
			e.session.losses.Begin("1;", false)
			for i := range judge.MaxLosses {
				e.session.losses.Asked(build.Pod(fmt.Sprint("web-", i), build.Size(t, "")), build.Start)
			}
			err := e.countLosses(t.Context(), e.session, e.w, three{}, capacity.NewPlaces(nil, false, e.session.limits), build.Start)
			if lost := len(e.session.losses.All()); apierrors.IsConflict(err) != (edits > 0) || lost > 0 == (edits > 0) {
				t.Errorf("%d count as lost: %v", lost, err)
			}
		})
	}
}

// TestPanics: what panics fails, is tried again from scratch, and keeps nothing else from going on.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, Options{Ready: func() error { return nil }, LeftOut: func(string) bool { panic("broken") }})
		defer e.queue.ShutDown()
		e.open(t)
		must.Do(t, e.informer.GetStore().Add(e.w))
		if _, err := e.apply(t.Context(), e.session, e.w, rollout.Plan{Writes: []rollout.Write{broken{}, tight{}}}); !errors.Is(err, errPanicked) || !slices.Equal(e.kind.applied, []string{"tight"}) {
			t.Errorf("beside a write that panics, wrote %q: %v", e.kind.applied, err)
		}
		began := time.Now()
		for e.queue.Add(e.session.name); len(e.events) < 2; {
			e.workOne(t.Context())
		}
		if took := time.Since(began); took != maxRetryInterval || len(e.sessions)+len(e.memories) > 0 {
			t.Errorf("tried twice within %s; left are %d sessions, %d memories", took, len(e.sessions), len(e.memories))
		}
		e.kind.left = loose{}
		e.queue.Add(cache.ObjectName{Namespace: "default", Name: "gone"})
		if e.workOne(t.Context()); !slices.Equal(e.kind.applied, []string{"tight", "loose"}) {
			t.Errorf("of another one, wrote %q", e.kind.applied)
		}
	})
}

// The condition is written, and recorded, when it differs. A mere message waits.
func TestRecord(t *testing.T) {
	e := newEngine(t, Options{})
	progressing := func(message string) rollout.Plan {
		return rollout.Plan{Step: rollout.Step{Total: 1}, Condition: rollout.Condition{Reason: judge.ReasonProgressing, Why: message}, Started: "cpu"}
	}
	last := progressing("third")
	last.Updated = 1
	passing := progressing("fourth")
	passing.Defer()
	e.kind.fails = errors.New("the connection broke")
	if _, err := e.record(t.Context(), e.session, e.w, progressing("first")); !errors.Is(err, e.kind.fails) || len(e.events) > 0 {
		t.Errorf("the write failed, and returned is %v with %d events", err, len(e.events))
	}
	e.kind.fails, e.kind.patches = nil, 0
	for _, tt := range []struct {
		name   string
		after  time.Duration
		plan   rollout.Plan
		due    time.Duration
		writes int // so far
		events int
	}{
		{"the first one", 0, progressing("first"), 0, 1, 1},
		{"the same", time.Second, progressing("first"), 0, 1, 1},
		{"another message", time.Second, progressing("second"), ProgressInterval, 1, 1},
		{"when it has lasted", ProgressInterval, progressing("second"), 0, 2, 1},
		{"the last word for now", 0, last, lastInterval, 2, 1},
		{"when that is due", lastInterval, last, 0, 3, 1},
		{"one that passes", time.Second, passing, longProgressInterval - time.Second, 3, 1},
		{"when it has lasted, and passes still", ProgressInterval, passing, longProgressInterval - ProgressInterval - time.Second, 3, 1},
		{"Complete", 0, rollout.Plan{Condition: rollout.Condition{Complete: true, Reason: judge.ReasonComplete, Why: "all"}}, 0, 4, 2},
	} {
		e.pass(tt.after)
		due, err := e.record(t.Context(), e.session, e.w, tt.plan)
		if err != nil || due != tt.due || e.kind.patches != tt.writes || len(e.events) != tt.events {
			t.Errorf("%s: due in %s, want %s; %d writes, want %d; %d events, want %d; %v", tt.name, due, tt.due, e.kind.patches, tt.writes, len(e.events), tt.events, err)
		}
	}
}

// While messages follow each other quickly, they are written once a minute, or every ten seconds if
// they say what pods wait for. Another reason is written at once.
func TestQuickMessages(t *testing.T) {
	e := newEngine(t, Options{})
	for second := range 121 {
		p := rollout.Plan{Step: rollout.Step{Total: 1}, Condition: rollout.Condition{Reason: judge.ReasonProgressing, Why: fmt.Sprint(second)}}
		want := 1 + second/60
		if second > 90 {
			p.Condition.Reason = judge.ReasonDeferred
			want = 3 + (second-91)/10
		}
		if _, err := e.record(t.Context(), e.session, e.w, p); err != nil || e.kind.patches != want {
			t.Fatalf("after %d s: %d writes, want %d; %v", second, e.kind.patches, want, err)
		}
		e.pass(time.Second)
	}
}

// Each pod has an event of its own. The workload's tell of the first pod, of each further quarter,
// or ten if these are more, and of the last one.
func TestProgress(t *testing.T) {
	for _, tt := range []struct {
		name               string
		pods, begun, batch int // begun are those that had the size before this controller
		want               []int
	}{
		{"one", 1, 0, 1, []int{1}},
		{"a few", 3, 0, 1, []int{1, 3}},
		{"ten", 10, 0, 1, []int{1, 10}},
		{"thirty", 30, 0, 1, []int{1, 10, 20, 30}},
		{"a hundred", 100, 0, 1, []int{1, 25, 50, 75, 100}},
		{"a hundred, by a controller that takes them up", 100, 60, 1, []int{61, 75, 100}},
		{"a thousand, ten at a time", 1000, 0, 10, []int{10, 250, 500, 750, 1000}},
		{"thirty, eight at a time", 30, 0, 8, []int{8, 16, 24, 30}},
		{"thirty at once", 30, 0, 30, []int{30}},
	} {
		e := newEngine(t, Options{})
		var want, got []string
		ofPods := 0
		for done := tt.begun; done < tt.pods; {
			p := rollout.Plan{Step: rollout.Step{Total: tt.pods}, Revision: rollout.Revision{Name: "b"}}
			for range min(tt.batch, tt.pods-done) {
				pod := build.Pod(fmt.Sprintf("web-%d", done), build.Size(t, ""))
				e.session.Notes.Note(pod.UID).Request = &judge.Request{Changes: "cpu", At: e.clock.Now()}
				p.Resized = append(p.Resized, &judge.Member{Place: judge.Place{Name: pod.Name, Pod: pod}})
				done++
			}
			for range 2 { // the second time nothing is new
				p.Updated = done
				e.note(e.session, e.w, nil, rollout.Facts{}, p)
			}
			for len(e.events) > 0 {
				if event := <-e.events; event == "Normal PodResized resized in place: cpu" {
					ofPods++
				} else {
					got = append(got, event)
				}
			}
		}
		for _, n := range tt.want {
			want = append(want, fmt.Sprintf("Normal PodResized %d of %d pods resized; web-%d: resized in place: cpu", n, tt.pods, n-1))
		}
		if !slices.Equal(got, want) || ofPods != tt.pods-tt.begun {
			t.Errorf("%s: %d pods have an event, want %d; the workload has %q, want %q", tt.name, ofPods, tt.pods-tt.begun, got, want)
		}
	}
}

// TestTrusted: of a pod that counts as resized though its kubelet does not show it, that is told once, of it and of its workload.
func TestTrusted(t *testing.T) {
	e, older, newer := newEngine(t, Options{}), build.Size(t, "limits: {cpu: 100m}"), build.Size(t, "limits: {cpu: 150m}")
	pod := build.Pod("web-0", older, build.Resized(newer), build.ResizedAt(build.Start), func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].Resources.Limits = older.Spec.Containers[0].Resources.Limits
	})
	m := judge.Member{Place: judge.Place{Name: pod.Name, Pod: pod, Target: must.Get(resize.For(pod, older, newer))(t).Trusting()}}
	for range 2 {
		e.note(e.session, e.w, nil, rollout.Facts{}, rollout.Plan{Step: rollout.Step{Verdicts: []*judge.Verdict{{Member: m}}}})
	}
	const told = "counts as resized: node node has allocated the size, but does not show that it is applied: app: cpu limit 150m is not applied"
	var events []string
	for len(e.events) > 0 {
		events = append(events, <-e.events)
	}
	if want := []string{"Warning ResizeUnconfirmed " + told, "Warning ResizeUnconfirmed web-0: " + told}; !slices.Equal(events, want) {
		t.Errorf("the events are %q, want %q", events, want)
	}
}

// With --dry-run nothing is written or recorded, and nothing waits.
func TestDryRun(t *testing.T) {
	e := newEngine(t, Options{DryRun: true})
	e.kind.left = loose{}
	p := rollout.Plan{
		Condition: rollout.Condition{Reason: judge.ReasonProgressing, Why: "first"}, Started: "cpu", Writes: []rollout.Write{tight{}, loose{}},
	}
	_, err := e.record(t.Context(), e.session, e.w, p)
	_, failed := e.apply(t.Context(), e.session, e.w, p)
	if err = errors.Join(err, failed, e.cleanUp(t.Context(), e.session.name)); err != nil || e.kind.patches > 0 || len(e.kind.applied) > 0 || len(e.events) > 0 {
		t.Errorf("wrote the condition %d times, and %q, with %d events: %v", e.kind.patches, e.kind.applied, len(e.events), err)
	}
}

// While what holds edits is missing, nothing is written, recorded or watched, whether the workload is held, opted out or gone.
func TestSyncWaits(t *testing.T) {
	e := newEngine(t, Options{Ready: func() error { return errors.New("no policy") }})
	e.kind.left, e.kind.condition, e.kind.there = loose{}, &rollout.StoredCondition{}, func() *appsv1.ReplicaSet { return e.w }
	for _, change := range []func() error{
		func() error { return e.informer.GetStore().Add(e.w) },
		func() error { e.w.Labels = nil; return nil },
		func() error { return e.informer.GetStore().Delete(e.w) },
	} {
		_, err := e.Sync(t.Context(), e.session.name)
		if err = errors.Join(err, change()); err != nil || e.kind.patches > 0 || len(e.kind.applied) > 0 || len(e.events) > 0 || len(e.sessions) > 0 {
			t.Errorf("%d patches, wrote %q, %d events, %d sessions: %v", e.kind.patches, e.kind.applied, len(e.events), len(e.sessions), err)
		}
	}
}

// An edit that the built-in controller does not observe is said in the condition after 30 s, and then ever more rarely: that write has
// it look once more. As long as nobody looks at the pods, none is late to prove its size.
func TestUnobserved(t *testing.T) {
	e := newEngine(t, Options{Ready: func() error { return nil }})
	e.kind.unobserved, e.w.Generation = true, 7
	e.kind.condition = &rollout.StoredCondition{Status: corev1.ConditionTrue, Reason: judge.ReasonComplete}
	e.client = fake.NewClientset()
	must.Do(t, e.informer.GetStore().Add(e.w))
	var written []string
	for range 7 {
		before := e.kind.patches
		again := must.Get(e.Sync(t.Context(), e.session.name))(t)
		notes, pod := e.memories[e.session.name].Notes, &judge.Verdict{Member: judge.Member{Place: judge.Place{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}}}}}
		began := cmp.Or(notes.Of("pod").Proving(e.clock.Now()), e.clock.Now().Add(-time.Minute))
		notes.Prove([]*judge.Verdict{pod}, map[types.UID]time.Time{"pod": began}, nil, e.clock.Now())
		must.Get(e.Sync(t.Context(), e.session.name))(t)
		must.Equal(t, e.clock.Since(began), time.Minute, "for how long the pod proves its size")
		if e.kind.patches > before+1 {
			t.Errorf("the condition was written %d times", e.kind.patches-before)
		} else if e.kind.patches > before {
			_, lasted, _ := strings.Cut(e.kind.condition.Message, "waiting for the Plain controller to observe generation 7; not acknowledged for ")
			written = append(written, e.kind.condition.Reason+" "+lasted)
		}
		e.pass(again)
	}
	must.Equal(t, fmt.Sprint(written), "[Pending 30s Pending 1m0s Pending 2m0s Pending 4m0s Pending 8m0s Pending 16m0s]", "written")
}

// So is that the hold has been let go, unless the workload was Complete without us.
func TestLetGoUnobserved(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]string{
		corev1.ConditionFalse: "waiting for the Plain controller to observe generation 7; not acknowledged for 30s",
		corev1.ConditionTrue:  "as before",
	} {
		e := newEngine(t, Options{Ready: func() error { return nil }})
		e.kind.unobserved, e.w.Generation, e.w.Annotations = true, 7, nil
		e.kind.condition = &rollout.StoredCondition{Status: status, Reason: judge.ReasonProgressing, Message: "as before"}
		must.Do(t, e.informer.GetStore().Add(e.w))
		again := must.Get(e.Sync(t.Context(), e.session.name))(t)
		must.Equal(t, again > 0, want != "as before", "looks again")
		e.pass(again)
		must.Get(e.Sync(t.Context(), e.session.name))(t)
		must.Equal(t, e.kind.condition.Message, want, "says")
		must.Equal(t, e.kind.condition.Reason, judge.ReasonProgressing, "reason")
		e.kind.unobserved, e.kind.rolls = false, true
		must.Get(e.Sync(t.Context(), e.session.name))(t)
		must.Equal(t, len(e.awaited), 0, "what is awaited")
	}
}

func TestCleanUp(t *testing.T) {
	e := newEngine(t, Options{})
	if err := e.cleanUp(t.Context(), e.session.name); err != nil || len(e.kind.applied) > 0 {
		t.Errorf("nothing is left behind, and written is %q: %v", e.kind.applied, err)
	}
	e.kind.left = loose{}
	if err := e.cleanUp(t.Context(), e.session.name); err != nil || !slices.Equal(e.kind.applied, []string{"loose"}) {
		t.Errorf("written is %q: %v", e.kind.applied, err)
	}
}
