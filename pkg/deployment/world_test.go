package deployment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	deploymentutil "k8s.io/kubectl/pkg/util/deployment"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

const (
	revisionAnnotation        = "deployment.kubernetes.io/revision"
	revisionHistoryAnnotation = "deployment.kubernetes.io/revision-history"
	desiredAnnotation         = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation             = "deployment.kubernetes.io/max-replicas"
)

var admission = simulated.NewAdmission[appsv1.Deployment]()

// world is a small cluster: an API server with the admission policies of deploy/,
// the controllers of Deployments and ReplicaSets, the garbage collector and the
// kubelets, each of which does one thing when its method is called. Objects are
// never changed, only replaced, so that a copy of a map of them is what a watch
// has seen at some time.
type world struct {
	*simulated.Cluster
	t        testing.TB
	d        *appsv1.Deployment
	sets     map[string]*appsv1.ReplicaSet
	strategy appsv1.DeploymentStrategy // that is in force
	budget   int                       // evictions that will be refused
	full     bool                      // a quota has no room for another ReplicaSet

	unguarded bool // the admission policies are gone
	unknown   bool // they take the controller for a user
	releasing bool // the next write is the one of inplace-rollout release
	noPods    bool // a quota has no room for another pod
	strips    bool // somebody's policy takes our annotations from what the Deployment controller writes of ReplicaSets

	encoded map[types.UID]*unstructured.Unstructured

	// What the Deployment controller has seen; it looks again only when that has
	// changed, or something failed.
	dc struct {
		d     *appsv1.Deployment
		sets  map[string]*appsv1.ReplicaSet
		again bool
	}
	// What the ReplicaSet controller has seen, and what it expects to see of its own
	// writes to a ReplicaSet's pods before it makes more (its expectations).
	rsc struct {
		sets   map[string]*appsv1.ReplicaSet
		pods   map[string]*corev1.Pod
		podsRV int
		wrote  map[types.UID]int
	}

	// Called with each new pod of a ReplicaSet.
	birth func(*appsv1.ReplicaSet, *corev1.Pod)
}

func newWorld(t testing.TB, d *appsv1.Deployment, outcomes []simulated.Outcome) *world {
	w := &world{
		t: t, d: d, strategy: d.Spec.Strategy, sets: map[string]*appsv1.ReplicaSet{}, encoded: map[types.UID]*unstructured.Unstructured{},
		birth: func(*appsv1.ReplicaSet, *corev1.Pod) {},
	}
	w.Cluster = simulated.New(w.place, outcomes, d)
	w.Evictions = func() error {
		if w.budget > 0 {
			w.budget--
			return overBudget("the budget says no")
		}
		return nil
	}
	w.rsc.wrote = map[types.UID]int{}
	return w
}

// overBudget is the answer of a PodDisruptionBudget.
func overBudget(says string) error {
	err := apierrors.NewTooManyRequests(says, 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause}}
	return err
}

// place of a pod: each is on another node.
func (w *world) place(pod *corev1.Pod) int {
	n, _ := strconv.Atoi(string(pod.UID))
	return n
}

// stored is the object as the API server hands it out.
func (w *world) stored(object simulated.Object) *unstructured.Unstructured {
	if u := w.encoded[object.GetUID()]; u != nil && u.GetResourceVersion() == object.GetResourceVersion() {
		return u
	}
	u := build.Stored(w.t, object)
	w.encoded[object.GetUID()] = u
	return u
}

// writeSet stores a ReplicaSet.
func (w *world) writeSet(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	if old := w.sets[rs.Name]; old != nil {
		w.Generation(rs, old.Spec, rs.Spec)
	}
	w.sets[rs.Name] = rs
	w.Written(rs)
	return rs
}

// createSet stores a new ReplicaSet; it is nil if the name is taken.
func (w *world) createSet(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	if w.sets[rs.Name] != nil {
		return nil
	}
	rs.UID, rs.Generation, rs.Status = w.NextUID(), 1, appsv1.ReplicaSetStatus{}
	rs.CreationTimestamp = w.Stamp()
	return w.writeSet(rs)
}

func (w *world) removeSet(name string) {
	if rs := w.sets[name]; rs != nil {
		delete(w.sets, name)
		w.Removed(rs)
	}
}

