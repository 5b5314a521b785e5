package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// Subject is a workload. Everything that belongs to it, and itself, has the label app with its name.
type Subject = types.NamespacedName

// Moment is one change that a watch has brought, of a pod or a workload, or a [Visit].
type Moment struct {
	At      time.Time
	Object  metav1.Object
	Deleted bool
}

// Subject that has changed.
func (m Moment) Subject() Subject {
	return Subject{Namespace: m.Object.GetNamespace(), Name: m.Object.GetLabels()["app"]}
}

// Recorder keeps everything that the watches bring.
type Recorder struct {
	mu      sync.Mutex
	history []Moment
	changed chan struct{} // closed at the next change
}

// Record starts to record what happens in a namespace, or in all, until the context is done. A watch that
// ends by itself is told to fail, because every number would be in doubt.
func Record(ctx context.Context, client kubernetes.Interface, namespace string, fail func(error)) (*Recorder, error) {
	r := &Recorder{changed: make(chan struct{})}
	for what, objects := range map[string]interface {
		Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	}{
		"pods":         client.CoreV1().Pods(namespace),
		"StatefulSets": client.AppsV1().StatefulSets(namespace),
		"Deployments":  client.AppsV1().Deployments(namespace),
		"DaemonSets":   client.AppsV1().DaemonSets(namespace),
	} {
		watched, err := objects.Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", what, err)
		}
		go func() {
			defer watched.Stop()
			for event := range watched.ResultChan() {
				r.add(event)
			}
			if ctx.Err() == nil {
				fail(fmt.Errorf("the watch of %s ended, the measurement would be incomplete", what))
			}
		}()
	}
	return r, nil
}

func (r *Recorder) add(event watch.Event) {
	object, ok := event.Object.(metav1.Object)
	if !ok {
		return
	}
	r.note(Moment{At: time.Now(), Object: object, Deleted: event.Type == watch.Deleted})
}

func (r *Recorder) note(m Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, m)
	close(r.changed)
	r.changed = make(chan struct{})
}

// From returns the history from its nth moment on, and a channel that is closed at
// the next change.
func (r *Recorder) From(n int) ([]Moment, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.history[n:]), r.changed
}

// Now is the number of moments so far.
func (r *Recorder) Now() int {
	history, _ := r.From(0)
	return len(history)
}

// Await waits until all subjects are as wanted, at most a minute.
func (r *Recorder) Await(ctx context.Context, what string, wanted func(*State) bool, subjects ...Subject) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	states, seen := map[Subject]*State{}, 0
	for _, of := range subjects {
		states[of] = newState()
	}
	for {
		moments, changed := r.From(seen)
		seen += len(moments)
		for _, m := range moments {
			if s := states[m.Subject()]; s != nil {
				s.Apply(m)
			}
		}
		if !slices.ContainsFunc(subjects, func(of Subject) bool { return !wanted(states[of]) }) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		}
	}
}

// administrator is who measures, and edits.
const administrator = "admin"

// kubelet is how the names of kubelets begin, which report the end of a pod by deleting it.
const kubelet = "system:node:"

// Those who carry an edit to the pods: in place, and built in.
var (
	InPlace = []string{controller.User}
	BuiltIn = []string{
		"system:serviceaccount:kube-system:statefulset-controller",
		"system:serviceaccount:kube-system:deployment-controller",
		"system:serviceaccount:kube-system:replicaset-controller",
		"system:serviceaccount:kube-system:daemon-set-controller",
	}
)

// Trail is what the audit log tells of one rollout: what was written by whom, and when.
type Trail struct {
	carriers  []string
	Writes    []Write
	Conflicts int // requests of the carriers that met another version
	Refusals  int // requests of the carriers that failed otherwise
	Created   int // pods, by anybody
	Deleted   int // pods, by anybody but kubelets
	Steps     map[string]*Steps

	LeastReady int // the lowest number of Ready pods
}

// Write is how many requests of a kind a user has made.
type Write struct {
	User     string `json:"user"`
	Verb     string `json:"verb"`
	Resource string `json:"resource"`
	Count    int    `json:"count"`
}

// Steps is when what was done for one workload.
type Steps struct {
	Edited time.Time   // the edit was answered
	Asked  []time.Time // pods were asked for the size
}

