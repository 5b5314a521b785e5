package capacity

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	volumehelper "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// volumes are what the claims of a pod ask of a node.
type volumes struct {
	bound   []*corev1.PersistentVolume
	unbound []unbound
	// alone are the claims that one pod alone may use at a time.
	alone []string
}

// unbound is a claim that gets its volume when its pod gets a node.
type unbound struct {
	*corev1.PersistentVolumeClaim
	class *storagev1.StorageClass
}

// get reads an object; nil if it is not there.
func get[T any](m *memo[*T], key, what string, read func() (*T, error)) (*T, error) {
	return m.get(key, func() (*T, error) {
		object, err := read()
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // what is not there
		}
		if err != nil {
			return nil, hidden(err, what)
		}
		return object, nil
	})
}

// volumesOf reads what the claims of a pod are bound to. It answers no if one of them cannot be used by a new pod: it is gone or
// lost, or is to go as soon as no pod uses it, and its data with it (VolumeBinding and VolumeRestrictions in
// pkg/scheduler/framework/plugins of Kubernetes).
func (c *Cluster) volumesOf(ctx context.Context, pod *corev1.Pod) (v volumes, unclear error) {
	for _, volume := range pod.Spec.Volumes {
		claim, err := c.claimOf(ctx, pod, volume)
		if err == nil && claim != nil {
			err = c.bind(ctx, claim, volume.Ephemeral != nil, &v)
		}
		if unclear = cmp.Or(unclear, err); err != nil && !isUnknown(err) {
			return v, err
		}
		if claim != nil && volume.Ephemeral == nil && slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			v.alone = append(v.alone, claim.Name)
		}
	}
	return v, unclear
}

// bind reads what the claim is bound to, or how it gets its volume. An ephemeral one comes with the pod.
func (c *Cluster) bind(ctx context.Context, claim *corev1.PersistentVolumeClaim, ephemeral bool, v *volumes) error {
	name := claim.Spec.VolumeName
	switch {
	case claim.DeletionTimestamp != nil:
		return noNode("its claim %s is being deleted: a new pod could not use it", claim.Name)
	case claim.Status.Phase == corev1.ClaimLost:
		return noNode("its claim %s is Lost: the volume that it was bound to is gone", claim.Name)
	case name != "" && !metav1.HasAnnotation(claim.ObjectMeta, volumehelper.AnnBindCompleted):
		return noNode("its claim %s is not bound to a volume yet", claim.Name)
	case name != "":
		volume, err := get(&c.volumes, name, "get persistent volumes", func() (*corev1.PersistentVolume, error) {
			return c.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		})
		if err == nil && volume == nil {
			err = noNode("the volume %s of its claim %s is gone", name, claim.Name)
		}
		v.bound = append(v.bound, volume)
		return err
	}
	class, err := c.classOf(ctx, claim)
	switch {
	case err != nil:
		return err
	case class != nil && ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingWaitForFirstConsumer:
	case ephemeral: // it gets its volume before the pod gets a node
		return nil
	default:
		return noNode("its claim %s is not bound to a volume yet", claim.Name)
	}
	v.unbound = append(v.unbound, unbound{claim, class})
	return nil
}

// claimOf returns the claim of a volume; nil if it needs none. That of an ephemeral volume comes with the pod.
func (c *Cluster) claimOf(ctx context.Context, pod *corev1.Pod, volume corev1.Volume) (*corev1.PersistentVolumeClaim, error) {
	switch {
	case volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil:
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + "-" + volume.Name}, Spec: volume.Ephemeral.VolumeClaimTemplate.Spec,
		}, nil
	case volume.PersistentVolumeClaim == nil:
		return nil, nil //nolint:nilnil // it needs none
	}
	name := volume.PersistentVolumeClaim.ClaimName
	claim, err := get(&c.claims, pod.Namespace+"/"+name, "get persistent volume claims", func() (*corev1.PersistentVolumeClaim, error) {
		return c.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	})
	if err == nil && claim == nil {
		err = noNode("its claim %s is gone", name)
	}
	return claim, err
}

