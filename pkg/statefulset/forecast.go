package statefulset

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// edited names a revision that the set does not have yet.
const edited = "(edited)"

// Forecast returns what a rollout to template will do to each pod of the set, the
// highest ordinal first. The set is as the edit leaves it, with the status from before. A set
// without a UID is new, and will adopt pods that have no owner. Forecast only reads.
func Forecast(ctx context.Context, client kubernetes.Interface, q capacity.Question, set *appsv1.StatefulSet, template *hash.Template) (rollout.WorkloadForecast, error) {
	list, err := client.AppsV1().ControllerRevisions(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return rollout.WorkloadForecast{}, fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return rollout.WorkloadForecast{}, fmt.Errorf("reading the selector: %w", err)
	}
	set = set.DeepCopy()
	o := observation{set: set, revisions: history{edited: template}}
	if o.Facts, err = q.Facts(ctx, set.Namespace); err != nil {
		return rollout.WorkloadForecast{}, err
	}
	revision := edited
	for i := range list.Items {
		stored := &list.Items[i]
		if !metav1.IsControlledBy(stored, set) && !rollout.Adopts(set, stored) {
			continue
		}
		t, err := hash.OfRevision(stored)
		if err != nil { // as if it were gone
			continue
		}
		o.revisions[stored.Name] = t
		if t.SameRevision(template) && revision != set.Status.UpdateRevision {
			revision = stored.Name
		}
	}
	q.Next = q.Next && revision == set.Status.UpdateRevision // else the StatefulSet controller has not seen the edit
	set.Status.UpdateRevision = revision
	if set.UID == "" {
		set.Status.CurrentRevision = revision
	}
	there, err := q.Pods(ctx, set.Namespace)
	if err != nil {
		return rollout.WorkloadForecast{}, err
	}
	o.pods = rollout.Adoptable(set, selector, there)
	return o.forecast(ctx, q)
}

func (o observation) forecast(ctx context.Context, q capacity.Question) (rollout.WorkloadForecast, error) {
	from := o.from()
	o.Facts = o.known()
	var places []judge.Place
	for _, s := range slices.Backward(o.spans()) {
		for ; s.alike >= 0; s.index, s.alike = s.index-1, s.alike-1 {
			place, err := o.place(span{index: s.index, pod: s.pod})
			if err != nil {
				return rollout.WorkloadForecast{}, err
			}
			places = append(places, place)
		}
	}
	facts, members, err := q.Forecast(ctx, o.Facts, places, o.revision(), o.options().Terms, false)
	if err != nil {
		return rollout.WorkloadForecast{}, err
	}
	f := rollout.WorkloadForecast{Pods: judge.Forecasts(judge.Pods(members, o.options().Terms), o.Now), HandOver: cmp.Or(o.notHeld(), q.NotHeld)}
	for i, forecast := range f.Pods {
		m := forecast.Member
		if m.Index >= from && m.Pod != nil && !m.Labelled && rolling(o.set) {
			f.Stale = append(f.Stale, m.Name)
		}
		if o.blocks(m.Pod) {
			f.Awaits = slices.Insert(f.Awaits, 0, m.Name) // the lowest ordinal first, as that controller goes
		}
		if f.HandOver != "" {
			forecast.Forecast, forecast.Reason = judge.BuiltIn(&m, o.options().Strategy, f.HandOver)
		}
		f.Pods[i] = leftBelow(forecast, from)
	}
	f.Pods = append(o.scaledIn(), f.Pods...)
	o.moved = o.Now // as far as is known here
	return q.Planned(f, facts, o, o.set.Annotations)
}

// leftBelow is what becomes of a pod with that forecast where the partition keeps back those below it: neither is it marked.
func leftBelow(f judge.PodForecast, partition int) judge.PodForecast {
	if f.Member.Index < partition && f.Forecast != judge.New && (f.Forecast != judge.Unchanged || !f.Member.Labelled) {
		f.Forecast, f.Reason = judge.KeptBack, fmt.Sprintf("the partition is %d", partition)
	}
	return f
}

// notHeld is why an edit of the set is not held; empty if it is.
func (o observation) notHeld() string {
	switch {
	case !policy.Enabled(o.set):
		return policy.NotOptedIn(o.set, "StatefulSet")
	case rolling(o.set) && !holdable(o.set):
		return policy.NotHoldable(string(o.set.Spec.UpdateStrategy.Type))
	default:
		return ""
	}
}

// scaledIn lists the pods for which there is no place any more, the highest ordinal first.
func (o observation) scaledIn() []judge.PodForecast {
	at := map[int]*corev1.Pod{}
	for _, pod := range o.pods {
		if i, ok := o.index(pod); ok {
			at[i] = pod
		}
	}
	var going []judge.PodForecast
	for _, i := range slices.Backward(slices.Sorted(maps.Keys(at))) {
		if i < 0 || i >= replicas(o.set) {
			going = append(going, judge.PodForecast{
				Member: judge.Member{Place: judge.Place{Name: at[i].Name, Index: i, Pod: at[i]}}, Forecast: judge.ScaledIn, Reason: fmt.Sprintf("scaled to %d", replicas(o.set)),
			})
		}
	}
	return going
}
