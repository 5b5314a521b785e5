package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json" // numbers without a fraction are int64
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/webhook"
)

// edit is a workload before and after an edit; the two are one and the same where
// the rollout of an earlier edit is looked at.
type edit struct {
	live, after *unstructured.Unstructured // live is nil if it does not exist yet
	sent        *unstructured.Unstructured // after, as whoever makes the edit writes it; nil if nobody does
	unsaid      []string                   // sizes that the manifest does not say, where it is not known whether they go
}

// newEdit is the edit that a manifest makes, as read by this field manager; empty takes the one whose fields match best.
func newEdit(ctx context.Context, live, manifest *unstructured.Unstructured, manager string) (edit, error) {
	e := edit{live: live}
	var err error
	if e.sent, e.unsaid, err = edited(live, manifest, manager); err == nil {
		err = e.admit(ctx, defaulted(e.sent))
	}
	return e, err
}

// admit has the edit be stored with the template of another object, and with what the policy that holds rollouts makes of it then. That is
// asked only about what is held already: what it does to other workloads changes no forecast.
func (e *edit) admit(ctx context.Context, as *unstructured.Unstructured) error {
	template, err := templateOf(as)
	if err == nil {
		e.after, err = withTemplate(e.sent, template)
	}
	if err == nil && policy.Held(e.live) {
		e.after, err = admitted(ctx, e.live, e.after)
	}
	return err
}

// trial is what a dry run of an edit has shown.
type trial struct {
	unattended error  // why no controller goes on with it, as [prerequisite.Unattended] has it
	unknown    string // why it is unknown whether the API server takes it; empty if it does
}

// errUntried is that no dry run shows whether a controller goes on with an edit.
var errUntried = errors.New("there was no dry run")

// attended makes a dry run that edits nothing, and returns what it shows: why no controller goes on with a workload, as
// [prerequisite.Unattended] has it.
func (c *cluster) attended(ctx context.Context, u *unstructured.Unstructured) error {
	if !policy.Enabled(u) {
		return errUntried
	}
	sent := &metav1.ObjectMeta{}
	prerequisite.Ask(sent)
	would, err := c.patch(unwarned(ctx), u, map[string]any{"metadata": map[string]any{"uid": u.GetUID(), "annotations": sent.Annotations}}, api.FieldManager+"-plan", metav1.DryRunAll)
	if err != nil {
		return errUntried
	}
	return prerequisite.Unattended(would)
}

// try makes the edit in a dry run, which also shows what webhooks make of its template. It returns the API server's words if it does not
// take it.
func (c *cluster) try(ctx context.Context, e *edit) (trial, error) {
	if e.sent == nil {
		return trial{unattended: c.attended(ctx, e.live)}, nil
	}
	shown := trial{unattended: errUntried}
	sent := e.sent.DeepCopy()
	sent.SetResourceVersion("")
	if policy.Enabled(sent) {
		prerequisite.Ask(sent)
	}
	would, err := c.resource(sent).Update(ctx, sent, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		if policy.Enabled(sent) {
			shown.unattended = prerequisite.Unattended(would)
		}
		return shown, e.admit(ctx, would)
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot update resource"): // by RBAC, and by no admission
		shown.unknown = "its dry run needs the right to update it"
	case refused(err):
		return shown, fmt.Errorf("the API server refuses the edit: %w", err)
	default:
		shown.unknown = err.Error()
	}
	return shown, nil
}

// refused reports whether the API server, or what admits, has looked at a write and does not take it. A webhook that denies one may name
// any code.
func refused(err error) bool {
	switch code := codeOf(err); code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError && !strings.Contains(err.Error(), "does not support dry run")
	}
}

// holdPolicies are those of deploy/cluster that hold rollouts.
var holdPolicies = sync.OnceValues(func() (*webhook.Policies, error) {
	return webhook.Load(deploy.Cluster, deploy.User, prerequisite.HoldPolicy)
})

// admitted is a workload as deploy/cluster has it stored when it is edited.
func admitted(ctx context.Context, live, after *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	policies, err := holdPolicies()
	if err != nil {
		return nil, fmt.Errorf("reading the policies that hold: %w", err)
	}
	after, err = policies.Admit(ctx, webhook.Write{Old: live, Object: after, User: "somebody"})
	if err != nil {
		return nil, fmt.Errorf("foreseeing the hold of %s: %w", nameOf(live), err)
	}
	return after, nil
}

