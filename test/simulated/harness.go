package simulated

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// Web is the name of the workload of each world.
var Web = cache.ObjectName{Namespace: "default", Name: "web"}

// World is what a [Harness] needs to know of the workload of its cluster.
type World interface {
	// Live lets the kubelets and the built-in controllers do one thing each.
	Live()
	// Objects are all that the controller may watch.
	Objects() []runtime.Object
	// Stored names the resource of an object, and returns it as the API server hands it out.
	Stored(object runtime.Object) (resource string, stored runtime.Object)
	// Show puts into the informers of the controller what they do not watch by themselves.
	Show() error
	// Shown reports whether the watches of other objects than pods have caught up.
	Shown() bool
	// Unfinished says what of the rollout is not done, or "".
	Unfinished() string
}

// Harness is a world with the whole controller of a kind in it, which is made to sync by
// hand. Its informer of workloads shows what the test puts there.
type Harness[W controller.Workload, K controller.KindState] struct {
	Client     *fake.Clientset // its lock guards the world: the watches read it too
	Kind       *Kind[W, K]
	Nodes      *Nodes
	Controller *controller.Controller[W, K]
	Events     []string // that were recorded

	Writes     []string // what was asked of the API server, as `patch pods/resize web-1`
	Fails      int      // this write fails, counted from 1
	CarriedOut bool     // though it was carried out
	Dies       bool     // and all that follow, as of a controller that has died with it

	t        testing.TB
	world    World
	cluster  *Cluster
	recorder *record.FakeRecorder
	refusals []*refusal
	watchers map[string][]watcher // by resource
	removed  map[string][]runtime.Object
	checks   controller.Checks
}

// refusal has writes fail, so many times.
type refusal struct {
	write string
	err   error
	times int
}

// watcher shows what its selector matches.
type watcher struct {
	*watch.RaceFreeFakeWatcher
	selector labels.Selector
}

func (w watcher) show(object runtime.Object, gone bool) {
	if gone || !w.selector.Matches(labels.Set(object.(metav1.Object).GetLabels())) {
		w.Delete(object)
	} else {
		w.Modify(object)
	}
}

// NewHarness returns one for a world that comes to rest by itself. Client is its API server.
func NewHarness[W controller.Workload, K controller.KindState](t testing.TB, world World, cluster *Cluster, client *fake.Clientset, node *corev1.Node) *Harness[W, K] {
	t.Helper()
	h := &Harness[W, K]{
		Client: client, Nodes: NewNodes(node),
		t: t, world: world, cluster: cluster, recorder: record.NewFakeRecorder(1000),
		watchers: map[string][]watcher{}, removed: map[string][]runtime.Object{},
	}
	for range 20 {
		h.Lives()
	}
	if left := world.Unfinished(); !strings.HasPrefix(left, "the condition ") {
		t.Fatalf("the cluster is not at rest: %s", left)
	}
	cluster.Changed = h.publish
	api := slices.Clone(client.ReactionChain)
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) { return h.written(action, api) })
	client.AddWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		return true, h.Watch(action.GetResource().Resource, action.(clienttesting.WatchActionImpl).ListOptions), nil
	})
	return h
}

// Start puts the controller into the world.
func (h *Harness[W, K]) Start(kind controller.Kind[W, K], options controller.Options) {
	h.t.Helper()
	if options.Ready == nil {
		options.Ready = func() error { return nil }
	}
	if options.Checks == nil { // a controller that takes over asks the same Prometheus
		options.Checks = h.checks
	}
	h.checks, options.Clock = options.Checks, h.cluster.Clock
	h.Kind = &Kind[W, K]{Kind: kind}
	h.Controller = must.Get(controller.New(h.t.Context(), h.Kind, h.Client, h.recorder, h.Nodes, options))(h.t)
	h.Sees()
}

func (h *Harness[W, K]) publish(object runtime.Object, gone bool) {
	if gone {
		object = object.DeepCopyObject()
		object.(metav1.Object).SetResourceVersion(strconv.Itoa(h.cluster.RV))
	}
	resource, shown := h.world.Stored(object)
	if gone {
		h.removed[resource] = append(h.removed[resource], shown)
	}
	for _, w := range h.watchers[resource] {
		w.show(shown, gone)
	}
}

// Watch is a request to the API server.
func (h *Harness[W, K]) Watch(resource string, options metav1.ListOptions) watch.Interface {
	selector, err := labels.Parse(options.LabelSelector)
	if err != nil {
		h.t.Error(err)
	}
	w, since := watcher{watch.NewRaceFreeFake(), selector}, number(options.ResourceVersion)
	for _, object := range h.removed[resource] {
		if number(object.(metav1.Object).GetResourceVersion()) > since {
			w.show(object, true)
		}
	}
	for _, object := range h.world.Objects() {
		if is, shown := h.world.Stored(object); is == resource && number(object.(metav1.Object).GetResourceVersion()) > since {
			w.show(shown, false)
		}
	}
	h.watchers[resource] = append(h.watchers[resource], w)
	return w
}

func number(version string) int {
	n, _ := strconv.Atoi(version)
	return n
}

// written has the writes of the client carried out by api.
func (h *Harness[W, K]) written(action clienttesting.Action, api []clienttesting.Reactor) (handled bool, answer runtime.Object, err error) {
	var name string
	switch a := action.(type) {
	case clienttesting.PatchActionImpl:
		name = a.Name
	case clienttesting.DeleteActionImpl:
		name = a.Name
	case clienttesting.CreateActionImpl:
		name = a.Object.(metav1.Object).GetName()
	default:
		return false, nil, nil
	}
	path := strings.TrimSuffix(action.GetResource().Resource+"/"+action.GetSubresource(), "/")
	err = h.Write(action.GetVerb()+" "+path+" "+name, func() error {
		for _, reactor := range api {
			if reactor.Handles(action) {
				_, answer, err = reactor.React(action)
				return err
			}
		}
		return nil
	})
	return true, answer, err
}

