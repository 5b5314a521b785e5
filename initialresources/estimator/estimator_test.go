package estimator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/watchdog"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// past is a history that can be incomplete.
type past struct {
	usage

	mu       sync.Mutex
	complete bool
	lacks    time.Duration // so much cannot be read, and the rest has been
	err      error
	refreshs int
	hang     chan struct{} // if it is there, nothing is read until it is closed
}

func (p *past) set(complete bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complete, p.err = complete, err
}

func (p *past) Refresh(context.Context, time.Time) error {
	if p.hang != nil {
		<-p.hang
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refreshs++
	return p.err
}

func (p *past) refreshed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refreshs
}

func (p *past) Complete() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.complete
}

func (p *past) Tried() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.complete && p.err == nil || p.lacks > 0
}

func (p *past) Missing() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lacks
}

func (p *past) Samples(from time.Time, of estimate.Key, resource corev1.ResourceName) estimate.Samples {
	return p.Usage.Samples(from, of, resource)
}

// said are the events that were recorded.
type recorded struct {
	mu  sync.Mutex
	all []string
}

func (r *recorded) Event(object runtime.Object, _, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, fmt.Sprintf("%s %s: %s", object.(metav1.Object).GetName(), reason, message))
}

func (r *recorded) Once(object runtime.Object, eventType, reason, message string) {
	r.Event(object, eventType, reason, message)
}

func (r *recorded) events() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// world is an estimator beside a fake API server.
type world struct {
	*Estimator

	t        *testing.T
	api      *fake.Clientset
	past     *past
	registry *prometheus.Registry
	said     *recorded
}

func TestMain(m *testing.M) {
	settleTime, roomInterval, autoscalerInterval = time.Millisecond, time.Millisecond, time.Millisecond
	os.Exit(m.Run())
}

// newWorld has the namespace shop, which is opted in, and a node.
func newWorld(t *testing.T, o Options, objects ...runtime.Object) *world {
	t.Helper()
	objects = append(objects,
		build.Parsed[corev1.Namespace](t, "{metadata: {name: shop, labels: {inplace-rollout.io/initial-resources: enabled}}}"),
		build.Parsed[corev1.Node](t, "{metadata: {name: node}, status: {allocatable: {cpu: '8', memory: 16Gi, pods: '100'}}}"))
	w := &world{t: t, api: fake.NewClientset(objects...), past: &past{complete: true}, registry: prometheus.NewRegistry(), said: &recorded{}}
	w.past.ran(t, "shop", "nginx:1.25", 0.2, 64)
	versions := int64(0) // the fake has none
	w.api.PrependReactor("patch", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		_, after, err := clienttesting.ObjectReaction(w.api.Tracker())(action)
		if c, is := after.(*corev1.ConfigMap); is && err == nil {
			versions++
			c = c.DeepCopy()
			c.ResourceVersion = fmt.Sprint(versions)
			err = w.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("configmaps"), c, c.Namespace)
			after = c
		}
		return true, after, err
	})
	o.Ladder, o.Refresh, o.Metrics, o.Clock = ladder(estimate.InNamespace), 10*time.Millisecond, NewMetrics(w.registry, estimate.Default().Rungs), clocktesting.NewFakePassiveClock(now)
	w.Estimator = must.Get(New(w.api, w.past, w.said, o))(t)
	return w
}

// run runs the estimator until the test ends, or what is returned is called.
func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(stop)
	return stop
}

func (w *world) eventually(what string, check func() bool) {
	w.t.Helper()
	must.Eventually(w.t, time.Millisecond, time.Minute, what, func() (bool, string) { return check(), fmt.Sprintf("the events are %q", w.said.events()) })
}

// waitBooks waits until the history has been read so often again.
func (w *world) waitBooks(n int) {
	w.t.Helper()
	last, _ := w.current()
	for range n {
		w.eventually("the history to be read again", func() bool {
			b, _ := w.current()
			changed := b != last
			last = b
			return changed
		})
	}
}

