package rollout

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// Look judges the pods of a workload, one by one, for one plan. If the facts have a cache, a version of
// a pod is judged once, and not again for each plan.
type Look struct {
	facts    Facts
	options  Options
	revision Revision
	place    func(index int, pod *corev1.Pod) (judge.Place, error)
	cached   map[types.UID]*look // of the plans before
	order    []*look             // of the last one, in its order, which is often the same
	found    *Found              // nil if nothing is to be kept
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

	lost string // see [Options.Lost]
}

// same reports whether a look depends on the same.
func (b Basis) same(other Basis) bool {
	return b.CacheKey == other.CacheKey && b.lost == other.lost && b.Generation == other.Generation && maps.Equal(b.Annotations, other.Annotations) && since(b.Condition) == since(other.Condition)
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
func (f Facts) Look(basis Basis, options Options, revision Revision, place func(index int, pod *corev1.Pod) (judge.Place, error)) *Look {
	l := &Look{facts: f, options: options.undoing(), revision: revision, place: place}
	basis.lost = options.Lost
	if f.Cache != nil {
		l.found = &Found{basis: basis, places: f.Places, needed: make([]*look, 0, len(f.Cache.looks))}
		if f.Cache.holds(l.found) {
			l.cached, l.order = f.Cache.looks, f.Cache.order
		}
	}
	return l
}

// Found returns what the look has found so far, for [VerdictCache.Keep]; nil if the facts have no cache.
func (l *Look) Found() *Found { return l.found }

// At returns the verdict on the pod at an index. The verdict is shared: do not change it.
func (l *Look) At(index int, pod *corev1.Pod) (*judge.Verdict, error) {
	if l.found == nil || judge.Gone(pod) {
		return l.judge(index, pod)
	}
	if found := l.before(pod); found != nil && found.verdict != nil && l.facts.stillNoted(found) {
		l.found.needed = append(l.found.needed, found)
		return found.verdict, nil
	}
	notes := l.facts.notesOf(pod)
	verdict, err := l.judge(index, pod)
	if err != nil {
		return nil, err
	}
	until := verdict.Until
	if full := notes.room.Until; full.After(l.facts.Now) && (until.IsZero() || full.Before(until)) {
		until = full
	}
	l.keep(pod, look{notes: notes, verdict: verdict, until: until})
	return verdict, nil
}

func (l *Look) judge(index int, pod *corev1.Pod) (*judge.Verdict, error) {
	place, err := l.place(index, pod)
	if err != nil {
		return nil, err
	}
	return l.facts.member(place, l.revision, l.options.Guard).Judge(l.options.Terms), nil
}

// NonMember returns the pod, which is no member and may be nil, as one that takes a share of the
// limits all the same; nil if it takes none.
func (l *Look) NonMember(pod *corev1.Pod, place func() judge.Place) *judge.Member {
	if l.found == nil || judge.Gone(pod) {
		return l.takesShare(place())
	}
	if found := l.before(pod); found != nil && found.verdict == nil {
		l.found.needed = append(l.found.needed, found)
		return found.nonMember
	}
	p := place()
	nonMember := l.takesShare(p)
	until, kubelet := p.AvailableAt(l.options.MinReadySeconds), l.facts.kubelet(pod)
	for _, at := range []time.Time{kubelet.Looked(pod), kubelet.Overdue(pod)} {
		if nonMember != nil && at.After(l.facts.Now) && (until.IsZero() || at.Before(until)) {
			until = at
		}
	}
	l.keep(pod, look{nonMember: nonMember, until: until})
	return nonMember
}

// before returns what a plan before has found of this version of the pod; nil if nothing, or it is not
// true any more.
func (l *Look) before(pod *corev1.Pod) *look {
	var found *look
	if at := len(l.found.needed); at < len(l.order) && l.order[at].pod == pod.UID {
		found = l.order[at]
	} else {
		found = l.cached[pod.UID]
	}
	if found == nil || found.version != pod.ResourceVersion || !found.until.IsZero() && !l.facts.Now.Before(found.until) {
		return nil
	}
	return found
}

func (l *Look) keep(pod *corev1.Pod, found look) {
	found.pod, found.version = pod.UID, pod.ResourceVersion
	l.found.needed, l.found.fresh = append(l.found.needed, &found), append(l.found.fresh, &found)
}

func (l *Look) takesShare(place judge.Place) *judge.Member {
	if m := (judge.Member{Place: place, Lost: l.facts.Places.Lost(place.Pod), Kubelet: l.facts.kubelet(place.Pod)}); m.TakesShare() {
		return &m
	}
	return nil
}

// VerdictCache has what was found of the pods of a workload, by the version of the pod. A look depends
// on nothing but the pod, what is noted of it, the basis, what the nodes and the limits have room
// for, and the time. So a plan is the same with it and without. A plan only reads it.
type VerdictCache struct {
	basis  Basis
	places Places
	looks  map[types.UID]*look
	order  []*look // that the last plan has needed
}

// Found is what a plan has found of the pods.
type Found struct {
	basis  Basis
	places Places
	needed []*look // all that the plan rests on
	fresh  []*look // those of them that the cache does not have
}

// look is what was found of one version of a pod.
type look struct {
	pod       types.UID
	version   string
	notes     notes
	verdict   *judge.Verdict // nil if the pod is no member
	nonMember *judge.Member  // the pod, if it is no member and takes a share of the limits
	until     time.Time      // until when it holds; zero if nothing but a change ends it
}

// notes are what was noted of one pod when it was judged, as far as its verdict rests on it.
type notes struct {
	size, relabel, room judge.Refusal
	contests            int
	known               judge.Known
}

func (f Facts) notesOf(pod *corev1.Pod) notes {
	note := f.Notes.Of(pod.UID)
	return notes{note.Size.Last(), note.Relabel.Last(), note.Room.Last(), note.Contests, f.Notes.Known(pod, f.Now)}
}

// stillNoted reports whether nothing else is noted of the pod than when it was judged, and what was seen of its resize
// then. If that is not noted, it is seen anew, and since now.
func (f *Facts) stillNoted(l *look) bool {
	was, note := &l.notes, f.Notes.Of(l.pod)
	if note.Size.Last() != was.size || note.Relabel.Last() != was.relabel || note.Room.Last() != was.room || note.Contests != was.contests ||
		f.Notes.Known(l.verdict.Member.Pod, f.Now) != was.known {
		return false
	}
	return l.verdict.Member.Differs != "" || f.Notes.Sighted(l.pod) == l.verdict.Member.Sighting
}

// holds reports whether what is cached rests on the same.
func (c *VerdictCache) holds(found *Found) bool {
	return c.places == found.places && c.basis.same(found.basis)
}

// Keep keeps what a plan has found, which may be nil. What rests on something else goes, and so does what
// the plan has not needed, when that is more than what it has.
func (c *VerdictCache) Keep(found *Found) {
	if found == nil {
		return
	}
	add := found.fresh
	if c.looks == nil || !c.holds(found) || len(c.looks)+len(found.fresh) > 2*len(found.needed) {
		c.basis, c.places, c.looks, add = found.basis, found.places, map[types.UID]*look{}, found.needed
	}
	for _, l := range add {
		c.looks[l.pod] = l
	}
	c.order = found.needed
}

// Fresh returns the verdicts that the plan was the first to make; none if found is nil.
func (found *Found) Fresh() []*judge.Verdict {
	var fresh []*judge.Verdict
	if found == nil {
		return nil
	}
	for _, l := range found.fresh {
		if l.verdict != nil {
			fresh = append(fresh, l.verdict)
		}
	}
	return fresh
}