// writeDeployment stores a Deployment that admission has seen.
func (w *world) writeDeployment(d *appsv1.Deployment, ours bool) {
	before := w.d
	if !w.unguarded && (before.Labels[api.EnabledLabel] == "true" || d.Labels[api.EnabledLabel] == "true") {
		admission.Admit(before, d, simulated.ByWhom(ours, w.releasing), nil)
	}
	if w.Generation(d, before.Spec, d.Spec); d.Generation == before.Generation { // strategy.go of the registry counts annotations, too
		w.Generation(d, before.Annotations, d.Annotations)
	}
	w.releasing = false
	w.storeDeployment(d)
	if simulated.VersionOf(&before.Spec.Template.Spec) != simulated.VersionOf(&d.Spec.Template.Spec) || !policy.Held(before) || !policy.Held(d) ||
		d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		w.strategy = d.Spec.Strategy
	}
}

func (w *world) storeDeployment(d *appsv1.Deployment) {
	w.d = d
	w.Written(d)
}

// user changes the Deployment as its user.
func (w *world) user(change func(*appsv1.Deployment)) {
	d := w.d.DeepCopy()
	change(d)
	d.ManagedFields = []metav1.ManagedFieldsEntry{{Time: ptr.To(w.Stamp())}}
	w.writeDeployment(d, false)
}

// putStatus is UpdateStatus of the Deployment controller, which may change annotations, and the
// policy of deploy/cluster/status.yaml. It fails if d is not the newest version.
func (w *world) putStatus(d *appsv1.Deployment) bool {
	if d.ResourceVersion != w.d.ResourceVersion {
		return false
	}
	written := d.DeepCopy()
	admission.AdmitStatus(w.d, written, false)
	if !equality.Semantic.DeepEqual(written, w.d) { // else the API server writes nothing
		w.storeDeployment(written)
	}
	return true
}

// putSet is Update of the Deployment controller; nil if rs is not made from the newest version.
func (w *world) putSet(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	current := w.sets[rs.Name]
	if current == nil || current.UID != rs.UID || current.ResourceVersion != rs.ResourceVersion {
		return nil
	}
	if w.strips {
		if delete(rs.Annotations, api.HoldAnnotation); equality.Semantic.DeepEqual(rs, current) { // then the API server writes nothing
			return current
		}
	}
	return w.writeSet(rs)
}

// Live lets the kubelets and the built-in controllers do one thing each.
func (w *world) Live() {
	w.collect()
	w.Kubelets()
	w.rscSees(true, true)
	w.rscSync()
	w.rscSees(true, true)
	w.dcSees(true, true)
	w.dcSync()
}

// looks notes at what somebody looks.
func (w *world) looks(user string, at map[string]bool) {
	for resource, looks := range at {
		if looks {
			w.Looks(user, resource)
		}
	}
}

// dcSees lets the watches of the Deployment controller catch up.
func (w *world) dcSees(d, sets bool) {
	w.looks(simulated.Deployments, map[string]bool{"deployments": d, "replicasets": sets})
	if d && w.dc.d != w.d {
		w.dc.d, w.dc.again = w.d, true
	}
	if sets && !maps.Equal(w.dc.sets, w.sets) {
		w.dc.sets, w.dc.again = maps.Clone(w.sets), true
	}
}

// dcSync is one sync of the Deployment controller (syncDeployment in
// deployment_controller.go of Kubernetes 1.37), from what it has seen.
func (w *world) dcSync() {
	if w.dc.d == nil || !w.dc.again {
		return
	}
	defer w.As(simulated.Deployments)()
	s := &dcSync{world: w, d: w.dc.d.DeepCopy()}
	for _, rs := range w.dc.sets {
		s.sets = append(s.sets, rs.DeepCopy())
	}
	slices.SortFunc(s.sets, oldest)
	w.dc.again = !s.run()
}

// dcSync is what one sync of the Deployment controller works on. Methods return
// false when a write failed: the whole sync is then tried again.
type dcSync struct {
	*world
	d    *appsv1.Deployment
	sets []*appsv1.ReplicaSet // the oldest first
	new  *appsv1.ReplicaSet
	old  []*appsv1.ReplicaSet
}

