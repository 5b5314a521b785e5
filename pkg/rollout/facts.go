package rollout

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Facts are what a plan is made from besides the workload and its pods. A plan only reads them.
type Facts struct {
	// Places that the nodes, and the limits of the namespace, have for pods.
	Places Places
	// Notes of the pods; nil if nobody has looked before.
	Notes *judge.PodNotes
	// Losses of the rollout; nil if nobody counts them.
	Losses *judge.Losses
	// Rejections of the rollout; nil if nobody counts them.
	Rejections *judge.Rejections
	// Annotations of the workload, and the Record of its guarded rollout; nil if there is none.
	Annotations map[string]string
	Record      *Record
	// Outcomes of the checks that the workload names; nil knows nothing.
	Outcomes Outcomes
	// Unanswerable returns why checks of these names can have no outcome; empty if they can. Nil knows nothing.
	Unanswerable func(names []string) string
	// Settings in force for the rollout.
	Settings policy.Settings
	// Defaults where the workload says nothing.
	Defaults policy.Defaults
	// Now is the time.
	Now time.Time
	// RoomUnknown is why a forecast does not know all that decides what room the nodes have; empty if it does.
	RoomUnknown string
	// VersionSince is since when this version of the workload has been seen, by our own clock; zero if that is not known.
	VersionSince time.Time
	// Admission is what is known of it for the template that pods are to be of: see [Facts.Knowing].
	Admission resize.Admission
	// Cache of what the plans before have found of the pods; nil caches nothing.
	Cache *VerdictCache
}

// Places answer what the nodes, and the limits of the namespace, have room for, of each pod by itself.
type Places interface {
	// Node returns the node of that name; nil if it is not known.
	Node(name string) *corev1.Node
	// Kubelet returns what is known of the kubelet of a pod, which may be nil.
	Kubelet(pod *corev1.Pod, now time.Time) resize.Kubelet
	// Lost returns why nothing is to be expected of the node of a pod, which may be nil; empty if it
	// is there.
	Lost(pod *corev1.Pod) string
	// Drained reports whether the node of a pod may be about to lose its pods: it is lost, or would not take this one now.
	Drained(pod *corev1.Pod) bool
	// Unsupported returns why the kubelet of the pod's node cannot resize it.
	Unsupported(place judge.Place) judge.Refusal
	// Barred returns why the API server would refuse a resize to a size that it may take for a new
	// pod; empty if it would not.
	Barred(place judge.Place) string
	// Unplaceable returns why the pod that a restart of this one brings has no place.
	Unplaceable(place judge.Place, now time.Time) judge.Refusal
	// TooLarge returns why no node could hold a pod that is made from the template; empty if one could.
	TooLarge(template *corev1.PodTemplateSpec) string
	// Filled returns what LimitRanges make of a new pod of the template; nil if that is nothing, or not known.
	Filled(template *corev1.PodTemplateSpec) *corev1.PodSpec
}

// Coming is a pod that the built-in controller has still to make.
type Coming struct {
	Template *corev1.PodTemplateSpec
	// Labels that it gets beside those of the template.
	Labels map[string]string
	// For is the pod in whose place it comes; nil if none is left.
	For *corev1.Pod
	// Refused is since when a quota of its namespace has not let in such a pod; zero if none keeps it out.
	Refused time.Time
}

// Burst is how many pods the built-in controllers make at a time for one workload (BurstReplicas in pkg/controller/replicaset, and
// MaxBatchSize in pkg/controller/statefulset of Kubernetes): what comes before the successor of a pod that is given up now. So of those
// that are to come, no more are listed: the others want room later, when somebody looks again. Of how many are missing, the count tells.
const Burst = 500

// Observation is one workload, as a plan is made from it.
type Observation interface {
	// Plan returns the next step of the rollout. It is a pure function.
	Plan(f Facts) (Plan, error)
	// Pods returns the workload's pods, and those that it has still to make.
	Pods() (there []*corev1.Pod, toCome []Coming)
	// LetLoose returns those that come in the places of pods that the built-in controller may take down by now.
	LetLoose() []Coming
	// Edit tells the edit that is rolled out from the one before.
	Edit() string
	// Replicas is how many pods the workload is to have.
	Replicas() int
	// Unwanted reports whether the built-in controller may have deleted a pod because these were there, and fewer are to be, or others.
	Unwanted(pod *corev1.Pod, there []*corev1.Pod) bool
	// MadeOfNewest reports whether a pod was made from the newest template.
	MadeOfNewest(pod *corev1.Pod) bool
}

