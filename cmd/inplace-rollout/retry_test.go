package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestRetryAtTheEnd: the condition says Complete a moment after the hold has been let go, and
// a rollout that ends just then is no mistake of the user's.
func TestRetryAtTheEnd(t *testing.T) {
	ends := func(partition int32, updated ...int) func(*stage) {
		return func(s *stage) {
			s.updated(updated...)
			s.set.Generation++
			delete(s.set.Annotations, api.HoldAnnotation)
			*s.set.Spec.UpdateStrategy.RollingUpdate.Partition = partition
		}
	}
	onDelete := func(updated ...int) func(*stage) {
		return func(s *stage) {
			ends(0, updated...)(s)
			s.set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		}
	}
	const (
		ended = "statefulset.apps/web has no rollout in flight: "
		asked = "statefulset.apps/web: what could not be done is retried"
		none  = "statefulset.apps/web has no rollout in place: under way"
	)
	for _, tt := range []struct {
		name     string
		complete bool         // it is not held
		change   func(*stage) // of the held set
		overtake func(*stage) // between the read and the write
		want     string
	}{
		{name: "held", want: asked},
		{name: "complete", complete: true, want: ended + "all pods are of revision web-a"},
		{name: "let go, and not said to be complete", change: ends(0, 0, 1), want: ended + justEnded},
		{name: "the same with a pod that the partition keeps back", change: ends(1, 1), want: ended + justEnded},
		{name: "all are done under OnDelete, and nothing has said so", change: onDelete(0, 1), want: ended + justEnded},
		{name: "one is not done under OnDelete", change: onDelete(1), want: asked},
		{name: "let go for the built-in controller", change: ends(0, 1), want: none},
		{name: "a malformed policy, so that the pods cannot be judged", change: func(s *stage) {
			ends(0, 0, 1)(s)
			s.set.Annotations[api.InForceAnnotation] = ";cpu=Maybe"
			s.set.Annotations[api.ResizePolicyAnnotation] = "cpu=Maybe"
		}, want: none},
		{name: "let go meanwhile", overtake: ends(0, 0, 1), want: ended + justEnded},
		{name: "edited meanwhile", overtake: func(s *stage) { s.set.Spec.Replicas = new(int32) }, want: "retrying statefulset.apps/web: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSetStage(t, 2)
			if !tt.complete {
				s.heldAt(t, larger)
			}
			if tt.change != nil {
				tt.change(s)
			}
			u, c := s.live(t), s.cluster(t)
			if tt.overtake != nil {
				tt.overtake(s)
				c = s.cluster(t)
				c.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewConflict(statefulSets.gvr().GroupResource(), "web", nil)
				})
			}
			got, err := retryOptions{cluster: c}.retry(t.Context(), u)
			if got = nameOf(u) + got; err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestRetryOfPausedDeployments: what the user has paused is not over, though its pods are left alone.
func TestRetryOfPausedDeployments(t *testing.T) {
	s := newDeploymentStage(t, 1)
	s.deploy.Spec.Paused = true
	u := s.live(t)
	conditions := []any{map[string]any{"type": api.ConditionComplete, "status": string(corev1.ConditionFalse), "message": "paused by the user"}}
	must.Do(t, unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions"))
	_, err := retryOptions{cluster: s.cluster(t)}.retry(t.Context(), u)
	must.Fails(t, "paused", err, "rollout in place: paused by the user")
}

// TestRetryAll: what is in flight is tried again, and nothing is said of the rest.
func TestRetryAll(t *testing.T) {
	for _, tt := range []struct {
		what    string
		held    bool
		stopped bool
		retry   retryOptions
		want    string
	}{
		{"one is in flight", true, false, retryOptions{allNamespaces: true}, "statefulset.apps/web (namespace default): what could not be done is retried\n"},
		{"it is selected", true, false, retryOptions{selector: "team=shop"}, "statefulset.apps/web (namespace default): what could not be done is retried\n"},
		{"it is not selected", true, false, retryOptions{selector: "team!=shop"}, "No rollout is in flight that the selector team!=shop selects.\n"},
		{"it was stopped", true, true, retryOptions{allNamespaces: true}, "statefulset.apps/web (namespace default) was stopped because a pod failed, and is left alone: name it, or use --stopped\n"},
		{"also what was stopped", true, true, retryOptions{allNamespaces: true, stopped: true}, "statefulset.apps/web (namespace default): what could not be done is retried\n"},
		{"it is complete", false, false, retryOptions{allNamespaces: true}, "No rollout is in flight.\n"},
	} {
		s := newSetStage(t, 1)
		if tt.held {
			s.heldAt(t, larger)
		}
		s.set.Labels["team"] = "shop"
		if tt.stopped {
			s.set.Annotations[api.RolloutAnnotation] = (&rollout.Record{Phase: rollout.PhaseStopped, Of: "revision web-b", Schema: rollout.RecordSchema}).String()
		}
		tt.retry.cluster = s.cluster(t)
		var out bytes.Buffer
		must.Do(t, tt.retry.run(t.Context(), &out, nil))
		must.Equal(t, out.String(), tt.want, "%s: what it printed", tt.what)
		asked := false
		for _, action := range tt.retry.objects.(*dynamicfake.FakeDynamicClient).Actions() {
			patch, is := action.(clienttesting.PatchAction)
			asked = asked || is
			if name := "revision web-b@0001-01-01T00:00:00Z"; is && strings.Contains(string(patch.GetPatch()), name) != tt.stopped {
				t.Errorf("%s: asked by %s; what was stopped is named %s", tt.what, patch.GetPatch(), name)
			}
		}
		must.Equal(t, asked, strings.Contains(tt.want, "is retried"), "%s: it has asked", tt.what)
	}
	s := newSetStage(t, 1)
	s.heldAt(t, larger)
	o := retryOptions{cluster: s.cluster(t), allNamespaces: true}
	o.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("refused")
	})
	if err := o.run(t.Context(), io.Discard, nil); err == nil || !strings.HasPrefix(err.Error(), "namespace default: retrying statefulset.apps/web: ") {
		t.Errorf("refused: got %v", err)
	}
}

