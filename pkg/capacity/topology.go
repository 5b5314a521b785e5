package capacity

import (
	"context"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
)

// topology is what a pod demands of other pods around it: its required affinity and
// anti-affinity to them, and its topology spread constraints that are DoNotSchedule
// (interpodaffinity and podtopologyspread in pkg/scheduler/framework/plugins of
// Kubernetes).
type topology struct {
	pod      *corev1.Pod
	nodes    map[string]*corev1.Node
	selected func(*metav1.LabelSelector) (namespaces []string, err error)
	near     []term
	apart    []term
	spread   []constraint
}

// podSet is the pods with such labels in a namespace, or in all of them if it is empty.
type podSet struct {
	Namespace string
	labels.Selector
}

// match reports whether the pod is one of them.
func (p podSet) match(pod *corev1.Pod) bool {
	return (p.Namespace == metav1.NamespaceAll || p.Namespace == pod.Namespace) && p.Matches(labels.Set(pod.Labels))
}

// term is one of an affinity: which pods, and what they share with the pod, or not.
type term struct {
	peers []podSet
	key   string
}

func (t term) match(pod *corev1.Pod) bool {
	return slices.ContainsFunc(t.peers, func(p podSet) bool { return p.match(pod) })
}

// constraint is one of topology spread.
type constraint struct {
	corev1.TopologySpreadConstraint
	peers podSet
	// counts has the names of the nodes that count, and domains the values that these
	// have for the topology key.
	counts, domains sets.Set[string]
}

// topologyOf reads what the pod demands.
func (r *Room) topologyOf(ctx context.Context, pod *corev1.Pod) (*topology, error) {
	t := &topology{pod: pod, nodes: r.byName, selected: func(s *metav1.LabelSelector) ([]string, error) { return r.selected(ctx, s) }}
	var err error
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.PodAffinity != nil {
		if t.near, err = t.termsOf(pod, affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution); err != nil {
			return nil, err
		}
	}
	if t.apart, err = t.termsOf(pod, apart(pod)); err != nil {
		return nil, err
	}
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			return nil, noNode("its topology spread constraints cannot be read: %s", err)
		}
		t.spread = append(t.spread, constraint{TopologySpreadConstraint: c, peers: podSet{Namespace: pod.Namespace, Selector: selector}})
	}
	t.findDomains()
	return t, nil
}

// selected names the namespaces that a namespaceSelector selects.
func (c *Cluster) selected(ctx context.Context, by *metav1.LabelSelector) ([]string, error) {
	selector, err := metav1.LabelSelectorAsSelector(by)
	if err != nil {
		return nil, noNode("a namespaceSelector cannot be read: %s", err)
	}
	if selector.Empty() {
		return []string{metav1.NamespaceAll}, nil
	}
	namespaces, err := c.namespacesWith(ctx, selector)
	names := make([]string, len(namespaces))
	for i := range namespaces {
		names[i] = namespaces[i].Name
	}
	return names, err
}

