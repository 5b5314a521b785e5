package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Heartbeat is the parameter of the policies that hold: the ServiceAccount in which the controller says that it
// is there. It is watched, so that nobody is asked while a write waits.
type Heartbeat struct {
	namespace string // empty where it is that of the workload
	accounts  cache.SharedIndexInformer
}

// NewHeartbeat returns the heartbeat of the controller that is this user, which may be one in the namespace of each
// request. It is unknown until [Heartbeat.Run] has read it.
func NewHeartbeat(client kubernetes.Interface, controller string) (*Heartbeat, error) {
	parts := strings.Split(strings.ReplaceAll(controller, requestNamespace, ""), ":")
	if len(parts) != 4 || parts[0] != "system" || parts[1] != "serviceaccount" || parts[3] == "" {
		return nil, fmt.Errorf("the controller %q is not a ServiceAccount", controller)
	}
	h := &Heartbeat{namespace: parts[2]}
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

// invocations has the ServiceAccount as the parameter; there is none where that is missing, as the bindings say. Nil is
// the heartbeat of a controller that is always there.
func (h *Heartbeat) invocations(namespace string) ([]invocation, error) {
	if h == nil {
		return []invocation{{parameter: beating}}, nil
	}
	if err := h.Ready(); err != nil {
		return nil, err
	}
	if h.namespace != "" {
		namespace = h.namespace
	}
	account, err := corelisters.NewServiceAccountLister(h.accounts.GetIndexer()).ServiceAccounts(namespace).Get(api.HeartbeatName)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking the heartbeat up: %w", err)
	}
	return []invocation{{parameter: account}}, nil
}

// beating is the heartbeat of a controller that is there.
var beating = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.ReadyUntilAnnotation: "9999-12-31T23:59:59Z"}}}
