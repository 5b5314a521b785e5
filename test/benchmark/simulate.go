package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/pkg/events"
	"github.com/inplace-rollout/inplace-rollout/test/benchmark/queue"
)

// flags are the limits that are in force unless somebody changes them, and what the controller has as constants.
var flags = queue.Flags{
	Workers: 16, Parallel: 16, Sessions: 300, Opening: 50, Away: 30, EventWriters: events.Writers, EventQueue: events.Successes, // of each kind, but events
	Seats: 46, WidestWrite: 7, WatchesPerSeat: 10, WatchTime: 0.005, // deploy/common/flow-control.yaml, and API Priority and Fairness
	Syncs: 5,        // --concurrent-statefulset-syncs and its siblings
	Edits: parallel, // as the benchmark does
}

// simulate prints how long the simulation says that the measured rollouts take, and then the large one.
func simulate(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("benchmark simulate", flag.ContinueOnError)
	from := flags.String("from", "docs/performance.json", "what was measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := load(*from)
	if err != nil {
		return err
	}
	groups, err := groupsOf(r.Rollouts)
	if err != nil {
		return err
	}
	if err := printAgain(os.Stdout, groups, r.Machine.Cores); err != nil {
		return err
	}
	all, err := foresee(groups)
	if err != nil {
		return err
	}
	fmt.Printf("\n%s", largeTable(all))
	return nil
}

// printAgain compares with what was measured.
func printAgain(out io.Writer, groups []group, cores int) error {
	for _, g := range groups {
		if g.way != inPlace {
			continue
		}
		o, err := again(groups, g.shape, cores, g.resize())
		if err != nil {
			return err
		}
		_, took, _ := g.figures(wall)
		if _, err := fmt.Fprintf(out, "%s: %.1f s, measured %.1f s (× %.2f)\n", g.shape.title(), o.Wall, took, o.Wall/took); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	return nil
}

// resize is how long the kubelets have taken, in seconds.
func (g group) resize() float64 { return float64(g.rounds[0].Floor) / g.shape.floor(1e9).Seconds() }

// again simulates what was measured: everything shares the cores of the machine, kube-controller-manager has the limit that
// test/controlplane gives it, and hardly anybody else watches pods.
func again(groups []group, s shape, cores int, resize float64) (queue.Outcome, error) {
	costs, err := costsOf(groups, s.kind)
	if err != nil {
		return queue.Outcome{}, err
	}
	return queue.Simulate(queue.Cluster{Cores: cores, Kubelet: resize, BuiltInQPS: generous, Watches: 5, Flags: flags},
		[]queue.Workloads{{Kind: s.kind, Number: s.workloads, Pods: s.pods, Limit: s.limit, Namespaces: 1, Costs: costs}}, needs), nil
}

// generous is the --kube-api-qps of kube-controller-manager in the tests. Its default is 20.
const generous = 200

// largeShapes are 2,000 workloads with 150,000 pods on 5,000 nodes, 30 on each: ten agents on every node, 10 % of them at a
// time; sets of one at a time; and Deployments with Kubernetes' defaults.
var largeShapes = []string{"daemonset:10x5000:500", "statefulset:485x20", "deployment:1505x60"}

// setting is one in which the large edit is simulated.
type setting struct {
	Cores      int     `json:"cores"` // of the API server, with etcd
	QPS        float64 `json:"qps"`
	BuiltInQPS float64 `json:"builtInQPS"`
	Seats      int     `json:"seats"`
}

func (s setting) String() string {
	text := fmt.Sprintf("%d cores", s.Cores)
	if s.QPS > 0 {
		text += fmt.Sprintf(", `--kube-api-qps=%g`", s.QPS)
	}
	if s.BuiltInQPS != generous {
		text += fmt.Sprintf(", kube-controller-manager's %g", s.BuiltInQPS)
	}
	if s.Seats != flags.Seats {
		text += fmt.Sprintf(", %d seats", s.Seats)
	}
	return text
}

var settings = []setting{
	{2, 0, generous, flags.Seats}, {8, 0, generous, flags.Seats}, {16, 0, generous, flags.Seats}, {16, 0, generous, 2 * flags.Seats},
	{8, 200, generous, flags.Seats}, {8, 50, generous, flags.Seats}, {8, 0, 20, flags.Seats},
}

// foreseen is what the simulation says of the large edit.
type foreseen struct {
	setting

	Kubelet  seconds `json:"kubelet"`
	Wall     seconds `json:"wall"`
	First    spread  `json:"first"`
	Requests int     `json:"requests"` // of the controller
	Peak     int     `json:"peakPerSecond"`
	Busy     float64 `json:"coresBusy"`
	Taken    float64 `json:"seatsTaken"`
	Lost     float64 `json:"eventsLost"` // the part of them
	PutAway  int     `json:"sessionsPutAway"`
}

// kubelets are the times that they take in the large cluster, in seconds.
var kubelets = []float64{0.3, 3}

// foresee simulates the large edit in all settings.
func foresee(groups []group) ([]foreseen, error) {
	var all []foreseen
	for _, s := range settings {
		for _, kubelet := range kubelets {
			f, err := s.foresee(groups, kubelet)
			if err != nil {
				return nil, err
			}
			all = append(all, f)
		}
	}
	return all, nil
}

// foresee simulates the large edit. What was not measured is assumed: 4 cores for each of the controllers, 5 ms for the disk of
// etcd and the network, ten others who watch all pods, and 200 namespaces, so ten workloads in each.
func (s setting) foresee(groups []group, kubelet float64) (foreseen, error) {
	cluster := queue.Cluster{Cores: s.Cores, OwnCores: 4, BuiltInCores: 4, Kubelet: kubelet, Answer: 0.005, QPS: s.QPS, BuiltInQPS: s.BuiltInQPS, Watches: 10, Flags: flags}
	cluster.Flags.Seats = s.Seats
	var all []queue.Workloads
	events := 0
	for _, text := range largeShapes {
		shape, err := parseShape(text)
		if err != nil {
			return foreseen{}, err
		}
		costs, err := costsOf(groups, shape.kind)
		if err != nil {
			return foreseen{}, err
		}
		all = append(all, queue.Workloads{Kind: shape.kind, Number: shape.workloads, Pods: shape.pods, Limit: shape.limit, Namespaces: 200, Costs: costs})
		events += shape.all() + costs.Events*shape.workloads
	}
	o := queue.Simulate(cluster, all, needs)
	at := func(p int) seconds { return seconds(o.First[min(len(o.First)*p/100, len(o.First)-1)]) }
	return foreseen{
		s, seconds(kubelet), seconds(o.Wall), spread{at(50), at(99)}, o.Requests, o.Peak, o.Server, o.Seats, float64(o.Dropped) / float64(events), o.PutAway,
	}, nil
}

// largeTable has a row for each setting; all but the duration is told of kubelets that are quick.
func largeTable(all []foreseen) string {
	var text strings.Builder
	text.WriteString("| API server | done, min: kubelets 0.3 s | 3 s | first request, s: p50 | requests/s (peak) | cores busy, % | seats, % | events lost, % |\n|---|---|---|---|---|---|---|---|\n")
	for i := 0; i+1 < len(all); i += len(kubelets) {
		quick, slow := all[i], all[i+1]
		fmt.Fprintf(&text, "| %s | %.0f | %.0f | %.0f | %.0f (%d) | %.0f | %.0f | %.0f |\n", quick.setting, quick.Wall/60, slow.Wall/60,
			quick.First.P50, float64(quick.Requests)/float64(quick.Wall), quick.Peak, 100*quick.Busy, 100*quick.Taken, 100*quick.Lost)
	}
	return text.String()
}
