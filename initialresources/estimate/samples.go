package estimate

import (
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Samples are what containers have used of a resource: cores of cpu, bytes of memory.
type Samples interface {
	// Count is how many there are.
	Count() float64
	// Quantile is the value that a share q of them, from 0 to 1, does not exceed. It is asked
	// for only where there are some.
	Quantile(q float64) float64
	// OOMKills is how often these containers were killed for want of memory meanwhile.
	OOMKills() int
	// All goes through the values, in any order, and how many samples have each.
	All() iter.Seq2[float64, float64]
}

// Source finds samples.
type Source interface {
	// Samples are those since a time, of every key that `of` matches; nil if there are none.
	Samples(from time.Time, of Key, resource corev1.ResourceName) Samples
}
