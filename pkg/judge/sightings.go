package judge

import (
	"cmp"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// seen is how a pod has been seen, and since when, by our own clock. The clocks of the kubelet and
// the API server may be wrong by minutes, and what is known by one clock must not be compared with
// another one. A controller that was restarted has seen nothing yet, and waits for longer.
type seen struct {
	first
	resize  Sighting
	judged  bool // a verdict has rested on the sighting of its resize
	overdue bool // and found it overdue to be Ready
}

// first is when a pod was first seen with its label of a revision, and with its spec.
type first struct {
	label      string
	labelled   time.Time
	generation int64
	specified  time.Time
}

// Look notes pods that are looked at now.
func (n *PodNotes) Look(now time.Time, pods ...*corev1.Pod) {
	for _, pod := range pods {
		note := n.Note(pod.UID)
		note.first = note.look(pod, now)
	}
}

// See notes the sightings of resizes that the verdicts rest on.
func (n *PodNotes) See(verdicts []*Verdict) {
	for _, v := range verdicts {
		m := &v.Member
		if !Gone(m.Pod) && m.Differs == "" {
			note := n.Note(m.Pod.UID)
			n.Helped = n.Helped || note.overdue && podutils.IsPodReady(m.Pod)
			note.resize, note.judged, note.overdue = m.Sighting, true, v.Overdue
			n.answers(v)
		}
	}
}

// Prove notes since when the pods that were looked at have the size of a guarded rollout, and have not proved it; and which have.
func (n *PodNotes) Prove(verdicts []*Verdict, since map[types.UID]time.Time, proved map[types.UID]string, now time.Time) {
	n.LookAway(now)
	for _, v := range verdicts {
		if pod := v.Member.Pod; pod != nil {
			note := n.Note(pod.UID)
			note.proving, note.away, note.Proved = since[pod.UID], time.Time{}, cmp.Or(proved[pod.UID], note.Proved)
		}
	}
}

// LookAway notes that nobody looks at the pods from now on, as where the generation is not observed, or a raised partition keeps some back.
// That time counts against none.
func (n *PodNotes) LookAway(now time.Time) {
	for _, note := range n.pods {
		if note.away.IsZero() {
			note.away = now
		}
	}
}

// Proving returns since when the pod has a size that is guarded, and has not proved it, without the time in which nobody looked; zero if
// it is not so.
func (n *PodNote) Proving(now time.Time) time.Time {
	if n.proving.IsZero() || n.away.IsZero() {
		return n.proving
	}
	return n.proving.Add(now.Sub(n.away))
}

// Asked notes that the pod was asked for its size, and whether that can only do it good.
func (n *PodNotes) Asked(m Member, now time.Time) {
	if note := n.pods[m.Pod.UID]; note != nil && note.judged {
		note.resize.Cure, note.resize.Again = m.Cures(), false
		if before := note.resize.Before; before != nil && len(m.Target.Changes) > 0 {
			note.resize.Before = &Health{Past: PastOf(m.Pod, now, before.tried), Asked: now}
			note.resize.Cure = note.resize.Cure && note.resize.Before.Unready
		}
	}
}

// askAgain has the pod asked once more, and its timeouts begin anew.
func (s *seen) askAgain() {
	if s.judged {
		s.resize.Generation, s.resize.Deferral, s.resize.Again = -1, Deferral{}, true
	}
}

// NotAgain notes that the pod is not to be asked once more: the API server does not take that.
func (n *PodNotes) NotAgain(pod types.UID) { n.Note(pod).resize.Again = false }

// Sighted returns what is noted of the resize of a pod.
func (n *PodNotes) Sighted(pod types.UID) Sighting {
	switch note := n.Of(pod); {
	case note.judged:
		return note.resize
	case n != nil:
		return Sighting{Again: n.again}
	default:
		return Sighting{}
	}
}

// Sighting returns what is seen of the resize of the pod of a place now, and since when. The place must have
// a pod. The sighting is zero if nobody looks.
func (n *PodNotes) Sighting(place Place, now time.Time) Sighting {
	if n == nil || n.Foreseen {
		return Sighting{}
	}
	state, _ := place.Target.Observe()
	seen := n.Sighted(place.Pod.UID)
	if answer, _ := place.Target.Answer(); seen.Answered.IsZero() || seen.Generation != place.Pod.Generation || seen.Answer != answer {
		seen.Answer, seen.Answered = answer, now
	}
	// InProgress does not begin anew: the kubelet may come to say again what it said before.
	spell := seen.Spell
	if state == resize.Unready {
		seen.Spell = readyOrNotSince(place.Pod)
	}
	if seen.Since.IsZero() || seen.Generation != place.Pod.Generation || seen.State != state && state != resize.InProgress || !spell.Equal(seen.Spell) {
		seen.Generation, seen.State, seen.Since = place.Pod.Generation, state, now
	}
	if state == resize.Deferred {
		seen.Deferral = seen.Deferral.of(place.Pod, seen.Since)
		seen.Since = seen.Deferral.Since
	}
	// A pod that is to have another size now has yet to prove the one that it has.
	well := state == resize.Actuated || len(place.Target.Changes) > 0 && place.Target.Settled()
	seen.Proof = n.proof(seen.Proof, place, well, now)
	return seen
}

// proof returns the proof of a pod's size as it is now. Since when the pod has the size with which it came to this rollout, API server
// and kubelet tell. Their clocks may differ from ours: then it proves it once more, or a pod that was asked at once by a controller that
// has died before it wrote the condition proves it for less.
func (n *PodNotes) proof(before Proof, place Place, well bool, now time.Time) Proof {
	proof := before.Of(place.Pod, well, now)
	if !well || !n.Rested || !before.Since.IsZero() || n.Of(place.Pod.UID).judged {
		return proof
	}
	if told := toldSince(place.Pod, place.Target); told.Before(now) {
		proof.Since = told
	}
	return proof
}

// Of returns the deferral of a pod that has been seen Deferred for its present size since then. A size that asks for less than the
// one before may have room where that had none.
func (d Deferral) of(pod *corev1.Pod, since time.Time) Deferral {
	asks := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	now := Deferral{CPU: asks.Cpu().MilliValue(), Memory: asks.Memory().Value(), Since: since}
	if at := saidSince(pod, corev1.PodResizePending); !at.IsZero() {
		now.Transition = at.Unix()
	}
	if now.Transition != 0 && now.Transition == d.Transition && now.CPU >= d.CPU && now.Memory >= d.Memory {
		now.Since = d.Since
	}
	return now
}

// saidSince is since when the kubelet says of a resize that it is pending, or in progress, by its clock; zero if it does not say so.
func saidSince(pod *corev1.Pod, says corev1.PodConditionType) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == says {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// Relabelled returns when we gave the last of those of the pods that count the label of a revision
// which they have, by the clock of the API server, and since when that is known, by our own. Both
// are zero if there is none. Watched pods do not say so: see [Relabelled].
func (n *PodNotes) Relabelled(all []*corev1.Pod, counts func(*corev1.Pod) bool, now time.Time) (last, known time.Time) {
	for _, pod := range all {
		at := Relabelled(pod)
		if at.IsZero() || !counts(pod) {
			continue
		}
		if at.After(last) {
			last = at
		}
		if seen := n.first(pod, now).labelled; seen.After(known) {
			known = seen
		}
	}
	return last, known
}

// Relabelled returns when a write of ours, such as a label of a revision, last changed the pod itself, by
// the clock of the API server. It is zero if managedFields have no such write. Watched pods
// never have: their managedFields are stripped in pkg/pods.
func Relabelled(pod *corev1.Pod) time.Time {
	var last time.Time
	for _, entry := range pod.ManagedFields {
		if entry.Manager == api.FieldManager && entry.Subresource == "" && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// Specified returns since when the pod has been seen with its spec, if it is looked at now.
func (n *PodNotes) Specified(pod *corev1.Pod, now time.Time) time.Time {
	return n.first(pod, now).specified
}

// first returns what is to be noted of a pod that is looked at now.
func (n *PodNotes) first(pod *corev1.Pod, now time.Time) first { return n.Of(pod.UID).look(pod, now) }

// look returns what is to be noted of a pod that is looked at now, of which that much was noted before.
func (is first) look(pod *corev1.Pod, now time.Time) first {
	known := !is.labelled.IsZero()
	if label := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; !known || is.label != label {
		is.label, is.labelled = label, now
	}
	if !known || is.generation != pod.Generation {
		is.generation, is.specified = pod.Generation, now
	}
	return is
}
