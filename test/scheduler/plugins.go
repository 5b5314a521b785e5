// Package scheduler judges pkg/capacity by kube-scheduler's own plugins, in worlds made by chance.
package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
	"k8s.io/utils/ptr"
)

// World is all in a cluster that the plugins look at. A namespace or CSINode that is missing would
// mean room to them.
type World struct {
	Nodes             []*corev1.Node
	Pods              []*corev1.Pod
	Namespaces        []*corev1.Namespace
	Volumes           []*corev1.PersistentVolume
	Claims            []*corev1.PersistentVolumeClaim
	StorageClasses    []*storagev1.StorageClass
	CSINodes          []*storagev1.CSINode
	CSIDrivers        []*storagev1.CSIDriver
	StorageCapacities []*storagev1.CSIStorageCapacity
}

// Plugins are those of the default profile that say before a pod is placed whether it can be:
// PreFilter and Filter. They are for one goroutine.
type Plugins struct {
	ctx       context.Context
	informers informers.SharedInformerFactory
	framework framework.Framework
	lister    *lister
}

// lister has the snapshot that the plugins look at now. They keep the lister, so one framework does
// for all worlds.
type lister struct{ fwk.SharedLister }

var initMetrics = sync.OnceFunc(metrics.InitMetrics) // which the framework writes; nobody reads them

// NewPlugins returns the plugins, which look at nothing yet. They run until ctx is done.
func NewPlugins(ctx context.Context) (*Plugins, error) {
	initMetrics()
	p := &Plugins{
		ctx:       klog.NewContext(ctx, logr.Discard()),
		informers: informers.NewSharedInformerFactory(nil, 0), // never started: show fills them
		lister:    &lister{schedulercache.NewEmptySnapshot()},
	}
	configuration, err := latest.Default()
	if err != nil {
		return nil, fmt.Errorf("reading the default profile: %w", err)
	}
	profile := &configuration.Profiles[0]
	all := &profile.Plugins.MultiPoint.Enabled
	*all = slices.DeleteFunc(*all, func(plugin config.Plugin) bool {
		switch plugin.Name {
		case names.DefaultPreemption: // PostFilter deletes victims; frees says what it would find
		case names.ImageLocality, names.NodeResourcesBalancedAllocation: // score only
		case names.GangScheduling:
		default:
			return false
		}
		return true
	})
	// NodeResourcesFit asks whether an extended resource is a device of dynamic resource allocation: none is.
	slices, err := resourceslicetracker.StartTracker(p.ctx, resourceslicetracker.Options{SliceInformer: p.informers.Resource().V1().ResourceSlices()})
	if err != nil {
		return nil, fmt.Errorf("tracking ResourceSlices: %w", err)
	}
	devices := dynamicresources.NewDRAManager(p.ctx, assumecache.NewAssumeCache(logr.Discard(), nil, "ResourceClaim", "", nil), slices, p.informers)
	p.framework, err = frameworkruntime.NewFramework(p.ctx, plugins.NewInTreeRegistry(), profile,
		frameworkruntime.WithInformerFactory(p.informers), frameworkruntime.WithSnapshotSharedLister(p.lister),
		frameworkruntime.WithSharedDRAManager(devices),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(p.informers.Storage().V1().CSINodes().Lister())),
	)
	if err != nil {
		return nil, fmt.Errorf("building the scheduler's framework: %w", err)
	}
	return p, nil
}

// Replacement is a pod that leaves, and the one that comes for it.
type Replacement struct{ Old, New *corev1.Pod }

// Verdict is what the plugins say of a pod that comes.
type Verdict struct {
	// Always: it fits wherever the pods before it go, and whenever those that wait come. Never: it does not, wherever they
	// go, when all have come that can. Neither: it depends.
	Always, Never bool
	// Preempts: pods of lower priority may have to go for it.
	Preempts bool
	// Why has who refused the pod, by node, or by "" where no node was looked at; where it depends, once.
	Why map[string]Refusal
}

// Refusal is what one plugin said.
type Refusal struct{ Plugin, Reason string }

// NotReady refuses nodes as a plugin does. There is none: the scheduler goes by taints, which a pod may tolerate.
const NotReady = "not Ready"

// situation is where the pods of a world are.
type situation struct {
	nodes           []*corev1.Node
	placed, waiting []*corev1.Pod
	// late: one that waits could have come. unclear: one could preempt others, and nobody knows whom.
	late, unclear bool
}

// with has a pod be on a node.
func (s situation) with(pod *corev1.Pod, node fwk.NodeInfo) situation {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node.Node().Name
	s.placed = append(slices.Clone(s.placed), pod)
	return s
}

