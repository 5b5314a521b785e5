//go:build integration

package integration

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// newFull makes a Deployment in a namespace whose quota has no room for another ReplicaSet.
func newFull(t *testing.T) *deployment {
	t.Helper()
	d := newDeployment(t, options{})
	d.quotaOfReplicaSets("1")
	d.waitFor("the quota to be counted", func(*appsv1.Deployment) bool {
		return d.kubectl("get", "resourcequota", "sets", "-o", `jsonpath={.status.used.count/replicasets\.apps}`) == "1"
	})
	return d
}

func (d *deployment) quotaOfReplicaSets(n string) {
	d.t.Helper()
	d.apply(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: sets}, spec: {hard: {count/replicasets.apps: "` + n + `"}}}`)
}

const notKept = "revision 1 is not kept in the history"

// TestDeploymentHistoryRefused: a quota of ReplicaSets has no room for the history. The
// rollout says so, waits a while, and is over without it.
func TestDeploymentHistoryRefused(t *testing.T) {
	parallel(t)
	d := newFull(t)
	before := d.uids()
	d.setResources("cpu=150m", "")
	d.waitCondition("QuotaExceeded", notKept+" yet: ")
	d.waitCondition("QuotaExceeded", "exceeded quota: sets")
	d.waitComplete()
	d.assertSettled("150m")
	d.assertMoved(before, "150m")
	d.waitEvent("RevisionNotKept", notKept+", so it cannot be undone to: ")
	if got := d.events("RevisionNotKept"); len(got) != 1 {
		t.Errorf("told %q, want it once", got)
	}
}

// TestDeploymentHistoryRefusedForAWhile: and when the quota is raised, it is kept.
func TestDeploymentHistoryRefusedForAWhile(t *testing.T) {
	parallel(t)
	d := newFull(t)
	before := d.uids()
	d.setResources("cpu=150m", "")
	d.waitCondition("QuotaExceeded", notKept+" yet: ")
	d.quotaOfReplicaSets("2")
	d.waitComplete()
	d.assertMoved(before, "150m")
	d.assertReplicaSets(2)
	if got := d.events("RevisionNotKept"); len(got) != 0 {
		t.Errorf("told %q, and it is kept", got)
	}
	d.kubectl("rollout", "undo", d.ref)
	d.waitComplete()
	d.assertSettled("100m")
}

// TestDeploymentHistoryRefusedAndAnotherEdit: an edit that is not ours is let go at once.
func TestDeploymentHistoryRefusedAndAnotherEdit(t *testing.T) {
	parallel(t)
	d := newFull(t)
	d.setResources("cpu=150m", "")
	d.waitCondition("QuotaExceeded", notKept+" yet: ")
	d.kubectl("set", "image", d.ref, "app=app:2")
	d.waitFor("the hold to be let go", func(o *appsv1.Deployment) bool { return !held(o) && !o.Spec.Paused })
	d.waitEvent("HandedOver", "image")
	d.quotaOfReplicaSets("5") // the Deployment controller needs a ReplicaSet, too
	d.waitComplete()
	d.assertSettled("150m")
}

// TestDeploymentLongName: the history's name is cut as the Deployment controller cuts it.
func TestDeploymentLongName(t *testing.T) {
	parallel(t)
	long := strings.Repeat("w", 250)
	namespace := newNamespace(t, nil)
	text := strings.ReplaceAll(manifest(t, namespace, options{Kind: "Deployment", Replicas: 1, Pod: "hostname: w"}), "name: web\n", "name: "+long+"\n")
	apply(t, namespace, text)
	run := func(args ...string) string {
		t.Helper()
		out, err := cp.Kubectl(t.Context(), append([]string{"-n", namespace}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	run("rollout", "status", "deployment/"+long, "--timeout="+patience.String())
	run("wait", "--for=condition=inplace-rollout.io/Complete", "deployment/"+long, "--timeout="+patience.String())
	run("set", "resources", "deployment/"+long, "--requests=cpu=150m")
	run("wait", "--for=condition=inplace-rollout.io/Complete", "deployment/"+long, "--timeout="+patience.String())
	if got := run("rollout", "history", "deployment/"+long); strings.Count(got, "<none>") != 2 {
		t.Errorf("the history is %s, want two revisions", got)
	}
	run("delete", "deployment", long)
}

// TestDeploymentTwoBudgets: the API server evicts no pod that two budgets select, and says
// so in another way than that one of them does not allow it.
func TestDeploymentTwoBudgets(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 4})
	before := d.uids()
	stuck := d.names()[0]
	d.annotatePod(stuck, simInfeasible)
	d.budget("minAvailable: 1", 3)
	d.apply(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: other}, spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}`)
	d.setResources("cpu=150m", "")
	d.waitCondition("DisruptionBudget", stuck+": not evicted yet: ")
	d.waitCondition("DisruptionBudget", "more than one PodDisruptionBudget")
	d.waitEvent("DisruptionBudget", stuck)
	d.assertReplaced(before)
	d.kubectl("delete", "poddisruptionbudget", "other")
	d.waitComplete()
	d.assertSettled("150m")
	d.assertReplaced(before, stuck)
}
