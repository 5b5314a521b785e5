package statefulset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

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
func (k Kind) Apply(ctx context.Context, s *session, set *appsv1.StatefulSet, write rollout.Write) error {
	switch w := write.(type) {
	case lowerPartition:
		return k.lowerPartition(ctx, s, set, w)
	case release:
		return k.release(ctx, s, set, w)
	default:
		return fmt.Errorf("applying a %T, which is no write of a StatefulSet", write)
	}
}

func (k Kind) lowerPartition(ctx context.Context, s *session, set *appsv1.StatefulSet, w lowerPartition) error {
	written, err := movePartition(ctx, s, set, map[string]any{api.PartitionAnnotation: strconv.Itoa(w.to)})
	if err != nil {
		return err
	}
	_, stored := written.Annotations[api.PartitionAnnotation]
	switch {
	case stored: // the admission policy was deleted a moment ago: the request must not stay there
		if err := writeWithoutPolicy(ctx, s, written, nil); err != nil {
			return err
		}
		return errors.New("moving the partition: the admission policy is not in force")
	case partition(written) != w.to:
		return fmt.Errorf("moving the partition: %w", controller.ErrUnknown)
	}
	klog.FromContext(ctx).V(2).Info("Moved the partition", "partition", w.to)
	for _, restart := range w.restarts {
		s.RecordRestart(set, restart, "restarted by the StatefulSet controller")
	}
	return nil
}

func (k Kind) release(ctx context.Context, s *session, set *appsv1.StatefulSet, w release) error {
	written, err := movePartition(ctx, s, set, map[string]any{api.HoldAnnotation: nil})
	if err != nil {
		return err
	}
	if policy.Held(written) {
		return fmt.Errorf("moving the partition: %w", controller.ErrUnknown)
	}
	// The admission policy may have been deleted a moment ago. The hold's partition must not
	// stay then: nothing would say any more what the user wants.
	var wish *int
	if wished := wishedPartition(set); rolling(written) && partition(written) != wished {
		wish = &wished
	}
	if _, stored := written.Annotations[api.PartitionAnnotation]; stored || wish != nil {
		if err := writeWithoutPolicy(ctx, s, written, wish); err != nil {
			return err
		}
	}
	klog.FromContext(ctx).V(2).Info("Let go of the hold", "handOver", w.handOver)
	if w.handOver != "" {
		s.RecordHandOver(set, fmt.Sprintf("left to the StatefulSet controller, revision %s: %s", w.revision, w.handOver))
	}
	return nil
}

// movePartition asks the admission policy to lower the partition, or to let go of the hold,
// and returns the set as it is stored then.
func movePartition(ctx context.Context, s *session, set *appsv1.StatefulSet, annotations map[string]any) (*appsv1.StatefulSet, error) {
	written, err := s.Instruct(ctx, set, annotations)
	if err != nil {
		return nil, fmt.Errorf("moving the partition: %w", err)
	}
	if policy.Held(written) && !equality.Semantic.DeepEqual(written.Spec.Template, set.Spec.Template) {
		return nil, fmt.Errorf("moving the partition: %w", controller.ErrEdited)
	}
	return written, nil
}

// writeWithoutPolicy does what the admission policy has not done: it removes the request that
// was to be answered, and writes the partition that the user wants, unless wish is nil.
func writeWithoutPolicy(ctx context.Context, s *session, set *appsv1.StatefulSet, wish *int) error {
	fields := map[string]any{"metadata": map[string]any{"uid": set.UID, "annotations": map[string]any{api.PartitionAnnotation: nil}}}
	if wish != nil {
		fields["spec"] = map[string]any{"updateStrategy": map[string]any{"rollingUpdate": map[string]any{"partition": *wish}}}
	}
	patch, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encoding the partition: %w", err)
	}
	if _, err := s.Patch(ctx, set, types.MergePatchType, patch); err != nil {
		return fmt.Errorf("moving the partition without the admission policy: %w", err)
	}
	return nil
}