func oldest(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func number(rs *appsv1.ReplicaSet) int {
	n, _ := strconv.Atoi(rs.Annotations[revisionAnnotation])
	return n
}

func active(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	return slices.DeleteFunc(slices.Clone(sets), func(rs *appsv1.ReplicaSet) bool { return rs == nil || *rs.Spec.Replicas == 0 })
}

func sum(sets []*appsv1.ReplicaSet, of func(*appsv1.ReplicaSet) int32) (n int32) {
	for _, rs := range sets {
		if rs != nil {
			n += of(rs)
		}
	}
	return n
}

func specReplicas(rs *appsv1.ReplicaSet) int32      { return *rs.Spec.Replicas }
func statusReplicas(rs *appsv1.ReplicaSet) int32    { return rs.Status.Replicas }
func availableReplicas(rs *appsv1.ReplicaSet) int32 { return rs.Status.AvailableReplicas }

func (s *dcSync) all() []*appsv1.ReplicaSet {
	if s.new == nil {
		return s.old
	}
	return append(slices.Clone(s.old), s.new)
}

func (s *dcSync) bounds() (surge, unavailable int32) {
	if s.d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return 0, 0
	}
	surge, unavailable, _ = deploymentutil.ResolveFenceposts(s.d.Spec.Strategy.RollingUpdate.MaxSurge, s.d.Spec.Strategy.RollingUpdate.MaxUnavailable, *s.d.Spec.Replicas)
	return surge, min(unavailable, *s.d.Spec.Replicas)
}

func (s *dcSync) run() bool {
	if s.d.DeletionTimestamp != nil {
		return true
	}
	if s.d.Spec.Paused {
		return s.paused()
	}
	if !s.find(false) { // isScalingEvent
		return false
	}
	for _, rs := range active(s.all()) {
		if desired, err := strconv.Atoi(rs.Annotations[desiredAnnotation]); err == nil && desired != int(*s.d.Spec.Replicas) {
			return s.paused()
		}
	}
	if s.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return s.recreate()
	}
	return s.rolling()
}

// paused is sync: for a paused Deployment, and one that is scaled.
func (s *dcSync) paused() bool {
	return s.find(false) && s.scale() && (!s.d.Spec.Paused || s.cleanup()) && s.status()
}

