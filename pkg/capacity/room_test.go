package capacity

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func templateOf(t *testing.T, cpu string) *corev1.PodTemplateSpec {
	t.Helper()
	return build.Template(t, "containers: [{name: app, resources: {requests: {cpu: "+cpu+"}}}]")
}

// podOf is a pod of the node, or one that waits for one if that has no name.
func podOf(t *testing.T, name, node, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: templateOf(t, cpu).Spec}
	pod.Spec.NodeName, pod.Spec.Priority = node, ptr.To[int32](5)
	for _, f := range change {
		f(pod)
	}
	return pod
}

// tainted are taints of nodes for pods that are tolerant.
var tainted = []corev1.Taint{{Key: "sandbox", Effect: corev1.TaintEffectNoSchedule}}

func tolerant(pod *corev1.Pod) {
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "sandbox", Operator: corev1.TolerationOpExists}}
}

// web-1 and web-0 of 1 cpu each run on a node, beside others, and pods of 2 cpus are
// to take their places, web-1's first.
func TestRoom(t *testing.T) {
	const (
		full      = "the only node that is large enough has no room beside its pods"
		contested = full + " and those that are to come"
	)
	priority := func(n int32) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.Priority = &n } }
	gated := func(pod *corev1.Pod) { pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}} }
	pod := func(name, node, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
		return podOf(t, name, node, cpu, change...)
	}
	var many []*corev1.Pod
	for i := range maxLooks + 1 {
		many = append(many, pod(fmt.Sprint("other-", i), "", "2", func(pod *corev1.Pod) { // whose claim is not there
			pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "lost"}}}}
		}))
	}
	tests := []struct {
		name       string
		cpu        string // of the node
		others     []*corev1.Pod
		taints     []corev1.Taint    // of the node
		next       string            // the cpu of another node
		all        func(*corev1.Pod) // what the workload's pods have
		seen       []*corev1.Pod     // of the workload, besides the two
		toCome     []string          // what requests of the workload's pods that are still to be made
		web1, web0 string
	}{
		{name: "room for both", cpu: "4"},
		{name: "room for one", cpu: "3", web0: full},
		{name: "room for none", cpu: "4", others: []*corev1.Pod{pod("other", "node", "2")}, web1: full, web0: full},
		{name: "room for both on another node", cpu: "2", next: "4"},
		{name: "another pod waits for the room", cpu: "3", others: []*corev1.Pod{pod("other", "", "2")}, web1: contested, web0: contested},
		{name: "one waits for what is left", cpu: "4", others: []*corev1.Pod{pod("other", "", "1")}, web0: contested},
		{name: "two wait for more than there is", cpu: "4", others: []*corev1.Pod{pod("other", "", "1"), pod("more", "", "1")}, web1: contested, web0: contested},
		{name: "the one that waits is more important", cpu: "3", others: []*corev1.Pod{pod("other", "", "2", priority(6))}, web1: contested, web0: contested},
		{name: "the one that waits is less important", cpu: "3", others: []*corev1.Pod{pod("other", "", "2", priority(4))}, web0: contested},
		{name: "the one that waits is too large", cpu: "3", others: []*corev1.Pod{pod("other", "", "2500m")}, web0: full},
		{name: "so many wait that none gets a closer look", cpu: "3", others: many, web1: contested, web0: contested},
		{name: "the one that waits may not be scheduled", cpu: "3", others: []*corev1.Pod{pod("other", "", "2", gated)}, web0: full},
		{name: "the one that waits is deleted", cpu: "3", others: []*corev1.Pod{pod("other", "", "2", build.Terminating)}, web0: full},

		{name: "another of the workload is to come", cpu: "4", toCome: []string{"2"}, web1: contested, web0: contested},
		{name: "another of the workload is to come, and admission lets all of them run there", cpu: "4", taints: tainted, all: tolerant,
			toCome: []string{"2"}, web1: contested, web0: contested},
		{name: "another of the workload waits", cpu: "4", seen: []*corev1.Pod{pod("web-2", "", "2")}, web1: contested, web0: contested},
		{name: "another of the workload has just come", cpu: "4", seen: []*corev1.Pod{pod("web-2", "node", "2")}, web1: full, web0: full},
		{name: "another of the workload goes, and one comes for it", cpu: "6",
			others: []*corev1.Pod{pod("web-2", "node", "1")}, seen: []*corev1.Pod{pod("web-2", "node", "1", build.Terminating)}, toCome: []string{"2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			nodes := []*corev1.Node{node("node", tt.cpu)}
			nodes[0].Spec.Taints = tt.taints
			if tt.next != "" {
				nodes = append(nodes, node("next", tt.next))
			}
			if tt.all == nil {
				tt.all = func(*corev1.Pod) {}
			}
			web := []*corev1.Pod{pod("web-1", "node", "1", tt.all), pod("web-0", "node", "1", tt.all)}
			objects := build.Each(slices.Concat(web, tt.others), func(p *corev1.Pod) runtime.Object { return p })
			toCome := build.Each(tt.toCome, func(cpu string) rollout.Coming { return rollout.Coming{Template: templateOf(t, cpu)} })
			client := fake.NewClientset(objects...)
			r := must.Get(At(client, nodes, NewLedger(), build.Start).Room(t.Context(), "web", "", slices.Concat(web, tt.seen), toCome, true))(t)
			for i, want := range []string{tt.web1, tt.web0} {
				got := must.Get(refusal(r.find(t.Context(), pod(web[i].Name, "", "2", tt.all), "node", false)))(t)
				must.Equal(t, got.Reason, want, "%s", web[i].Name)
			}
			asked := map[string]int{}
			for _, action := range client.Actions() {
				if asked[fmt.Sprint(action)]++; asked[fmt.Sprint(action)] > 1 {
					t.Errorf("asked twice: %v", action)
				}
			}
		})
	}
}

