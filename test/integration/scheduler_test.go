//go:build integration

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// TestRoomAsTheScheduler compares what package capacity says of pods that are made by chance,
// on nodes and among pods that are made by chance, with what the scheduler does.
func TestRoomAsTheScheduler(t *testing.T) {
	t.Parallel()
	const seed, pools, pods = 1, 6, 25
	var scheduled, unscheduled atomic.Int32
	t.Run("pools", func(t *testing.T) {
		for i := range pools {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				p := newChance(t, rand.New(rand.NewPCG(seed, uint64(i))), fmt.Sprintf("chance-%d", i))
				for range pods {
					if p.compare() {
						scheduled.Add(1)
					} else {
						unscheduled.Add(1)
					}
				}
			})
		}
	})
	t.Logf("%d pods were scheduled, %d were not", scheduled.Load(), unscheduled.Load())
	if least := int32(pools * pods / 5); scheduled.Load() < least || unscheduled.Load() < least {
		t.Errorf("want at least %d of each", least)
	}
}

// chance is a pool of nodes with a few pods.
type chance struct {
	*testing.T
	*rand.Rand
	pool, namespace string
	pods            int
}

func newChance(t *testing.T, random *rand.Rand, pool string) *chance {
	t.Helper()
	c := &chance{T: t, Rand: random, pool: pool, namespace: newNamespace(t, nil)}
	for i := range 3 + c.IntN(2) {
		name := fmt.Sprintf("%s-%d", pool, i)
		labels := map[string]string{"pool": pool, "zone": c.one("a", "a", "b", "c")}
		if c.IntN(8) == 0 {
			delete(labels, "zone")
		}
		node := controlplane.Node{
			CPU: c.one("1", "2", "4"), Memory: "16Gi", Labels: labels, Unschedulable: c.IntN(8) == 0,
			Taints: []corev1.Taint{{Key: "pool", Value: c.one("this", "this", "this", "other"), Effect: corev1.TaintEffectNoSchedule}},
		}
		if err := cp.AddNode(t.Context(), name, node); err != nil {
			t.Fatal(err)
		}
		for range c.IntN(3) {
			pod := c.pod()
			pod.Spec.NodeName = name
			c.create(pod)
		}
	}
	for _, zone := range []string{"a", "b"} {
		newVolume(t, c.namespace, "in-"+zone, zone)
		apply(t, c.namespace, `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: in-`+zone+`}, spec: {
			storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`)
		c.run("-n", c.namespace, "wait", "pvc/in-"+zone, "--for=jsonpath={.status.phase}=Bound", "--timeout=60s")
	}
	return c
}

// newVolume makes a volume that is to be had only in one zone, for a claim.
func newVolume(t *testing.T, namespace, claim, zone string) {
	t.Helper()
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + claim},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/nowhere"}},
			ClaimRef:               &corev1.ObjectReference{Namespace: namespace, Name: claim},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}}},
			}}},
		},
	}
	if _, err := client.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting the volume: %v", err)
		}
	})
}

func (c *chance) run(args ...string) {
	c.Helper()
	if _, err := cp.Kubectl(c.Context(), args...); err != nil {
		c.Fatal(err)
	}
}

func (c *chance) one(of ...string) string { return of[c.IntN(len(of))] }

// pod is for the nodes of the pool, and demands something else, or nothing.
func (c *chance) pod() *corev1.Pod {
	c.pods++
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", c.pods), Namespace: c.namespace, Labels: map[string]string{"app": c.one("web", "db")}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"pool": c.pool},
			Tolerations:  []corev1.Toleration{{Key: "pool", Value: "this"}},
			Containers: []corev1.Container{{Name: "app", Image: "none", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(c.one("100m", "300m", "500m", "900m"))},
			}}},
		},
	}
	terms := []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": c.one("web", "db")}}, TopologyKey: c.one("zone", corev1.LabelHostname),
	}}
	switch c.IntN(9) {
	case 0, 1:
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	case 2, 3:
		pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	case 4, 5:
		honor := corev1.NodeInclusionPolicy(c.one(string(corev1.NodeInclusionPolicyHonor), string(corev1.NodeInclusionPolicyIgnore)))
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1 + c.Int32N(2), TopologyKey: terms[0].TopologyKey, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: terms[0].LabelSelector, NodeTaintsPolicy: &honor,
		}}
		if c.IntN(3) == 0 {
			domains := 2 + c.Int32N(3)
			pod.Spec.TopologySpreadConstraints[0].MinDomains = &domains
		}
	case 6:
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	case 7:
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.one("in-a", "in-b")},
		}}}
	}
	return pod
}