// sameTemplate is EqualIgnoreHash: the size that two templates say in other words makes them two.
func sameTemplate(d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	of := rs.Spec.Template.DeepCopy()
	delete(of.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(of, &d.Spec.Template)
}

// find is getAllReplicaSetsAndSyncRevision and getNewReplicaSet.
func (s *dcSync) find(create bool) bool {
	s.new, s.old = nil, nil
	for _, rs := range s.sets {
		if s.new == nil && sameTemplate(s.d, rs) {
			s.new = rs
		} else {
			s.old = append(s.old, rs)
		}
	}
	revision := 1
	for _, rs := range s.old {
		revision = max(revision, number(rs)+1)
	}
	if s.new == nil {
		return !create || s.create(revision)
	}
	rs := s.new.DeepCopy()
	changed := annotate(s.d, rs, revision)
	if changed || rs.Spec.MinReadySeconds != s.d.Spec.MinReadySeconds {
		rs.Spec.MinReadySeconds = s.d.Spec.MinReadySeconds
		return s.replace(rs)
	}
	return s.number(rs.Annotations[revisionAnnotation])
}

// replace writes a ReplicaSet, and goes on with what is stored.
func (s *dcSync) replace(rs *appsv1.ReplicaSet) bool {
	written := s.putSet(rs)
	if written == nil {
		return false
	}
	for _, list := range [][]*appsv1.ReplicaSet{s.sets, s.old} {
		for i := range list {
			if list[i].UID == rs.UID {
				list[i] = written.DeepCopy()
			}
		}
	}
	if s.new != nil && s.new.UID == rs.UID {
		s.new = written.DeepCopy()
	}
	return true
}

// number is SetDeploymentRevision. What it writes makes the rest of the sync out of date.
func (s *dcSync) number(revision string) bool {
	if s.d.Annotations[revisionAnnotation] == revision {
		return true
	}
	s.d.Annotations[revisionAnnotation] = revision
	return s.putStatus(s.d)
}

// annotate is SetNewReplicaSetAnnotations for a ReplicaSet that there is.
func annotate(d *appsv1.Deployment, rs *appsv1.ReplicaSet, revision int) bool {
	changed := false
	if rs.Annotations == nil {
		rs.Annotations = map[string]string{}
	}
	for key, value := range d.Annotations {
		if had, exists := rs.Annotations[key]; !skipped(key) && (!exists || had != value) {
			rs.Annotations[key], changed = value, true
		}
	}
	if had := number(rs); had < revision {
		if said, ok := rs.Annotations[revisionAnnotation]; ok {
			rs.Annotations[revisionHistoryAnnotation] = strings.TrimPrefix(rs.Annotations[revisionHistoryAnnotation]+","+said, ",")
		}
		rs.Annotations[revisionAnnotation], changed = strconv.Itoa(revision), true
	}
	return changed
}

// skipped are the annotations that are not copied between Deployments and ReplicaSets.
func skipped(key string) bool {
	return slices.Contains([]string{revisionAnnotation, revisionHistoryAnnotation, desiredAnnotation, maxAnnotation}, key)
}

// create makes the new ReplicaSet. A name that another template has taken raises collisionCount.
func (s *dcSync) create(revision int) bool {
	v := simulated.VersionOf(&s.d.Spec.Template.Spec)
	hash := fmt.Sprintf("%vx%d", v, ptr.Deref(s.d.Status.CollisionCount, 0))
	rs := webSet(s.d, hash, v, 0)
	rs.Spec.Template.Spec = *s.d.Spec.Template.Spec.DeepCopy()
	*rs.Spec.Replicas = s.newReplicas(rs)
	annotate(s.d, rs, revision)
	s.scaleAnnotations(rs)
	created := s.createSet(rs)
	if created == nil {
		seen := s.dc.sets[rs.Name]
		if seen == nil {
			return false // its watch has not brought it yet
		}
		if !metav1.IsControlledBy(seen, s.d) || !sameTemplate(s.d, seen) {
			s.d.Status.CollisionCount = ptr.To(ptr.Deref(s.d.Status.CollisionCount, 0) + 1)
			s.putStatus(s.d)
			return false
		}
		created = seen
	}
	s.new = created.DeepCopy()
	s.sets = append(s.sets, s.new)
	return s.number(strconv.Itoa(revision))
}

func (s *dcSync) scaleAnnotations(rs *appsv1.ReplicaSet) bool {
	surge, _ := s.bounds()
	desired, most := fmt.Sprint(*s.d.Spec.Replicas), fmt.Sprint(*s.d.Spec.Replicas+surge)
	if rs.Annotations[desiredAnnotation] == desired && rs.Annotations[maxAnnotation] == most {
		return false
	}
	rs.Annotations[desiredAnnotation], rs.Annotations[maxAnnotation] = desired, most
	return true
}

// newReplicas is NewRSNewReplicas.
func (s *dcSync) newReplicas(rs *appsv1.ReplicaSet) int32 {
	if s.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return *s.d.Spec.Replicas
	}
	surge, _ := s.bounds()
	room := *s.d.Spec.Replicas + surge - sum(s.all(), specReplicas)
	if room <= 0 {
		return *rs.Spec.Replicas
	}
	return *rs.Spec.Replicas + min(room, *s.d.Spec.Replicas-*rs.Spec.Replicas)
}

// scaleTo is scaleReplicaSet.
func (s *dcSync) scaleTo(rs *appsv1.ReplicaSet, n int32, force bool) (scaled, ok bool) {
	if !force && *rs.Spec.Replicas == n {
		return false, true
	}
	scaled = *rs.Spec.Replicas != n
	rs = rs.DeepCopy()
	*rs.Spec.Replicas = n
	if s.scaleAnnotations(rs) || scaled {
		return scaled, s.replace(rs)
	}
	return false, true
}

