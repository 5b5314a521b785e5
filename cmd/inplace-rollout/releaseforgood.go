package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
)

// API servers go on applying what was taken away for about a second, and a controller that is at
// work takes the step that it has begun. So nothing must be held for quiet; and what still is after
// insistence is an error.
const (
	lookAgain  = time.Second
	quiet      = 5 * time.Second
	insistence = 2 * time.Minute
)

// runForGood takes away what holds, and then lets go of what is held until nothing is any more.
func (o releaseOptions) runForGood(ctx context.Context, out io.Writer) error {
	if err := o.stopHolding(ctx); err != nil {
		return fmt.Errorf("nothing is released, and edits can still be held: %w", err)
	}
	begun, last := time.Now(), time.Now() // when something was held last
	for {
		all, err := o.holds(ctx, nil)
		if err == nil && len(all) == 0 && time.Since(last) >= quiet {
			_, err := fmt.Fprintf(out, "Nothing is held in %s any more.\n", o.where())
			return errors.Join(o.withdraw(ctx, out), err)
		}
		if err == nil && len(all) > 0 {
			last, err = time.Now(), letGo(out, all)
		}
		// An edit in between is a conflict, and its hold is let go at the next look.
		if err != nil && (apierrors.IsForbidden(err) || time.Since(begun) > insistence) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(lookAgain):
		}
	}
}

// withdraw takes our conditions from all workloads: nobody brings them up to date any more, and whoever waits for Complete would
// believe it of the next edit. Those that it may not write keep theirs, and are named.
func (o releaseOptions) withdraw(ctx context.Context, out io.Writer) error {
	found, err := o.list(ctx, o.scope(o.allNamespaces), "")
	if err != nil {
		return err
	}
	var kept []string
	for _, u := range found {
		switch err := o.withdrawFrom(ctx, u); {
		case apierrors.IsForbidden(err):
			kept = append(kept, fmt.Sprintf("%s (namespace %s)", nameOf(u), u.GetNamespace()))
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("removing conditions of %s: %w", nameOf(u), err)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	_, err = fmt.Fprintf(out, "Nobody updates the condition %s any more, and you cannot patch the status of %s. It is left on %s.\n",
		api.ConditionComplete, everyResource, strings.Join(kept, ", "))
	return err
}

func (o releaseOptions) withdrawFrom(ctx context.Context, u *unstructured.Unstructured) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		others := slices.DeleteFunc(slices.Clone(conditions), func(c any) bool {
			fields, _ := c.(map[string]any)
			name, _ := fields["type"].(string)
			return name == api.ConditionComplete || name == api.ConditionObserved
		})
		if len(others) == len(conditions) {
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(), "annotations": map[string]any{api.SaidOfAnnotation: nil}},
			"status":   map[string]any{"conditions": others},
		})
		if err != nil {
			return fmt.Errorf("encoding the patch: %w", err)
		}
		_, err = o.resource(u).Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: api.ReleaseManager}, "status")
		if apierrors.IsConflict(err) { // the built-in controller has written its part
			if live, errOfGet := o.resource(u).Get(ctx, u.GetName(), metav1.GetOptions{}); errOfGet == nil {
				u = live
			}
		}
		return err
	})
}

// where is the scope of --all, in words.
func (o releaseOptions) where() string {
	if o.allNamespaces {
		return "the cluster"
	}
	return "the namespace " + o.namespace
}

// endsHolding says where no edit is held from now on: nowhere, if that is not asked. It is an error where that is asked of one namespace,
// and what holds there does so in all.
func (o releaseOptions) endsHolding(ctx context.Context) (where string, err error) {
	if !o.forGood {
		return "", nil
	}
	switch forAll, known := (&prerequisite.Cluster{Client: o.client}).ForAll(ctx); {
	case o.allNamespaces:
		return o.where(), nil
	case forAll:
		return "", fmt.Errorf("--for-good cannot end holding in %s alone: inplace-rollout is installed for all namespaces, and goes on holding edits in each. "+
			"Use --all-namespaces, or opt the workloads out: remove their label %s", o.where(), api.EnabledLabel)
	case known:
		return o.where(), nil
	}
	return o.where() + ", unless inplace-rollout is installed for all namespaces", nil
}

// stopHolding takes away what holds, and what guards that: for the cluster, whichever of the ways is installed; for a
// namespace, the label with which a controller of its own is installed there.
func (o releaseOptions) stopHolding(ctx context.Context) error {
	if !o.allNamespaces {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{api.InstalledLabel: nil}}})
		if err != nil {
			return fmt.Errorf("encoding the patch: %w", err)
		}
		if _, err := o.client.CoreV1().Namespaces().Patch(ctx, o.namespace, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: api.ReleaseManager}); err != nil {
			return fmt.Errorf("taking the label %s from namespace %s: %w", api.InstalledLabel, o.namespace, err)
		}
		return nil
	}
	var failed []error
	for _, of := range []struct {
		version, resource string
		names, former     []string
	}{
		{"v1", "validatingadmissionpolicybindings", prerequisite.GuardPolicies(), prerequisite.FormerValidatingPolicies()}, // first: they refuse what is not held
		{"v1", "mutatingadmissionpolicybindings", prerequisite.MutatingPolicies, prerequisite.FormerMutatingPolicies()},
		{"v1", "mutatingwebhookconfigurations", []string{prerequisite.WebhookConfiguration}, nil},
	} {
		gvr := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: of.version, Resource: of.resource}
		for _, name := range slices.Concat(of.names, of.former) {
			err := o.objects.Resource(gvr).Delete(ctx, name, metav1.DeleteOptions{})
			// What is not there, or not served, does not hold. The hook of the chart may not delete what is not the chart's.
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && slices.Contains(of.former, name) {
				continue
			}
			failed = append(failed, fmt.Errorf("deleting %s %s: %w", of.resource, name, err))
		}
	}
	return errors.Join(failed...)
}
