package controller

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Recorder records events of objects. It must not wait for the API server.
type Recorder interface {
	Event(object runtime.Object, eventType, reason, message string)
}

// recordCondition records events, and the end of the rollout, when the written condition
// says something new.
func (c *Controller[W, K]) recordCondition(w W, before *rollout.StoredCondition, p rollout.Plan) {
	fresh := isFresh(before)
	if p.Condition.Complete {
		if !before.Complete() {
			var took time.Duration
			if before != nil && !before.Pending() {
				took = c.clock.Since(before.LastTransitionTime.Time)
			}
			c.ended(cache.MetaObjectToName(w), resultComplete, took)
			c.recorder.Event(w, corev1.EventTypeNormal, judge.EventComplete, p.Condition.Message())
		}
		return
	}
	if p.HandedOver != "" && c.left(w) != c.kind.BuiltInStatus(w).HandedOver.Version {
		c.begun(w)
		c.ended(cache.MetaObjectToName(w), resultHandedOver, 0)
		c.recorder.Event(w, corev1.EventTypeNormal, judge.EventHandedOver, p.HandedOver)
	}
	if fresh && p.Started != "" && p.Condition.Reason != judge.ReasonPaused {
		c.recorder.Event(w, corev1.EventTypeNormal, judge.EventStarted, p.Started)
		if policy.Unconfirmed(w, c.options.Critical) {
			c.recorder.Event(w, corev1.EventTypeWarning, judge.EventCritical, "the cluster might need this "+c.access.Kind+" to start, and its edits can stay held while no controller of inplace-rollout runs. "+
				"Confirm that with the annotation "+api.AllowCriticalAnnotation+"=true, or opt it out")
		}
	}
	if !fresh && before.Reason == p.Condition.Reason {
		return
	}
	if p.Condition.Reason == judge.ReasonInvalidPolicy {
		c.recorder.Event(w, corev1.EventTypeWarning, judge.EventInvalidPolicy, p.Condition.Told())
	}
}

// recordGuard records what becomes of a guarded rollout.
func (c *Controller[W, K]) recordGuard(w W, k rollout.Keep) {
	if k.After == nil {
		return
	}
	was, is, says := rollout.Phase(""), k.After.Phase, k.Says
	if !strings.Contains(says, string(k.Called)) {
		says = string(k.Called) + ": " + says
	}
	if k.Before != nil && k.Before.Name() == k.After.Name() {
		was = k.Before.Phase
	}
	switch {
	case was == is:
	case is == rollout.PhaseCanary:
		c.recorder.Event(w, corev1.EventTypeNormal, judge.EventCanaryStarted, says)
	case is == rollout.PhaseRolling && was == rollout.PhaseCanary && k.After.Promoted:
		c.recorder.Event(w, corev1.EventTypeNormal, judge.EventCanaryPromoted, says)
	case is == rollout.PhaseRolling && was == rollout.PhaseCanary:
		c.recorder.Event(w, corev1.EventTypeNormal, judge.EventCanaryPassed, says)
	case is == rollout.PhaseStopped || is == rollout.PhaseReverting:
		c.recorder.Event(w, corev1.EventTypeWarning, judge.EventResizeFailed, says)
	case is == rollout.PhaseReverted:
		c.recorder.Event(w, corev1.EventTypeWarning, judge.EventReverted, says)
	}
}

// recordWaits records what each pod waits for, if that is more than progress. It does so once
// for each reason in turn.
func (c *Controller[W, K]) recordWaits(s *Session[W, K], w W, p rollout.Plan) {
	if p.Condition.Complete { // such as a pod on a lost node that would get the size of another class
		s.countWaits(nil)
	} else {
		s.countWaits(p.Waits)
	}
	for _, wait := range p.Waits {
		if wait.Member.Pod == nil || s.Notes.Of(wait.Member.Pod.UID).Recorded == wait.Reason {
			continue
		}
		if event, worth := eventOfWait[wait.Reason]; worth {
			s.Notes.Note(wait.Member.Pod.UID).Recorded = wait.Reason
			s.RecordPod(w, wait.Member.Pod, event.eventType, event.reason, wait.Message)
		}
	}
}

