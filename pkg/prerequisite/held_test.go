package prerequisite_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

var mutatingPolicies = admissionv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies")

// apiserver plays what becomes of the dry runs.
type apiserver struct {
	mu    sync.Mutex
	asks  bool // the policies that hold
	there bool // the policies see that a controller is there
	waits bool // edits are held where none is
	older bool // the policies do not say what they see
	// undone is the kind whose hold somebody takes away, and refused the one that somebody refuses.
	undone, refused string
	own             string // the only workload that may be patched, if not empty
	evaluates       string // the digest that a webhook says, if one holds
	fails           error  // that the API server answers with, if any
	asked           int
}

func (s *apiserver) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *apiserver) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// answering has the API server answer the dry runs of a client, which is the controller that deploy/ installs.
func (s *apiserver) answering(t *testing.T, client *fake.Clientset) *fake.Clientset {
	react := func(into func(held bool) runtime.Object) clienttesting.ReactionFunc {
		return func(action clienttesting.Action) (bool, runtime.Object, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked++
			patch := action.(clienttesting.PatchActionImpl)
			if patch.Namespace != "inplace-rollout" || patch.Name != api.DryRunName && patch.Name != s.own || len(patch.PatchOptions.DryRun) == 0 {
				t.Errorf("asked with %+v", patch)
			}
			if s.own != "" && patch.Name != s.own {
				return true, nil, apierrors.NewForbidden(appsv1.Resource("any"), patch.Name, errors.New("not yours"))
			}
			sent := &metav1.PartialObjectMetadata{}
			must.Do(t, yaml.Unmarshal(patch.Patch, sent))
			if s.fails != nil {
				return true, nil, s.fails
			}
			if s.refused != "" && s.refused == sent.Kind {
				return true, nil, apierrors.NewForbidden(appsv1.Resource(sent.Kind), patch.Name, errors.New("no images from there"))
			}
			annotations := sent.Annotations
			held := s.asks && (s.there || s.waits || annotations[api.ResizeActionAnnotation] == "LiveResize")
			if s.asks {
				delete(annotations, api.InForceAnnotation)
			}
			if _, is := annotations[api.AttendedAnnotation]; is && s.asks && !s.older {
				annotations[api.AttendedAnnotation] = strconv.FormatBool(s.there)
			}
			if held {
				annotations[api.HoldAnnotation] = "any"
			}
			if s.asks && s.evaluates != "" {
				annotations[api.EvaluatedAnnotation] = s.evaluates
			}
			object := into(held && s.undone != sent.Kind)
			object.(metav1.Object).SetAnnotations(annotations)
			now := metav1.Now()
			object.(metav1.Object).SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: api.FieldManager, Time: &now}})
			return true, object, nil
		}
	}
	client.PrependReactor("patch", "statefulsets", react(func(held bool) runtime.Object {
		set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{UpdateStrategy: appsv1.StatefulSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32)}}}}
		if held {
			*set.Spec.UpdateStrategy.RollingUpdate.Partition = math.MaxInt32
		}
		return set
	}))
	client.PrependReactor("patch", "deployments", react(func(held bool) runtime.Object {
		return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Paused: held}}
	}))
	client.PrependReactor("patch", "daemonsets", react(func(held bool) runtime.Object {
		ds := &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType}}}
		if held {
			ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		}
		return ds
	}))
	return as(client, theOne)
}