// without has a pod be gone.
func (s situation) without(pod *corev1.Pod) situation {
	s.placed = slices.DeleteFunc(slices.Clone(s.placed), func(other *corev1.Pod) bool { return other.UID == pod.UID })
	return s
}

// Judge says whether pods fit, one after the other, when those that they come for have left. Those of lower priority
// make room, and those that wait for a node may be faster, the highest priority first.
// There are no verdicts after the first pod that may not fit, or has to preempt others.
func (p *Plugins) Judge(w World, all []Replacement) ([]Verdict, error) {
	core, storage := p.informers.Core().V1(), p.informers.Storage().V1()
	if err := errors.Join(
		show(core.Nodes().Informer(), w.Nodes), show(core.Namespaces().Informer(), w.Namespaces),
		show(core.PersistentVolumes().Informer(), w.Volumes), show(core.PersistentVolumeClaims().Informer(), w.Claims),
		show(storage.StorageClasses().Informer(), w.StorageClasses), show(storage.CSINodes().Informer(), w.CSINodes),
		show(storage.CSIDrivers().Informer(), w.CSIDrivers), show(storage.CSIStorageCapacities().Informer(), w.StorageCapacities),
	); err != nil {
		return nil, err
	}
	verdicts := make([]Verdict, len(all))
	for i := range verdicts {
		verdicts[i] = Verdict{Always: true, Never: true}
	}
	if err := p.replace(begin(w), all, verdicts); err != nil {
		return nil, err
	}
	doubtful := slices.IndexFunc(verdicts, func(v Verdict) bool { return !v.Always || v.Preempts })
	if doubtful >= 0 {
		verdicts = verdicts[:doubtful+1]
	}
	return verdicts, nil
}

// show has an informer hold these objects.
func show[T any](informer cache.SharedIndexInformer, objects []T) error {
	all := make([]any, len(objects))
	for i := range objects {
		all[i] = objects[i]
	}
	return informer.GetIndexer().Replace(all, "")
}

// begin sorts the pods as the scheduler's informer and its queue do (addAllEventHandlers in pkg/scheduler, and
// pkg/scheduler/framework/plugins/queuesort and schedulinggates of Kubernetes).
func begin(w World) situation {
	s := situation{nodes: w.Nodes}
	for _, pod := range w.Pods {
		switch {
		case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		case slices.ContainsFunc(w.Nodes, func(n *corev1.Node) bool { return n.Name == pod.Spec.NodeName }):
			s.placed = append(s.placed, pod)
		case pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0:
			s.waiting = append(s.waiting, pod)
		}
	}
	slices.SortStableFunc(s.waiting, func(a, b *corev1.Pod) int {
		return cmp.Compare(schedulinghelper.PodPriority(b), schedulinghelper.PodPriority(a))
	})
	return s
}

// replace makes the replacements, and adds what comes of each to its verdict.
func (p *Plugins) replace(now situation, all []Replacement, verdicts []Verdict) error {
	if len(all) == 0 {
		return nil
	}
	return p.settle(now.without(all[0].Old), 0, func(after situation) error {
		fits, err := p.judge(&verdicts[0], all[0].New, after)
		for _, node := range fits {
			err = cmp.Or(err, p.replace(after.with(all[0].New, node), all[1:], verdicts[1:]))
		}
		return err
	})
}

// settle calls then with each situation that may come of it when those that wait come, from one of them on, each to a
// node that it fits on, or later. The plugins look at that situation.
func (p *Plugins) settle(now situation, from int, then func(situation) error) error {
	p.lister.SharedLister = schedulercache.NewSnapshot(now.placed, now.nodes)
	if from == len(now.waiting) {
		return then(now)
	}
	pod := now.waiting[from]
	fits, cramped, _, err := p.filter(pod)
	if err != nil {
		return err
	}
	for _, node := range fits {
		after := now.with(pod, node)
		after.waiting = slices.Delete(slices.Clone(now.waiting), from, from+1)
		err = cmp.Or(err, p.settle(after, from, then))
	}
	now.late = now.late || len(fits) > 0
	now.unclear = now.unclear || len(fits) == 0 && slices.ContainsFunc(cramped, func(node fwk.NodeInfo) bool { return p.frees(pod, node) })
	return cmp.Or(err, p.settle(now, from+1, then))
}