// classOf is the StorageClass of a claim; nil if there is none.
func (c *Cluster) classOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	name := volumehelper.GetPersistentVolumeClaimClass(claim)
	if name == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	return get(&c.classes, name, "get storage classes", func() (*storagev1.StorageClass, error) {
		return c.client.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	})
}

// reach reports whether the volumes can be had on the node, beside those of the others that are there.
func (c *Cluster) reach(ctx context.Context, node *corev1.Node, v volumes, others []*corev1.Pod) error {
	if !reaches(node, v.bound) {
		return noNode("the volumes cannot be had on node %s", node.Name)
	}
	taken := map[string]*corev1.PersistentVolume{}
	for _, claim := range v.unbound {
		if err := c.provides(ctx, node, claim, taken); err != nil {
			return err
		}
	}
	return c.attaches(ctx, node, v, others)
}

// reaches reports whether volumes can be had on the node.
func reaches(node *corev1.Node, volumes []*corev1.PersistentVolume) bool {
	return !slices.ContainsFunc(volumes, func(v *corev1.PersistentVolume) bool {
		return volumehelper.CheckNodeAffinity(v, node.Labels) != nil || !inZone(v, node)
	})
}

// inZone reports whether the node is in the zones and regions that labels of the volume name, separated by two underscores. A node
// without any is in all (VolumeZone in pkg/scheduler/framework/plugins of Kubernetes).
func inZone(volume *corev1.PersistentVolume, node *corev1.Node) bool {
	stable := map[string]string{
		corev1.LabelFailureDomainBetaZone: corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
		corev1.LabelTopologyZone: corev1.LabelTopologyZone, corev1.LabelTopologyRegion: corev1.LabelTopologyRegion,
	}
	somewhere := false
	for key := range stable {
		_, has := node.Labels[key]
		somewhere = somewhere || has
	}
	for key, other := range stable {
		if zones, has := volume.Labels[key]; has && somewhere && !slices.Contains(strings.Split(zones, "__"), cmp.Or(node.Labels[key], node.Labels[other])) {
			return false
		}
	}
	return true
}

// listVolumes lists all volumes.
func (c *Cluster) listVolumes(ctx context.Context) ([]corev1.PersistentVolume, error) {
	return c.allVolumes.get("", func() ([]corev1.PersistentVolume, error) {
		list, err := c.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return nil, hidden(err, "list persistent volumes")
		}
		return list.Items, nil
	})
}

// provides reports whether a claim gets a volume on the node: one that there is and that no claim has, or one that is made. Taken are those
// that other claims of the pod get, by name.
func (c *Cluster) provides(ctx context.Context, node *corev1.Node, claim unbound, taken map[string]*corev1.PersistentVolume) error {
	no := noNode("node %s has no volume for the claim %s", node.Name, claim.Name)
	if selected := claim.Annotations[volumehelper.AnnSelectedNode]; selected != "" && selected != node.Name {
		return no
	}
	all, err := c.listVolumes(ctx)
	if err != nil {
		return err
	}
	volume, err := volumehelper.FindMatchingVolume(claim.PersistentVolumeClaim, pointers(all), node, taken, true, true)
	if err == nil && volume != nil {
		taken[volume.Name] = volume
		return nil
	}
	if claim.class.Provisioner == volumehelper.NotSupportedProvisioner || !provisions(claim.class, node) {
		return no
	}
	driver, err := get(&c.drivers, claim.class.Provisioner, "get CSI drivers", func() (*storagev1.CSIDriver, error) {
		return c.client.StorageV1().CSIDrivers().Get(ctx, claim.class.Provisioner, metav1.GetOptions{})
	})
	if err != nil || driver == nil || !ptr.Deref(driver.Spec.StorageCapacity, false) {
		return err
	}
	capacities, err := c.storage.get("", func() ([]storagev1.CSIStorageCapacity, error) {
		list, err := c.client.StorageV1().CSIStorageCapacities(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return nil, hidden(err, "list CSI storage capacities")
		}
		return list.Items, nil
	})
	if err != nil || slices.ContainsFunc(capacities, func(s storagev1.CSIStorageCapacity) bool { return stores(s, claim, node) }) {
		return err
	}
	return no
}

