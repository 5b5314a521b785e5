package workload

import (
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/live"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Session is what is kept of one workload while its rollout is in flight: a cache,
// which can be lost at any time.
type Session[X any] struct {
	// Pods of the workload's selector.
	Pods *live.Watch[*corev1.Pod]
	// Refusals by the API server.
	Refusals Refusals
	// Crowded are pods for whose replacements no node had room.
	Crowded Refusals
	// Seen is what has been seen of the pods' resizes.
	Seen *Sightings
	// Contests are those over pods that somebody else resizes too.
	Contests Contests
	// Own is what only this kind of workload keeps.
	Own X

	others sets.Set[string] // who they are

	limits     capacity.Limits // of the namespace
	limitsRead time.Time

	workload types.UID
	retried  string               // what the workload said last of trying again
	asked    map[types.UID]string // pods that have taken a size of ours, and what that changes
	told     map[types.UID]string // the reason of the last wait of a pod that an event told of
	waiting  map[string]int       // pods by the reason that they wait for
	edited   time.Time            // until then nothing is let go, because admission edited the template when it was
	edits    *backoff.ExponentialBackOff
	stop     func()
}

// Retry has everything tried again at once that was refused, put off or left, if the
// workload says so anew: what was kept of it is forgotten. It returns true then. A new
// session has nothing to forget, but does not know what kubelets were asked, and when.
func (s *Session[X]) Retry(w metav1.Object) bool {
	says := w.GetAnnotations()[api.RetryAnnotation]
	if says == s.retried {
		return false
	}
	if s.retried = says; says == "" {
		return false
	}
	clear(s.Refusals)
	clear(s.Crowded)
	clear(s.Contests)
	clear(s.told)
	s.limitsRead = time.Time{}
	s.Seen.askAgain()
	return true
}

// Resized tells, once, whether the pod has taken a size from this controller, and what
// that has changed. A controller that is restarted meanwhile says no: it cannot tell.
func (s *Session[X]) Resized(pod types.UID) (changes string, is bool) {
	changes, is = s.asked[pod]
	delete(s.asked, pod)
	return changes, is
}

// count keeps what pods wait for, for the metrics.
func (s *Session[X]) count(mu sync.Locker, waits []rollout.Wait) {
	count := map[string]int{}
	for _, wait := range waits {
		if wait.Member.Pod != nil {
			count[wait.Reason]++
		}
	}
	mu.Lock()
	defer mu.Unlock()
	s.waiting = count
}

// Refusals by pod.
type Refusals map[types.UID]*Refusal

// Refusal is why one pod cannot have one size now.
type Refusal struct {
	rollout.Refusal
	// Size that was asked for.
	Size string
	// Backoff gives the times between tries.
	Backoff *backoff.ExponentialBackOff
}

// Of returns the refusal of this size for this pod, if there is one.
func (r Refusals) Of(pod types.UID, size string) rollout.Refusal {
	if refusal := r[pod]; refusal != nil && refusal.Size == size {
		return refusal.Refusal
	}
	return rollout.Refusal{}
}

// MaxAskInterval bounds how long a refused size is not asked for again, and so how
// long after its obstacle is gone a rollout goes on: nothing tells of a larger quota.
const MaxAskInterval = 30 * time.Second

// Keep keeps a refusal and doubles the time until the pod's size is asked for
// again, from a second to MaxAskInterval.
func (r Refusals) Keep(pod types.UID, size string, said rollout.Refusal, now time.Time) {
	refusal := r[pod]
	if refusal == nil || refusal.Size != size {
		refusal = &Refusal{Size: size, Backoff: NewBackoff()}
		r[pod] = refusal
	}
	if said.Since = refusal.Since; refusal.Kind != said.Kind {
		said.Since = now
	}
	said.Until = now.Add(refusal.Backoff.NextBackOff())
	refusal.Refusal = said
}

// NewBackoff is the backoff between tries of what the API server refuses.
func NewBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(time.Second), backoff.WithMultiplier(2), backoff.WithMaxInterval(MaxAskInterval), backoff.WithMaxElapsedTime(0))
}

// Contests are how often the sizes that others have given pods were taken back.
type Contests map[types.UID]int

// maxContests bounds the contest over one pod in one rollout: who sets a size again and again
// does not keep the rollout from its end.
const maxContests = 5

// Lost tells whether the contest over a pod is given up: what others have set stays.
func (c Contests) Lost(pod types.UID) bool { return c[pod] >= maxContests }
