//go:build around

package integration

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestArgoHealth is what Argo CD shows of workloads. What it shows of a real rollout is in TestWaits.
func TestArgoHealth(t *testing.T) {
	is := func(reason string) string {
		return fmt.Sprintf("conditions: [{type: %s, status: %q, reason: %s, message: web-1 waits}]", api.ConditionComplete, map[bool]string{true: "True", false: "False"}[reason == "Complete"], reason)
	}
	const (
		set, deployment, daemons = "StatefulSet", "Deployment", "DaemonSet"
		hold                     = "inplace-rollout.io/hold: any"
		done                     = "readyReplicas: 3, updatedReplicas: 3, replicas: 3, availableReplicas: 3, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 3"
		down                     = "readyReplicas: 2, updatedReplicas: 3, replicas: 3, availableReplicas: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 2"
		late                     = "conditions: [{type: Progressing, reason: ProgressDeadlineExceeded, message: has timed out progressing}]"
	)
	for _, tt := range []struct{ kind, optedIn, annotations, spec, status, want string }{
		{deployment, "true", "", "paused: true", done + ", " + is("Paused"), "Suspended Paused: web-1 waits"},
		{deployment, "true", "", "", done + ", " + late, "Degraded has timed out progressing"},
		{deployment, "false", "", "", done + ", " + late, "Degraded has timed out progressing"},
		{deployment, "false", "", "paused: true", done, "Suspended the Deployment is paused"},
		{deployment, "true", "", "", down + ", " + is("Progressing"), "Progressing 2 of 3 updated pods are available"},
		{set, "true", "", "", done + ", " + is("WaitingForDelete"), "Suspended WaitingForDelete: web-1 waits"},
		{set, "false", "", "updateStrategy: {rollingUpdate: {partition: 1}}", "readyReplicas: 3, updatedReplicas: 2", "Healthy 2 of 3 pods are updated"},
		{set, "false", "", "", "readyReplicas: 3, updatedReplicas: 2", "Progressing 2 of 3 pods are updated"},
		{daemons, "true", "", "", done + ", " + is("WaitingForDelete"), "Suspended WaitingForDelete: web-1 waits"},
		{daemons, "false", "", "updateStrategy: {type: OnDelete}", "desiredNumberScheduled: 3", "Healthy 0 of 3 pods are updated"},
	} {
		assertHealth(t, tt.kind, tt.optedIn, tt.annotations, tt.spec, tt.status, tt.want)
	}
	for _, kind := range []string{set, deployment, daemons} {
		for _, tt := range [][3]string{
			{hold, is("Deferred"), "Progressing Deferred: web-1 waits"}, {hold, is("Infeasible"), "Degraded Infeasible: web-1 waits"},
			{hold, is("Complete"), "Progressing the rollout is held"}, {hold, is("Progressing"), "Progressing Progressing: web-1 waits"},
			{"", is("Complete"), "Healthy 3 of 3 pods are "}, {"", is("NamespaceLeftOut"), "Healthy 3 of 3 pods are "},
		} {
			assertHealth(t, kind, "true", tt[0], "", done+", "+tt[1], tt[2])
		}
		// Complete, but no longer well: as Argo CD itself sees it.
		assertHealth(t, kind, "true", "", "", down+", "+is("Complete"), "Progressing 2 of 3 ")
		assertHealth(t, kind, "true", "", "", down+", "+is("NamespaceLeftOut"), "Progressing 2 of 3 ")
	}
}

func assertHealth(t *testing.T, kind, optedIn, annotations, spec, status, want string) {
	t.Helper()
	object := map[string]any{}
	text := fmt.Sprintf("{metadata: {generation: 1, labels: {%s: %q}, annotations: {%s}}, spec: {replicas: 3, %s}, status: {observedGeneration: 1, %s}}", enabled, optedIn, annotations, spec, status)
	must.Do(t, yaml.Unmarshal([]byte(text), &object))
	if is, message := health(t, kind, object); !strings.HasPrefix(is+" "+message, want) {
		t.Errorf("a %s of %s is %s: %s, want %s", kind, text, is, message, want)
	}
}

// TestGitOpsSeesNoDrift: mid-rollout, a tool that compares by a dry run on the server
// side finds nothing to do, though its manifest has what holds.
func TestGitOpsSeesNoDrift(t *testing.T) {
	parallel(t)
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		o := options{Kind: "StatefulSet", Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}"}
		newWorkload(t, o).testNoDrift(t, o)
	})
	t.Run("DaemonSet", func(t *testing.T) {
		parallel(t)
		o := options{Kind: "DaemonSet", Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}"}
		newDaemonSet(t, o).testNoDrift(t, o)
	})
}

func (s *sandbox[W]) testNoDrift(t *testing.T, o options) {
	t.Helper()
	s.waitComplete()
	slow := s.names()[0]
	s.annotatePod(slow, simDeferred)
	o.Resources = largerThanBase
	wanted := manifest(t, s.namespace, o)
	s.apply(wanted)
	s.waitCondition("Deferred", slow)
	same := writeFile(t, wanted)
	s.assertNoDrift("held", same)
	o.Spec += "\nminReadySeconds: 1"
	other := writeFile(t, manifest(t, s.namespace, o))
	if found, _ := s.drift(other); !strings.Contains(found, "+  minReadySeconds: 1") {
		t.Errorf("another minReadySeconds is no difference: the comparison sees\n%s", found)
	}
	s.apply(wanted)
	if !held(s.get()) {
		t.Error("not held any more after the same manifest")
	}
	s.annotatePod(slow, simAccepted)
	s.waitComplete()
	s.assertNoDrift("complete", same)
	for _, entry := range s.get().GetManagedFields() {
		if entry.Manager == api.FieldManager && strings.Contains(entry.FieldsV1.GetRawString(), "f:spec") {
			t.Errorf("%s owns a part of the spec: %s", entry.Manager, entry.FieldsV1.GetRawString())
		}
	}
}

// drift is what a comparison by a dry run on the server side finds.
func (s *sandbox[W]) drift(file string) (string, error) {
	s.t.Helper()
	return cp.Kubectl(s.t.Context(), "-n", s.namespace, "diff", "--server-side", "--field-manager=gitops", "--filename", file)
}

// assertNoDrift checks that a comparison finds nothing. It is repeated, because a status that is written between its
// two requests is a difference, too.
func (s *sandbox[W]) assertNoDrift(when, file string) {
	s.t.Helper()
	eventually(s.t, when+", no difference", func() (bool, string) {
		found, err := s.drift(file)
		return err == nil, fmt.Sprintf("%v\n%s", err, found)
	})
}
