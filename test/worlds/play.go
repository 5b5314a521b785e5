package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/invariant"
)

// user is the prefix of the names of people.
const user = "user:"

// patience bounds every wait. It is never the expected duration.
const patience = 2 * time.Minute

// player lets happen what happens in a world.
type player struct {
	World
	cp        *controlplane.ControlPlane
	namespace string
	admin     kubernetes.Interface
	people    kubernetes.Interface // the same as users of the world
	objects   dynamic.Interface    // as they, too
	wishes    []wish               // for each workload
	cleanUp   []func(context.Context) error
	added     int // nodes
	gaps      *spans
	tally     tally
}

// wish is what the user wants of the fields that hold a workload. There is more than one where
// the user's write cannot be told from one that leaves the held value as it is, and where no policy
// was there to note it.
type wish struct {
	partitions []int32
	paused     []bool
	strategies []string           // of a DaemonSet
	resized    map[types.UID]bool // pods that somebody else has resized
	classed    bool               // it has had sizes by class of node
	left       bool               // it was opted out while no policy was there to let go of it
}

// newPlayer prepares a namespace for a world. Its name is used once.
func newPlayer(cp *controlplane.ControlPlane, w World, namespace string) (*player, error) {
	p := &player{World: w, cp: cp, namespace: namespace, wishes: make([]wish, len(w.Workloads)), tally: tally{}}
	for i := range p.wishes {
		p.wishes[i].resized = map[types.UID]bool{}
	}
	var err error
	if p.admin, err = kubernetes.NewForConfig(cp.RESTConfig()); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	config := cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	config.Impersonate = rest.ImpersonationConfig{UserName: user + namespace, Groups: []string{"system:masters"}}
	if p.people, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if p.objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return p, nil
}

// create has the world be there, and waits until its pods are Ready, if they come to be that.
func (p *player) create(ctx context.Context) error {
	if err := p.retried(ctx, func() error {
		_, err := p.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}, metav1.CreateOptions{})
		return err
	}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the namespace: %w", err)
	}
	if p.Quota != "" {
		if err := p.quota(ctx, map[string]any{"requests.cpu": p.Quota}); err != nil {
			return err
		}
	}
	if p.Limits != nil {
		if err := p.limit(ctx, p.Limits.says()); err != nil {
			return err
		}
	}
	if p.Webhook != "" {
		if err := p.meddle(ctx); err != nil {
			return err
		}
	}
	for i, w := range p.Workloads {
		if w.Budget != "" {
			if err := p.budget(ctx, w, map[string]any{"maxUnavailable": number(w.Budget)}); err != nil {
				return err
			}
		}
		nodes, cpu := 0, enough
		switch {
		case w.Kind == "DaemonSet":
			nodes = int(w.Replicas)
		case w.Room != "":
			nodes, cpu = ownNodes, w.Room
		}
		for n := range nodes {
			if err := p.addNode(ctx, w, n, cpu); err != nil {
				return err
			}
		}
		if err := p.apply(ctx, i); err != nil {
			return fmt.Errorf("creating %s: %w", w.ref(), err)
		}
	}
	p.await(ctx, 10*time.Second, func() bool {
		for i := range p.Workloads {
			if v, err := p.view(ctx, i); err == nil && (!v.observed || !v.counted) {
				return false
			}
		}
		return true
	})
	return nil
}

// play lets all edits happen, one after the other.
func (p *player) play(ctx context.Context) error {
	for _, edit := range p.Edits {
		sleep(ctx, time.Duration(edit.Pause)*time.Millisecond)
		err := p.edit(ctx, edit)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.tally["edits: "+edit.Do]++
		switch {
		case err == nil:
		case refused(err):
			p.tally["edits: "+edit.Do+", refused"]++
		default:
			return fmt.Errorf("%s of %s: %w", edit.Do, p.Workloads[edit.Workload].ref(), err)
		}
	}
	return nil
}

// refused reports whether an edit is not possible, which is no fault: people try many things.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || errors.Is(err, errKubectl)
}

