package controller

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// resize asks for the member's new size. A refusal is no error: it is remembered for the next
// plan. If it is final, that plan takes the pod for one that cannot be resized. A controller
// that is restarted meanwhile asks again, and gets the same answer.
func (s *Session[W, K]) resize(ctx context.Context, w W, p rollout.Plan, m judge.Member) error {
	again, target := len(m.Target.Changes) == 0, m.Target
	if again { // the spec has the size: the kubelet looks at it once more after another one
		target = m.Target.Back()
	}
	asked := s.Now()
	resized, err := s.Pods.Write(m.Pod, func() (*corev1.Pod, error) {
		return pods.Resize(ctx, s.controller.client.CoreV1(), target, api.FieldManager)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if !pods.Answered(err) && !again { // it may have been carried out; if the kubelet is to look once more, the pod shows that
			s.noteAsked(m, asked)
		}
		return s.rememberRefusal(w, m, p.Revision, err)
	}
	if again || resized.Spec.NodeName == "" { // no kubelet has anything to do
		s.Requeue()
	} else {
		s.underWay = true
	}
	s.noteBeside(w, m, target.Beside(resized))
	if again {
		s.noteAsked(m, asked)
		return nil
	}
	note := s.Notes.Note(m.Pod.UID)
	note.Request = &judge.Request{Changes: resize.Describe(m.Target.Changes), At: asked}
	s.noteAsked(m, asked)
	if len(m.Target.Displaced) > 0 || !m.Target.Overrules { // who puts back once may do so twice, by an old view of the pod
		note.Displace(m.Target.Displaced)
	}
	if m.Target.Overrules {
		if note.Contests++; note.ContestLost() {
			note.Displaced = nil
			s.RecordPod(w, m.Pod, corev1.EventTypeWarning, judge.EventResizedByOthers,
				strings.Join(m.Target.Others, ", ")+" keeps resizing this pod. Its next size stays until the next edit")
		}
	}
	s.noteAdmission(m, p.Revision, resized)
	klog.FromContext(ctx).V(2).Info("Asked for a resize", "pod", m.Name, "changes", resize.Describe(m.Target.Changes))
	return nil
}

// noteBeside notes what admission has changed beside the request. The next step asks for that. The caller has locked s.mu.
func (s *Session[W, K]) noteBeside(w W, m judge.Member, beside []resize.Change) {
	if s.Notes.Note(m.Pod.UID).Beside = beside; len(beside) > 0 {
		s.Requeue()
		s.RecordPod(w, m.Pod, corev1.EventTypeWarning, judge.EventAdmissionDenied,
			"an admission plugin changed more than was asked for; where that restarts nothing, it is changed back: "+resize.Describe(beside))
	}
}

// noteAdmission notes what admission has made of the request for the member's size. The caller has locked s.mu.
func (s *Session[W, K]) noteAdmission(m judge.Member, revision rollout.Revision, resized *corev1.Pod) {
	note := s.Notes.Note(m.Pod.UID)
	if missed := m.Target.Missed(resized); len(missed) > 0 { // admission would do so with a new pod, too
		s.Requeue()
		refusal := judge.Refusal{
			Reason: "an admission plugin changed the size in the request: " + resize.Describe(missed), Kind: judge.ReasonAdmissionDenied,
		}
		// Before 1.36 the API server does, and says nothing; a new pod can have them.
		if resized.Spec.Resources == nil && slices.ContainsFunc(missed, func(c resize.Change) bool { return c.Container == "" }) {
			refusal = judge.Refusal{
				Reason: "the API server does not set pod-level resources of a running pod: " + resize.Describe(missed), Kind: judge.ReasonInfeasible, Final: true,
			}
		}
		note.Size = note.Size.Again(revision.Size(missed), refusal, s.Now())
	} else if !note.Size.Last().Final {
		note.Size = nil
	}
}

// noteAsked notes that the member was asked for its size. The caller has locked s.mu.
func (s *Session[W, K]) noteAsked(m judge.Member, at time.Time) {
	s.Notes.Asked(m, at)
	s.losses.Asked(m.Pod, at)
}

// rememberRefusal remembers why the API server refused the resize, and when to ask again, for
// the next plan. It returns the error if that is no refusal: the pod has changed or is gone, or
// nobody has answered. Where the pod was asked for what it has, nothing is said of its size: its kubelet is
// not had to look once more, and what that has said stays.
func (s *Session[W, K]) rememberRefusal(w W, m judge.Member, revision rollout.Revision, err error) error {
	if !pods.Answered(err) {
		s.unanswered = true
		return err
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return err
	}
	refusal, size := pods.Refusal(err), revision.Size(m.Target.Changes)
	if len(m.Target.Changes) == 0 {
		s.Notes.NotAgain(m.Pod.UID)
		s.RecordPod(w, m.Pod, corev1.EventTypeWarning, judge.EventAdmissionDenied, "its kubelet could not be had to look at the size again: "+refusal.Reason)
		s.Requeue()
		return nil
	}
	note := s.Notes.Note(m.Pod.UID)
	if refusal.Final && note.Size.Of(size).Reason == "" {
		s.controller.metrics.pod(outcomeRefused)
	}
	note.Size = note.Size.Again(size, refusal, s.Now())
	s.Requeue()
	return nil
}

// answered takes the pods of a live read, from which o comes if a request had no answer, for the answer.
func (s *Session[W, K]) answered(o rollout.Observation) {
	if !s.unanswered {
		return
	}
	s.unanswered = false
	there, _ := o.Pods()
	for _, pod := range there {
		s.Pods.Wrote(pod)
	}
}

// RefusedLabels reports whether the error of a write of a pod's labels is a refusal. One is remembered, with when to
// ask again, for the next plan.
func (s *Session[W, K]) RefusedLabels(pod *corev1.Pod, err error) bool {
	refusal, refused := pods.RelabelRefusal(err)
	if !refused {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	note := s.Notes.Note(pod.UID)
	note.Relabel = note.Relabel.Again("", refusal, s.Now())
	s.Requeue()
	return true
}

// mark marks a pod that has its size as one of the revision.
func (s *Session[W, K]) mark(ctx context.Context, w rollout.MarkPod) error {
	m := w.Member
	marked, err := s.Pods.Write(m.Pod, func() (*corev1.Pod, error) { return pods.Relabel(ctx, s.controller.client.CoreV1(), m.Pod, w.Label) })
	if s.RefusedLabels(m.Pod, err) {
		return nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.Notes.Look(s.Now(), marked)
	s.Notes.Note(m.Pod.UID).Relabel, s.marked = nil, true
	s.mu.Unlock()
	klog.FromContext(ctx).V(2).Info("Resized a pod", "pod", m.Name, "revision", w.Revision)
	s.RecordResized(m.Pod, "resized in place to revision "+w.Revision, "has the size of revision "+w.Revision+" already")
	return nil
}

// remove deletes a pod that only a new one can replace.
func (s *Session[W, K]) remove(ctx context.Context, w W, restart rollout.Restart) error {
	if err := pods.Delete(ctx, s.controller.client.CoreV1(), restart.Member.Pod); err != nil {
		return err
	}
	s.RecordRestart(w, restart, "deleted, because it needs a restart")
	return nil
}
