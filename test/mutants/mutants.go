package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// mutant is the product without one of its safeties.
type mutant struct {
	name   string // on the command line
	safety string // for the table
	without
	scenario
}

// without is what is taken out, in words and in the source.
type without struct {
	words string
	edits []edit
}

// edit replaces a text, which must be there exactly once.
type edit struct{ file, text, by string }

// scenario shows what happens then: random worlds from a seed on, if one is known in which it
// does; and tests of test/integration, or of another package.
type scenario struct {
	seed    uint64 // of the first of ten worlds that are played together
	tests   string
	testsOf string
}

// mutants are all that there are. Each of them must be found.
var mutants = []mutant{
	{
		name: "version-in-resizes", safety: "resourceVersion precondition of resizes",
		without: without{"the patch of a resize has the pod's UID alone", []edit{
			{"pkg/resize/target.go", `"uid": t.pod.UID, "resourceVersion": t.pod.ResourceVersion`, `"uid": t.pod.UID`},
		}},
		scenario: scenario{tests: "TestLateWrites/a_resize.*"},
	},
	{
		name: "version-of-workloads", safety: "resourceVersion precondition of workload writes",
		without: without{"letting go of a hold, or moving the partition, has no resourceVersion", []edit{
			{"pkg/controller/instruct.go", `"uid": w.GetUID(), "resourceVersion": w.GetResourceVersion(), "annotations": annotations,`, `"uid": w.GetUID(), "annotations": annotations,`},
		}},
		scenario: scenario{tests: "TestLateWrites/the_end_of_a.*"},
	},
	{
		name: "version-of-pods", safety: "resourceVersion precondition of labels",
		without: without{"the label of a pod is written with its UID alone", []edit{
			{"pkg/pods/write.go", `metadata["uid"], metadata["resourceVersion"] = pod.UID, pod.ResourceVersion`, `metadata["uid"] = pod.UID`},
		}},
		scenario: scenario{tests: "TestLateWrites/a_label"},
	},
	{
		name: "canary", safety: "canaries come before the others",
		without: without{"every pod is asked at once", []edit{
			{"pkg/rollout/guard.go", `v.HasSize() || g.changed(v) || g.open(v) || g.of(v).lacksCanary(v.Claim.Ready)`, `true`},
		}},
		scenario: scenario{tests: "TestGuardedRollouts"},
	},
	{
		name: "births", safety: "no pod is born with a size that a canary has not proved",
		without: without{"status.currentRevision follows each edit, and a scaling to zero", []edit{
			{"deploy/cluster/status.yaml", `|| variables.formerUnproved`, ``},
			{"deploy/cluster/status.yaml", `variables.held && (variables.record`, `false && (variables.record`},
		}},
		scenario: scenario{tests: "TestLostPodsAreMadeFrom", testsOf: "./pkg/webhook"},
	},
	{
		name: "pending", safety: "an edit with a canary is not let go before anybody has looked at it",
		without: without{"the edit itself begins no record", []edit{
			{"deploy/cluster/hold.yaml", `oldObject == null || !variables.edited && (`, `true || !variables.edited && (`},
		}},
		scenario: scenario{tests: "TestPending", testsOf: "./pkg/webhook"},
	},
	{
		name: "retry-by-name", safety: "a stop is lifted only by its name",
		without:  without{"any value lifts it", []edit{{"pkg/rollout/record.go", `r.Stopped() && word == r.Name()`, `r.Stopped() && word != ""`}}},
		scenario: scenario{tests: "TestRetriedRecord", testsOf: "./pkg/rollout"},
	},
	{
		name: "version-of-condition", safety: "resourceVersion precondition of Complete=True",
		without: without{"the condition is written with the workload's UID alone", []edit{
			{"pkg/controller/condition.go", `metadata["resourceVersion"] = w.GetResourceVersion()`, ``},
		}},
		scenario: scenario{tests: "TestLateWrites/Complete"},
	},
	{
		name: "keeps-hold", safety: "a write of others keeps the hold",
		without: without{"only an edit and opting in hold, and the guard lets that pass", []edit{
			{"deploy/cluster/hold.yaml", `(variables.held || variables.startsRollout`, `((variables.edited || !variables.enabledBefore)`},
			{"deploy/cluster/guard.yaml", "Allow\n  validationActions: [Deny]", "Allow\n  validationActions: [Audit]"},
		}},
		scenario: scenario{seed: 1, tests: "TestReapplies"},
	},
	{
		name: "live-read", safety: "live read before what takes pods down",
		without: without{"such plans are made from the watches", []edit{
			{"pkg/controller/sync.go", `if err == nil && (p.NeedsLiveRead() || s.unanswered) {`, `if false {`},
		}},
		scenario: scenario{tests: "TestWatchOfPodsIsBehind", testsOf: "./pkg/deployment"},
	},
	{
		name: "acknowledged", safety: "acknowledgement by the built-in controller",
		without: without{"the status is believed whatever generation it is of", []edit{
			{"pkg/controller/kind.go", `return rollout.ObservedGeneration(a.ObservedGeneration(w), a.ConditionOf(w, api.ConditionObserved)) >= w.GetGeneration()`, `return rollout.ObservedGeneration(0, a.ConditionOf(w, api.ConditionObserved)) >= 0`},
		}},
		scenario: scenario{tests: "TestBuiltInControllersAreSlow"},
	},
	{
		name: "actuated", safety: "completion check of resizes",
		without: without{"a pod whose spec has the size counts as resized", []edit{
			{"pkg/resize/state.go", `	if t.Unscheduled() {
		return Unready, "waiting for a node"
	}
	if state,`, `	if !t.Unscheduled() {
		return Actuated, ""
	}
	if state,`},
		}},
		scenario: scenario{tests: "TestFlow"},
	},
	{
		name: "capacity", safety: "room for a restarted pod",
		without: without{"nobody looks for room", []edit{
			{"pkg/controller/sync.go", `fresh := unasked(p, asked)`, `fresh := unasked(rollout.Plan{}, asked)`},
		}},
		scenario: scenario{tests: "TestNoRoomBesideOthers", testsOf: "./pkg/statefulset"},
	},
	{
		name: "ledger", safety: "room that another rollout was promised",
		without: without{"each rollout has all the room", []edit{
			{"pkg/capacity/room.go", `leaving, coming := c.ledger.beside(workload, c.now)`, `leaving, coming := c.ledger.beside(workload, c.now); leaving, coming = nil, nil`},
		}},
		scenario: scenario{tests: "TestTwoRollouts", testsOf: "./pkg/capacity"},
	},
	{
		name: "proof", safety: "proof of a size for minReadySeconds",
		without: without{"a pod that has its size has proved it", []edit{
			{"pkg/judge/verdict.go", `	v.prove(o)
`, ``},
		}},
		scenario: scenario{tests: "TestSimulation", testsOf: "./pkg/statefulset"},
	},
	{
		name: "newest-image", safety: "a lost pod is made of the newest template before the edit",
		without: without{"what it is made of is left to the StatefulSet controller", []edit{
			{"deploy/cluster/status.yaml", `(variables.born == "" ? [] : [JSONPatch{op: "add", path: "/status/currentRevision", value: variables.born}]) +`, ``},
		}},
		scenario: scenario{tests: "TestLostPodsAreMadeFrom", testsOf: "./pkg/webhook"},
	},
	{
		name: "recreate", safety: "with Recreate no pod is taken down by us",
		without: without{"pods that only a restart helps are evicted", []edit{
			{"pkg/deployment/plan.go", `	case p.Unready: // it may be the size
	case len(p.Restart) > 0 && o.deployment.recreates():
		p.recreate(o)
`, `	case p.Unready: // it may be the size
`},
			{"pkg/deployment/plan.go", `	case len(p.Restart) > 0 && o.deployment.recreates():
		p.recreate(o)
	case len(p.Restart) > 0 && p.base.adopted()`, `	case len(p.Restart) > 0 && p.base.adopted()`},
		}},
		scenario: scenario{tests: "TestDeploymentRecreate"},
	},
	{
		name: "room-each", safety: "room before each restart of a StatefulSet for more",
		without: without{"all that is to be restarted is handed over at once", []edit{
			{"pkg/statefulset/plan.go", `if !slices.ContainsFunc(p.Restart, needsRoom) && !p.Unproved() {`, `if !p.Unproved() {`},
		}},
		scenario: scenario{tests: "TestNextStep", testsOf: "./pkg/statefulset"},
	},
	{
		name: "ahead", safety: "a pod that is down and goes first takes nobody with it",
		without: without{"the partition is lowered to it", []edit{
			{"pkg/statefulset/plan.go", `if ahead := p.turn[first:]; !slices.ContainsFunc(ahead, notOurs) {`, `if ahead := p.turn[first:]; false && !slices.ContainsFunc(ahead, notOurs) {`},
		}},
		scenario: scenario{tests: "TestNextStep", testsOf: "./pkg/statefulset"},
	},
	{
		name: "own-node", safety: "room on its own node for a DaemonSet's pod",
		without: without{"a pod that comes back to its node may have room on any other", []edit{
			{"pkg/capacity/places.go", `if only := TargetNode(pod); only != "" {`, `if only := TargetNode(pod); false {`},
			{"pkg/capacity/candidates.go", `if matches, err := affinity.Match(node); err != nil || !matches || lost(node) || !open(pod, node)`, `if _, err := affinity.Match(node); err != nil || lost(node) || !open(pod, node)`},
		}},
		scenario: scenario{tests: "TestUnplaceableOnItsNode", testsOf: "./pkg/capacity"},
	},
	{
		name: "made-from", safety: "a DaemonSet's pods are what they were made from",
		without: without{"a pod whose labels count as updated is taken for updated", []edit{
			{"pkg/daemonset/observe.go", `carries := o.revisions[revisions.HashOf(pod)]`, `carries := map[bool]*revision{true: o.newest, false: o.revisions[revisions.HashOf(pod)]}[p.Labelled]`},
		}},
		scenario: scenario{tests: "TestDaemonSetAdoptsPods"},
	},
	{
		name: "surge", safety: "no hold while a rollout with maxSurge is in flight",
		without: without{"the policy holds all the same", []edit{
			{"deploy/cluster/hold.yaml", `&& !variables.surging &&`, `&&`},
		}},
		scenario: scenario{tests: "TestDaemonSetEditDuringASurge"},
	},
	{
		name: "orphaned", safety: "a Lease that was taken from its holder is free after that one's term",
		without: without{"it is free at once", []edit{
			{"pkg/server/leasegate.go", `!l.orphaned.IsZero() && left > 0 {`, `!l.orphaned.IsZero() && left > leaseDuration {`},
		}},
		scenario: scenario{tests: "TestLeaseTakenAway", testsOf: "./pkg/server"},
	},
	{
		name: "leader", safety: "the leader writes only while it surely leads",
		without: without{"the gate before writes is always open", []edit{
			{"pkg/server/leasegate.go", `return now.Before(g.until) && now.Round(0).Before(g.wall)`, `return !now.IsZero()`},
		}},
		scenario: scenario{tests: "TestLeaseGateIsOpen.*", testsOf: "./pkg/server"},
	},
	{
		name: "absent", safety: "nothing is held while no controller is there",
		without: without{"the policies take it that one is always there", []edit{
			{"deploy/cluster/hold.yaml", `!variables.instructs && !variables.there &&`, `!variables.instructs && false &&`},
		}},
		scenario: scenario{seed: 21, tests: "TestAbsent"},
	},
	{
		name: "in-force", safety: "a dry run before Ready",
		without: without{"what is installed counts as in force", []edit{
			{"pkg/prerequisite/gate.go", `case !l.cluster.DryRun && (l.woken ||`, `case l.cluster.DryRun && (l.woken ||`},
		}},
		scenario: scenario{tests: "TestHeldIsUndone"},
	},
	{
		name: "each-server", safety: "each API server is asked before Ready",
		without: without{"what one of them says counts", []edit{
			{"pkg/prerequisite/held.go", `		c.askEach(ctx, way, parts[2], &h)
`, ``},
		}},
		scenario: scenario{tests: "TestEachAPIServer", testsOf: "./pkg/prerequisite"},
	},
	{
		name: "handed-over", safety: "the heartbeat of a controller that was not ready stays until it is out of date",
		without: without{"whoever ends takes it away", []edit{
			{"pkg/heartbeat/heartbeat.go", `h.value != "" && h.Ready() == nil`, `h.value != ""`},
		}},
		scenario: scenario{tests: "TestEndsWhileNotReady", testsOf: "./pkg/heartbeat"},
	},
	{
		name: "newest-obstacle", safety: "an obstacle that a new pod would have, too, is none",
		without: without{"a container that the template names and the pod lacks is one", []edit{
			{"pkg/resize/target.go", `				t.Absent = append(t.Absent, want.name)
`, `				t.obstruct("container %s is not in the pod", want.name)
`},
		}},
		scenario: scenario{tests: "TestSimulationOfHands", testsOf: "./pkg/statefulset"},
	},
	{
		name: "loss-per-pod", safety: "losses after a resize are counted for the rollout",
		without: without{"they are counted for the pod, and the next one begins anew", []edit{
			{"pkg/judge/losses.go", `	l.lost = append(l.lost, fresh...)
`, `	l.lost = fresh
`},
		}},
		scenario: scenario{tests: "TestSimulationOfHands", testsOf: "./pkg/statefulset"},
	},
	{
		name: "unedited-value", safety: "a value that the edit does not change stays as admission made it",
		without: without{"every value of the template is set", []edit{
			{"pkg/resize/target.go", `		return v.follows || !same(v.was, v.is)
`, `		return true
`},
		}},
		scenario: scenario{tests: "TestSimulationOfHands", testsOf: "./pkg/statefulset"},
	},
	{
		name: "fence", safety: "the policies around our own ServiceAccount",
		without: without{"what they deny is only noted in the audit log", []edit{
			{"deploy/cluster/fence-pods.yaml", `validationActions: [Deny]`, `validationActions: [Audit]`},
			{"deploy/cluster/fence-replicasets.yaml", `validationActions: [Deny]`, `validationActions: [Audit]`},
			{"deploy/cluster/fence-workloads.yaml", `validationActions: [Deny]`, `validationActions: [Audit]`},
		}},
		scenario: scenario{tests: "TestFence"},
	},
}

// apply takes the safety out of the source in a folder.
func (m mutant) apply(dir string) error {
	for _, e := range m.edits {
		file := filepath.Join(dir, e.file)
		source, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading the source: %w", err)
		}
		if n := bytes.Count(source, []byte(e.text)); n != 1 {
			return fmt.Errorf("%s: the text to be taken out is there %d times, want once: %s", e.file, n, e.text)
		}
		if err := os.WriteFile(file, bytes.Replace(source, []byte(e.text), []byte(e.by), 1), 0o600); err != nil {
			return fmt.Errorf("writing the source: %w", err)
		}
	}
	return nil
}