// TestUndo: it goes back to what release would, or as kubectl does, by one write of the template and of nothing else.
func TestUndo(t *testing.T) {
	const (
		middle = "requests: {cpu: 150m, memory: 100Mi}, limits: {cpu: 1, memory: 1Gi}"
		sized  = ": app: cpu request 200m→100m"
	)
	wait := func(kind string) string {
		return "\nTo wait for it: kubectl wait --for=condition=inplace-rollout.io/Complete " + kind + ".apps/web -n default --timeout=10m"
	}
	// held at larger, after revisions of size and middle; in a canary, what its record says is from before it.
	held := func(changes ...func(*stage)) begin {
		return deploymentOf(2, append([]func(*stage){func(s *stage) {
			s.replicaSet(t, "web-b", "2", middle, 0)
			s.deploy.Spec.Template = pointed(build.Size(t, larger))
			s.deploy.Spec.Paused = true
			s.deploy.Annotations[api.HoldAnnotation] = "false"
		}}, changes...)...)
	}
	canary := func(s *stage) { s.recorded(rollout.Record{Phase: rollout.PhaseCanary}, s.pods[0]) }
	// adopted has the first ReplicaSet have larger already, which has no number yet.
	adopted := func(s *stage) {
		rs := s.others[0].(*appsv1.ReplicaSet)
		former := `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"app:1","resources":{"requests":{"cpu":"100m","memory":"100Mi"},"limits":{"cpu":"1","memory":"1Gi"}}}]}}`
		rs.Annotations[api.AdoptedAnnotation] = `{"annotations":{"deployment.kubernetes.io/revision":"1"},"template":` + former + `}`
		rs.Spec.Template.Spec = s.deploy.Spec.Template.Spec
	}
	for name, tt := range map[string]struct {
		stage      begin
		toRevision int64
		dryRun     bool
		want       string // said, after the name
		failed     string
		stays      bool
	}{
		"set":                {stage: heldStage, want: "rolled back to revision 1" + sized + wait("statefulset")},
		"dry run":            {stage: heldStage, dryRun: true, want: "rolled back to revision 1" + sized + " (dry run)"},
		"stopped":            {stage: stoppedStage, want: "rolled back to revision 1" + sized + wait("statefulset")},
		"daemonset":          {stage: heldDaemonSetOf(3), want: "rolled back to revision 1" + sized + wait("daemonset")},
		"by its number":      {stage: heldStage, toRevision: 1, want: "rolled back to revision 1" + sized + wait("statefulset")},
		"of now":             {stage: heldStage, toRevision: 2, stays: true, want: "skipped rollback (current template already matches revision 2)"},
		"no such":            {stage: heldStage, toRevision: 7, failed: "unable to find specified revision 7 in history: it has 1, 2"},
		"nothing before":     {stage: setOf(1), failed: "no last revision to roll back to: the history has only the template that it has now"},
		"no history":         {stage: setOf(1, func(s *stage) { s.others = nil }), failed: "no rollout history found"},
		"lost":               {stage: changed(stoppedStage, func(s *stage) { s.others = s.others[1:] }), failed: "its template from before is not known"},
		"forbidden":          {stage: heldStage, failed: "is forbidden: <nil>\nYou need get and patch for statefulsets, deployments and daemonsets (apps), and list for "},
		"not opted in":       {stage: changed(heldStage, func(s *stage) { s.set.Labels = nil }), want: "rolled back to revision 1" + sized},
		"deployment":         {stage: held(), want: "rolled back to revision 2: app: cpu request 200m→150m" + wait("deployment")},
		"canary":             {stage: held(canary), want: "rolled back to revision 1" + sized + wait("deployment")},
		"adopted":            {stage: held(adopted), want: "rolled back to revision 2: app: cpu request 200m→150m" + wait("deployment")},
		"adopted, by number": {stage: held(adopted), toRevision: 1, want: "rolled back to revision 1" + sized + wait("deployment")},
		"of no number": {stage: held(adopted, canary, func(s *stage) {
			s.deploy.Spec.Template = pointed(build.Size(t, strings.Replace(larger, "200m", "300m", 1)))
		}),
			want: "rolled back to the template from before: app: cpu request 300m→200m" + wait("deployment")},
		"paused": {stage: held(func(s *stage) { s.deploy.Annotations[api.HoldAnnotation] = "true" }),
			want: "rolled back to revision 2: app: cpu request 200m→150m\nIt is paused: nothing happens until you resume it."},
		"image": {stage: held(func(s *stage) { s.deploy.Spec.Template.Spec.Containers[0].Image = "app:2" }),
			want: "rolled back to revision 2: the template changed in spec.containers[app].image" + wait("deployment")},
	} {
		t.Run(name, func(t *testing.T) {
			s := tt.stage(t)
			o := undoOptions{cluster: s.cluster(t), toRevision: tt.toRevision, dryRun: tt.dryRun}
			var patches []clienttesting.PatchActionImpl
			o.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				patches = append(patches, action.(clienttesting.PatchActionImpl))
				if tt.failed != "" {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "statefulsets"}, "web", nil)
				}
				return tt.dryRun, s.live(t), nil
			})
			before := s.live(t)
			var out bytes.Buffer
			err := o.run(t.Context(), &out, before)
			if tt.failed != "" {
				if err == nil || !strings.Contains(err.Error(), "undoing "+nameOf(before)+": ") || !strings.Contains(err.Error(), tt.failed) {
					t.Errorf("error %v, want %q", err, tt.failed)
				}
				return
			}
			must.Do(t, err)
			must.Equal(t, out.String(), nameOf(before)+" "+tt.want+"\n", "what it said")
			if (len(patches) == 0) != tt.stays {
				t.Fatalf("%d patches", len(patches))
			} else if tt.stays {
				return
			}
			of := patches[0]
			const begins = `{"metadata":{"resourceVersion":"7","uid":"uid-of-web"},"spec":{"template":{"spec":`
			if !strings.HasPrefix(string(of.GetPatch()), begins) || of.PatchOptions.FieldManager != "inplace-rollout-undo" || slices.Contains(of.PatchOptions.DryRun, "All") != tt.dryRun {
				t.Errorf("wrote %s with %+v, want %s…", of.GetPatch(), of.PatchOptions, begins)
			}
			_, to, _ := strings.Cut(tt.want, "→")
			if cpu := requestOf(must.Get(o.get(t.Context(), before))(t)); !tt.dryRun && !strings.HasPrefix(cpu, fmt.Sprintf("map[cpu:%.4s", to)) {
				t.Errorf("afterwards it requests %s", cpu)
			}
		})
	}
}