// provisions reports whether volumes of the class can be made for the node (MatchTopologySelectorTerms in
// pkg/apis/core/v1/helper of Kubernetes).
func provisions(class *storagev1.StorageClass, node *corev1.Node) bool {
	return len(class.AllowedTopologies) == 0 || slices.ContainsFunc(class.AllowedTopologies, func(term corev1.TopologySelectorTerm) bool {
		return len(term.MatchLabelExpressions) > 0 && !slices.ContainsFunc(term.MatchLabelExpressions, func(r corev1.TopologySelectorLabelRequirement) bool {
			return !slices.Contains(r.Values, node.Labels[r.Key])
		})
	})
}

// stores reports whether a CSIStorageCapacity that counts for the node has room for what the claim asks for (hasEnoughCapacity in
// pkg/scheduler/framework/plugins/volumebinding of Kubernetes).
func stores(s storagev1.CSIStorageCapacity, claim unbound, node *corev1.Node) bool {
	most := s.Capacity
	if s.MaximumVolumeSize != nil {
		most = s.MaximumVolumeSize
	}
	wanted := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if s.StorageClassName != claim.class.Name || most == nil || most.Cmp(wanted) < 0 || s.NodeTopology == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(s.NodeTopology)
	return err == nil && selector.Matches(labels.Set(node.Labels))
}

// attaches reports whether the node may have so many volumes of each CSI driver (NodeVolumeLimits in
// pkg/scheduler/framework/plugins of Kubernetes).
func (c *Cluster) attaches(ctx context.Context, node *corev1.Node, v volumes, others []*corev1.Pod) error {
	wanted := handles{}
	for _, volume := range v.bound {
		wanted.add(volume)
	}
	for _, claim := range v.unbound {
		wanted.insert(claim.class.Provisioner, "of claim "+claim.Namespace+"/"+claim.Name)
	}
	if len(wanted) == 0 {
		return nil
	}
	csi, err := get(&c.csiNodes, node.Name, "get CSI nodes", func() (*storagev1.CSINode, error) {
		return c.client.StorageV1().CSINodes().Get(ctx, node.Name, metav1.GetOptions{})
	})
	if err != nil || csi == nil {
		return err
	}
	for _, driver := range csi.Spec.Drivers {
		if driver.Allocatable == nil || driver.Allocatable.Count == nil || len(wanted[driver.Name]) == 0 {
			continue
		}
		attached, err := c.attached(ctx, others)
		if err != nil {
			return err
		}
		if most := int(*driver.Allocatable.Count); attached[driver.Name].Union(wanted[driver.Name]).Len() > most && !attached[driver.Name].IsSuperset(wanted[driver.Name]) {
			return noNode("node %s can have no more than %d volumes of %s", node.Name, most, driver.Name)
		}
	}
	return nil
}

// handles are volumes by their CSI drivers.
type handles map[string]sets.Set[string]

func (h handles) insert(driver, handle string) {
	if h[driver] == nil {
		h[driver] = sets.New[string]()
	}
	h[driver].Insert(handle)
}

func (h handles) add(volume *corev1.PersistentVolume) {
	if csi := volume.Spec.CSI; csi != nil {
		h.insert(csi.Driver, csi.VolumeHandle)
	}
}

// attached are the volumes of pods.
func (c *Cluster) attached(ctx context.Context, of []*corev1.Pod) (handles, error) {
	all, err := c.listVolumes(ctx)
	if err != nil {
		return nil, err
	}
	byClaim := map[types.NamespacedName]*corev1.PersistentVolume{}
	for i, volume := range all {
		if ref := volume.Spec.ClaimRef; ref != nil {
			byClaim[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}] = &all[i]
		}
	}
	found := handles{}
	for _, pod := range of {
		for _, name := range claimNames(pod) {
			if volume := byClaim[types.NamespacedName{Namespace: pod.Namespace, Name: name}]; volume != nil {
				found.add(volume)
			}
		}
	}
	return found, nil
}

// claimNames are the names of the pod's claims, with those that were made for its ephemeral volumes.
func claimNames(pod *corev1.Pod) []string {
	names := sets.New[string]()
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			names.Insert(v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names.Insert(pod.Name + "-" + v.Name)
		}
	}
	return slices.Collect(maps.Keys(names))
}
