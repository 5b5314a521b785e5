package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/invariant"
)

// Names of the invariants that are checked here.
const (
	converges = "convergence"
	restores  = "the user's own partition, paused and strategy"
)

// heal takes away whatever stands in the way but what people have said of the workloads.
func (p *player) heal(ctx context.Context) error {
	if err := p.retried(ctx, func() error {
		return p.admin.CoreV1().ResourceQuotas(p.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}); err != nil {
		return fmt.Errorf("removing the quota: %w", err)
	}
	var limits map[string]any
	if p.Limits != nil {
		limits = Limits{Default: p.Limits.Default}.says()
	}
	if err := p.limit(ctx, limits); err != nil {
		return fmt.Errorf("raising the limits: %w", err)
	}
	if err := p.collect(ctx); err != nil {
		return err
	}
	if err := p.eachNode(ctx, "", func(node corev1.Node) error { return p.change(ctx, node, "heal") }); err != nil {
		return fmt.Errorf("healing the nodes: %w", err)
	}
	for _, w := range p.Workloads {
		if w.Room != "" {
			if err := p.addNode(ctx, w, ownNodes, enough); err != nil {
				return fmt.Errorf("adding a node: %w", err)
			}
		}
		if err := p.budget(ctx, w, nil); err != nil {
			return fmt.Errorf("removing the budget: %w", err)
		}
		pods, err := p.pods(ctx, w)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if err := p.retried(ctx, func() error { return p.kubelet(ctx, pod.Name, "accepted") }); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("healing the kubelet of %s: %w", pod.Name, err)
			}
		}
	}
	return nil
}

// collect deletes what belongs to workloads that are gone. The garbage collector misses that if one
// of the same name came while its watch was cut: it sees that as a change of the one before.
func (p *player) collect(ctx context.Context) error {
	there, owned := map[types.UID]bool{}, map[schema.GroupVersionResource][]unstructured.Unstructured{}
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	// What is owned is listed before those that own it, which may be new.
	for _, resource := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "pods"}, apps.WithResource("controllerrevisions"), apps.WithResource("replicasets"),
		apps.WithResource("statefulsets"), apps.WithResource("daemonsets"), apps.WithResource("deployments"),
	} {
		list, err := p.objects.Resource(resource).Namespace(p.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("looking for what was left behind: %w", err)
		}
		owned[resource] = list.Items
		for _, o := range list.Items {
			there[o.GetUID()] = true
		}
	}
	for resource, objects := range owned {
		for _, o := range objects {
			if owner := metav1.GetControllerOf(&o); owner != nil && !there[owner.UID] {
				_ = p.objects.Resource(resource).Namespace(p.namespace).Delete(ctx, o.GetName(), metav1.DeleteOptions{}) // or it has gone
			}
		}
	}
	return nil
}

// converge waits until all rollouts are complete, or wait for people for a reason that the table
// allows; then people do what is waited for, and all must be complete.
func (p *player) converge(ctx context.Context, limit time.Duration) ([]invariant.Violation, error) {
	if err := p.heal(ctx); err != nil {
		return nil, err
	}
	states, err := p.settle(ctx, limit, func(s state) bool { return s.done() || s.waits }, p.poke)
	if err != nil {
		return nil, err
	}
	if broken := p.broken(states, func(s state) bool { return s.done() || s.waits }); broken != nil {
		return broken, nil
	}
	for i, s := range states {
		if s.done() {
			continue
		}
		p.tally["help with "+s.reason]++
		if err := p.help(ctx, i); err != nil {
			return nil, fmt.Errorf("helping %s: %w", p.Workloads[i].ref(), err)
		}
	}
	states, err = p.settle(ctx, limit, state.done, func(ctx context.Context, i int, s state) {
		p.poke(ctx, i, s)
		p.replace(ctx, i, s)
	})
	return p.broken(states, state.done), err
}

// settle looks at the workloads until all are good, and returns how they are then, or at last. Now
// and then it nudges each.
func (p *player) settle(ctx context.Context, limit time.Duration, good func(state) bool, nudge func(context.Context, int, state)) (states []state, err error) {
	nudged := time.Now()
	states = make([]state, len(p.Workloads))
	p.await(ctx, limit, func() bool {
		for i := range states {
			if states[i], err = p.look(ctx, i); err != nil {
				return false
			}
		}
		if time.Since(nudged) > 2*time.Second {
			nudged = time.Now()
			for i, s := range states {
				nudge(ctx, i, s)
			}
		}
		return !slices.ContainsFunc(states, func(s state) bool { return !good(s) })
	})
	return states, err
}

// broken are the promises that are broken where a state is not good.
func (p *player) broken(states []state, good func(state) bool) (violations []invariant.Violation) {
	for i, s := range states {
		if good(s) {
			continue
		}
		if s.unfinished != "" {
			violations = append(violations, p.violation(p.Workloads[i], converges, "%s; the condition says %s", s.unfinished, s.says))
		}
		if s.wrong != "" {
			violations = append(violations, p.violation(p.Workloads[i], restores, "%s", s.wrong))
		}
	}
	return violations
}