// scale scales what there is without rolling anything.
func (s *dcSync) scale() bool {
	switch running := active(s.all()); {
	case len(s.all()) == 0:
		return true
	case len(running) <= 1: // FindActiveOrLatest
		only := s.new
		if len(running) == 1 {
			only = running[0]
		} else if only == nil {
			only = s.old[len(s.old)-1] // the newest
		}
		_, ok := s.scaleTo(only, *s.d.Spec.Replicas, false)
		return ok
	}
	if s.saturated() {
		for _, rs := range active(s.old) {
			if _, ok := s.scaleTo(rs, 0, false); !ok {
				return false
			}
		}
		return true
	}
	return s.d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || s.proportionally()
}

// saturated is IsSaturated.
func (s *dcSync) saturated() bool {
	if s.new == nil {
		return false
	}
	desired, err := strconv.Atoi(s.new.Annotations[desiredAnnotation])
	n := *s.d.Spec.Replicas
	return err == nil && *s.new.Spec.Replicas == n && int32(desired) == n && s.new.Status.AvailableReplicas == n
}

func (s *dcSync) proportionally() bool {
	running, allowed := active(s.all()), int32(0)
	surge, _ := s.bounds()
	if *s.d.Spec.Replicas > 0 {
		allowed = *s.d.Spec.Replicas + surge
	}
	toAdd := allowed - sum(running, specReplicas)
	slices.SortStableFunc(running, func(a, b *appsv1.ReplicaSet) int { // ReplicaSetsBySizeNewer and Older
		age := oldest(a, b)
		if toAdd > 0 {
			age = -age
		}
		return cmp.Or(cmp.Compare(*b.Spec.Replicas, *a.Spec.Replicas), age)
	})
	sizes, added := make([]int32, len(running)), int32(0)
	for i, rs := range running {
		share := s.share(rs, toAdd, added)
		sizes[i], added = *rs.Spec.Replicas+share, added+share
	}
	if toAdd != 0 {
		sizes[0] = max(sizes[0]+toAdd-added, 0)
	}
	for i, rs := range running {
		if _, ok := s.scaleTo(rs, sizes[i], true); !ok {
			return false
		}
	}
	return true
}

// share is GetReplicaSetProportion.
func (s *dcSync) share(rs *appsv1.ReplicaSet, toAdd, added int32) int32 {
	if toAdd == 0 || toAdd == added {
		return 0
	}
	fraction := -*rs.Spec.Replicas
	if *s.d.Spec.Replicas > 0 {
		surge, _ := s.bounds()
		before, err := strconv.Atoi(rs.Annotations[maxAnnotation])
		if err != nil || before == 0 {
			before = int(s.d.Status.Replicas)
		}
		if before == 0 {
			return 0
		}
		fraction = int32(math.Round(float64(*rs.Spec.Replicas*(*s.d.Spec.Replicas+surge))/float64(before))) - *rs.Spec.Replicas
	}
	if toAdd > 0 {
		return min(fraction, toAdd-added)
	}
	return max(fraction, toAdd-added)
}

// cleanup is cleanupDeployment. It deletes by name only.
func (s *dcSync) cleanup() bool {
	excess := len(s.old) - int(*s.d.Spec.RevisionHistoryLimit)
	byRevision := slices.Clone(s.old)
	slices.SortStableFunc(byRevision, func(a, b *appsv1.ReplicaSet) int { return cmp.Or(cmp.Compare(number(a), number(b)), oldest(a, b)) })
	for _, rs := range byRevision[:max(excess, 0)] {
		if rs.Status.Replicas == 0 && *rs.Spec.Replicas == 0 && rs.Generation <= rs.Status.ObservedGeneration {
			s.removeSet(rs.Name)
		}
	}
	return true
}

// rolling is rolloutRolling.
func (s *dcSync) rolling() bool {
	if !s.find(true) {
		return false
	}
	if n := *s.new.Spec.Replicas; n != *s.d.Spec.Replicas { // reconcileNewReplicaSet
		want := *s.d.Spec.Replicas
		if n < want {
			want = s.newReplicas(s.new)
		}
		scaled, ok := s.scaleTo(s.new, want, false)
		if !ok {
			return false
		}
		if scaled {
			return s.status()
		}
	}
	if scaled := s.shrinkOld(); scaled {
		return s.status()
	}
	return s.cleanupWhenComplete() && s.status()
}