func (w *world) table() *corev1.ConfigMap {
	w.t.Helper()
	c, err := w.api.CoreV1().ConfigMaps("shop").Get(w.t.Context(), api.EstimatesName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	must.Do(w.t, err)
	return c
}

func (w *world) waitEntry(key, want string) {
	w.t.Helper()
	w.eventually(key+" to be "+want, func() bool {
		c := w.table()
		return c != nil && strings.HasPrefix(c.Data[key], want)
	})
}

// writes counts what was asked of the API server.
func (w *world) writes(resource string) int {
	return build.Count(w.api.Actions(), func(a clienttesting.Action) bool {
		return a.GetResource().Resource == resource && slices.Contains([]string{"create", "patch", "delete", "update"}, a.GetVerb())
	})
}

// fail has the first so many requests fail.
func (w *world) fail(verb, resource string, times int, err error) {
	var mu sync.Mutex
	w.api.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		times--
		return times >= 0, nil, err
	})
}

func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var into dto.Metric
	must.Do(t, m.Write(&into))
	return into.Counter.GetValue()
}

// TestPublishAgain: what fails is tried again, and what is there is not written.
func TestPublishAgain(t *testing.T) {
	w := newWorld(t, Options{})
	w.fail("patch", "configmaps", 2, apierrors.NewInternalError(errors.New("the API server is away")))
	w.run()
	w.waitEntry(nginx+"_-1.25.cpu", "200m ")
	must.Equal(t, value(t, w.metrics.errors), 2, "errors that are counted")
	w.eventually("the watch to show what is written, and no more writes", func() bool {
		written := w.writes("configmaps")
		w.waitBooks(3)
		return w.queue.Len() == 0 && w.writes("configmaps") == written
	})
}

// TestAnnotated: admission looks at pods that have all requests, too, where the namespace wants it
// said what they would get.
func TestAnnotated(t *testing.T) {
	w := newWorld(t, Options{})
	w.run()
	w.waitEntry(nginx+"_-1.25.cpu", "200m ")
	if value, has := w.table().Data[estimate.AnnotateEntry]; has {
		t.Errorf("the table says %s: %s", estimate.AnnotateEntry, value)
	}
	annotate := build.Parsed[corev1.Namespace](t, "{metadata: {name: shop, labels: {inplace-rollout.io/initial-resources: annotate}}}")
	must.Get(w.api.CoreV1().Namespaces().Update(t.Context(), annotate, metav1.UpdateOptions{}))(t)
	w.waitEntry(estimate.AnnotateEntry, "true")
}

// TestIncomplete: as long as the history is not complete nothing new is published. What is there
// stays, within what is allowed now.
func TestIncomplete(t *testing.T) {
	w := newWorld(t, Options{})
	w.past.set(false, errors.New("Prometheus is away"))
	stop := w.run()
	w.eventually("everything to be listed", w.watched.synced)
	time.Sleep(20 * time.Millisecond)
	if w.table() != nil {
		t.Errorf("published is %v", w.table().Data)
	}
	w.past.set(true, nil)
	w.waitEntry(nginx+"_-1.25.cpu", "200m ")
	stop()
	before := w.table().Data

	again := newWorld(t, Options{}, w.table(), build.Parsed[corev1.LimitRange](t,
		"{metadata: {namespace: shop, name: small}, spec: {limits: [{type: Container, max: {memory: 50Mi}}]}}"))
	again.past.set(false, errors.New("Prometheus is away"))
	again.past.Usage = nil
	again.run()
	again.waitEntry(nginx+"_-1.25.memory", "50Mi ")
	if after := again.table().Data; after[nginx+"_-1.25.cpu"] != before[nginx+"_-1.25.cpu"] {
		t.Errorf("of cpu it says %s, and said %s", after[nginx+"_-1.25.cpu"], before[nginx+"_-1.25.cpu"])
	}
}

