package capacity

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Ledger is what one process has promised of the room in a cluster: to pods that come for others, from the decision until they show.
// What it has not promised itself, as other controllers do, it does not know.
type Ledger struct {
	// deciding has whoever decides about restarts: two must not spend the same room.
	deciding chan struct{}

	mu       sync.Mutex
	accounts map[string]*account // by workload
	awaited  sets.Set[string]    // workloads that nobody has looked at since this process leads
	until    time.Time           // until then they are awaited; zero before anybody has asked

	reading   sync.Mutex
	repelling []*corev1.Pod
	tooMany   error // why they are not known
	readAt    time.Time
}

// account is what is promised to one workload.
type account struct {
	namespace string
	// shown are pods that are to come by what was last seen: they are missing, or those in their places go. What admission has given to
	// their sibling, if there is one, it gives to them.
	shown   []rollout.Coming
	sibling []*corev1.Pod
	// leaving are all pods that go.
	leaving []*corev1.Pod
	// decided are those whose restart was decided, and does not show yet.
	decided []promise
}

// promise is a pod that comes for another one; old is nil if that is gone.
type promise struct {
	old, pod *corev1.Pod
	made     time.Time
}

// spends reports whether the promise takes more of the room than there is taken already. As long as a pod is there for which a smaller
// one may come, it has its room: a PodDisruptionBudget may keep it, or the built-in controller wait for another one.
func (p promise) spends() bool {
	if p.old == nil || p.old.DeletionTimestamp != nil {
		return true
	}
	return !holds(Taken(p.old), resourcehelper.PodRequests(p.pod, resourcehelper.PodResourcesOptions{}))
}

// carriedOut is after which time a restart that does not show has not been made: the old pod stays.
const carriedOut = time.Minute

// NewLedger is one without promises.
func NewLedger() *Ledger {
	return &Ledger{deciding: make(chan struct{}, 1), accounts: map[string]*account{}, awaited: sets.New[string]()}
}

// longestWait bounds how long a workload is awaited that nobody can look at: others must not wait for it for ever.
const longestWait = 5 * time.Minute

// Await names workloads that may have been promised room before this process led. Until each was seen once, no restart is decided.
func (l *Ledger) Await(workloads ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaited.Insert(workloads...)
	l.until = time.Time{}
}

// Complete reports whether all that are awaited have been seen. They are waited for since somebody first asks: before that, nothing may
// have been looked at, as where the controller is not ready for long.
func (l *Ledger) Complete(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until.IsZero() {
		l.until = now.Add(longestWait)
	}
	return l.awaited.Len() == 0 || now.After(l.until)
}

// See notes which pods of a workload are there, and which ones are to come.
func (l *Ledger) See(workload, namespace string, there []*corev1.Pod, toCome []rollout.Coming, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaited.Delete(workload)
	a := l.account(workload)
	a.namespace, a.sibling, a.leaving = namespace, there[:min(len(there), 1)], nil
	a.shown = toCome
	stays := map[types.UID]bool{}
	for _, pod := range there {
		if pod.DeletionTimestamp != nil {
			a.leaving = append(a.leaving, pod)
		} else {
			stays[pod.UID] = true
		}
	}
	for _, c := range toCome {
		if c.For != nil { // it is shown, and counts once
			stays[c.For.UID] = false
		}
	}
	a.decided = slices.DeleteFunc(a.decided, func(p promise) bool { return !stays[p.old.UID] || now.Sub(p.made) > carriedOut })
	if len(a.shown)+len(a.leaving)+len(a.decided) == 0 {
		delete(l.accounts, workload)
	}
}

// account is that of the workload. The caller has locked l.mu.
func (l *Ledger) account(workload string) *account {
	if l.accounts[workload] == nil {
		l.accounts[workload] = &account{}
	}
	return l.accounts[workload]
}

// Skip has nobody wait for a workload that cannot be looked at.
func (l *Ledger) Skip(workload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaited.Delete(workload)
}

// Forget drops what is promised to a workload that is not looked after any more.
func (l *Ledger) Forget(workload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaited.Delete(workload)
	delete(l.accounts, workload)
}

// longestDecision bounds how long one decides. An API server that does not answer would have everybody wait for ever.
const longestDecision = 2 * time.Minute

// Decide has f decide about restarts, if nobody else does now, and reports whether it has. Whoever waited for others would decide by what
// was seen before, and keep a worker from workloads about which there is nothing to decide.
func (l *Ledger) Decide(ctx context.Context, f func(context.Context) error) (decides bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestDecision)
	defer cancel()
	select {
	case l.deciding <- struct{}{}:
		defer func() { <-l.deciding }()
		return true, f(ctx)
	default:
		return false, nil
	}
}

// promise notes that the pod comes for the old one.
func (l *Ledger) promise(workload string, old, pod *corev1.Pod, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(workload)
	a.decided = slices.DeleteFunc(a.decided, func(p promise) bool { return p.old.UID == old.UID })
	a.decided = append(a.decided, promise{old, pod, now})
}

// keptOutAfter is after which time a pod that a quota refuses takes no room from others. Before that, the quota may only not have counted
// yet that the pod in whose place it comes is gone.
const keptOutAfter = 30 * time.Second

// beside are the pods of all other workloads that go, and those that come.
func (l *Ledger) beside(workload string, now time.Time) (leaving, coming []*corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, a := range l.accounts {
		if name == workload {
			continue
		}
		leaving = append(leaving, a.leaving...)
		promises := slices.Clone(a.decided)
		shown := slices.DeleteFunc(slices.Clone(a.shown), func(c rollout.Coming) bool {
			return !c.Refused.IsZero() && now.Sub(c.Refused) >= keptOutAfter
		})
		for i, pod := range newborns(name, a.namespace, a.sibling, shown) {
			promises = append(promises, promise{old: shown[i].For, pod: pod})
		}
		for _, p := range promises {
			if !p.spends() {
				continue
			}
			if coming = append(coming, p.pod); p.old != nil {
				leaving = append(leaving, p.old)
			}
		}
	}
	return leaving, coming
}

// Nobody watches which pods keep others away by required anti-affinity: all pods are listed for that, and the answer is believed for a
// while. Beyond so many pods nobody asks.
const (
	believeRepelling = time.Minute
	mostPods         = 50_000
)

// repel are the pods of all namespaces that keep others away.
func (l *Ledger) repel(ctx context.Context, client kubernetes.Interface, now time.Time) ([]*corev1.Pod, error) {
	l.reading.Lock()
	defer l.reading.Unlock()
	if !l.readAt.IsZero() && now.Sub(l.readAt) < believeRepelling {
		return l.repelling, l.tooMany
	}
	var found []*corev1.Pod
	seen := 0
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
	})
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		pod, is := object.(*corev1.Pod)
		if seen++; seen > mostPods {
			return unknown("there are more than %d pods, and any of them might keep others away", mostPods)
		}
		if is && pod.Spec.NodeName != "" && !Over(pod) && len(apart(pod)) > 0 {
			found = append(found, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Labels: pod.Labels},
				Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName, Affinity: &corev1.Affinity{PodAntiAffinity: pod.Spec.Affinity.PodAntiAffinity}},
			})
		}
		return nil
	})
	if err != nil && !isUnknown(err) {
		return nil, hidden(err, "list the pods of all namespaces")
	}
	l.repelling, l.tooMany, l.readAt = found, err, now
	return found, err
}