func (c *chance) create(pod *corev1.Pod) *corev1.Pod {
	c.Helper()
	pod, err := client.CoreV1().Pods(c.namespace).Create(c.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return pod
}

// compare has the scheduler judge a pod, and returns whether it placed it.
func (c *chance) compare() bool {
	c.Helper()
	pod := c.pod()
	fits := c.fits(pod)
	name := c.create(pod).Name
	var placed bool
	eventually(c.T, fmt.Sprintf("%s to be scheduled, or not: %t", name, len(fits) > 0), func() (bool, string) {
		now, err := client.CoreV1().Pods(c.namespace).Get(c.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		i := slices.IndexFunc(now.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
		if i < 0 {
			return false, "nobody has looked at it"
		}
		condition := now.Status.Conditions[i]
		placed = condition.Status == corev1.ConditionTrue
		// What the scheduler has not seen yet, such as that a pod is gone, can only make it place more.
		return placed == (len(fits) > 0) && (!placed || slices.Contains(fits, now.Spec.NodeName)),
			fmt.Sprintf("it is on node %q, %q fit: %s; it demands %+v", now.Spec.NodeName, fits, condition.Message, pod.Spec)
	})
	if c.IntN(6) == 0 && placed {
		return true // it stays
	}
	c.delete(name)
	return placed
}

// delete returns when the pod is gone.
func (c *chance) delete(name string) {
	c.Helper()
	pods := client.CoreV1().Pods(c.namespace)
	if err := pods.Delete(c.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}); err != nil {
		c.Fatal(err)
	}
	eventually(c.T, name+" to be gone", func() (bool, string) {
		_, err := pods.Get(c.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), said(err)
	})
}

// fits are the names of the nodes on which the pod fits.
func (c *chance) fits(pod *corev1.Pod) []string {
	c.Helper()
	cluster, err := capacity.Read(c.Context(), client, capacity.Sizes, sets.New(c.namespace))
	if err != nil {
		c.Fatal(err)
	}
	for _, v := range pod.Spec.Volumes {
		volume, err := client.CoreV1().PersistentVolumes().Get(c.Context(), c.namespace+"-"+v.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
		if err != nil {
			c.Fatal(err)
		}
		cluster.Volumes = map[types.NamespacedName]*corev1.PersistentVolume{{Namespace: c.namespace, Name: v.PersistentVolumeClaim.ClaimName}: volume}
	}
	cluster.Pods = slices.DeleteFunc(cluster.Pods, func(other *corev1.Pod) bool { return other.Spec.NodeName == "" })
	var names []string
	for _, node := range cluster.Nodes {
		if c.fitsOn(pod, node, cluster) {
			names = append(names, node.Name)
		}
	}
	return names
}

// fitsOn asks whether the pod could take the place of one like it, which is gone, if no
// node but this one were schedulable.
//
// Of the pods on other nodes only those are looked at that the pod names. So it also demands
// to be spread over all of them, with a skew that there never is: that names them all.
func (c *chance) fitsOn(pod *corev1.Pod, node *corev1.Node, cluster capacity.Cluster) bool {
	c.Helper()
	all := slices.Clone(cluster.Nodes)
	for i, other := range all {
		if other.Name != node.Name {
			all[i] = other.DeepCopy()
			all[i].Spec.Unschedulable = true
		}
	}
	cluster.Nodes = all
	gone := pod.DeepCopy()
	gone.UID, gone.Spec.NodeName = "gone", "gone"
	gone.Spec.TopologySpreadConstraints = append(gone.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
		MaxSkew: 1000, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}},
	})
	template := &corev1.PodTemplateSpec{Spec: gone.Spec}
	target, err := resize.For(gone, template, template)
	if err != nil {
		c.Fatal(err)
	}
	m := rollout.Member{Place: rollout.Place{Name: pod.Name, Pod: gone, Target: target}}
	return len(cluster.WithoutRoom(c.Context(), []rollout.Member{m}, rollout.Revision{}, false)) == 0
}
