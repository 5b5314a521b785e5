package statefulset

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/workload"
)

// edited names a revision that the set does not have yet.
const edited = "(edited)"

// Foresee tells what a rollout to template will do to each pod of the set, the
// highest ordinal first. The set is as the edit leaves it, but for its status. It
// only reads.
func Foresee(ctx context.Context, client kubernetes.Interface, cluster workload.Cluster, set *appsv1.StatefulSet,
	template *workload.Template, settings policy.Settings, defaults workload.Defaults,
) (workload.Foreseen, error) {
	list, err := client.AppsV1().ControllerRevisions(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return workload.Foreseen{}, fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	set = set.DeepCopy()
	o := observation{set: set, nodes: cluster.Nodes, revisions: history{edited: template}, defaults: defaults, now: time.Now()}
	revision := edited
	for i := range list.Items {
		stored := &list.Items[i]
		if !metav1.IsControlledBy(stored, set) {
			continue
		}
		t, err := templateOf(stored)
		if err != nil {
			return workload.Foreseen{}, err
		}
		o.revisions[stored.Name] = t
		if t.Same(template) {
			revision = stored.Name
		}
	}
	set.Status.UpdateRevision = revision
	for _, pod := range cluster.Pods {
		if metav1.IsControlledBy(pod, set) {
			o.pods = append(o.pods, pod)
		}
	}
	return o.foresee(ctx, settings)
}

func (o observation) foresee(ctx context.Context, settings policy.Settings) (workload.Foreseen, error) {
	from, err := wishedPartition(o.set)
	if err != nil {
		return workload.Foreseen{}, err
	}
	if !rolling(o.set) {
		from = 0
	}
	members, err := o.members(ctx, 0, settings)
	if err != nil {
		return workload.Foreseen{}, err
	}
	workload.Judge(members, o.nodes, o.now)
	f := workload.Foreseen{Pods: rollout.Foresee(members, o.options(settings))}
	for i, forecast := range f.Pods {
		if m := forecast.Member; m.Index >= from && m.Pod != nil && !m.Labelled && rolling(o.set) {
			f.Stale = append(f.Stale, m.Name)
		}
		if forecast.Member.Index < from && forecast.Fate != rollout.Unchanged {
			f.Pods[i].Fate, f.Pods[i].Reason = rollout.KeptBack, fmt.Sprintf("the partition is %d", from)
		}
	}
	return f, nil
}
