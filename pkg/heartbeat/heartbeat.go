// Package heartbeat tells the admission policies of deploy/cluster, and people, that a controller is there, so that edits are
// held. It writes annotations of a ServiceAccount that nobody runs as: policies cannot have a Lease or a ConfigMap as their
// parameter that outlives a reinstallation (kubernetes/kubernetes#130887), and what nothing but a heartbeat is in may be read by
// anybody, and is in no manifest that is compared with it. It says until when, by the API server's clock: the policies see by that
// when a write came.
package heartbeat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

const (
	// validity is how long one beat counts: three may fail.
	validity = 45 * time.Second
	period   = 10 * time.Second
	retry    = 2 * time.Second
	timeout  = 5 * time.Second // of one request
	// overdue is when a process whose heartbeat fails is not ready any more.
	overdue = 30 * time.Second
)

const (
	// handover is how long a process that has given the lead back waits for another one to take it: replicas try every 2 s.
	handover = 5 * time.Second
	// takeover is how long it waits for the heartbeat of that one, of the 30 s that a pod has to end.
	takeover = 20 * time.Second
)

// maxChecks is how long the names of checks may be together: the annotations of an object share 256 KiB. Longer ones are as unknown.
const maxChecks = 64 << 10

// Heart beats while its process leads and is ready.
type Heart struct {
	// Client writes the heartbeat, as the leader only.
	Client kubernetes.Interface
	// Last takes it away at the end, when the process does not lead any more.
	Last kubernetes.Interface
	// Ready returns an error while edits are not to be held.
	Ready func() error
	// WhenAbsent is what becomes of edits while no controller is there.
	WhenAbsent string
	// LeftOut, if set, returns the namespaces in which edits are not held all the same.
	LeftOut func() []string
	// Checks, if set, returns the names of the checks that workloads may name; false while they are unknown.
	Checks func() (names []string, known bool)
	// Defaults, if not empty, are what flags say where a workload says nothing.
	Defaults string
	// Standby, if set, returns an error while this process does not lead, nor another one.
	Standby func() error
	// Followed, if set, reports whether another process leads, now that this one has given the lead back.
	Followed func(context.Context) bool
	// Began, if set, is called when it has begun to beat, also after a pause or a failure.
	Began func()

	// fraction of a second in what it writes, by which it knows that from what another process has written. The policies
	// compare it, as a string, with whole seconds: 07:00:58.5Z comes between 07:00:57Z and 07:00:58Z.
	fraction time.Duration

	mu      sync.Mutex
	leads   bool
	account types.NamespacedName
	clock   clock
	value   string    // of the annotation, if it is ours
	since   time.Time // the last success, or else the first try
	err     error     // of the last try
	wake    chan struct{}
}

// There reports whether a controller is there at a time of the API server's clock, by the annotations of the heartbeat's object. This is
// what the policies of deploy/cluster compute of a write; a test in pkg/webhook holds the two together.
func There(annotations map[string]string, now time.Time) bool {
	until := annotations[api.ReadyUntilAnnotation]
	return until != "" && now.UTC().Format(time.RFC3339) <= until
}

// New returns a heart that does not beat yet.
func New(client, last kubernetes.Interface, ready func() error, whenAbsent string) *Heart {
	return &Heart{
		Client: client, Last: last, Ready: ready, WhenAbsent: whenAbsent, wake: make(chan struct{}, 1),
		fraction: 1 + rand.N(time.Second-1),
	}
}

// Wake has it look at once whether the process is ready.
func (h *Heart) Wake() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Run beats until the context ends. While the process is not ready it does not; what that leaves is soon out of date. But it sees to
// it that the object is there: policies without their parameter are not asked, and so nobody could find out that they hold.
func (h *Heart) Run(ctx context.Context) {
	h.mu.Lock()
	h.leads = true
	h.mu.Unlock()
	beating := false
	for ctx.Err() == nil {
		wait, before := period, beating
		ready := h.Ready() == nil
		beating = ready && h.note(ctx, h.beat(ctx)) == nil
		switch {
		case !ready:
			if err := h.exist(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Could not make the object of the heartbeat, without which no edit is held")
			}
		case beating && !before && h.Began != nil:
			h.Began()
		case !beating && h.Ready() == nil:
			wait = retry
		}
		select {
		case <-ctx.Done():
		case <-h.wake:
		case <-time.After(wait):
		}
	}
}

// Leads reports whether this process is the one that has to beat.
func (h *Heart) Leads() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leads
}

