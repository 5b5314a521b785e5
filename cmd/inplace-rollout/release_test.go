package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/golden"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// A cluster of fakes has no admission policies, as one that deploy/ was deleted from.
func TestRelease(t *testing.T) {
	deployment := func(wish string) func(*testing.T) *stage {
		return deploymentOf(2, func(s *stage) {
			s.deploy.Spec.Template.Spec.Containers[0].Image = "app:2"
			s.deploy.Spec.Paused = true
			s.deploy.Annotations[api.HoldAnnotation] = wish
		})
	}
	heldSet := heldSetOf(3)
	unready := func(s *stage) { build.NotReady(s.pods[0]) }
	pending := func(s *stage) { s.meta().Annotations[api.RolloutAnnotation] = `{"phase":"Pending","version":1}` }
	for name, tt := range map[string]struct {
		stage   func(*testing.T) *stage
		answer  string
		yes     bool
		dryRun  bool
		stopped bool
		back    bool // the template is the one from before
		failed  string
		spec    string // what holds it afterwards
	}{
		"set":       {stage: heldStage, answer: "y\n", spec: "partition 0"},
		"dry-run":   {stage: heldStage, dryRun: true, spec: "partition 2147483647, held"},
		"no-room":   {stage: waiting(judge.ReasonNoNodeFits), dryRun: true, spec: "partition 2147483647, held"},
		"no-quota":  {stage: waiting(judge.ReasonQuotaExceeded), dryRun: true, spec: "partition 2147483647, held"},
		"not-ready": {stage: changed(heldStage, unready), dryRun: true, spec: "partition 2147483647, held"},
		"not-ready-parallel": {stage: changed(heldStage, unready, func(s *stage) { s.set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }), dryRun: true,
			spec: "partition 2147483647, held"},
		"declined":              {stage: heldStage, answer: "n\n", failed: "nothing was released", spec: "partition 2147483647, held"},
		"no-answer":             {stage: heldStage, failed: "nothing was released", spec: "partition 2147483647, held"},
		"deployment":            {stage: deployment("false"), yes: true, spec: "paused false"},
		"deployment-paused":     {stage: deployment("true"), yes: true, spec: "paused true"},
		"deployment-restored":   {stage: changed(deployment("false"), func(s *stage) { s.pods = nil }), yes: true, spec: "paused false"},
		"daemonset":             {yes: true, spec: "RollingUpdate", stage: heldDaemonSetOf(3)},
		"nothing":               {stage: setOf(1), spec: "partition 0"},
		"partition":             {yes: true, spec: "partition 2", stage: changed(heldStage, func(s *stage) { s.set.Annotations[api.HoldAnnotation] = "2" })},
		"detached":              {answer: "y\n", spec: "paused false", stage: changed(deployment("false"), func(s *stage) { detach(s, 1) })},
		"detached-and-not-held": {yes: true, spec: "paused false", stage: deploymentOf(2, func(s *stage) { detach(s, 0) })},
		"ondelete": {yes: true, spec: "partition 0", stage: changed(heldStage, func(s *stage) {
			s.set.Annotations[api.HoldAnnotation] = "OnDelete"
			s.set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		})},
		// What has failed goes no further.
		"stopped":              {yes: true, back: true, stage: stoppedStage, spec: "partition 0"},
		"stopped-dry-run":      {dryRun: true, stage: stoppedStage, spec: "partition 2147483647, held"},
		"stopped-all-the-same": {yes: true, stopped: true, stage: stoppedStage, spec: "partition 0"},
		"stopped-without-history": {yes: true, spec: "partition 2147483647, held", failed: "its template from before is not known",
			stage: changed(stoppedStage, func(s *stage) { s.others = s.others[1:] })},
		"canary":          {yes: true, back: true, stage: canaryStage, spec: "partition 0"},
		"canary-promoted": {yes: true, stage: changed(canaryStage, func(s *stage) { s.set.Annotations[api.PromoteAnnotation] = "revision web-b@0001-01-01T00:00:00Z" }), spec: "partition 0"},
		// No controller has looked at it.
		"pending":           {yes: true, back: true, stage: changed(heldSet, pending), spec: "partition 0"},
		"pending-dry-run":   {dryRun: true, stage: changed(heldSet, pending), spec: "partition 2147483647, held"},
		"pending-daemonset": {yes: true, back: true, spec: "RollingUpdate", stage: heldDaemonSetOf(3, pending)},
		"pending-unguarded": {yes: true, spec: "partition 0", stage: changed(heldSet, pending, func(s *stage) { s.updated(0, 1, 2) })},
		"stopped-deployment": {yes: true, back: true, spec: "paused false", stage: func(t *testing.T) *stage {
			s := deployment("false")(t)
			s.deploy.Spec.Template = pointed(build.Size(t, larger))
			build.Resized(&s.deploy.Spec.Template)(s.pods[1])
			build.ResizedAt(now.Add(-time.Minute))(s.pods[1])
			s.recorded(rollout.Record{Phase: rollout.PhaseStopped, Failed: "web-a-1 was OOMKilled"}, s.pods[1])
			return s
		}},
		"stopped-daemonset": {yes: true, back: true, spec: "RollingUpdate", stage: heldDaemonSetOf(3, func(s *stage) {
			s.recorded(rollout.Record{Phase: rollout.PhaseReverted, From: "a", Failed: "web-za was OOMKilled"}, s.pods[0])
		})},
		"stopped-ondelete": {yes: true, back: true, spec: "OnDelete", stage: heldDaemonSetOf(3, func(s *stage) {
			s.recorded(rollout.Record{Phase: rollout.PhaseStopped, From: "a", Failed: "web-za was OOMKilled"}, s.pods[0])
			delete(s.daemons.Annotations, api.HoldAnnotation)
		})},
		// Without the policies, opting out ends no hold.
		"opted-out":          {yes: true, spec: "partition 0", stage: changed(heldStage, func(s *stage) { s.set.Labels = nil })},
		"opted-out-not-held": {yes: true, spec: "partition 0, held", stage: changed(heldStage, func(s *stage) { s.set.Labels, *s.set.Spec.UpdateStrategy.RollingUpdate.Partition = nil, 0 })},
		"nonsense":           {yes: true, spec: "partition 0", stage: changed(heldStage, func(s *stage) { s.set.Annotations[api.HoldAnnotation] = "x" })},
	} {
		t.Run(name, func(t *testing.T) {
			s := tt.stage(t)
			o := releaseOptions{cluster: s.cluster(t), all: true, yes: tt.yes, dryRun: tt.dryRun, stopped: tt.stopped}
			before := s.live(t)
			var out bytes.Buffer
			err := o.run(t.Context(), strings.NewReader(tt.answer), &out, nil)
			if said := fmt.Sprint(err); (err != nil) != (tt.failed != "") || !strings.Contains(said, tt.failed) && tt.failed != "" {
				t.Errorf("error %v, want %q", err, tt.failed)
			}
			golden.Assert(t, "release-"+name+".txt", out.Bytes())
			after := must.Get(o.get(t.Context(), s.live(t)))(t)
			must.Equal(t, holding(after), tt.spec, "afterwards")
			if policy.Recorded(after) && !policy.Held(after) {
				t.Errorf("what has happened is still recorded: %v", after.GetAnnotations())
			}
			must.Equal(t, requestOf(after) != requestOf(before), tt.back, "it goes back from %s, to %s", requestOf(before), requestOf(after))
			pods, err := o.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: api.DetachedLabel})
			if err != nil || len(pods.Items) > 0 {
				t.Errorf("%d pods are left detached: %v", len(pods.Items), err)
			}
		})
	}
}

