// Package deployment carries resources-only edits of Deployments into their running
// pods. Each sync gathers what there is (observe.go), plans the next step from it
// (plan.go) and carries it out (apply.go); nothing is remembered that a restarted
// controller could not read back or find out again.
package deployment

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/live"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/workload"
)

var (
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	replicaSets = appsv1.SchemeGroupVersion.WithResource("replicasets")
)

// Controller rolls out resources-only edits of opted-in Deployments in place.
type Controller struct {
	*workload.Controller[*Deployment, *own]

	// objects as they are stored: templates are compared and copied with all of their fields.
	objects dynamic.Interface
	// detached pods, wherever they are: a Deployment may be opted out before they are gone.
	detached cache.SharedIndexInformer
}

// own is what a session keeps of a Deployment besides its pods.
type own struct {
	sets      *live.Watch[*unstructured.Unstructured]
	evictions workload.Refusals
	history   workload.Refusals // of what ReplicaSets had before
}

type session = workload.Session[*own]

// New returns a controller that writes through client and objects, and tells through recorder.
func New(ctx context.Context, client kubernetes.Interface, objects dynamic.Interface, recorder record.EventRecorder, nodes *workload.Nodes, options workload.Options) (*Controller, error) {
	c := &Controller{objects: objects}
	c.detached = coreinformers.NewFilteredPodInformer(client, options.Namespace, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(o *metav1.ListOptions) { o.LabelSelector = api.DetachedLabel })
	enqueue := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			if name, is := DetachedFrom(pod); is {
				c.Enqueue(name)
			}
		}
	}
	if _, err := c.detached.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }}); err != nil {
		return nil, fmt.Errorf("handling events of detached pods: %w", err)
	}
	var err error
	c.Controller, err = workload.New(ctx, kind{c}, client, recorder, nodes, options)
	return c, err
}

// DetachedFrom names the Deployment that owns a detached pod. It does not count as one
// if anything else owns it: anybody may have given it the label.
func DetachedFrom(pod *corev1.Pod) (cache.ObjectName, bool) {
	owner := ptr.Deref(metav1.GetControllerOfNoCopy(pod), metav1.OwnerReference{})
	return cache.NewObjectName(pod.Namespace, owner.Name), owner.Kind == "Deployment" && owner.APIVersion == appsv1.SchemeGroupVersion.String()
}

// Run works until ctx is done. The nodes must be running.
func (c *Controller) Run(ctx context.Context) {
	go c.detached.RunWithContext(ctx)
	c.Controller.Run(ctx)
}

// kind is workload.Kind for Deployments.
type kind struct{ controller *Controller }

func (kind) Name() string { return "Deployment" }

