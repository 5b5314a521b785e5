package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestLeftOut: of what is opted in where nothing is held, only the condition is written, once. A hold from before is let go with what
// the user wants, in one write for this version of the workload.
func TestLeftOut(t *testing.T) {
	const condition = `{"metadata":{"uid":"web"},"status":{"conditions":[null]}}`
	release := `{"metadata":{"annotations":{"inplace-rollout.io/hold":null,"inplace-rollout.io/partition":null,"inplace-rollout.io/rollout":null},"resourceVersion":"1","uid":"web"},"spec":{"paused":false}}`
	for about, tt := range map[string]struct {
		annotations map[string]string
		dryRun      bool
		again       error // of the second look
		back        bool  // it is not left out any more
		patches     []string
		says, event string
		fails       bool
	}{
		"it is not held": {patches: []string{condition}, says: "the Plain controller makes the rollouts"},
		"it is held": {
			annotations: map[string]string{api.HoldAnnotation: "false", api.InForceAnnotation: ";"}, patches: []string{release, release},
			event: "Warning HandedOver the namespaceSelector of the webhooks excludes namespace default",
		},
		"it is held by a new hold":         {annotations: map[string]string{api.HoldAnnotation: ""}, back: true},
		"whether it is, cannot be seen":    {annotations: map[string]string{api.HoldAnnotation: ""}, again: errors.New("away"), fails: true},
		"it is held, and nothing is to be": {annotations: map[string]string{api.HoldAnnotation: ""}, dryRun: true},
		"it is held, and may restart nothing": {
			annotations: map[string]string{api.HoldAnnotation: "", api.InForceAnnotation: "LiveResize;"}, patches: []string{condition},
			says: "this rollout stays held, because its action is LiveResize. `kubectl inplace-rollout release` leaves it to the Plain controller",
		},
		"it is held, and its size has failed": {
			annotations: map[string]string{api.HoldAnnotation: "", api.RolloutAnnotation: `{"phase":"Stopped","version":1}`}, patches: []string{condition},
			says: "this rollout stays held, because the size has failed, or its canary has not proved it. `kubectl inplace-rollout release` leaves it",
		},
		"it is held, and its canary is over": {
			annotations: map[string]string{api.HoldAnnotation: "", api.RolloutAnnotation: `{"phase":"Rolling","version":1}`}, patches: []string{release, release},
			event: "Warning HandedOver",
		},
		"it is held, and what it may is not known": {
			annotations: map[string]string{api.HoldAnnotation: "", api.InForceAnnotation: "Nonsense;", api.ResizeActionAnnotation: "Nonsense"}, patches: []string{condition},
			says: "stays held, because annotation inplace-rollout.io/resource-resize-action",
		},
	} {
		t.Run(about, func(t *testing.T) {
			e := newEngine(t, Options{
				Ready: func() error { return nil }, DryRun: tt.dryRun,
				LeftOut:    func(namespace string) bool { return namespace == "default" },
				LeftOutNow: func(context.Context, string) (bool, error) { return !tt.back, tt.again },
			})
			var patches []string
			patch := e.access.Patch
			e.access.Patch = func(ctx context.Context, w *appsv1.ReplicaSet, kind types.PatchType, body []byte, sub ...string) (runtime.Object, error) {
				patches = append(patches, string(body))
				return patch(ctx, w, kind, body, sub...)
			}
			e.w.Annotations = tt.annotations
			must.Do(t, e.informer.GetStore().Add(e.w))
			for range 2 {
				if _, err := e.Sync(t.Context(), e.session.name); (err != nil) != tt.fails {
					t.Fatal(err)
				}
			}
			if !slices.Equal(patches, tt.patches) {
				t.Errorf("written was %q, want %q", patches, tt.patches)
			}
			if got := e.kind.condition; (tt.says != "") != (got != nil && got.Reason == judge.ReasonNamespaceLeftOut && !got.Complete() && strings.Contains(got.Message, tt.says)) {
				t.Errorf("the condition is %+v, want %q", got, tt.says)
			}
			select {
			case event := <-e.events:
				if tt.event == "" || !strings.HasPrefix(event, tt.event) {
					t.Errorf("the event %q came, want %q", event, tt.event)
				}
			default:
				if tt.event != "" {
					t.Error("no event came")
				}
			}
			if len(e.sessions) > 0 {
				t.Error("its pods are watched")
			}
		})
	}
}
