package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// ProgressInterval is how often at most a mere message of the condition is written while
// something is under way, and lastInterval where it is the last word for now.
const (
	ProgressInterval = 10 * time.Second
	lastInterval     = time.Second
)

// Condition inplace-rollout.io/Complete: what the conditions of StatefulSets and
// Deployments have in common.
type Condition struct {
	Status             corev1.ConditionStatus
	LastTransitionTime metav1.Time
	Reason, Message    string
}

// complete tells whether the condition says that there is nothing to do.
func (c *Condition) complete() bool { return c != nil && c.Status == corev1.ConditionTrue }

// pending tells whether the condition is the admission policies', which cannot set its
// time: that is still the one of what they have taken back, such as the last Complete.
func (c *Condition) pending() bool { return c != nil && c.Reason == rollout.ReasonPending }

// Complete tells whether the condition of w says that there is nothing to do. It
// is taken back by the admission policy with every new revision.
func (c *Controller[W, X]) Complete(w W) bool { return c.kind.Condition(w).complete() }

// News is what there is to tell of a rollout.
type News struct {
	// Condition that the observation justifies; what is about to be done is not in it.
	Condition rollout.Condition
	// Last tells that the message is the last word for now: it is not written later than it
	// must be. Otherwise it may be about to change again.
	Last bool
	// Started tells, in the event of a rollout's start, what is rolled out; empty if nothing is.
	Started string
}

// Tell writes the condition if it differs, and then the events that go with it. It
// returns when a message that was not written yet is due.
func (c *Controller[W, X]) Tell(ctx context.Context, w W, news News) (time.Duration, error) {
	if c.Options.DryRun {
		return 0, nil
	}
	if news.Started != "" && !news.Condition.Complete {
		c.begun(w)
	}
	now := metav1.NewTime(c.Clock.Now())
	want := Condition{
		Status: corev1.ConditionFalse, LastTransitionTime: now,
		Reason: news.Condition.Reason, Message: news.Condition.Message,
	}
	if news.Condition.Complete {
		want.Status = corev1.ConditionTrue
	}
	have := c.kind.Condition(w)
	if have != nil && have.Status == want.Status {
		if !have.pending() {
			want.LastTransitionTime = have.LastTransitionTime
		}
		if have.Reason == want.Reason {
			if have.Message == want.Message {
				c.saidAll(w)
				return 0, nil
			}
			if due := c.messageDue(w, news); due > 0 {
				return due, nil
			}
		}
	}
	metadata := map[string]any{"uid": w.GetUID()}
	if news.Condition.Complete {
		// True of this version of the workload; an edit in between would make it a lie.
		metadata["resourceVersion"] = w.GetResourceVersion()
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": metadata,
		"status":   map[string]any{"conditions": []any{c.kind.NewCondition(want, now)}},
	})
	if err != nil {
		return 0, fmt.Errorf("encoding the condition: %w", err)
	}
	if _, err := c.Patch(ctx, w, types.StrategicMergePatchType, patch, "status"); err != nil {
		return 0, fmt.Errorf("writing the condition: %w", err)
	}
	c.wroteMessage(w)
	c.conditionEvents(w, have, news)
	return 0, nil
}

// conditionEvents tells of what the written condition has changed.
func (c *Controller[W, X]) conditionEvents(w W, before *Condition, news News) {
	fresh := before == nil || before.pending() || before.complete()
	if news.Condition.Complete {
		if !before.complete() {
			var took time.Duration
			if before != nil && !before.pending() {
				took = c.Clock.Since(before.LastTransitionTime.Time)
			}
			c.ended(nameOf(w), resultComplete, took)
			c.Recorder.Event(w, corev1.EventTypeNormal, rollout.EventComplete, news.Condition.Message)
		}
		return
	}
	if fresh && news.Started != "" {
		c.Recorder.Event(w, corev1.EventTypeNormal, rollout.EventStarted, news.Started)
	}
	if !fresh && before.Reason == news.Condition.Reason {
		return
	}
	if news.Condition.Reason == rollout.ReasonInvalidPolicy {
		c.Recorder.Event(w, corev1.EventTypeWarning, rollout.EventInvalidPolicy, news.Condition.Message)
	}
}

// TellWaits tells of each pod once what it waits for, if that is more than progress.
func (c *Controller[W, X]) TellWaits(s *Session[X], w W, waits []rollout.Wait) {
	s.count(&c.mu, waits)
	for _, wait := range waits {
		if wait.Member.Pod == nil || s.told[wait.Member.Pod.UID] == wait.Reason {
			continue
		}
		if event, worth := eventOfWait[wait.Reason]; worth {
			s.told[wait.Member.Pod.UID] = wait.Reason
			c.EventBoth(w, wait.Member.Pod, event.eventType, event.reason, wait.Message)
		}
	}
}

// alsoResizedBy begins what a condition says of others that resize the same pods.
const alsoResizedBy = "; also resized by "

// NameOthers adds to the condition who else resizes the pods, such as a vertical
// autoscaler, and tells of each once.
func (c *Controller[W, X]) NameOthers(s *Session[X], w W, members []rollout.Member, said *rollout.Condition) {
	for _, m := range members {
		for _, other := range m.Target.Others {
			if !s.others.Has(other) && !c.Options.DryRun {
				s.others.Insert(other)
				c.Recorder.Event(w, corev1.EventTypeWarning, rollout.EventResizedByOthers,
					fmt.Sprintf("%s resizes pods of this %s too, such as %s: on an edit the template wins, between edits nothing is fought over", other, c.kind.Name(), m.Name))
			}
		}
	}
	if s.others.Len() > 0 && said.Reason != "" {
		said.Message += alsoResizedBy + strings.Join(sets.List(s.others), ", ")
	}
}

