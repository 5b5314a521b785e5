package deployment

import (
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

type version = simulated.Version

// The edit of most tests leads from older to newer; the others are of the past.
var (
	older      = version{Image: 1, CPU: 1}
	newer      = version{Image: 1, CPU: 2}
	other      = version{Image: 1, CPU: 3}
	limited    = version{Image: 1, CPU: 1, Memory: 1} // its limit cannot be removed in place
	otherImage = version{Image: 2, CPU: 1}
)

var (
	loaded    sync.Once
	templates map[version]*corev1.PodTemplateSpec
)

// load makes the templates of all versions.
func load(t testing.TB) {
	t.Helper()
	loaded.Do(func() { templates = simulated.Templates(t) })
}

// webDeployment is an opted-in Deployment of v; its status is empty.
func webDeployment(v version, replicas int) *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: "uid-of-web", ResourceVersion: "0", Generation: 1,
			Labels: map[string]string{api.EnabledLabel: "true"}, Annotations: map[string]string{},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(replicas)), Template: *templates[v], RevisionHistoryLimit: ptr.To(int32(10)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0))},
			},
		},
	}
}

// webSet is a ReplicaSet of d as the Deployment controller makes it; its status is empty.
func webSet(d *appsv1.Deployment, hash string, v version, replicas int) *appsv1.ReplicaSet {
	labels := map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: hash}
	rs := &appsv1.ReplicaSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-" + hash, UID: types.UID("uid-of-" + hash), ResourceVersion: "1", Generation: 1,
			Labels: labels, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(int32(replicas)), MinReadySeconds: d.Spec.MinReadySeconds,
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: *templates[v].DeepCopy(),
		},
	}
	rs.Spec.Template.Labels = labels
	return rs
}
