package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Apply is that of controller.Kind.
func (k Kind) Apply(ctx context.Context, s *session, d *Deployment, write rollout.Write) error {
	switch w := write.(type) {
	case detach:
		return k.detach(ctx, s, d, w.restart)
	case evict:
		return k.evict(ctx, s, d, w)
	case reattach:
		for _, pod := range w.came { // refused, it is for the ReplicaSet controller to choose
			r := rollout.Restart{Member: judge.Member{Place: judge.Place{Name: pod.Name, Pod: pod}}, Reason: "the pod in whose place it has come is given back"}
			if err := k.evict(ctx, s, d, evict{restart: r}); err != nil {
				return err
			}
		}
		return k.reattach(ctx, s, w.pods)
	case removeSet:
		return k.removeSet(ctx, d, w.set)
	case saveHistory:
		return k.saveHistory(ctx, s, d, w)
	case adopt:
		d, err := k.again(ctx, d)
		if err != nil {
			return err
		}
		patch, lost, err := adoptPatch(d, w)
		return k.forget(s, d, lost, k.forget(s, d, w.forgets, k.patchSet(ctx, s, d, w.set, patch, err)))
	case closeAdoption:
		d, err := k.again(ctx, d)
		if err != nil {
			return err
		}
		patch, err := closeAdoptionPatch(d, w.set, w.restarts)
		return k.patchSet(ctx, s, d, w.set, patch, err)
	case revert:
		patch, err := revertPatch(w.set, w.template)
		return k.patchSet(ctx, s, d, w.set, patch, err)
	case endAdoption:
		patch, err := endAdoptionPatch(w.set)
		return k.forget(s, d, w.forgets, k.patchSet(ctx, s, d, w.set, patch, err))
	default:
		return fmt.Errorf("applying a %T, which is no write of a Deployment", write)
	}
}