// TestRetryWithoutAController: nothing is retried, and any write to a held workload lets it go, unless it waits for a controller. A dry
// run shows it, or else the heartbeat.
func TestRetryWithoutAController(t *testing.T) {
	const ends, nothing = "this write would end the hold and restart pods: no controller is ready", "nothing would go on with it: the API server applies nothing in this namespace " +
		"that holds edits\nTo let it go: kubectl inplace-rollout release statefulset.apps/web -n default"
	for about, tt := range map[string]struct {
		says   string
		action policy.Action
		wants  policy.Action // by the retry
		beats  time.Duration
		failed string
	}{
		"there is one":                      {beats: -time.Minute},
		"it restarts pods":                  {says: "none", beats: time.Minute, failed: ends},
		"it waits":                          {says: "waits", beats: -time.Minute},
		"all is uninstalled":                {says: "nothing", failed: nothing},
		"no dry run, and it restarts pods":  {says: "forbidden", action: policy.LiveResizePreferred, beats: -time.Minute, failed: ends},
		"no dry run, and it has LiveResize": {says: "forbidden", action: policy.LiveResize, beats: -time.Minute},
		"no dry run, and it has it no more": {says: "forbidden", action: policy.LiveResize, wants: policy.LiveResizePreferred, beats: -time.Minute, failed: ends},
	} {
		s := newSetStage(t, 2)
		s.heldAt(t, larger)
		s.says, s.set.Annotations[api.InForceAnnotation] = tt.says, string(tt.action)+";"
		u, c := s.live(t), s.cluster(t)
		c.reports = nil
		c.client = place{installed: tt.says != "nothing", published: true, beats: tt.beats}.client(t)
		got, err := (retryOptions{cluster: c, action: string(tt.wants)}).retry(t.Context(), u)
		if (err != nil) != (tt.failed != "") || err != nil && !strings.Contains(err.Error(), tt.failed) {
			t.Errorf("%s: %q, %v", about, got, err)
		}
		if waits := tt.failed == "" && about != "there is one"; strings.HasSuffix(got, " when a controller is ready") != waits {
			t.Errorf("%s: %q", about, got)
		}
	}
}
