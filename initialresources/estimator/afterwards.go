package estimator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Afterwards says when a pod that an estimate has sized is resized as evidence grows.
type Afterwards struct {
	// Interval between two resizes of a pod, at least.
	Interval time.Duration
	// Threshold is by which percentage of what is requested an estimate must differ from it.
	Threshold float64
}

// circumstances are what decides whether a pod is resized.
type circumstances struct {
	Afterwards

	pod  *corev1.Pod
	said annotation
	// enabled: new pods like this one would get requests from estimates.
	enabled bool
	// table of its namespace.
	table map[string]string
	roles bool
	// templates of its workload. Where one of them states a size, that counts.
	templates []*corev1.PodTemplateSpec
	// left is what the pod's node has left, and given is what pods of the namespace were given in
	// this pass: the table may not count it yet.
	left, given capacity.Load
	now         time.Time
}

// sizing is what is to be done with a pod.
type sizing struct {
	// target has no changes if the pod is not to be resized.
	target resize.Target
	// to are the estimates that the pod is given, by container, and growth is by how much it
	// requests more then.
	to     map[string]map[corev1.ResourceName]estimate.Estimate
	growth capacity.Load
	// done are the requests that we have set, and that the annotation does not say yet: we have
	// died in between. At is when that was, or when we last set any.
	done map[string]map[corev1.ResourceName]resource.Quantity
	at   time.Time
}

// size plans what is to be done with a pod. An error says that its managedFields cannot be read.
//
// A pod of which an estimate has set the cpu to 100m, and which has it still, gets the 150m of
// today's table, if nobody states a cpu for it, its node has 50m left, and it was not resized
// today.
func (c circumstances) size() (sizing, error) {
	s, err := c.look()
	if err != nil || !c.may(s) {
		s.to = nil
		return s, err
	}
	for _, resource := range estimate.Resources {
		if !c.fits(resource, s.growth) {
			for _, of := range s.to {
				delete(of, resource)
			}
		}
	}
	target, err := resize.Whole(c.pod, &corev1.PodTemplateSpec{}, c.wanted(s.to))
	if err != nil {
		return s, err
	}
	// It is no reason to restart anything.
	if len(target.Obstacles) == 0 && !target.Restarts() {
		s.target = target
	}
	return s, nil
}

// look goes through what the annotation says: what the pod still has of it, what it should have,
// and what we have set since.
func (c circumstances) look() (sizing, error) {
	s := sizing{to: map[string]map[corev1.ResourceName]estimate.Estimate{}, done: map[string]map[corev1.ResourceName]resource.Quantity{}}
	var errs []error
	c.said.each(func(name string, resource corev1.ResourceName, was said) {
		container := resizable(&c.pod.Spec, name)
		if container == nil || was.Skipped != "" {
			return
		}
		if has, requests := container.Resources.Requests[resource]; requests {
			errs = append(errs, c.lookAt(&s, container, resource, has, was))
		}
	})
	return s, errors.Join(errs...)
}

// lookAt adds to the plan what is to be done about a request that the container has, and of which
// the annotation says that an estimate has set it.
func (c circumstances) lookAt(s *sizing, container *corev1.Container, resource corev1.ResourceName, has resource.Quantity, was said) error {
	by, at, err := resize.SetBy(c.pod, container.Name, resize.Request, resource)
	if err != nil {
		return err
	}
	s.since(was.Resized)
	if by == api.EstimatorFieldManager {
		s.since(&at)
	}
	switch {
	case by != "" && by != api.EstimatorFieldManager: // somebody else has decided, be it for the same size
	case has.Cmp(was.Request) == 0:
		if e, worth := c.better(container, resource, has); worth {
			put(s.to, container.Name, resource, e)
			s.growth = s.growth.Plus(grown(resource, has, e.Request))
		}
	case by == api.EstimatorFieldManager:
		put(s.done, container.Name, resource, has)
	}
	return nil
}

// since notes that we have set something at that time.
func (s *sizing) since(at *time.Time) {
	if at != nil && at.After(s.at) {
		s.at = *at
	}
}

// may reports whether the pod may be resized at all.
func (c circumstances) may(s sizing) bool {
	pending := slices.ContainsFunc(c.pod.Status.Conditions, func(cond corev1.PodCondition) bool {
		return cond.Type == corev1.PodResizePending || cond.Type == corev1.PodResizeInProgress
	})
	return c.enabled && len(s.done) == 0 && !pending && c.now.Sub(s.at) >= c.Interval &&
		c.pod.DeletionTimestamp == nil && c.pod.Spec.NodeName != "" && c.pod.Status.Phase == corev1.PodRunning
}