// settings are those that come into force with the edit: what action and policy say
// applies from the next edit of the template, or from the opt-in.
func (e edit) settings() (policy.Settings, error) {
	edits, err := e.edits()
	if err == nil {
		_, err = rollout.ReadRecord(e.live.GetAnnotations()) // where it cannot be read, everything stays as it is
	}
	if err != nil {
		return policy.Settings{}, err
	}
	if !edits && policy.Enabled(e.live) {
		return policy.InForce(e.live.GetAnnotations())
	}
	return policy.Read(e.after.GetAnnotations())
}

// edits reports whether the template changes, as the built-in controller sees it.
func (e edit) edits() (bool, error) {
	before, err := templateOf(e.live)
	if err != nil {
		return false, err
	}
	after, err := templateOf(e.after)
	if err != nil {
		return false, err
	}
	if kindOf(e.live) == deployments {
		return !before.Same(after), nil
	}
	return !before.SameRevision(after), nil
}

// endsHold reports whether the edit ends a hold where no controller is there: each write does, but as long as a size is not proved. What is
// held stays so until then. Kubectl also writes what means the same, such as 1 for "1".
func (e edit) endsHold() bool {
	record, err := rollout.ReadRecord(e.live.GetAnnotations())
	if err != nil || e.sent == nil || !policy.Held(e.live) || record.Unproved() {
		return false
	}
	before, after := e.live.DeepCopy(), e.sent.DeepCopy()
	for _, u := range []*unstructured.Unstructured{before, after} {
		u.SetManagedFields(nil)
		u.SetResourceVersion("")
		delete(u.Object, "status")
	}
	return !equality.Semantic.DeepEqual(before.Object, after.Object)
}

func templateOf(u *unstructured.Unstructured) (*hash.Template, error) {
	stored, _, err := unstructured.NestedMap(u.Object, "spec", "template")
	if err != nil {
		return nil, fmt.Errorf("reading the template of %s: %w", nameOf(u), err)
	}
	raw, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("encoding the template of %s: %w", nameOf(u), err)
	}
	return hash.NewTemplate(raw)
}

// edited is what live becomes by `kubectl apply` of a manifest; or by `kubectl
// replace`, if it is a whole object, as `kubectl get`, `edit` and `set` write it. Where it is not known what is removed, the sizes are
// returned that the manifest does not say, as `app: memory limit`.
func edited(live, manifest *unstructured.Unstructured, manager string) (after *unstructured.Unstructured, unsaid []string, err error) {
	if manifest.GetResourceVersion() != "" {
		whole := manifest.DeepCopy()
		whole.Object["status"] = live.Object["status"]
		whole.SetUID(live.GetUID())
		return whole, nil, nil
	}
	own, others, err := owned(live, manifest, manager)
	if err != nil {
		return nil, nil, fmt.Errorf("reading who manages the fields of %s: %w", nameOf(live), err)
	}
	last := live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	if own != nil && !likeLast(live, manifest, own.Union(others)) {
		last = ""
	}
	if after, err = merged(live, manifest, last); err != nil {
		return nil, nil, err
	}
	switch {
	case own != nil:
		remove(own, others, after, manifest)
	case last == "":
		unsaid = unsaidSizes(manifest, after)
	}
	return after, unsaid, nil
}

// merged is live with what the manifest says, and without what only the last manifest said.
func merged(live, manifest *unstructured.Unstructured, last string) (*unstructured.Unstructured, error) {
	if manifest.GetAnnotations() == nil { // kubectl adds one, so a manifest without any does not remove those of others
		manifest = manifest.DeepCopy()
		manifest.SetAnnotations(map[string]string{})
	}
	modified, err := manifest.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	current, err := live.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", live.GetName(), err)
	}
	schema, err := strategicpatch.NewPatchMetaFromStruct(kindOf(live).object)
	if err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", live.GetKind(), err)
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch([]byte(cmp.Or(last, "{}")), modified, current, schema, true)
	if err != nil {
		return nil, fmt.Errorf("comparing the manifest with %s: %w", live.GetName(), err)
	}
	merged, err := strategicpatch.StrategicMergePatchUsingLookupPatchMeta(current, patch, schema)
	if err != nil {
		return nil, fmt.Errorf("applying the manifest to %s: %w", live.GetName(), err)
	}
	result := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(merged, &result.Object); err != nil {
		return nil, fmt.Errorf("decoding the edited %s: %w", live.GetName(), err)
	}
	return result, nil
}
