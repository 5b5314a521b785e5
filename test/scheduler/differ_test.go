package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// asks asks pkg/capacity about the replacements, and returns why there is no room for each; without a reason, there is. It
// goes no further than that.
func asks(ctx context.Context, s *scene) ([]judge.Refusal, error) {
	hash := map[string]string{"pod-template-hash": "new"}
	var toCome []rollout.Coming
	if s.lacks {
		toCome = append(toCome, rollout.Coming{Template: s.newer, Labels: hash})
	}
	cluster := capacity.At(client(s.World), s.Nodes, capacity.NewLedger(), time.Now())
	room, err := cluster.Room(ctx, "Deployment "+home+"/"+web, home, s.siblings, toCome, true)
	if err != nil {
		return nil, err
	}
	var said []judge.Refusal
	for _, r := range s.replacements {
		target, err := resize.For(r.Old, s.template, s.newer)
		if err != nil {
			return nil, err
		}
		m := judge.Member{Place: judge.Place{Name: r.Old.Name, Pod: r.Old, Target: target}}
		why, err := room.Replace(ctx, m, rollout.Revision{Name: "new", Template: s.newer, Labels: hash}, false)
		if err != nil {
			return nil, err
		}
		if said = append(said, why); why.Reason != "" {
			break
		}
	}
	return said, nil
}

// client serves the world.
func client(w World) kubernetes.Interface {
	c := fake.NewClientset(slices.Concat(
		objects(w.Nodes), objects(w.Pods), objects(w.Namespaces), objects(w.Volumes), objects(w.Claims),
		objects(w.StorageClasses), objects(w.CSINodes), objects(w.CSIDrivers), objects(w.StorageCapacities),
	)...)
	c.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, list(w.Pods, a.GetNamespace(), a.(clienttesting.ListActionImpl).ListOptions), nil
	})
	return c
}

func objects[T runtime.Object](of []T) []runtime.Object {
	all := make([]runtime.Object, len(of))
	for i := range of {
		all[i] = of[i]
	}
	return all
}

// list selects pods by their fields, too, which the fake does not.
func list(pods []*corev1.Pod, namespace string, options metav1.ListOptions) *corev1.PodList {
	byLabels, byFields := labels.Everything(), fields.Everything()
	if s, err := labels.Parse(options.LabelSelector); err == nil {
		byLabels = s
	}
	if s, err := fields.ParseSelector(options.FieldSelector); err == nil {
		byFields = s
	}
	found := &corev1.PodList{}
	for _, pod := range pods {
		its := fields.Set{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName, "status.phase": string(pod.Status.Phase)}
		if (namespace == "" || namespace == pod.Namespace) && byLabels.Matches(labels.Set(pod.Labels)) && byFields.Matches(its) {
			found.Items = append(found.Items, *pod.DeepCopy())
		}
	}
	return found
}

// How both may differ.
const (
	agree     = ""
	promised  = "room where there is none"
	overlooks = "none where there is room"
	unknown   = "unknown to capacity"
)

// outcome is what both said of a world: of the last replacement that both spoke of, or the first that they differ in.
type outcome struct {
	differ  string
	which   int
	verdict Verdict
	reason  string // of capacity
	unknown bool   // as capacity says: neither wrong nor right
}

// compare asks both about the world of a seed with these features.
func compare(ctx context.Context, plugins *Plugins, seed uint64, chosen []int) (o outcome, err error) {
	s := build(seed, chosen)
	verdicts, err := plugins.Judge(s.expected(), s.replacements)
	if err != nil {
		return o, fmt.Errorf("asking the plugins: %w", err)
	}
	said, err := asks(ctx, s)
	if err != nil {
		return o, fmt.Errorf("asking capacity: %w", err)
	}
	for i := range min(len(said), len(verdicts)) {
		o = outcome{which: i, verdict: verdicts[i], reason: said[i].Reason}
		switch {
		case said[i].Kind == judge.ReasonRoomUnknown:
			o.unknown = true
		case o.reason == "" && o.verdict.Never:
			o.differ = promised
		case o.reason != "" && o.verdict.Always:
			o.differ = overlooks
		}
		if o.differ != agree {
			break
		}
	}
	return o, nil
}

