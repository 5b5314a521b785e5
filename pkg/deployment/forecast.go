package deployment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	deploymentutil "k8s.io/kubectl/pkg/util/deployment"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Forecast returns what a rollout will do to each pod of the Deployment. The Deployment is as
// the edit leaves it, with the status from before. Forecast only reads.
func Forecast(ctx context.Context, objects dynamic.Interface, q capacity.Question, edited *unstructured.Unstructured) (rollout.WorkloadForecast, error) {
	d, err := decodeDeployment(edited)
	if err != nil {
		return rollout.WorkloadForecast{}, err
	}
	sets, err := Kind{objects: objects}.listSets(ctx, d)
	if err != nil {
		return rollout.WorkloadForecast{}, err
	}
	there, err := q.Pods(ctx, d.Namespace)
	if err != nil {
		return rollout.WorkloadForecast{}, err
	}
	o := newObservation(d, sets, there)
	if o.Facts, err = q.Facts(ctx, d.Namespace); err != nil {
		return rollout.WorkloadForecast{}, err
	}
	o.Facts = o.known()
	o.Notes = &judge.PodNotes{Foreseen: true}
	o.Annotations = d.Annotations
	o.Record, _ = rollout.ReadRecord(d.Annotations) // one that cannot be read keeps everything as it is
	f, err := o.forecast(ctx, q)
	if err != nil {
		return f, err
	}
	f.Revision = o.nextRevision(o.base())
	return q.Planned(f, o.Facts, o, d.Annotations)
}

// Former returns the template that a held Deployment had before its edit, as its ReplicaSets tell, or the one of that digest; nil if
// none has it. It only reads.
func Former(ctx context.Context, objects dynamic.Interface, held *unstructured.Unstructured, digest string) (*hash.Template, error) {
	o, err := historyOf(ctx, objects, held)
	if err != nil {
		return nil, err
	}
	if digest == "" {
		return o.former(o.base()), nil
	}
	if i := slices.IndexFunc(o.templates(), has(digest)); i >= 0 {
		return o.templates()[i], nil
	}
	return nil, nil
}

// Revisions returns the templates of a Deployment's ReplicaSets, and those that a ReplicaSet had before it adopted the Deployment's: they
// may not be in the history yet. It only reads.
func Revisions(ctx context.Context, objects dynamic.Interface, of *unstructured.Unstructured) ([]*hash.Template, error) {
	o, err := historyOf(ctx, objects, of)
	return o.templates(), err
}

// historyOf observes the ReplicaSets of a Deployment, and no pods.
func historyOf(ctx context.Context, objects dynamic.Interface, of *unstructured.Unstructured) (observation, error) {
	d, err := decodeDeployment(of)
	if err != nil {
		return observation{}, err
	}
	sets, err := Kind{objects: objects}.listSets(ctx, d)
	if err != nil {
		return observation{}, err
	}
	return newObservation(d, sets, nil), nil
}

// templates returns those of the ReplicaSets, and then those from before an adoption; of each the one of the highest revision first.
func (o observation) templates() []*hash.Template {
	var theirs, former []*hash.Template
	for _, rs := range o.sets {
		theirs = append(theirs, rs.template)
		if rs.previous != nil {
			former = append(former, rs.previous.template)
		}
	}
	for _, of := range [][]*hash.Template{theirs, former} {
		slices.SortStableFunc(of, func(a, b *hash.Template) int { return cmp.Compare(b.Revision, a.Revision) })
	}
	return append(theirs, former...)
}

