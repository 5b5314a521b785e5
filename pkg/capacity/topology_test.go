package capacity

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// TestTopology asks for each of four nodes whether the pod may come there: a1 and a2
// of zone a, b1 of zone b, and none, which has no labels. test/scheduler compares
// with the scheduler's own plugins.
func TestTopology(t *testing.T) {
	zone := func(name, zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone, "host": name}}}
	}
	nodes := []*corev1.Node{zone("a1", "a"), zone("a2", "a"), zone("b1", "b"), {ObjectMeta: metav1.ObjectMeta{Name: "none"}}}
	nodes[2].Spec.Taints = []corev1.Taint{{Key: "special", Effect: corev1.TaintEffectNoSchedule}}
	uid := 0
	// pod is of the namespace default unless its app begins with another.
	pod := func(node, app, spec string, change ...func(*corev1.Pod)) *corev1.Pod {
		uid++
		p := &corev1.Pod{Spec: build.Template(t, spec).Spec}
		p.UID, p.Namespace, p.Labels, p.Spec.NodeName = types.UID(fmt.Sprint(uid)), "default", map[string]string{"app": app}, node
		for _, f := range change {
			f(p)
		}
		return p
	}
	in := func(namespace string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Namespace = namespace } }
	over := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	term := func(kind, more string) string {
		return "{affinity: {" + kind + ": {requiredDuringSchedulingIgnoredDuringExecution: [{" + more + "}]}}}"
	}
	spread := func(more string, besides ...string) string {
		return "{topologySpreadConstraints: [{whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}, " + more + "}]" + strings.Join(besides, "") + "}"
	}
	const (
		web     = "labelSelector: {matchLabels: {app: web}}"
		perHost = web + ", topologyKey: host"
		perZone = web + ", topologyKey: zone"
		apart   = "podAntiAffinity"
		near    = "podAffinity"
		free    = "containers: []"
	)
	tests := []struct {
		name   string
		spec   string
		others []*corev1.Pod
		want   []string
	}{
		{"nothing is demanded", free, []*corev1.Pod{pod("a1", "web", free)}, []string{"a1", "a2", "b1", "none"}},

		{"apart from one", term(apart, perHost), []*corev1.Pod{pod("a1", "web", free)}, []string{"a2", "b1", "none"}},
		{"apart from one in its zone", term(apart, perZone), []*corev1.Pod{pod("a1", "web", free)}, []string{"b1", "none"}},
		{"apart from none", term(apart, perHost), []*corev1.Pod{pod("a1", "db", free), pod("a2", "web", free, over), pod("", "web", free), pod("gone", "web", free)},
			[]string{"a1", "a2", "b1", "none"}},
		{"apart where both have no label", term(apart, perHost), []*corev1.Pod{pod("none", "web", free)}, []string{"a1", "a2", "b1", "none"}},
		{"one that is terminating is there", term(apart, perHost), []*corev1.Pod{pod("a1", "web", free, build.Terminating)}, []string{"a2", "b1", "none"}},
		{"another wants to be apart", free, []*corev1.Pod{pod("a1", "db", term(apart, perZone))}, []string{"b1", "none"}},
		{"another namespace does not count", term(apart, perHost), []*corev1.Pod{pod("a1", "web", free, in("other"))}, []string{"a1", "a2", "b1", "none"}},
		{"unless it is named", term(apart, perHost+", namespaces: [other]"), []*corev1.Pod{pod("a1", "web", free, in("other")), pod("a2", "web", free)}, []string{"a2", "b1", "none"}},
		{"or all are", term(apart, perHost+", namespaceSelector: {}"), []*corev1.Pod{pod("a1", "web", free, in("other")), pod("a2", "web", free)}, []string{"b1", "none"}},
		{"or those with such labels are", term(apart, perHost+", namespaceSelector: {matchLabels: {team: x}}"),
			[]*corev1.Pod{pod("a1", "web", free, in("other")), pod("a2", "web", free)}, []string{"a2", "b1", "none"}},
		{"another names them so", free, []*corev1.Pod{pod("a1", "db", term(apart, perZone+", namespaceSelector: {matchLabels: {team: z}}"), in("other"))}, []string{"b1", "none"}},
		{"apart from nobody", term(apart, "topologyKey: host"), []*corev1.Pod{pod("a1", "web", free)}, []string{"a1", "a2", "b1", "none"}},

		{"near to one", term(near, perZone), []*corev1.Pod{pod("a1", "web", free), pod("b1", "db", free)}, []string{"a1", "a2"}},
		{"near to itself", term(near, perZone), nil, []string{"a1", "a2", "b1"}},
		{"near to one that is not there", term(near, "labelSelector: {matchLabels: {app: db}}, topologyKey: zone"), []*corev1.Pod{pod("a1", "web", free)}, nil},
		{"near to one that is nowhere", term(near, perZone), []*corev1.Pod{pod("none", "web", free)}, []string{"a1", "a2", "b1"}},
		{"near to nobody", term(near, "topologyKey: zone"), []*corev1.Pod{pod("a1", "web", free)}, nil},

		{"spread over zones", spread("topologyKey: zone, maxSkew: 1"), []*corev1.Pod{pod("a1", "web", free)}, []string{"b1"}},
		{"less strictly", spread("topologyKey: zone, maxSkew: 2"), []*corev1.Pod{pod("a1", "web", free)}, []string{"a1", "a2", "b1"}},
		{"spread over hosts", spread("topologyKey: host, maxSkew: 1"), []*corev1.Pod{pod("a1", "web", free), pod("b1", "web", free)}, []string{"a2"}},
		{"even already", spread("topologyKey: zone, maxSkew: 1"), []*corev1.Pod{pod("a1", "web", free), pod("b1", "web", free)}, []string{"a1", "a2", "b1"}},
		{"who does not count", spread("topologyKey: zone, maxSkew: 1"), []*corev1.Pod{
			pod("a1", "db", free), pod("a1", "web", free, in("other")), pod("a1", "web", free, build.Terminating), pod("a1", "web", free, over), pod("none", "web", free),
		}, []string{"a1", "a2", "b1"}},
		{"a zone of which there is no node for it", spread("topologyKey: zone, maxSkew: 1", ", nodeSelector: {host: a1}"), []*corev1.Pod{pod("a2", "web", free)}, []string{"a1", "a2", "b1"}},
		{"which counts if that is wished", spread("topologyKey: zone, maxSkew: 1, nodeAffinityPolicy: Ignore", ", nodeSelector: {host: a1}"), []*corev1.Pod{pod("a1", "web", free)}, []string{"b1"}},
		{"a zone that is tainted", spread("topologyKey: zone, maxSkew: 1, nodeTaintsPolicy: Honor"), []*corev1.Pod{pod("a1", "web", free)}, []string{"a1", "a2", "b1"}},
		{"too few zones", spread("topologyKey: zone, maxSkew: 1, minDomains: 3"), []*corev1.Pod{pod("a1", "web", free), pod("b1", "web", free)}, nil},
		{"what is only wished", "topologySpreadConstraints: [{whenUnsatisfiable: ScheduleAnyway, topologyKey: zone, maxSkew: 1, " + web + "}]",
			[]*corev1.Pod{pod("a1", "web", free)}, []string{"a1", "a2", "b1", "none"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wants := pod("a1", "web", tt.spec) // its predecessor runs, and does not count
			room := &Room{Cluster: New(fake.NewClientset(labelled("default", "z"), labelled("other", "x")), All, build.Start), byName: byName(nodes)}
			topology, err := room.topologyOf(t.Context(), wants)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range topology.peers() {
				if p.String() == "" {
					t.Error("all pods are asked for")
				}
			}
			var got []string
			for _, node := range nodes {
				allowed, err := topology.allows(node, append(slices.Clone(tt.others), wants))
				if err != nil {
					t.Fatal(err)
				}
				if allowed {
					got = append(got, node.Name)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func labelled(namespace, team string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"team": team}}}
}