// poke has the built-in controllers look again at a workload that lacks pods. After a quota has
// refused these, they take up to a quarter of an hour to do so by themselves. The DaemonSet
// controller forgets to look at a surge again after minReadySeconds, if it is about to retry what
// has failed: the queue keeps the earlier of two times. And it does not see that the revision of a
// set of the same name, which was there before, has been collected.
func (p *player) poke(ctx context.Context, i int, s state) {
	if s.lacks || s.asleep {
		_ = p.patch(ctx, i, annotate("example.com/poked", time.Now().Format(time.RFC3339Nano))) // or the next time
	}
}

// state is how far a workload is.
type state struct {
	unfinished string // what of its rollout is not done; empty if nothing
	wrong      string // what is not as the user wants it; empty if nothing
	waits      bool   // for people, for a reason that the table allows
	lacks      bool   // pods
	asleep     bool   // a DaemonSet has more than one pod on some node, or no revision
	onDelete   bool   // people delete pods themselves
	reason     string // of the condition
	says       string // the condition
}

func (s state) done() bool { return s.unfinished == "" && s.wrong == "" }

// look says how far a workload is. One that is gone is done.
func (p *player) look(ctx context.Context, i int) (state, error) {
	w := p.Workloads[i]
	v, err := p.view(ctx, i)
	if apierrors.IsNotFound(err) {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	pods, err := p.pods(ctx, w)
	if err != nil {
		return state{}, err
	}
	s := state{reason: v.reason, says: fmt.Sprintf("%s, %s: %s", v.complete, v.reason, v.message)}
	held := isHeld(v)
	if wish := p.wishes[i]; !held && !v.onDelete && (!slices.Contains(wish.partitions, v.partition) || !slices.Contains(wish.paused, v.paused)) {
		s.wrong = fmt.Sprintf("partition %d, paused %t, and the user wants one of %d, %t", v.partition, v.paused, wish.partitions, wish.paused)
	}
	if wish := p.wishes[i]; !held && v.strategy != "" && !slices.Contains(wish.strategies, v.strategy) {
		s.wrong = fmt.Sprintf("strategy %s, and the user wants one of %s", v.strategy, wish.strategies)
	}
	if v.GetLabels()[enabledLabel] != "true" {
		if held && !v.replicaset && !p.wishes[i].left { // kubectl rollout undo copies it to a Deployment, where it means nothing
			s.wrong = "it is held, and not opted in"
		}
		return s, nil
	}
	v.resized, v.classed = p.wishes[i].resized, p.wishes[i].classed
	if v.classed {
		v.nodes = map[string]map[string]string{}
		if err := p.eachNode(ctx, poolOf(p.namespace, w)+".", func(node corev1.Node) error {
			v.nodes[node.Name] = node.Labels
			return nil
		}); err != nil {
			return state{}, err
		}
	}
	s.onDelete = v.onDelete
	marked := held && v.onDelete && w.Kind == "StatefulSet" // a mark is to go by itself
	s.waits = !marked && (waits(v) || v.refused() || len(v.blocking(w, pods)) > 0)
	s.lacks, s.asleep = len(pods) < v.replicas, v.revisions && (len(pods) > v.replicas || v.revision == "")
	var sets []appsv1.ReplicaSet
	if v.replicaset {
		list, err := p.admin.AppsV1().ReplicaSets(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + w.Name})
		if err != nil {
			return state{}, fmt.Errorf("listing ReplicaSets: %w", err)
		}
		for _, rs := range list.Items {
			if metav1.IsControlledBy(&rs, v) {
				sets = append(sets, rs)
				s.lacks = s.lacks || rs.Status.Replicas < *rs.Spec.Replicas // such as one more for a surge
			}
		}
	}
	switch {
	case held:
		s.unfinished = "it is held"
	case !v.observed:
		s.unfinished = "the built-in controller has not seen the newest generation"
	default:
		s.unfinished = kinds[w.Kind].unfinished(v, pods, sets)
	}
	switch {
	case s.unfinished != "":
	case v.complete != corev1.ConditionTrue && !slices.ContainsFunc(pods, v.excused):
		s.unfinished = "the condition is not True"
	case !v.counted:
		s.unfinished = "the built-in controller does not count all pods"
	}
	return s, nil
}

// waits reports whether a workload waits for people, for a reason that the table allows.
func waits(v view) bool {
	switch v.complete {
	case "":
		return false
	case corev1.ConditionTrue: // it stays so when pods come later, which no node can hold
		return infeasible(v.template.Spec)
	}
	action, _ := policy.ActionInForce(v.GetAnnotations())
	switch v.reason {
	case "WaitingForDelete":
		return v.onDelete
	case "Paused":
		return v.paused
	case "Pending":
		return v.paused && !isHeld(v)
	case "ResizeFailed", "Reverted":
		inForce := policy.AnnotationsInForce(v.GetAnnotations())
		return inForce[api.CanaryAnnotation]+inForce[api.OnFailureAnnotation] != ""
	case "DeletedAfterResize":
		return action == "LiveResize"
	case "Infeasible", "Invalid":
		return v.classed || action == "LiveResize" || infeasible(v.template.Spec) || v.onDelete
	default:
		return infeasible(v.template.Spec)
	}
}

