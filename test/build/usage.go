package build

import (
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
)

// Usage is a source of samples that is made of what containers have used.
type Usage []Used

// Used are samples of one container.
type Used struct {
	Of       estimate.Key
	Resource corev1.ResourceName
	At       time.Time
	Values   []float64
	OOMKills int
}

// Samples implements estimate.Source.
func (u Usage) Samples(from time.Time, of estimate.Key, resource corev1.ResourceName) estimate.Samples {
	var found samples
	for _, used := range u {
		if of.Matches(used.Of) && used.Resource == resource && !used.At.Before(from) {
			found.values = append(found.values, used.Values...)
			found.kills += used.OOMKills
		}
	}
	slices.Sort(found.values)
	return found
}

// Evenly are n values from first to last.
func Evenly(n int, first, last float64) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = first
		if n > 1 {
			values[i] += (last - first) * float64(i) / float64(n-1)
		}
	}
	return values
}

type samples struct {
	values []float64 // sorted
	kills  int
}

func (s samples) Count() float64 { return float64(len(s.values)) }

func (s samples) Quantile(q float64) float64 { return s.values[int(q*float64(len(s.values)-1))] }

func (s samples) OOMKills() int { return s.kills }

func (s samples) All() iter.Seq2[float64, float64] {
	return func(yield func(float64, float64) bool) {
		for _, v := range s.values {
			if !yield(v, 1) {
				return
			}
		}
	}
}
