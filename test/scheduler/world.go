package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// Names in each world: the workload web is in the namespace home.
const (
	home, away = "home", "away"
	web, db    = "web", "db"
	zone, host = corev1.LabelTopologyZone, corev1.LabelHostname
	gpu        = corev1.ResourceName("example.com/gpu")
	driver     = "csi.example.com"
	tracked    = "tracked.example.com" // the driver that says what storage it has left
)

// scene is a world with a workload in it, one or two of whose pods are to be replaced.
type scene struct {
	World
	*rand.Rand // of what is being added

	template, newer *corev1.PodTemplateSpec // of the workload
	replacements    []Replacement           // in their order
	siblings        []*corev1.Pod           // all pods of the workload
	leaves, lacks   bool                    // one more of them terminates; one is missing

	// What admission gives to each pod of the workload.
	tolerations []corev1.Toleration
	overhead    corev1.ResourceList
	priority    int32
	preempts    *corev1.PreemptionPolicy
}

// choose returns which features the world of a seed has, by their places in the list of all: few, so that a
// disagreement has few reasons.
func choose(seed uint64) []int {
	r := rand.New(rand.NewPCG(seed, 0))
	wanted, of := 1+r.IntN(4), r.Perm(len(features))
	of = slices.DeleteFunc(of, func(i int) bool { return i >= len(hard) && r.IntN(3) > 0 })
	return of[:wanted]
}

// build makes the world of a seed with these features. Each has its own randomness: without one of them, the rest
// of the world is the same.
func build(seed uint64, chosen []int) *scene {
	s := &scene{}
	s.Rand = rand.New(rand.NewPCG(seed, 1))
	s.cluster()
	for _, i := range chosen {
		s.Rand = rand.New(rand.NewPCG(seed, uint64(100+i)))
		features[i].add(s)
	}
	s.Rand = rand.New(rand.NewPCG(seed, 2))
	s.workload()
	return s
}

// one returns one of these, each as likely as the others.
func one[T any](s *scene, of ...T) T { return of[s.IntN(len(of))] }

// oneIn is true once in so many times.
func (s *scene) oneIn(times int) bool { return s.IntN(times) == 0 }

func (s *scene) zone() string { return one(s, "a", "b", "c") }

func (s *scene) node() *corev1.Node { return one(s, s.Nodes...) }

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func named(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// cluster makes the nodes, the pods of others, and all that any feature may ask for.
func (s *scene) cluster() {
	for _, name := range []string{home, away} {
		s.Namespaces = append(s.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelMetadataName: name, "team": one(s, "x", "y")},
		}})
	}
	for i := range 3 + s.IntN(3) {
		name := fmt.Sprint("n", i)
		n := newNode(name, quantities("cpu", one(s, "1", "2", "3"), "memory", "8Gi", "pods", "10"))
		n.Labels[zone], n.Labels["disk"] = one(s, "a", "a", "b", "c"), one(s, "ssd", "hdd")
		s.Nodes = append(s.Nodes, n)
		s.CSINodes = append(s.CSINodes, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: name}, {Name: tracked, NodeID: name}}},
		})
	}
	for i := range s.IntN(5) {
		s.other(fmt.Sprint(db, i), one(s, home, away), db, one(s, "100m", "500m", "900m")).Spec.NodeName = s.node().Name
	}
	later, now := ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), ptr.To(storagev1.VolumeBindingImmediate)
	class := func(name, provisioner string, mode *storagev1.VolumeBindingMode) {
		s.StorageClasses = append(s.StorageClasses, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: mode})
	}
	class("static", "kubernetes.io/no-provisioner", later)
	class("dynamic", driver, later)
	class("zonal", driver, later)
	class("tracked", tracked, later)
	class("immediate", driver, now)
	s.StorageClasses[2].AllowedTopologies = []corev1.TopologySelectorTerm{{
		MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: zone, Values: []string{s.zone()}}},
	}}
	for name, capacity := range map[string]bool{driver: false, tracked: true} {
		s.CSIDrivers = append(s.CSIDrivers, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{StorageCapacity: &capacity}})
	}
	s.template = &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": web}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "300m")}}}},
	}
}

// newNode returns one that is Ready.
func newNode(name string, allocatable corev1.ResourceList) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{host: name}},
		Status:     corev1.NodeStatus{Allocatable: allocatable, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// other adds a pod that is not of the workload, which waits for a node.
func (s *scene) other(name, namespace, app, cpu string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name), Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: quantities("cpu", cpu)}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	s.Pods = append(s.Pods, pod)
	return pod
}