// shrinkOld is reconcileOldReplicaSets. What fails in it is passed over.
func (s *dcSync) shrinkOld() (scaled bool) {
	_, unavailable := s.bounds()
	least := *s.d.Spec.Replicas - unavailable
	most := sum(s.all(), specReplicas) - least - (*s.new.Spec.Replicas - s.new.Status.AvailableReplicas)
	if sum(s.old, specReplicas) == 0 || most <= 0 {
		return false
	}
	total := int32(0)
	for _, rs := range active(s.old) { // cleanupUnhealthyReplicas
		unhealthy := min(most-total, *rs.Spec.Replicas-rs.Status.AvailableReplicas)
		if unhealthy <= 0 {
			continue
		}
		if _, ok := s.scaleTo(rs, *rs.Spec.Replicas-unhealthy, false); !ok {
			return false
		}
		total += unhealthy
	}
	spare := sum(s.all(), availableReplicas) - least
	for _, rs := range active(s.old) { // scaleDownOldReplicaSetsForRollingUpdate
		n := min(*rs.Spec.Replicas, spare)
		if n <= 0 {
			break
		}
		if _, ok := s.scaleTo(rs, *rs.Spec.Replicas-n, false); !ok {
			return false
		}
		spare, total = spare-n, total+n
	}
	return total > 0
}

// recreate is rolloutRecreate.
func (s *dcSync) recreate() bool {
	if !s.find(false) {
		return false
	}
	for _, rs := range active(s.old) {
		if _, ok := s.scaleTo(rs, 0, false); !ok {
			return false
		}
	}
	if sum(s.old, statusReplicas) > 0 {
		return s.status()
	}
	if s.new == nil && !s.find(true) {
		return false
	}
	if _, ok := s.scaleTo(s.new, *s.d.Spec.Replicas, false); !ok {
		return false
	}
	return s.cleanupWhenComplete() && s.status()
}

func (s *dcSync) cleanupWhenComplete() bool {
	n, status := *s.d.Spec.Replicas, s.d.Status
	if status.UpdatedReplicas == n && status.Replicas == n && status.AvailableReplicas == n && status.ObservedGeneration >= s.d.Generation {
		return s.cleanup()
	}
	return true
}

// status is syncDeploymentStatus.
func (s *dcSync) status() bool {
	before := s.d.Status.DeepCopy()
	s.d.Status.ObservedGeneration = s.d.Generation
	s.d.Status.Replicas, s.d.Status.AvailableReplicas = sum(s.all(), statusReplicas), sum(s.all(), availableReplicas)
	s.d.Status.UpdatedReplicas = sum([]*appsv1.ReplicaSet{s.new}, statusReplicas)
	return equality.Semantic.DeepEqual(before, &s.d.Status) || s.putStatus(s.d)
}

// rscSees lets the watches of the ReplicaSet controller catch up.
func (w *world) rscSees(sets, pods bool) {
	w.looks(simulated.ReplicaSets, map[string]bool{"replicasets": sets, "pods": pods})
	if sets {
		w.rsc.sets = maps.Clone(w.sets)
	}
	if pods {
		w.rsc.pods, w.rsc.podsRV = maps.Clone(w.Pods), w.RV
	}
}

// rscSync is one sync of each ReplicaSet (syncReplicaSet in replica_set.go of
// Kubernetes 1.37), from what was seen.
func (w *world) rscSync() {
	defer w.As(simulated.ReplicaSets)()
	for _, name := range slices.Sorted(maps.Keys(w.rsc.sets)) {
		w.rscSyncOne(w.rsc.sets[name])
	}
}