// TestHolding names for each kind what keeps its edits from being held.
func TestHolding(t *testing.T) {
	const stale = "kubernetes/kubernetes#130887"
	for about, tt := range map[string]struct {
		server     *apiserver
		way        prerequisite.Way
		until      time.Duration // the heartbeat is good for; 0 for none
		without    bool          // the object that has it
		broken     map[string]string
		unattended map[string]string
	}{
		"they are held": {server: &apiserver{asks: true, there: true}},
		"the policies are not in force": {server: &apiserver{there: true}, until: time.Minute, broken: map[string]string{
			"StatefulSet": "does not apply MutatingAdmissionPolicy inplace-rollout-hold, though it is installed",
			"Deployment":  "does not apply MutatingAdmissionPolicy inplace-rollout-hold, though it is installed",
			"DaemonSet":   stale,
		}},
		"no controller has ever been there": {server: &apiserver{}, without: true, broken: map[string]string{
			"StatefulSet": "ServiceAccount inplace-rollout/inplace-rollout-heartbeat is missing", "Deployment": "The leader creates it", "DaemonSet": "is missing",
		}},
		"the webhook is not asked": {server: &apiserver{there: true}, way: prerequisite.Webhook, broken: map[string]string{
			"StatefulSet": "does not ask webhook inplace-rollout-hold.inplace-rollout.io of MutatingWebhookConfiguration inplace-rollout, though it is installed",
			"Deployment":  "A selector might leave namespace inplace-rollout out", "DaemonSet": "inplace-rollout-hold.inplace-rollout.io",
		}},
		"somebody undoes one": {server: &apiserver{asks: true, there: true, undone: "Deployment"}, broken: map[string]string{
			"Deployment": "another policy or a mutating webhook removes the hold that MutatingAdmissionPolicy inplace-rollout-hold sets",
		}},
		"somebody refuses one": {server: &apiserver{asks: true, there: true, refused: "DaemonSet"}, broken: map[string]string{
			"DaemonSet": "a dry run of one in namespace inplace-rollout fails: DaemonSet.apps \"inplace-rollout-dry-run\" is forbidden: no images from there",
		}},
		"the API server does not trust the webhook": {server: &apiserver{fails: errors.New(`Internal error occurred: failed calling webhook "a": failed to call webhook: ` +
			`Post "https://b.c.svc:443/mutate/inplace-rollout-hold.inplace-rollout.io/0123abcd?timeout=10s": tls: failed to verify certificate: x509: certificate signed by unknown authority`)}, way: prerequisite.Webhook, broken: map[string]string{
			"StatefulSet": "does not trust the certificate of webhook inplace-rollout-hold.inplace-rollout.io",
			"Deployment":  "does not trust the certificate of webhook inplace-rollout-hold", "DaemonSet": "/mutate/inplace-rollout-hold.inplace-rollout.io/…?timeout=10s",
		}},
		"there is no heartbeat": {server: &apiserver{asks: true}, unattended: map[string]string{
			"StatefulSet": "does not say that a controller is there", "Deployment": "does not say", "DaemonSet": "does not say",
		}},
		"the heartbeat is out of date": {server: &apiserver{asks: true}, until: -time.Minute, unattended: map[string]string{
			"StatefulSet": "does not say that a controller is there", "Deployment": "does not say", "DaemonSet": "does not say",
		}},
		"the cache stands still": {server: &apiserver{asks: true}, until: time.Minute, unattended: map[string]string{
			"StatefulSet": "says that a controller is there, but the policies do not see it", "Deployment": stale, "DaemonSet": "restart the API server",
		}},
		"the webhook is of this version": {server: &apiserver{asks: true, there: true, evaluates: prerequisite.Digest}, way: prerequisite.Webhook},
		"the webhook is of another version": {server: &apiserver{asks: true, there: true, evaluates: "0123"}, way: prerequisite.Webhook, broken: map[string]string{
			"StatefulSet": "webhook inplace-rollout-hold.inplace-rollout.io evaluates policies with the digest 0123, and this controller is made for " + prerequisite.Digest,
			"Deployment":  "give the Deployments inplace-rollout and inplace-rollout-webhook the same image", "DaemonSet": "0123",
		}},
		"the webhook is of another version, and nobody is there": {server: &apiserver{asks: true, evaluates: "0123"}, way: prerequisite.Webhook, broken: map[string]string{
			"StatefulSet": "0123", "Deployment": "0123", "DaemonSet": "0123",
		}},
		"the webhook says no version": {server: &apiserver{asks: true, there: true}, way: prerequisite.Webhook, broken: map[string]string{
			"StatefulSet": "evaluates policies without a digest", "Deployment": "policies without a digest", "DaemonSet": "policies without a digest",
		}},
		"the webhook does not see it": {server: &apiserver{asks: true, evaluates: prerequisite.Digest}, way: prerequisite.Webhook, until: time.Minute, unattended: map[string]string{
			"StatefulSet": "the webhook does not see it", "Deployment": "the webhook does not see it", "DaemonSet": "see the log of the webhook",
		}},
	} {
		t.Run(about, func(t *testing.T) {
			server, account := tt.server, beating("inplace-rollout", nil)
			if tt.until != 0 {
				account = beating("inplace-rollout", map[string]string{api.ReadyUntilAnnotation: time.Now().Add(tt.until).UTC().Format(time.RFC3339)})
			}
			client := complete(t)
			must.Do(t, client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), account, account.Namespace))
			if tt.without {
				must.Do(t, client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), account.Namespace, account.Name))
			}
			is := (&prerequisite.Cluster{Client: server.answering(t, client)}).Holding(t.Context(), tt.way)
			for _, kind := range prerequisite.HeldKinds {
				must.Fails(t, kind+", broken", is.Broken[kind], tt.broken[kind])
				must.Fails(t, kind+", unattended", is.Unattended[kind], tt.unattended[kind])
			}
		})
	}
	unknown := complete(t)
	if is := (&prerequisite.Cluster{Client: as(unknown, "admin")}).Holding(t.Context(), prerequisite.Policy); len(is.Broken) != 3 {
		t.Errorf("who is no ServiceAccount hears %v", is)
	}
}

