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
)

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
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		w := newWorkload(t, o)
		w.waitComplete()
		w.testSpelling(t, func() string { return w.get().Status.UpdateRevision })
	})
	t.Run("DaemonSet", func(t *testing.T) {
		parallel(t)
		d := newDaemonSet(t, o)
		d.waitComplete()
		d.edit("150m") // now the pods are of another generation of the template than of this one
		d.testSpelling(t, func() string {
			revisions := d.revisions()
			return revisions[len(revisions)-1].Name + " of " + fmt.Sprint(revisions[len(revisions)-1].Revision)
		})
	})
	t.Run("Deployment", func(t *testing.T) {
		parallel(t)
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
		if got := d.get().Spec.Template.Spec.Volumes[0].EmptyDir.SizeLimit.String(); got != edit.text {
			t.Errorf("the Deployment says %s, and not %s as its user does", got, edit.text)
		}
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
