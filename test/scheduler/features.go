package scheduler

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// feature is something that makes a world hard.
type feature struct {
	name string
	add  func(*scene)
}

// features are all that a world may have, each rare in a cluster. A seed is of this list: one more changes all worlds.
var features = append(slices.Clone(hard), fatal...)

// fatal are those with which no pod fits, whatever else there is: fewer worlds have them.
var fatal = []feature{
	{"claim being deleted", func(s *scene) {
		c := s.claim("deleted", "static")
		c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Unix(1, 0)), []string{"kubernetes.io/pvc-protection"}
		s.bind(c, s.volume("deleted", "static", "1Gi", ""))
	}},
	{"claim lost", func(s *scene) {
		c := s.claim("lost", "static")
		v := s.volume("lost", "static", "1Gi", "")
		s.bind(c, v)
		c.Status.Phase = corev1.ClaimLost
		if s.oneIn(2) {
			s.Volumes = s.Volumes[:len(s.Volumes)-1]
		}
	}},
	{"claim missing", func(s *scene) { mount(&s.template.Spec, "nobody-made-it") }},
	{"claim's volume missing", func(s *scene) {
		s.bind(s.claim("severed", "static"), s.volume("severed", "static", "1Gi", ""))
		s.Volumes = s.Volumes[:len(s.Volumes)-1]
	}},
	{"claim unbound, static, volume too small or not free", func(s *scene) {
		s.claim("static2", "static")
		s.volume("small", "static", "512Mi", s.zone())
		s.volume("taken", "static", "1Gi", s.zone()).Spec.ClaimRef = &corev1.ObjectReference{Namespace: away, Name: "other", UID: "other"}
		if s.oneIn(2) {
			s.volume("readable", "static", "1Gi", s.zone()).Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}
	}},
	{"claim unbound, immediate", func(s *scene) { s.claim("immediate", "immediate") }},
	{"claim unbound, no such class", func(s *scene) { s.claim("classless", one(s, "", "no-such-class")) }},
	{"claim being bound", func(s *scene) {
		c := s.claim("binding", "static")
		s.bind(c, s.volume("binding", "static", "1Gi", ""))
		c.Annotations, c.Status.Phase = nil, corev1.ClaimPending
	}},
}

