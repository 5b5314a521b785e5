package daemonset

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Apply is that of controller.Kind.
func (k Kind) Apply(ctx context.Context, s *session, set *appsv1.DaemonSet, write rollout.Write) error {
	w, is := write.(release)
	if !is {
		return fmt.Errorf("applying a %T, which is no write of a DaemonSet", write)
	}
	return k.release(ctx, s, set, w)
}

// release asks the admission policy to let go of the hold.
func (k Kind) release(ctx context.Context, s *session, set *appsv1.DaemonSet, w release) error {
	written, err := s.Instruct(ctx, set, map[string]any{api.HoldAnnotation: nil})
	switch {
	case err != nil:
		return fmt.Errorf("letting go of the hold: %w", err)
	case policy.Held(written) && !equality.Semantic.DeepEqual(written.Spec.Template, set.Spec.Template):
		return fmt.Errorf("letting go of the hold: %w", controller.ErrEdited)
	case policy.Held(written):
		return fmt.Errorf("letting go of the hold: %w", controller.ErrUnknown)
	case written.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType:
		// The admission policy was deleted a moment ago. The hold's strategy must not stay: nothing
		// would say any more what the user wants.
		if err := releaseWithoutPolicy(ctx, s, written); err != nil {
			return err
		}
	}
	klog.FromContext(ctx).V(2).Info("Let go of the hold", "handOver", w.handOver)
	if w.handOver != "" {
		s.RecordHandOver(set, fmt.Sprintf("left to the DaemonSet controller, revision %s: %s", w.revision, w.handOver))
	}
	return nil
}

// releaseWithoutPolicy does what the admission policy has not done: it brings back the user's
// strategy.
func releaseWithoutPolicy(ctx context.Context, s *session, set *appsv1.DaemonSet) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": set.UID, "resourceVersion": set.ResourceVersion},
		"spec":     map[string]any{"updateStrategy": map[string]any{"type": appsv1.RollingUpdateDaemonSetStrategyType}},
	})
	if err != nil {
		return fmt.Errorf("encoding the strategy: %w", err)
	}
	if _, err := s.Patch(ctx, set, types.MergePatchType, patch); err != nil {
		return fmt.Errorf("bringing the strategy back without the admission policy: %w", err)
	}
	return nil
}
