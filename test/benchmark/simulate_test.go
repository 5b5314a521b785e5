package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// unlike are the shapes whose duration the simulation does not meet within 20 %, each with the reason. There is none.
var unlike = map[string]string{}

// measuredGroups are those of docs/performance.json.
func measuredGroups(t *testing.T) ([]group, results) {
	t.Helper()
	r, err := load(filepath.Join(controller.Root(), "docs", "performance.json"))
	if err != nil {
		t.Fatal(err)
	}
	groups, err := groupsOf(r.Rollouts)
	if err != nil {
		t.Fatal(err)
	}
	return groups, r
}

// TestSimulation holds the simulation to every shape that was measured in place.
func TestSimulation(t *testing.T) {
	groups, r := measuredGroups(t)
	with := func(g group, cores int) float64 {
		o, err := again(groups, g.shape, cores, g.resize())
		if err != nil {
			t.Fatal(err)
		}
		_, took, _ := g.figures(wall)
		return o.Wall / took
	}
	right, wrong := 0, 0
	for _, g := range groups {
		if g.way != inPlace {
			continue
		}
		times := with(g, r.Machine.Cores)
		t.Logf("%s: × %.2f", g.shape, times)
		switch off := math.Abs(times-1) > 0.2; {
		case off && unlike[g.shape.String()] == "":
			t.Errorf("%s is simulated to take %.2f times as long as was measured", g.shape, times)
		case !off && unlike[g.shape.String()] != "":
			t.Errorf("%s is met within 20 %%: it is no exception any more", g.shape)
		default:
			right++
		}
		if times := with(g, 1000); math.Abs(times-1) > 0.2 { // then nobody waits for a core
			wrong++
		}
	}
	if right < 5 || wrong < 4 {
		t.Errorf("%d shapes are met, and %d would not be if there were many cores: this proves little", right, wrong)
	}
}

// TestCosts finds what was measured, and takes off what a control plane takes when nothing happens.
func TestCosts(t *testing.T) {
	var all []result
	for _, text := range []string{"statefulset:1x100", "statefulset:1x1000:10", "statefulset:20x10", "deployment:1x100", "deployment:20x10"} {
		for _, r := range measured(t, text) {
			if r.Way != inPlace {
				continue
			}
			s, err := parseShape(text)
			if err != nil {
				t.Fatal(err)
			}
			writes := map[string]float64{"StatefulSet": 0.006, "Deployment": 0.005}[s.kind] * r.written(func(measure.Write) bool { return true })
			r.Wall = seconds(s.pods) // another for each shape
			r.CPU[apiServer], r.CPU["kwok"], r.First.P50, r.Complete.P50 = writes+0.03*float64(r.Wall), 0.004*float64(s.all())+0.01*float64(r.Wall), 0.1, 0.2
			all = append(all, r)
		}
	}
	groups, err := groupsOf(all)
	if err != nil {
		t.Fatal(err)
	}
	for kind, request := range map[string]float64{"StatefulSet": 0.006, "Deployment": 0.005, "DaemonSet": 0.006} {
		got, err := costsOf(groups, kind)
		if err != nil {
			t.Fatal(err)
		}
		near := func(what string, got, want float64) {
			if math.Abs(got-want) > 1e-6 {
				t.Errorf("%s: %s is %g, want %g", kind, what, got, want)
			}
		}
		near("a request", got.Request, request)
		near("a kubelet's part", got.Kubelet, 0.004)
		near("the controller's part of a pod", got.Own.Pod, 0.003)
		near("of a rollout", got.Own.Rollout, 0.05)
		near("of each pod that it looks at", got.Own.Look, 0)
		near("the first pause", got.Begin, 0.1)
		near("the last one", got.End, 0.2)
		if !got.Label || got.Events != 0 || got.BuiltInPodWrites != 0 {
			t.Errorf("%s: the requests are %+v, want 2 for each pod, and an event", kind, got)
		}
	}
	if _, err := costsOf(nil, "StatefulSet"); err == nil {
		t.Error("there are costs of what was not measured")
	}
}

// TestNearest leaves out what explains nothing, and never finds a cause that gives something back.
func TestNearest(t *testing.T) {
	var groups []group
	for _, text := range []string{"statefulset:1x100", "statefulset:1x1000:10", "statefulset:20x10", "statefulset:100x10"} {
		s, err := parseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, group{shape: s, way: inPlace, rounds: []result{{}}})
	}
	pods := func(s shape, _ result) float64 { return float64(s.all()) }
	looks := func(s shape, _ result) float64 { return float64(s.all() * s.pods) }
	rollouts := func(s shape, _ result) float64 { return float64(s.workloads) }
	for name, c := range map[string]struct {
		value func(shape, result) float64
		want  [3]float64
	}{
		"all three":  {func(s shape, r result) float64 { return 2*pods(s, r) + 0.01*looks(s, r) + 30*rollouts(s, r) }, [3]float64{2, 0.01, 30}},
		"one of all": {func(s shape, r result) float64 { return 2 * pods(s, r) }, [3]float64{2, 0, 0}},
	} {
		got := nearest(groups, c.value, pods, looks, rollouts)
		for i, want := range c.want {
			if math.Abs(got[i]-want) > 1e-6*(1+want) {
				t.Errorf("%s: got %v, want %v", name, got, c.want)
			}
		}
	}
	less := nearest(groups, func(s shape, r result) float64 { return 2*pods(s, r) - 5*rollouts(s, r) }, pods, looks, rollouts)
	if less[0] < 1 || less[0] > 2 || less[2] != 0 {
		t.Errorf("rollouts that seem to cost less than nothing: got %v", less)
	}
}

// TestLarge: docs/performance.json has what the simulation says of the large edit, and the table tells it.
func TestLarge(t *testing.T) {
	groups, r := measuredGroups(t)
	if len(r.Large) != len(settings)*len(kubelets) {
		t.Fatalf("%d simulations, want one for each of %d settings and %d kubelets", len(r.Large), len(settings), len(kubelets))
	}
	const one = 1 // 8 cores, and no other limit
	got, err := settings[one].foresee(groups, kubelets[0])
	if err != nil {
		t.Fatal(err)
	}
	if kept := r.Large[one*len(kubelets)]; math.Abs(float64(got.Wall/kept.Wall)-1) > 0.01 || math.Abs(float64(got.Requests)/float64(kept.Requests)-1) > 0.01 || math.Abs(got.Lost-kept.Lost) > 0.01 {
		t.Errorf("the page says %+v, and the simulation %+v: run `make bench-report`", kept, got)
	}
	workloads, pods := 0, 0
	for _, text := range largeShapes {
		s, err := parseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		workloads, pods = workloads+s.workloads, pods+s.all()
	}
	if workloads != 2000 || pods != 150_000 {
		t.Errorf("%d workloads with %d pods", workloads, pods)
	}
	table := largeTable([]foreseen{
		{setting: setting{8, 50, 20, 92}, Kubelet: 0.3, Wall: 600, First: spread{3, 4}, Requests: 6000, Peak: 70, Busy: 0.5, Taken: 0.25, Lost: 0.1}, {Wall: 720},
	})
	if want := "| 8 cores, `--kube-api-qps=50`, kube-controller-manager's 20, 92 seats | 10 | 12 | 3 | 10 (70) | 50 | 25 | 10 |\n"; !strings.HasSuffix(table, want) {
		t.Errorf("got\n%swant at its end\n%s", table, want)
	}
}
