package estimator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
)

// watched is what is known of the cluster. Of what there may be many of, only that is kept
// that is read.
type watched struct {
	namespaces, pods, limits, quotas, tables cache.SharedIndexInformer

	nodes *capacity.Nodes
}

// Indexes.
const (
	byNamespace = cache.NamespaceIndex
	optingIn    = "opting in" // pods that opt themselves in, by namespace
)

func newWatched(client kubernetes.Interface) (*watched, error) {
	nodes, err := capacity.NewNodes(client)
	if err != nil {
		return nil, err
	}
	inNamespace := cache.Indexers{byNamespace: cache.MetaNamespaceIndexFunc}
	w := &watched{
		nodes:      nodes,
		namespaces: coreinformers.NewNamespaceInformer(client, 0, cache.Indexers{}),
		pods:       coreinformers.NewPodInformer(client, metav1.NamespaceAll, 0, cache.Indexers{optingIn: optedInBy}),
		limits:     coreinformers.NewLimitRangeInformer(client, metav1.NamespaceAll, 0, inNamespace),
		quotas:     coreinformers.NewResourceQuotaInformer(client, metav1.NamespaceAll, 0, inNamespace),
		tables: coreinformers.NewFilteredConfigMapInformer(client, metav1.NamespaceAll, 0, inNamespace, func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, api.EstimatesName).String()
		}),
	}
	for informer, transform := range map[cache.SharedIndexInformer]cache.TransformFunc{
		w.namespaces: onlyOf(stripNamespace), w.pods: onlyOf(stripPod), w.limits: onlyOf(stripLimits), w.quotas: onlyOf(stripQuota), w.tables: onlyOf(stripTable),
	} {
		if err := informer.SetTransform(transform); err != nil {
			return nil, fmt.Errorf("stripping what is watched: %w", err)
		}
	}
	return w, nil
}

// run watches until ctx is done.
func (w *watched) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, informer := range w.informers() {
		all.Go(func() { informer.RunWithContext(ctx) })
	}
	all.Go(func() { w.nodes.Run(ctx) })
	all.Wait()
}

func (w *watched) informers() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{w.namespaces, w.pods, w.limits, w.quotas, w.tables}
}

// synced reports whether everything has been listed.
func (w *watched) synced() bool {
	return w.nodes.HasSynced() && !slices.ContainsFunc(w.informers(), func(i cache.SharedIndexInformer) bool { return !i.HasSynced() })
}

// optedIn reports whether pods of the namespace may get estimates: its own label says so, or
// that of one of its pods. One that is being deleted gets nothing any more.
func (w *watched) optedIn(namespace string) bool {
	object, exists, err := w.namespaces.GetStore().GetByKey(namespace)
	n, is := object.(*corev1.Namespace)
	if err != nil || !exists || !is || n.DeletionTimestamp != nil {
		return false
	}
	if optsIn(n.Labels) {
		return true
	}
	keys, err := w.pods.GetIndexer().IndexKeys(optingIn, namespace)
	return err == nil && len(keys) > 0
}

// allOptedIn lists the namespaces that are opted in.
func (w *watched) allOptedIn() []string {
	return slices.DeleteFunc(w.namespaces.GetStore().ListKeys(), func(namespace string) bool { return !w.optedIn(namespace) })
}

// mode is what the label of a namespace says to its pods.
func (w *watched) mode(namespace string) string {
	object, exists, err := w.namespaces.GetStore().GetByKey(namespace)
	if n, is := object.(*corev1.Namespace); is && exists && err == nil {
		return n.Labels[api.InitialResourcesLabel]
	}
	return ""
}

// roomBound is what the annotation of a namespace says.
func (w *watched) roomBound(namespace string) string {
	object, exists, err := w.namespaces.GetStore().GetByKey(namespace)
	if n, is := object.(*corev1.Namespace); is && exists && err == nil {
		return n.Annotations[api.RoomAnnotation]
	}
	return ""
}

// optsIn reports whether labels opt in whatever has them.
func optsIn(labels map[string]string) bool {
	return slices.Contains([]string{api.InitialResourcesEnabled, api.InitialResourcesAnnotate}, labels[api.InitialResourcesLabel])
}

// optedInBy indexes the pods that opt in themselves.
func optedInBy(object any) ([]string, error) {
	if p, is := object.(*pod); is && p.whole != nil && optsIn(p.whole.Labels) {
		return []string{p.Namespace}, nil
	}
	return nil, nil
}

