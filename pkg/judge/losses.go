package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/pkg/plural"
)

// lossTime is how soon after its resize a pod has to be deleted to count as lost by it. Whoever deletes pods because
// they were resized, such as Kueue, does so when its watch shows the resize, and half a minute later if it was just
// being replaced itself. What is deleted later may be so for any reason.
const lossTime = time.Minute

// MaxLosses is how many pods a rollout may lose so. One may be a coincidence, and two in a cluster where much goes on.
const MaxLosses = 3

// Losses are the pods of one rollout that others have deleted soon after their resize. The pods that come in their places
// have the old size, and would be resized and deleted again. So they count for the rollout, and not for each pod. A
// controller that is restarted counts anew, unless the condition says already that the rollout goes no further. The zero
// value is of no rollout yet.
type Losses struct {
	edit    string        // the edit that is rolled out, and the last time that its user had it tried again
	before  []*corev1.Pod // that the last look has found, but those about to go
	asked   map[types.UID]*request
	lost    []Lost
	doubt   time.Time // since when no pod that was asked then has outlived the lost ones; zero if one has
	said    bool      // the condition said it when the controller began
	unasked sets.Set[types.UID]
	surplus sets.Set[types.UID] // that have gone because there were too many
}

// request is a pod that was asked for its size a moment ago.
type request struct {
	pod *corev1.Pod // as it was seen last
	at  time.Time
}

// Lost is a pod that others have deleted soon after its resize.
type Lost struct {
	// Pod as it was seen last.
	Pod *corev1.Pod
	// After is how long after it was asked for its size.
	After time.Duration
}

// String is What, with the name of the pod.
func (l Lost) String() string { return l.Pod.Name + " " + l.What() }

// What says what has become of the pod, and what its conditions say of that.
func (l Lost) What() string {
	what := fmt.Sprintf("was deleted %s after its resize", max(l.After.Round(time.Second), time.Second))
	for _, c := range l.Pod.Status.Conditions {
		if slices.Contains(Terminations, c.Type) && c.Status == corev1.ConditionTrue {
			what += fmt.Sprintf(", %s %s: %s", c.Type, c.Reason, c.Message)
		}
	}
	return what
}

// Terminations are the conditions of pods that say why they are deleted. The second one is Kueue's.
var Terminations = []corev1.PodConditionType{corev1.DisruptionTarget, "TerminationTarget"}

// Begin begins with another rollout, if it is one. Said: the workload's condition says already that it goes no further, and its user
// has not had it tried again since that was written.
func (l *Losses) Begin(edit string, said bool) {
	if l.edit != edit {
		*l = Losses{edit: edit, said: said && l.edit == ""}
	}
}

// ToAsk notes that these pods are to be asked for their size next.
func (l *Losses) ToAsk(pods ...types.UID) { l.unasked = l.unasked.Union(sets.New(pods...)) }

// Unasked reports whether a pod was to be asked for its size, and was not: if it is gone, the size has not lost it. A controller that is
// restarted does not know it.
func (l *Losses) Unasked(pod types.UID) bool { return l != nil && l.unasked.Has(pod) }

// Asked notes that a pod was asked for its size.
func (l *Losses) Asked(pod *corev1.Pod, at time.Time) {
	l.unasked.Delete(pod.UID)
	if l.asked == nil {
		l.asked = map[types.UID]*request{}
	}
	l.asked[pod.UID] = &request{pod, at}
}

// Spare notes that we have a pod restarted: it is not lost to others.
func (l *Losses) Spare(pod *corev1.Pod) {
	if pod != nil {
		delete(l.asked, pod.UID)
	}
}

// onProbation reports whether a pod that was asked so long ago has still to show that it outlives the doubt.
func (l *Losses) onProbation(after time.Duration) bool {
	return !l.doubt.IsZero() && after <= l.probation()
}

// Misses reports whether a pod that was asked a moment ago is gone, or goes: See would ask why.
func (l *Losses) Misses(there []*corev1.Pod) bool {
	left := 0
	for _, pod := range there {
		if l.asked[pod.UID] != nil && pod.DeletionTimestamp == nil {
			left++
		}
	}
	return left < len(l.asked)
}

