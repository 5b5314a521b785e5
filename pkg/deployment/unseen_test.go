package deployment

import (
	"errors"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// TestCanaryAfterAStatusWrite: pods that have gone down since an edit that nobody has looked at are not such that the size can only do good,
// though it, or its status, was written since.
func TestCanaryAfterAStatusWrite(t *testing.T) {
	c := newCluster(t, 4, controller.Options{})
	g := c.guarded(t)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual})
	c.Rounds(5)
	g.Edit(newer)
	edited := c.Stamp()
	for _, pod := range maps.Clone(c.Pods) {
		g.Crash(pod, true)
	}
	for range 60 {
		c.Lives()
	}
	d := c.d.DeepCopy()
	for _, of := range []string{"status", ""} { // and its user has annotated it
		d.ManagedFields = append(d.ManagedFields, metav1.ManagedFieldsEntry{Manager: "somebody", Subresource: of, Time: ptr.To(c.Stamp())})
	}
	d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Reason: pausedReason, LastUpdateTime: edited})
	c.storeDeployment(d)
	c.Sees()
	c.Rounds(20)
	if sized := c.Sized(newer); len(sized) != 1 {
		t.Errorf("%v have the size that is not proved: %+v", sized, g.Condition())
	}
}

// TestRefusedCanaryIsLate: a rollout whose canary is refused does not move, and so exceeds its deadline, as one without.
func TestRefusedCanaryIsLate(t *testing.T) {
	for _, canary := range []string{"", "1"} {
		c := newCluster(t, 3, controller.Options{}, func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = ptr.To(int32(60)) })
		g := c.guarded(t)
		g.Annotate(map[string]string{api.CanaryAnnotation: canary})
		for name := range c.Pods {
			c.Refuse("patch pods/resize "+name, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, name, errors.New("exceeded quota: compute")), 1<<30)
		}
		g.Edit(newer)
		c.Rounds(300)
		if !slices.ContainsFunc(c.d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentProgressing && c.Reason == "ProgressDeadlineExceeded"
		}) {
			t.Errorf("a canary of %q: it never is: %+v", canary, g.Condition())
		}
	}
}

// TestGatedPodsAreNotAsked: they wait until they are scheduled.
func TestGatedPodsAreNotAsked(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	name := c.names()[0]
	pod := c.Pods[name].DeepCopy()
	pod.Spec.NodeName, pod.Status.Phase, pod.Status.ContainerStatuses = "", corev1.PodPending, nil
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/topology"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated}}
	c.Schedule = func(*corev1.Pod) string { return "" }
	c.Client.Lock()
	c.WritePod(pod)
	c.Client.Unlock()
	c.Sees()
	c.edit(newer)
	c.Rounds(40)
	if n := simulated.Count(c.Writes, "patch pods/resize "+name); n > 0 {
		t.Errorf("it is asked %d times: %+v", n, condition(&Deployment{Deployment: c.d}))
	}
}

// TestHelpedPod: once a pod that was overdue to be Ready has become so, the next one is overdue sooner, by what is kept of the pods, too.
func TestHelpedPod(t *testing.T) {
	c := newCluster(t, 6, controller.Options{}, func(d *appsv1.Deployment) {
		bounds(0, 2)(&scene{d: d})
		d.Spec.ProgressDeadlineSeconds = ptr.To(int32(200))
	})
	asked, mended := []string{}, false
	c.Judge = func(pod *corev1.Pod, v version) simulated.Outcome {
		if v.CPU != newer.CPU {
			return simulated.Outcome{}
		}
		if !slices.Contains(asked, pod.Name) {
			asked = append(asked, pod.Name)
		}
		nth := slices.Index(asked, pod.Name)
		return simulated.Outcome{Unready: nth == 1 && !mended || nth == 2, Slow: map[int]int{2: 40}[nth]}
	}
	c.edit(newer)
	c.Rounds(110)
	mended = true
	c.Rounds(60) // it panics where the two plans differ
	if len(asked) < 4 {
		t.Errorf("%v were asked", asked)
	}
}
