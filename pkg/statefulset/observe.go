package statefulset

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/fit"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Enabled tells whether set is opted in and not about to be deleted.
func Enabled(set *appsv1.StatefulSet) bool {
	return set.Labels[api.EnabledLabel] == "true" && set.DeletionTimestamp == nil
}

// Held tells whether the rollout of set is held.
func Held(set *appsv1.StatefulSet) bool {
	_, held := set.Annotations[api.HoldAnnotation]
	return held
}

// rolling tells whether the StatefulSet controller restarts stale pods by itself.
func rolling(set *appsv1.StatefulSet) bool {
	return set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType
}

func replicas(set *appsv1.StatefulSet) int { return int(ptr.Deref(set.Spec.Replicas, 1)) }

// partition in force: pods whose index is lower are not rolled.
func partition(set *appsv1.StatefulSet) int {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		return int(ptr.Deref(r.Partition, 0))
	}
	return 0
}

// wishedPartition is the partition that the user wants, held or not.
func wishedPartition(set *appsv1.StatefulSet) (int, error) {
	wish, held := set.Annotations[api.HoldAnnotation]
	if !held {
		return partition(set), nil
	}
	n, err := strconv.ParseInt(wish, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("annotation %s of StatefulSet %s/%s is %q: want the partition as a whole number", api.HoldAnnotation, set.Namespace, set.Name, wish)
	}
	return int(n), nil
}

// maxUnavailable is how many pods may be under way at once, at least 1
// (getStatefulSetMaxUnavailable in pkg/controller/statefulset of Kubernetes).
func maxUnavailable(set *appsv1.StatefulSet) int {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(r.MaxUnavailable, intstr.FromInt32(1)), replicas(set), false)
		if err == nil {
			return max(n, 1)
		}
	}
	return 1
}

// revision is a template that pods of the set may have been made from.
type revision struct {
	template *corev1.PodTemplateSpec
	raw      []byte // as stored: newer servers may have fields that our types lack
	hash     string // resource-free
}

