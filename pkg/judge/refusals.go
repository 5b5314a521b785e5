package judge

import (
	"time"

	"github.com/cenkalti/backoff/v4"
	"k8s.io/apimachinery/pkg/types"
)

// MaxAskInterval bounds the time until a refused size is asked for again. There is no event
// when a quota is larger, so a rollout goes on after that time at the latest.
const MaxAskInterval = 30 * time.Second

// Refused is what an object, such as a pod, was refused last, and when to ask for it again. It is nil where nothing was.
type Refused struct {
	Refusal
	backoff *backoff.ExponentialBackOff
}

// Again returns what is to be noted when the object is refused this: a size, or something else that was
// asked for. It is asked for again after a second. Each further refusal of the same doubles that
// time, up to [MaxAskInterval].
func (r *Refused) Again(this string, refusal Refusal, now time.Time) *Refused {
	before := r.Last()
	again := r != nil && before.Of == this
	if !again {
		r = &Refused{backoff: NewBackoff()}
	}
	if refusal.Of, refusal.Since = this, before.Since; !again || before.Kind != refusal.Kind {
		refusal.Since = now
	}
	refusal.Until = now.Add(r.backoff.NextBackOff())
	r.Refusal = refusal
	return r
}

// Last returns the last refusal; one without a reason if there is none.
func (r *Refused) Last() Refusal {
	if r == nil {
		return Refusal{}
	}
	return r.Refusal
}

// Of returns the refusal of this; one without a reason if something else was refused last, or nothing.
func (r *Refused) Of(this string) Refusal {
	if last := r.Last(); last.Of == this {
		return last
	}
	return Refusal{}
}

// RefusalLog has what objects other than pods were refused, by their UID.
type RefusalLog map[types.UID]*Refused

// Add notes that the object was refused this: see [Refused.Again].
func (l RefusalLog) Add(object types.UID, this string, refusal Refusal, now time.Time) {
	l[object] = l[object].Again(this, refusal, now)
}

// Of returns the refusal of this for the object; one without a reason if there is none.
func (l RefusalLog) Of(object types.UID, this string) Refusal { return l[object].Of(this) }

// NewBackoff returns the backoff between tries of what the API server refuses.
func NewBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(time.Second), backoff.WithMultiplier(2), backoff.WithMaxInterval(MaxAskInterval), backoff.WithMaxElapsedTime(0), backoff.WithRandomizationFactor(0))
}
