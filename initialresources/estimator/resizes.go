package estimator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// resizesPerSecond bounds how many pods are resized.
const resizesPerSecond = 5

// pass goes once through the pods that an estimate has sized.
type pass struct {
	*Estimator

	// left is what each node has left; those that are resized take of it. Given is by how much the
	// pods of each namespace have grown.
	left, given map[string]capacity.Load
	// workloads are the templates that have been read, by the UID of what owns pods.
	workloads map[types.UID]workload
}

func (e *Estimator) newPass() *pass {
	return &pass{Estimator: e, left: map[string]capacity.Load{}, given: map[string]capacity.Load{}, workloads: map[types.UID]workload{}}
}

// workload is what is known of what owns a pod.
type workload struct {
	templates []*corev1.PodTemplateSpec
	// unknown: it may state sizes that cannot be seen here.
	unknown bool
}

// resizeAll resizes the pods whose estimates have changed. What is not done when it is time to
// read the history again is done after that.
func (e *Estimator) resizeAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.options.Refresh)
	defer cancel()
	defer e.options.Watchdog.Done(resizing)
	all := typed[*pod](e.watched.pods.GetStore().List())
	p := e.newPass()
	taken := loads(all)
	for _, n := range e.watched.nodes.List() {
		p.left[n.Name] = taken[n.Name].Left(n)
	}
	maps.DeleteFunc(e.refused, func(_ types.UID, at time.Time) bool { return e.clock.Since(at) >= e.options.Afterwards.Interval })
	for _, one := range all {
		if _, was := e.refused[one.UID]; was || one.whole == nil {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		e.options.Watchdog.Progress(resizing)
		err := p.resize(ctx, one.whole)
		no, is := errors.AsType[refusal](err)
		switch {
		case err == nil || ctx.Err() != nil:
		case is:
			e.metrics.resized.WithLabelValues(outcomeRefused).Inc()
			e.refused[one.UID] = e.clock.Now()
			e.recorder.Event(one.whole, corev1.EventTypeWarning, reasonRefused, pods.Refusal(no.error).Reason)
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err): // else the next pass sees it as it is
			klog.FromContext(ctx).Error(err, "Could not resize a pod", "pod", klog.KObj(one.whole))
		}
	}
}

// refusal is the API server's answer to a resize that it will not carry out.
type refusal struct{ error }