// TestTaken: what a node's other pod takes, as its kubelet reports that from 1.36 on, or does not before.
func TestTaken(t *testing.T) {
	const has = "allocatedResources: {cpu: 1, memory: 7Gi}, resources: {requests: {cpu: 1, memory: 7Gi}}, conditions: [{type: PodResizePending, reason: "
	for name, tt := range map[string]struct{ spec, status, want string }{
		"of a resize that is infeasible, what it has":     {"resources: {requests: {cpu: 3, memory: 8Gi}}", has + "Infeasible}]", "{cpu: 1, memory: 7Gi}"},
		"of one that waits, the larger of each resource":  {"resources: {requests: {cpu: 2, memory: 1Gi}}", has + "Deferred}]", "{cpu: 2, memory: 7Gi}"},
		"the overhead that is allocated, and that of it":  {"overhead: {cpu: 500m}", "allocatedResources: {cpu: 1500m}, resources: {requests: {cpu: 1500m}}", "{cpu: 2}"},
		"the overhead once where no kubelet says as much": {"resources: {requests: {cpu: 3}}, overhead: {cpu: 500m}", "", "{cpu: 3500m}"},
	} {
		other := build.Parsed[corev1.Pod](t, "{metadata: {uid: other}, spec: {containers: [{name: app, resources: {requests: {cpu: 1}}}], "+tt.spec+"}, status: {"+tt.status+"}}")
		want, n := *build.Parsed[corev1.ResourceList](t, tt.want), node("node", "0")
		if got := Taken(other); !same(corev1.ResourceRequirements{Requests: got}, corev1.ResourceRequirements{Requests: want}) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		n.Status.Allocatable[corev1.ResourceCPU] = plus(want[corev1.ResourceCPU], resource.MustParse("1"))
		if enough, not := beside(podOf(t, "web", "", "1"), n, []*corev1.Pod{other}), beside(podOf(t, "web", "", "1001m"), n, []*corev1.Pod{other}); enough != nil || !isNo(not) {
			t.Errorf("%s: beside it there is room for 1 cpu (%v), and no more (%v)", name, enough, not)
		}
	}
}