// recordTrusted records of pods, once for each size, that they count as resized though their kubelet does not show it.
func (s *Session[W, K]) recordTrusted(w W, verdicts []*judge.Verdict) {
	for _, v := range verdicts {
		m := &v.Member
		if m.Pod == nil || !m.Target.Trusts() || s.Notes.Of(m.Pod.UID).Trusted == m.Pod.Generation {
			continue
		}
		s.Notes.Note(m.Pod.UID).Trusted = m.Pod.Generation
		_, lacks := m.Target.Answer()
		s.RecordPod(w, m.Pod, corev1.EventTypeWarning, judge.EventUnconfirmed, fmt.Sprintf(
			"counts as resized: node %s has allocated the size, but does not show that it is applied: %s", m.Pod.Spec.NodeName, lacks))
	}
}

// nameOthers adds to the condition which containers the pods lack, and who else resizes them, such as a vertical
// autoscaler. It records an event of each of them once.
func (c *Controller[W, K]) nameOthers(s *Session[W, K], w W, verdicts []*judge.Verdict, condition *rollout.Condition) {
	for _, v := range verdicts {
		m := &v.Member
		for _, other := range m.Target.Others {
			if !s.others.Has(other) && !c.options.DryRun {
				s.others.Insert(other)
				c.recorder.Event(w, corev1.EventTypeWarning, judge.EventResizedByOthers,
					fmt.Sprintf("%s also resizes pods of this %s, such as %s. Edits of the template override it; between edits its sizes stay", other, c.access.Kind, m.Name))
			}
		}
	}
	if absent := rollout.Absent(verdicts); len(absent) > 0 && condition.Reason != "" {
		condition.Absent = strings.Join(absent, ", ")
	}
	if s.others.Len() > 0 && condition.Reason != "" {
		condition.Others = strings.Join(sets.List(s.others), ", ")
	}
}

// eventOfWait are the events of waits that are more than progress.
var eventOfWait = map[string]struct{ eventType, reason string }{
	judge.ReasonDeferred:            {corev1.EventTypeNormal, judge.EventDeferred},
	judge.ReasonInfeasible:          {corev1.EventTypeWarning, judge.EventInfeasible},
	judge.ReasonUnsupportedByNode:   {corev1.EventTypeWarning, judge.EventUnsupportedByNode},
	judge.ReasonInvalid:             {corev1.EventTypeWarning, judge.EventInvalid},
	judge.ReasonAdmissionDenied:     {corev1.EventTypeWarning, judge.EventAdmissionDenied},
	judge.ReasonResizeError:         {corev1.EventTypeWarning, judge.EventResizeError},
	judge.ReasonQuotaExceeded:       {corev1.EventTypeWarning, judge.EventQuotaExceeded},
	judge.ReasonNoNodeFits:          {corev1.EventTypeWarning, judge.EventNoNodeFits},
	judge.ReasonRoomUnknown:         {corev1.EventTypeWarning, judge.EventRoomUnknown},
	judge.ReasonNotReadyAfterResize: {corev1.EventTypeWarning, judge.EventNotReadyAfterResize},
	judge.ReasonCheckUnknown:        {corev1.EventTypeWarning, judge.EventCheckUnknown},
	judge.ReasonPodRejected:         {corev1.EventTypeWarning, judge.EventPodRejected},
	judge.ReasonDeletedAfterResize:  {corev1.EventTypeWarning, judge.EventDeletedAfterResize},
	judge.ReasonNodeLost:            {corev1.EventTypeWarning, judge.EventNodeLost},
	judge.ReasonDisruptionBudget:    {corev1.EventTypeNormal, judge.EventDisruptionBudget},
	judge.ReasonWaitingForDelete:    {corev1.EventTypeNormal, judge.EventWaitingForDelete},
}

// progress is how far the events of a workload say that its rollout is.
type progress struct {
	revision string // that is rolled out
	pods     int    // resized, when an event of the workload said so last
	last     string // the pod that was resized last since then, and how; empty if none was
}

// RecordResized records on the pod that it has the new size; how begins the message. Where this
// controller has not asked for that size, as it was restarted, or the pod has had it before, the
// message is already; if that is empty, nothing is recorded. The workload's event is recorded
// with the next plan.
func (s *Session[W, K]) RecordResized(pod *corev1.Pod, how, already string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	message := already
	if request := s.Notes.Of(pod.UID).Request; request != nil {
		s.Notes.Note(pod.UID).Request = nil
		s.controller.metrics.resized(s.controller.clock.Since(request.At))
		message = how + ": " + request.Changes
	}
	if message == "" {
		return
	}
	s.controller.recorder.Event(pod, corev1.EventTypeNormal, judge.EventResized, message)
	s.progress.last = pod.Name + ": " + message
}