// refuses reports whether the API server has looked at a resize, and does not want it.
func refuses(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// resize resizes a pod if its estimates have changed, and notes that in its annotation.
func (p *pass) resize(ctx context.Context, of *corev1.Pod) error {
	c := p.circumstances(of)
	s, err := c.size()
	switch {
	case err != nil:
		return err
	case len(s.done) > 0: // we have died after the resize
		return p.note(ctx, of, sizing{done: s.done}, s.at)
	case len(s.target.Changes) == 0:
		return nil
	}
	owner, err := p.workloadOf(ctx, of)
	if err != nil || owner.unknown {
		return err
	}
	c.templates = owner.templates
	if s, err = c.size(); err != nil || len(s.target.Changes) == 0 {
		return err
	}
	return p.carryOut(ctx, of, s)
}

// circumstances are those of a pod, but for its workload's templates.
func (p *pass) circumstances(of *corev1.Pod) circumstances {
	c := circumstances{
		Afterwards: *p.options.Afterwards, pod: of, said: readAnnotation(of), roles: p.options.Roles,
		left: p.left[of.Spec.NodeName], given: p.given[of.Namespace], now: p.clock.Now(),
		enabled: p.mode(of) == api.InitialResourcesEnabled && of.Annotations[api.InitialResourcesLabel] != api.InitialResourcesNever,
	}
	if table := p.stored(of.Namespace); table != nil && ours(table) {
		c.table = table.Data
	}
	return c
}

// carryOut resizes a pod as it is planned.
func (p *pass) carryOut(ctx context.Context, of *corev1.Pod, s sizing) error {
	if err := p.resizes.Wait(ctx); err != nil {
		return fmt.Errorf("waiting to resize: %w", err)
	}
	resized, err := pods.Resize(ctx, p.client.CoreV1(), s.target, api.EstimatorFieldManager)
	if refuses(err) {
		return refusal{err}
	}
	if err != nil {
		return err
	}
	p.metrics.resized.WithLabelValues(outcomeResized).Inc()
	for _, change := range s.target.Changes {
		more, left := grown(change.Resource, *change.From, *change.To), p.left[of.Spec.NodeName]
		p.left[of.Spec.NodeName] = capacity.Load{MilliCPU: left.MilliCPU - more.MilliCPU, Memory: left.Memory - more.Memory, Pods: left.Pods}
		p.given[of.Namespace] = p.given[of.Namespace].Plus(capacity.Load{MilliCPU: max(more.MilliCPU, 0), Memory: max(more.Memory, 0)})
	}
	klog.FromContext(ctx).Info("Resized a pod, because its estimate has changed", "pod", klog.KObj(of), "changes", resize.Describe(s.target.Changes))
	return p.note(ctx, resized, s, p.clock.Now())
}

// note writes into the pod's annotation what has been done, and tells it.
func (p *pass) note(ctx context.Context, of *corev1.Pod, s sizing, at time.Time) error {
	text, err := annotated(of, s, at)
	if err != nil {
		return err
	}
	if err := pods.Annotate(ctx, p.client.CoreV1(), of, api.EstimateAnnotation, text, api.EstimatorFieldManager); err != nil {
		return err
	}
	changes := s.target.Changes
	said := readAnnotation(of)
	for container, requests := range s.done {
		for name, request := range requests {
			was := said[container][name].Request
			changes = append(changes, resize.Change{Container: container, Resource: name, Side: resize.Request, From: &was, To: &request})
		}
	}
	p.recorder.Event(of, corev1.EventTypeNormal, reasonResized, "resized in place, because its estimate has changed: "+resize.Describe(changes))
	return nil
}

// mode says whether a new pod like this one would get requests from estimates. What the pod says
// counts before what its namespace says.
func (e *Estimator) mode(of *corev1.Pod) string {
	if value, says := of.Labels[api.InitialResourcesLabel]; says {
		return value
	}
	return e.watched.mode(of.Namespace)
}

// workloadOf reads what owns the pod, and what owns that.
func (p *pass) workloadOf(ctx context.Context, of *corev1.Pod) (workload, error) {
	owner := metav1.GetControllerOf(of)
	if owner == nil {
		return workload{}, nil
	}
	if known, has := p.workloads[owner.UID]; has {
		return known, nil
	}
	w, err := p.read(ctx, of.Namespace, owner)
	if err != nil && !apierrors.IsNotFound(err) {
		return workload{unknown: true}, fmt.Errorf("reading what owns pod %s: %w", of.Name, err)
	}
	if err != nil { // the pod is about to go
		w.unknown = true
	}
	p.workloads[owner.UID] = w
	return w, nil
}

// read reads the templates of an owner of pods.
func (p *pass) read(ctx context.Context, namespace string, owner *metav1.OwnerReference) (workload, error) {
	switch owner.APIVersion + " " + owner.Kind {
	case "apps/v1 ReplicaSet":
		rs, err := p.client.AppsV1().ReplicaSets(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil {
			return workload{}, err
		}
		w := workload{templates: []*corev1.PodTemplateSpec{&rs.Spec.Template}}
		if above := metav1.GetControllerOf(rs); above != nil && above.APIVersion == "apps/v1" && above.Kind == "Deployment" {
			d, err := p.client.AppsV1().Deployments(namespace).Get(ctx, above.Name, metav1.GetOptions{})
			if err != nil {
				return workload{}, err
			}
			w.templates = append(w.templates, &d.Spec.Template)
		}
		return w, nil
	case "apps/v1 StatefulSet":
		s, err := p.client.AppsV1().StatefulSets(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil {
			return workload{}, err
		}
		return workload{templates: []*corev1.PodTemplateSpec{&s.Spec.Template}}, nil
	case "apps/v1 DaemonSet":
		d, err := p.client.AppsV1().DaemonSets(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil {
			return workload{}, err
		}
		_, classes := d.Annotations[api.NodeResourcesAnnotation]
		return workload{templates: []*corev1.PodTemplateSpec{&d.Spec.Template}, unknown: classes}, nil
	case "batch/v1 Job":
		j, err := p.client.BatchV1().Jobs(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil {
			return workload{}, err
		}
		return workload{templates: []*corev1.PodTemplateSpec{&j.Spec.Template}}, nil
	}
	return workload{unknown: true}, nil
}