// Err returns why the heartbeat has failed for so long that edits are not held, or that nobody is there who beats; nil if it has
// not, or is not due, or is another's.
func (h *Heart) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.leads && h.Standby != nil {
		return h.Standby()
	}
	if h.err == nil || time.Since(h.since) < overdue || h.Ready() != nil {
		return nil
	}
	return fmt.Errorf("the heartbeat fails, so edits are not held: %w", h.err)
}

// note remembers what came of a try, and logs where that is another thing than before.
func (h *Heart) note(ctx context.Context, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	failed := h.err != nil
	switch {
	case err == nil && failed:
		klog.FromContext(ctx).Info("The heartbeat is back")
	case err != nil && !failed && ctx.Err() == nil:
		klog.FromContext(ctx).Error(err, "The heartbeat fails")
	}
	if err == nil || h.since.IsZero() {
		h.since = time.Now()
	}
	h.err = err
	return err
}

// exist makes the object if it is missing.
func (h *Heart) exist(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	account, err := h.whose(ctx)
	if err != nil {
		return err
	}
	_, err = h.Client.CoreV1().ServiceAccounts(account.Namespace).Get(ctx, api.HeartbeatName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) { // no other replica writes now
		_, err = h.Client.CoreV1().ServiceAccounts(account.Namespace).Apply(ctx, object(account.Namespace, api.HeartbeatName),
			metav1.ApplyOptions{FieldManager: api.HeartbeatManager, Force: true})
	}
	if err != nil {
		return fmt.Errorf("making ServiceAccount %s/%s: %w", account.Namespace, api.HeartbeatName, err)
	}
	return nil
}

// object is a ServiceAccount as it is applied.
func object(namespace, name string) *applycorev1.ServiceAccountApplyConfiguration {
	o := applycorev1.ServiceAccount(name, namespace)
	if name == api.HeartbeatName {
		o.WithAutomountServiceAccountToken(false)
	}
	return o
}

// beat writes the annotation with another value.
func (h *Heart) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	account, err := h.whose(ctx)
	if err != nil {
		return err
	}
	if !h.clock.set() { // a dry run tells the time
		if err := h.write(ctx, account, time.Now(), metav1.DryRunAll); err != nil {
			return err
		}
	}
	return h.write(ctx, account, h.clock.now().Add(validity))
}

// write writes until when a controller is there, and what else the policies are to know: all of it, also what is empty, since what is
// not applied stays as somebody else has set it. An object that is missing is created.
func (h *Heart) write(ctx context.Context, account types.NamespacedName, until time.Time, dryRun ...string) error {
	value := until.Truncate(time.Second).Add(h.fraction).UTC().Format(time.RFC3339Nano)
	annotations := map[string]string{api.ReadyUntilAnnotation: value, api.WhenAbsentAnnotation: h.WhenAbsent, api.LeftOutAnnotation: ""}
	if h.LeftOut != nil {
		annotations[api.LeftOutAnnotation] = strings.Join(h.LeftOut(), ",")
	}
	if len(dryRun) == 0 {
		h.mu.Lock()
		h.value = value // also if the answer is lost
		h.mu.Unlock()
	}
	var errs []error
	for _, name := range objects(account) {
		written, err := h.Client.CoreV1().ServiceAccounts(account.Namespace).Apply(ctx, object(account.Namespace, name).WithAnnotations(annotations),
			metav1.ApplyOptions{FieldManager: api.HeartbeatManager, Force: true, DryRun: dryRun})
		if err == nil {
			err = h.clock.read(written)
		}
		if err == nil && name == api.HeartbeatName && len(dryRun) == 0 {
			h.tell(ctx, written)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("annotating ServiceAccount %s/%s: %w", account.Namespace, name, err))
		}
	}
	return errors.Join(errs...)
}

// tell says which checks there are, and what the defaults are, where what was written says something else. Another manager owns each:
// the version before applies the heartbeat without it, and its fence would let it take nothing away.
func (h *Heart) tell(ctx context.Context, written *corev1.ServiceAccount) {
	if h.Defaults != "" {
		h.say(ctx, written, "defaults", api.DefaultsAnnotation, h.Defaults, true)
	}
	if h.Checks == nil {
		return
	}
	if names, known := h.Checks(); known {
		all := strings.Join(slices.Sorted(slices.Values(names)), ",")
		h.say(ctx, written, "checks", api.ChecksAnnotation, all, len(all) <= maxChecks)
	}
}

