//go:build around

package integration

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// The FlowSchemas of deploy/, which are named like their ServiceAccount.
const (
	flowSchema      = "inplace-rollout"
	flowSchemaLease = "inplace-rollout-leader-election"
)

// flowMetric returns a metric of the API server's priority and fairness, where label has value.
func flowMetric(t *testing.T, name, label, value string) float64 {
	t.Helper()
	text, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, m := range parseMetrics(t, string(text))["apiserver_flowcontrol_"+name].GetMetric() {
		for _, l := range m.Label {
			if l.GetName() == label && l.GetValue() == value {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// user sends requests, and reads in the answers which FlowSchema they were taken for.
type user struct {
	kubernetes.Interface
	mu  sync.Mutex
	uid types.UID
}

func newUser(t *testing.T, config *rest.Config) *user {
	t.Helper()
	u := &user{}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return roundTripper{u, next} })
	var err error
	if u.Interface, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return u
}

type roundTripper struct {
	*user
	next http.RoundTripper
}

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.uid = types.UID(response.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID))
	}
	return response, err
}

// serviceAccount is the controller's own.
func serviceAccount(t *testing.T) *user {
	t.Helper()
	kubeconfig, err := cp.ServiceAccountKubeconfig(t.Context(), controller.Namespace, controller.ServiceAccount, "")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return newUser(t, config)
}

func impersonate(t *testing.T, name string, groups ...string) *user {
	t.Helper()
	config := cp.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: append(groups, "system:authenticated")}
	return newUser(t, config)
}

// assertPrompt checks that a request is answered while others wait, and its FlowSchema.
func (u *user) assertPrompt(t *testing.T, who, schema string, request func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := request(ctx); err != nil {
		t.Errorf("%s: %v", who, err)
		return
	}
	s, err := client.FlowcontrolV1().FlowSchemas().Get(t.Context(), schema, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.uid != s.UID {
		t.Errorf("%s: the request was of FlowSchema %s, want %s %s", who, u.uid, schema, s.UID)
	}
}

// whoAmI is a request that everybody may make.
func (u *user) whoAmI(ctx context.Context) error {
	_, err := u.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// touch asks for a write that changes nothing. It is one that the fence lets through.
func (u *user) touch(ctx context.Context, w *workload) error {
	_, err := u.AppsV1().StatefulSets(w.namespace).Patch(ctx, "web", types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"inplace-rollout.io/hold": null}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// TestFlowSchemas: what the controller asks for is taken for its own, and for nothing else.
func TestFlowSchemas(t *testing.T) {
	dispatched := func(schema string) float64 { return flowMetric(t, "dispatched_requests_total", "flow_schema", schema) }
	ours, lease, others := dispatched(flowSchema), dispatched(flowSchemaLease), dispatched("service-accounts")
	ownController(t, controller.Options{Args: []string{"--leader-elect"}})
	w := newWorkload(t, options{})
	w.waitComplete()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(0)
	if got := dispatched(flowSchema) - ours; got < 10 { // three resizes, three labels, statuses, events, watches
		t.Errorf("%v requests were of FlowSchema %s", got, flowSchema)
	}
	if got := dispatched(flowSchemaLease) - lease; got < 2 { // get and create, or update
		t.Errorf("%v requests were of FlowSchema %s", got, flowSchemaLease)
	}
	if got := dispatched("service-accounts") - others; got != 0 {
		t.Errorf("%v requests were of all ServiceAccounts", got)
	}
}

// TestFlood: so many of the controller's requests are slow that all that it may have at once
// is taken, and more wait. Nobody else does, nor does its Lease. A rollout in another
// namespace does not wait for those that came before. It measures who waits in the API server,
// so nothing runs beside it there. A request waits for 15 s at most, so nothing here pauses.
func TestFlood(t *testing.T) {
	const flood = 200
	flooded, beside := newWorkload(t, options{}), newWorkload(t, options{})
	begun, tickets := make(chan struct{}, flood), make(chan struct{})
	end := sync.OnceFunc(func() { close(tickets) })
	defer end()
	flooded.serve(false, func(r *admissionv1.AdmissionRequest, _ *unstructured.Unstructured) {
		if r.UserInfo.Username == controller.User {
			begun <- struct{}{}
			<-tickets
		}
	})
	ours := serviceAccount(t)
	var flooding sync.WaitGroup
	for range flood {
		flooding.Go(func() {
			if err := ours.touch(t.Context(), flooded); err != nil {
				t.Errorf("one of the flood: %v", err)
			}
		})
	}
	level := func(metric string) float64 { return flowMetric(t, metric, "priority_level", flowSchema) }
	waitQueued := func(more float64) {
		t.Helper()
		eventually(t, "requests to wait", func() (bool, string) {
			executing, waiting, limit := level("current_executing_requests"), level("current_inqueue_requests"), level("nominal_limit_seats")
			return executing > 0 && executing <= limit && executing+waiting == flood+more, fmt.Sprintf("%v of %v executing, %v waiting", executing, limit, waiting)
		})
	}
	waitQueued(0)

	answered := make(chan error, 1)
	go func() { answered <- serviceAccount(t).touch(t.Context(), beside) }()
	waitQueued(1)

	kubelet := impersonate(t, "system:node:node-1", "system:nodes")
	kubelet.assertPrompt(t, "a kubelet", "system-nodes", kubelet.whoAmI)
	builtIn := impersonate(t, "system:serviceaccount:kube-system:statefulset-controller", "system:serviceaccounts", "system:serviceaccounts:kube-system")
	builtIn.assertPrompt(t, "a built-in controller", "kube-system-service-accounts", builtIn.whoAmI)
	other := impersonate(t, "system:serviceaccount:default:default", "system:serviceaccounts", "system:serviceaccounts:default")
	other.assertPrompt(t, "another ServiceAccount", "service-accounts", other.whoAmI)
	elector := serviceAccount(t)
	elector.assertPrompt(t, "our Lease", flowSchemaLease, func(ctx context.Context) error {
		_, err := elector.CoordinationV1().Leases(controller.Namespace).Get(ctx, "inplace-rollout", metav1.GetOptions{})
		if apierrors.IsNotFound(err) { // no test has needed it yet
			return nil
		}
		return err
	})

	limit := int(level("nominal_limit_seats"))
	for range limit {
		<-begun
	}
	turns := 0
	for waits := true; waits; {
		tickets <- struct{}{} // one of the flood ends, and the next request has its place
		select {
		case <-begun:
			turns++
		case err := <-answered:
			if err != nil {
				t.Error(err)
			}
			waits = false
		}
	}
	// Those that were executing count for what they cost only when they end, once each.
	if turns > limit {
		t.Errorf("%d of the %d requests of the flood that waited had their turn before the one of another namespace", turns, flood-limit)
	}
	end()
	flooding.Wait()
}