// TestPartial: if some of the history cannot be read, what there is counts: for what nothing was
// published of, and where it is as much. What was published from more stays until nothing is missing.
func TestPartial(t *testing.T) {
	table := func(w *world, key string) string { return strings.SplitN(w.table().Data[key], " ", 2)[0] }
	first := newWorld(t, Options{})
	first.past.ran(t, "shop", "redis:7", 0.1, 32)
	first.past.ran(t, "shop", "gone:1", 0.1, 32)
	stop := first.run()
	first.waitEntry(nginx+"_-1.25.cpu", "200m ")
	stop()
	const redis, gone, mysql = "docker.io-_library-_redis_-7.cpu", "docker.io-_library-_gone_-1.cpu", "docker.io-_library-_mysql_-9.cpu"

	next := newWorld(t, Options{}, first.table())
	next.past.set(false, errors.New("a store is dead"))
	next.past.lacks = 24 * time.Hour
	next.past.Usage = nil
	next.past.ran(t, "shop", "nginx:1.25", 0.5, 64) // another use, half of the samples of which cannot be read
	for i := range next.past.Usage {
		next.past.Usage[i].Values = next.past.Usage[i].Values[:60]
	}
	next.past.ran(t, "shop", "redis:7", 0.3, 32)
	next.past.ran(t, "shop", "mysql:9", 0.4, 32)
	next.run()
	next.waitEntry(mysql, "400m ")
	for key, want := range map[string]string{nginx + "_-1.25.cpu": "200m", redis: "300m", gone: "100m"} {
		must.Equal(t, table(next, key), want, "%s", key)
	}
	next.past.mu.Lock()
	next.past.lacks, next.past.complete, next.past.err = 0, true, nil
	next.past.mu.Unlock()
	next.waitEntry(nginx+"_-1.25.cpu", "500m ")
	next.eventually("what is not known any more to go", func() bool { return next.table().Data[gone] == "" })

	// Without a table, all that is known is published.
	empty := newWorld(t, Options{})
	empty.past.set(false, errors.New("a store is dead"))
	empty.past.lacks = 24 * time.Hour
	empty.run()
	empty.waitEntry(nginx+"_-1.25.cpu", "200m ")
	age := 0.0
	families, err := empty.registry.Gather()
	for _, f := range families {
		if f.GetName() == "inplace_rollout_history_missing_seconds" {
			age = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if err != nil || age != 24*60*60 {
		t.Errorf("the metric says that %v s are missing, want a day: %v", age, err)
	}
}

// TestOutage: while Prometheus is away, and what was read grows old, nothing is published from it.
func TestOutage(t *testing.T) {
	w := newWorld(t, Options{})
	w.run()
	w.waitEntry(nginx+"_-1.25.cpu", "200m ")
	w.past.set(true, errors.New("Prometheus is away"))
	before := w.past.refreshed()
	w.eventually("the next try", func() bool { return w.past.refreshed() > before })
	book, _ := w.current()
	w.eventually("some more", func() bool { return w.past.refreshed() > before+2 })
	if now, _ := w.current(); now != book {
		t.Error("the book is a new one")
	}
	w.past.set(true, nil)
	w.waitBooks(1)
}

// TestPulse: a history that hangs is no life; one that fails is.
func TestPulse(t *testing.T) {
	dog := watchdog.New(100 * time.Millisecond)
	w := newWorld(t, Options{Watchdog: dog})
	w.past.set(false, errors.New("Prometheus is away"))
	w.past.hang = make(chan struct{})
	w.run()
	goOn := sync.OnceFunc(func() { close(w.past.hang) })
	t.Cleanup(goOn)
	w.eventually("an error", func() bool { return dog.Err() != nil })
	if err := dog.Err(); !strings.HasPrefix(err.Error(), Reading+" hangs") {
		t.Errorf("it says: %v", err)
	}
	goOn()
	w.eventually("it to fail", func() bool { return w.past.refreshed() > 0 })
	w.eventually("nothing to hang", func() bool { return dog.Err() == nil })
}

// TestTaken: a ConfigMap that somebody else has made is left as it is, also if they were faster
// than what we see.
func TestTaken(t *testing.T) {
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: api.EstimatesName}, Data: map[string]string{"theirs": "1"}}
	w := newWorld(t, Options{}, theirs.DeepCopy())
	w.run()
	w.eventually("an event", func() bool {
		return slices.ContainsFunc(w.said.events(), func(e string) bool { return strings.Contains(e, reasonNotOurs) })
	})
	if got := w.table().Data; !maps.Equal(got, theirs.Data) || w.writes("configmaps") > 0 {
		t.Errorf("it is %v after %d writes", got, w.writes("configmaps"))
	}

	faster := newWorld(t, Options{})
	must.Get(faster.api.CoreV1().ConfigMaps("shop").Create(t.Context(), theirs.DeepCopy(), metav1.CreateOptions{FieldManager: "kubectl"}))(t)
	must.Get(faster.apply(t.Context(), "shop", nil, map[string]string{"ours": "1"}))(t)
	if c := faster.table(); !maps.Equal(c.Data, theirs.Data) || len(c.Labels) > 0 {
		t.Errorf("it is %v, with the labels %v", c.Data, c.Labels)
	}
}

