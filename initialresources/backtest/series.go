package main

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// use is what a container has used: cores on average over a minute, and bytes at its end.
type use struct{ cpu, memory float64 }

// pod is what its container has used in each minute of its life.
type pod struct {
	version int
	start   minute
	uses    []use
	kills   []minute
}

func (p *pod) end() minute { return p.start + minute(len(p.uses)) }

// within are the minutes of its life that are in a span of time.
func (p *pod) within(from, to minute) []use {
	from, to = max(from, p.start), min(to, p.end())
	if from >= to {
		return nil
	}
	return p.uses[from-p.start : to-p.start]
}

// lives makes a pod up that lives that long; pods of a workload are told apart by the number.
func (w *workload) lives(number uint64, version int, from, to minute) *pod {
	p := &pod{version: version, start: from, uses: make([]use, 0, to-from)}
	random := rand.New(rand.NewPCG(w.seed, 1000+number))
	versionCPU, versionMemory := w.version(version)
	own := around(random, 0.05) // no two pods get the same work
	var busy, held float64
	started, life := from, w.lifetime(random)
	for at := from; at < to; at++ {
		if life > 0 && at-started >= life {
			p.kills = append(p.kills, at)
			started, life = at, w.lifetime(random)
		}
		busy = 0.8*busy + 0.6*w.rough*random.NormFloat64()
		held = 0.98*held + 0.2*0.02*random.NormFloat64()
		cpu, memory := w.use(w, at, at-started)
		p.uses = append(p.uses, use{
			cpu:    cpu * w.cpu * versionCPU * own * w.load(at) * math.Exp(busy),
			memory: memory * mebibyte * w.memory * versionMemory * math.Exp(held),
		})
	}
	return p
}

func (w *workload) lifetime(random *rand.Rand) minute {
	return minute(float64(w.life) * (0.8 + 0.4*random.Float64()))
}

// run is a workload that has run for a time.
type run struct {
	*workload
	namespace, image string
	pods             []*pod
	vpa              *vpa // that watches it; nil until it is asked
}

// trace has a workload run in a namespace. Each of its pods is replaced now and then, and all
// of them with each new version.
func trace(w *workload, namespace, image string, from, to minute) *run {
	r := &run{workload: w, namespace: namespace, image: image}
	random := rand.New(rand.NewPCG(w.seed, 999))
	for slot := range w.replicas {
		for at := from; at < to; {
			next := min(to, at+2*day+minute(random.IntN(int(6*day))))
			if w.weekly {
				next = min(next, (at/week+1)*week)
			}
			r.pods = append(r.pods, w.lives(uint64(slot*1000+len(r.pods)), w.at(at), at, next))
			at = next
		}
	}
	return r
}

// at is the version that runs then.
func (w *workload) at(at minute) int {
	if w.weekly {
		return int(at / week)
	}
	return 0
}

func tagged(image string, version int) string { return fmt.Sprintf("%s:v%d", image, version) }

// container is the name of the container; it tells roles apart.
func (w *workload) container() string { return fmt.Sprintf("role-%d", w.role) }