// infeasible reports whether no node could hold a pod.
func infeasible(template corev1.PodSpec) bool {
	most := resource.MustParse("7")
	return slices.ContainsFunc(slices.Concat(template.InitContainers, template.Containers), func(c corev1.Container) bool {
		return c.Resources.Requests.Cpu().Cmp(most) > 0
	})
}

// blocking are the pods of an OrderedReady set for which the StatefulSet controller makes nothing of it,
// opted in or not, until people delete them: no node can hold them, and they have another template than
// the set, or it was edited while no controller was there, so that no resize helps. See "Forced rollback" in the documentation of StatefulSets. And those
// of any kind that a resize has left with a limit of a LimitRange, below what is requested now: nobody can
// tell it from one that every new pod gets, too.
func (v view) blocking(w Workload, pods []corev1.Pod) (blocking []corev1.Pod) {
	for _, pod := range pods {
		if v.reason == "Invalid" && limited(pod, v.template.Spec) {
			blocking = append(blocking, pod)
			continue
		}
		if w.Kind == "StatefulSet" && !w.Parallel && pod.Spec.NodeName == "" && infeasible(pod.Spec) &&
			(pod.Spec.Containers[0].Image != v.template.Spec.Containers[0].Image || !isHeld(v) && v.GetAnnotations()[api.NotHeldAnnotation] != "") {
			blocking = append(blocking, pod)
		}
	}
	return blocking
}

// limited reports whether a pod has a limit that the template does not say, and the template requests more.
func limited(pod corev1.Pod, template corev1.PodSpec) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(has corev1.Container) bool {
		n := slices.IndexFunc(template.Containers, func(c corev1.Container) bool { return c.Name == has.Name })
		for name, limit := range has.Resources.Limits {
			if n < 0 {
				continue
			}
			_, said := template.Containers[n].Resources.Limits[name]
			if request := template.Containers[n].Resources.Requests[name]; !said && request.Cmp(limit) > 0 {
				return true
			}
		}
		return false
	})
}

// refused reports whether a held Deployment waits for a pod of its older template that admission refuses,
// such as by a LimitRange: the others wait for it, unless their new size gives room. The condition says
// why, and people let go of the hold.
func (v view) refused() bool {
	return v.replicaset && isHeld(v) && strings.Contains(v.message, "waiting for the pod to be created: ")
}

// help is what people do about a rollout that waits for them: a size that fits, no action, no pause,
// and no pod that blocks the others.
func (p *player) help(ctx context.Context, i int) error {
	w := p.Workloads[i]
	v, err := p.view(ctx, i)
	if err != nil {
		return err
	}
	if v.refused() {
		return p.patch(ctx, i, map[string]any{"metadata": map[string]any{"labels": map[string]any{enabledLabel: nil}}})
	}
	// A canary that cannot be well keeps the others waiting, and what has failed stops until it is tried again, by its name.
	retry := func(word string) string {
		if r, _ := rollout.ReadRecord(v.GetAnnotations()); r.Stopped() {
			return r.Name()
		}
		return word
	}
	patch := annotated(map[string]any{
		actionAnnotation: nil, api.CanaryAnnotation: nil, api.CanaryDurationAnnotation: nil, api.OnFailureAnnotation: nil, api.RetryAnnotation: retry("help"),
	})
	spec := map[string]any{}
	if v.paused {
		spec["paused"] = false
	}
	if infeasible(v.template.Spec) {
		spec["template"] = map[string]any{"spec": app(map[string]any{"resources": w.Size.resources()})}
	}
	patch["spec"] = spec
	if err := p.patch(ctx, i, patch); err != nil {
		return err
	}
	pods, err := p.pods(ctx, w)
	if err != nil {
		return err
	}
	for _, pod := range v.blocking(w, pods) {
		_ = p.people.CoreV1().Pods(p.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}) // or it has gone
	}
	return p.patch(ctx, i, annotate(api.RetryAnnotation, retry("finally")+";LiveResizePreferred"))
}

// replace deletes the pods of an OnDelete set that wait for that. The reason names what the first pod
// waits for, which may be something else.
func (p *player) replace(ctx context.Context, i int, s state) {
	v, err := p.view(ctx, i)
	if err != nil || !s.onDelete || !strings.Contains(v.message, "restarts when it is deleted") {
		return
	}
	pods, err := p.pods(ctx, p.Workloads[i])
	if err != nil {
		return
	}
	for _, pod := range pods {
		// After an edit back, one may be of the newest revision, and have a size of the edit between.
		if pod.Labels[appsv1.StatefulSetRevisionLabel] != v.revision || strings.Contains(v.message, pod.Name+": restarts when it is deleted") {
			_ = p.people.CoreV1().Pods(p.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}) // or the next time
		}
	}
}