// judge asks about a pod, adds what comes of it to its verdict, and returns the nodes that it fits on.
func (p *Plugins) judge(v *Verdict, pod *corev1.Pod, now situation) ([]fwk.NodeInfo, error) {
	fits, cramped, refusals, err := p.filter(pod)
	if err != nil {
		return nil, err
	}
	silent := func(node fwk.NodeInfo) bool {
		if !ready(node.Node()) {
			refusals[node.Node().Name] = Refusal{Plugin: NotReady}
		}
		return !ready(node.Node())
	}
	fits, cramped = slices.DeleteFunc(fits, silent), slices.DeleteFunc(cramped, silent)
	surely := len(fits) > 0
	possibly := surely
	switch {
	case pod.Spec.NodeName != "": // no scheduler sees it; but what the plugins say is right, too
		why := p.admit(pod)
		if possibly = why == ""; !possibly {
			fits, surely = nil, false
			refusals[pod.Spec.NodeName] = Refusal{"kubelet", why}
		}
	case !possibly && slices.ContainsFunc(cramped, func(node fwk.NodeInfo) bool { return p.frees(pod, node) }):
		surely, possibly, v.Preempts = true, true, true
	}
	v.Always = v.Always && surely && !now.unclear
	if !now.late {
		v.Never = v.Never && !possibly && !now.unclear
	}
	if !surely {
		v.Why = refusals
	}
	return fits, nil
}

// ready reports whether the node's kubelet says so.
func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// filter runs the plugins. It returns the nodes that the pod fits on, those where it could when others go,
// and what else refused it.
func (p *Plugins) filter(pod *corev1.Pod) (fits, cramped []fwk.NodeInfo, refusals map[string]Refusal, err error) {
	refusals = map[string]Refusal{}
	refuse := func(node string, status *fwk.Status) {
		refusals[node] = Refusal{cmp.Or(status.Plugin(), "PreFilter"), strings.Join(status.Reasons(), ", ")}
	}
	state := framework.NewCycleState()
	allowed, status, _ := p.framework.RunPreFilterPlugins(p.ctx, state, pod)
	if !status.IsSuccess() && !status.IsRejected() {
		return nil, nil, nil, fmt.Errorf("asking %s: %w", status.Plugin(), status.AsError())
	}
	if !status.IsSuccess() {
		refuse("", status)
		return nil, nil, refusals, nil
	}
	nodes, err := p.lister.NodeInfos().List()
	if err != nil {
		return nil, nil, nil, err
	}
	for _, node := range nodes {
		name := node.Node().Name
		if !allowed.AllNodes() && !allowed.NodeNames.Has(name) {
			continue
		}
		status := p.framework.RunFilterPlugins(p.ctx, state, pod, node)
		switch {
		case status.IsSuccess():
			fits = append(fits, node)
			continue
		case !status.IsRejected():
			return nil, nil, nil, fmt.Errorf("asking %s about node %s: %w", status.Plugin(), name, status.AsError())
		case status.Code() == fwk.Unschedulable:
			cramped = append(cramped, node)
		}
		refuse(name, status)
	}
	return fits, cramped, refusals, nil
}

// frees reports whether the pod fits on a node when all pods of lower priority have gone: the first step of
// SelectVictimsOnNode in pkg/scheduler/framework/plugins/defaultpreemption of Kubernetes.
func (p *Plugins) frees(pod *corev1.Pod, node fwk.NodeInfo) bool {
	if ptr.Deref(pod.Spec.PreemptionPolicy, corev1.PreemptLowerPriority) == corev1.PreemptNever {
		return false
	}
	state := framework.NewCycleState()
	if _, status, _ := p.framework.RunPreFilterPlugins(p.ctx, state, pod); !status.IsSuccess() {
		return false
	}
	node = node.Snapshot()
	for _, victim := range slices.Clone(node.GetPods()) {
		if schedulinghelper.PodPriority(victim.GetPod()) >= schedulinghelper.PodPriority(pod) {
			continue
		}
		if node.RemovePod(logr.Discard(), victim.GetPod()) != nil || !p.framework.RunPreFilterExtensionRemovePod(p.ctx, state, pod, victim, node).IsSuccess() {
			return false
		}
	}
	return p.framework.RunFilterPlugins(p.ctx, state, pod, node).IsSuccess()
}

// admit returns why the kubelet of the node that the pod names refuses it; empty if it does not (predicateAdmitHandler in
// pkg/kubelet/lifecycle of Kubernetes).
func (p *Plugins) admit(pod *corev1.Pod) string {
	node, err := p.lister.NodeInfos().Get(pod.Spec.NodeName)
	if err != nil {
		return err.Error()
	}
	if !ready(node.Node()) {
		return NotReady
	}
	if taint, untolerated := schedulinghelper.FindMatchingUntoleratedTaint(logr.Discard(), node.Node().Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoExecute
	}, false); untolerated {
		return "taint " + taint.ToString()
	}
	info, ok := node.(*framework.NodeInfo)
	if !ok {
		return fmt.Sprintf("a node is a %T", node)
	}
	switch why := kubescheduler.AdmissionCheck(pod, info, false); {
	case len(why) == 0:
		return ""
	case why[0].InsufficientResource != nil:
		return why[0].InsufficientResource.Reason
	default:
		return why[0].Reason
	}
}
