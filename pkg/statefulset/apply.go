package statefulset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Apply is that of controller.Kind.
func (k Kind) Apply(ctx context.Context, s *session, set *appsv1.StatefulSet, write rollout.Write) error {
	switch w := write.(type) {
	case lowerPartition:
		return k.lowerPartition(ctx, s, set, w)
	case makeOf:
		return k.makeOf(ctx, s, set, w)
	default:
		return fmt.Errorf("applying a %T, which is no write of a StatefulSet", write)
	}
}

func (k Kind) lowerPartition(ctx context.Context, s *session, set *appsv1.StatefulSet, w lowerPartition) error {
	written, err := s.Instruct(ctx, set, map[string]any{api.PartitionAnnotation: strconv.Itoa(w.to)})
	if err == nil {
		if request := unanswered(written); request != nil { // the admission policy was deleted a moment ago
			err = cmp.Or(s.Restore(ctx, written, request), errors.New("the admission policy is not in force"))
		} else if partition(written) != w.to {
			err = controller.ErrUnknown
		}
	}
	if err != nil {
		return fmt.Errorf("moving the partition: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Moved the partition", "partition", w.to)
	for _, restart := range w.restarts {
		s.RecordRestart(set, restart, "restarted by the StatefulSet controller")
	}
	return nil
}

func (k Kind) makeOf(ctx context.Context, s *session, set *appsv1.StatefulSet, w makeOf) error {
	if err := s.MergeStatus(ctx, set, map[string]any{"currentRevision": w.revision}); err != nil {
		return fmt.Errorf("having missing pods created from revision %s: %w", w.revision, err)
	}
	klog.FromContext(ctx).V(2).Info("Missing pods will be created from another revision", "revision", w.revision, "reason", w.why)
	return nil
}

// unanswered returns the fields that remove a request for a partition, which must not be stored;
// nil if it is not.
func unanswered(set *appsv1.StatefulSet) map[string]any {
	if _, stored := set.Annotations[api.PartitionAnnotation]; !stored {
		return nil
	}
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{api.PartitionAnnotation: nil}}}
}
