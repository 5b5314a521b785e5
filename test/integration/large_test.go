//go:build around

package integration

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestFenceOfALargeTemplate: the API server gives up on an expression that costs too much. That
// must not be for a template as large as some are.
// It alone proves that of an edit and its whole rollout.
func TestFenceOfALargeTemplate(t *testing.T) {
	parallel(t)
	var pod strings.Builder
	fmt.Fprintf(&pod, "containers:\n- {name: app, image: app:1, resources: %s}\n", base)
	for i := range 50 {
		fmt.Fprintf(&pod, "- {name: sidecar-%d, image: app:1, resources: {requests: {cpu: 1m}}, env: [", i)
		for j := range 50 {
			fmt.Fprintf(&pod, "{name: VARIABLE_%d, value: %s}, ", j, strings.Repeat("x", 20))
		}
		pod.WriteString("]}\n")
	}
	o := options{Replicas: 1, Pod: pod.String()}
	x := newTrio(t, o)
	x.waitComplete()
	before := x.uids()
	x.setCPU("150m")
	x.waitComplete()
	x.assertMoved(before, "150m")
	must.EqualLists(t, x.d.history(), []int{1, 2}, "the history")
}

// TestControlPlaneRestarts has the API server, etcd and the controller die in the middle of
// rollouts.
func TestControlPlaneRestarts(t *testing.T) {
	slow := `annotations: {sim.inplace-rollout.io/resize-time: "500ms"}`
	w := newWorkload(t, options{Replicas: 4, PodMeta: slow})
	d := newDeployment(t, options{Replicas: 4, PodMeta: slow})
	process := ownController(t, controller.Options{})
	uidsOfSet, uids := w.uids(), d.uids()
	for i, dies := range []func() error{
		func() error { return cp.Restart(t.Context(), "kube-apiserver") },
		func() error { return cp.Restart(t.Context(), "etcd") },
		func() error {
			process.Kill()
			process = ownController(t, controller.Options{})
			return nil
		},
	} {
		cpu := fmt.Sprintf("%dm", 110+10*i)
		w.begin(cpu, "web-3")
		d.beginAny(cpu)
		must.Do(t, dies())
		w.waitComplete()
		d.waitComplete()
		w.assertMoved(0)
		w.assertReplaced(uidsOfSet)
		d.assertMoved(uids, cpu)
	}
}

// respellings of the quantities of a template, as patches of its spec; each takes the text of 256Mi.
var respellings = map[string]string{
	"memory":            `{"containers": [{"name": "app", "resources": {"limits": {"memory": %q}}}]}`,
	"ephemeral-storage": `{"containers": [{"name": "app", "resources": {"limits": {"ephemeral-storage": %q}}}]}`,
	"emptyDir":          `{"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": %q}}]}`,
}

// TestSpelling: who spells the same size otherwise restarts nothing. The built-in controllers of sets
// make a new revision of that, though it is the same for the API server. What CEL takes for equal
// depends on whether a policy with a condition was asked before ours, so there are none at first, and many then.
func TestSpelling(t *testing.T) {
	parallel(t)
	o := options{
		Resources: "{requests: {cpu: 100m, memory: 128Mi, ephemeral-storage: 256Mi}, limits: {cpu: 200m, memory: 256Mi, ephemeral-storage: 256Mi}}",
		Pod:       "volumes: [{name: scratch, emptyDir: {sizeLimit: 256Mi}}]",
	}
	inParallel(t, "StatefulSet", func(t *testing.T) {
		w := newWorkload(t, o)
		w.waitComplete()
		w.testSpelling(t, func() string { return w.get().Status.UpdateRevision })
	})
	inParallel(t, "DaemonSet", func(t *testing.T) {
		d := newDaemonSet(t, o)
		d.waitComplete()
		d.edit("150m") // now the pods are of another generation of the template than of this one
		d.testSpelling(t, func() string {
			revisions := d.revisions()
			return revisions[len(revisions)-1].Name + " of " + fmt.Sprint(revisions[len(revisions)-1].Revision)
		})
	})
	inParallel(t, "Deployment", func(t *testing.T) {
		d := newDeployment(t, o)
		d.testSpellingBesides(t)
	})
}

// testSpellingBesides: what makes no rollout of a Deployment does not stand in the way of what does.
func (d *deployment) testSpellingBesides(t *testing.T) {
	t.Helper()
	uids := d.uids()
	for _, edit := range []struct{ cpu, text string }{{"150m", "268435456"}, {"160m", "256Mi"}} {
		d.patch(fmt.Sprintf(`{"spec": {"template": {"spec": {
			"containers": [{"name": "app", "resources": {"requests": {"cpu": %q, "ephemeral-storage": %[2]q}, "limits": {"memory": %[2]q, "ephemeral-storage": %[2]q}}}],
			"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": %[2]q}}]}}}}`, edit.cpu, edit.text))
		d.waitComplete()
		d.assertMoved(uids, edit.cpu)
		must.Equal(t, d.get().Spec.Template.Spec.Volumes[0].EmptyDir.SizeLimit.String(), edit.text, "what its user says")
	}
}

func (s *sandbox[W]) testSpelling(t *testing.T, revision func() string) {
	t.Helper()
	uids := s.uids()
	respell := func(text string) {
		for name, patch := range respellings {
			before := revision()
			s.patch(`{"spec": {"template": {"spec": ` + fmt.Sprintf(patch, text) + `}}}`)
			s.waitFor("a new revision to be rolled out", func(set W) bool {
				status, _, _ := complete(set)
				return revision() != before && status == corev1.ConditionTrue && !held(set)
			})
			if now := s.uids(); !maps.Equal(uids, now) {
				t.Fatalf("with %s as %s the pods were %v and are %v", name, text, uids, now)
			}
		}
	}
	respell("268435456")
	defer respell("256Mi")
	if !cp.AtLeast("1.36") { // there are no policies that others may have
		return
	}
	const others = 8
	for i := range others {
		mark := fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/labels/example.com~1large-%d", value: ""}]`, i)
		otherPolicy(t, s.namespace, fmt.Sprintf("%s-%d", s.namespace, i), mark, func(spec *admissionv1.MutatingAdmissionPolicySpec) {
			spec.MatchConditions = []admissionv1.MatchCondition{{Name: "is-large", Expression: "object.spec.revisionHistoryLimit > 100"}}
			spec.FailurePolicy, spec.ReinvocationPolicy = ptr.To(admissionv1.Ignore), admissionv1.NeverReinvocationPolicy
		})
	}
	eventually(t, "the other policies to be in force", func() (bool, string) {
		out := s.kubectl("patch", s.ref, "--patch", `{"spec": {"revisionHistoryLimit": 101}}`, "--dry-run=server", "--output=yaml")
		return strings.Count(out, "example.com/large-") >= others, out
	})
}