// TestTouched: the label of a table is put back, for admission goes by it. What somebody has put in
// stays, and does not go with the estimates.
func TestTouched(t *testing.T) {
	w := newWorld(t, Options{})
	w.run()
	w.waitEntry(nginx+"_-1.25.cpu", "200m ")
	change := func(patch string) {
		t.Helper()
		must.Get(w.api.CoreV1().ConfigMaps("shop").Patch(t.Context(), api.EstimatesName, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl"}))(t)
	}
	change(`{"metadata":{"labels":{"` + api.ManagedByLabel + `":null}}}`)
	w.eventually("the label", func() bool { return w.table().Labels[api.ManagedByLabel] == api.ManagedBy })
	change(`{"data":{"theirs":"1"}}`)
	w.eventually("their data", func() bool { stored := w.stored("shop"); return stored != nil && stored.Data["theirs"] == "1" })
	out := build.Parsed[corev1.Namespace](t, "{metadata: {name: shop}}")
	must.Get(w.api.CoreV1().Namespaces().Update(t.Context(), out, metav1.UpdateOptions{}))(t)
	w.eventually("theirs alone", func() bool { c := w.table(); return c == nil || maps.Equal(c.Data, map[string]string{"theirs": "1"}) })
	if c := w.table(); c == nil || len(c.Labels) > 0 {
		t.Errorf("it is %v", c)
	}
}

// TestPreconditions: a table is written, and removed, only as it was seen.
func TestPreconditions(t *testing.T) {
	w := newWorld(t, Options{})
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: api.EstimatesName, UID: "u", ResourceVersion: "7", Labels: map[string]string{api.ManagedByLabel: api.ManagedBy},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: api.EstimatorFieldManager, Operation: metav1.ManagedFieldsOperationApply}},
	}}
	must.Do(t, w.withdraw(t.Context(), stored))
	must.Get(w.apply(t.Context(), "shop", stored, map[string]string{"a": "b"}))(t)
	for _, a := range w.api.Actions() {
		switch a := a.(type) {
		case clienttesting.DeleteActionImpl:
			if p := a.DeleteOptions.Preconditions; *p.UID != "u" || *p.ResourceVersion != "7" {
				t.Errorf("it is removed with %+v", p)
			}
		case clienttesting.PatchActionImpl:
			if text := string(a.Patch); a.PatchType != types.ApplyYAMLPatchType && a.PatchType != types.ApplyCBORPatchType || !strings.Contains(text, `"resourceVersion":"7"`) || !strings.Contains(text, `"uid":"u"`) {
				t.Errorf("it is written by %s %s", a.PatchType, text)
			}
		}
	}
}

// TestDiesAfterResize: what it has done before it died is noted after that, and not done twice.
func TestDiesAfterResize(t *testing.T) {
	before := sized(t, func(p *corev1.Pod) { p.Namespace = "shop" })
	after := before.DeepCopy() // what the API server makes of it
	resizedBy(api.EstimatorFieldManager, now, "200m")(after)
	w := newWorld(t, Options{Afterwards: &Afterwards{Interval: 24 * time.Hour, Threshold: 10}})
	var patches []string
	w.api.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patches = append(patches, fmt.Sprint(action.GetSubresource(), " ", string(action.(clienttesting.PatchAction).GetPatch())))
		if len(patches) == 2 {
			return true, nil, errors.New("the process dies here")
		}
		return true, after.DeepCopy(), nil
	})
	w.see(estimates("200m", ""))
	if _, refused := errors.AsType[refusal](w.newPassWith(1000).resize(t.Context(), before)); refused || len(patches) != 2 {
		t.Fatalf("refused: %t, after %q", refused, patches)
	}
	must.Do(t, w.newPassWith(1000).resize(t.Context(), stripPod(after).whole))
	resize, note := patches[0], patches[len(patches)-1]
	if len(patches) != 3 || !strings.HasPrefix(resize, "resize ") || !strings.Contains(resize, `"cpu":"200m"`) || !strings.Contains(resize, `"resourceVersion":"1"`) || !strings.Contains(resize, `"uid":"uid-of-web"`) {
		t.Errorf("it has written %q", patches)
	}
	if !strings.HasPrefix(note, " ") || !strings.Contains(note, `\"request\":\"200m\"`) || !strings.Contains(note, `"op":"test","path":"/metadata/uid"`) {
		t.Errorf("it has noted %q", note)
	}
	if all := w.said.events(); len(all) != 1 || all[0] != "web InitialResourcesResized: resized in place, because its estimate has changed: app: cpu request 100m→200m" {
		t.Errorf("the events are %q", all)
	}
}

