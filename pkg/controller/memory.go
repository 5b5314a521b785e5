package controller

import (
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// memory is what this controller remembers of a workload that is not at rest, and of its pods: what
// it has seen, and since when, what it has asked for, and what it was refused. It is small, where
// watches are not. So it stays when a session is put away for room: otherwise no deadline would run
// out where more workloads are held than are watched. A controller that is restarted remembers nothing.
type memory struct {
	workload types.UID
	mu       sync.Mutex // guards what writes on pods note: they are made in parallel

	// Of the pods, by their UID. What is noted of pods that are gone goes in forget, and nowhere else.

	// Evictions that were refused.
	Evictions *rollout.RefusalLog
	refused   *rollout.RefusalLog // sizes, by the API server
	full      *rollout.RefusalLog // restarts, for lack of room
	seen      *rollout.Sightings  // has each pod that anything is noted of
	contests  rollout.Contests
	asked     map[types.UID]request   // pods that have taken a size of ours, and lack it still
	displaced map[types.UID]displaced // sizes that others may put back
	recorded  map[types.UID]string    // the reason of the last wait that an event was recorded for

	// Of the workload.

	// History of former templates that was refused, by what has had the template.
	History    *rollout.RefusalLog
	retried    string           // the value of the retry annotation that was obeyed last
	progress   progress         // that events of the workload have told
	moved      movement         // towards the deadline
	waiting    map[string]int   // pods by the reason that they wait for
	others     sets.Set[string] // the field managers that resize the pods, too
	looseAfter time.Time        // until then the built-in controller is not let loose, because admission edited the template
	edits      *backoff.ExponentialBackOff
}

// request is what this controller has asked of a pod.
type request struct {
	changes string    // that the new size makes
	at      time.Time // when it was asked for, by our own clock
}

func newMemory(workload types.UID) *memory {
	return &memory{
		workload: workload, Evictions: rollout.NewRefusalLog(), History: rollout.NewRefusalLog(), refused: rollout.NewRefusalLog(), full: rollout.NewRefusalLog(),
		seen: &rollout.Sightings{}, contests: rollout.Contests{}, asked: map[types.UID]request{}, displaced: map[types.UID]displaced{}, recorded: map[types.UID]string{}, others: sets.Set[string]{},
	}
}

// retry forgets all refusals if the retry annotation has a new value, and reports whether it has.
// So everything that was refused, put off or left is tried again at once. If nothing is remembered,
// that concerns the kubelets only: it is not known what they were asked, and when.
func (m *memory) retry(value string) bool {
	if value == m.retried {
		return false
	}
	if m.retried = value; value == "" {
		return false
	}
	m.refused.Clear()
	m.full.Clear()
	m.Evictions.Clear()
	clear(m.contests)
	clear(m.recorded)
	m.seen.AskAgain()
	return true
}

// fewNotes are not worth looking for what can be forgotten.
const fewNotes = 100

// forget forgets what was noted of pods that are not there any more, when that is more than what is
// noted of those that are: a rollout may be in flight for as long as its workload is there.
func (m *memory) forget(there []*corev1.Pod) {
	if m.seen.Len() <= 2*len(there)+fewNotes {
		return
	}
	but := sets.Set[types.UID]{}
	for _, pod := range there {
		but.Insert(pod.UID)
	}
	for _, r := range []*rollout.RefusalLog{m.Evictions, m.refused, m.full} {
		r.Forget(but)
	}
	m.seen.Forget(but)
	rollout.Forget(m.contests, but)
	rollout.Forget(m.asked, but)
	rollout.Forget(m.displaced, but)
	rollout.Forget(m.recorded, but)
}