// errAccepted: the API server takes what it must refuse.
var errAccepted = errors.New("a malformed annotation was accepted")

// errKubectl: kubectl refuses to do something.
var errKubectl = errors.New("kubectl refuses")

func (p *player) edit(ctx context.Context, e Edit) error {
	w := p.Workloads[e.Workload]
	switch e.Do {
	case doPatch:
		return p.patch(ctx, e.Workload, e.Patch)
	case doBad:
		began := time.Now()
		if err := p.patch(ctx, e.Workload, e.Patch); err != nil {
			return err
		}
		if p.gaps.since(began) {
			return p.patch(ctx, e.Workload, annotate(api.NodeResourcesAnnotation, nil))
		}
		return errAccepted
	case doApply:
		return p.apply(ctx, e.Workload)
	case doUndo:
		if _, err := p.cp.Kubectl(ctx, "--as", user+p.namespace, "--as-group", "system:masters", "--namespace", p.namespace, "rollout", "undo", w.ref()); err != nil {
			return fmt.Errorf("%w: %w", errKubectl, err)
		}
		return nil
	case doDelete:
		return p.renew(ctx, e.Workload, metav1.DeletePropagationBackground)
	case doOrphan:
		return p.renew(ctx, e.Workload, metav1.DeletePropagationOrphan)
	case doKill:
		return p.eachPod(ctx, e, func(pod corev1.Pod) error {
			return p.people.CoreV1().Pods(p.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
		})
	case doResize:
		data, err := json.Marshal(map[string]any{"spec": e.Patch})
		if err != nil {
			return fmt.Errorf("encoding a patch: %w", err)
		}
		return p.eachPod(ctx, e, func(pod corev1.Pod) error {
			_, err := p.people.CoreV1().Pods(p.namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{FieldManager: "autoscaler"}, "resize")
			p.wishes[e.Workload].resized[pod.UID] = true
			return err
		})
	case doKubelet:
		return p.eachPod(ctx, e, func(pod corev1.Pod) error { return p.kubelet(ctx, pod.Name, e.Mode) })
	case doOOM:
		return p.eachPod(ctx, e, func(pod corev1.Pod) error { return p.oomKill(ctx, pod) })
	case doNode:
		return p.node(ctx, e)
	case doQuota:
		return p.quota(ctx, e.Patch)
	case doLimit:
		return p.limit(ctx, e.Patch)
	case doBudget:
		return p.budget(ctx, w, e.Patch)
	case doHalf:
		p.await(ctx, 5*time.Second, func() bool {
			v, err := p.view(ctx, e.Workload)
			if err != nil {
				return true
			}
			pods, err := p.pods(ctx, w)
			return err != nil || slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return differs(pod, v) == "" })
		})
		return nil
	case doCrowd:
		return p.crowd(ctx, w, e.Patch)
	case doSettle:
		p.await(ctx, 4*time.Second, func() bool {
			v, err := p.view(ctx, e.Workload)
			return err != nil || v.complete == corev1.ConditionTrue && v.observed && !isHeld(v)
		})
		return nil
	}
	return fmt.Errorf("nobody knows how to %q", e.Do)
}

// client of the workloads of that kind, as a user.
func (p *player) client(kind string) dynamic.ResourceInterface {
	return p.objects.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: kinds[kind].resource}).Namespace(p.namespace)
}

// view reads a workload.
func (p *player) view(ctx context.Context, i int) (view, error) {
	w := p.Workloads[i]
	object, err := p.client(w.Kind).Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return view{}, fmt.Errorf("getting %s: %w", w.ref(), err)
	}
	v, err := kinds[w.Kind].view(object.Object)
	if err != nil || !v.revisions {
		return v, err
	}
	list, err := p.admin.AppsV1().ControllerRevisions(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + w.Name})
	if err != nil {
		return view{}, fmt.Errorf("listing revisions: %w", err)
	}
	var newest int64
	for _, r := range list.Items {
		if metav1.IsControlledBy(&r, v) && r.Revision > newest {
			newest, v.revision = r.Revision, r.Labels[appsv1.ControllerRevisionHashLabelKey]
		}
	}
	return v, nil
}