// TestQuotaOnce: what a quota has left is not given to two pods, though the table does not say yet
// that one of them has it.
func TestQuotaOnce(t *testing.T) {
	w := newWorld(t, Options{Afterwards: &Afterwards{Interval: 24 * time.Hour, Threshold: 10}})
	table := estimates("200m", "")
	table["quota.cpu"] = "199m"
	w.see(table)
	w.api.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, sized(t, func(p *corev1.Pod) { p.Namespace = "shop" }), nil
	})
	round := w.newPassWith(1000)
	for _, name := range []string{"first", "second"} {
		must.Do(t, round.resize(t.Context(), sized(t, func(p *corev1.Pod) { p.Namespace, p.Name = "shop", name })))
	}
	must.Equal(t, value(t, w.metrics.resized.WithLabelValues(outcomeResized)), 1, "pods that are counted as resized")
}

// TestRefusedLate: a refusal is remembered, though there is no time for all pods.
func TestRefusedLate(t *testing.T) {
	w := newWorld(t, Options{Afterwards: &Afterwards{Interval: 24 * time.Hour, Threshold: 10}})
	w.options.Refresh = time.Hour
	w.see(estimates("50m", "")) // what shrinks needs no room
	for _, name := range []string{"first", "second", "third"} {
		p := sized(t, func(p *corev1.Pod) { p.Namespace, p.Name, p.UID = "shop", name, types.UID(name) })
		must.Do(t, w.watched.pods.GetStore().Add(stripPod(p)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	w.api.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if asked++; asked == 2 {
			cancel()
		}
		return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("exceeded quota: few"))
	})
	w.resizeAll(ctx)
	if asked != 2 || len(w.refused) != 1 {
		t.Errorf("after %d requests %v are remembered", asked, w.refused)
	}
}

// see has a table in the caches, as if it had been watched.
func (w *world) see(data map[string]string) {
	w.t.Helper()
	table := &corev1.ConfigMap{Data: data, ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: api.EstimatesName, Labels: map[string]string{api.ManagedByLabel: api.ManagedBy},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: api.EstimatorFieldManager, Operation: metav1.ManagedFieldsOperationApply}},
	}}
	for store, object := range map[cache.Store]any{
		w.watched.tables.GetStore():     table,
		w.watched.namespaces.GetStore(): build.Parsed[corev1.Namespace](w.t, "{metadata: {name: shop, labels: {inplace-rollout.io/initial-resources: enabled}}}"),
	} {
		must.Do(w.t, store.Add(object))
	}
}

// newPassWith is a pass where the node has so much cpu left.
func (w *world) newPassWith(cpu int64) *pass {
	p := w.newPass()
	p.left["node"] = capacity.Load{MilliCPU: cpu}
	return p
}

// TestRefused: what the API server refuses is not asked for again on the same day, and told once.
func TestRefused(t *testing.T) {
	p := sized(t, func(p *corev1.Pod) { p.Namespace = "shop" })
	w := newWorld(t, Options{Afterwards: &Afterwards{Interval: 24 * time.Hour, Threshold: 10}}, p)
	w.options.Refresh = 200 * time.Millisecond // an answer that comes later does not count
	w.fail("patch", "pods", 1000, apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("exceeded quota: few")))
	w.run()
	w.eventually("an event", func() bool { return len(w.said.events()) > 0 })
	w.waitBooks(3)
	if all := w.said.events(); len(all) != 1 || !strings.Contains(all[0], reasonRefused+": ") || !strings.Contains(all[0], "exceeded quota") || w.writes("pods") != 1 {
		t.Errorf("after %d requests the events are %q", w.writes("pods"), all)
	}
	must.Equal(t, value(t, w.metrics.resized.WithLabelValues(outcomeRefused)), 1, "refusals that are counted")
}