// reduce leaves out the features without which both differ in the same way.
func reduce(ctx context.Context, plugins *Plugins, seed uint64, chosen []int, o outcome) ([]int, outcome) {
	for i := 0; i < len(chosen); {
		fewer := slices.Delete(slices.Clone(chosen), i, i+1)
		if without, err := compare(ctx, plugins, seed, fewer); err == nil && without.differ == o.differ {
			chosen, o = fewer, without
			continue
		}
		i++
	}
	return chosen, o
}

// TestRoom asks pkg/capacity and the scheduler's plugins whether there is room for the pods that restarts bring, in WORLDS
// worlds, the first of seed SEED. SEED=17 WORLDS=1 shows that of seed 17. Capacity looks at nodes in an order of chance, so a
// difference that depends on it may need a few tries.
func TestRoom(t *testing.T) {
	plugins := must.Get(NewPlugins(t.Context()))(t)
	first, worlds := number(t, "SEED", 1), number(t, "WORLDS", 300)
	count := tally{by: table{}, because: table{}, refused: map[string]int{}}
	for seed := uint64(first); seed < uint64(first+worlds); seed++ {
		chosen := choose(seed)
		o, err := compare(t.Context(), plugins, seed, chosen)
		if err != nil {
			t.Errorf("seed %d (%s): %v", seed, title(chosen), err)
			continue
		}
		count.add(chosen, o)
		if o.differ == agree && worlds > 1 {
			continue
		}
		if o.differ != agree {
			chosen, o = reduce(t.Context(), plugins, seed, chosen, o)
		}
		if isNew := count.blame(chosen, o); worlds == 1 || isNew && len(count.because) <= 3 {
			t.Logf("%s\n%s", o, describe(seed, chosen))
		}
	}
	t.Logf("\n%s", &count)
	if n := count.all; n[promised]+n[overlooks] > 0 {
		t.Errorf("capacity says room where there is none in %d of %d worlds, and none where there is in %d", n[promised], worlds, n[overlooks])
	}
	if worlds < 1000 {
		return
	}
	// The worlds are hard enough for each plugin to decide something.
	for _, plugin := range []string{
		names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts, names.NodeResourcesFit, names.VolumeRestrictions, names.NodeVolumeLimits,
		names.VolumeBinding, names.VolumeZone, names.PodTopologySpread, names.InterPodAffinity, names.NodeDeclaredFeatures, NotReady, "kubelet",
	} {
		if count.refused[plugin] == 0 {
			t.Errorf("%s has refused nothing", plugin)
		}
	}
	if count.preempted == 0 || count.second == 0 {
		t.Errorf("%d pods preempt others, and %d are the second that comes", count.preempted, count.second)
	}
}

func number(t *testing.T, variable string, otherwise int) int {
	text := cmp.Or(os.Getenv(variable), strconv.Itoa(otherwise))
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%s is no number", variable, text)
	}
	return n
}

func title(chosen []int) string {
	var all []string
	for _, i := range chosen {
		all = append(all, features[i].name)
	}
	slices.Sort(all)
	return cmp.Or(strings.Join(all, " + "), "(nothing special)")
}

func (o outcome) String() string {
	return fmt.Sprintf("%s for replacement %d: capacity says %q, the plugins: always %t, never %t, %v", cmp.Or(o.differ, "no difference"), o.which, o.reason, o.verdict.Always, o.verdict.Never, o.verdict.Why)
}

// table counts by row and column.
type table map[string]map[string]int

func (t table) add(row, column string) {
	if t[row] == nil {
		t[row] = map[string]int{}
	}
	t[row][column]++
}

// print writes a line for each row, the ones with the most differences first, and at most so many.
func (t table) print(to *strings.Builder, most int, title string, columns ...string) {
	fmt.Fprintf(to, "\n%s\t%s\n", title, strings.Join(columns, "\t"))
	differ := func(row string) int { return t[row][promised] + t[row][overlooks] }
	rows := slices.SortedFunc(maps.Keys(t), func(a, b string) int { return cmp.Or(cmp.Compare(differ(b), differ(a)), cmp.Compare(a, b)) })
	for _, row := range rows[:min(len(rows), most)] {
		fmt.Fprint(to, row)
		for _, column := range columns {
			fmt.Fprintf(to, "\t%d", t[row][column])
		}
		fmt.Fprintln(to)
	}
	if len(rows) > most {
		fmt.Fprintf(to, "and %d more\n", len(rows)-most)
	}
}