func (w *world) rscSyncOne(rs *appsv1.ReplicaSet) {
	var running []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(w.rsc.pods)) {
		if pod := w.rsc.pods[name]; metav1.IsControlledBy(pod, rs) && !judge.Gone(pod) {
			running = append(running, pod)
		}
	}
	missing := int(*rs.Spec.Replicas) - len(running)
	if w.rsc.podsRV < w.rsc.wrote[rs.UID] || w.noPods && missing > 0 {
		missing = 0 // it waits to see what it did, or is refused them
	}
	for range missing {
		w.WritePod(w.newPod(rs))
		w.rsc.wrote[rs.UID] = w.RV
	}
	if missing < 0 {
		slices.SortStableFunc(running, func(a, b *corev1.Pod) int {
			if podutils.IsPodReady(a) && podutils.IsPodReady(b) && deletionCost(a) != deletionCost(b) {
				return int(deletionCost(a) - deletionCost(b))
			}
			if podutils.ActivePods([]*corev1.Pod{a, b}).Less(0, 1) {
				return -1
			}
			return asInt(podutils.ActivePods([]*corev1.Pod{b, a}).Less(0, 1))
		})
		for _, pod := range running[:-missing] {
			if current := w.Pods[pod.Name]; current != nil && current.DeletionTimestamp == nil { // by name only
				w.DeletePod(pod.Name)
				w.rsc.wrote[rs.UID] = w.RV
			}
		}
	}
	status := appsv1.ReplicaSetStatus{Replicas: int32(len(running)), ObservedGeneration: rs.Generation}
	for _, pod := range running {
		if podutils.IsPodReady(pod) {
			status.ReadyReplicas++
		}
		if podutils.IsPodAvailable(pod, rs.Spec.MinReadySeconds, metav1.NewTime(w.Clock.Now())) {
			status.AvailableReplicas++
		}
	}
	if current := w.sets[rs.Name]; current != nil && current.UID == rs.UID && !equality.Semantic.DeepEqual(rs.Status, status) {
		written := current.DeepCopy() // a conflict is met with one more try
		written.Status = status
		w.writeSet(written)
	}
}

// newPod is a pod of rs that nobody has scheduled yet.
func (w *world) newPod(rs *appsv1.ReplicaSet) *corev1.Pod {
	uid := w.NextUID()
	pod := simulated.NewPod(uid, fmt.Sprintf("%s-%s", rs.Name, uid), &rs.Spec.Template)
	build.OwnedBy(rs, "ReplicaSet")(pod)
	pod.CreationTimestamp = w.Stamp()
	pod.Labels = maps.Clone(rs.Spec.Template.Labels)
	w.birth(rs, pod)
	return pod
}

// collect is the garbage collector's: what nobody owns any more goes.
func (w *world) collect() {
	defer w.As(simulated.GarbageCollector)()
	for _, name := range slices.Sorted(maps.Keys(w.Pods)) {
		owner := metav1.GetControllerOfNoCopy(w.Pods[name])
		if owner.Kind == "ReplicaSet" && (w.sets[owner.Name] == nil || w.sets[owner.Name].UID != owner.UID) {
			w.DeletePod(name)
		}
	}
}

// serve makes client the API server of this world for pods.
func (w *world) serve(client *fake.Clientset) {
	w.ServePods(client)
	client.AddReactor("list", "limitranges", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &corev1.LimitRangeList{}
		if w.Hands != nil {
			list.Items = w.Hands.Ranges()
		}
		return true, list, nil
	})
}

// objects is the world as dynamic.Interface; what is not here is not used.
type objects struct {
	dynamic.NamespaceableResourceInterface
	*world
	resource string
}

func (o objects) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return objects{world: o.world, resource: r.Resource}
}

// IsWatchListSemanticsUnSupported has informers list first.
func (objects) IsWatchListSemanticsUnSupported() bool { return true }

func (o objects) Namespace(string) dynamic.ResourceInterface { return o }

func (o objects) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion(strconv.Itoa(o.RV))
	o.Looks(deploy.User, o.resource)
	if o.resource == deployments.Resource {
		list.Items = append(list.Items, *o.stored(o.d))
		return list, nil
	}
	for _, name := range slices.Sorted(maps.Keys(o.sets)) {
		list.Items = append(list.Items, *o.stored(o.sets[name]))
	}
	return list, nil
}

func (o objects) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if name != o.d.Name {
		return nil, apierrors.NewNotFound(deployments.GroupResource(), name)
	}
	o.Looks(deploy.User, o.resource)
	return o.stored(o.d), nil
}

