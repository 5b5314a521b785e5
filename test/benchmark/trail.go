package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// administrator is who the benchmark itself is.
const administrator = "admin"

// trail is what the audit log tells of one rollout: what was written by whom, and when.
type trail struct {
	carriers  []string
	writes    []write
	conflicts int // requests of the carriers that met another version
	refusals  int // requests of the carriers that failed otherwise
	steps     map[string]*steps

	leastReady int           // the lowest number of Ready pods
	short      time.Duration // for how long there were fewer than at first
}

// write is how many requests of a kind a user has made.
type write struct {
	User     string `json:"user"`
	Verb     string `json:"verb"`
	Resource string `json:"resource"`
	Count    int    `json:"count"`
}

// steps is when what was done for one workload.
type steps struct {
	edited   time.Time       // the edit was answered
	asked    []time.Time     // pods were asked for the size
	actuated []time.Time     // kubelets told that they have it
	kubelets []time.Duration // they took for that
}

// carriers are those who carry an edit to the pods.
var carriers = map[way][]string{
	inPlace: {controller.User},
	builtIn: {
		"system:serviceaccount:kube-system:statefulset-controller",
		"system:serviceaccount:kube-system:deployment-controller",
		"system:serviceaccount:kube-system:replicaset-controller",
		"system:serviceaccount:kube-system:daemon-set-controller",
	},
}

// follow reads what the audit log has of one rollout, at the beginning of which the named pods
// are Ready.
func follow(events []auditv1.Event, w way, names []string) (trail, error) {
	t := trail{carriers: carriers[w], steps: map[string]*steps{}, leastReady: len(names)}
	counts := map[write]int{}
	pods := &podStates{ready: map[string]bool{}, asked: map[types.UID]time.Time{}}
	for _, name := range names {
		pods.ready[name] = true
	}
	slices.SortStableFunc(events, func(a, b auditv1.Event) int { return a.StageTimestamp.Compare(b.StageTimestamp.Time) })
	var last time.Time
	for i := range events {
		event := &events[i]
		if len(pods.ready) < len(names) {
			t.short += event.StageTimestamp.Sub(last)
		}
		last = event.StageTimestamp.Time
		counts[write{User: event.User.Username, Verb: event.Verb, Resource: resourceOf(event)}]++
		if code := event.ResponseStatus.Code; code >= 300 {
			t.countFailure(event.User.Username, code)
			continue
		}
		if err := t.take(event, pods); err != nil {
			return trail{}, err
		}
		t.leastReady = min(t.leastReady, len(pods.ready))
	}
	for kind, n := range counts {
		kind.Count = n
		t.writes = append(t.writes, kind)
	}
	slices.SortFunc(t.writes, func(a, b write) int {
		return strings.Compare(a.User+a.Resource+a.Verb, b.User+b.Resource+b.Verb)
	})
	return t, nil
}

func (t *trail) countFailure(user string, code int32) {
	switch {
	case !slices.Contains(t.carriers, user):
	case code == 409:
		t.conflicts++
	default:
		t.refusals++
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
func (t *trail) of(name string) *steps {
	if t.steps[name] == nil {
		t.steps[name] = &steps{}
	}
	return t.steps[name]
}

// podStates are what is known of the pods at a moment of the trail.
type podStates struct {
	ready map[string]bool         // by name; those that are not have no entry
	asked map[types.UID]time.Time // when it was answered that they get a size, which the kubelet has not reported yet
}

// take takes a request in that has succeeded.
func (t *trail) take(event *auditv1.Event, pods *podStates) error {
	switch resource := resourceOf(event); {
	case event.User.Username == administrator && event.Verb == "patch" && event.ObjectRef.APIGroup == "apps":
		t.of(event.ObjectRef.Name).edited = event.StageTimestamp.Time
	case resource == "pods" && event.Verb == "delete", resource == "pods/eviction":
		delete(pods.ready, event.ObjectRef.Name)
	case resource == "pods/resize" || resource == "pods/status":
		pod := &corev1.Pod{}
		if err := json.Unmarshal(event.ResponseObject.Raw, pod); err != nil {
			return fmt.Errorf("reading what was answered to %s: %w", event.User.Username, err)
		}
		t.takePod(event, pod, pods)
	}
	return nil
}

// takePod takes in that a pod was asked for another size, or what its kubelet tells of it.
func (t *trail) takePod(event *auditv1.Event, pod *corev1.Pod, pods *podStates) {
	s := t.of(pod.Labels["app"])
	if event.ObjectRef.Subresource == "resize" {
		s.asked = append(s.asked, event.RequestReceivedTimestamp.Time)
		pods.asked[pod.UID] = event.StageTimestamp.Time
		return
	}
	if podutils.IsPodReady(pod) && pod.DeletionTimestamp == nil {
		pods.ready[pod.Name] = true
	} else {
		delete(pods.ready, pod.Name)
	}
	if since, asked := pods.asked[pod.UID]; asked && hasSize(pod) {
		s.actuated = append(s.actuated, event.StageTimestamp.Time)
		s.kubelets = append(s.kubelets, event.StageTimestamp.Sub(since))
		delete(pods.asked, pod.UID)
	}
}

// hasSize reports whether the kubelet tells that all containers have the size that the pod's
// spec wants now.
func hasSize(pod *corev1.Pod) bool {
	for i, c := range pod.Spec.Containers {
		status := pod.Status.ContainerStatuses
		if i >= len(status) || status[i].Resources == nil || !equality.Semantic.DeepEqual(*status[i].Resources, c.Resources) {
			return false
		}
	}
	return pod.Status.ObservedGeneration == pod.Generation
}

// first is how long after the edit the first pod was asked; ok is false if none was.
func (s *steps) first() (after time.Duration, ok bool) {
	if len(s.asked) == 0 || s.edited.IsZero() {
		return 0, false
	}
	return slices.MinFunc(s.asked, time.Time.Compare).Sub(s.edited), true
}

// last is how long after the last pod had its size it was said that the rollout is complete.
func (s *steps) last(complete time.Time) (after time.Duration, ok bool) {
	if len(s.actuated) == 0 {
		return 0, false
	}
	return complete.Sub(slices.MaxFunc(s.actuated, time.Time.Compare)), true
}

// pauses are how long each pod was asked after it was allowed to: after the kubelet told of
// the last of those that it had to wait for. In slow start these are whole batches; later, with
// ten at a time, the 30th waits for any 20 to have the size.
func (s *steps) pauses(limit int) []time.Duration {
	asked, actuated := slices.Clone(s.asked), slices.Clone(s.actuated)
	slices.SortFunc(asked, time.Time.Compare)
	slices.SortFunc(actuated, time.Time.Compare)
	var pauses []time.Duration
	for i, at := range asked {
		if n := needs(i, limit); 0 < n && n <= len(actuated) {
			pauses = append(pauses, at.Sub(actuated[n-1]))
		}
	}
	return pauses
}

// percentile returns the smallest value that is not below p percent of all; 0 if there are none.
func percentile(values []time.Duration, p float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(int(math.Ceil(p/100*float64(len(sorted))))-1, 0)]
}