// apart is the pod's required anti-affinity.
func apart(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func (t *topology) termsOf(pod *corev1.Pod, all []corev1.PodAffinityTerm) ([]term, error) {
	var terms []term
	for _, a := range all {
		selector, err := metav1.LabelSelectorAsSelector(a.LabelSelector)
		if err != nil {
			return nil, noNode("its pod affinity cannot be read: %s", err)
		}
		namespaces := slices.Clone(a.Namespaces)
		switch {
		case a.NamespaceSelector != nil:
			selected, err := t.selected(a.NamespaceSelector)
			if err != nil {
				return nil, err
			}
			namespaces = append(namespaces, selected...)
		case len(namespaces) == 0:
			namespaces = []string{pod.Namespace}
		}
		t := term{key: a.TopologyKey}
		for _, namespace := range namespaces {
			t.peers = append(t.peers, podSet{namespace, selector})
		}
		terms = append(terms, t)
	}
	return terms, nil
}

// findDomains finds out which nodes count for each constraint of topology spread:
// those that have the keys of all, and that its inclusion policies include.
func (t *topology) findDomains() {
	affinity := nodeaffinity.GetRequiredNodeAffinity(t.pod)
	for i, c := range t.spread {
		c.counts, c.domains = sets.New[string](), sets.New[string]()
		for _, node := range t.nodes {
			if slices.ContainsFunc(t.spread, func(c constraint) bool { _, has := node.Labels[c.TopologyKey]; return !has }) {
				continue
			}
			if ptr.Deref(c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor) == corev1.NodeInclusionPolicyHonor {
				if matches, err := affinity.Match(node); err != nil || !matches {
					continue
				}
			}
			if ptr.Deref(c.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore) == corev1.NodeInclusionPolicyHonor && !tolerates(t.pod, node, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute) {
				continue
			}
			c.counts.Insert(node.Name)
			c.domains.Insert(node.Labels[c.TopologyKey])
		}
		t.spread[i] = c
	}
}

// peers returns the other pods that decide where the pod may be.
func (t *topology) peers() []podSet {
	var all []podSet
	for _, term := range slices.Concat(t.near, t.apart) {
		all = append(all, term.peers...)
	}
	for _, c := range t.spread {
		all = append(all, c.peers)
	}
	return slices.DeleteFunc(all, func(p podSet) bool { // those that are nobody
		_, selectable := p.Requirements()
		return !selectable
	})
}

// allows reports whether the pod may come to the node. Others are the pods of that
// node, all peers, and those that keep others away, once each; the pod itself does not count.
func (t *topology) allows(node *corev1.Node, others []*corev1.Pod) (bool, error) {
	var placed []*corev1.Pod
	for _, other := range others {
		if t.nodes[other.Spec.NodeName] != nil && other.UID != t.pod.UID && !Over(other) {
			placed = append(placed, other)
		}
	}
	free, err := t.apartFrom(node, placed)
	return free && t.nearTo(node, placed) && t.spreads(node, placed), err
}

// sameDomain reports whether both nodes have the same value of a topology key.
func sameDomain(a, b *corev1.Node, key string) bool {
	valueA, hasA := a.Labels[key]
	valueB, hasB := b.Labels[key]
	return hasA && hasB && valueA == valueB
}

// apartFrom reports whether nothing near the node keeps the pod away, or is to be kept
// away from it.
func (t *topology) apartFrom(node *corev1.Node, others []*corev1.Pod) (bool, error) {
	for _, other := range others {
		home := t.nodes[other.Spec.NodeName]
		if slices.ContainsFunc(t.apart, func(term term) bool { return term.match(other) && sameDomain(home, node, term.key) }) {
			return false, nil
		}
		near := slices.DeleteFunc(slices.Clone(apart(other)), func(a corev1.PodAffinityTerm) bool { return !sameDomain(home, node, a.TopologyKey) })
		theirs, err := t.termsOf(other, near)
		if err != nil && !isNo(err) {
			return false, err
		}
		if slices.ContainsFunc(theirs, func(term term) bool { return term.match(t.pod) }) { // none if the scheduler could not have read them either
			return false, nil
		}
	}
	return true, nil
}

// nearTo reports whether the pods that the pod has to be near to are. The first of
// those that want to be near to each other may be anywhere.
func (t *topology) nearTo(node *corev1.Node, others []*corev1.Pod) bool {
	wanted := func(pod *corev1.Pod) bool {
		return !slices.ContainsFunc(t.near, func(term term) bool { return !term.match(pod) })
	}
	anywhere, all := false, true
	for _, term := range t.near {
		if _, has := node.Labels[term.key]; !has {
			return false
		}
		found := false
		for _, other := range others {
			if home := t.nodes[other.Spec.NodeName]; wanted(other) {
				anywhere = anywhere || sameDomain(home, home, term.key)
				found = found || sameDomain(home, node, term.key)
			}
		}
		all = all && found
	}
	return all || !anywhere && wanted(t.pod)
}

// spreads reports whether the pods stay spread: of two zones with 3 and 2 of them and
// maxSkew 1, only the second one may get another.
func (t *topology) spreads(node *corev1.Node, others []*corev1.Pod) bool {
	for _, c := range t.spread {
		here, has := node.Labels[c.TopologyKey]
		if !has {
			return false
		}
		matching := map[string]int{}
		for _, other := range others {
			if c.counts.Has(other.Spec.NodeName) && other.DeletionTimestamp == nil && !c.peers.Empty() && c.peers.match(other) {
				matching[t.nodes[other.Spec.NodeName].Labels[c.TopologyKey]]++
			}
		}
		least := math.MaxInt
		for domain := range c.domains {
			least = min(least, matching[domain])
		}
		if len(c.domains) < int(ptr.Deref(c.MinDomains, 1)) {
			least = 0
		}
		skew := matching[here] - least
		if c.peers.match(t.pod) {
			skew++
		}
		if skew > int(c.MaxSkew) {
			return false
		}
	}
	return true
}
