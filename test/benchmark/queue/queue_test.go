package queue

import (
	"math"
	"testing"
)

// oneByOne has each pod wait for all before it.
func oneByOne(i, _ int) int { return i }

// atOnce lets so many pods be under way.
func atOnce(i, limit int) int { return max(0, i-limit+1) }

// plenty is a cluster in which nothing but the kubelets takes time.
func plenty() Cluster {
	return Cluster{Cores: 1000, OwnCores: 1000, BuiltInCores: 1000, Kubelet: 1, Flags: Flags{
		Workers: 1000, Parallel: 1000, Sessions: 1000, Opening: 1000, EventWriters: 1000, EventQueue: 1000, Away: 30,
		Seats: 1000, WidestWrite: 7, WatchesPerSeat: 10, WatchTime: 0.005, Syncs: 1000, Edits: 1000,
	}}
}

// TestSimulate counts by hand: what takes time is one thing in each row.
func TestSimulate(t *testing.T) {
	sets := func(number, pods, limit int, costs Costs) []Workloads {
		costs.Label, costs.OwnWrites, costs.BuiltInPodWrites, costs.BuiltInWrites = true, 2, 1, 3
		return []Workloads{{Kind: "StatefulSet", Number: number, Pods: pods, Limit: limit, Namespaces: number, Costs: costs}}
	}
	for name, c := range map[string]struct {
		change    func(*Cluster)
		workloads []Workloads
		needs     func(i, limit int) int
		want      float64
	}{
		"pods one after the other": {func(*Cluster) {}, sets(1, 5, 1, Costs{}), oneByOne, 5},
		"two at a time":            {func(*Cluster) {}, sets(1, 5, 2, Costs{}), atOnce, 3},
		"many workloads at once":   {func(*Cluster) {}, sets(100, 5, 1, Costs{}), oneByOne, 5},
		"the pauses of a rollout":  {func(*Cluster) {}, sets(1, 5, 1, Costs{Begin: 0.5, End: 0.25}), oneByOne, 5.75},
		// An edit, 5 resizes, 5 labels, 5 of the kubelets, 5 + 3 of the built-in controller, 2 at the end. 5 events are not waited for.
		"an API server with one core": {func(c *Cluster) { c.Cores, c.Kubelet, c.Flags.EventWriters = 1, 0, 1 }, sets(1, 5, 1, Costs{Request: 0.1}), oneByOne, 2.6 + 0.5},
		"what a request takes":        {func(c *Cluster) { c.Answer, c.Kubelet = 0.1, 0 }, sets(1, 1, 1, Costs{}), oneByOne, 0.1 * (1 + 2 + 1 + 1 + 1 + 1 + 2 + 1)},
		// 2 for each pod, 2 at the end, and no events; 2 may be made at once.
		"a limit of requests":      {func(c *Cluster) { c.QPS, c.Kubelet, c.Flags.EventQueue = 1, 0, 0 }, sets(10, 4, 4, Costs{}), atOnce, 10*10 - 2},
		"a controller of one core": {func(c *Cluster) { c.OwnCores, c.Kubelet = 1, 0 }, sets(20, 5, 5, Costs{Own: Cost{Pod: 0.1}}), atOnce, 10},
		// Each sync keeps its worker until the answers are there: to a resize, then to a label. Before that come three requests of
		// others, and after that they count, we let go, and they have seen it.
		"one worker": {func(c *Cluster) { c.Flags.Workers, c.Kubelet, c.Answer = 1, 0, 1 }, sets(10, 1, 1, Costs{}), oneByOne, 3 + 10 + 10 + 4},
		// One takes the session of another, which has its own again 30 s later: four reads, and all that comes after its resize.
		"few sessions":                {func(c *Cluster) { c.Flags.Sessions, c.Flags.Edits, c.Answer, c.Kubelet = 1, 1, 0.1, 5 }, sets(3, 1, 1, Costs{}), oneByOne, 31.4},
		"kubelets that take longer":   {func(c *Cluster) { c.Kubelet = 3 }, sets(1, 5, 1, Costs{}), oneByOne, 15},
		"a limit of the built-in one": {func(c *Cluster) { c.BuiltInQPS, c.Kubelet = 2, 0 }, sets(10, 1, 1, Costs{}), oneByOne, (10*4 - 3) / 2.},
		"a write that many watch":     {func(c *Cluster) { c.Watches, c.Flags.Seats, c.Kubelet = 70, 7, 0 }, sets(1, 200, 200, Costs{}), atOnce, 0.005 * (200 + 200 + 200)},
	} {
		cluster := plenty()
		c.change(&cluster)
		if got := Simulate(cluster, c.workloads, c.needs); math.Abs(got.Wall-c.want) > 0.05 {
			t.Errorf("%s: %.2f s, want %.2f: %+v", name, got.Wall, c.want, got)
		}
	}
}

// TestLoss: of events that nobody has written yet, so many wait, and no more.
func TestLoss(t *testing.T) {
	c := plenty()
	c.Kubelet, c.Answer, c.Flags.EventWriters, c.Flags.EventQueue = 0, 1, 2, 10
	w := []Workloads{{Kind: "Deployment", Number: 1, Pods: 100, Limit: 100, Namespaces: 1, Costs: Costs{Events: 5}}}
	// Two are written and 20 wait when all pods are told of at once. Those of the rollout come before a writer is free.
	if got := Simulate(c, w, atOnce); got.Dropped != 105-22 {
		t.Errorf("%d events are lost, want all but 22: %+v", got.Dropped, got)
	}
	c.Flags.EventQueue = 1000
	if got := Simulate(c, w, atOnce); got.Dropped != 0 {
		t.Errorf("%d events are lost where there is room for all", got.Dropped)
	}
}
