package prerequisite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// ErrNotAsked is why an edit is not held: nothing that holds looks at it.
var ErrNotAsked = errors.New("the API server applies nothing in this namespace that holds edits")

// ErrUnsaid is why a dry run does not show whether a controller is there.
var ErrUnsaid = errors.New("what holds edits is of another version, and does not say whether it sees a controller")

// errNone is that there is no workload to try an edit of.
var errNone = errors.New("there is no workload")

var errUndone = errors.New("another policy or a mutating webhook removes the hold")

// IsAbsent reports whether an error says that no controller goes on with an edit.
func IsAbsent(err error) bool { return errors.Is(err, errAbsent) || errors.Is(err, errWaits) }

// IsUnseen reports whether an error only says that something could not be seen.
func IsUnseen(err error) bool { return apierrors.IsForbidden(err) || errors.As(err, &unseen{}) }

// Proof finds out by dry runs in a namespace, by whoever asks, of which kinds of workloads the edits are held, and whether the policy that
// holds sees a controller. It has nothing of those that are held, [ErrNotAsked] of those that nothing holds, an error that [IsAbsent] knows
// where no controller is there, and one that [IsUnseen] knows where that cannot be told. It needs the right to create such
// workloads, or to patch one that there is.
func (c *Cluster) Proof(ctx context.Context, namespace string) map[string]error {
	found := map[string]error{}
	for _, k := range heldKinds {
		said, err := k.ask(ctx, c.Client.AppsV1(), namespace, looksOf(nil), plainly)
		created := err == nil
		if apierrors.IsForbidden(err) {
			switch own, ownErr := c.askOwn(ctx, k, namespace); {
			case ownErr == nil:
				said, err = own, nil
			case !apierrors.IsForbidden(ownErr) && !errors.Is(ownErr, errNone):
				err = ownErr
			}
		}
		if err != nil {
			err = unseen{err}
		} else if err = said.unattended(); err == nil && created && k.name != "Deployment" && !said.held { // a user's new Deployment never is
			err = errUndone
		}
		if err != nil {
			found[k.name] = err
		}
	}
	return found
}

// NamespaceThere returns an error if there is no such namespace, by the dry runs of [Cluster.Proof] in it, by what can be read of it, or by
// what is in it; one that [IsUnseen] knows if none of that tells.
func (c *Cluster) NamespaceThere(ctx context.Context, namespace string, proof map[string]error) error {
	none := fmt.Errorf("there is no namespace %s", namespace)
	for _, kind := range HeldKinds {
		refused, is := errors.AsType[*apierrors.StatusError](proof[kind])
		switch {
		case is && apierrors.IsNotFound(refused) && refused.ErrStatus.Details != nil && refused.ErrStatus.Details.Kind == "namespaces":
			return none
		case !IsUnseen(proof[kind]):
			return nil
		}
	}
	_, err := c.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return none
	}
	seen := func(k heldKind) bool { _, unseen := c.anyOwn(ctx, k, namespace); return unseen == nil }
	if err == nil || slices.ContainsFunc(heldKinds, seen) {
		return nil
	}
	return unseen{fmt.Errorf("whether there is such a namespace could not be seen: %w", err)}
}

// unattended is why no controller goes on with the edit; nil if one does.
func (a answer) unattended() error {
	switch {
	case !a.asked:
		return ErrNotAsked
	case a.attended == "false":
		return absentAs(a.held)
	case a.attended != "true":
		return unseen{ErrUnsaid}
	}
	return nil
}

// Ask has the dry run of an edit ask, besides, whether a controller goes on with it. [Unattended] reads what it would store.
func Ask(edit metav1.Object) {
	annotations := maps.Clone(edit.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[api.InForceAnnotation], annotations[api.AttendedAnnotation] = unasked, unasked
	edit.SetAnnotations(annotations)
}

// Unattended is why no controller goes on with an edit, by what a dry run that [Ask] has prepared would store: what [Cluster.Proof] has of
// a kind.
func Unattended(would metav1.Object) error { return answerOf(would, true).unattended() }

// askOwn does that by the dry run of an edit of a workload that there is, opted in if need be, for a user who may not create one.
func (c *Cluster) askOwn(ctx context.Context, k heldKind, namespace string) (answer, error) {
	name, err := c.anyOwn(ctx, k, namespace)
	if err != nil {
		return answer{}, err
	}
	annotations := map[string]string{api.ResizeActionAnnotation: ""}
	maps.Copy(annotations, plainly)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]string{api.EnabledLabel: "true"}, "annotations": annotations},
		"spec":     map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": map[string]string{api.DryRunName: "?"}}}},
	})
	if err != nil {
		return answer{}, fmt.Errorf("encoding the edit: %w", err)
	}
	return k.try(ctx, c.Client.AppsV1(), namespace, name, types.MergePatchType, patch)
}

// anyOwn is the name of a workload that there is; one that is opted in, if possible.
func (c *Cluster) anyOwn(ctx context.Context, k heldKind, namespace string) (name string, err error) {
	for _, selector := range []string{api.EnabledLabel + "=true", ""} {
		list, err := k.list(ctx, c.Client.AppsV1(), namespace, metav1.ListOptions{LabelSelector: selector, Limit: 1})
		if err != nil {
			return "", err
		}
		items, err := meta.ExtractList(list)
		if err != nil || len(items) == 0 {
			continue
		}
		if workload, err := meta.Accessor(items[0]); err == nil {
			return workload.GetName(), nil
		}
	}
	return "", errNone
}