// TestEachAPIServer: an edit may be sent to any of them, so each is asked that answers.
func TestEachAPIServer(t *testing.T) {
	const stale, other = "the API server 192.0.2.2:6443: ", "192.0.2.2:6443"
	for about, tt := range map[string]struct {
		second     *apiserver // nil for one that cannot be reached
		alone      bool       // it is the only one behind the Service
		unreadable bool       // the addresses
		broken     string
		unattended string
		unasked    string
	}{
		"both hold":                           {second: &apiserver{asks: true, there: true}},
		"one sees the heartbeat late":         {second: &apiserver{asks: true}, unattended: stale + "ServiceAccount inplace-rollout/inplace-rollout-heartbeat says that a controller is there"},
		"one does not apply the policies":     {second: &apiserver{there: true}, broken: stale + "the API server does not apply"},
		"one cannot be reached":               {unasked: stale + "no route to host"},
		"one answers, but not about that":     {second: &apiserver{fails: apierrors.NewServiceUnavailable("starting")}, unasked: stale + "a dry run of one in namespace inplace-rollout fails: starting"},
		"there is one, which is asked anyway": {alone: true},
		"the addresses may not be read":       {unreadable: true, unasked: "reading EndpointSlice default/kubernetes, which has the addresses of the API servers: "},
	} {
		t.Run(about, func(t *testing.T) {
			client := (&apiserver{asks: true, there: true}).answering(t, complete(t))
			slice := &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(6443))}},
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}, {Addresses: []string{"192.0.2.2"}}, {Addresses: []string{"192.0.2.3"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}}},
			}
			if tt.alone {
				slice.Endpoints = slice.Endpoints[1:]
			}
			must.Do(t, client.Tracker().Add(slice))
			if tt.unreadable {
				build.Answers(client, "get", "endpointslices", nil, apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "kubernetes", nil))
			}
			is := (&prerequisite.Cluster{Client: client, At: func(address string) (kubernetes.Interface, error) {
				switch {
				case address != other:
					return client, nil
				case tt.second == nil:
					return nil, errors.New("no route to host")
				}
				return tt.second.answering(t, complete(t)), nil
			}}).Holding(t.Context(), prerequisite.Policy)
			for of, pair := range map[string]struct {
				is   error
				want string
			}{"broken": {is.Broken["Deployment"], tt.broken}, "unattended": {is.Unattended["Deployment"], tt.unattended}, "unasked": {is.Unasked, tt.unasked}} {
				if pair.want == "" && pair.is != nil || pair.want != "" && (pair.is == nil || !strings.HasPrefix(pair.is.Error(), pair.want)) {
					t.Errorf("%s: %v, want %q", of, pair.is, pair.want)
				}
			}
		})
	}
}