// Plan reads the settings from the workload's annotations, and returns the next step that the
// observation makes of the facts. If the annotations are invalid, no pod is touched, and the
// plan's condition says why.
func (f Facts) Plan(o Observation, annotations map[string]string) (p Plan, err error) {
	f.Annotations = annotations
	f.Record, err = ReadRecord(annotations)
	known := err == nil
	if known {
		f.Settings, err = policy.InForce(annotations)
	}
	if err != nil {
		if p = (Plan{Condition: Invalid(err)}); !known { // nobody can mend it: admission keeps what it says
			p.Condition.Next = "Use a controller that can read it, or let go: `kubectl inplace-rollout release --stopped`"
		}
		if bounded, is := o.(Bounded); is && known {
			p = bounded.Bound(f, p)
		}
		return p, nil
	}
	p, err = o.Plan(f)
	p.Condition = p.Condition.Rejecting(f.Rejections.First())
	return p.recorded(f), err
}

// recorded returns the plan that writes the record of a guarded rollout, if that is another one: what it is about comes with the
// next plan, once it is stored. Only what keeps new pods from a size that is not proved comes before it.
func (p Plan) recorded(f Facts) Plan {
	after := p.record
	if f.Settings.Guard == nil {
		after = nil
	}
	if !p.records(f, after) {
		return p
	}
	p.Resize, p.MarkUpdated, p.Restart, p.Replaced = nil, nil, nil, nil
	p.Writes = slices.DeleteFunc(p.Writes, func(w Write) bool { g, is := w.(Guarding); return !is || !g.Guards() })
	p.Writes = append(p.Writes, Keep{Before: f.Record, After: after, Called: p.Condition.Version, Says: p.Condition.Message()})
	if p.Condition.Phase == PhaseOver { // it is said of the version that this write makes
		p.Condition = Condition{}
	}
	return p
}

// records reports whether that record is to be written, or is to go if it is nil. It goes with the hold
// or, under OnDelete, where it is said that the rollout is over.
func (p Plan) records(f Facts, after *Record) bool {
	ends := p.Condition.Phase == PhaseOver || slices.ContainsFunc(p.Writes, func(w Write) bool { _, is := w.(Release); return is })
	switch {
	case f.Record == nil && (after == nil || ends):
		return false
	case after == nil: // where the plan has looked at the pods, nothing is to be guarded
		return !ends && (f.Settings.Guard == nil || f.Record.Phase == PhasePending && len(p.Verdicts) > 0)
	case ends: // only that the canary is over
		return f.Record.Phase != PhasePending && f.Record.Phase != after.Phase
	case after.Stopped() && f.Record.Stopped() && len(p.Writes) > 0: // what goes back is about to change it again
		return false
	default:
		return after.String() != f.Annotations[api.RolloutAnnotation]
	}
}

// Bounded is an observation of a workload that others wait for, and not for ever, though its annotations
// are invalid.
type Bounded interface {
	// Bound returns the plan with the write that ends that, when it is time.
	Bound(f Facts, invalid Plan) Plan
}

// While the pods of a new workload come up, its status changes all the time, and a write that names its version fails.
// So it waits until the status has been quiet for settleTime: then the next pod takes long, or never comes. When all
// pods are available, there is little left to change. Others may write it again and again, so it waits for no longer than settleAtMost.
const (
	settleTime     = 2 * time.Second
	lastSettleTime = 500 * time.Millisecond
	settleAtMost   = time.Minute
)

// Settles returns for how long letting go of a new workload, which was made then, waits while its status changes; 0 if it does not. There
// is nothing to hurry for: its pods are made of the only template that there is, and it is not Complete before they are available.
func (f Facts) Settles(made metav1.Time, allAvailable bool) time.Duration {
	quiet := settleTime
	if allAvailable {
		quiet = lastSettleTime
	}
	return max(min(f.VersionSince.Add(quiet).Sub(f.Now), made.Add(settleAtMost).Sub(f.Now)), 0)
}

// Options returns what the settings and the defaults say about a rollout. The limits, the guard, the
// non-members, and a strategy other than RollingUpdate are left for the kind to set.
func (f Facts) Options() Options {
	lost := f.Losses.Why()
	doubt, from := f.Losses.Doubt()
	if f.Settings.Guard != nil { // which counts them itself, and knows which pods may be asked beside a canary
		lost, doubt, from = "", false, time.Time{}
	}
	return Options{
		Terms: judge.Terms{
			Strategy: policy.RollingUpdate, Action: f.Settings.Action, Lost: lost,
			DeferredTimeout: ptr.Deref(f.Settings.DeferredTimeout, f.Defaults.DeferredTimeout),
			ErrorTimeout:    f.Defaults.ErrorTimeout, BoosterTimeout: f.Defaults.BoosterTimeout, Now: f.Now,
		},
		Doubt: doubt, From: from, Rejected: f.Rejections.First(),
	}
}

