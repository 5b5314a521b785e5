package judge

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Rejected is a new pod that its kubelet has not let in, and what that said.
type Rejected struct {
	Pod string
	Why string

	made time.Time
	node string
}

// AndThen is what helps where a pod was rejected.
const AndThen = "; edit it back, or to a size that the node takes"

// Rejection returns why the kubelet of the pod's node has not let it in; empty if it has. Kubelets begin the message so
// for every reason, such as OutOfcpu or TopologyAffinityError (rejectPod in pkg/kubelet of Kubernetes).
func Rejection(pod *corev1.Pod) string {
	message, rejected := strings.CutPrefix(pod.Status.Message, "Pod was rejected: ")
	if !rejected || pod.Status.Phase != corev1.PodFailed {
		return ""
	}
	return strings.ReplaceAll(fmt.Sprintf("rejected by the kubelet of node %s: %s: %s", pod.Spec.NodeName, pod.Status.Reason, message), "; ", ", ")
}

// Rejections are the new pods of one rollout that kubelets have rejected. The first one counts until it is over: see
// [Rejections.See]. The zero value is of no rollout yet.
type Rejections struct {
	edit      string // the edit that is rolled out, and the last time that its user had it tried again
	overtaken bool   // another one was until now
	first     *Rejected
	past      sets.Set[types.UID] // of those that are there, these are over
}

// Begin begins with another rollout, if it is one. What comes before the first semicolon names the edit.
func (r *Rejections) Begin(edit string) {
	if r.edit == edit {
		return
	}
	before, _, _ := strings.Cut(r.edit, ";")
	now, _, _ := strings.Cut(edit, ";")
	*r = Rejections{edit: edit, overtaken: before != "" && before != now}
}

// See looks at the pods that are there, besides which so many are to come, of at least so many, and returns the first new one of the
// newest template that its kubelet has rejected, if it was not known.
//
// What was rejected before an edit says nothing of it, though it may look like what the edit makes: admission may have changed it.
//
// It counts until one in its very place is Ready, or all pods are, and none has come back for it of the former size, which would be given
// up again: the controller that makes them may delete it, or leave it there for long, and make others. Where the built-in controller makes the
// rollout, some pod is missing nearly always, or none ever is, as new ones come first: there it counts until a later pod has been let in.
func (r *Rejections) See(there []*corev1.Pod, toCome, replicas int, newest func(*corev1.Pod) bool, builtIn bool) (fresh *Rejected) {
	over := func(rejected *Rejected) bool {
		if builtIn {
			return lastLetIn(there, newest).After(rejected.made)
		}
		return rejected.over(there, newest, toCome == 0 && allReady(there, replicas))
	}
	if r.first != nil && over(r.first) {
		r.first = nil
	}
	past := sets.Set[types.UID]{}
	for _, pod := range there {
		why := Rejection(pod)
		if why == "" {
			continue
		}
		switch rejected := (&Rejected{pod.Name, why, pod.CreationTimestamp.Time, pod.Spec.NodeName}); {
		case r.overtaken || r.past.Has(pod.UID) || over(rejected):
			past.Insert(pod.UID)
		case r.first == nil && newest(pod):
			r.first, fresh = rejected, rejected
		}
	}
	r.past, r.overtaken = past, false
	return fresh
}

// over reports whether a new pod is Ready in the very place of the rejected one, or all are that are to be there, and none has come for it
// that is of another template.
func (r *Rejected) over(there []*corev1.Pod, newest func(*corev1.Pod) bool, all bool) bool {
	succeeded := false
	for _, pod := range there {
		if r.replacedBy(pod) && newest(pod) {
			return true
		}
		succeeded = succeeded || r.succeeded(pod) && !newest(pod)
	}
	return all && !succeeded
}

// succeeded reports whether the pod is one that has come for the rejected one: it has its name or, where names are random, is not older.
func (r *Rejected) succeeded(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	random := owner != nil && owner.Kind != "StatefulSet"
	return !Gone(pod) && (pod.Name == r.Pod || random && !pod.CreationTimestamp.Time.Before(r.made))
}

// replacedBy reports whether a pod is Ready that has come in the very place of the rejected one: a node of a DaemonSet, or an ordinal.
func (r *Rejected) replacedBy(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	there := pod.Name == r.Pod || owner != nil && owner.Kind == "DaemonSet" && pod.Spec.NodeName == r.node
	return there && !Gone(pod) && podutils.IsPodReady(pod) && !pod.CreationTimestamp.Time.Before(r.made)
}

// allReady reports whether all pods are Ready but those that are gone, and so many are.
func allReady(there []*corev1.Pod, replicas int) bool {
	ready := 0
	for _, pod := range there {
		_, detached := pod.Labels[api.DetachedLabel]
		switch {
		case detached || Gone(pod):
		case !podutils.IsPodReady(pod):
			return false
		default:
			ready++
		}
	}
	return ready >= replicas
}

// lastLetIn is when the youngest of the new pods was made that their kubelets have let in; zero if there is none.
func lastLetIn(there []*corev1.Pod, newest func(*corev1.Pod) bool) (last time.Time) {
	for _, pod := range there {
		if made := pod.CreationTimestamp.Time; !Gone(pod) && podutils.IsPodReady(pod) && made.After(last) && newest(pod) {
			last = made
		}
	}
	return last
}

// First returns the new pod that was rejected; nil if none was.
func (r *Rejections) First() *Rejected {
	if r == nil {
		return nil
	}
	return r.first
}