// TestLooksLikeTheController: policies of others that ask for registries, tags or labels have let in the pod of the controller.
func TestLooksLikeTheController(t *testing.T) {
	server := &apiserver{asks: true, there: true}
	client := server.answering(t, complete(t))
	unread := true
	cluster := &prerequisite.Cluster{Client: client, Pod: func(context.Context) (*corev1.Pod, error) {
		if unread {
			return nil, errors.New("away")
		}
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "inplace-rollout", "cost-center": "7", "pod-template-hash": "5d4b"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "injected", Image: "proxy"}, {Name: "controller", Image: "example.com/inplace-rollout:v1.2.3"}}},
		}, nil
	}}
	for _, want := range []string{"inplace-rollout map[app:inplace-rollout-dry-run inplace-rollout.io/enabled:true]",
		"example.com/inplace-rollout:v1.2.3 map[app:inplace-rollout-dry-run cost-center:7 inplace-rollout.io/enabled:true]"} {
		cluster.Holding(t.Context(), prerequisite.Policy)
		unread = false
		var sent appsv1.Deployment
		for _, action := range client.Actions() {
			if patch, is := action.(clienttesting.PatchAction); is && action.GetResource().Resource == "deployments" {
				sent = appsv1.Deployment{}
				must.Do(t, yaml.Unmarshal(patch.GetPatch(), &sent))
			}
		}
		for _, labels := range []map[string]string{sent.Labels, sent.Spec.Template.Labels} {
			must.Equal(t, fmt.Sprint(sent.Spec.Template.Spec.Containers[0].Image, " ", labels), want, "the dry run")
		}
	}
}

// TestProof: whoever may create workloads, or patch one, finds out of which kinds the edits are held, and whether a controller is there.
func TestProof(t *testing.T) {
	is := func(err error) string {
		switch {
		case err == nil:
			return "held"
		case errors.Is(err, prerequisite.ErrNotAsked):
			return "not asked"
		case prerequisite.IsAbsent(err):
			return err.Error()
		case prerequisite.IsUnseen(err):
			return "unseen"
		}
		return err.Error()
	}
	const held, absent = "held", "no controller is ready: edits are not held"
	for about, tt := range map[string]struct {
		server *apiserver
		own    bool // it may patch only the workloads that there are
		want   map[string]string
	}{
		"they are held":                 {server: &apiserver{asks: true, there: true}, want: map[string]string{"StatefulSet": held, "Deployment": held, "DaemonSet": held}},
		"no controller is there":        {server: &apiserver{asks: true}, want: map[string]string{"StatefulSet": absent, "Deployment": absent, "DaemonSet": absent}},
		"edits wait for one":            {server: &apiserver{asks: true, waits: true}, want: map[string]string{"StatefulSet": "no controller is ready: edits stay held", "DaemonSet": "no controller is ready: edits stay held"}},
		"the policies are not in force": {server: &apiserver{there: true}, want: map[string]string{"StatefulSet": "not asked", "Deployment": "not asked", "DaemonSet": "not asked"}},
		"they do not say what they see": {server: &apiserver{asks: true, there: true, older: true}, want: map[string]string{"StatefulSet": "unseen", "Deployment": "unseen", "DaemonSet": "unseen"}},
		"somebody refuses one":          {server: &apiserver{asks: true, there: true, refused: "DaemonSet"}, want: map[string]string{"StatefulSet": held, "DaemonSet": "unseen"}},
		"somebody undoes one":           {server: &apiserver{asks: true, there: true, undone: "StatefulSet"}, want: map[string]string{"StatefulSet": "another policy or a mutating webhook removes the hold", "DaemonSet": held}},
		"an edit of their own":          {server: &apiserver{asks: true, there: true}, own: true, want: map[string]string{"StatefulSet": "unseen", "Deployment": held, "DaemonSet": "unseen"}},
		"one that nobody holds":         {server: &apiserver{}, own: true, want: map[string]string{"Deployment": "not asked"}},
		"one that nothing is said of":   {server: &apiserver{asks: true, there: true, older: true}, own: true, want: map[string]string{"Deployment": "unseen"}},
		"one that waits for nobody":     {server: &apiserver{asks: true}, own: true, want: map[string]string{"Deployment": absent}},
	} {
		client := tt.server.answering(t, complete(t))
		if tt.own {
			tt.server.own = "shop"
			must.Do(t, client.Tracker().Add(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "inplace-rollout", Name: "shop"}}))
		}
		found := (&prerequisite.Cluster{Client: client}).Proof(t.Context(), "inplace-rollout")
		for kind, want := range tt.want {
			if got := is(found[kind]); !strings.HasPrefix(got, want) {
				t.Errorf("%s, %s: %s, want %s", about, kind, got, want)
			}
		}
	}
}

