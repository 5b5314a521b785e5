//go:build integration || around

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/kubectl/pkg/util/podutils"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// history is what `kubectl rollout history` lists.
func (s *sandbox[W]) history() []int {
	s.t.Helper()
	var revisions []int
	for line := range strings.Lines(s.kubectl("rollout", "history", s.ref)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			if n, err := strconv.Atoi(fields[0]); err == nil {
				revisions = append(revisions, n)
			}
		}
	}
	return revisions
}

// undoTo goes back to the revision that has the cpu request, as a person would who has looked it up.
func (s *sandbox[W]) undoTo(cpu string) {
	s.t.Helper()
	for _, n := range s.history() {
		of := s.kubectl("rollout", "history", s.ref, "--revision="+strconv.Itoa(n))
		if strings.Contains(of, cpu) {
			s.kubectl("rollout", "undo", s.ref, "--to-revision="+strconv.Itoa(n))
			s.waitComplete()
			return
		}
	}
	s.t.Fatalf("no revision of %v has %s", s.history(), cpu)
}

// assertFew checks what a rollout in place costs the API server: of these writes so many to each pod, and so many besides, at most.
func (s *sandbox[W]) assertFew(writes []string, ofPod, besides int) {
	s.t.Helper()
	ofPods, others := tally(writes)
	for name, n := range ofPods {
		if n > ofPod {
			s.t.Errorf("%d writes to %s, want at most %d: %v", n, name, ofPod, writes)
		}
	}
	if len(others) > besides {
		s.t.Errorf("%d writes besides those to pods, want at most %d: %v", len(others), besides, others)
	}
	s.assertNoRefusals()
}

// rolloutStatus is `kubectl rollout status` in the background.
type rolloutStatus struct {
	done chan struct{}
	out  string
	err  error
}

func (s *sandbox[W]) rolloutStatus() *rolloutStatus {
	s.t.Helper()
	r := &rolloutStatus{done: make(chan struct{})}
	ctx := s.t.Context()
	go func() {
		defer close(r.done)
		r.out, r.err = cp.Kubectl(ctx, "-n", s.namespace, "rollout", "status", s.ref, "--timeout="+patience.String())
	}()
	return r
}

// wait for it to return, successfully.
func (r *rolloutStatus) wait(t *testing.T) {
	t.Helper()
	<-r.done
	if r.err != nil || !strings.Contains(r.out, "successfully rolled out") {
		t.Errorf("kubectl rollout status: %v, it said\n%s", r.err, r.out)
	}
}

// podsWritten names the pods that somebody has created, or deleted or evicted, since markAudit.
func (s *sandbox[W]) podsWritten(verb string) []string {
	s.t.Helper()
	var names []string
	for _, e := range s.audited(succeeded, func(e *auditv1.Event) bool { return e.ObjectRef.Resource == "pods" }) {
		switch {
		case e.ObjectRef.Subresource == "eviction" && verb == "delete":
			names = append(names, e.ObjectRef.Name)
		case e.ObjectRef.Subresource == "" && e.Verb == verb:
			var pod corev1.Pod
			must.Do(s.t, json.Unmarshal(e.ResponseObject.Raw, &pod))
			names = append(names, pod.Name)
		}
	}
	return names
}

func succeeded(e *auditv1.Event) bool { return e.ResponseStatus != nil && e.ResponseStatus.Code < 300 }

// version of the workload, as a write of it or of its status was answered, with the time when that was done.
type version[W metav1.Object] struct {
	user     string
	written  time.Time
	workload W
}

func (s *sandbox[W]) versions() []version[W] {
	s.t.Helper()
	var versions []version[W]
	for _, e := range s.audited(succeeded, func(e *auditv1.Event) bool {
		return e.ObjectRef.Resource == strings.ToLower(s.kind)+"s" && e.ObjectRef.Subresource != "scale" && e.Verb != "delete"
	}) {
		v := version[W]{user: e.User.Username, written: e.StageTimestamp.Time}
		must.Do(s.t, json.Unmarshal(e.ResponseObject.Raw, &v.workload))
		versions = append(versions, v)
	}
	return versions
}

// podLog is every change of the pods since it was begun.
type podLog struct {
	t       *testing.T
	pods    func() map[string]corev1.Pod
	initial map[types.UID]corev1.Pod
	mu      sync.Mutex
	changes []watch.Event
}

func (s *sandbox[W]) logPods() *podLog {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	pods := client.CoreV1().Pods(s.namespace)
	list := must.Get(pods.List(ctx, metav1.ListOptions{}))(s.t)
	l := &podLog{t: s.t, pods: s.pods, initial: map[types.UID]corev1.Pod{}}
	for _, pod := range list.Items {
		l.initial[pod.UID] = pod
	}
	changes := must.Get(pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion}))(s.t)
	go func() {
		for e := range changes.ResultChan() {
			l.mu.Lock()
			l.changes = append(l.changes, e)
			l.mu.Unlock()
		}
	}()
	return l
}