// helpedTimeout is how long a pod may take to be Ready as a matter of course, such as for the restart of a container.
const helpedTimeout = 10 * time.Second

// ReadyTimeout is for how long the pods of a held workload are waited for to be Ready before its generation is shown: see
// [ShowGeneration]. Where that has helped one pod, the next ones need not wait as long. A canary must not fail before it.
func (f Facts) ReadyTimeout(options Options) time.Duration {
	timeout := options.ErrorTimeout
	if f.Notes != nil && f.Notes.Helped {
		timeout = min(timeout, helpedTimeout)
	}
	if options.Guard != nil && options.Guard.NotReadyTimeout > 0 {
		timeout = min(timeout, options.Guard.NotReadyTimeout/2)
	}
	return timeout
}

// Target returns the size that a pod, made from the older template, must have to be one of the
// newer. What somebody else sets again and again stays as it is.
func (f Facts) Target(pod *corev1.Pod, older, newer *corev1.PodTemplateSpec) (resize.Target, error) {
	wanted, err := resize.For(pod, older, newer)
	if err != nil || !f.Notes.Of(pod.UID).ContestLost() {
		return f.By(wanted, err)
	}
	left, err := resize.ForBut(pod, older, newer)
	left.Conceded = len(left.Changes) < len(wanted.Changes)
	return f.By(left, err)
}

// Whole is Target for a pod of which it is not known what it was made from.
func (f Facts) Whole(pod *corev1.Pod, older, newer *corev1.PodTemplateSpec) (resize.Target, error) {
	if f.Notes.Of(pod.UID).ContestLost() {
		return f.Target(pod, older, newer)
	}
	return f.By(resize.Whole(pod, older, newer))
}

// Knowing returns the facts with what admission gives to new pods of the template. It shows in the youngest of the pods that
// were made of it, or count as updated, and tell of it: such a pod has kept nothing that new ones lack. Without any, LimitRanges tell, and
// the youngest pod of another template. Of is the very template that a pod was made of, or counts as one of; nil if that is not known.
func (f Facts) Knowing(template *corev1.PodTemplateSpec, pods []*corev1.Pod, of func(*corev1.Pod) *corev1.PodTemplateSpec) Facts {
	a := resize.Admission{Filled: sync.OnceValue(func() *corev1.PodSpec { return f.Places.Filled(template) })}
	for _, pod := range pods {
		switch said := of(pod); {
		case said == nil, len(f.Notes.Of(pod.UID).Beside) > 0: // the second has what only a resize gets
		case said == template:
			a.Made.Add(pod, nil)
		default:
			a.Before.Add(pod, said)
		}
	}
	f.Admission = a
	return f
}

// By returns the target with what is known of its pod's kubelet, and of admission.
func (f Facts) By(t resize.Target, err error) (resize.Target, error) {
	if err != nil {
		return t, err
	}
	t = t.By(f.kubelet(t.Pod())).Knowing(f.Admission)
	if pod := t.Pod(); pod != nil && len(f.Notes.Of(pod.UID).Beside) > 0 {
		beside := f.Notes.Of(pod.UID).Beside
		if may, _ := f.Settings.Resolve(beside, &corev1.PodTemplateSpec{Spec: pod.Spec}, f.Defaults.ResizePolicy); may != policy.RestartOnly {
			t = t.Owing(beside)
		}
	}
	if answer, _ := t.Answer(); answer == resize.Unconfirmed {
		if seen := f.Notes.Sighted(t.Pod().UID); seen.Answer == answer && seen.Generation == t.Pod().Generation && !f.Now.Before(f.Notes.GivenUp(t.Pod(), seen, f.Defaults.ErrorTimeout)) {
			t = t.Trusting()
		}
	}
	return t, nil
}

// kubelet returns what is known of the kubelet of a pod, which may be nil, and since when it may know
// of the pod's spec.
func (f Facts) kubelet(pod *corev1.Pod) resize.Kubelet {
	k := f.Places.Kubelet(pod, f.Now)
	k.Patience = f.Defaults.ErrorTimeout
	if pod != nil && f.Notes != nil && !f.Notes.Foreseen {
		k.Asked = f.Notes.Specified(pod, f.Now)
	}
	return k
}

// Leftover returns the target that takes back what a pod that counts as updated has otherwise
// than the revision: what an edit that was given up has left and, while a rollout is under way,
// what others have set since it began. The condition, which may be nil, says when it did. Between
// edits others may resize pods.
//
// No pod is restarted for what others have set: they could make us do so again and again.
func (f Facts) Leftover(pod *corev1.Pod, revision Revision, c *StoredCondition, underWay bool) (resize.Target, error) {
	return f.Sized(pod, revision, revision.Template, c, underWay)
}