// TestGateAsks: dry runs are made when something has changed, while edits are not held, and every few minutes.
func TestGateAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiserver{asks: true}
		client := server.answering(t, complete(t))
		gate, opened := prerequisite.NewGate(), 0
		go gate.Watch(t.Context(), &prerequisite.Cluster{Client: client}, 10*time.Second, func() { opened++ })
		is := func(when string, err, ready string, held bool) {
			t.Helper()
			synctest.Wait()
			must.Fails(t, when+", Err", gate.Err(), err)
			must.Fails(t, when+", Ready", gate.Ready(), ready)
			for _, kind := range prerequisite.HeldKinds {
				must.Equal(t, gate.Held(kind), held, "%s: %ss are held", when, kind)
			}
		}
		const unattended = "edits of StatefulSets, Deployments, DaemonSets are not held: "
		const broken = unattended + "the API server does not apply"
		is("at the start", "", unattended, false)
		must.Equal(t, opened, 1, "how often it is opened before a controller is there")

		server.set(func() { server.there = true })
		gate.Wake()
		is("when one has begun to say so", "", "", true)
		began := server.count()
		time.Sleep(20 * time.Minute)
		if n := server.count() - began; n > 3*(1+4) || n < 3*3 {
			t.Errorf("in 20 idle minutes there were %d dry runs", n)
		}

		server.set(func() { server.asks = false })
		time.Sleep(6 * time.Minute)
		is("minutes after the policies have gone out of force", broken, broken, false)
		server.set(func() { server.asks = true })
		time.Sleep(11 * time.Second)
		is("seconds after they have come back", "", "", true)
		must.Equal(t, opened, 2, "how often it is opened")

		server.set(func() { server.asks = false })
		policy := must.Get(client.Tracker().Get(mutatingPolicies, "", hold))(t)
		policy.(metav1.Object).SetResourceVersion("another")
		must.Do(t, client.Tracker().Update(mutatingPolicies, policy, ""))
		time.Sleep(11 * time.Second)
		is("after a change of a policy", broken, broken, false)
		server.set(func() { server.asks = true })
		time.Sleep(11 * time.Second)
		is("when it is in force", "", "", true)

		// The API server applies a change later than it says so.
		policy.(metav1.Object).SetResourceVersion("a third")
		must.Do(t, client.Tracker().Update(mutatingPolicies, policy, ""))
		time.Sleep(11 * time.Second)
		is("after a change that is not applied yet", "", "", true)
		server.set(func() { server.asks = false })
		time.Sleep(11 * time.Second)
		is("when it is applied", broken, broken, false)
	})
}

// TestHeldTwice: between one way to hold and another nothing is touched, and what is held waits, but not for ever.
func TestHeldTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := prerequisite.NewGate()
		if gate.Attends() == nil {
			t.Error("a controller attends before anything is known")
		}
		go gate.Watch(t.Context(), &prerequisite.Cluster{Client: with(t, twice(t))}, 10*time.Second, func() { t.Error("opened") })
		for _, tt := range []struct {
			after   time.Duration
			attends bool
		}{{0, true}, {9 * time.Minute, true}, {2 * time.Minute, false}} {
			time.Sleep(tt.after)
			synctest.Wait()
			if gate.Err() == nil || gate.Ready() == nil || (gate.Attends() == nil) != tt.attends {
				t.Errorf("%v later: Err %v, Ready %v, Attends %v, want it: %t", tt.after, gate.Err(), gate.Ready(), gate.Attends(), tt.attends)
			}
		}
	})
}