func (k Kind) detach(ctx context.Context, s *session, d *Deployment, r rollout.Restart) error {
	pod := r.Member.Pod
	detached, err := pods.Detach(ctx, k.client.CoreV1(), pod, *metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment")))
	if s.RefusedLabels(pod, err) {
		return nil
	}
	if err != nil {
		return err
	}
	s.Notes.Note(pod.UID).Relabel = nil
	s.Pods.Wrote(detached)
	s.RecordRestart(d, r, "replaced: it is evicted when its new pod is available")
	return nil
}

func (k Kind) evict(ctx context.Context, s *session, d *Deployment, w evict) error {
	pod := w.restart.Member.Pod
	take, how := pods.Evict, "evicted"
	if w.down { // in this very version
		take, how = pods.Delete, "deleted, because it is not Ready"
	}
	err := take(ctx, k.client.CoreV1(), pod)
	if refusal, refused := pods.EvictionRefusal(err); refused {
		note := s.Notes.Note(pod.UID)
		note.Eviction = note.Eviction.Again("", refusal, s.Now())
		s.Requeue()
		return nil
	}
	if err != nil {
		return err
	}
	s.Notes.Note(pod.UID).Eviction = nil
	if isDetached(pod) {
		s.RecordPod(d, pod, corev1.EventTypeWarning, judge.EventRestart, how+": "+w.restart.Reason)
	} else {
		s.RecordRestart(d, w.restart, how)
	}
	return nil
}

// reattach puts detached pods under their ReplicaSets again. There is no session where nothing is rolled out.
func (k Kind) reattach(ctx context.Context, s *session, detached []*corev1.Pod) error {
	var failed []error
	for _, pod := range detached {
		err := Reattach(ctx, k.client, k.objects, pod.Namespace, []*corev1.Pod{pod})
		switch {
		case errors.Is(err, ErrUnowned):
			failed = append(failed, k.tellUnowned(ctx, pod))
		case s == nil || !s.RefusedLabels(pod, err):
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// tellUnowned records once, on a detached pod that nothing owns and on the Deployments that select it, that it is theirs no more.
func (k Kind) tellUnowned(ctx context.Context, pod *corev1.Pod) error {
	if _, told := k.told.Load(pod.UID); told || k.events == nil {
		return nil
	}
	list, err := k.objects.Resource(deployments).Namespace(pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing Deployments: %w", err)
	}
	k.told.Store(pod.UID, nil)
	klog.FromContext(ctx).Info("Left a detached pod alone: nothing owns it, and its ReplicaSet does not exist", "pod", klog.KObj(pod))
	k.events.Event(pod, corev1.EventTypeWarning, judge.EventPodLeftBehind, Unowned)
	for i := range list.Items {
		d, err := decodeDeployment(&list.Items[i])
		if err != nil {
			continue
		}
		if selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil && selector.Matches(labels.Set(pod.Labels)) {
			k.events.Event(d, corev1.EventTypeWarning, judge.EventPodLeftBehind, pod.Name+": "+Unowned)
		}
	}
	return nil
}

// Unowned is what there is to say of a detached pod that nothing owns and no ReplicaSet takes back, such as after the
// restore of a backup.
const Unowned = "nothing controls this pod, and the ReplicaSet that it was detached from does not exist: it runs, and might serve, until it is deleted"

// ErrUnowned says so.
var ErrUnowned = errors.New(Unowned)

// Reattach puts detached pods under their ReplicaSets again. A ReplicaSet then has a pod too
// many, and its controller chooses which one goes. A pod whose ReplicaSet is gone is evicted.
//
// One that nothing owns may never have been detached, whatever its label says. So it must have been
// made by that ReplicaSet, as what its name was generated from tells, which nobody can change.
// Otherwise it stays as it is, and the error is [ErrUnowned].
func Reattach(ctx context.Context, client kubernetes.Interface, objects dynamic.Interface, namespace string, detached []*corev1.Pod) error {
	list, err := objects.Resource(replicaSets).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing ReplicaSets: %w", err)
	}
	var failed []error
	for _, pod := range detached {
		owned := metav1.GetControllerOfNoCopy(pod) != nil
		i := slices.IndexFunc(list.Items, func(rs unstructured.Unstructured) bool {
			return string(rs.GetUID()) == pod.Labels[api.DetachedLabel] && (owned || pod.GenerateName == rs.GetName()+"-")
		})
		if i < 0 && !owned {
			failed = append(failed, ErrUnowned)
			continue
		}
		if i < 0 {
			failed = append(failed, pods.Evict(ctx, client.CoreV1(), pod))
			continue
		}
		rs := &list.Items[i]
		owner := *metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
		_, err := pods.Reattach(ctx, client.CoreV1(), pod, owner, podTemplateHash(rs))
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func (k Kind) removeSet(ctx context.Context, d *Deployment, rs *replicaSet) error {
	err := k.sets(d).Delete(ctx, rs.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &rs.UID, ResourceVersion: &rs.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("removing ReplicaSet %s: %w", rs.Name, err)
	}
	return nil
}

func (k Kind) sets(d *Deployment) dynamic.ResourceInterface {
	return k.objects.Resource(replicaSets).Namespace(d.Namespace)
}

// saveHistory writes the former template of a ReplicaSet into the history. A refusal by the
// API server is no error: it is remembered, and the rollout waits for it no longer than
// historyTimeout.
func (k Kind) saveHistory(ctx context.Context, s *session, d *Deployment, w saveHistory) error {
	var written *replicaSet
	var err error
	if w.reuse == nil {
		written, err = k.createHistory(ctx, s, d, w)
	} else {
		patch, failed := historyPatch(w.reuse, w.set)
		written, err = k.writeSet(ctx, s, d, w.reuse, patch, failed)
	}
	if err == nil && !written.template.Means(w.set.previous.template) {
		// It would be written again and again.
		s.History.Add(w.set.UID, formerTemplate(w.set), judge.Refusal{
			Reason: "a mutating webhook changes the template of ReplicaSet " + written.Name, Kind: judge.ReasonAdmissionDenied, Final: true,
		}, s.Now())
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return err
	}
	refusal := pods.Refusal(err)
	refusal.Final = apierrors.IsInvalid(err)
	s.History.Add(w.set.UID, formerTemplate(w.set), refusal, s.Now())
	s.Requeue()
	return nil
}

// forget returns err, the outcome of a write. If the write has not failed, it records why a
// ReplicaSet's former template is lost by it, unless why is empty.
func (k Kind) forget(s *session, d *Deployment, why string, err error) error {
	if err == nil && why != "" {
		s.Record(d, corev1.EventTypeWarning, judge.EventNotKept, why)
	}
	return err
}

func (k Kind) createHistory(ctx context.Context, s *session, d *Deployment, w saveHistory) (*replicaSet, error) {
	history, err := newHistory(d, w.set, w.taken)
	if err != nil {
		return nil, err
	}
	created, err := k.sets(d).Create(ctx, history, metav1.CreateOptions{FieldManager: api.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("keeping the former template of ReplicaSet %s: %w", w.set.Name, err)
	}
	return wroteSet(s, created)
}

func (k Kind) patchSet(ctx context.Context, s *session, d *Deployment, rs *replicaSet, patch []byte, err error) error {
	_, err = k.writeSet(ctx, s, d, rs, patch, err)
	return err
}

func (k Kind) writeSet(ctx context.Context, s *session, d *Deployment, rs *replicaSet, patch []byte, err error) (*replicaSet, error) {
	if err != nil {
		return nil, err
	}
	written, err := k.sets(d).Patch(ctx, rs.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: api.FieldManager})
	if unapplied(err) {
		err = apierrors.NewConflict(replicaSets.GroupResource(), rs.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("writing ReplicaSet %s: %w", rs.Name, err)
	}
	return wroteSet(s, written)
}

// unapplied reports whether the API server could not apply a JSON patch: the object is not as a test in it says (applyJSPatch in
// pkg/endpoints/handlers of k8s.io/apiserver). Validation names the kind of what it refuses, with the same code, and a webhook gives no details.
func unapplied(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.IsInvalid(err) && status.Status().Details != nil && status.Status().Details.Kind == ""
}

// wroteSet shows the next sync the ReplicaSet that we have just written.
func wroteSet(s *session, stored *unstructured.Unstructured) (*replicaSet, error) {
	rs, err := decodeReplicaSet(stored)
	if err != nil {
		return nil, err
	}
	s.KindState.sets.Wrote(rs)
	s.Requeue()
	return rs, nil
}