// TestTold: a pod is told of once, and one that has been there for long is not.
func TestTold(t *testing.T) {
	young := build.Pod("young", build.Template(t, "containers: [{name: app, image: nginx, resources: {requests: {cpu: 100m}}}]"))
	young.Namespace, young.CreationTimestamp = "shop", metav1.NewTime(now.Add(-newborn+time.Minute))
	young.Annotations = map[string]string{api.EstimateAnnotation: `{"app":{"cpu":{"request":"100m"}}}`}
	old := young.DeepCopy()
	old.Name, old.UID, old.CreationTimestamp = "old", "old", metav1.NewTime(now.Add(-newborn-time.Minute))
	w := newWorld(t, Options{}, young, old)
	w.run()
	w.eventually("an event", func() bool { return len(w.said.events()) > 0 })
	changed := young.DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	must.Get(w.api.CoreV1().Pods("shop").Update(t.Context(), changed, metav1.UpdateOptions{}))(t)
	w.waitEntry("room.cpu", "7800m")
	if all := w.said.events(); len(all) != 1 || !strings.HasPrefix(all[0], "young InitialResourcesSet: app: cpu 100m") {
		t.Errorf("the events are %q", all)
	}
	// The replica that led before has counted it.
	must.Equal(t, value(t, w.metrics.estimated.WithLabelValues("cpu", otherRung, "namespace")), 0, "estimates that are counted")
}

// TestMetrics: no series comes later but those that only the leader has.
func TestMetrics(t *testing.T) {
	w := newWorld(t, Options{})
	names := func() []string {
		families := must.Get(w.registry.Gather())(t)
		return slices.Concat(build.Each(families, func(f *dto.MetricFamily) []string {
			return build.Each(f.Metric, func(m *dto.Metric) string { return fmt.Sprint(f.GetName(), m.Label) })
		})...)
	}
	before := names()
	w.metrics.Observe("cpu", time.Second, errors.New("no answer"))
	w.metrics.born(&pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now)}, lacks: []lack{{"app", "nginx", corev1.ResourceCPU}}}, annotation{
		"a": {"cpu": said{Estimate: estimate.Estimate{From: "moon", Scope: "moon"}}}, "b": {"memory": said{Skipped: "moon"}},
	})
	must.EqualLists(t, names(), before, "the series")
	w.run()
	w.waitEntry(nginx+".cpu", "200m ")
	for name, want := range map[string]float64{"inplace_rollout_estimates_timestamp_seconds": float64(w.clock.Now().Unix()), "inplace_rollout_history_complete": 1, "inplace_rollout_history_images": 1} {
		families := must.Get(w.registry.Gather())(t)
		i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
		if i < 0 || families[i].Metric[0].Gauge.GetValue() != want {
			t.Errorf("%s is not %v", name, want)
		}
	}
	w.eventually("the table to be counted", func() bool { return w.countTables()[tablePublished] == 1 })
}

