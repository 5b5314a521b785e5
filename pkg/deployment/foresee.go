package deployment

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/workload"
)

// Foresee tells what a rollout will do to each pod of the Deployment, which is as
// the edit leaves it, but for its status. It only reads.
func Foresee(ctx context.Context, objects dynamic.Interface, cluster workload.Cluster, edited *unstructured.Unstructured,
	settings policy.Settings, defaults workload.Defaults,
) (workload.Foreseen, error) {
	d, err := decodeDeployment(edited)
	if err != nil {
		return workload.Foreseen{}, err
	}
	list, err := objects.Resource(replicaSets).Namespace(d.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
	if err != nil {
		return workload.Foreseen{}, fmt.Errorf("listing ReplicaSets: %w", err)
	}
	stored := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		stored[i] = &list.Items[i]
	}
	o, err := newObservation(d, stored, cluster.Pods)
	if err != nil {
		return workload.Foreseen{}, err
	}
	o.nodes, o.defaults, o.now = cluster.Nodes, defaults, time.Now()
	return o.foresee(ctx, settings)
}

func (o observation) foresee(ctx context.Context, settings policy.Settings) (workload.Foreseen, error) {
	options := o.defaults.Rollout(settings, o.now)
	options.RestartLast = true
	var f workload.Foreseen
	base := o.base()
	if base != nil {
		members, err := o.members(ctx, base, settings)
		if err != nil {
			return workload.Foreseen{}, err
		}
		workload.Judge(members, o.nodes, o.now)
		f.Pods = rollout.Foresee(members, options)
		if p := (plan{Step: rollout.Next(members, options), Members: members}); !p.Keep && len(p.Resize) == 0 && len(p.Restart) > 0 &&
			!same(base.template, o.deployment.template) && o.restartsAll(p) {
			f.HandOver = p.Restart[0].Reason
		}
	} else {
		f.HandOver = o.differs()
	}
	for _, rs := range o.sets {
		if !same(rs.template, o.deployment.template) {
			for _, pod := range o.podsOf(rs) {
				f.Stale = append(f.Stale, pod.Name)
			}
		}
		if rs == base {
			continue
		}
		for _, pod := range o.podsOf(rs) {
			reason := rs.template.Differs(o.deployment.template)
			if reason == "" {
				reason = "it is of an older ReplicaSet than the one that is resized"
			}
			f.Pods = append(f.Pods, rollout.Forecast{Member: rollout.Member{Name: pod.Name, Pod: pod, Differs: reason}, Fate: rollout.PodRestart, Reason: reason})
		}
	}
	slices.SortStableFunc(f.Pods, func(a, b rollout.Forecast) int {
		return boolCompare(a.Fate == rollout.PodRestart, b.Fate == rollout.PodRestart)
	})
	return f, nil
}

func boolCompare(a, b bool) int { return asInt(a) - asInt(b) }