// replay calls f with all pods as they were after each change; the last of them are those of now.
func (l *podLog) replay(f func(map[types.UID]corev1.Pod)) {
	l.t.Helper()
	var changes []watch.Event
	eventually(l.t, "the watch to have told everything", func() (bool, string) {
		l.mu.Lock()
		changes = slices.Clone(l.changes)
		l.mu.Unlock()
		seen := maps.Clone(l.initial)
		for _, e := range changes {
			l.step(seen, e)
		}
		now := l.pods()
		for _, pod := range seen {
			if now[pod.Name].ResourceVersion != pod.ResourceVersion {
				return false, fmt.Sprintf("%s has changed since", pod.Name)
			}
		}
		return len(now) == len(seen), fmt.Sprintf("%d pods seen, %d exist", len(seen), len(now))
	})
	pods := maps.Clone(l.initial)
	f(pods)
	for _, e := range changes {
		l.step(pods, e)
		f(pods)
	}
}

func (l *podLog) step(pods map[types.UID]corev1.Pod, e watch.Event) {
	l.t.Helper()
	pod, ok := e.Object.(*corev1.Pod)
	switch {
	case !ok:
		l.t.Fatalf("the watch of the pods ended with %+v", e.Object)
	case e.Type == watch.Deleted:
		delete(pods, pod.UID)
	default:
		pods[pod.UID] = *pod
	}
}

// assertReady checks that there were never fewer Ready pods.
func (l *podLog) assertReady(least int) {
	l.t.Helper()
	fewest := least
	l.replay(func(pods map[types.UID]corev1.Pod) {
		fewest = min(fewest, build.Count(slices.Collect(maps.Values(pods)), func(pod corev1.Pod) bool {
			return podutils.IsPodReady(&pod) && pod.DeletionTimestamp == nil
		}))
	})
	if fewest < least {
		l.t.Errorf("at some time only %d pods were Ready, want never fewer than %d", fewest, least)
	}
}

// assertMost checks that there were never more pods. One that is being deleted does not count: a ReplicaSet
// makes the next one as soon as it sees that, which may be before the pod has gone.
func (l *podLog) assertMost(most int) {
	l.t.Helper()
	seen := 0
	l.replay(func(pods map[types.UID]corev1.Pod) {
		seen = max(seen, build.Count(slices.Collect(maps.Values(pods)), func(pod corev1.Pod) bool { return pod.DeletionTimestamp == nil }))
	})
	if seen > most {
		l.t.Errorf("at some time there were %d pods, want never more than %d", seen, most)
	}
}

// assertOwned checks that every pod had a controller at any time.
func (l *podLog) assertOwned() {
	l.t.Helper()
	orphans := map[string]bool{}
	l.replay(func(pods map[types.UID]corev1.Pod) {
		for _, pod := range pods {
			if metav1.GetControllerOf(&pod) == nil {
				orphans[pod.Name] = true
			}
		}
	})
	if len(orphans) > 0 {
		l.t.Errorf("pods without an owner at some time: %v", slices.Sorted(maps.Keys(orphans)))
	}
}

// health is what Argo CD makes of an object with the check in deploy/argocd. It
// runs the script as Argo CD does: the object is the global obj, only the libraries
// package, base and table are there, and a table comes back.
func health(t *testing.T, kind string, object any) (status, message string) {
	t.Helper()
	data := must.Get(os.ReadFile(shipped("deploy", "argocd", "argocd-cm.yaml")))(t)
	var config struct{ Data map[string]string }
	must.Do(t, yaml.UnmarshalStrict(data, &config))
	data = must.Get(json.Marshal(object))(t)
	var fields map[string]any
	must.Do(t, json.Unmarshal(data, &fields))

	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		must.Do(t, l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)))
	}
	l.SetGlobal("obj", toLua(l, fields))
	must.Do(t, l.DoString(config.Data["resource.customizations.health.apps_"+kind]))
	answer, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the check of %s answers %v", kind, l.Get(-1))
	}
	return answer.RawGetString("status").String(), answer.RawGetString("message").String()
}

func toLua(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []any:
		table := l.NewTable()
		for _, item := range v {
			table.Append(toLua(l, item))
		}
		return table
	case map[string]any:
		table := l.NewTable()
		for key, item := range v {
			table.RawSetString(key, toLua(l, item))
		}
		return table
	default:
		return lua.LNil
	}
}
