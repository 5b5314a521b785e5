package main

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/daemonset"
	"github.com/inplace-rollout/inplace-rollout/pkg/deployment"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/statefulset"
)

// kind is what the commands must know of a kind of workload.
type kind struct {
	name     string // as in manifests
	resource string
	short    string // as kubectl abbreviates it
	history  string // the resource that has former templates
	// object is of the kind's Go type, which says how lists in it are merged.
	object any
	// revision names the newest revision of a workload; it is empty if the workload does not.
	revision func(u *unstructured.Unstructured) string
	// hold is the field of the spec that holds a workload, as it is, and as its user wants it; none if no field does.
	hold func(u *unstructured.Unstructured) (field []string, is, wish any)
	// former returns the template that the pods of a workload go back to where the edit that it is held at has failed; nil if none
	// is known.
	former func(ctx context.Context, c *cluster, u *unstructured.Unstructured, record *rollout.Record) (*hash.Template, error)
	// revisions returns the templates in the history of a workload, by their numbers.
	revisions func(ctx context.Context, c *cluster, u *unstructured.Unstructured) ([]*hash.Template, error)
	// forecast returns what a rollout does to the pods of a workload, which is as the edit leaves it.
	forecast func(ctx context.Context, c *cluster, q capacity.Question, after *unstructured.Unstructured) (rollout.WorkloadForecast, error)
}

// The kinds of workloads that can be opted in.
var (
	statefulSets = &kind{
		name: "StatefulSet", resource: "statefulsets", short: "sts", history: "controllerrevisions", object: appsv1.StatefulSet{},
		revision: func(u *unstructured.Unstructured) string { return nestedString(u, "status", "updateRevision") },
		hold: func(u *unstructured.Unstructured) (field []string, is, wish any) {
			if strategyOf(u) != string(appsv1.RollingUpdateStatefulSetStrategyType) {
				return nil, nil, nil
			}
			partition := partitionOf(u)
			return []string{"updateStrategy", "rollingUpdate", "partition"}, int64(partition), int64(policy.WishedPartition(u, partition))
		},
		former:    formerRevision,
		revisions: controllerRevisions,
		forecast: func(ctx context.Context, c *cluster, q capacity.Question, after *unstructured.Unstructured) (rollout.WorkloadForecast, error) {
			set, template, err := decoded[appsv1.StatefulSet](after)
			if err != nil {
				return rollout.WorkloadForecast{}, err
			}
			return statefulset.Forecast(ctx, c.client, q, set, template)
		},
	}
	deployments = &kind{
		name: "Deployment", resource: "deployments", short: "deploy", history: "replicasets", object: appsv1.Deployment{},
		revision: func(u *unstructured.Unstructured) string {
			return u.GetAnnotations()["deployment.kubernetes.io/revision"]
		},
		hold: func(u *unstructured.Unstructured) (field []string, is, wish any) {
			paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
			return []string{"paused"}, paused, policy.WishedPaused(u, false)
		},
		former: func(ctx context.Context, c *cluster, u *unstructured.Unstructured, r *rollout.Record) (*hash.Template, error) {
			return deployment.Former(ctx, c.objects, u, r.From)
		},
		revisions: func(ctx context.Context, c *cluster, u *unstructured.Unstructured) ([]*hash.Template, error) {
			return deployment.Revisions(ctx, c.objects, u)
		},
		forecast: func(ctx context.Context, c *cluster, q capacity.Question, after *unstructured.Unstructured) (rollout.WorkloadForecast, error) {
			return deployment.Forecast(ctx, c.objects, q, after)
		},
	}
	daemonSets = &kind{
		name: "DaemonSet", resource: "daemonsets", short: "ds", history: "controllerrevisions", object: appsv1.DaemonSet{},
		revision: func(*unstructured.Unstructured) string { return "" },
		hold: func(u *unstructured.Unstructured) (field []string, is, wish any) {
			strategy := strategyOf(u)
			return []string{"updateStrategy", "type"}, strategy, string(policy.WishedStrategy(u, appsv1.DaemonSetUpdateStrategyType(strategy)))
		},
		former:    formerRevision,
		revisions: controllerRevisions,
		forecast: func(ctx context.Context, c *cluster, q capacity.Question, after *unstructured.Unstructured) (rollout.WorkloadForecast, error) {
			set, template, err := decoded[appsv1.DaemonSet](after)
			if err != nil {
				return rollout.WorkloadForecast{}, err
			}
			return daemonset.Forecast(ctx, c.client, q, set, template)
		},
	}
	kinds = []*kind{statefulSets, deployments, daemonSets}
)

// How people are told what can be opted in.
const (
	anyKind       = "StatefulSet, Deployment or DaemonSet"
	everyResource = "statefulsets, deployments and daemonsets (apps)"
)