// patch is a user's. What it says of partition and paused is what the user wants.
func (p *player) patch(ctx context.Context, i int, patch map[string]any) error {
	w := p.Workloads[i]
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	return p.write(ctx, i, patch, func() (*unstructured.Unstructured, error) {
		return p.client(w.Kind).Patch(ctx, w.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{FieldManager: "kubectl-edit"})
	})
}

// apply applies the manifest, as a GitOps tool does.
func (p *player) apply(ctx context.Context, i int) error {
	w := p.Workloads[i]
	manifest := &unstructured.Unstructured{Object: w.manifest(p.namespace)}
	data, err := json.Marshal(manifest.Object)
	if err != nil {
		return fmt.Errorf("encoding a manifest: %w", err)
	}
	force := true
	return p.write(ctx, i, manifest.Object, func() (*unstructured.Unstructured, error) {
		return p.client(w.Kind).Patch(ctx, w.Name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "gitops", Force: &force})
	})
}

// write makes a write to a workload, and notes what it says of the fields that hold it.
func (p *player) write(ctx context.Context, i int, says map[string]any, write func() (*unstructured.Unstructured, error)) error {
	var before view
	began := time.Now()
	errBefore := p.retried(ctx, func() (err error) { before, err = p.view(ctx, i); return err })
	var written *unstructured.Unstructured
	if err := p.retried(ctx, func() (err error) { written, err = write(); return err }); err != nil {
		return err
	}
	after, err := kinds[p.Workloads[i].Kind].view(written.Object)
	if err != nil {
		return err
	}
	w := &p.wishes[i]
	w.classed = w.classed || after.GetAnnotations()[api.NodeResourcesAnnotation] != ""
	if errBefore != nil { // it is new
		w.partitions, w.paused = []int32{0}, []bool{false}
	}
	held, unguarded := errBefore == nil && isHeld(before), p.gaps.since(began)
	w.left = w.left || unguarded && isHeld(after) && after.GetLabels()[enabledLabel] != "true"
	if partition, said := partitionOf(says); said {
		if lowered := held && isHeld(after) && after.partition != everything; !lowered && !unguarded {
			w.partitions = nil
		}
		w.partitions = append(w.partitions, partition)
	}
	if strategy, said, clear := strategyOf(says); said {
		if (clear || !held) && !unguarded {
			w.strategies = nil
		}
		w.strategies = append(w.strategies, strategy)
	}
	if paused, said, _ := unstructured.NestedBool(says, "spec", "paused"); said {
		if (!paused || !held) && !unguarded {
			w.paused = nil
		}
		w.paused = append(w.paused, paused)
	}
	return nil
}

// everything is the partition of a held StatefulSet.
const everything = 1<<31 - 1

func isHeld(o metav1.Object) bool {
	_, held := o.GetAnnotations()[api.HoldAnnotation]
	return held
}

// strategyOf is the type of strategy that a write says; clear is whether it can be told from one that
// leaves a held DaemonSet as it is.
func strategyOf(says map[string]any) (strategy string, said, clear bool) {
	all, _, _ := unstructured.NestedMap(plain(says), "spec", "updateStrategy")
	strategy, said = all["type"].(string)
	rolling, removed := all["rollingUpdate"]
	return strategy, said, strategy != "OnDelete" || removed && rolling == nil
}

// partitionOf is the partition that a write says. A set whose strategy is OnDelete has none.
func partitionOf(says map[string]any) (partition int32, said bool) {
	strategy, said, _ := unstructured.NestedMap(plain(says), "spec", "updateStrategy")
	if !said {
		return 0, false
	}
	if strategy["type"] == "OnDelete" {
		return 0, true
	}
	n, said, _ := unstructured.NestedInt64(strategy, "rollingUpdate", "partition")
	return int32(n), said
}