// recordProgress records on the workload how many of its pods have been resized: when the first
// is, whenever a quarter of them more are, but ten at least, and when nothing is left to do for
// now. What each pod says already is not said once more: of 100 pods, one at a time, events tell
// of the 1st, 25th, 50th, 75th and 100th. With one of each pod, RolloutStarted and
// RolloutComplete these are 107.
func (s *Session[W, K]) recordProgress(w W, p rollout.Plan) {
	if s.progress.last == "" || p.Updated == 0 {
		return
	}
	first, each := s.progress.revision != p.Revision.Name, max(10, p.Total/4)
	if !first && p.Updated/each == s.progress.pods/each && !p.NothingUnderWay() {
		return
	}
	s.Record(w, corev1.EventTypeNormal, judge.EventResized, p.Progress()+"; "+s.progress.last)
	s.progress = progress{revision: p.Revision.Name, pods: p.Updated}
}

// RecordRestart records that a pod is given up for a new one; how begins the event's message.
func (s *Session[W, K]) RecordRestart(w W, r rollout.Restart, how string) {
	s.controller.metrics.restarted(r.Cause)
	s.RecordPod(w, r.Member.Pod, corev1.EventTypeWarning, judge.EventRestart, how+": "+r.Reason)
}

// isFresh reports whether nothing has been said yet of what is rolled out now: the condition is that of before, or of the pause in which
// the edit was made.
func isFresh(before *rollout.StoredCondition) bool {
	return before == nil || before.Pending() || before.Complete() || before.Reason == judge.ReasonPaused
}

// recordOvertaken records that something else is rolled out than when this was noted last. Where the condition is that of before, its
// write records it.
func (c *Controller[W, K]) recordOvertaken(s *Session[W, K], w W, p rollout.Plan) {
	if p.Started == "" {
		return
	}
	before := s.started
	s.started = cmp.Or(w.GetAnnotations()[api.EditAnnotation], p.Revision.Name)
	if before != "" && before != s.started && !isFresh(c.access.Condition(w)) {
		c.recorder.Event(w, corev1.EventTypeNormal, judge.EventStarted, p.Started)
	}
}

// left returns the rollout that was handed over since the condition was written, which does not tell
// it yet.
func (c *Controller[W, K]) left(w W) rollout.Version {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.messages[cache.MetaObjectToName(w)].left
}

// RecordHandOver records that the rollout is handed over to the built-in controller: a warning, if pods restart for a size.
func (s *Session[W, K]) RecordHandOver(w W, r rollout.Release) {
	c := s.controller
	c.mu.Lock()
	m := c.messages[s.name]
	m.left = c.kind.BuiltInStatus(w).HandedOver.Version
	c.messages[s.name] = m
	c.mu.Unlock()
	c.begun(w)
	c.ended(s.name, resultHandedOver, 0)
	s.mu.Lock()
	s.progress = progress{} // its pods are replaced
	s.mu.Unlock()
	eventType := corev1.EventTypeNormal
	if r.Warns() {
		eventType = corev1.EventTypeWarning
	}
	s.Record(w, eventType, judge.EventHandedOver, r.To.Because(r.HandOver).Message())
}

// Record records an event of the workload.
func (s *Session[W, K]) Record(w W, eventType, reason, message string) {
	s.controller.recorder.Event(w, eventType, reason, message)
}

// RecordPod records an event of a pod on the pod, and on the workload with the pod's name.
func (s *Session[W, K]) RecordPod(w W, pod *corev1.Pod, eventType, reason, message string) {
	s.controller.recorder.Event(pod, eventType, reason, message)
	if !strings.HasPrefix(message, pod.Name) {
		message = pod.Name + ": " + message
	}
	s.Record(w, eventType, reason, message)
}

// unrecordedFailures is how many failures in a row are not worth an event: with the
// interval between them growing from 50 ms, they take about six seconds.
const unrecordedFailures = 7

// recordFailure records why a rollout does not go on.
func (c *Controller[W, K]) recordFailure(name cache.ObjectName, err error) {
	if w, exists, _ := c.get(name); exists && !c.options.DryRun {
		c.recorder.Event(w, corev1.EventTypeWarning, judge.EventStepFailed, "the next step failed and will be retried: "+err.Error())
	}
}

// edited records that admission has edited the template in a write of ours. It puts off the
// next write that lets the built-in controller loose.
func (c *Controller[W, K]) edited(s *Session[W, K], w W, err error) {
	if s.edits == nil {
		s.edits = judge.NewBackoff()
	}
	s.looseAfter = c.clock.Now().Add(s.edits.NextBackOff())
	s.Record(w, corev1.EventTypeWarning, judge.EventStepFailed, "the next step will be retried: "+err.Error())
}
