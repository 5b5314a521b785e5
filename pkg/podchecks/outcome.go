package podchecks

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Subject is a pod whose resize is done, and that is to pass checks.
type Subject struct {
	Namespace, Name string
	UID             types.UID
	Containers      []Container
	// Asked is when its resize was asked for: what it had before is what it had until then. Zero says when Since is.
	Asked time.Time
	// Since is when its resize was seen done, by our clock. Nothing that was measured before counts.
	Since time.Time
}

// Container is one of a pod that runs all the time, and of which resources it has a limit.
type Container struct {
	Name                  string
	CPULimit, MemoryLimit bool
}

// SubjectOf is a pod that was resized at these times.
func SubjectOf(pod *corev1.Pod, asked, since time.Time) Subject {
	s := Subject{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Asked: asked, Since: since}
	add := func(c *corev1.Container) {
		_, cpu := c.Resources.Limits[corev1.ResourceCPU]
		_, memory := c.Resources.Limits[corev1.ResourceMemory]
		s.Containers = append(s.Containers, Container{c.Name, cpu, memory})
	}
	for i := range pod.Spec.InitContainers {
		if policy := pod.Spec.InitContainers[i].RestartPolicy; policy != nil && *policy == corev1.ContainerRestartPolicyAlways {
			add(&pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return s
}

// before is the time of which is asked what it had before: a full minute, so that pods share a query.
func (s Subject) before() time.Time {
	at := s.Since
	if !s.Asked.IsZero() && s.Asked.Before(at) {
		at = s.Asked
	}
	return at.Truncate(time.Minute)
}

func (s Subject) equal(other Subject) bool {
	return s.Namespace == other.Namespace && s.Name == other.Name && s.UID == other.UID &&
		s.Asked.Equal(other.Asked) && s.Since.Equal(other.Since) && slices.Equal(s.Containers, other.Containers)
}

// State of a check for one pod.
type State string

// What is known of a check for one pod.
const (
	Unknown State = "unknown"
	Passed  State = "passed"
	Failed  State = "failed"
)

// States are all of them.
var States = []State{Unknown, Passed, Failed}

// Effect is what follows from an outcome.
type Effect string

// What may follow from an outcome.
const (
	// Wait: it is not known yet.
	Wait Effect = "Wait"
	// GoOn: it has passed, or has been unknown for too long, where that counts as passed.
	GoOn Effect = "GoOn"
	// Hold: it has been unknown for too long. Nothing has failed: there is nothing to revert.
	Hold Effect = "Hold"
	// Fail: the pod has failed the check.
	Fail Effect = "Fail"
)

// Outcome of a check for one pod.
type Outcome struct {
	State  State
	Effect Effect
	// Container that it is about; empty if it is about the pod.
	Container string
	// Message says what was measured, and the threshold; or why nothing is known.
	Message string
	// At is since when it is so. The number in the message is that of this time.
	At time.Time
}

// key is of what there is one outcome.
type key struct {
	pod   types.UID
	check string
}

// Outcomes of a workload's pods.
type Outcomes struct {
	of   map[key]Outcome
	more bool
}

// Of returns the outcome of a check for a pod; Unknown if there is none.
func (o Outcomes) Of(pod types.UID, check string) Outcome {
	if outcome, there := o.of[key{pod, check}]; there {
		return outcome
	}
	if o.more {
		return Outcome{State: Unknown, Effect: Hold, Message: fmt.Sprintf("the workload names more than %d checks: this one is not queried", MostChecks)}
	}
	return Outcome{State: Unknown, Effect: Wait, Message: notYet}
}

// OutcomesOf are outcomes of one check, as tests have them.
func OutcomesOf(check string, pods map[types.UID]Outcome) Outcomes {
	o := Outcomes{of: map[key]Outcome{}}
	for pod, outcome := range pods {
		o.of[key{pod, check}] = outcome
	}
	return o
}

const notYet = "not queried yet"
