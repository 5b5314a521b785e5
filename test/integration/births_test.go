//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// refusedBirth is a set that lacks pods because admission refuses them at their size.
type refusedBirth struct {
	refuses string // a manifest of what does it
	o       options
	there   int32  // pods that come all the same
	edit    string // that lets the others in
}

func cpu(request string) string {
	return fmt.Sprintf("{requests: {cpu: %s, memory: 100Mi}, limits: {cpu: %s, memory: 100Mi}}", request, request)
}

func quotaOf(cpu string) string {
	return "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: small}\nspec: {hard: {requests.cpu: " + cpu + "}}"
}

func editOf(replicas int, cpu string) string {
	return fmt.Sprintf(`{"spec":{"replicas":%d,"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":%q},"limits":{"cpu":%q}}}]}}}}`, replicas, cpu, cpu)
}

var refusedBirths = map[string]refusedBirth{
	"no pods by a LimitRange": {
		refuses: "apiVersion: v1\nkind: LimitRange\nmetadata: {name: most}\nspec: {limits: [{type: Container, max: {cpu: 1}}]}",
		o:       options{Resources: cpu("2")}, edit: editOf(3, "500m"),
	},
	"no pods by a quota":               {refuses: quotaOf("150m"), o: options{Resources: cpu("200m")}, edit: editOf(3, "50m")},
	"two pods by a quota":              {refuses: quotaOf("200m"), o: options{Resources: cpu("100m")}, there: 2, edit: editOf(3, "60m")},
	"smaller and more in one edit":     {refuses: quotaOf("200m"), o: options{Resources: cpu("100m"), Replicas: 2}, there: 2, edit: editOf(3, "60m")},
	"the lowest pod is kept as it was": {refuses: quotaOf("230m"), o: options{Resources: cpu("100m"), Spec: "updateStrategy: {rollingUpdate: {partition: 1}}"}, there: 2, edit: editOf(3, "60m")},
}

// create makes the set and waits for the pods that admission lets in.
func (r refusedBirth) create(t *testing.T) *workload {
	t.Helper()
	r.o.By = func(namespace, manifest string) {
		apply(t, namespace, r.refuses)
		eventually(t, "the quota to be counted", func() (bool, string) {
			out, err := cp.Kubectl(t.Context(), "-n", namespace, "get", "resourcequotas,limitranges", "-o", "jsonpath={.items[*].status.hard}{.items[*].spec.limits}")
			return err == nil && out != "", out + said(err)
		})
		apply(t, namespace, manifest)
	}
	w := createWorkload(t, r.o)
	w.waitFor("the pods that are let in", func(set *appsv1.StatefulSet) bool {
		return set.Status.UpdateRevision != "" && set.Status.AvailableReplicas == r.there
	})
	return w
}

// TestRefusedBirths: where no pod of the older size can be made, it is made of the newest.
func TestRefusedBirths(t *testing.T) {
	parallel(t)
	for name, r := range refusedBirths {
		for _, management := range []string{"OrderedReady", "Parallel"} {
			t.Run(name+" "+management, func(t *testing.T) {
				parallel(t)
				r.o.Spec = strings.TrimSpace(r.o.Spec + "\npodManagementPolicy: " + management)
				w := r.create(t)
				before := w.uids()
				w.patch(r.edit)
				w.waitComplete()
				w.assertKept(before, 3)
				from := 0
				if name == "the lowest pod is kept as it was" {
					from = 1
				}
				w.waitFor("all pods", func(set *appsv1.StatefulSet) bool { return set.Status.AvailableReplicas == 3 })
				w.assertMoved(from)
			})
		}
	}
}

// TestRefusedBirthAndACrash: the controller dies when it has had the pods made of the newest size.
func TestRefusedBirthAndACrash(t *testing.T) {
	r := refusedBirths["two pods by a quota"]
	w := r.create(t)
	w.letGo()
	before := w.uids()
	process := w.ownController(t, controller.Options{})
	first := w.get().Status.UpdateRevision
	w.patch(r.edit)
	w.waitFor("missing pods to be made of the newest revision", func(set *appsv1.StatefulSet) bool {
		return set.Status.UpdateRevision != first && set.Status.CurrentRevision == set.Status.UpdateRevision
	})
	process.Kill()
	w.waitFor("the third pod", func(set *appsv1.StatefulSet) bool { return set.Status.AvailableReplicas == 3 })
	w.ownController(t, controller.Options{})
	w.waitComplete()
	w.assertMoved(0)
	w.assertKept(before, 3)
}

// TestRefusedBirthForAnUnknownReason: a policy of somebody else lets no pod of the older size in.
// It alone proves that a pod that is refused for a reason that nobody knows does not hold up the rollout for good.
func TestRefusedBirthForAnUnknownReason(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2})
	policy := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: 'object.spec.containers.all(c, quantity(string(c.resources.requests["cpu"])).isGreaterThan(quantity("100m")))'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}`, w.namespace)
	w.apply(policy)
	t.Cleanup(func() {
		_, err := cp.Kubectl(t.Context(), "delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", w.namespace)
		_ = err // the namespace of this test is the only one that it is about
	})
	eventually(t, "the policy to be in force", func() (bool, string) {
		err := w.try(t, "run", "try", "--image=app:1", `--overrides={"spec":{"containers":[{"name":"app","image":"app:1","resources":{"requests":{"cpu":"100m"}}}]}}`, "--dry-run=server")
		return err != nil, said(err)
	})
	w.kubectl("delete", "pod", "web-0", "--now")
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(0)
}