// of returns what is cached in a namespace.
func of[T any](informer cache.SharedIndexInformer, namespace string) []T {
	objects, err := informer.GetIndexer().ByIndex(byNamespace, namespace)
	if err != nil {
		return nil // there is that index
	}
	return typed[T](objects)
}

func typed[T any](objects []any) []T {
	all := make([]T, 0, len(objects))
	for _, object := range objects {
		if one, is := object.(T); is {
			all = append(all, one)
		}
	}
	return all
}

// onlyOf makes of a function a transformation, which leaves alone what is not a T.
func onlyOf[T, S any](strip func(T) S) cache.TransformFunc {
	return func(object any) (any, error) {
		if whole, is := object.(T); is {
			return strip(whole), nil
		}
		return object, nil
	}
}

// identity is what is kept of all metadata.
func identity(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
}

func stripNamespace(n *corev1.Namespace) *corev1.Namespace {
	kept := &corev1.Namespace{ObjectMeta: identity(n.ObjectMeta)}
	kept.Labels = only(n.Labels, api.InitialResourcesLabel)
	kept.Annotations = only(n.Annotations, api.RoomAnnotation)
	return kept
}

func stripLimits(l *corev1.LimitRange) *corev1.LimitRange {
	return &corev1.LimitRange{ObjectMeta: identity(l.ObjectMeta), Spec: l.Spec}
}

func stripQuota(q *corev1.ResourceQuota) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: identity(q.ObjectMeta), Spec: q.Spec, Status: q.Status}
}

// stripTable keeps who has written data of a ConfigMap, but not which.
func stripTable(c *corev1.ConfigMap) *corev1.ConfigMap {
	kept := &corev1.ConfigMap{TypeMeta: c.TypeMeta, ObjectMeta: identity(c.ObjectMeta), Data: c.Data}
	kept.Labels = only(c.Labels, api.ManagedByLabel)
	for _, entry := range c.ManagedFields {
		if !byUs(entry) && !writesData(entry) {
			continue
		}
		kept.ManagedFields = append(kept.ManagedFields, metav1.ManagedFieldsEntry{Manager: entry.Manager, Operation: entry.Operation})
	}
	return kept
}

func writesData(entry metav1.ManagedFieldsEntry) bool {
	return entry.FieldsV1 != nil &&
		(strings.Contains(entry.FieldsV1.GetRawString(), `"f:data"`) || strings.Contains(entry.FieldsV1.GetRawString(), `"f:binaryData"`))
}

// only returns a map with one of the keys, or nil.
func only(all map[string]string, key string) map[string]string {
	if value, has := all[key]; has {
		return map[string]string{key: value}
	}
	return nil
}

// pod is what is kept of a pod. Of most it is no more than what they take of their nodes:
// there may be tens of thousands.
type pod struct {
	metav1.ObjectMeta

	node string
	load capacity.Load
	// whole is the pod as [pods.Strip] leaves it, with its images, and what it says of initial
	// resources. Nil if it says nothing.
	whole *corev1.Pod
	// lacks are the estimates that it might have got.
	lacks []lack
}

func stripPod(p *corev1.Pod) *pod {
	kept := &pod{ObjectMeta: identity(p.ObjectMeta), lacks: lacksOf(p)}
	if !capacity.Over(p) && p.Spec.NodeName != "" {
		kept.node = p.Spec.NodeName
		kept.load = capacity.LoadOf(capacity.Taken(p))
	}
	if _, estimated := p.Annotations[api.EstimateAnnotation]; !estimated && !optsIn(p.Labels) {
		return kept
	}
	whole, err := pods.Strip(p)
	if err != nil {
		return kept // it is a pod
	}
	for i := range p.Spec.Containers {
		whole.Spec.Containers[i].Image = p.Spec.Containers[i].Image
	}
	for i := range p.Spec.InitContainers {
		whole.Spec.InitContainers[i].Image = p.Spec.InitContainers[i].Image
	}
	for _, name := range []string{api.EstimateAnnotation, api.InitialResourcesLabel} {
		if value, has := p.Annotations[name]; has {
			metav1.SetMetaDataAnnotation(&whole.ObjectMeta, name, value)
		}
	}
	kept.whole = whole
	return kept
}