func (o observation) forecast(ctx context.Context, q capacity.Question) (rollout.WorkloadForecast, error) {
	base := o.base()
	f, err := o.forecastBase(ctx, q, base)
	if err != nil {
		return f, err
	}
	for _, rs := range o.sets {
		if !o.sized(rs) {
			f.Stale = append(f.Stale, namesOf(o.podsOf(rs))...)
		}
		if rs != base {
			f.Pods = append(f.Pods, o.forecastOther(rs)...)
		}
	}
	if f.HandOver == "" && o.deployment.recreates() {
		f.HandOver = recreated(f.Pods)
	}
	o.settle(&f)
	for _, pod := range o.detached() {
		const why = "it is evicted when the pod in its place is available, and budgets allow it"
		f.Pods = append(f.Pods, restarted(pod, why, why))
	}
	slices.SortStableFunc(f.Pods, func(a, b judge.PodForecast) int {
		return cmp.Compare(asInt(a.Forecast == judge.PodRestart), asInt(b.Forecast == judge.PodRestart))
	})
	return f, nil
}

// settle completes a forecast: which pods go, which stay, and which are the Deployment controller's.
func (o observation) settle(f *rollout.WorkloadForecast) {
	going := o.scaledIn()
	paused := o.deployment.wishedPaused()
	for i, forecast := range f.Pods {
		stale, handsOver := slices.Contains(f.Stale, forecast.Member.Name), f.HandOver != "" || forecast.Member.Differs != ""
		switch {
		case slices.Contains(going, forecast.Member.Name):
			f.Pods[i].Forecast, f.Pods[i].Reason = judge.ScaledIn, fmt.Sprintf("scaled to %d", o.deployment.replicas())
		case f.HandOver != "" && !stale: // its ReplicaSet is of the template, whatever the pod is
			if forecast.Moves() || forecast.Forecast == judge.Infeasible {
				f.Pods[i].Forecast, f.Pods[i].Reason = judge.AfterDelete, f.HandOver
			}
		case paused && (stale || forecast.Forecast != judge.Unchanged) && (handsOver || !policy.Held(o.deployment)): // what is held goes on to its end
			f.Pods[i].Forecast, f.Pods[i].Reason = judge.KeptBack, "the Deployment is paused"
		case f.HandOver != "":
			f.Pods[i].Forecast, f.Pods[i].Reason = judge.PodRestart, f.HandOver
		}
	}
}

// nextRevision is the number that the Deployment controller gives, or has given, to what the pods of base are resized to.
func (o observation) nextRevision(base *replicaSet) string {
	if base == nil { // it is scaled to zero
		base = o.newest()
	}
	if base != nil && base.template.Same(o.deployment.template) {
		return o.deployment.Annotations[deploymentutil.RevisionAnnotation]
	}
	last := int64(0)
	for _, rs := range o.sets {
		last = max(last, rs.template.Revision)
	}
	return strconv.FormatInt(last+1, 10)
}

func namesOf(pods []*corev1.Pod) []string {
	names := make([]string, len(pods))
	for i, pod := range pods {
		names[i] = pod.Name
	}
	return names
}

// recreated returns why all pods are restarted because one is; empty if none is.
func recreated(pods []judge.PodForecast) string {
	i := slices.IndexFunc(pods, func(f judge.PodForecast) bool { return f.Forecast == judge.PodRestart })
	if i < 0 || slices.ContainsFunc(pods, func(f judge.PodForecast) bool { return f.Forecast == judge.Infeasible }) {
		return ""
	}
	return fmt.Sprintf("the strategy is Recreate, and %s cannot be resized: %s", pods[i].Member.Name, pods[i].Reason)
}

// scaledIn names the pods that are too many, if one ReplicaSet has all pods: the Deployment
// controller scales it even while the rollout is held. It names none if several have pods.
func (o observation) scaledIn() []string {
	var active []*replicaSet
	for _, rs := range o.sets {
		if rs.active() {
			active = append(active, rs)
		}
	}
	if len(active) != 1 {
		return nil
	}
	pods := slices.Clone(o.podsOf(active[0]))
	sortAsDeleted(pods)
	return namesOf(pods[:max(len(pods)-o.deployment.replicas(), 0)])
}