// errNoAnswer is what is known of a write whose connection broke, errFails of one that the API server did not make.
var (
	errNoAnswer = errors.New("the connection broke")
	errFails    = apierrors.NewInternalError(errors.New("etcd"))
)

// Write notes a write of the controller, and has it carried out, or fail.
func (h *Harness[W, K]) Write(what string, carryOut func() error) error {
	h.Writes = append(h.Writes, what)
	for _, r := range h.refusals {
		if r.write == what && r.times > 0 {
			r.times--
			return r.err
		}
	}
	if h.Dies && h.Fails > 0 && len(h.Writes) > h.Fails {
		return errFails
	}
	if len(h.Writes) != h.Fails {
		return carryOut()
	}
	if h.CarriedOut {
		if err := carryOut(); err != nil {
			return err
		}
		return errNoAnswer
	}
	return errFails
}

// Refuse has the API server refuse a write, which [Harness.Writes] names so, the first times.
func (h *Harness[W, K]) Refuse(write string, err error, times int) {
	h.refusals = append(h.refusals, &refusal{write, err, times})
}

// Lives lets the kubelets and the built-in controllers do one thing each.
func (h *Harness[W, K]) Lives() {
	h.Client.Lock()
	defer h.Client.Unlock()
	h.cluster.Clock.SetTime(h.cluster.Clock.Now().Add(time.Second))
	h.world.Live()
}

// Sees lets the watches of the controller catch up.
func (h *Harness[W, K]) Sees() {
	h.t.Helper()
	h.Client.Lock()
	err := h.world.Show()
	h.Client.Unlock()
	must.Do(h.t, err)
	must.Eventually(h.t, time.Millisecond, time.Minute, "the watches to catch up", func() (bool, string) { return h.seen(), "they do not" })
}

func (h *Harness[W, K]) seen() bool {
	h.Client.Lock()
	defer h.Client.Unlock()
	if !h.Kind.InFlight() {
		return true
	}
	return h.Kind.Pods.(*informed).has(h.cluster.Pods) && h.Kind.KindState.HasSynced() && h.world.Shown()
}

// Sync syncs once, and again where the first one only started to watch.
func (h *Harness[W, K]) Sync() (time.Duration, error) {
	h.t.Helper()
	watching := h.Kind.InFlight()
	again, err := h.Controller.Sync(h.t.Context(), Web)
	if !watching && err == nil && h.Kind.InFlight() {
		h.Sees()
		again, err = h.Controller.Sync(h.t.Context(), Web)
	}
	for len(h.recorder.Events) > 0 {
		h.Events = append(h.Events, <-h.recorder.Events)
	}
	return again, err
}

// Change changes something, and lets the built-in controllers see it first.
func (h *Harness[W, K]) Change(change func()) {
	h.t.Helper()
	h.Client.Lock()
	change()
	h.Client.Unlock()
	h.Lives()
	h.Sees()
}

// Rounds lets everybody do one thing, n times. Only permitted errors may occur.
func (h *Harness[W, K]) Rounds(n int, permitted ...func(error) bool) {
	h.t.Helper()
	for range n {
		if _, err := h.Sync(); err != nil && !slices.ContainsFunc(permitted, func(is func(error) bool) bool { return is(err) }) {
			h.t.Fatal(err)
		}
		h.Lives()
		h.Sees()
	}
}

// Until has rounds until done, n at the most.
func (h *Harness[W, K]) Until(n int, done func() bool, permitted ...func(error) bool) {
	h.t.Helper()
	for range n {
		if done() {
			return
		}
		h.Rounds(1, permitted...)
	}
}

// Rest has rounds until the rollout is complete. Every error, which it returns, is one more try.
func (h *Harness[W, K]) Rest() (failed []error) {
	h.t.Helper()
	again := func(err error) bool {
		failed = append(failed, err)
		return true
	}
	h.Rounds(1, again)
	h.Until(200, func() bool { return h.world.Unfinished() == "" }, again)
	if left := h.world.Unfinished(); left != "" {
		h.t.Fatalf("the rollout does not complete: %s; errors: %v; writes: %q", left, errors.Join(failed...), h.Writes)
	}
	return failed
}

// Run runs the workers themselves, for the race detector, until the rollout of a change is complete.
func (h *Harness[W, K]) Run(change func()) {
	h.t.Helper()
	h.Client.Lock()
	change()
	h.Client.Unlock()
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	go func() {
		h.Controller.Run(ctx)
		close(done)
	}()
	if !cache.WaitForCacheSync(h.t.Context().Done(), h.Kind.Workloads.HasSynced) {
		h.t.Fatal("the informer of workloads does not sync")
	}
	must.Eventually(h.t, 5*time.Millisecond, time.Minute, "the rollout to complete", func() (bool, string) {
		h.Lives()
		h.Client.Lock()
		defer h.Client.Unlock()
		unfinished := h.world.Unfinished()
		return unfinished == "", fmt.Sprintf("%s; writes: %q", unfinished, h.Writes)
	})
	cancel()
	<-done
}

// Count returns how many of a list have that part.
func Count(list []string, part string) int {
	return build.Count(list, func(one string) bool { return strings.Contains(one, part) })
}