// plain is an object as it comes out of JSON.
func plain(object map[string]any) map[string]any {
	var u unstructured.Unstructured
	data, err := json.Marshal(merged(map[string]any{"kind": "any"}, object))
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		panic(err) // it is made of what JSON knows
	}
	return u.Object
}

// renew deletes a workload, and applies its manifest when it is gone.
func (p *player) renew(ctx context.Context, i int, propagation metav1.DeletionPropagation) error {
	w := p.Workloads[i]
	if err := p.retried(ctx, func() error {
		return p.client(w.Kind).Delete(ctx, w.Name, metav1.DeleteOptions{PropagationPolicy: &propagation})
	}); err != nil {
		return err
	}
	if !p.await(ctx, patience, func() bool { _, err := p.view(ctx, i); return apierrors.IsNotFound(err) }) {
		return fmt.Errorf("%s is still there", w.ref())
	}
	// The DaemonSet controller, if it has just deleted a pod of the old set, waits for five minutes to see that before it
	// does anything for the new one: it forgets that only if it finds no set in between.
	if w.Kind == "DaemonSet" && propagation == metav1.DeletePropagationBackground {
		if !p.await(ctx, patience, func() bool { pods, err := p.pods(ctx, w); return err == nil && len(pods) == 0 }) {
			return fmt.Errorf("the pods of %s are still there", w.ref())
		}
	}
	return p.apply(ctx, i)
}