// kindOf returns the kind of a workload; nil if it is none that can be opted in.
func kindOf(u *unstructured.Unstructured) *kind {
	for _, k := range kinds {
		if u.GroupVersionKind() == k.gvk() {
			return k
		}
	}
	return nil
}

// holds reports whether a workload is really held, and does not only say so.
func (k *kind) holds(u *unstructured.Unstructured) bool {
	_, is, wish := k.hold(u)
	return policy.Held(u) && is != wish
}

// released is the spec with which a held workload is let go.
func (k *kind) released(u *unstructured.Unstructured) map[string]any {
	spec := map[string]any{}
	if field, _, wish := k.hold(u); field != nil {
		_ = unstructured.SetNestedField(spec, wish, field...)
	}
	return spec
}

func (k *kind) gvk() schema.GroupVersionKind { return appsv1.SchemeGroupVersion.WithKind(k.name) }

func (k *kind) gvr() schema.GroupVersionResource {
	return appsv1.SchemeGroupVersion.WithResource(k.resource)
}

// names are what people type before the slash.
func (k *kind) names() []string {
	singular := k.resource[:len(k.resource)-1]
	return []string{k.short, singular, k.resource, singular + ".apps", k.resource + ".apps"}
}

// formerRevision reads the template of the revision from before, which the record names as the label of pods does: of a StatefulSet by
// its name, of a DaemonSet by its hash. Where no controller has recorded it, it is that of most of the pods that differ in their size.
func formerRevision(ctx context.Context, c *cluster, u *unstructured.Unstructured, record *rollout.Record) (*hash.Template, error) {
	stored, err := storedRevisions(ctx, c, u)
	if err != nil {
		return nil, err
	}
	of := map[string]*appsv1.ControllerRevision{}
	for i := range stored {
		of[stored[i].Name], of[stored[i].Labels[appsv1.ControllerRevisionHashLabelKey]] = &stored[i], &stored[i]
	}
	from := record.From
	if from == "" {
		if from, err = mostPods(ctx, c, u, of); err != nil {
			return nil, err
		}
	}
	if from == "" || of[from] == nil {
		return nil, nil
	}
	return hash.OfRevision(of[from])
}

// controllerRevisions returns the templates in the history of a StatefulSet or DaemonSet.
func controllerRevisions(ctx context.Context, c *cluster, u *unstructured.Unstructured) ([]*hash.Template, error) {
	stored, err := storedRevisions(ctx, c, u)
	if err != nil {
		return nil, err
	}
	templates := make([]*hash.Template, len(stored))
	for i := range stored {
		if templates[i], err = hash.OfRevision(&stored[i]); err != nil {
			return nil, err
		}
	}
	return templates, nil
}

// storedRevisions lists the history of a StatefulSet or DaemonSet.
func storedRevisions(ctx context.Context, c *cluster, u *unstructured.Unstructured) ([]appsv1.ControllerRevision, error) {
	list, err := c.client.AppsV1().ControllerRevisions(u.GetNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(r appsv1.ControllerRevision) bool { return !metav1.IsControlledBy(&r, u) }), nil
}

// mostPods returns of which revision most of the pods are that differ from the template only in their size; empty if there are none.
func mostPods(ctx context.Context, c *cluster, u *unstructured.Unstructured, of map[string]*appsv1.ControllerRevision) (string, error) {
	newest, err := templateOf(u)
	if err != nil {
		return "", err
	}
	list, err := c.client.CoreV1().Pods(u.GetNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("listing pods: %w", err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if pod := &list.Items[i]; metav1.IsControlledBy(pod, u) && !judge.Gone(pod) {
			pods = append(pods, pod)
		}
	}
	return revisions.Former(pods, func(pod *corev1.Pod) bool {
		r := of[revisions.HashOf(pod)]
		if r == nil {
			return false
		}
		template, err := hash.OfRevision(r)
		return err == nil && !template.Same(newest) && template.Differs(newest) == ""
	}), nil
}

// decoded returns a workload as its Go type, and its template.
func decoded[W any](u *unstructured.Unstructured) (*W, *hash.Template, error) {
	var w W
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &w); err != nil {
		return nil, nil, fmt.Errorf("decoding %s: %w", nameOf(u), err)
	}
	template, err := templateOf(u)
	return &w, template, err
}

func partitionOf(u *unstructured.Unstructured) int {
	n, _, _ := unstructured.NestedInt64(u.Object, "spec", "updateStrategy", "rollingUpdate", "partition")
	return int(n)
}

// strategyOf is the type of a workload's update strategy; empty if its kind has none of that name.
func strategyOf(u *unstructured.Unstructured) string {
	return nestedString(u, "spec", "updateStrategy", "type")
}

// nestedString returns a field of a workload; empty if it has none.
func nestedString(u *unstructured.Unstructured, fields ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, fields...)
	return s
}