// newRevision reads the template out of the patch that a ControllerRevision of a
// StatefulSet stores (getPatch in pkg/controller/statefulset of Kubernetes).
func newRevision(stored *appsv1.ControllerRevision) (*revision, error) {
	var patch struct {
		Spec struct {
			Template json.RawMessage `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(stored.Data.Raw, &patch); err != nil {
		return nil, fmt.Errorf("decoding ControllerRevision %s: %w", stored.Name, err)
	}
	r := &revision{raw: patch.Spec.Template, template: &corev1.PodTemplateSpec{}}
	if err := json.Unmarshal(r.raw, r.template); err != nil {
		return nil, fmt.Errorf("decoding the template of ControllerRevision %s: %w", stored.Name, err)
	}
	var err error
	if r.hash, err = hash.Template(r.raw); err != nil {
		return nil, fmt.Errorf("hashing the template of ControllerRevision %s: %w", stored.Name, err)
	}
	return r, nil
}

// refusal is why the API server did not take one size for one pod.
type refusal struct {
	rollout.Refusal
	size    string
	backoff *backoff.ExponentialBackOff
}

// observation is everything that a plan is made from.
type observation struct {
	set       *appsv1.StatefulSet
	pods      []*corev1.Pod
	nodes     []*corev1.Node
	revisions map[string]*revision
	refusals  map[types.UID]*refusal
	defaults  Defaults
	now       time.Time
}

// Defaults are what flags say where a workload says nothing.
type Defaults struct {
	// DeferredTimeout is how long a pod may be Deferred before that counts as final.
	DeferredTimeout time.Duration
	// ErrorTimeout is how long a pod's resize may fail before that counts as final.
	ErrorTimeout time.Duration
	// ResizePolicy of a changed resource.
	ResizePolicy policy.Policy
}

// settings in force: what action and policy said when the template was edited. If
// that is malformed, which is possible only if it was there before the admission
// policy was, what they say now counts, so that mending them helps.
func (o observation) settings() (policy.Settings, error) {
	said := maps.Clone(o.set.Annotations)
	if said == nil {
		return policy.Settings{}, nil
	}
	said[api.ResizeActionAnnotation], said[api.ResizePolicyAnnotation], _ = strings.Cut(said[api.InForceAnnotation], ";")
	settings, err := policy.Read(said)
	if err != nil {
		return policy.Read(o.set.Annotations)
	}
	return settings, nil
}

func (o observation) options(settings policy.Settings) rollout.Options {
	options := rollout.Options{
		Limit: maxUnavailable(o.set), Strategy: policy.RollingUpdate, Action: settings.Action,
		DeferredTimeout: ptr.Deref(settings.DeferredTimeout, o.defaults.DeferredTimeout),
		ErrorTimeout:    o.defaults.ErrorTimeout, Now: o.now,
	}
	if !rolling(o.set) {
		options.Strategy = policy.OnDelete
	}
	return options
}

// newest is the revision that the set's template has; the caller has made sure
// that the StatefulSet controller has observed the set's generation.
func (o observation) newest() *revision { return o.revisions[o.set.Status.UpdateRevision] }

// index returns the place of the pod in the set: its ordinal, counted from
// spec.ordinals.start. A partition counts the same way.
func (o observation) index(pod *corev1.Pod) (int, bool) {
	suffix, ours := strings.CutPrefix(pod.Name, o.set.Name+"-")
	ordinal, err := strconv.Atoi(suffix)
	if !ours || err != nil {
		return 0, false
	}
	return ordinal - o.start(), true
}

func (o observation) start() int {
	if o.set.Spec.Ordinals != nil {
		return int(o.set.Spec.Ordinals.Start)
	}
	return 0
}

// members lists the places from index from on, the highest first.
func (o observation) members(ctx context.Context, from int, settings policy.Settings) ([]rollout.Member, error) {
	n := replicas(o.set)
	if from >= n {
		return nil, nil
	}
	at := make(map[int]*corev1.Pod, len(o.pods))
	for _, pod := range o.pods {
		if i, ok := o.index(pod); ok {
			at[i] = pod
		}
	}
	members := make([]rollout.Member, 0, n-from)
	unplaceable := ""
	if err := fit.AnyNode(ctx, &corev1.Pod{Spec: *resize.Defaulted(o.newest().template)}, o.nodes); err != nil {
		unplaceable = err.Error()
	}
	for i := n - 1; i >= from; i-- {
		m, err := o.member(i, at[i], settings)
		if err != nil {
			return nil, err
		}
		if m.Differs == "" {
			m.Unplaceable = unplaceable
		}
		members = append(members, m)
	}
	return members, nil
}

func (o observation) member(index int, pod *corev1.Pod, settings policy.Settings) (rollout.Member, error) {
	m := rollout.Member{Name: fmt.Sprintf("%s-%d", o.set.Name, o.start()+index), Index: index, Pod: pod, Policy: policy.LiveResizeable}
	if pod == nil || pod.DeletionTimestamp != nil {
		// The next pod here is born from the old revision below the partition (trap T1).
		if rolling(o.set) && index < partition(o.set) {
			m.Differs = o.differs(o.set.Status.CurrentRevision)
		} else {
			m.Updated = true
		}
		return m, nil
	}
	m.Available = podutils.IsPodAvailable(pod, o.set.Spec.MinReadySeconds, metav1.NewTime(o.now))
	carries := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	m.Labelled = carries == o.set.Status.UpdateRevision
	var err error
	switch {
	case m.Labelled:
		m.Target, err = resize.Leftover(pod, o.newest().template)
		m.Updated = clean(m.Target)
		m.Brings = resize.Describe(m.Target.Changes)
	case o.differs(carries) != "":
		m.Differs = o.differs(carries)
	default:
		from := o.revisions[carries]
		m.Target, err = resize.For(pod, from.template, o.newest().template)
		m.Brings = resize.Describe(resize.Between(from.template, o.newest().template))
		m.Policy, m.Why = settings.Resolve(resize.BetweenPods(from.template, o.newest().template), o.newest().template, o.defaults.ResizePolicy)
	}
	if r := o.refusals[pod.UID]; r != nil && r.size == askedSize(o.set, m.Target.Changes) {
		m.Refusal = r.Refusal
	}
	return m, err
}

// clean tells whether a pod of the newest revision has nothing left of an edit
// that was given up: neither in its spec nor on its way out.
func clean(t resize.Target) bool {
	if len(t.Changes)+len(t.Obstacles) > 0 {
		return false
	}
	state, _ := t.Observe()
	return t.Resized.IsZero() || state == resize.Actuated || state == resize.Unready
}

// askedSize names what the API server is asked for: these changes, for this revision.
func askedSize(set *appsv1.StatefulSet, changes []resize.Change) string {
	return set.Status.UpdateRevision + " " + resize.Describe(changes)
}

// differs tells what, besides cpu and memory, the named revision has other than
// the newest one.
func (o observation) differs(name string) string {
	r := o.revisions[name]
	if r == nil {
		return fmt.Sprintf("its revision %q is not in the history", name)
	}
	if r.hash == o.newest().hash {
		return ""
	}
	paths, err := hash.Differences(r.raw, o.newest().raw)
	if err != nil || len(paths) == 0 {
		return "the template changed"
	}
	const told = 3
	if len(paths) > told {
		paths = append(paths[:told:told], "…")
	}
	return "the template changed in " + strings.Join(paths, ", ")
}

// caughtUp tells whether the StatefulSet controller counts as many pods as
// updated as there are. It watches pods and sets apart from each other: told to
// go on before it has seen a pod's new label, it would delete that pod.
func (o observation) caughtUp() bool {
	updated := 0
	for _, pod := range o.pods {
		if pod.DeletionTimestamp == nil && pod.Labels[appsv1.ControllerRevisionHashLabelKey] == o.set.Status.UpdateRevision {
			updated++
		}
	}
	return int(o.set.Status.UpdatedReplicas) == updated
}

// condition returns the set's condition inplace-rollout.io/Complete, or nil.
func condition(set *appsv1.StatefulSet) *appsv1.StatefulSetCondition {
	i := slices.IndexFunc(set.Status.Conditions, func(c appsv1.StatefulSetCondition) bool { return c.Type == api.ConditionComplete })
	if i < 0 {
		return nil
	}
	return &set.Status.Conditions[i]
}

// complete tells whether the condition says that there is nothing to do. It is
// taken back by the admission policy with every new revision.
func complete(set *appsv1.StatefulSet) bool {
	c := condition(set)
	return c != nil && c.Status == corev1.ConditionTrue
}
