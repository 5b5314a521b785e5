//go:build integration

package integration

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// byOthers resizes the memory of a pod as an autoscaler does.
func (s *sandbox[W]) byOthers(pod, memory string) {
	s.t.Helper()
	s.kubectl("patch", "pod", pod, "--subresource=resize", "--patch",
		`{"spec":{"containers":[{"name":"app","resources":{"requests":{"memory":"`+memory+`"}}}]}}`)
	s.waitPod(pod, "to have memory "+memory, func(p corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].AllocatedResources.Memory().String() == memory
	})
}

// TestPolicyOfWhatOthersHaveChanged edits cpu where an autoscaler has raised the memory of
// one pod: to take that back is a change of memory, which the policy does not let happen live.
func TestPolicyOfWhatOthersHaveChanged(t *testing.T) {
	parallel(t)
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		w := newWorkload(t, options{Meta: memoryRestarts("")})
		before := w.uids()
		w.byOthers("web-1", "150Mi")
		w.setResources("cpu=150m", "")
		w.waitComplete()
		w.assertMoved(0)
		w.assertReplaced(before, "web-1")
		w.waitEvent("RestartFallback", "web-1: restarted by the StatefulSet controller: memory of app: RestartOnly (annotation memory)")
	})
	t.Run("Deployment", func(t *testing.T) {
		parallel(t)
		d := newDeployment(t, options{Meta: memoryRestarts("")})
		before, other := d.uids(), d.names()[1]
		d.byOthers(other, "150Mi")
		d.edit("150m")
		d.assertSettled("150m")
		d.assertReplaced(before, other)
		d.waitEvent("RestartFallback", "memory of app: RestartOnly (annotation memory)")
	})
}

// TestPolicyOfARevert goes back in the middle of a rollout: what was resized already is
// not shrunk live, and what was not is as it was.
func TestPolicyOfARevert(t *testing.T) {
	parallel(t)
	const request = "cpu=100m,memory="
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		w := newWorkload(t, options{Meta: memoryRestarts(":decrease")})
		before := w.uids()
		w.annotatePod("web-1", simDeferred)
		w.setResources(request+"150Mi", "")
		w.waitCondition("Deferred", "web-1")
		w.setResources(request+"100Mi", "")
		w.waitComplete()
		w.assertMoved(0)
		w.assertReplaced(before, "web-2")
	})
	t.Run("Deployment", func(t *testing.T) {
		parallel(t)
		d := newDeployment(t, options{Meta: memoryRestarts(":decrease")})
		d.kubectl("annotate", "deployment/web", api.ResizeActionAnnotation+"=LiveResize") // nobody waits for a pod that is left
		before, late := d.uids(), d.names()[2]
		d.annotatePod(late, simInfeasible)
		d.setResources(request+"150Mi", "")
		d.waitFor("the others to be resized", func(d2 *appsv1.Deployment) bool {
			_, reason, message := complete(d2)
			return reason == "Infeasible" && strings.HasPrefix(message, "2 of 3 pods")
		})
		d.setResources(request+"100Mi", "")
		d.waitComplete()
		after := d.uids()
		for name := range before {
			if _, kept := after[name]; kept != (name == late) {
				t.Errorf("%s was kept: %t; want only %s, whose size was never carried out, to be", name, kept, late)
			}
		}
		d.waitEvent("RestartFallback", "memory of app: RestartOnly (annotation memory:decrease)")
	})
}