// hard are the others.
var hard = []feature{
	{"node cordoned", func(s *scene) {
		n := s.node()
		n.Spec.Unschedulable = true
		if s.oneIn(2) { // the node controller is late otherwise
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		}
	}},
	{"nodes tainted", func(s *scene) {
		for _, n := range s.Nodes {
			if s.oneIn(2) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "for", Value: one(s, web, db), Effect: one(s, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule)})
			}
		}
		if s.oneIn(2) {
			s.template.Spec.Tolerations = append(s.template.Spec.Tolerations, corev1.Toleration{Key: "for", Operator: corev1.TolerationOpEqual, Value: web})
		}
	}},
	{"node not Ready", func(s *scene) { s.silence(s.node()) }},
	{"nodes not Ready, all tolerated", func(s *scene) {
		for _, n := range s.Nodes {
			if s.oneIn(2) {
				s.silence(n)
			}
		}
		s.tolerations = append(s.tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
	}},
	{"nodes of few pods", func(s *scene) { s.allocatable("pods", "1", "2", "3") }},
	{"nodes of little memory", func(s *scene) { s.allocatable("memory", "512Mi", "1536Mi", "3Gi") }},
	{"nodes of little cpu", func(s *scene) { s.allocatable("cpu", "500m", "700m", "1") }},
	{"node without zone", func(s *scene) { delete(s.node().Labels, zone) }},
	{"extended resource", func(s *scene) {
		s.allocatable(gpu, "0", "1", "2")
		request := func(spec *corev1.PodSpec) {
			of := &spec.Containers[0].Resources
			of.Requests[gpu], of.Limits = resource.MustParse("1"), quantities(string(gpu), "1")
		}
		request(&s.template.Spec)
		for _, pod := range s.Pods {
			if s.oneIn(2) {
				request(&pod.Spec)
			}
		}
	}},

	{"own anti-affinity by host", func(s *scene) {
		apart(&s.template.Spec, corev1.PodAffinityTerm{TopologyKey: host, LabelSelector: named(web)})
	}},
	{"own anti-affinity by zone", func(s *scene) {
		apart(&s.template.Spec, corev1.PodAffinityTerm{TopologyKey: zone, LabelSelector: named(web)})
	}},
	{"own anti-affinity to others", func(s *scene) {
		apart(&s.template.Spec, corev1.PodAffinityTerm{TopologyKey: one(s, host, zone), LabelSelector: named(db), Namespaces: one(s, nil, []string{away}, []string{home, away})})
	}},
	{"own anti-affinity, namespaceSelector", func(s *scene) {
		apart(&s.template.Spec, corev1.PodAffinityTerm{TopologyKey: one(s, host, zone), LabelSelector: named(one(s, web, db)), NamespaceSelector: s.namespaces()})
	}},
	{"own anti-affinity, matchLabelKeys", func(s *scene) {
		apart(&s.template.Spec, corev1.PodAffinityTerm{TopologyKey: one(s, host, zone), LabelSelector: named(web), MatchLabelKeys: []string{"pod-template-hash"}})
	}},
	{"own anti-affinity, mismatchLabelKeys", func(s *scene) {
		apart(&s.template.Spec, corev1.PodAffinityTerm{TopologyKey: one(s, host, zone), LabelSelector: named(web), MismatchLabelKeys: []string{"pod-template-hash"}})
	}},
	{"own affinity to itself", func(s *scene) {
		near(&s.template.Spec, corev1.PodAffinityTerm{TopologyKey: zone, LabelSelector: named(web)})
	}},
	{"own affinity, matchLabelKeys", func(s *scene) {
		near(&s.template.Spec, corev1.PodAffinityTerm{TopologyKey: zone, LabelSelector: named(web), MatchLabelKeys: []string{"pod-template-hash"}})
	}},
	{"own affinity to others", func(s *scene) {
		near(&s.template.Spec, corev1.PodAffinityTerm{TopologyKey: one(s, host, zone), LabelSelector: named(db), NamespaceSelector: one(s, nil, s.namespaces())})
	}},
	{"spread by host", func(s *scene) { s.spread(host, nil) }},
	{"spread by zone", func(s *scene) { s.spread(zone, nil) }},
	{"spread of others", func(s *scene) {
		s.spread(zone, func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = named(db) })
	}},
	{"spread, minDomains", func(s *scene) {
		s.spread(zone, func(c *corev1.TopologySpreadConstraint) { c.MinDomains = ptr.To(int32(2 + s.IntN(3))) })
	}},
	{"spread, nodeTaintsPolicy", func(s *scene) {
		s.node().Spec.Taints = []corev1.Taint{{Key: "for", Value: db, Effect: corev1.TaintEffectNoSchedule}}
		s.spread(one(s, host, zone), func(c *corev1.TopologySpreadConstraint) {
			c.NodeTaintsPolicy = ptr.To(one(s, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore))
		})
	}},
	{"spread, nodeAffinityPolicy", func(s *scene) {
		s.template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		s.spread(one(s, host, zone), func(c *corev1.TopologySpreadConstraint) {
			c.NodeAffinityPolicy = ptr.To(one(s, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore))
		})
	}},
	{"spread, matchLabelKeys", func(s *scene) {
		s.spread(one(s, host, zone), func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"pod-template-hash"} })
	}},
	{"own host port", func(s *scene) { s.port(&s.template.Spec) }},
	{"node selector", func(s *scene) { s.template.Spec.NodeSelector = map[string]string{zone: s.zone()} }},
	{"node affinity", func(s *scene) {
		s.tie(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: zone, Operator: one(s, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), Values: []string{s.zone(), s.zone()}},
		}})
	}},
	{"node affinity by name", func(s *scene) {
		s.tie(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{one(s, s.node().Name, s.node().Name, "gone")}},
		}})
	}},
	{"nodeName", func(s *scene) { s.template.Spec.NodeName = s.node().Name }},
	{"overhead", func(s *scene) { s.overhead = quantities("cpu", "400m") }},
	{"sidecar", func(s *scene) {
		s.template.Spec.InitContainers = append(s.template.Spec.InitContainers, corev1.Container{
			Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "300m")},
		})
	}},
	{"own priority", func(s *scene) { s.priority = 10 }},
	{"own priority, no preemption", func(s *scene) { s.priority, s.preempts = 10, ptr.To(corev1.PreemptNever) }},
	{"sibling terminates", func(s *scene) { s.leaves = true }},
	{"sibling to come", func(s *scene) { s.lacks = true }},

	{"others' anti-affinity by host", func(s *scene) { s.apartFromUs(corev1.PodAffinityTerm{TopologyKey: host, Namespaces: []string{home}}) }},
	{"others' anti-affinity by zone", func(s *scene) { s.apartFromUs(corev1.PodAffinityTerm{TopologyKey: zone, Namespaces: []string{home}}) }},
	{"others' anti-affinity by zone, own namespace", func(s *scene) { s.apartFromUs(corev1.PodAffinityTerm{TopologyKey: zone}) }},
	{"others' anti-affinity, namespaceSelector", func(s *scene) {
		s.apartFromUs(corev1.PodAffinityTerm{TopologyKey: one(s, host, zone), NamespaceSelector: s.namespaces()})
	}},
	{"others' host ports", func(s *scene) {
		for _, pod := range s.Pods {
			s.port(&pod.Spec)
		}
		s.port(&s.template.Spec)
	}},
	{"others terminate", func(s *scene) { s.half(terminate) }},
	{"others are over", func(s *scene) {
		s.half(func(pod *corev1.Pod) {
			if phase := one(s, corev1.PodSucceeded, corev1.PodFailed); pod.Spec.NodeName != "" { // else it has not begun
				pod.Status.Phase = phase
			}
		})
	}},
	{"others' priority", func(s *scene) {
		s.half(func(pod *corev1.Pod) { pod.Spec.Priority = ptr.To(one(s, int32(-10), 10, 20)) })
	}},
	{"others are being resized", func(s *scene) {
		s.half(func(pod *corev1.Pod) {
			if pod.Spec.NodeName == "" { // no kubelet has given it anything
				return
			}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "app", AllocatedResources: quantities("cpu", "800m"), Resources: &corev1.ResourceRequirements{Requests: quantities("cpu", "800m")},
			}}
		})
	}},
	{"others' pod-level resize waits, or is infeasible", func(s *scene) {
		s.half(func(pod *corev1.Pod) {
			if pod.Spec.NodeName == "" {
				return
			}
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("cpu", "1200m", "memory", "1Gi")}
			pod.Status.AllocatedResources = quantities("cpu", "900m", "memory", "7Gi")
			pod.Status.Resources = &corev1.ResourceRequirements{Requests: pod.Status.AllocatedResources.DeepCopy()}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: one(s, corev1.PodReasonInfeasible, corev1.PodReasonDeferred)}}
		})
	}},
	{"restart rules that kubelets have to declare", func(s *scene) {
		rules := []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
		s.template.Spec.Containers[0].RestartPolicyRules = rules
		s.half(func(pod *corev1.Pod) { pod.Spec.Containers[0].RestartPolicyRules = rules })
		for i, n := range s.Nodes {
			if i == 0 || s.oneIn(2) { // else nobody could say that the scheduler asks for it
				n.Status.DeclaredFeatures = []string{"RestartAllContainersOnContainerExits"}
			}
		}
	}},

	{"waiting", func(s *scene) { s.waiter() }},
	{"waiting, two", func(s *scene) { s.waiter(); s.waiter() }},
	{"waiting, of higher priority", func(s *scene) { s.waiter().Spec.Priority = ptr.To(int32(20)) }},
	{"waiting, of lower priority", func(s *scene) { s.waiter().Spec.Priority = ptr.To(int32(-10)) }},
	{"waiting, gated", func(s *scene) {
		s.waiter().Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
	}},
	{"waiting, tied to a zone", func(s *scene) { s.waiter().Spec.NodeSelector = map[string]string{zone: s.zone()} }},
	{"waiting, anti-affinity", func(s *scene) {
		apart(&s.waiter().Spec, corev1.PodAffinityTerm{TopologyKey: one(s, host, zone), LabelSelector: named(one(s, web, db, "queue")), Namespaces: []string{home, away}})
	}},
	{"waiting, claim missing", func(s *scene) { mount(&s.waiter().Spec, "nobody-made-it") }},
	{"waiting, claim bound", func(s *scene) {
		pod := s.waiter()
		s.bind(s.claimIn(pod.Namespace, "queue", "static"), s.volume("queue", "static", "1Gi", s.zone()))
		mount(&pod.Spec, "queue")
	}},

	{"claim bound", func(s *scene) { s.bind(s.claim("bound", "static"), s.volume("bound", "static", "1Gi", s.zone())) }},
	{"claim bound, zone as label", func(s *scene) {
		v := s.volume("labelled", "static", "1Gi", "")
		v.Labels = map[string]string{zone: s.zone()}
		s.bind(s.claim("labelled", "static"), v)
	}},
	{"claim unbound, static", func(s *scene) {
		s.claim("static", "static")
		for i := range s.IntN(3) {
			s.volume(fmt.Sprint("static", i), "static", one(s, "1Gi", "2Gi"), s.zone())
		}
	}},
	{"claims unbound, static, two", func(s *scene) {
		s.claim("first", "static")
		s.claim("second", "static")
		for i := range 1 + s.IntN(3) {
			s.volume(fmt.Sprint("pair", i), "static", "1Gi", one(s, "a", "b"))
		}
	}},
	{"claim unbound, dynamic", func(s *scene) { s.claim("dynamic", "dynamic") }},
	{"claim unbound, dynamic, allowedTopologies", func(s *scene) { s.claim("zonal", "zonal") }},
	{"claim unbound, dynamic, storage capacity", func(s *scene) {
		s.claim("tracked", "tracked")
		for i := range s.IntN(3) {
			s.StorageCapacities = append(s.StorageCapacities, &storagev1.CSIStorageCapacity{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("capacity", i), Namespace: away}, StorageClassName: "tracked",
				NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{zone: s.zone()}},
				Capacity:     ptr.To(resource.MustParse(one(s, "512Mi", "10Gi"))), MaximumVolumeSize: one(s, nil, nil, ptr.To(resource.MustParse("256Mi"))),
			})
		}
	}},
	{"claim unbound, node selected", func(s *scene) {
		s.claim("selected", "dynamic").Annotations = map[string]string{"volume.kubernetes.io/selected-node": s.node().Name}
	}},
	{"claim ReadWriteOncePod", func(s *scene) {
		c := s.claim("exclusive", "static")
		s.bind(c, s.volume("exclusive", "static", "1Gi", ""))
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		if s.oneIn(2) {
			pod := s.other("keeper", home, db, "100m")
			pod.Spec.NodeName, pod.Spec.Priority = s.node().Name, ptr.To(one(s, int32(0), -10))
			mount(&pod.Spec, c.Name)
		}
	}},
	{"volumes limited", func(s *scene) {
		s.bind(s.claim("attached", "dynamic"), s.csiVolume("attached"))
		for i, n := range s.CSINodes {
			for j := range s.IntN(3) {
				name := fmt.Sprint("attached", i, "-", j)
				s.bind(s.claimIn(away, name, "dynamic"), s.csiVolume(name))
				pod := s.other(name, away, db, "100m")
				pod.Spec.NodeName = n.Name
				mount(&pod.Spec, name)
			}
			n.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: ptr.To(int32(1 + s.IntN(2)))}
		}
	}},
}