func (k kind) NewInformer(namespace string, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer {
	return dynamicinformer.NewFilteredDynamicInformer(k.controller.objects, deployments, namespace, 0, cache.Indexers{}, tweak).Informer()
}

func (kind) Decode(obj any) (*Deployment, error) { return decodeDeployment(obj) }

func (k kind) Patch(ctx context.Context, d *Deployment, kind types.PatchType, patch []byte, subresources ...string) (runtime.Object, error) {
	return k.controller.objects.Resource(deployments).Namespace(d.Namespace).Patch(ctx, d.Name, kind, patch, metav1.PatchOptions{FieldManager: api.FieldManager}, subresources...)
}

func (kind) Selector(d *Deployment) *metav1.LabelSelector { return d.Spec.Selector }

func (kind) Condition(d *Deployment) *workload.Condition { return condition(d) }

func (kind) NewCondition(c workload.Condition, now metav1.Time) any {
	return appsv1.DeploymentCondition{
		Type: api.ConditionComplete, Status: c.Status, LastTransitionTime: c.LastTransitionTime, LastUpdateTime: now, Reason: c.Reason, Message: c.Message,
	}
}

func (k kind) Open(ctx context.Context, d *Deployment, changed func()) (*own, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(k.controller.objects, replicaSets, d.Namespace, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(o *metav1.ListOptions) { o.LabelSelector = metav1.FormatLabelSelector(d.Spec.Selector) }).Informer()
	if err := informer.SetTransform(pods.Strip); err != nil {
		return nil, fmt.Errorf("stripping watched ReplicaSets: %w", err)
	}
	watch, err := live.NewWatch[*unstructured.Unstructured](ctx, informer, d.Namespace, changed)
	if err != nil {
		return nil, fmt.Errorf("watching ReplicaSets: %w", err)
	}
	return &own{sets: watch, evictions: workload.Refusals{}, history: workload.Refusals{}}, nil
}

// Leave gives the pods that were detached from a Deployment back to it.
func (k kind) Leave(ctx context.Context, name cache.ObjectName) error {
	objects, err := k.controller.detached.GetIndexer().ByIndex(cache.NamespaceIndex, name.Namespace)
	if err != nil {
		return fmt.Errorf("listing detached pods: %w", err)
	}
	var left []*corev1.Pod
	for _, obj := range objects {
		if pod, ok := obj.(*corev1.Pod); ok && !rollout.Gone(pod) {
			if owner, is := DetachedFrom(pod); is && owner == name {
				left = append(left, pod)
			}
		}
	}
	if len(left) == 0 || k.controller.Options.DryRun {
		return nil
	}
	return GiveBack(ctx, k.controller.Client, k.controller.objects, name.Namespace, left)
}

// Sync takes the next step of an opted-in Deployment.
func (k kind) Sync(ctx context.Context, d *Deployment) (time.Duration, error) {
	c := k.controller
	if d.Status.ObservedGeneration < d.Generation {
		return 0, nil // it is not known to hold still yet
	}
	name := cache.MetaObjectToName(d)
	if !workload.Held(d) {
		if err := k.Leave(ctx, name); err != nil {
			return 0, err
		}
	}
	if said, rests := atRest(d); rests {
		c.EndSession(name)
		return c.Tell(ctx, d, said)
	}
	s, err := c.Session(ctx, d)
	if err != nil || !s.Pods.HasSynced() || !s.Own.sets.HasSynced() {
		return 0, err // the watches tell when they have
	}
	if s.Retry(d) {
		clear(s.Own.evictions)
	}
	p, err := c.plan(ctx, s, d)
	if err != nil {
		return 0, err
	}
	return c.apply(ctx, s, d, p)
}

// plan makes the next step from what is watched. A step that does more than resize
// pods, or says Complete, is made again from what the API server has right now, and then without the
// restarts of pods for which there would be no room.
func (c *Controller) plan(ctx context.Context, s *session, d *Deployment) (plan, error) {
	watched, err := s.Pods.List()
	if err != nil {
		return plan{}, err
	}
	stored, err := s.Own.sets.List()
	if err != nil {
		return plan{}, err
	}
	o, err := c.observe(ctx, s, d, stored, watched, false)
	if err != nil {
		return plan{}, err
	}
	p, err := nextStep(ctx, o)
	if err != nil || !p.loose() {
		return p, err
	}
	stored, current, err := c.current(ctx, d)
	if err != nil {
		return plan{}, err
	}
	if o, err = c.observe(ctx, s, d, stored, current, true); err != nil {
		return plan{}, err
	}
	if p, err = nextStep(ctx, o); err != nil {
		return plan{}, err
	}
	restarts, first := o.givesUp(p)
	if crowded, err := c.Crowded(ctx, s, d.Namespace, d.template.Hash, restarts, first, o.pods, o.toCome()); err != nil || !crowded {
		return p, err
	}
	return nextStep(ctx, o)
}

// current lists the ReplicaSets and pods from the API server.
func (c *Controller) current(ctx context.Context, d *Deployment) (stored []*unstructured.Unstructured, all []*corev1.Pod, err error) {
	list, err := c.sets(d).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
	if err != nil {
		return nil, nil, fmt.Errorf("listing ReplicaSets: %w", err)
	}
	for i := range list.Items {
		stored = append(stored, &list.Items[i])
	}
	all, err = c.ListPods(ctx, d)
	return stored, all, err
}

func (c *Controller) observe(ctx context.Context, s *session, d *Deployment, stored []*unstructured.Unstructured, all []*corev1.Pod, rightNow bool) (observation, error) {
	o, err := newObservation(d, stored, all)
	if err != nil {
		return observation{}, err
	}
	o.limits, err = c.Limits(ctx, s, d.Namespace, rightNow)
	o.contests = s.Contests
	o.nodes, o.refusals, o.crowded, o.evictions, o.history = c.Nodes.List(), s.Refusals, s.Crowded, s.Own.evictions, s.Own.history
	o.seen = s.Seen
	o.defaults, o.now = c.Options.Defaults, c.Clock.Now()
	return o, err
}

// newObservation picks what belongs to the Deployment.
func newObservation(d *Deployment, stored []*unstructured.Unstructured, all []*corev1.Pod) (observation, error) {
	o := observation{deployment: d}
	owners := sets.New(d.UID)
	for _, u := range stored {
		if !metav1.IsControlledBy(u, d) && !workload.Adopts(d, u) {
			continue
		}
		rs, err := decodeReplicaSet(u)
		if err != nil {
			return observation{}, err
		}
		owners.Insert(rs.UID)
		o.sets = append(o.sets, rs)
	}
	for _, pod := range all {
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owners.Has(owner.UID) {
			o.pods = append(o.pods, pod)
		}
	}
	return o, nil
}
