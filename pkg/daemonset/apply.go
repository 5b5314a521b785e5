package daemonset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Apply is that of controller.Kind.
func (k Kind) Apply(ctx context.Context, s *session, set *appsv1.DaemonSet, write rollout.Write) error {
	w, is := write.(release)
	if !is {
		return fmt.Errorf("applying a %T, which is no write of a DaemonSet", write)
	}
	err := s.Release(ctx, set, func(written *appsv1.DaemonSet) map[string]any {
		if written.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
			return nil
		}
		return map[string]any{"spec": map[string]any{"updateStrategy": map[string]any{"type": string(appsv1.RollingUpdateDaemonSetStrategyType)}}}
	})
	if err == nil && w.handOver != "" {
		s.RecordHandOver(set, fmt.Sprintf("%s, revision %s: %s", leftTo, w.revision, w.handOver))
	}
	return err
}