// pods of a workload, by their names.
func (p *player) pods(ctx context.Context, w Workload) ([]corev1.Pod, error) {
	var list *corev1.PodList
	err := p.retried(ctx, func() (err error) {
		list, err = p.admin.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + w.Name})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// eachPod does something with each pod that an edit means. Those that are gone meanwhile are left out.
func (p *player) eachPod(ctx context.Context, e Edit, do func(corev1.Pod) error) error {
	pods, err := p.pods(ctx, p.Workloads[e.Workload])
	if err != nil || len(pods) == 0 {
		return err
	}
	done := map[int]bool{}
	for _, n := range e.Pods {
		n %= len(pods)
		if done[n] {
			continue
		}
		done[n] = true
		if err := p.retried(ctx, func() error { return do(pods[n]) }); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// Annotations of the simulated kubelet.
const (
	simResize = "sim.inplace-rollout.io/resize"
	simTime   = "sim.inplace-rollout.io/resize-time"
	simReady  = "sim.inplace-rollout.io/ready"

	simFails       = "sim.inplace-rollout.io/fails-after"
	simTermination = "sim.inplace-rollout.io/termination-time"
)

// kubelet has a pod's kubelet treat resizes otherwise. Accepted is what it does by itself.
func (p *player) kubelet(ctx context.Context, pod, mode string) error {
	annotations := map[string]any{simResize: nil, simTime: nil, simReady: nil, simFails: nil}
	switch mode {
	case "accepted":
	case "slow":
		annotations[simTime] = "1s"
	case "unready":
		annotations[simReady] = "false"
	case "fails":
		annotations[simFails] = "1500ms"
	case "until-resized":
		annotations[simReady] = "until-resized"
	default:
		annotations[simResize] = mode
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	_, err = p.admin.CoreV1().Pods(p.namespace).Patch(ctx, pod, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

// oomKill has the kernel kill the first container of a pod that has been resized, which then starts again.
func (p *player) oomKill(ctx context.Context, pod corev1.Pod) error {
	if pod.Generation < 2 || len(pod.Status.ContainerStatuses) == 0 || pod.DeletionTimestamp != nil {
		return nil
	}
	controlplane.OOMKill(&pod.Status.ContainerStatuses[0], pod.UID, time.Second)
	_, err := p.admin.CoreV1().Pods(p.namespace).UpdateStatus(ctx, &pod, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) { // another time
		return nil
	}
	return err
}

// adminApply sets an object that is none of the workloads.
func (p *player) adminApply(ctx context.Context, version, kind, resource, name string, spec map[string]any) error {
	group, err := schema.ParseGroupVersion(version)
	if err != nil {
		return fmt.Errorf("parsing %s: %w", version, err)
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name, "namespace": p.namespace}, "spec": spec,
	})
	if err != nil {
		return fmt.Errorf("encoding %s: %w", kind, err)
	}
	force := true
	return p.retried(ctx, func() error {
		_, err := p.objects.Resource(group.WithResource(resource)).Namespace(p.namespace).
			Patch(ctx, name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "people", Force: &force})
		return err
	})
}

func (p *player) quota(ctx context.Context, hard map[string]any) error {
	return p.adminApply(ctx, "v1", "ResourceQuota", "resourcequotas", "quota", map[string]any{"hard": hard})
}

// says is what the LimitRange says of containers.
func (l Limits) says() map[string]any {
	resources := l.Default.resources()
	limit := map[string]any{"default": resources["limits"], "defaultRequest": resources["requests"]}
	if l.MaxCPU != "" {
		limit["max"] = map[string]any{"cpu": l.MaxCPU}
	}
	return limit
}

// limit sets what the LimitRange says of containers, or removes it if that is nothing.
func (p *player) limit(ctx context.Context, says map[string]any) error {
	if len(says) > 0 {
		limit := merged(map[string]any{"type": "Container"}, says)
		return p.adminApply(ctx, "v1", "LimitRange", "limitranges", "limits", map[string]any{"limits": []any{limit}})
	}
	err := p.retried(ctx, func() error {
		return p.admin.CoreV1().LimitRanges(p.namespace).Delete(ctx, "limits", metav1.DeleteOptions{})
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// budget sets the PodDisruptionBudget of a workload, or removes it.
func (p *player) budget(ctx context.Context, w Workload, says map[string]any) error {
	if says["maxUnavailable"] == nil {
		err := p.retried(ctx, func() error {
			return p.admin.PolicyV1().PodDisruptionBudgets(p.namespace).Delete(ctx, w.Name, metav1.DeleteOptions{})
		})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	return p.adminApply(ctx, "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", w.Name,
		merged(says, map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": w.Name}}}))
}

// retried does something until the API server answers.
func (p *player) retried(ctx context.Context, do func() error) error {
	var err error
	p.await(ctx, patience, func() bool {
		err = do()
		var answered apierrors.APIStatus
		return err == nil || errors.As(err, &answered) && !apierrors.IsServerTimeout(err) && !apierrors.IsTooManyRequests(err) &&
			!apierrors.IsServiceUnavailable(err) && !apierrors.IsTimeout(err) && !apierrors.IsInternalError(err) && !apierrors.IsConflict(err)
	})
	return err
}

// await looks again and again until something is done, and reports whether that came in time.
func (p *player) await(ctx context.Context, limit time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(limit); ; sleep(ctx, 100*time.Millisecond) {
		if done() {
			return true
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return false
		}
	}
}

// sleep reports whether it was not woken by the end of the context.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// violation is one that the world itself has found.
func (p *player) violation(w Workload, invariantName, format string, args ...any) invariant.Violation {
	return invariant.Violation{Invariant: invariantName, Object: w.ref(), Message: fmt.Sprintf(format, args...), At: time.Now()}
}

// clear takes away what others could notice.
func (p *player) clear(ctx context.Context) error {
	background := metav1.DeletePropagationBackground
	options, all := metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{}
	errs := build.Each(p.cleanUp, func(f func(context.Context) error) error { return f(ctx) })
	for _, kind := range kinds {
		resource := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: kind.resource}
		errs = append(errs, p.objects.Resource(resource).Namespace(p.namespace).DeleteCollection(ctx, options, all))
	}
	errs = append(errs, p.admin.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: worldLabel + "=" + p.namespace}))
	return errors.Join(append(errs, p.admin.CoreV1().Pods(p.namespace).DeleteCollection(ctx, options, all))...)
}