func TestSameRoom(t *testing.T) {
	ready := func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	}
	earlier, later := node("good", "2", ready), node("good", "2", ready)
	earlier.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(build.Start)
	earlier.Status.Conditions, later.Status.Conditions = readiness(earlier), readiness(later)
	if !sameRoom(earlier, later) {
		t.Error("a heartbeat is news")
	}
	later.Status.Conditions[0].Status = corev1.ConditionUnknown
	if sameRoom(earlier, later) {
		t.Error("a node that is lost is no news")
	}
}

// TestListOfNodes: the list is the very same one until a node changes in what matters. What is
// kept of pods depends on that.
func TestListOfNodes(t *testing.T) {
	client := fake.NewClientset()
	write := func(n *corev1.Node) {
		t.Helper()
		must.Get(client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}))(t)
	}
	for i := range 20 {
		must.Do(t, client.Tracker().Add(node(fmt.Sprintf("node-%d", i), "2")))
	}
	nodes := must.Get(NewNodes(client))(t)
	changed := make(chan struct{}, 100)
	nodes.OnChange(func() { changed <- struct{}{} })
	go nodes.Run(t.Context())
	next := func() {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatal("no change is told")
		}
	}
	for range 20 {
		next()
	}
	before := nodes.List()
	if len(before) != 20 || !slices.Equal(before, nodes.List()) {
		t.Fatalf("listed %d nodes, and others the next time", len(before))
	}
	beats := node("node-3", "2")
	beats.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	write(beats)
	write(node("node-4", "4", func(n *corev1.Node) { n.Status.DeclaredFeatures = []string{"a"} }))
	next()
	after := nodes.List()
	if !slices.Equal(byName(after)["node-4"].Status.DeclaredFeatures, []string{"a"}) {
		t.Error("what a kubelet declares is not kept")
	}
	if slices.Equal(before, after) || len(after) != 20 {
		t.Errorf("a node has grown, and the list of %d is the same", len(after))
	}
	if !slices.Equal(after, nodes.List()) {
		t.Error("listed others the next time")
	}
}

func TestForAny(t *testing.T) {
	with := func(name string, change ...func(*corev1.Node)) *corev1.Node {
		n := node(name, "4")
		for _, f := range change {
			f(n)
		}
		return n
	}
	cordon := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	taint := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: effect}} }
	}
	for name, tt := range map[string]struct {
		nodes []*corev1.Node
		want  []string
	}{
		"all":              {[]*corev1.Node{with("a"), with("b")}, []string{"a", "b"}},
		"one is cordoned":  {[]*corev1.Node{with("a", cordon), with("b")}, []string{"b"}},
		"one is tainted":   {[]*corev1.Node{with("a"), with("b", taint(corev1.TaintEffectNoExecute))}, []string{"a"}},
		"better not":       {[]*corev1.Node{with("a", taint(corev1.TaintEffectPreferNoSchedule))}, []string{"a"}},
		"each is tainted":  {[]*corev1.Node{with("a", taint(corev1.TaintEffectNoSchedule)), with("b", taint(corev1.TaintEffectNoSchedule), cordon)}, []string{"a"}},
		"each is cordoned": {[]*corev1.Node{with("a", cordon)}, nil},
		"none":             {nil, nil},
	} {
		got := build.Each(ForAny(tt.nodes), func(n *corev1.Node) string { return n.Name })
		must.EqualLists(t, got, tt.want, "%s", name)
	}
}

func TestLeft(t *testing.T) {
	load := LoadOf(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}).
		Plus(LoadOf(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("24")}))
	n := node("a", "4")
	n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("1Ki")
	must.Equal(t, load.Left(n), (Load{2500, 1000, math.MaxInt64}), "what is left")
	n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("2")
	must.Equal(t, load.Left(n), (Load{2500, 1000, 0}), "what is left")
}
