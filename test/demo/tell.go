package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// lineWidth is how wide the output is.
const lineWidth = 110

// screen is where the demo is shown, and tells when nobody reads it any more.
type screen struct {
	*os.File
	unread func()
}

func (s screen) say(format string, args ...any) {
	if _, err := fmt.Fprintln(s.File, strings.TrimRight(fmt.Sprintf(format, args...), " \n")); err != nil {
		s.unread()
	}
}

func (s screen) title(text string) {
	s.say("\n── %s %s", text, strings.Repeat("─", lineWidth-4-utf8.RuneCountInString(text)))
}

// while does something, and meanwhile tells what becomes of some subjects from a moment on, in a line for each change.
func (d *demo) while(ctx context.Context, from int, subjects []measure.Subject, do func() error) error {
	ctx, stop := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		d.tell(ctx, from, subjects)
	}()
	err := do()
	stop()
	<-told
	return err
}

func (d *demo) tell(ctx context.Context, from int, subjects []measure.Subject) {
	history, _ := d.recorder.From(0)
	states, said := map[measure.Subject]*measure.State{}, map[string]string{}
	for _, of := range subjects {
		states[of] = measure.Replay(history[:from], of)
	}
	for begin := time.Now(); ; {
		moments, changed := d.recorder.From(from)
		from += len(moments)
		for _, m := range moments {
			s := states[m.Subject()]
			if s == nil {
				continue
			}
			s.Apply(m)
			name, text := m.Subject().Name, ofWorkload(s)
			switch m.Object.(type) {
			case *corev1.Pod, *measure.Visit:
				name = m.Object.GetName()
				text = d.ofPod(s, s.Pods[name])
			}
			if whose := m.Object.GetNamespace() + "/" + name; said[whose] != text {
				said[whose] = text
				d.say("+%5.1f s  %-12s  %-21s  %s", max(0, m.At.Sub(begin).Seconds()), m.Object.GetNamespace(), name, text)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// ofPod is what there is to tell of a pod.
func (d *demo) ofPod(s *measure.State, pod *corev1.Pod) string {
	if pod == nil {
		return "GONE"
	}
	container := pod.Spec.Containers[0]
	status := measure.ContainerStatus(pod, container.Name)
	text := "wants " + amounts(container.Resources.Requests)
	if status.Resources != nil {
		text += ", has " + amounts(status.Resources.Requests)
	}
	if resizing := measure.Resizing(pod); resizing != "" {
		text += ", resize " + resizing
	}
	if seen := s.Visits[pod.UID]; seen != nil {
		text += ", kernel grants " + granted(seen.Kernel)
	}
	if t := ended(status); t != nil {
		text += fmt.Sprintf(", %s, restarts: %d", t.Reason, measure.Restarts(pod))
	}
	if measure.Ready(pod) {
		return text + ", Ready"
	}
	return text + ", NOT READY"
}

// ended is how a container has ended, if it has.
func ended(c corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if c.State.Terminated != nil {
		return c.State.Terminated
	}
	return c.LastTerminationState.Terminated
}

// ofWorkload is what the workload itself says.
func ofWorkload(s *measure.State) string {
	field, value := s.HoldField()
	text := fmt.Sprintf("updated %d of %d, %s %s", s.Updated(), s.Replicas(), field, value)
	if s.IsHeld() {
		text += ", held: user's " + s.Held()
	}
	if c := s.Complete(); c.Status != "" {
		text += fmt.Sprintf(", Complete: %s (%s)", c.Status, c.Reason)
	}
	return text
}

// amounts are cpu and memory.
func amounts(list corev1.ResourceList) string {
	return list.Cpu().String() + " / " + list.Memory().String()
}

// size is what the template of a workload requests.
func size(s *measure.State) string {
	return amounts(s.Template().Spec.Containers[0].Resources.Requests)
}

// granted are limits, written as sizes are.
func granted(l cgroup.Limits) string {
	if l.CPU == 0 {
		return "no limit / " + inBytes(l.Memory)
	}
	return resource.NewMilliQuantity(l.CPU, resource.DecimalSI).String() + " / " + inBytes(l.Memory)
}

// otherwise names the pods whose kernel or program has shown other limits than the template has, or nothing yet.
func otherwise(s *measure.State) (names []string) {
	limits := s.Template().Spec.Containers[0].Resources.Limits
	want := cgroup.Limits{CPU: limits.Cpu().MilliValue(), Memory: limits.Memory().Value()}
	for _, name := range s.PodNames() {
		if seen := s.Visits[s.Pods[name].UID]; seen == nil || seen.Kernel != want || seen.Reads != want {
			names = append(names, name)
		}
	}
	return names
}
