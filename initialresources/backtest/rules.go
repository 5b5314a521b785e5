package main

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
)

// request is what a rule has a container request: cores, and bytes; 0 if it does not know.
type request struct{ cpu, memory float64 }

// rule says what a container requests that is born.
type rule struct {
	name string
	ask  func(*birth) (request, error)
}

// The rules that the tables compare.
const (
	limitRange = "LimitRange default"
	ladder     = "the ladder"
	ladder98   = "– `--percentile=98`"
	ladderRole = "– `--key=image,container`"
	vpaTarget  = "VPA"
	krrSimple  = "KRR"
)

func rules() []rule {
	return []rule{
		{name: limitRange, ask: func(*birth) (request, error) { return request{0.5, 256 * mebibyte}, nil }},
		{name: ladder, ask: climb(func(*estimate.Ladder) {}, false)},
		{name: ladder98, ask: climb(func(l *estimate.Ladder) { l.Percentile = 98 }, false)},
		{name: ladderRole, ask: climb(func(*estimate.Ladder) {}, true)},
		{name: vpaTarget, ask: func(b *birth) (request, error) {
			if b.of == nil {
				return request{}, nil
			}
			if b.of.vpa == nil {
				b.of.vpa = watch(b.of)
			}
			return b.of.vpa.target(b.at)
		}},
		{name: krrSimple, ask: func(b *birth) (request, error) {
			if b.of == nil {
				return request{}, nil
			}
			return krr(b.of.pods, b.at), nil
		}},
	}
}

// climb is the ladder, with the flags' defaults and a change.
func climb(change func(*estimate.Ladder), byContainer bool) func(*birth) (request, error) {
	l := estimate.Default()
	l.Scopes = []estimate.Scope{estimate.InNamespace}
	change(&l)
	return func(b *birth) (request, error) {
		key := b.key
		if !byContainer {
			key.Role = ""
		}
		estimated := func(resource corev1.ResourceName) float64 {
			e, ok := l.Estimate(b.known, key, resource, b.at.time())
			if !ok {
				return 0
			}
			return e.Request.AsApproximateFloat64()
		}
		return request{estimated(corev1.ResourceCPU), estimated(corev1.ResourceMemory)}, nil
	}
}

// krr is KRR's strategy "simple", with its defaults: the 95th percentile of cpu in the pod
// where that is highest, and the most memory of any, with 15 % on top, of the last 14 days,
// if there are 100 points; at least 10m and 100 MB.
func krr(pods []*pod, at minute) request {
	const history, step, points = 14 * day, 75 * time.Second, 100
	var r request
	minutes := 0
	for _, p := range pods {
		uses := p.within(at-history, at)
		if len(uses) == 0 {
			continue
		}
		minutes += len(uses)
		cpu := make([]float64, len(uses))
		for i, u := range uses {
			cpu[i] = u.cpu
			r.memory = max(r.memory, 1.15*u.memory)
		}
		slices.Sort(cpu)
		r.cpu = max(r.cpu, quantile(cpu, 0.95))
	}
	if time.Duration(minutes)*time.Minute < points*step {
		return request{}
	}
	return request{max(0.01, math.Ceil(r.cpu*1e3)/1e3), max(100e6, math.Ceil(r.memory/1e6)*1e6)}
}

// quantile of sorted values, as PromQL has it.
func quantile(sorted []float64, q float64) float64 {
	rank := q * float64(len(sorted)-1)
	lower := int(rank)
	upper := min(lower+1, len(sorted)-1)
	return sorted[lower] + (rank-float64(lower))*(sorted[upper]-sorted[lower])
}