// waiting is a held set whose condition has that reason.
func waiting(reason string) func(*testing.T) *stage {
	return changed(heldStage, func(s *stage) {
		s.set.Status.Conditions = []appsv1.StatefulSetCondition{{Type: api.ConditionComplete, Status: corev1.ConditionFalse, Reason: reason}}
	})
}

// detach takes a pod out of its ReplicaSet, as the controller does.
func detach(s *stage, i int) {
	pod := s.pods[i]
	pod.Labels = map[string]string{"app": "web", api.DetachedLabel: string(pod.OwnerReferences[0].UID)}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.deploy, deployments.gvk())}
}

// requestOf is what the template of a workload requests.
func requestOf(u *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	return fmt.Sprint(containers[0].(map[string]any)["resources"].(map[string]any)["requests"])
}

// holding is what holds the workload, in words.
func holding(u *unstructured.Unstructured) string {
	said := fmt.Sprintf("partition %d", partitionOf(u))
	if u.GetKind() == "Deployment" {
		paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
		said = fmt.Sprintf("paused %t", paused)
	}
	if kindOf(u) == daemonSets {
		said = strategyOf(u)
	}
	if policy.Held(u) {
		said += ", held"
	}
	return said
}

// Where the policies are, they let go, and nothing else is written.
func TestReleaseAsksThePolicy(t *testing.T) {
	s := heldStage(t)
	o := releaseOptions{cluster: s.cluster(t), all: true, yes: true}
	objects := o.objects.(*dynamicfake.FakeDynamicClient)
	let := s.live(t)
	let.SetAnnotations(nil)
	var patches []string
	objects.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchActionImpl)
		patches = append(patches, patch.PatchOptions.FieldManager+" "+string(patch.GetPatch()))
		return true, let, nil
	})
	must.Do(t, o.run(t.Context(), strings.NewReader(""), &bytes.Buffer{}, nil))
	want := `inplace-rollout-release {"metadata":{"resourceVersion":"7","uid":"uid-of-web"}}`
	if len(patches) != 1 || patches[0] != want {
		t.Errorf("wrote %v, want %s", patches, want)
	}
}