func (objects) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func (o objects) Patch(_ context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*unstructured.Unstructured, error) {
	if o.resource == deployments.Resource {
		return o.patchDeployment(data, subresources...)
	}
	if kind != types.JSONPatchType {
		return nil, fmt.Errorf("a %s of a ReplicaSet", kind)
	}
	return simulated.Request(&o.Requests, nil, func() (*unstructured.Unstructured, error) { return o.patchSet(name, data) })
}

func (o objects) patchSet(name string, data []byte) (*unstructured.Unstructured, error) {
	old := o.sets[name]
	if old == nil {
		return nil, apierrors.NewNotFound(replicaSets.GroupResource(), name)
	}
	original, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, err
	}
	changed, err := patch.Apply(original)
	if err != nil { // as the API server
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	rs := &appsv1.ReplicaSet{}
	if err := json.Unmarshal(changed, rs); err != nil {
		return nil, err
	}
	if err := simulated.Meets(old, rs.UID, rs.ResourceVersion); err != nil {
		return nil, err
	}
	if err := apivalidation.ValidateAnnotationsSize(rs.Annotations); err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ReplicaSet"}, name, field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", apivalidation.TotalAnnotationSizeLimitB)})
	}
	return o.stored(o.writeSet(rs)), nil
}

func (o objects) patchDeployment(data []byte, subresources ...string) (*unstructured.Unstructured, error) {
	return simulated.Request(&o.Requests, nil, func() (*unstructured.Unstructured, error) {
		d, err := simulated.Patched(o.d, &appsv1.Deployment{}, data)
		if err != nil {
			return nil, err
		}
		if len(subresources) > 0 {
			o.storeDeployment(d)
		} else {
			o.writeDeployment(d, !o.unknown)
		}
		return o.stored(o.d), nil
	})
}

func (o objects) Create(_ context.Context, object *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	return simulated.Request(&o.Requests, nil, func() (*unstructured.Unstructured, error) {
		rs := &appsv1.ReplicaSet{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, rs); err != nil {
			return nil, err
		}
		if o.full {
			return nil, apierrors.NewForbidden(replicaSets.GroupResource(), rs.Name, errors.New("exceeded quota: objects"))
		}
		created := o.createSet(rs)
		if created == nil {
			return nil, apierrors.NewAlreadyExists(replicaSets.GroupResource(), rs.Name)
		}
		return o.stored(created), nil
	})
}

func (o objects) Delete(_ context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	_, err := simulated.Request(&o.Requests, nil, func() (*appsv1.ReplicaSet, error) {
		rs := o.sets[name]
		if rs == nil {
			return nil, apierrors.NewNotFound(replicaSets.GroupResource(), name)
		}
		if err := simulated.Meets(rs, *options.Preconditions.UID, *options.Preconditions.ResourceVersion); err != nil {
			return nil, err
		}
		o.removeSet(name)
		return rs, nil
	})
	return err
}

type version = simulated.Version

// The edit of most tests leads from older to newer; the others are of the past.
var (
	older      = version{Image: 1, CPU: 1}
	newer      = version{Image: 1, CPU: 2}
	other      = version{Image: 1, CPU: 3}
	limited    = version{Image: 1, CPU: 1, Memory: 1} // its limit cannot be removed in place
	otherImage = version{Image: 2, CPU: 1}
)

var templates = simulated.Templates()

// webDeployment is an opted-in Deployment of v; its status is empty.
func webDeployment(v version, replicas int) *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: "uid-of-web", ResourceVersion: "0", Generation: 1,
			Labels: map[string]string{api.EnabledLabel: "true"}, Annotations: map[string]string{},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(replicas)), Template: *templates[v], RevisionHistoryLimit: ptr.To(int32(10)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0))},
			},
		},
	}
}

// webSet is a ReplicaSet of d as the Deployment controller makes it; its status is empty.
func webSet(d *appsv1.Deployment, hash string, v version, replicas int) *appsv1.ReplicaSet {
	labels := map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: hash}
	rs := &appsv1.ReplicaSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-" + hash, UID: types.UID("uid-of-" + hash), ResourceVersion: "1", Generation: 1,
			Labels: labels, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(int32(replicas)), MinReadySeconds: d.Spec.MinReadySeconds,
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: *templates[v].DeepCopy(),
		},
	}
	rs.Spec.Template.Labels = labels
	return rs
}