// say has an annotation beside the heartbeat say all, if that fits, and else nothing.
func (h *Heart) say(ctx context.Context, written *corev1.ServiceAccount, what, annotation, all string, fits bool) {
	o := applycorev1.ServiceAccount(written.Name, written.Namespace)
	said, says := written.Annotations[annotation]
	switch {
	case !fits && !says, says && said == all:
		return
	case fits:
		o.WithAnnotations(map[string]string{annotation: all})
	}
	if _, err := h.Client.CoreV1().ServiceAccounts(written.Namespace).Apply(ctx, o, metav1.ApplyOptions{FieldManager: api.HeartbeatManager + "-" + what, Force: true}); err != nil {
		klog.FromContext(ctx).Error(err, "Could not write beside the heartbeat", "what", what)
	}
}

// objects are the names of the ServiceAccounts with the heartbeat: its own, and that of the controller, where the version before
// looks for it.
func objects(account types.NamespacedName) []string { return []string{account.Name, api.HeartbeatName} }

// clock is that of the API server, to the second.
type clock struct{ there, here time.Time }

func (c *clock) set() bool { return !c.there.IsZero() }

func (c *clock) now() time.Time { return c.there.Add(time.Since(c.here)) }

// read sets the clock by what the API server has just written, which is the newest entry of this manager.
func (c *clock) read(written metav1.Object) error {
	var there time.Time
	for _, entry := range written.GetManagedFields() {
		if entry.Manager == api.HeartbeatManager && entry.Time != nil && entry.Time.After(there) {
			there = entry.Time.Time
		}
	}
	if there.IsZero() {
		return errors.New("the API server does not say in managedFields when the heartbeat was written")
	}
	*c = clock{there: there, here: time.Now()}
	return nil
}

// whose returns the ServiceAccount that this process writes as.
func (h *Heart) whose(ctx context.Context) (types.NamespacedName, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.account.Name != "" {
		return h.account, nil
	}
	review, err := h.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return h.account, fmt.Errorf("asking the API server who this is: %w", err)
	}
	user := review.Status.UserInfo.Username
	parts := strings.Split(user, ":")
	if len(parts) != 4 || !strings.HasPrefix(user, "system:serviceaccount:") {
		return h.account, errors.New(user + " is not a ServiceAccount, so there is nobody to beat for")
	}
	h.account = types.NamespacedName{Namespace: parts[2], Name: parts[3]}
	return h.account, nil
}

// HandOver ends a lead that was given back: it waits for the next leader to beat, and [Heart.Stop] does the rest.
func (h *Heart) HandOver(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for since := time.Now(); h.beaten() && !h.relieved(ctx); time.Sleep(time.Second) {
		if waited := time.Since(since); waited >= takeover || waited >= handover && (h.Followed == nil || !h.Followed(ctx)) {
			break
		}
	}
	h.Stop(ctx)
}

// relieved reports whether another process is seen to have beaten since.
func (h *Heart) relieved(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	h.mu.Lock()
	account, value := h.account, h.value
	h.mu.Unlock()
	o, err := h.Last.CoreV1().ServiceAccounts(account.Namespace).Get(ctx, api.HeartbeatName, metav1.GetOptions{})
	return err == nil && o.Annotations[api.ReadyUntilAnnotation] != value
}

// Stop takes the heartbeat away, unless another process has beaten since. Run must have ended, or be unable to write. Where this one
// was not ready at the end, so is none of its version: an upgrade may be under way, the next leader still one that may not beat, and
// what is held until the heartbeat is out of date waits for the one after that.
func (h *Heart) Stop(ctx context.Context) {
	if !h.beaten() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	h.mu.Lock()
	account, value := h.account, h.value
	h.mu.Unlock()
	path := "/metadata/annotations/" + strings.ReplaceAll(api.ReadyUntilAnnotation, "/", "~1")
	patch, err := json.Marshal([]map[string]string{{"op": "test", "path": path, "value": value}, {"op": "remove", "path": path}})
	for _, name := range objects(account) {
		if err == nil {
			_, err = h.Last.CoreV1().ServiceAccounts(account.Namespace).Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: api.HeartbeatManager})
		}
		if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) { // it is not ours any more
			err = nil
		}
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not remove the heartbeat: edits are held until it expires")
	}
}

// beaten reports whether there is a heartbeat of this process to be taken away.
func (h *Heart) beaten() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.value != "" && h.Ready() == nil
}
