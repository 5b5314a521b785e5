// Package daemonset says what Kubernetes does differently for DaemonSets. A sync gathers what
// there is (kind.go), reads it as places of pods (observe.go), with the sizes that they
// have by the class of their node (classes.go), and plans the next step (plan.go); the engine makes
// its writes. Sessions keep nothing that a controller that is restarted could not read again.
package daemonset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// kindName is how the API names the kind.
const kindName = "DaemonSet"

// Kind is [controller.Kind] for DaemonSets.
type Kind struct {
	client kubernetes.Interface
}

// New returns the kind, which reads and writes through client.
func New(client kubernetes.Interface) Kind {
	return Kind{client: client}
}

type session = controller.Session[*appsv1.DaemonSet, *history]

// Open is that of controller.Kind.
func (Kind) Open(context.Context, *appsv1.DaemonSet, func()) (*history, error) {
	return &history{}, nil
}

// Unrestored is that of controller.Kind. Only a set that its user wants to be rolled is held.
func (Kind) Unrestored(_, written *appsv1.DaemonSet) map[string]any {
	const want = appsv1.RollingUpdateDaemonSetStrategyType
	if written.Spec.UpdateStrategy.Type == want {
		return nil
	}
	return map[string]any{"spec": map[string]any{"updateStrategy": map[string]any{"type": string(want)}}}
}

// BuiltInStatus is that of controller.Kind.
func (Kind) BuiltInStatus(set *appsv1.DaemonSet) rollout.BuiltInStatus { return builtInStatus(set) }

// Gather is that of controller.Kind.
func (k Kind) Gather(ctx context.Context, s *session, set *appsv1.DaemonSet, list controller.ListPods, live bool) (rollout.Observation, error) {
	if live {
		s.KindState.generation = 0
	}
	o := observation{set: set, history: s.KindState}
	all, err := list()
	if err != nil {
		return nil, err
	}
	o.pods = make([]*corev1.Pod, 0, len(all))
	for _, pod := range all {
		if metav1.IsControlledBy(pod, set) {
			o.pods = append(o.pods, pod)
		}
	}
	if err := k.update(ctx, s.KindState, set, o.pods); err != nil {
		return nil, err
	}
	return o, nil
}

// update reads the history of the set where it may not be known: of another generation, or of pods
// of another revision. It fails if the set's template is not in it.
func (k Kind) update(ctx context.Context, h *history, set *appsv1.DaemonSet, all []*corev1.Pod) error {
	known, last := h.newest != nil && h.generation == set.Generation, ""
	for i, pod := range all { // most are of one
		if of := revisions.HashOf(pod); i == 0 || of != last {
			_, is := h.revisions[of]
			known, last = known && is, of
		}
	}
	if known {
		return nil
	}
	list, err := k.client.AppsV1().ControllerRevisions(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	if h.read(set, &set.Spec.Template, list.Items); h.newest == nil {
		return fmt.Errorf("the DaemonSet's template of generation %s is not in the history", templateGeneration(set))
	}
	for _, pod := range all {
		if _, is := h.revisions[revisions.HashOf(pod)]; !is {
			h.revisions[revisions.HashOf(pod)] = nil // do not ask for it again
		}
	}
	h.generation = set.Generation
	return nil
}

// unmark changes the labels of a pod by which the DaemonSet controller takes it for updated.
// Otherwise that would not make a new pod beside it, as maxSurge asks for.
type unmark struct {
	member judge.Member
	hash   string // that it carries from then on
}

func (w unmark) String() string { return "mark pod " + w.member.Name + " as not updated" }

// Apply is that of controller.Kind.
func (k Kind) Apply(ctx context.Context, s *session, _ *appsv1.DaemonSet, write rollout.Write) error {
	w, ok := write.(unmark)
	if !ok {
		return fmt.Errorf("applying a %T, which is no write of a DaemonSet", write)
	}
	unmarked, err := pods.Relabel(ctx, k.client.CoreV1(), w.member.Pod, w.hash, templateGenerationLabel)
	if s.RefusedLabels(w.member.Pod, err) {
		return nil
	}
	if err == nil {
		s.Notes.Note(w.member.Pod.UID).Relabel = nil
		s.Pods.Wrote(unmarked)
	}
	return err
}