// Surplus reports whether a pod is gone that was one too many. A controller that is restarted does not know it.
func (l *Losses) Surplus(pod types.UID) bool { return l != nil && l.surplus.Has(pod) }

// See looks at the pods that are there, and returns which have been lost since the last look. Unwanted reports whether a pod may have gone
// because these were too many before, and drained whether its node may have lost it. One that its kubelet has ended was not deleted.
func (l *Losses) See(there []*corev1.Pod, unwanted func(pod *corev1.Pod, before []*corev1.Pod) bool, drained func(*corev1.Pod) bool, now time.Time) (fresh []Lost) {
	l.note(there, unwanted)
	if len(l.asked) == 0 {
		return nil
	}
	left := make(map[types.UID]bool, len(l.asked))
	for _, pod := range there {
		if r := l.asked[pod.UID]; r != nil {
			r.pod, left[pod.UID] = pod, pod.DeletionTimestamp == nil
		}
	}
	for uid, r := range l.asked {
		after := now.Sub(r.at)
		phase := r.pod.Status.Phase
		followed := phase != corev1.PodFailed && phase != corev1.PodSucceeded && after < lossTime
		if left[uid] && (followed || l.onProbation(after)) {
			continue
		}
		delete(l.asked, uid)
		if followed && !l.surplus.Has(uid) && !drained(r.pod) {
			fresh = append(fresh, Lost{r.pod, after})
		}
	}
	if l.outlived(now) {
		l.doubt = time.Time{}
	}
	slices.SortFunc(fresh, func(a, b Lost) int { return strings.Compare(a.Pod.Name, b.Pod.Name) })
	l.lost = append(l.lost, fresh...)
	if len(fresh) > 0 {
		l.doubt = now
	}
	return fresh
}

// note notes which pods are there, and which have gone since the last look because they were too many.
func (l *Losses) note(there []*corev1.Pod, unwanted func(pod *corev1.Pod, before []*corev1.Pod) bool) {
	before := l.before
	l.before = slices.DeleteFunc(slices.Clone(there), Gone)
	stays := sets.New[types.UID]()
	for _, pod := range l.before {
		stays.Insert(pod.UID)
	}
	for _, pod := range before {
		if stays.Has(pod.UID) || !unwanted(pod, before) {
			continue
		}
		if l.surplus == nil {
			l.surplus = sets.New[types.UID]()
		}
		l.surplus.Insert(pod.UID)
	}
}

// outlived reports whether a pod that was asked since the last loss has outlived the lost ones.
func (l *Losses) outlived(now time.Time) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(l.asked)), func(r *request) bool {
		return !r.at.Before(l.doubt) && !now.Before(r.at.Add(l.probation()))
	})
}

// probation is for how long a pod has to live on after its resize to have outlived the lost ones: twice as long as any of them, as
// who deletes them needs a different time for each.
func (l *Losses) probation() (longest time.Duration) {
	for _, lost := range l.All() {
		longest = max(longest, 2*lost.After)
	}
	return longest
}

// Doubt reports whether only one pod at a time is asked for its size, and from when on: some were lost, and what comes in their
// places, or is next, would be asked and lost before that is seen of those that were asked last.
func (l *Losses) Doubt() (doubt bool, from time.Time) {
	if l == nil || l.doubt.IsZero() {
		return false, from
	}
	for _, r := range l.asked {
		if at := r.at.Add(l.probation()); at.After(from) {
			from = at
		}
	}
	return true, from
}

// All returns what has been lost so far.
func (l *Losses) All() []Lost {
	if l == nil {
		return nil
	}
	return l.lost
}

// Why returns why no further pod is asked for its size; empty if more may be.
func (l *Losses) Why() string {
	switch {
	case l == nil || !l.said && len(l.lost) < MaxLosses:
		return ""
	case len(l.lost) == 0:
		return "pods of this rollout were deleted soon after their resize"
	default:
		last := strings.ReplaceAll(l.lost[len(l.lost)-1].String(), "; ", ", ")
		return fmt.Sprintf("%s were deleted soon after their resize, the last: %s", plural.Of(len(l.lost), "pod"), last)
	}
}
