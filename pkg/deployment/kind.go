// Package deployment says what Kubernetes does differently for Deployments. A sync gathers
// what there is (kind.go), reads it as ReplicaSets and places of pods (observe.go), plans the
// next step (plan.go) and makes its writes (writes.go, apply.go). Sessions keep nothing that a
// controller that is restarted could not read again.
package deployment

import (
	"context"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/mutationcache"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// kindName is how the API names the kind.
const kindName = "Deployment"

var (
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	replicaSets = appsv1.SchemeGroupVersion.WithResource("replicasets")
)

// Kind is [controller.Kind] for Deployments.
type Kind struct {
	client kubernetes.Interface
	// objects reads and writes objects as they are stored: templates are compared and copied
	// with all of their fields.
	objects dynamic.Interface
	// detached watches the detached pods of all Deployments: one may be opted out before they
	// are gone.
	detached cache.SharedIndexInformer
	// events that no session records; nil if nobody is told. told are the pods that were told of.
	events controller.Recorder
	told   *sync.Map
}

// New returns the kind for the Deployments of a namespace, or of all if it is empty. It reads
// and writes through client and objects.
func New(client kubernetes.Interface, objects dynamic.Interface, namespace string) Kind {
	return Kind{client: client, objects: objects, told: &sync.Map{}, detached: coreinformers.NewFilteredPodInformer(client, namespace, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(o *metav1.ListOptions) { o.LabelSelector = api.DetachedLabel })}
}

// Recording returns the kind, which records through events what is found where nothing is rolled out.
func (k Kind) Recording(events controller.Recorder) Kind {
	k.events = events
	return k
}

// kindState is what a session keeps of a Deployment besides its pods.
type kindState struct {
	sets     *mutationcache.Cache[*replicaSet]
	template *hash.Template // that the Deployment had when it was read last
	text     string
}

// HasSynced is that of controller.KindState.
func (o *kindState) HasSynced() bool { return o.sets.HasSynced() }

// Size is that of controller.KindState.
func (o *kindState) Size() (size int) {
	if o.template != nil {
		size = len(o.template.Raw)
	}
	all, _ := o.sets.List() // where one cannot be read, nothing goes on
	for _, rs := range all {
		size += len(rs.template.Raw) + len(rs.adoption.Template)
	}
	return size
}

type session = controller.Session[*Deployment, *kindState]

// DetachedFrom names the Deployment that controls a detached pod; false if something else does. Then
// the pod is not a detached one, whatever its label says: anybody may have given it that.
//
// The name is empty if nothing controls the pod: its Deployment may have been deleted without it.
func DetachedFrom(pod *corev1.Pod) (cache.ObjectName, bool) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return cache.NewObjectName(pod.Namespace, ""), isDetached(pod)
	}
	return cache.NewObjectName(pod.Namespace, owner.Name), owner.Kind == kindName && owner.APIVersion == appsv1.SchemeGroupVersion.String()
}

// watch watches detached pods.
func (k Kind) watch(ctx context.Context, changed func(cache.ObjectName)) error {
	enqueue := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			if name, is := DetachedFrom(pod); is {
				changed(name)
			}
		}
	}
	if _, err := k.detached.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }}); err != nil {
		return fmt.Errorf("handling events of detached pods: %w", err)
	}
	if err := k.detached.SetTransform(mutationcache.Strip[*corev1.Pod](pods.Strip).Transform); err != nil {
		return fmt.Errorf("stripping detached pods: %w", err)
	}
	go k.detached.RunWithContext(ctx)
	return nil
}

// Open is that of controller.Kind.
func (k Kind) Open(ctx context.Context, d *Deployment, changed func()) (*kindState, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(k.objects, replicaSets, d.Namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = metav1.FormatLabelSelector(d.Spec.Selector)
		mutationcache.Newest(o)
	}).Informer()
	watch, err := mutationcache.New(ctx, informer, decodeReplicaSet, changed)
	if err != nil {
		return nil, fmt.Errorf("watching ReplicaSets: %w", err)
	}
	return &kindState{sets: watch}, nil
}

// leftBehind has pods that were detached from a Deployment go back.
func (k Kind) leftBehind(name cache.ObjectName) (rollout.Write, error) {
	objects, err := k.detached.GetIndexer().ByIndex(cache.NamespaceIndex, name.Namespace)
	if err != nil {
		return nil, fmt.Errorf("listing detached pods: %w", err)
	}
	var left []*corev1.Pod
	for _, obj := range objects {
		if pod, ok := obj.(*corev1.Pod); ok && !judge.Gone(pod) {
			if owner, is := DetachedFrom(pod); is && owner == name {
				left = append(left, pod)
			}
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	return reattach{pods: left}, nil
}

// Unrestored is that of controller.Kind.
func (Kind) Unrestored(held, written *Deployment) map[string]any {
	wish := held.wishedPaused()
	if written.Spec.Paused == wish {
		return nil
	}
	return map[string]any{"spec": map[string]any{"paused": wish}}
}

// BuiltInStatus is that of controller.Kind.
func (Kind) BuiltInStatus(d *Deployment) rollout.BuiltInStatus { return builtInStatus(d) }

// Gather is that of controller.Kind.
func (k Kind) Gather(ctx context.Context, s *session, d *Deployment, list controller.ListPods, live bool) (rollout.Observation, error) {
	d, err := k.whole(ctx, s, d)
	if err != nil {
		return nil, err
	}
	var sets []*replicaSet
	if live {
		sets, err = k.listSets(ctx, d)
	} else {
		sets, err = s.KindState.sets.List()
	}
	if err != nil {
		return nil, err
	}
	// After the ReplicaSets: of one that does not lag, every pod is listed.
	all, err := list()
	if err != nil {
		return nil, err
	}
	o := newObservation(d, sets, all)
	o.history = s.History
	return o, nil
}

// listSets lists the ReplicaSets of the Deployment's selector from the API server.
func (k Kind) listSets(ctx context.Context, d *Deployment) ([]*replicaSet, error) {
	list, err := k.sets(d).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
	if err != nil {
		return nil, fmt.Errorf("listing ReplicaSets: %w", err)
	}
	decoded := make([]*replicaSet, len(list.Items))
	for i := range list.Items {
		if decoded[i], err = decodeReplicaSet(&list.Items[i]); err != nil {
			return nil, err
		}
	}
	return decoded, nil
}

// newObservation picks what belongs to the Deployment.
func newObservation(d *Deployment, listed []*replicaSet, all []*corev1.Pod) observation {
	o := observation{deployment: d, pods: make([]*corev1.Pod, 0, len(all)), active: map[types.UID]*group{d.UID: {}}}
	for _, rs := range listed {
		if metav1.IsControlledBy(rs, d) || rollout.Adopts(d, rs) {
			o.active[rs.UID] = &group{}
			o.sets = append(o.sets, rs)
		}
	}
	for _, pod := range all {
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner == nil {
			continue
		}
		if group := o.active[owner.UID]; group != nil {
			o.pods = append(o.pods, pod)
			if !judge.Gone(pod) {
				group.pods = append(group.pods, pod)
			}
		}
	}
	return o
}