// CutOthers splits what [Controller.NameOthers] has added off a condition's message.
func CutOthers(message string) (said, others string) {
	if i := strings.LastIndex(message, alsoResizedBy); i >= 0 {
		return message[:i], message[i:]
	}
	return message, ""
}

// eventOfWait are the events of waits that are more than progress.
var eventOfWait = map[string]struct{ eventType, reason string }{
	rollout.ReasonDeferred:            {corev1.EventTypeNormal, rollout.EventDeferred},
	rollout.ReasonInfeasible:          {corev1.EventTypeWarning, rollout.EventInfeasible},
	rollout.ReasonUnsupportedByNode:   {corev1.EventTypeWarning, rollout.EventUnsupportedByNode},
	rollout.ReasonInvalid:             {corev1.EventTypeWarning, rollout.EventInvalid},
	rollout.ReasonAdmissionDenied:     {corev1.EventTypeWarning, rollout.EventAdmissionDenied},
	rollout.ReasonResizeError:         {corev1.EventTypeWarning, rollout.EventResizeError},
	rollout.ReasonQuotaExceeded:       {corev1.EventTypeWarning, rollout.EventQuotaExceeded},
	rollout.ReasonNoNodeFits:          {corev1.EventTypeWarning, rollout.EventNoNodeFits},
	rollout.ReasonNotReadyAfterResize: {corev1.EventTypeWarning, rollout.EventNotReadyAfterResize},
	rollout.ReasonNodeLost:            {corev1.EventTypeWarning, rollout.EventNodeLost},
	rollout.ReasonDisruptionBudget:    {corev1.EventTypeNormal, rollout.EventDisruptionBudget},
	rollout.ReasonWaitingForDelete:    {corev1.EventTypeNormal, rollout.EventWaitingForDelete},
}

// TellResized tells that a pod has the new size, which we have set at resized.
func (c *Controller[W, X]) TellResized(w W, pod *corev1.Pod, resized time.Time, message string) {
	c.metrics.resized(c.Clock.Since(resized))
	c.EventBoth(w, pod, corev1.EventTypeNormal, rollout.EventResized, message)
}

// TellRestart tells that a pod is given up for a new one.
func (c *Controller[W, X]) TellRestart(w W, r rollout.Restart, message string) {
	c.metrics.restarted(r.Cause)
	c.EventBoth(w, r.Member.Pod, corev1.EventTypeNormal, rollout.EventRestart, message+": "+r.Reason)
}

// untoldFailures is how many failures in a row are not worth an event: with the
// interval between them growing from 50 ms, they take about six seconds.
const untoldFailures = 7

// tellFailure tells why a rollout does not go on.
func (c *Controller[W, X]) tellFailure(name cache.ObjectName, err error) {
	if w, exists, _ := c.Get(name); exists {
		c.Recorder.Event(w, corev1.EventTypeWarning, rollout.EventStepFailed, "the next step fails, and is tried again: "+err.Error())
	}
}

// TellHandOver tells that the built-in controller makes the rollout.
func (c *Controller[W, X]) TellHandOver(w W, message string) {
	c.begun(w)
	c.ended(nameOf(w), resultHandedOver, 0)
	c.Recorder.Event(w, corev1.EventTypeNormal, rollout.EventHandedOver, message)
}

// EventBoth tells of a pod on the pod, and on the workload with the pod's name.
func (c *Controller[W, X]) EventBoth(w W, pod *corev1.Pod, eventType, reason, message string) {
	c.Recorder.Event(pod, eventType, reason, message)
	if !strings.HasPrefix(message, pod.Name) {
		message = pod.Name + ": " + message
	}
	c.Recorder.Event(w, eventType, reason, message)
}

// message is what is known of the messages of a workload's condition.
type message struct {
	wrote time.Time // when the last one was written
	held  bool      // and whether the workload was held
	since time.Time // since when another one is to be written; zero if none is
}

// messageDue is how long a mere message must still wait to be written. Of a workload that
// is Complete it waits until it lasts: a pod that comes back is not worth two writes. What
// is said of a rollout after its hold is not what was said during it.
func (c *Controller[W, X]) messageDue(w W, news News) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, now := c.told[nameOf(w)], c.Clock.Now()
	if m.since.IsZero() {
		m.since = now
		c.told[nameOf(w)] = m
	}
	switch {
	case m.held && !Held(w):
		return 0
	case news.Last:
		return m.wrote.Add(lastInterval).Sub(now)
	case news.Condition.Complete:
		return m.since.Add(ProgressInterval).Sub(now)
	default:
		return m.wrote.Add(ProgressInterval).Sub(now)
	}
}

// saidAll notes that there is nothing to write.
func (c *Controller[W, X]) saidAll(w W) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m, is := c.told[nameOf(w)]; is {
		m.since = time.Time{}
		c.told[nameOf(w)] = m
	}
}

func (c *Controller[W, X]) wroteMessage(w W) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told[nameOf(w)] = message{wrote: c.Clock.Now(), held: Held(w)}
}