// InNamespace is in each line of the audit log that is about a namespace.
func InNamespace(name string) string { return fmt.Sprintf(`"namespace":%q`, name) }

// AuditLog reads from a mark on what was written in a namespace, of which the named pods were Ready at that
// time, and who was to carry an edit to them.
func (c *Cluster) AuditLog(mark int64, namespace string, carriers, ready []string) (Trail, error) {
	events, err := c.AuditAbout(InNamespace(namespace), mark, controlplane.Writes, func(e *auditv1.Event) bool {
		return e.ObjectRef != nil && e.ObjectRef.Namespace == namespace
	})
	if err != nil {
		return Trail{}, err
	}
	return follow(events, carriers, ready)
}

// follow reads what the audit log has of one rollout, at the beginning of which the named pods
// are Ready.
func follow(events []auditv1.Event, carriers, names []string) (Trail, error) {
	t := Trail{carriers: carriers, Steps: map[string]*Steps{}, LeastReady: len(names)}
	counts := map[Write]int{}
	ready := sets.New(names...)
	slices.SortStableFunc(events, func(a, b auditv1.Event) int { return a.StageTimestamp.Compare(b.StageTimestamp.Time) })
	for i := range events {
		event := &events[i]
		counts[Write{User: event.User.Username, Verb: event.Verb, Resource: resourceOf(event)}]++
		if code := event.ResponseStatus.Code; code >= 300 {
			t.countFailure(event.User.Username, code)
			continue
		}
		if err := t.take(event, ready); err != nil {
			return Trail{}, err
		}
		t.LeastReady = min(t.LeastReady, len(ready))
	}
	for kind, n := range counts {
		kind.Count = n
		t.Writes = append(t.Writes, kind)
	}
	slices.SortFunc(t.Writes, func(a, b Write) int {
		return strings.Compare(a.User+a.Resource+a.Verb, b.User+b.Resource+b.Verb)
	})
	return t, nil
}

func (t *Trail) countFailure(user string, code int32) {
	switch {
	case !slices.Contains(t.carriers, user):
	case code == 409:
		t.Conflicts++
	default:
		t.Refusals++
	}
}

// resourceOf names what a request is about, such as pods/resize.
func resourceOf(event *auditv1.Event) string {
	ref := event.ObjectRef
	if ref.Subresource == "" {
		return ref.Resource
	}
	return ref.Resource + "/" + ref.Subresource
}

// of is the trail of one workload.
func (t *Trail) of(name string) *Steps {
	if t.Steps[name] == nil {
		t.Steps[name] = &Steps{}
	}
	return t.Steps[name]
}

// take takes a request in that has succeeded, and keeps the names of the pods that are Ready.
func (t *Trail) take(event *auditv1.Event, ready sets.Set[string]) error {
	switch resource := resourceOf(event); {
	case event.User.Username == administrator && event.Verb == "patch" && event.ObjectRef.APIGroup == "apps":
		t.of(event.ObjectRef.Name).Edited = event.StageTimestamp.Time
	case resource == "pods" && event.Verb == "create":
		t.Created++
	case resource == "pods" && event.Verb == "delete", resource == "pods/eviction":
		ready.Delete(event.ObjectRef.Name)
		if !strings.HasPrefix(event.User.Username, kubelet) {
			t.Deleted++
		}
	case resource == "pods/resize" || resource == "pods/status":
		pod := &corev1.Pod{}
		if err := json.Unmarshal(event.ResponseObject.Raw, pod); err != nil {
			return fmt.Errorf("reading what was answered to %s: %w", event.User.Username, err)
		}
		switch {
		case resource == "pods/resize":
			s := t.of(pod.Labels["app"])
			s.Asked = append(s.Asked, event.RequestReceivedTimestamp.Time)
		case Ready(pod):
			ready.Insert(pod.Name)
		default:
			ready.Delete(pod.Name)
		}
	}
	return nil
}

// First is how long after the edit the first pod was asked; ok is false if none was.
func (s *Steps) First() (after time.Duration, ok bool) {
	if len(s.Asked) == 0 || s.Edited.IsZero() {
		return 0, false
	}
	return slices.MinFunc(s.Asked, time.Time.Compare).Sub(s.Edited), true
}
