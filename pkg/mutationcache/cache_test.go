package mutationcache_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/mutationcache"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// watched is a watch of two pods: one that is written, and one whose changes tell that the watch has brought all before.
type watched struct {
	*mutationcache.Cache[*corev1.Pod]

	t       *testing.T
	client  *fake.Clientset
	changes atomic.Int64
	fences  int
}

func pod(name string, version int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: strconv.Itoa(version)}}
}

func newWatched(t *testing.T) *watched {
	w := &watched{t: t, client: fake.NewClientset(pod("web-0", 1), pod("fence", 1))}
	w.Cache = must.Get(mutationcache.New(t.Context(), coreinformers.NewPodInformer(w.client, "default", 0, cache.Indexers{}), pods.Strip, func() { w.changes.Add(1) }))(t)
	w.until(func() bool { return w.HasSynced() && w.changes.Load() == 3 }) // two pods, and that the list is complete
	return w
}

func (w *watched) until(done func() bool) {
	w.t.Helper()
	must.Eventually(w.t, time.Millisecond, 10*time.Second, "the watch to bring it", func() (bool, string) { return done(), "it does not" })
}

// stores has the watch bring this version of the pod.
func (w *watched) stores(version int) *corev1.Pod {
	w.t.Helper()
	return must.Get(w.client.CoreV1().Pods("default").Update(w.t.Context(), pod("web-0", version), metav1.UpdateOptions{}))(w.t)
}

// told returns how many changes were told of since the last time.
func (w *watched) told() int {
	w.t.Helper()
	w.fences++
	must.Get(w.client.CoreV1().Pods("default").Update(w.t.Context(), pod("fence", 1+w.fences), metav1.UpdateOptions{}))(w.t)
	w.until(func() bool {
		return slices.ContainsFunc(must.Get(w.List())(w.t), func(pod *corev1.Pod) bool {
			return pod.Name == "fence" && pod.ResourceVersion == strconv.Itoa(1+w.fences)
		})
	})
	time.Sleep(20 * time.Millisecond) // it is in the store a moment before the watch tells of it
	return int(w.changes.Swap(0)) - 1
}

// TestWrite: the watch tells of everything but the very version that was written.
func TestWrite(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name   string
		during []int // versions that the watch brings while the write is under way
		writes int   // version that is stored; 0 if it fails
		after  []int // versions that it brings afterwards
		want   int
	}{
		{name: "the echo comes after the answer", writes: 2, after: []int{2}},
		{name: "the echo comes before the answer", during: []int{2}, writes: 2},
		{name: "something else comes after the echo", writes: 2, after: []int{2, 3}, want: 1},
		{name: "and before the answer", during: []int{2, 3}, writes: 2, want: 1},
		{name: "something else was there before", during: []int{2}, writes: 3, after: []int{3}, want: 1},
		{name: "something else was there before, and comes late", writes: 3, after: []int{2, 3}, want: 1},
		{name: "the write fails, and nothing has happened", want: 0},
		{name: "the write fails, and was carried out", during: []int{2}, want: 1},
		{name: "the write fails, and was carried out later", after: []int{2}, want: 1},
		{name: "the echo is one", writes: 2, after: []int{2, 2}, want: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWatched(t)
			w.changes.Store(0)
			_, err := w.Write(pod("web-0", 1), func() (*corev1.Pod, error) {
				for _, version := range tt.during {
					w.stores(version)
				}
				must.Equal(t, w.told(), 0, "changes that are told of while the write is under way")
				if tt.writes == 0 {
					return nil, broken
				}
				return pod("web-0", tt.writes), nil
			})
			if errors.Is(err, broken) != (tt.writes == 0) {
				t.Fatalf("got the error %v", err)
			}
			for _, version := range tt.after {
				w.stores(version)
			}
			must.Equal(t, w.told(), tt.want, "changes that are told of")
		})
	}
}