// silence has nothing be heard of the node, with or without the taints that follow.
func (s *scene) silence(n *corev1.Node) {
	n.Status.Conditions[0].Status = one(s, corev1.ConditionFalse, corev1.ConditionUnknown)
	if s.oneIn(2) {
		n.Spec.Taints = append(n.Spec.Taints,
			corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute})
	}
}

// allocatable gives each node one of these amounts.
func (s *scene) allocatable(name corev1.ResourceName, amounts ...string) {
	for _, n := range s.Nodes {
		n.Status.Allocatable[name] = resource.MustParse(one(s, amounts...))
	}
}

func affinity(spec *corev1.PodSpec) *corev1.Affinity {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	return spec.Affinity
}

func apart(spec *corev1.PodSpec, t corev1.PodAffinityTerm) {
	a := affinity(spec)
	if a.PodAntiAffinity == nil {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	terms := &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*terms = append(*terms, t)
}

func near(spec *corev1.PodSpec, t corev1.PodAffinityTerm) {
	a := affinity(spec)
	if a.PodAffinity == nil {
		a.PodAffinity = &corev1.PodAffinity{}
	}
	terms := &a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*terms = append(*terms, t)
}

// tie ties the workload to the nodes of one more term.
func (s *scene) tie(t corev1.NodeSelectorTerm) {
	a := affinity(&s.template.Spec)
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}
	}
	terms := &a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	*terms = append(*terms, t)
}