// tally counts what both said.
type tally struct {
	all     map[string]int
	by      table // feature, whatever others the world has
	because table // features that a difference needs
	refused map[string]int

	preempted, second int
}

func (t *tally) add(chosen []int, o outcome) {
	if t.all == nil {
		t.all = map[string]int{}
	}
	said := "depends"
	switch {
	case o.verdict.Always:
		said = "room"
	case o.verdict.Never:
		said = "none"
	}
	t.all[said]++
	t.all[o.differ]++
	if o.unknown {
		t.all[unknown]++
	}
	for _, i := range chosen {
		t.by.add(features[i].name, said)
		t.by.add(features[i].name, o.differ)
		if o.unknown {
			t.by.add(features[i].name, unknown)
		}
	}
	for _, r := range o.verdict.Why {
		t.refused[r.Plugin]++
	}
	if o.verdict.Preempts {
		t.preempted++
	}
	t.second += o.which
}

// blame counts what a difference needs, and reports whether that is new.
func (t *tally) blame(chosen []int, o outcome) bool {
	row := title(chosen)
	if o.differ != agree {
		t.because.add(row, o.differ)
	}
	return t.because[row][o.differ] == 1
}

func (t *tally) String() string {
	var text, aligned strings.Builder
	fmt.Fprintf(&text, "the plugins: room in %d worlds, none in %d, depends in %d; %d by preemption, %d for the second replacement\n", t.all["room"], t.all["none"], t.all["depends"], t.preempted, t.second)
	fmt.Fprintf(&text, "nodes refused: %v\n", t.refused)
	t.by.print(&text, len(features), "WORLDS WITH", "room", "none", "depends", unknown, promised, overlooks)
	t.because.print(&text, 40, "THEY DIFFER BECAUSE OF", promised, overlooks)
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	_, err := w.Write([]byte(text.String()))
	if err = cmp.Or(err, w.Flush()); err != nil {
		return err.Error()
	}
	return aligned.String()
}

// describe writes the world down, one object a line.
func describe(seed uint64, chosen []int) string {
	s := build(seed, chosen)
	var text strings.Builder
	fmt.Fprintf(&text, "seed: %d # SEED=%d WORLDS=1\n", seed, seed)
	fmt.Fprintf(&text, "features: %s\n", title(chosen))
	for _, r := range s.replacements {
		write(&text, "for "+r.Old.Name, []*corev1.Pod{r.New})
	}
	write(&text, "nodes", s.Nodes)
	write(&text, "pods", s.expected().Pods)
	write(&text, "namespaces", s.Namespaces)
	write(&text, "claims", s.Claims)
	write(&text, "volumes", s.Volumes)
	if len(s.Claims) > 0 {
		write(&text, "storageClasses", s.StorageClasses)
		write(&text, "csiNodes", s.CSINodes)
		write(&text, "capacities", s.StorageCapacities)
	}
	return text.String()
}

var key = regexp.MustCompile(`"([\w./-]+)":`)

func write[T metav1.Object](to *strings.Builder, kind string, objects []T) {
	if len(objects) > 0 {
		fmt.Fprintf(to, "%s:\n", kind)
	}
	for _, o := range objects {
		var tree any
		raw, err := json.Marshal(o)
		if err == nil {
			err = json.Unmarshal(raw, &tree)
		}
		if err == nil {
			raw, err = json.Marshal(prune(tree))
		}
		if err != nil {
			raw = []byte(err.Error())
		}
		fmt.Fprintf(to, "- %s\n", strings.ReplaceAll(key.ReplaceAllString(string(raw), "$1: "), ",", ", "))
	}
}

