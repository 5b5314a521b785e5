package main

import (
	"cmp"
	"math"
	"math/rand/v2"
)

// minute counts from the start of the generated time, a Monday at midnight.
type minute int

const (
	hour = minute(60)
	day  = 24 * hour
	week = 7 * day
)

const mebibyte = 1 << 20

// kind is what containers do. Its figures are those of a workload of size 1.
type kind struct {
	name string
	// use is what a container uses that has run for so long: cores, and MiB.
	use func(w *workload, at, age minute) (cpu, memory float64)
	// replicas of a workload.
	replicas int
	// containers that its pods have, this one included.
	containers int
	// roles are how many workloads of a namespace run the image, each as something else.
	roles int
	// life of a container until it is killed for want of memory; 0 if it is not.
	life minute
	// rough is by how much its cpu varies from one minute to the next.
	rough float64
	// weekly says that there is a new version of it each Monday.
	weekly bool
	// changes is by how much versions differ.
	changes float64
}

// kinds are all of them, with what complete adds.
var kinds = complete([]kind{
	{name: "steady", use: func(*workload, minute, minute) (float64, float64) { return 0.2, 300 }},
	{name: "daily cycle", use: func(_ *workload, at, _ minute) (float64, float64) {
		return 0.05 + 0.45*daylight(at), 250 + 150*daylight(at)
	}},
	{name: "weekly cycle", use: func(_ *workload, at, _ minute) (float64, float64) {
		return 0.03 + 0.45*daylight(at)*workday(at), 300 + 200*daylight(at)*workday(at)
	}},
	{name: "nightly batch", replicas: 1, use: nightly},
	{name: "leak, OOM-killed", life: 30 * hour, use: func(_ *workload, at, age minute) (float64, float64) {
		return 0.05 + 0.1*daylight(at), 150 + 450*float64(age)/float64(30*hour)
	}},
	{name: "JVM", use: func(_ *workload, at, age minute) (float64, float64) {
		return until(age, 3, 1.5, 0.1+0.2*daylight(at)), 200 + 1300*min(1, float64(age)/5)
	}},
	{name: "slow growth", use: func(_ *workload, at, _ minute) (float64, float64) {
		grown := math.Pow(1.02, float64(at)/float64(day))
		return 0.15 * grown, 300 * grown
	}},
	{name: "cold start", use: func(_ *workload, at, age minute) (float64, float64) {
		return until(age, 10, 1.2, 0.02+0.02*daylight(at)), until(age, 10, 700, 200)
	}},
	{name: "idle sidecar", containers: 2, use: func(*workload, minute, minute) (float64, float64) { return 0.001, 18 }},
	{name: "weekly versions", weekly: true, changes: 0.3, use: func(_ *workload, at, _ minute) (float64, float64) {
		return 0.1 + 0.2*daylight(at), 400
	}},
	{name: "image in 2 roles", roles: 2, use: func(w *workload, at, _ minute) (float64, float64) {
		if w.role == 0 { // it serves
			return 0.3 + 0.6*daylight(at), 800
		}
		return 0.02, 120 // it waits for work
	}},
	{name: "image in 8 roles", roles: 8, replicas: 1, use: func(w *workload, _, _ minute) (float64, float64) {
		larger := math.Pow(2.5, float64(w.role))
		return 0.001 * larger, 3 * larger
	}},
})

// complete fills in what is the same for most.
func complete(kinds []kind) []kind {
	for i := range kinds {
		k := &kinds[i]
		k.replicas, k.containers, k.roles = cmp.Or(k.replicas, 3), cmp.Or(k.containers, 1), cmp.Or(k.roles, 1)
		k.rough, k.changes = cmp.Or(k.rough, 0.15), cmp.Or(k.changes, 0.1)
	}
	return kinds
}

// daylight rises from 0 at three in the morning to 1 at three in the afternoon.
func daylight(at minute) float64 {
	half := math.Sin(math.Pi * float64(at-3*hour) / float64(day))
	return half * half
}

// workday is 1 from Monday to Friday, and little at the weekend.
func workday(at minute) float64 {
	if at%week < 5*day {
		return 1
	}
	return 0.1
}

func until(age, end minute, before, after float64) float64 {
	if age < end {
		return before
	}
	return after
}

// nightly works for forty minutes each night, and waits.
func nightly(w *workload, at, _ minute) (cpu, memory float64) {
	since := (at + day - w.starts) % day
	if since >= 40 {
		return 0.003, 120
	}
	return 1.8, 120 + 1000*min(1, float64(since)/5)
}

// workload has pods of one kind.
type workload struct {
	*kind
	role int
	// starts is when its nightly work does.
	starts minute
	seed   uint64
	cpu    float64 // its size
	memory float64
	// loads say for each hour how busy all of its pods are.
	loads []float64
}

// end of the generated time.
const end = 41 * day

// makeUp makes a workload up. What has the same seed is the same.
func makeUp(k *kind, role int, seed uint64) *workload {
	random := rand.New(rand.NewPCG(seed, 0))
	w := &workload{
		kind: k, role: role, seed: seed,
		starts: minute(random.IntN(int(4 * hour))),
		cpu:    around(random, 0.4), memory: around(random, 0.3),
	}
	for range end / hour {
		w.loads = append(w.loads, around(random, 0.1))
	}
	return w
}

// around is 1, more or less.
func around(random *rand.Rand, deviation float64) float64 {
	return math.Exp(deviation * random.NormFloat64())
}

// version is by how much a version of it differs from the first.
func (w *workload) version(n int) (cpu, memory float64) {
	random := rand.New(rand.NewPCG(w.seed, uint64(n)+1))
	return around(random, w.changes), around(random, w.changes)
}

// load is how busy its pods are.
func (w *workload) load(at minute) float64 {
	i, part := int(at/hour), float64(at%hour)/float64(hour)
	return w.loads[i]*(1-part) + w.loads[min(i+1, len(w.loads)-1)]*part
}
