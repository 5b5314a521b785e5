package daemonset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Forecast returns what a rollout to template will do to each pod of the set, in the order of the
// rollout. The set is as the edit leaves it, with the status from before. A set without a UID is
// new, and will adopt pods that have no owner. Forecast only reads.
func Forecast(ctx context.Context, client kubernetes.Interface, q capacity.Question, set *appsv1.DaemonSet, template *hash.Template) (rollout.WorkloadForecast, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return rollout.WorkloadForecast{}, fmt.Errorf("reading the selector: %w", err)
	}
	stored, err := client.AppsV1().ControllerRevisions(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return rollout.WorkloadForecast{}, fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	o := observation{set: set.DeepCopy(), history: &history{}}
	if o.Facts, err = q.Facts(ctx, set.Namespace); err != nil {
		return rollout.WorkloadForecast{}, err
	}
	if o.read(set, template.PodTemplateSpec, stored.Items); o.newest == nil {
		q.Next = false // the DaemonSet controller has not seen the edit
		o.newest = &revision{name: "(edited)", template: template}
		if o.last == nil || !o.last.template.Same(template) { // else it says the same in other words: a new revision, of the same generation
			delete(o.set.Annotations, appsv1.DeprecatedTemplateGeneration) // the next one, which no pod has
		}
	}
	there, err := q.Pods(ctx, set.Namespace)
	if err != nil {
		return rollout.WorkloadForecast{}, err
	}
	o.pods = rollout.Adoptable(set, selector, there)
	if err := o.readSizes(); err != nil {
		return rollout.WorkloadForecast{}, err
	}
	if policy.HasClasses(set.Annotations) && o.RoomUnknown != "" {
		return rollout.WorkloadForecast{Unknown: "their sizes are by class of node, and you are " + o.RoomUnknown}, nil
	}
	return o.forecast(ctx, q)
}

// number is that of the revision that the pods go to: the DaemonSet controller gives the next one also to a revision that comes back.
func (o observation) number() string {
	switch {
	case o.last == nil:
		return "1"
	case o.newest == o.last:
		return strconv.FormatInt(o.last.number, 10)
	default:
		return strconv.FormatInt(o.last.number+1, 10)
	}
}

func (o observation) forecast(ctx context.Context, q capacity.Question) (rollout.WorkloadForecast, error) {
	o.Facts = o.known()
	o.sortByNode()
	var places []judge.Place
	for i, pod := range o.podsInOrder() {
		place, err := o.place(i, pod)
		if err != nil {
			return rollout.WorkloadForecast{}, err
		}
		places = append(places, place)
	}
	options := o.options()
	facts, members, err := q.Forecast(ctx, o.Facts, places, o.revision(), options.Terms, options.Unavailable == 0)
	if err != nil {
		return rollout.WorkloadForecast{}, err
	}
	f := rollout.WorkloadForecast{Revision: o.number(), Pods: judge.Forecasts(judge.Pods(members, options.Terms), o.Now), HandOver: q.NotHeld}
	if err := o.forecastClasses(ctx, q, f.Pods); err != nil {
		return rollout.WorkloadForecast{}, err
	}
	if !policy.Enabled(o.set) {
		f.HandOver = policy.NotOptedIn(o.set, "DaemonSet")
	}
	for i := range f.Pods {
		m := f.Pods[i].Member
		if !judge.Gone(m.Pod) && !m.Labelled && rolling(o.set) {
			f.Stale = append(f.Stale, m.Name)
		}
		if f.HandOver != "" {
			f.Pods[i].Forecast, f.Pods[i].Reason = judge.BuiltIn(&m, options.Strategy, f.HandOver)
		}
	}
	if surge, _ := bounds(o.set); f.HandOver == "" && surge > 0 {
		f.HandOver = surges(f.Pods)
	}
	return q.Planned(f, facts, o, o.set.Annotations)
}

// forecastClasses looks one step further for pods that come to the size of a new template in place: they get that of their node's class then.
// Where that rollout is under way, it tells of the step that is.
func (o observation) forecastClasses(ctx context.Context, q capacity.Question, pods []judge.PodForecast) error {
	var places []judge.Place
	var at []int
	for i, f := range pods {
		p := f.Member.Place
		older := o.ofOlder(p.Pod)
		if q.Next || older == nil || p.Class == "" || !slices.Contains([]judge.Forecast{judge.Live, judge.Unchanged, judge.ContainerRestart}, f.Forecast) {
			continue
		}
		if err := o.thenInClass(&p, older); err != nil {
			return err
		}
		places, at = append(places, p), append(at, i)
	}
	if len(places) == 0 {
		return nil
	}
	terms := o.options().Terms
	_, members, err := q.Forecast(ctx, o.Facts, places, o.revision(), terms, false)
	if err != nil {
		return err
	}
	for i, f := range judge.Forecasts(judge.Pods(members, terms), o.Now) {
		pods[at[i]] = f
	}
	return nil
}

// thenInClass has a pod of an older revision get the size of its node's class at once, if it can have that in place.
func (o observation) thenInClass(p *judge.Place, older *revision) error {
	ofTemplate := p.Target
	why, err := o.fitClass(p, o.sizeOf(p.Pod), func(pod *corev1.Pod, sized *corev1.PodTemplateSpec) (resize.Target, error) {
		return o.Target(pod, older.template.PodTemplateSpec, sized)
	})
	if p.InPlaceOnly = true; why != "" {
		p.Target, p.ClassSizeUnavailable = ofTemplate, keepsTemplates(p, why)
	} else {
		p.Brings = resize.Describe(p.Target.Changes)
	}
	return err
}

// ofOlder returns the revision of a pod that is there, if that is an older one.
func (o observation) ofOlder(pod *corev1.Pod) *revision {
	if judge.Gone(pod) || revisions.HashOf(pod) == o.newest.hash {
		return nil
	}
	return o.revisions[revisions.HashOf(pod)]
}

// surges returns why the DaemonSet controller makes a rollout with maxSurge: all that is to be done is to restart pods. It is empty
// where some are to be resized, or kept.
func surges(pods []judge.PodForecast) (why string) {
	for _, f := range pods {
		switch f.Forecast {
		case judge.Unchanged, judge.New:
		case judge.PodRestart:
			why = cmp.Or(why, f.Reason)
		default:
			return ""
		}
	}
	return why
}
