package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Heartbeat is the parameter of the policies that hold: the ServiceAccount in which the controller says that it
// is there. It is watched, so that nobody is asked while a write waits, unless it is out of date.
type Heartbeat struct {
	namespace string // empty where it is that of the workload
	accounts  cache.SharedIndexInformer
	live      kubernetes.Interface
	answers   sync.Map // *answer, by namespace
}

// answer is what the API server has last said of a heartbeat that looked out of date.
type answer struct {
	mu      sync.Mutex
	at      time.Time
	account *corev1.ServiceAccount // nil if it said nothing
}

const (
	// answerTimeout leaves time for the answer to the API server, which waits 5 s.
	answerTimeout = time.Second
	// answerKept is how long an answer counts: while no controller is there, each write would ask.
	answerKept = time.Second
)

// NewHeartbeat returns the heartbeat of the controller that is this user, which may be one in the namespace of each
// request. It is unknown until [Heartbeat.Run] has read it. It is watched by client, and read by live, which must not share
// a connection with that.
func NewHeartbeat(client, live kubernetes.Interface, controller string) (*Heartbeat, error) {
	parts := strings.Split(strings.ReplaceAll(controller, requestNamespace, ""), ":")
	if len(parts) != 4 || parts[0] != "system" || parts[1] != "serviceaccount" || parts[3] == "" {
		return nil, fmt.Errorf("the controller %q is not a ServiceAccount", controller)
	}
	h := &Heartbeat{namespace: parts[2], live: live}
	h.accounts = coreinformers.NewFilteredServiceAccountInformer(client, h.namespace, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, api.HeartbeatName).String()
	})
	return h, nil
}

// requestNamespace stands in the name of a controller for the namespace of the request.
const requestNamespace = `" + request.namespace + "`

// Run follows the heartbeat until the context ends.
func (h *Heartbeat) Run(ctx context.Context) { h.accounts.RunWithContext(ctx) }

// Ready returns an error until the heartbeat is known.
func (h *Heartbeat) Ready() error {
	if !h.accounts.HasSynced() {
		return errors.New("the heartbeat of the controller has not been read yet")
	}
	return nil
}

// invocations has the ServiceAccount as the parameter of a write; there is none where that is missing, as the bindings say. Nil is
// the heartbeat of a controller that is always there.
func (h *Heartbeat) invocations(ctx context.Context, write admission.Attributes) ([]invocation, error) {
	if h == nil {
		return []invocation{{parameter: beating}}, nil
	}
	if err := h.Ready(); err != nil {
		return nil, err
	}
	account, err := corelisters.NewServiceAccountLister(h.accounts.GetIndexer()).ServiceAccounts(cmp.Or(h.namespace, write.GetNamespace())).Get(api.HeartbeatName)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking the heartbeat up: %w", err)
	}
	if outOfDate(account, write.GetObject()) {
		account = cmp.Or(h.ask(ctx, account.Namespace), account)
	}
	return []invocation{{parameter: account}}, nil
}

// ask reads a heartbeat from the API server: a watch at one that has gone without a word stands still until client-go notices,
// after up to 45 s (readIdleTimeoutSeconds and pingTimeoutSeconds in k8s.io/apimachinery/pkg/util/net/http.go). It is nil if it
// cannot be read.
func (h *Heartbeat) ask(ctx context.Context, namespace string) *corev1.ServiceAccount {
	of, _ := h.answers.LoadOrStore(namespace, &answer{})
	a := of.(*answer)
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.at) < answerKept {
		return a.account
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout) // others wait for the answer, too
	defer cancel()
	account, err := h.live.CoreV1().ServiceAccounts(namespace).Get(ctx, api.HeartbeatName, metav1.GetOptions{})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not read the heartbeat, which is out of date as it was last seen", "namespace", namespace)
		account = nil
	}
	a.at, a.account = time.Now(), account
	return account
}

// outOfDate reports whether the heartbeat can be out of date for a write, by the times that hold.yaml looks at.
func outOfDate(account *corev1.ServiceAccount, written runtime.Object) bool {
	until := account.Annotations[api.ReadyUntilAnnotation]
	object, _ := written.(*unstructured.Unstructured)
	if until == "" || object == nil {
		return until == ""
	}
	entries, _, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", "managedFields")
	all, _ := entries.([]any)
	return slices.ContainsFunc(all, func(entry any) bool {
		of, _ := entry.(map[string]any)
		at, _ := of["time"].(string)
		return at > until
	})
}

// beating is the heartbeat of a controller that is there.
var beating = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.ReadyUntilAnnotation: "9999-12-31T23:59:59Z"}}}
