package main

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
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
	if got, err := (retryOptions{cluster: s.cluster(t)}).retry(t.Context(), u); err == nil || !strings.Contains(err.Error(), "rollout in place: paused by the user") {
		t.Errorf("got %q, %v", got, err)
	}
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
		{"it is not selected", true, false, retryOptions{selector: "team!=shop"}, "No rollout is in flight.\n"},
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
		if err := tt.retry.run(t.Context(), &out, nil); err != nil || out.String() != tt.want {
			t.Errorf("%s: printed %q, want %q: %v", tt.what, &out, tt.want, err)
		}
		asked := false
		for _, action := range tt.retry.objects.(*dynamicfake.FakeDynamicClient).Actions() {
			patch, is := action.(clienttesting.PatchAction)
			asked = asked || is
			if name := "revision web-b@0001-01-01T00:00:00Z"; is && strings.Contains(string(patch.GetPatch()), name) != tt.stopped {
				t.Errorf("%s: asked by %s; what was stopped is named %s", tt.what, patch.GetPatch(), name)
			}
		}
		if asked != strings.Contains(tt.want, "is retried") {
			t.Errorf("%s: asked: %t", tt.what, asked)
		}
	}
}
