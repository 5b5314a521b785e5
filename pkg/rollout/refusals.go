package rollout

import (
	"time"

	"github.com/cenkalti/backoff/v4"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// MaxAskInterval bounds the time until a refused size is asked for again. There is no event
// when a quota is larger, so a rollout goes on after that time at the latest.
const MaxAskInterval = 30 * time.Second

// RefusalLog has what objects, such as pods, cannot have now, and when to ask for it again.
type RefusalLog struct {
	known    Refusals
	backoffs map[types.UID]*backoff.ExponentialBackOff
}

// NewRefusalLog returns an empty set of refusals.
func NewRefusalLog() *RefusalLog {
	return &RefusalLog{known: Refusals{}, backoffs: map[types.UID]*backoff.ExponentialBackOff{}}
}

// Known returns the refusals by the object. They are shared: do not change them.
func (r *RefusalLog) Known() Refusals { return r.known }

// Add remembers that the object was refused this: a size, or something else that was asked
// for. It is asked for again after a second. Each further refusal of the same doubles that
// time, up to [MaxAskInterval].
func (r *RefusalLog) Add(object types.UID, this string, refusal Refusal, now time.Time) {
	before, again := r.known[object]
	if again = again && before.Of == this; !again {
		r.backoffs[object] = NewBackoff()
	}
	if refusal.Of, refusal.Since = this, before.Since; !again || before.Kind != refusal.Kind {
		refusal.Since = now
	}
	refusal.Until = now.Add(r.backoffs[object].NextBackOff())
	r.known[object] = refusal
}

// Remove forgets what the object was refused.
func (r *RefusalLog) Remove(object types.UID) {
	delete(r.known, object)
	delete(r.backoffs, object)
}

// Clear forgets all of them.
func (r *RefusalLog) Clear() {
	clear(r.known)
	clear(r.backoffs)
}

// Forget forgets all but these objects.
func (r *RefusalLog) Forget(but sets.Set[types.UID]) {
	Forget(r.known, but)
	Forget(r.backoffs, but)
}

// NewBackoff returns the backoff between tries of what the API server refuses.
func NewBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(time.Second), backoff.WithMultiplier(2), backoff.WithMaxInterval(MaxAskInterval), backoff.WithMaxElapsedTime(0), backoff.WithRandomizationFactor(0))
}

// Contests count, by the pod, how often a size that others have set was taken back.
type Contests map[types.UID]int

// maxContests bounds the contest over one pod in one rollout. So whoever sets a size again and
// again does not keep the rollout from its end.
const maxContests = 5

// Lost reports whether the contest over a pod is given up: what others have set stays.
func (c Contests) Lost(pod types.UID) bool { return c[pod] >= maxContests }
