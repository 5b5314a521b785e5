package judge

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// PodNotes are what a controller has noted of the pods of one workload, besides what the API server stores. A
// controller that is restarted has noted nothing. Nil, they are those of nobody, and may be read. The zero value
// is empty.
type PodNotes struct {
	// Foreseen: they are made for a forecast. Nobody has looked at the pods, or asks them for anything.
	Foreseen bool

	// Rested: the workload was Complete when somebody began to look, or until the edit that is rolled out. So each pod had proved its size.
	Rested bool

	// Helped: a pod that was overdue to be Ready has become so. What was done about it may help the next one, too.
	Helped bool

	pods  map[types.UID]*PodNote
	nodes map[string]nodeAnswers
	again bool // pods whose resize has not been seen yet may be asked again
}

// PodNote is what is noted of one pod.
type PodNote struct {
	// Size, Relabel, Room and Eviction are what it was refused: a size and other labels, by the API server; a restart, for
	// lack of room; and its eviction.
	Size, Relabel, Room, Eviction *Refused
	// Contests count how often a size that others have set was taken back.
	Contests int
	// Request that the pod has taken, as long as it lacks the size still; nil if there is none.
	Request *Request
	// Beside takes back what admission has changed beside our last resize: see [resize.Target.Beside].
	Beside []resize.Change
	// Displaced is what others may put back; nil if that is nothing.
	Displaced *Displaced
	// Trusted is the generation with which an event has told that the pod counts as resized though its kubelet does not show it.
	Trusted int64
	proving time.Time // see Proving
	away    time.Time // since when nobody looks at it; zero if somebody does
	Proved  string    // which size it has proved last, and in which rollout

	// Recorded is the reason of the last wait that an event was recorded for.
	Recorded string

	seen
}

// Request is what this controller has asked of a pod.
type Request struct {
	// Changes that the new size makes.
	Changes string
	// At is when it was asked for, by our own clock.
	At time.Time
}

// Displaced is what a pod was asked for instead of what somebody else had given it. If that was for a while, as for
// its start, they put back what the pod would have had without the edit. Where they leave a note of that on the pod,
// the rollout waits for it. Where they do not, the pods of the workload are watched for a while when the rollout is
// over: few workloads have such pods. A controller that is restarted does not know of it any more.
type Displaced struct {
	// Changes from what they put back to what the pod is to have.
	Changes []resize.Change
	until   time.Time // they are waited for; zero before the rollout is over
}

// maxContests bounds the contest over one pod in one rollout. So whoever sets a size again and
// again does not keep the rollout from its end.
const maxContests = 5

// ContestLost reports whether the contest over the pod is given up: what others have set stays.
func (n *PodNote) ContestLost() bool { return n.Contests >= maxContests }

// Displace notes what was displaced in the pod when it was asked last.
func (n *PodNote) Displace(changes []resize.Change) {
	if n.Displaced = nil; len(changes) > 0 {
		n.Displaced = &Displaced{Changes: changes}
	}
}

// blank is what is noted of a pod of which nothing is. Nothing is to be noted there.
var blank PodNote

// Of returns what is noted of a pod. It is not to be changed: see [PodNotes.Note].
func (n *PodNotes) Of(pod types.UID) *PodNote {
	if n != nil && n.pods[pod] != nil {
		return n.pods[pod]
	}
	return &blank
}

// Note returns what is noted of a pod, to note more.
func (n *PodNotes) Note(pod types.UID) *PodNote {
	note := n.pods[pod]
	if note == nil {
		if note = (&PodNote{}); n.pods == nil {
			n.pods = map[types.UID]*PodNote{}
		}
		n.pods[pod] = note
	}
	return note
}

// AskAgain has everything tried again at once that was refused, put off or left. Each pod is asked once more for
// What its kubelet has put off or refused, and the timeouts begin anew. That goes for pods that have not been seen yet,
// too: it is not known for what they were asked, or when.
func (n *PodNotes) AskAgain() {
	n.again, n.nodes = true, nil
	for _, note := range n.pods {
		note.Size, note.Relabel, note.Room, note.Eviction, note.Contests, note.Recorded = nil, nil, nil, nil, 0, ""
		note.askAgain()
	}
}

// Over notes that the rollout is over. The contests of the next one are others, and what was displaced is waited for
// until then.
func (n *PodNotes) Over(until time.Time) {
	for _, note := range n.pods {
		note.Contests = 0
		if d := note.Displaced; d != nil && d.until.IsZero() {
			d.until = until
		}
	}
}

// AwaitsDisplaced returns for how long what was displaced in any pod is waited for; 0 if nothing is. What is not waited for any
// more is forgotten.
func (n *PodNotes) AwaitsDisplaced(now time.Time) (longest time.Duration) {
	for _, note := range n.pods {
		if d := note.Displaced; d != nil && now.Before(d.until) {
			longest = max(longest, d.until.Sub(now))
		} else {
			note.Displaced = nil
		}
	}
	return longest
}

// fewNotes are not worth looking for what can be forgotten.
const fewNotes = 100

// Forget forgets what was noted of pods that are not there any more, when that is more than what is
// noted of those that are: a rollout may be in flight for as long as its workload is there.
func (n *PodNotes) Forget(there []*corev1.Pod) {
	if len(n.pods) <= 2*len(there)+fewNotes {
		return
	}
	but := sets.Set[types.UID]{}
	for _, pod := range there {
		but.Insert(pod.UID)
	}
	maps.DeleteFunc(n.pods, func(pod types.UID, _ *PodNote) bool { return !but.Has(pod) })
}