// namespaces selects those of one team, or all.
func (s *scene) namespaces() *metav1.LabelSelector {
	return one(s, &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "team", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x"}},
	}})
}

func (s *scene) spread(key string, change func(*corev1.TopologySpreadConstraint)) {
	c := corev1.TopologySpreadConstraint{MaxSkew: one(s, int32(1), 1, 2), TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: named(web)}
	if change != nil {
		change(&c)
	}
	s.template.Spec.TopologySpreadConstraints = append(s.template.Spec.TopologySpreadConstraints, c)
}

// port has a pod take a port of its node.
func (s *scene) port(spec *corev1.PodSpec) {
	spec.Containers[0].Ports = []corev1.ContainerPort{{
		ContainerPort: 80, HostPort: one(s, int32(80), 80, 81), HostIP: one(s, "", "", "10.0.0.1", "10.0.0.2"), Protocol: one(s, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP),
	}}
}

// half changes about half of the pods of others.
func (s *scene) half(change func(*corev1.Pod)) {
	for _, pod := range s.Pods {
		if s.oneIn(2) {
			change(pod)
		}
	}
}

func (s *scene) apartFromUs(t corev1.PodAffinityTerm) {
	t.LabelSelector = named(web)
	s.half(func(pod *corev1.Pod) { apart(&pod.Spec, t) })
}

