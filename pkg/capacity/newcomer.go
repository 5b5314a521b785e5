package capacity

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Quotas are what the ResourceQuotas of a namespace have left at some time. Nil knows of none.
type Quotas struct{ left *quotas }

// ReadQuotas counts what the quotas of a namespace have left now.
func ReadQuotas(ctx context.Context, client kubernetes.Interface, namespace string, now time.Time) (*Quotas, error) {
	left, err := countQuotas(ctx, client, namespace, now)
	if err != nil {
		return nil, err
	}
	return &Quotas{left}, nil
}

// Refusal returns why the API server would not let in one more pod that is made from the template, as
// far as LimitRanges, quotas and the sizes themselves say. Without a reason, it would.
func (q *Quotas) Refusal(template *corev1.PodTemplateSpec, limits Limits) rollout.Refusal {
	spec, why := limits.admit(resize.Defaulted(template))
	if why != "" {
		return rollout.Refusal{Reason: why, Kind: rollout.ReasonInvalid}
	}
	if q == nil {
		return rollout.Refusal{}
	}
	if why = q.left.refusal(&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: *spec}); why != "" {
		return rollout.Refusal{Reason: why, Kind: rollout.ReasonQuotaExceeded}
	}
	return rollout.Refusal{}
}

// TooLarge returns why no node could hold a pod that is made from the template, even if it were empty;
// empty if one could.
func (p *Places) TooLarge(template *corev1.PodTemplateSpec) string {
	if p.nodesUnknown {
		return ""
	}
	_, tooLarge := candidates(&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: *resize.Defaulted(template)}, nil, p.nodes)
	return tooLarge
}