// better is what the container should request instead of what it has, if that is worth a resize
// and nobody states what it is to have.
func (c circumstances) better(container *corev1.Container, name corev1.ResourceName, has resource.Quantity) (estimate.Estimate, bool) {
	for _, template := range c.templates {
		if of := containerOf(&template.Spec, container.Name); of != nil && states(of, name) {
			return estimate.Estimate{}, false
		}
	}
	image, err := estimate.ParseImage(container.Image)
	if err != nil {
		return estimate.Estimate{}, false
	}
	key := estimate.Key{Image: image}
	if c.roles {
		key.Role = container.Name
	}
	e, known := lookUp(c.table, key, name)
	if limit, limited := container.Resources.Limits[name]; known && limited {
		e = e.AtMost(limit, estimate.CappedByLimit)
	}
	before, more := amount(grown(name, resource.Quantity{}, has)), amount(grown(name, has, e.Request))
	return e, known && more != 0 && max(more, -more)*100 >= before*c.Threshold
}

// states reports whether a container of a template says what is requested.
func states(c *corev1.Container, name corev1.ResourceName) bool {
	_, request := c.Resources.Requests[name]
	_, limit := c.Resources.Limits[name]
	return request || limit
}

// fits reports whether the node, and the quotas of the namespace, have room for so much more.
func (c circumstances) fits(name corev1.ResourceName, growth capacity.Load) bool {
	more, left, given := growth.MilliCPU, c.left.MilliCPU, c.given.MilliCPU
	of := func(q resource.Quantity) int64 { return q.MilliValue() }
	if name == corev1.ResourceMemory {
		more, left, given = growth.Memory, c.left.Memory, c.given.Memory
		of = func(q resource.Quantity) int64 { return q.Value() }
	}
	if more <= 0 {
		return true
	}
	quota, err := resource.ParseQuantity(c.table[quotaEntry+string(name)])
	return more <= left && (err != nil || more+given <= of(quota))
}

// grown is by how much a request grows.
func grown(name corev1.ResourceName, from, to resource.Quantity) capacity.Load {
	if name == corev1.ResourceCPU {
		return capacity.Load{MilliCPU: to.MilliValue() - from.MilliValue()}
	}
	return capacity.Load{Memory: to.Value() - from.Value()}
}

// amount is that of the one resource that a load has.
func amount(l capacity.Load) float64 { return float64(l.MilliCPU + l.Memory) }

// wanted is a template of the pod as it is, but for these requests.
func (c circumstances) wanted(to map[string]map[corev1.ResourceName]estimate.Estimate) *corev1.PodTemplateSpec {
	template := &corev1.PodTemplateSpec{Spec: *resize.WithOwnLists(&c.pod.Spec)}
	for name, estimates := range to {
		for resource, e := range estimates {
			containerOf(&template.Spec, name).Resources.Requests[resource] = e.Request
		}
	}
	return template
}

// resizable is the container of that name, if its size can be changed while it runs.
func resizable(spec *corev1.PodSpec, name string) *corev1.Container {
	c := containerOf(spec, name)
	if c == nil || slices.ContainsFunc(spec.InitContainers, func(i corev1.Container) bool { return i.Name == name }) &&
		ptr.Deref(c.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways {
		return nil
	}
	return c
}

func put[T any](all map[string]map[corev1.ResourceName]T, container string, name corev1.ResourceName, value T) {
	if all[container] == nil {
		all[container] = map[corev1.ResourceName]T{}
	}
	all[container][name] = value
}

// annotated is the pod's annotation as it is when the pod has been resized to these estimates, or
// found to have these requests, at that time. All else that it says stays.
func annotated(pod *corev1.Pod, s sizing, at time.Time) (string, error) {
	var all map[string]map[corev1.ResourceName]map[string]any
	if err := json.Unmarshal([]byte(pod.Annotations[api.EstimateAnnotation]), &all); err != nil {
		return "", fmt.Errorf("reading annotation %s: %w", api.EstimateAnnotation, err)
	}
	write := func(container string, name corev1.ResourceName, entry map[string]any, request resource.Quantity) {
		entry["was"] = all[container][name]["request"]
		entry["request"], entry["resized"] = request.String(), at.UTC().Format(time.RFC3339)
		put(all, container, name, entry)
	}
	for container, estimates := range s.to {
		for name, e := range estimates {
			entry := map[string]any{}
			_, why, _ := strings.Cut(e.Value(), " ")
			if err := json.Unmarshal([]byte(why), &entry); err != nil {
				return "", fmt.Errorf("describing an estimate: %w", err)
			}
			write(container, name, entry, e.Request)
		}
	}
	for container, requests := range s.done {
		for name, request := range requests {
			write(container, name, maps.Clone(all[container][name]), request)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("encoding annotation %s: %w", api.EstimateAnnotation, err)
	}
	return string(text), nil
}