// TestList: the objects are listed by name as they come and go, with what was written and the watch has not brought.
func TestList(t *testing.T) {
	w := newWatched(t)
	list := func() (names []string) {
		t.Helper()
		w.told() // what is before
		all := must.Get(w.List())(t)
		for _, pod := range all {
			if pod.Name != "fence" {
				names = append(names, pod.Name+" "+pod.ResourceVersion)
			}
		}
		return names
	}
	create := func(name string) {
		t.Helper()
		must.Get(w.client.CoreV1().Pods("default").Create(t.Context(), pod(name, 1), metav1.CreateOptions{}))(t)
	}
	create("web-2")
	create("web-1")
	if got := list(); !slices.Equal(got, []string{"web-0 1", "web-1 1", "web-2 1"}) {
		t.Fatalf("with two more, got %q", got)
	}
	w.Wrote(pod("web-1", 5))
	w.Wrote(pod("web-3", 5))
	must.EqualLists(t, list(), []string{"web-0 1", "web-1 5", "web-2 1"}, "after writes")
	changes := w.changes.Load()
	for _, version := range []int{5, 3} { // the store is restored from a backup
		must.Get(w.client.CoreV1().Pods("default").Update(t.Context(), pod("web-1", version), metav1.UpdateOptions{}))(t)
	}
	w.until(func() bool { return w.changes.Load() == changes+2 })
	must.EqualLists(t, list(), []string{"web-0 1", "web-1 3", "web-2 1"}, "after a restore")
	must.Do(t, w.client.CoreV1().Pods("default").Delete(t.Context(), "web-0", metav1.DeleteOptions{}))
	must.EqualLists(t, list(), []string{"web-1 3", "web-2 1"}, "without the first")
}

// TestRestored: where etcd was restored from a backup before the watch has brought what we have written, a new list shows nothing new to
// anybody. A list that is only behind takes nothing back.
func TestRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, events := &corev1.PodList{}, (*watch.FakeWatcher)(nil)
		informer := cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list.DeepCopy(), nil },
			WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
				if o.SendInitialEvents != nil { // the list has them
					return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
				}
				events = watch.NewFake()
				return events, nil
			},
		}, &corev1.Pod{}, 0, cache.Indexers{})
		lists := func(version string) {
			list.ResourceVersion, list.Items = version, []corev1.Pod{*pod("web-0", 90), *pod("web-1", 80)}
		}
		lists("91")
		w := must.Get(mutationcache.New(t.Context(), informer, pods.Strip, func() {}))(t)
		synctest.Wait()
		w.Wrote(pod("web-0", 100))
		for _, tt := range []struct{ list, want string }{{"95", "100"}, {"1000000090", "90"}} {
			lists(tt.list)
			events.Error(&apierrors.NewResourceExpired("compacted").ErrStatus)
			time.Sleep(time.Minute)
			synctest.Wait()
			if all := must.Get(w.List())(t); len(all) != 2 || all[0].ResourceVersion != tt.want {
				t.Errorf("after a list of version %s, got %s of %d", tt.list, all[0].ResourceVersion, len(all))
			}
		}
	})
}

// TestSyncedAtOnce: that the first list is complete is told at once. Nobody looks for it every now and then: the first pod of a
// rollout would wait for that.
func TestSyncedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, began := fake.NewClientset(pod("web-0", 1)), time.Now()
		var changes, last atomic.Int64 // how many, and when the last one came
		changed := func() {
			changes.Add(1)
			last.Store(int64(time.Since(began)))
		}
		informer := coreinformers.NewPodInformer(client, "default", 0, cache.Indexers{})
		client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(time.Millisecond) // as a real one
			return false, nil, nil
		})
		w := must.Get(mutationcache.New(t.Context(), informer, pods.Strip, changed))(t)
		time.Sleep(time.Second)
		if took := time.Duration(last.Load()); !w.HasSynced() || changes.Load() != 2 || took > 10*time.Millisecond { // the pod, and that it is all
			t.Errorf("%d changes are told, the last one after %v", changes.Load(), took)
		}
	})
}