// Its status and annotations may be written between the reading and the write; an edit is not passed over. A Deployment's
// generation counts annotations, too.
func TestReleaseAfterAConflict(t *testing.T) {
	for name, edited := range map[string]bool{"with the status or an annotation": false, "with an edit": true} {
		t.Run(name, func(t *testing.T) {
			s := heldStage(t)
			o := releaseOptions{cluster: s.cluster(t), all: true, yes: true}
			objects := o.objects.(*dynamicfake.FakeDynamicClient)
			newest := s.live(t)
			newest.SetResourceVersion("8")
			newest.SetGeneration(newest.GetGeneration() + 1)
			if edited {
				must.Do(t, unstructured.SetNestedField(newest.Object, int64(9), "spec", "replicas"))
			}
			let := newest.DeepCopy()
			let.SetAnnotations(nil)
			objects.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, newest, nil })
			released := false
			objects.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if released = strings.Contains(string(action.(clienttesting.PatchAction).GetPatch()), `"resourceVersion":"8"`); released {
					return true, let, nil
				}
				return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "statefulsets"}, "web", errors.New("modified"))
			})
			err := o.run(t.Context(), strings.NewReader(""), &bytes.Buffer{}, nil)
			if released == edited || apierrors.IsConflict(err) != edited {
				t.Errorf("released %t, error %v", released, err)
			}
		})
	}
}

// Whoever is asked, and interrupts, has not agreed.
func TestReleaseInterrupted(t *testing.T) {
	in, _ := io.Pipe() // nobody types
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	agreed, err := ask(ctx, in, io.Discard)
	if agreed || !errors.Is(err, context.Canceled) {
		t.Errorf("agreed %t, error %v", agreed, err)
	}
}

// One that fails, here with the write that is needed without the policies, does not keep the others from being let go.
func TestReleaseGoesOn(t *testing.T) {
	s := heldStage(t)
	o := releaseOptions{cluster: s.cluster(t), all: true, yes: true}
	second := newDeploymentStage(t, 1)
	second.deploy.Annotations[api.HoldAnnotation] = "false"
	second.deploy.Spec.Paused = true
	second.deploy.Spec.Replicas = ptr.To(int32(1))
	objects := o.objects.(*dynamicfake.FakeDynamicClient)
	must.Do(t, objects.Tracker().Add(second.live(t)))
	writes := 0
	objects.PrependReactor("patch", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		writes++
		return writes == 2, nil, errors.New("the API server is tired")
	})
	var out bytes.Buffer
	err := o.run(t.Context(), strings.NewReader(""), &out, nil)
	must.Equal(t, must.Said(err), "releasing statefulset.apps/web: the API server is tired", "the error")
	must.Contain(t, out.String(), "deployment.apps/web released", "what it said")
}

// One of which nothing can be foreseen does not, either: its classes of nodes cannot be read.
func TestReleaseUnforeseen(t *testing.T) {
	s := newDaemonSetStage(t, 1)
	s.daemons.Annotations[api.HoldAnnotation], s.daemons.Annotations[api.NodeResourcesAnnotation] = "RollingUpdate", "{"
	o := releaseOptions{cluster: s.cluster(t), all: true, yes: true}
	second := newDeploymentStage(t, 1)
	second.deploy.Annotations[api.HoldAnnotation] = "false"
	second.deploy.Spec.Paused = true
	must.Do(t, o.objects.(*dynamicfake.FakeDynamicClient).Tracker().Add(second.live(t)))
	var out bytes.Buffer
	must.Do(t, o.run(t.Context(), strings.NewReader(""), &out, nil))
	for _, want := range []string{"the DaemonSet controller can restart pods; which ones, is unknown: ", "daemonset.apps/web released", "deployment.apps/web released"} {
		must.Contain(t, out.String(), want, "what it said")
	}
}

// TestBetween: a number that no float64 has stays what it is, and what is the same is not written.
func TestBetween(t *testing.T) {
	template := func(fields map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": fields}}}
	}
	patch := must.Get(between(
		template(map[string]any{"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"nodeName": "a", "containers": []any{"old"}, "hostPID": true}}),
		template(map[string]any{"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"nodeName": "a", "containers": []any{int64(math.MaxInt64)}, "hostname": "b"}})))(t)
	must.Equal(t, fmt.Sprint(patch), "map[spec:map[containers:[9223372036854775807] hostPID:<nil> hostname:b]]", "the patch")
}