// workload makes the pods of the workload, and its newer template.
func (s *scene) workload() {
	cpu, memory := one(s, "600m", "900m"), one(s, "1Gi", "2Gi")
	s.newer = s.template.DeepCopy()
	s.newer.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(cpu)
	s.newer.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse(memory)
	replaced := 2
	if slices.ContainsFunc(s.Claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Spec.VolumeName == "" }) {
		replaced = 1 // nobody binds the claim to what the first one would choose
		for _, n := range s.CSINodes {
			n.Spec.Drivers[0].Allocatable = nil // a pod that runs has no unbound claim, so there is no right way to count it
		}
	}
	pods := 1 + s.IntN(3)
	if slices.ContainsFunc(s.Claims, func(c *corev1.PersistentVolumeClaim) bool {
		return slices.Contains(c.Spec.AccessModes, corev1.ReadWriteOncePod)
	}) {
		pods = 1
	}
	for i := range pods {
		template, hash := s.template, "old"
		if i > 0 && s.oneIn(3) {
			template, hash = s.newer, "new"
		}
		pod := s.born(template, hash)
		pod.Name = fmt.Sprint(web, i)
		pod.UID, pod.Status.Phase = types.UID(pod.Name), corev1.PodRunning
		if node := s.node().Name; pod.Spec.NodeName == "" {
			pod.Spec.NodeName = node
		}
		pod.Status.AllocatedResources = resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) // as its kubelet says from 1.36 on
		pod.Status.Resources = &corev1.ResourceRequirements{Requests: pod.Status.AllocatedResources.DeepCopy()}
		s.siblings = append(s.siblings, pod)
		if hash == "old" && len(s.replacements) < replaced {
			s.replacements = append(s.replacements, Replacement{pod, s.next(fmt.Sprint("new", i))})
		}
	}
	if s.leaves {
		pod := s.siblings[0].DeepCopy()
		pod.Name, pod.UID = "leaving", "leaving"
		terminate(pod)
		s.siblings = append(s.siblings, pod)
	}
	s.Pods = append(s.Pods, s.siblings...)
}

// next is a pod of the newer template.
func (s *scene) next(name string) *corev1.Pod {
	pod := s.born(s.newer, "new")
	pod.Name, pod.UID = name, types.UID(name)
	return pod
}

// expected is the world as those who replace pods count it: what terminates is gone, and what is missing waits for a node.
func (s *scene) expected() World {
	w := s.World
	w.Pods = slices.DeleteFunc(slices.Clone(w.Pods), func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp != nil && slices.Contains(s.siblings, pod)
	})
	if s.lacks {
		w.Pods = append(w.Pods, s.next("missing"))
	}
	return w
}

// born is the pod that a ReplicaSet makes of its template, as the API server stores it.
func (s *scene) born(template *corev1.PodTemplateSpec, hash string) *corev1.Pod {
	template = template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Labels["pod-template-hash"] = home, hash
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, s.tolerations...)
	pod.Spec.Overhead, pod.Spec.PreemptionPolicy, pod.Spec.Priority = s.overhead, s.preempts, &s.priority
	mergeLabelKeys(pod)
	return pod
}

// mergeLabelKeys writes what the matchLabelKeys of a pod mean into its selectors, as the API server does when the
// pod is created: mutatePodAffinity and mutateTopologySpreadConstraints in pkg/registry/core/pod of Kubernetes.
func mergeLabelKeys(pod *corev1.Pod) {
	merge := func(to *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) {
		for _, key := range keys {
			if value, has := pod.Labels[key]; has && to != nil {
				to.MatchExpressions = append(to.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
			}
		}
	}
	if pod.Spec.Affinity != nil {
		var terms []corev1.PodAffinityTerm
		if near := pod.Spec.Affinity.PodAffinity; near != nil {
			terms = append(terms, near.RequiredDuringSchedulingIgnoredDuringExecution...)
		}
		if apart := pod.Spec.Affinity.PodAntiAffinity; apart != nil {
			terms = append(terms, apart.RequiredDuringSchedulingIgnoredDuringExecution...)
		}
		for _, t := range terms {
			merge(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn)
			merge(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
		}
	}
	for _, c := range pod.Spec.TopologySpreadConstraints {
		merge(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}