// TestRoomBound: where a node autoscaler is in sight, or the flag or the namespace says so, estimates
// stay though no node has room.
func TestRoomBound(t *testing.T) {
	status := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cluster-autoscaler-status"}}
	for _, tt := range []struct {
		name, flag, annotation string
		autoscaler, karpenter  bool
		want                   bool
	}{
		{name: "no autoscaler", flag: RoomAuto, want: true},
		{name: "the cluster autoscaler", flag: RoomAuto, autoscaler: true, want: false},
		{name: "Karpenter", flag: RoomAuto, karpenter: true, want: false},
		{name: "an autoscaler that is not to count", flag: RoomAlways, autoscaler: true, karpenter: true, want: true},
		{name: "an autoscaler that is not in sight", flag: RoomNever, want: false},
		{name: "a namespace for which no node comes", flag: RoomNever, annotation: "always", want: true},
		{name: "a namespace for which one comes", flag: RoomAlways, annotation: "never", want: false},
		{name: "an annotation that says nothing", flag: RoomNever, annotation: "sometimes", want: false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var objects []runtime.Object
			if tt.autoscaler {
				objects = append(objects, status.DeepCopy())
			}
			w := newWorld(t, Options{RoomBound: tt.flag}, objects...)
			if tt.karpenter {
				w.api.Resources = append(w.api.Resources, &metav1.APIResourceList{GroupVersion: "karpenter.sh/v1"})
			}
			shop := build.Parsed[corev1.Namespace](t, "{metadata: {name: shop, labels: {inplace-rollout.io/initial-resources: enabled}}}")
			if tt.annotation != "" {
				shop.Annotations = map[string]string{api.RoomAnnotation: tt.annotation}
			}
			must.Get(w.api.CoreV1().Namespaces().Update(t.Context(), shop, metav1.UpdateOptions{}))(t)
			w.run()
			w.waitEntry(nginx+"_-1.25.cpu", "200m ")
			w.eventually("the room to be there or not", func() bool { return (w.table().Data["room.cpu"] != "") == tt.want })
		})
	}

	// It comes and goes, and cannot be looked at for a while.
	w := newWorld(t, Options{RoomBound: RoomAuto})
	var away atomic.Int32 // for so many looks; the client takes no reactor while it is used
	w.api.PrependReactor("get", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if away.Load() == 0 || action.(clienttesting.GetAction).GetName() != status.Name { // the test reads tables, too
			return false, nil, nil
		}
		away.Add(-1)
		return true, nil, apierrors.NewInternalError(errors.New("the API server is away"))
	})
	w.run()
	w.waitEntry("room.cpu", "8")
	must.Get(w.api.CoreV1().ConfigMaps("kube-system").Create(t.Context(), status, metav1.CreateOptions{}))(t)
	w.eventually("room to be no bound", func() bool { return w.table().Data["room.cpu"] == "" })
	away.Store(3)
	w.eventually("three looks to fail", func() bool { return away.Load() == 0 })
	must.Equal(t, w.table().Data["room.cpu"], "", "the room while it cannot be looked at")
	must.Do(t, w.api.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), status.Name, metav1.DeleteOptions{}))
	w.waitEntry("room.cpu", "8")
}

// TestRoomInterval: for nothing but room a table is written once in a while. What else changes takes
// the room with it at once.
func TestRoomInterval(t *testing.T) {
	// A table that the watch has not brought is written again once Publish has passed.
	w := newWorld(t, Options{RoomBound: RoomAlways, RoomInterval: time.Minute, Publish: time.Second})
	clock := clocktesting.NewFakePassiveClock(now)
	w.clock = clock
	w.run()
	w.waitEntry("room.cpu", "8")
	w.waitEntry(nginx+"_-1.25.cpu", "200m ")
	takes := func(name, cpu string) {
		t.Helper()
		p := build.Parsed[corev1.Pod](t, "{metadata: {namespace: bank, name: "+name+", uid: "+name+"}, "+
			"spec: {nodeName: node, containers: [{name: app, resources: {requests: {cpu: '"+cpu+"'}}}]}}")
		must.Get(w.api.CoreV1().Pods("bank").Create(t.Context(), p, metav1.CreateOptions{}))(t)
		w.eventually("the pod to be seen", func() bool {
			_, there, _ := w.watched.pods.GetStore().GetByKey("bank/" + name)
			return there
		})
	}
	before := w.writes("configmaps")
	takes("first", "3")
	w.eventually("the room to be known", func() bool { _, room := w.current(); return room.MilliCPU == 5000 })
	time.Sleep(30 * time.Millisecond)
	must.Equal(t, w.writes("configmaps")-before, 0, "writes within the minute")
	clock.SetTime(now.Add(time.Minute))
	w.enqueue("shop") // its own timer takes a minute
	w.waitEntry("room.cpu", "5")

	takes("second", "2")
	w.eventually("the room to be known", func() bool { _, room := w.current(); return room.MilliCPU == 3000 })
	clock.SetTime(now.Add(time.Minute + time.Second))
	quota := build.Parsed[corev1.ResourceQuota](t, "{metadata: {namespace: shop, name: few}, status: {hard: {requests.cpu: 1}, used: {requests.cpu: 0}}}")
	must.Get(w.api.CoreV1().ResourceQuotas("shop").Create(t.Context(), quota, metav1.CreateOptions{}))(t)
	w.waitEntry("quota.cpu", "1")
	w.waitEntry("room.cpu", "3")
}