// prune drops what says nothing.
func prune(tree any) any {
	switch node := tree.(type) {
	case map[string]any:
		delete(node, "uid")
		delete(node, "daemonEndpoints")
		for name, value := range node {
			if node[name] = prune(value); node[name] == nil {
				delete(node, name)
			}
		}
		if len(node) == 0 {
			return nil
		}
	case []any:
		for i := range node {
			node[i] = prune(node[i])
		}
		if len(node) == 0 {
			return nil
		}
	case string:
		if node == "" {
			return nil
		}
	}
	return tree
}

// TestJudge asks whether a pod of 600m comes for one of 300m on nodes of one cpu each.
func TestJudge(t *testing.T) {
	plugins := must.Get(NewPlugins(t.Context()))(t)
	on := func(s *scene, node, name, cpu string) *corev1.Pod {
		pod := s.other(name, home, db, cpu)
		pod.Spec.NodeName = node
		return pod
	}
	tests := []struct {
		name  string
		nodes []string
		world func(s *scene, comes *corev1.Pod)
		want  string
	}{
		{"it takes the place of the one that leaves", []string{"n0"}, func(s *scene, _ *corev1.Pod) { on(s, "n0", "a", "400m") }, "always"},
		{"others take too much", []string{"n0"}, func(s *scene, _ *corev1.Pod) { on(s, "n0", "a", "500m") }, "never"},
		{"it preempts others", []string{"n0"}, func(s *scene, _ *corev1.Pod) { on(s, "n0", "a", "500m").Spec.Priority = ptr.To(int32(-1)) }, "always, preempts"},
		{"it must not preempt others", []string{"n0"}, func(s *scene, comes *corev1.Pod) {
			on(s, "n0", "a", "500m").Spec.Priority, comes.Spec.PreemptionPolicy = ptr.To(int32(-1)), ptr.To(corev1.PreemptNever)
		}, "never"},
		{"one that waits is faster", []string{"n0"}, func(s *scene, _ *corev1.Pod) { on(s, "", "a", "500m") }, "never"},
		{"one that waits leaves a node", []string{"n0", "n1"}, func(s *scene, _ *corev1.Pod) { on(s, "", "a", "500m") }, "always"},
		{"two that wait may share a node, or not", []string{"n0", "n1"}, func(s *scene, _ *corev1.Pod) { on(s, "", "a", "500m"); on(s, "", "b", "500m") }, "depends"},
		{"one that waits may preempt others", []string{"n0", "n1"}, func(s *scene, _ *corev1.Pod) {
			on(s, "n1", "a", "900m")
			on(s, "n0", "b", "200m")
			on(s, "", "c", "900m").Spec.Priority = ptr.To(int32(1))
		}, "depends"},
		{"one that waits is gated", []string{"n0"}, func(s *scene, _ *corev1.Pod) {
			on(s, "", "a", "500m").Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
		}, "always"},
		{"the node is not Ready, and has no taint", []string{"n0"}, func(s *scene, _ *corev1.Pod) { s.Nodes[0].Status.Conditions[0].Status = corev1.ConditionUnknown }, "never"},
		{"it names a node that is cordoned", []string{"n0"}, func(s *scene, comes *corev1.Pod) {
			s.Nodes[0].Spec.Unschedulable, comes.Spec.NodeName = true, "n0"
		}, "depends"},
		{"it names a node that is full", []string{"n0", "n1"}, func(s *scene, comes *corev1.Pod) {
			on(s, "n1", "a", "500m")
			comes.Spec.NodeName = "n1"
		}, "never"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &scene{}
			for _, name := range tt.nodes {
				s.Nodes = append(s.Nodes, newNode(name, quantities("cpu", "1", "memory", "1Gi", "pods", "10")))
			}
			leaves := on(s, "n0", "leaves", "300m")
			comes := on(s, "", "comes", "600m")
			s.Pods = s.Pods[:1]
			tt.world(s, comes)
			verdicts := must.Get(plugins.Judge(s.World, []Replacement{{leaves, comes}}))(t)
			got := "depends"
			switch v := verdicts[0]; {
			case v.Always && v.Preempts:
				got = "always, preempts"
			case v.Always:
				got = "always"
			case v.Never:
				got = "never"
			}
			if got != tt.want {
				t.Errorf("%s, want %s: %v", got, tt.want, verdicts[0].Why)
			}
		})
	}
}