// forecastBase returns what comes of the pods of the ReplicaSet base, and why the whole rollout
// is handed over to the Deployment controller; empty if it is not.
func (o observation) forecastBase(ctx context.Context, q capacity.Question, base *replicaSet) (f rollout.WorkloadForecast, err error) {
	if base == nil {
		f.HandOver = cmp.Or(o.cannotHold(), q.NotHeld, o.differs())
		return f, nil
	}
	surge, unavailable, err := o.deployment.bounds()
	if err != nil {
		return f, err
	}
	options := o.options(surge, unavailable)
	f.HandOver = cmp.Or(o.cannotHold(), q.NotHeld)
	if options.Guard = o.guard(base); f.HandOver == "" && !policy.Held(o.deployment) { // an edit will be held
		options.Guard = o.Guard(rollout.Edit{Began: o.Now}, o.deployment.Spec.MinReadySeconds)
	}
	options.NonMembers = o.nonMembers(o.look(base, options), base)
	var places []judge.Place
	pods := slices.Clone(o.podsOf(base))
	sortAsDeleted(pods)
	for _, pod := range pods {
		place, err := o.place(base, pod)
		if err != nil {
			return f, err
		}
		places = append(places, place)
	}
	slices.SortStableFunc(places, func(a, b judge.Place) int { return byRequest(&a, &b) })
	facts, members, err := q.Forecast(ctx, o.Facts, places, o.revision(), options.Terms, unavailable == 0)
	if err != nil {
		return f, err
	}
	*o.Notes, f.RoomUnknown = *facts.Notes, facts.RoomUnknown
	p := plan{Plan: rollout.Plan{Step: rollout.Next(judge.Pods(members, options.Terms), options)}}
	if f.HandOver == "" && !p.Hold && len(p.Resize) == 0 && len(p.Restart) > 0 && !base.template.Same(o.deployment.template) && o.restartsAll(p) {
		f.HandOver = p.Restart[0].Reason
	}
	f.Pods = judge.Forecasts(p.Verdicts, o.Now)
	return f, nil
}

func (o observation) notOptedIn() string {
	if policy.Enabled(o.deployment) {
		return ""
	}
	return policy.NotOptedIn(o.deployment, "Deployment")
}

// sized reports whether the pods of rs are as the Deployment's template says. The template of
// a Deployment that does not exist yet has not been defaulted, so only its hash and sizes are
// compared.
func (o observation) sized(rs *replicaSet) bool {
	wanted := o.deployment.template
	return rs.template.Same(wanted) ||
		o.deployment.UID == "" && rs.template.Hash == wanted.Hash && len(resize.Between(rs.template.PodTemplateSpec, wanted.PodTemplateSpec)) == 0
}

// cannotHold returns why the rollout cannot be held; empty if it can.
func (o observation) cannotHold() string {
	if o.deployment.UID == "" {
		return cmp.Or(o.notOptedIn(), "a new Deployment cannot be held")
	}
	return o.notOptedIn()
}

// forecastOther returns what comes of the pods of a ReplicaSet that is not the base.
func (o observation) forecastOther(rs *replicaSet) []judge.PodForecast {
	reason := cmp.Or(rs.template.Differs(o.deployment.template), "it is of a ReplicaSet whose pods are not resized")
	var forecasts []judge.PodForecast
	for _, pod := range o.podsOf(rs) {
		forecasts = append(forecasts, restarted(pod, reason, "waiting for the Deployment controller"))
	}
	return forecasts
}

// restarted is the forecast for a pod that another one replaces, and what it waits for.
func restarted(pod *corev1.Pod, why, waits string) judge.PodForecast {
	return judge.PodForecast{
		Member:   judge.Member{Place: judge.Place{Name: pod.Name, Pod: pod, Differs: why}},
		Forecast: judge.PodRestart, Reason: why, Waits: judge.ReasonProgressing, Message: waits,
	}
}
