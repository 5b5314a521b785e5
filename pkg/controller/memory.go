package controller

import (
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// memory is what this controller remembers of a workload that is not at rest, and of its pods: what
// it has seen, and since when, what it has asked for, and what it was refused. It is small, where
// watches are not. So it stays when a session is put away for room: otherwise no deadline would run
// out where more workloads are held than are watched. A controller that is restarted remembers nothing.
type memory struct {
	workload types.UID
	mu       sync.Mutex // guards what writes on pods note: they are made in parallel
	underWay bool       // a kubelet was asked for a size since the last look
	marked   bool       // a pod was marked since then

	// Notes of its pods. While writes are made, mu guards them, too.
	Notes *judge.PodNotes

	// Of the workload.

	// History of former templates that was refused, by what has had the template.
	History judge.RefusalLog
	// Reached is how far a StatefulSet under OnDelete has come.
	Reached Reached
	// Due is since when, by our own clock, it has been the turn of an empty place of a StatefulSet, by its index.
	Due        map[int]time.Time
	started    string           // what an event has told that it is rolled out
	retried    string           // the value of the retry annotation that was obeyed last
	checks     bool             // are asked about pods
	losses     judge.Losses     // pods that others have deleted soon after their resize
	progress   progress         // that events of the workload have told
	moved      movement         // towards the deadline
	waiting    map[string]int   // pods by the reason that they wait for
	others     sets.Set[string] // the field managers that resize the pods, too
	looseAfter time.Time        // until then the built-in controller is not let loose, because admission edited the template
	edits      *backoff.ExponentialBackOff
	rejections judge.Rejections
}

// Reached is how many pods have got their size, at most, and since when, by our own clock. A pod that goes and comes back is no news.
type Reached struct {
	Of      string // what they are to get
	Updated int
	Since   time.Time
}

func newMemory(workload types.UID) *memory {
	return &memory{workload: workload, Notes: &judge.PodNotes{}, History: judge.RefusalLog{}, others: sets.Set[string]{}}
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
	m.Notes.AskAgain()
	return true
}
