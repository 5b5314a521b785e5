package prerequisite_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// What clouds add to the namespaceSelector of every webhook.
var (
	aks = []metav1.LabelSelectorRequirement{
		{Key: "control-plane", Operator: metav1.LabelSelectorOpDoesNotExist},
		{Key: "kubernetes.azure.com/managedby", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"aks"}},
	}
	gke = []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "gke-managed-system"}},
	}
)

func namespaces() []runtime.Object {
	var all []runtime.Object
	for name, labels := range map[string]map[string]string{
		"inplace-rollout": nil, "team-a": nil, "kube-system": {"control-plane": "true"}, "gatekeeper-system": {"kubernetes.azure.com/managedby": "aks"},
		"gke-managed-system": nil,
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
		for key, value := range labels {
			ns.Labels[key] = value
		}
		all = append(all, ns)
	}
	return all
}

// rewritten is a cluster where the webhook holds, after somebody has added to the namespaceSelector of every webhook.
func rewritten(t *testing.T, also *metav1.LabelSelector, more ...metav1.LabelSelectorRequirement) []runtime.Object {
	t.Helper()
	return append(byWebhook(t, func(c *admissionv1.MutatingWebhookConfiguration) {
		for i := range c.Webhooks {
			selector := &metav1.LabelSelector{}
			if also != nil {
				selector = also.DeepCopy()
			}
			selector.MatchExpressions = append(selector.MatchExpressions, more...)
			c.Webhooks[i].NamespaceSelector = selector
		}
	}), namespaces()...)
}

// TestLeftOut: a selector that leaves out more namespaces than ours is no reason to hold nowhere, and what it leaves out is known.
func TestLeftOut(t *testing.T) {
	one := func(c *admissionv1.MutatingWebhookConfiguration) {
		c.Webhooks[1].NamespaceSelector = &metav1.LabelSelector{MatchExpressions: gke}
	}
	for about, tt := range map[string]struct {
		objects   []runtime.Object
		namespace string // that the controller looks after
		out       []string
		want      string // error
	}{
		"as it is installed":     {objects: append(byWebhook(t, nil), namespaces()...)},
		"AKS":                    {objects: rewritten(t, nil, aks...), out: []string{"gatekeeper-system", "kube-system"}},
		"GKE":                    {objects: rewritten(t, nil, gke...), out: []string{"gke-managed-system", "kube-system"}},
		"both":                   {objects: rewritten(t, nil, slices.Concat(aks, gke)...), out: []string{"gatekeeper-system", "gke-managed-system", "kube-system"}},
		"by matchLabels":         {objects: rewritten(t, &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "team-a"}}), out: []string{"gatekeeper-system", "gke-managed-system", "inplace-rollout", "kube-system"}},
		"only one of them":       {objects: append(byWebhook(t, one), namespaces()...), want: "have different namespaceSelectors"},
		"another mode, narrowed": {objects: rewritten(t, inLabelled.NamespaceSelector, aks...), want: "for namespaces with the label inplace-rollout.io/installed only"},
		"our label otherwise": {
			objects: rewritten(t, nil, metav1.LabelSelectorRequirement{Key: "inplace-rollout.io/installed", Operator: metav1.LabelSelectorOpDoesNotExist}),
			want:    "they differ in spec.matchResources",
		},
		"a namespace that is left out": {objects: rewritten(t, nil, aks...), namespace: "kube-system", want: "leaves out namespace kube-system"},
		"one that is not":              {objects: rewritten(t, nil, aks...), namespace: "team-a"},
	} {
		t.Run(about, func(t *testing.T) {
			client := older(t, tt.objects)
			var gate *prerequisite.Gate
			cluster := &prerequisite.Cluster{Client: client, Namespace: tt.namespace, DryRun: true}
			synctest.Test(t, func(t *testing.T) {
				gate = prerequisite.NewGate()
				go gate.Watch(t.Context(), cluster, time.Hour, func() {})
				synctest.Wait()
			})
			if tt.want == "" && gate.Err() != nil || tt.want != "" && (gate.Err() == nil || !strings.Contains(gate.Err().Error(), tt.want)) {
				t.Errorf("missing is %v, want %q", gate.Err(), tt.want)
			}
			if got := gate.LeftOut(); tt.want == "" && !slices.Equal(got, tt.out) {
				t.Errorf("left out are %q, want %q", got, tt.out)
			}
			if got, err := cluster.LeftOut(t.Context()); tt.want == "" && (!slices.Equal(got, tt.out) || err != nil) {
				t.Errorf("asked once, left out are %q, want %q: %v", got, tt.out, err)
			}
			for _, o := range namespaces() {
				name := o.(*corev1.Namespace).Name
				still, err := cluster.LeavesOut(t.Context(), name)
				if want := slices.Contains(tt.out, name); tt.want == "" && tt.namespace == "" && (gate.LeavesOut(name) != want || still != want || err != nil) {
					t.Errorf("%s is left out: %t, and %t at a second look (%v), want %t", name, gate.LeavesOut(name), still, err, want)
				}
			}
		})
	}
}

// TestTooManyLeftOut: what has no room in an annotation is said.
func TestTooManyLeftOut(t *testing.T) {
	objects := rewritten(t, nil, metav1.LabelSelectorRequirement{Key: "chosen", Operator: metav1.LabelSelectorOpExists})
	for i := range 5000 {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%05d-%s", i, strings.Repeat("a", 30))}})
	}
	_, err := (&prerequisite.Cluster{Client: older(t, objects), DryRun: true}).Check(t.Context())
	must.Fails(t, "very many", err, "leaves out 5005 namespaces, which are too many")
}

// TestOwnNamespaceLeftOut: where the controller cannot see whether edits are held, it does not believe it; and a change of what is left
// out is taken up, and told.
func TestOwnNamespaceLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiserver{asks: true, there: true, evaluates: prerequisite.Digest}
		client := server.answering(t, older(t, rewritten(t, nil, aks...)))
		gate, opened := prerequisite.NewGate(), 0
		go gate.Watch(t.Context(), &prerequisite.Cluster{Client: client}, 10*time.Second, func() { opened++ })
		synctest.Wait()
		if gate.Ready() != nil || opened != 1 || !gate.LeavesOut("kube-system") || gate.LeavesOut("team-a") {
			t.Fatalf("ready: %v, opened %d times, left out are %q", gate.Ready(), opened, gate.LeftOut())
		}
		label := func(client *fake.Clientset, name, value string) {
			t.Helper()
			ns, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
			if err == nil {
				ns.Labels["kubernetes.azure.com/managedby"] = value
				_, err = client.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{})
			}
			must.Do(t, err)
			time.Sleep(11 * time.Second)
			synctest.Wait()
		}
		label(client, "team-a", "aks")
		if gate.Ready() != nil || opened != 2 || !gate.LeavesOut("team-a") {
			t.Errorf("ready: %v, opened %d times, left out are %q", gate.Ready(), opened, gate.LeftOut())
		}
		label(client, "inplace-rollout", "aks")
		began := server.count()
		const want = "it is unknown whether edits of StatefulSets, Deployments, DaemonSets are held: the namespaceSelector of the webhooks leaves out namespace inplace-rollout, "
		must.Fails(t, "the gate", gate.Err(), want)
		time.Sleep(time.Minute)
		if n := server.count() - began; n > 0 {
			t.Errorf("%d dry runs were made in a namespace that is left out", n)
		}
		label(client, "inplace-rollout", "me")
		if gate.Ready() != nil || gate.LeavesOut("inplace-rollout") {
			t.Errorf("ready: %v, left out are %q", gate.Ready(), gate.LeftOut())
		}
	})
}