// Sized is Leftover for a pod that is to have the size of sized: a copy of the revision's template
// in which some values are others.
func (f Facts) Sized(pod *corev1.Pod, revision Revision, sized *corev1.PodTemplateSpec, c *StoredCondition, underWay bool) (resize.Target, error) {
	begun := underWay && c != nil && c.Status == corev1.ConditionFalse && c.Reason != judge.ReasonPending
	if !begun || f.Notes.Of(pod.UID).ContestLost() {
		return f.By(resize.Sized(pod, revision.Template, sized))
	}
	target, err := f.By(resize.SizedSince(pod, revision.Template, sized, c.LastTransitionTime.Add(-resize.ClockSkew)))
	if err != nil || !target.Overrules {
		return target, err
	}
	may, _ := f.Settings.Resolve(target.Effects, revision.Template, f.Defaults.ResizePolicy)
	if policy.Decide(may, f.Settings.Action, policy.RollingUpdate, resize.Unsent) != policy.Resize || len(target.Obstacles) > 0 || f.Losses.Why() != "" ||
		f.Notes.Of(pod.UID).Size.Of(revision.Size(target.Changes)).Final {
		return f.By(resize.Sized(pod, revision.Template, sized))
	}
	return target, nil
}

// Members returns the places with what the facts say of each, for a rollout to the revision.
func (f Facts) Members(places []judge.Place, revision Revision) []judge.Member {
	members := make([]judge.Member, len(places))
	for i, place := range places {
		members[i] = f.member(place, revision, nil)
	}
	return members
}

func (f Facts) member(place judge.Place, revision Revision, guard *Guard) judge.Member {
	m := judge.Member{Place: place, Refusal: place.Unborn, Lost: f.Places.Lost(place.Pod), Kubelet: f.kubelet(place.Pod), Policy: policy.LiveResizeable}
	if judge.Gone(place.Pod) {
		return m
	}
	note := f.Notes.Of(place.Pod.UID)
	if m.Relabel = note.Relabel.Last(); place.Differs != "" {
		return m
	}
	m.Sighting = f.Notes.Sighting(place, f.Now)
	switch {
	case m.Lost != "":
		m.Answered = time.Time{}
	case m.Answer == resize.Unconfirmed || m.Answer == resize.Unanswered:
		m.GivenUp = f.Notes.GivenUp(place.Pod, m.Sighting, f.Defaults.ErrorTimeout)
	}
	rememberHow(&m, guard, f.Now)
	m.Policy, m.Why = f.Settings.Resolve(place.Target.Effects, revision.Template, f.Defaults.ResizePolicy)
	if f.Defaults.BoosterTimeout > 0 {
		m.PutBack = resize.Describe(place.Target.PutBack(revision.Template))
	}
	size := revision.Size(place.Target.Changes)
	m.Refusal = note.Size.Of(size)
	full := note.Room.Of(size)
	if place.Updated { // it may have to go all the same, with others
		if f.Now.Before(full.Until) {
			m.Unplaceable = full
		}
		return m
	}
	if unsupported := f.Places.Unsupported(place); unsupported.Reason != "" {
		m.Refusal = unsupported
	}
	m.Barred = f.Places.Barred(place)
	m.Unplaceable = f.Places.Unplaceable(place, f.Now)
	if m.Unplaceable.Reason == "" && f.Now.Before(full.Until) {
		m.Unplaceable = full
	}
	return m
}

// rememberHow notes how the pod of a guarded rollout was when it was asked for its size.
func rememberHow(m *judge.Member, guard *Guard, now time.Time) {
	if guard == nil {
		return
	}
	tried, since := guard.Record.tried(), m.Target.Resized
	if !tried.IsZero() && tried.Before(since) {
		since = tried
	}
	m.Cure = m.Cure || m.Before == nil && judge.DownBefore(m.Pod, since)
	m.Before = m.Before.Of(m.Pod, m.State, m.Target.Resized, now, tried)
	if c := guard.Record.canary(m.Pod.UID); c != nil {
		m.Cure, m.Before = c.Unready, c.health(m.Target.Resized)
	}
}

// Live reports whether the pod of a place gets its size, or has it, without a restart, as far as
// the facts say.
func (f Facts) Live(place judge.Place, options Options, revision Revision) bool {
	decision := f.Members([]judge.Place{place}, revision)[0].Judge(options.Terms).Decision
	return decision == policy.Resize || decision == policy.Wait || decision == policy.MarkUpdated
}
