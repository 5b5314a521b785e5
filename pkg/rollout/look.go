package rollout

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Look judges the pods of a workload, one by one, for one plan. If the facts have a [VerdictCache], a
// version of a pod is looked at once, and not again for each plan.
type Look struct {
	facts    Facts
	options  Options
	revision Revision
	place    func(index int, pod *corev1.Pod) (Place, error)
}

// Basis is what a look at any pod of a workload depends on, besides the facts.
type Basis struct {
	// Generation and Annotations of the workload.
	Generation  int64
	Annotations map[string]string
	// Condition that the workload has, or nil.
	Condition *StoredCondition
	// CacheKey is what else of the workload counts for its kind. It must be comparable.
	CacheKey any
}

// same reports whether a look depends on the same.
func (b Basis) same(other Basis) bool {
	return b.CacheKey == other.CacheKey && b.Generation == other.Generation && maps.Equal(b.Annotations, other.Annotations) && since(b.Condition) == since(other.Condition)
}

// since is what a rollout's begin is told from: see [Facts.Leftover].
func since(c *StoredCondition) StoredCondition {
	if c == nil {
		return StoredCondition{}
	}
	since := StoredCondition{Status: c.Status, LastTransitionTime: c.LastTransitionTime}
	if c.Pending() {
		since.Reason = c.Reason
	}
	return since
}

// Look returns what judges the pods of a workload, for a rollout to the revision. It reads the
// place of a pod, which may be nil, by place. Of the options, it needs what [Member.Judge]
// does.
func (f Facts) Look(basis Basis, options Options, revision Revision, place func(index int, pod *corev1.Pod) (Place, error)) *Look {
	l := &Look{facts: f, options: options, revision: revision, place: place}
	if f.Cache != nil {
		f.Cache.begin(basis, f.Places)
	}
	return l
}

// At returns the verdict on the pod at an index. The verdict is shared: do not change it.
func (l *Look) At(index int, pod *corev1.Pod) (*Verdict, error) {
	cache := l.facts.Cache
	if cache == nil || Gone(pod) {
		return l.judge(index, pod)
	}
	notes := l.facts.notesOf(pod.UID)
	if found := cache.found(pod, notes, l.facts.Now); found != nil && found.verdict != nil {
		return found.verdict, nil
	}
	verdict, err := l.judge(index, pod)
	if err != nil {
		return nil, err
	}
	until := verdict.Until
	if full := notes.full.Until; full.After(l.facts.Now) && (until.IsZero() || full.Before(until)) {
		until = full
	}
	cache.keep(pod, look{notes: notes, verdict: verdict, until: until})
	return verdict, nil
}

func (l *Look) judge(index int, pod *corev1.Pod) (*Verdict, error) {
	place, err := l.place(index, pod)
	if err != nil {
		return nil, err
	}
	verdict := l.facts.member(place, l.revision).Judge(l.options)
	if l.facts.Cache != nil {
		l.facts.Cache.fresh = append(l.facts.Cache.fresh, verdict)
	}
	return verdict, nil
}

// NonMember returns the pod, which is no member and may be nil, as one that takes a share of the
// limits all the same; nil if it takes none.
func (l *Look) NonMember(pod *corev1.Pod, place func() Place) *Member {
	cache := l.facts.Cache
	if cache == nil || Gone(pod) {
		return l.takesShare(place())
	}
	if found := cache.found(pod, notes{}, l.facts.Now); found != nil && found.verdict == nil {
		return found.nonMember
	}
	p := place()
	nonMember := l.takesShare(p)
	until := p.AvailableAt(l.options.MinReadySeconds)
	if looked := l.facts.kubelet(pod).Looked(pod); looked.After(l.facts.Now) && (until.IsZero() || looked.Before(until)) {
		until = looked
	}
	cache.keep(pod, look{nonMember: nonMember, until: until})
	return nonMember
}

func (l *Look) takesShare(place Place) *Member {
	if m := (Member{Place: place, Lost: l.facts.Places.Lost(place.Pod), Kubelet: l.facts.kubelet(place.Pod)}); m.TakesShare() {
		return &m
	}
	return nil
}

// VerdictCache is what was found of the pods of a workload, by the version of the pod. A look depends on
// nothing but the pod, what is noted of it, the basis, what the nodes and the limits have room
// for, and the time. So a plan is the same with it and without. Several goroutines must not use
// it at the same time.
type VerdictCache struct {
	basis  Basis
	places Places
	looks  map[types.UID]*look
	fresh  []*Verdict // that nobody has taken yet

	plan   int // counts the plans
	needed int // looks that the plan has needed so far
}

// look is what was found of one version of a pod.
type look struct {
	version   string
	notes     notes
	verdict   *Verdict  // nil if the pod is no member
	nonMember *Member   // the pod, if it is no member and takes a share of the limits
	until     time.Time // until when it holds; zero if nothing but a change ends it
	plan      int       // the last one that has needed it
}

// notes are what is noted of one pod besides what the API server stores.
type notes struct {
	refused, full Refusal
	contests      int
	seen          Sighting
}

func (f Facts) notesOf(pod types.UID) notes {
	return notes{f.Refused[pod], f.Full[pod], f.Contests[pod], f.Seen.Noted(pod)}
}

// begin begins another plan. Nothing is kept if the basis or the places are others. Looks that
// the last plan has not needed go when they are more than those that it has.
func (k *VerdictCache) begin(basis Basis, places Places) {
	same := k.places == places && k.basis.same(basis)
	switch {
	case !same:
		k.basis, k.places, k.looks = basis, places, map[types.UID]*look{}
	case len(k.looks) > 2*k.needed:
		maps.DeleteFunc(k.looks, func(_ types.UID, l *look) bool { return l.plan != k.plan })
	}
	k.plan++
	k.needed = 0
}

// found returns what was found of this version of the pod; nil if nothing, or it is not true any
// more. What was seen of its resize may have been noted since: that look has seen it.
func (k *VerdictCache) found(pod *corev1.Pod, now notes, at time.Time) *look {
	l := k.looks[pod.UID]
	if l == nil || l.version != pod.ResourceVersion || !l.until.IsZero() && !at.Before(l.until) {
		return nil
	}
	if l.verdict != nil && now.seen == l.verdict.Member.Sighting {
		now.seen = l.notes.seen
	}
	if now != l.notes {
		return nil
	}
	l.plan = k.plan
	k.needed++
	return l
}

func (k *VerdictCache) keep(pod *corev1.Pod, l look) {
	l.version, l.plan = pod.ResourceVersion, k.plan
	k.looks[pod.UID] = &l
	k.needed++
}

// TakeFresh returns the verdicts that are new since the last call.
func (k *VerdictCache) TakeFresh() []*Verdict {
	fresh := k.fresh
	k.fresh = nil
	return fresh
}