func terminate(pod *corev1.Pod) {
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.Unix(1, 0)), ptr.To(int64(30))
}

// waiter adds a pod that waits for a node.
func (s *scene) waiter() *corev1.Pod {
	pod := s.other(fmt.Sprint("queue", len(s.Pods)), one(s, home, away), "queue", one(s, "200m", "500m", "1500m"))
	pod.Status.Phase = corev1.PodPending
	return pod
}

func mount(spec *corev1.PodSpec, claim string) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
}

// claim adds an unbound claim that the workload mounts.
func (s *scene) claim(name, class string) *corev1.PersistentVolumeClaim {
	mount(&s.template.Spec, name)
	return s.claimIn(home, name, class)
}

func (s *scene) claimIn(namespace, name, class string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name)},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: quantities("storage", "1Gi")},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	s.Claims = append(s.Claims, c)
	return c
}

// volume adds one that is free, in a zone if one is named.
func (s *scene) volume(name, class, size, in string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: quantities("storage", size), StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	}
	if in != "" {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: zone, Operator: corev1.NodeSelectorOpIn, Values: []string{in}}},
		}}}}
	}
	s.Volumes = append(s.Volumes, v)
	return v
}

func (s *scene) csiVolume(name string) *corev1.PersistentVolume {
	v := s.volume(name, "dynamic", "1Gi", "")
	v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}}
	return v
}

func (s *scene) bind(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
	c.Spec.VolumeName, c.Annotations, c.Status.Phase = v.Name, map[string]string{"pv.kubernetes.io/bind-completed": "yes"}, corev1.ClaimBound
	v.Spec.ClaimRef, v.Status.Phase = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID}, corev1.VolumeBound
}
