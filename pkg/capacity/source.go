package capacity

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
)

// source knows which pods and volumes there are in the cluster.
type source interface {
	// onNode lists the pods of a node, or the first of those that wait for one if it has no name.
	onNode(ctx context.Context, name string) ([]*corev1.Pod, error)
	// matching lists at least those.
	matching(ctx context.Context, peers podSet) ([]*corev1.Pod, error)
	// volumes lists those that the pod's claims are bound to. If a claim, or what it is
	// bound to, is known not to be there, some are lost: the pod cannot be scheduled.
	volumes(ctx context.Context, pod *corev1.Pod) (bound []*corev1.PersistentVolume, lost bool, err error)
}

// maxWaiting bounds how many of the pods that wait for a node are looked at, whoever has made them:
// some thousands of them would take this controller's memory, and each is looked at for each node.
// One beyond that may be faster than the pod that a restart brings.
const maxWaiting = 1000

// served is what the API server has, pods as its cache has them.
type served struct{ client kubernetes.Interface }

func (s served) onNode(ctx context.Context, name string) ([]*corev1.Pod, error) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()}
	var all []*corev1.Pod
	var err error
	if name == "" { // what is cached is not served in parts
		all, err = pods.First(ctx, s.client.CoreV1(), maxWaiting, options)
	} else {
		options.ResourceVersion = "0"
		all, err = pods.List(ctx, s.client.CoreV1(), metav1.NamespaceAll, options)
	}
	if err != nil {
		return nil, fmt.Errorf("looking at node %q: %w", name, err)
	}
	return all, nil
}

func (s served) matching(ctx context.Context, peers podSet) ([]*corev1.Pod, error) {
	return pods.List(ctx, s.client.CoreV1(), peers.Namespace, metav1.ListOptions{LabelSelector: peers.String(), ResourceVersion: "0"})
}

func (s served) volumes(ctx context.Context, pod *corev1.Pod) (bound []*corev1.PersistentVolume, lost bool, err error) {
	for _, name := range claims(pod) {
		claim, err := s.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && claim.Spec.VolumeName == "" {
			continue
		}
		var volume *corev1.PersistentVolume
		if err == nil {
			volume, err = s.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		}
		if apierrors.IsNotFound(err) {
			lost = true
			continue
		}
		if err != nil {
			return nil, false, fmt.Errorf("reading the volume of claim %s: %w", name, err)
		}
		bound = append(bound, volume)
	}
	return bound, lost, nil
}

// claims are the names of the pod's PersistentVolumeClaims. Those of ephemeral volumes
// are not among them: they go with the pod.
func claims(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

// snapshot is a Cluster as a source: nothing fails.
type snapshot struct {
	Cluster
	there map[string][]*corev1.Pod
}

func newSnapshot(c Cluster) snapshot {
	s := snapshot{Cluster: c, there: map[string][]*corev1.Pod{}}
	for _, pod := range c.Pods {
		s.there[pod.Spec.NodeName] = append(s.there[pod.Spec.NodeName], pod)
	}
	return s
}

func (s snapshot) onNode(_ context.Context, name string) ([]*corev1.Pod, error) {
	return s.there[name], nil
}

func (s snapshot) matching(context.Context, podSet) ([]*corev1.Pod, error) { return s.Pods, nil }

func (s snapshot) volumes(_ context.Context, pod *corev1.Pod) (bound []*corev1.PersistentVolume, lost bool, err error) {
	for _, name := range claims(pod) {
		if v := s.Volumes[types.NamespacedName{Namespace: pod.Namespace, Name: name}]; v != nil {
			bound = append(bound, v)
		}
	}
	return bound, false, nil
}
