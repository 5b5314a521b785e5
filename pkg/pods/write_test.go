package pods_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestRefusal(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	forbidden := func(causes ...metav1.CauseType) error {
		err := apierrors.NewForbidden(resource, "web-0", errors.New("no"))
		for _, cause := range causes {
			err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
		}
		return err
	}
	worded := func(words string) error { return apierrors.NewForbidden(resource, "web-0", errors.New(words)) }
	invalid := func(details ...string) *apierrors.StatusError {
		errs := build.Each(details, func(detail string) *field.Error { return field.Invalid(field.NewPath("spec"), "1", detail) })
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-0", errs)
	}
	const (
		qos   = "Pod QOS Class may not change as a result of resizing"
		limit = "must be less than or equal to cpu limit of 500m"
	)
	denied := invalid() // as a ValidatingAdmissionPolicy does
	denied.ErrStatus.Message = "ValidatingAdmissionPolicy 'cap' denied request: " + qos
	denied.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: denied.ErrStatus.Message}}
	bare := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Message: "no"}}
	const said = `pods "web-0" is forbidden: no`
	tests := []struct {
		name   string
		err    error
		reason string
		kind   string
		final  bool
	}{
		{"another QoS class", invalid(qos), `Pod "web-0" is invalid: spec: Invalid value: "1": ` + qos, "Infeasible", true},
		{"a lower memory limit, of an API server of 1.33", invalid("memory limits cannot be decreased unless resizePolicy is RestartContainer"),
			`Pod "web-0" is invalid: spec: Invalid value: "1": memory limits cannot be decreased unless resizePolicy is RestartContainer`, "Infeasible", true},
		{"a request above the limit, which a new pod has, too", invalid(limit), `Pod "web-0" is invalid: spec: Invalid value: "1": ` + limit, "AdmissionDenied", false},
		{"a rule that nobody knows", invalid("no"), `Pod "web-0" is invalid: spec: Invalid value: "1": no`, "AdmissionDenied", false},
		{"another QoS class, and a rule that nobody knows", invalid(qos, "no"), `Pod "web-0" is invalid: [spec: Invalid value: "1": ` + qos + `, spec: Invalid value: "1": no]`, "AdmissionDenied", false},
		{"a kubelet that does not tell what containers have", invalid("Pod running on node without support for resize"),
			`Pod "web-0" is invalid: spec: Invalid value: "1": Pod running on node without support for resize`, "UnsupportedByNode", false},
		{"a ValidatingAdmissionPolicy", denied, denied.ErrStatus.Message, "AdmissionDenied", false},
		{"invalid without causes", invalid(), `Pod "web-0" is invalid`, "AdmissionDenied", false},
		{"the node is too small", forbidden("NodeCapacity"), said, "Infeasible", true},
		{"the node cannot resize", forbidden("UnsupportedPlatform"), said, "UnsupportedByNode", true},
		{"the node is too small, among other causes", forbidden("Other", "NodeCapacity"), said, "Infeasible", true},
		{"the kubelet is too old", worded("pod update requires features InPlace which are not available on node \"n\""),
			`pods "web-0" is forbidden: pod update requires features InPlace which are not available on node "n"`, "UnsupportedByNode", true},
		{"a quota", worded("exceeded quota: compute"), `pods "web-0" is forbidden: exceeded quota: compute`, "QuotaExceeded", false},
		{"a webhook", forbidden(), said, "AdmissionDenied", false},
		{"another cause", forbidden("Other"), said, "AdmissionDenied", false},
		{"forbidden without details", bare, "no", "AdmissionDenied", false},
		{"a conflict", apierrors.NewConflict(resource, "web-0", errors.New("modified")), `Operation cannot be fulfilled on pods "web-0": modified`, "AdmissionDenied", false},
		{"an internal error", apierrors.NewInternalError(errors.New("etcd")), "Internal error occurred: etcd", "AdmissionDenied", false},
		{"no answer", errors.New("connection refused"), "connection refused", "AdmissionDenied", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := judge.Refusal{Reason: tt.reason, Kind: tt.kind, Final: tt.final}
			must.Equal(t, pods.Refusal(tt.err), want, "the refusal")
			if tt.name == "no answer" {
				return // what wraps it is all that is said
			}
			must.Equal(t, pods.Refusal(fmt.Errorf("resizing pod web-0: %w", tt.err)), want, "wrapped")
		})
	}
}

func TestWrites(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	pod := build.Pod("web-0", older)
	pod.ResourceVersion = "7"
	pod.OwnerReferences = []metav1.OwnerReference{
		{Kind: "ReplicaSet", Name: "web-abc", UID: "uid-of-rs", Controller: ptr.To(true)}, {APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "uid-of-other"},
	}
	const other = `{"apiVersion":"v1","kind":"ConfigMap","name":"other","uid":"uid-of-other"}`
	owner := func(kind string) metav1.OwnerReference {
		return *metav1.NewControllerRef(&metav1.ObjectMeta{Name: "web", UID: "uid-of-web"}, appsv1.SchemeGroupVersion.WithKind(kind))
	}
	target := must.Get(resize.For(pod, older, newer))(t)
	tests := []struct {
		name        string
		write       func(*fake.Clientset) (*corev1.Pod, error)
		subresource string
		kind        types.PatchType
		patch       string
		fails       string
	}{
		{
			name: "a resize is of this very version of the pod",
			write: func(c *fake.Clientset) (*corev1.Pod, error) {
				return pods.Resize(t.Context(), c.CoreV1(), target, api.FieldManager)
			},
			subresource: "resize", kind: types.StrategicMergePatchType,
			patch: `{"metadata":{"resourceVersion":"7","uid":"uid-of-web-0"},"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}`,
			fails: "resizing pod web-0: broken",
		},
		{
			name: "a label is for this version of this pod",
			write: func(c *fake.Clientset) (*corev1.Pod, error) {
				return pods.Relabel(t.Context(), c.CoreV1(), pod, "web-2")
			},
			kind:  types.MergePatchType,
			patch: `{"metadata":{"labels":{"controller-revision-hash":"web-2"},"resourceVersion":"7","uid":"uid-of-web-0"}}`,
			fails: "relabelling pod web-0: broken",
		},
		{
			name: "a pod that is detached goes to its ReplicaSet's owner, which needs no right to that, and keeps another one",
			write: func(c *fake.Clientset) (*corev1.Pod, error) {
				return pods.Detach(t.Context(), c.CoreV1(), pod, owner("Deployment"))
			},
			kind: types.MergePatchType,
			patch: `{"metadata":{"labels":{"inplace-rollout.io/detached-from":"uid-of-rs","pod-template-hash":null},` +
				`"ownerReferences":[` + other + `,{"apiVersion":"apps/v1","controller":true,"kind":"Deployment","name":"web","uid":"uid-of-web"}],` +
				`"resourceVersion":"7","uid":"uid-of-web-0"}}`,
			fails: "giving pod web-0 to Deployment web: broken",
		},
		{
			name: "one that is given back needs none to its ReplicaSet either",
			write: func(c *fake.Clientset) (*corev1.Pod, error) {
				return pods.Reattach(t.Context(), c.CoreV1(), pod, owner("ReplicaSet"), ptr.To("abc"))
			},
			kind: types.MergePatchType,
			patch: `{"metadata":{"labels":{"inplace-rollout.io/detached-from":null,"pod-template-hash":"abc"},` +
				`"ownerReferences":[` + other + `,{"apiVersion":"apps/v1","controller":true,"kind":"ReplicaSet","name":"web","uid":"uid-of-web"}],` +
				`"resourceVersion":"7","uid":"uid-of-web-0"}}`,
			fails: "giving pod web-0 to ReplicaSet web: broken",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := fake.NewClientset(pod)
			must.Get(tt.write(client))(t)
			actions := client.Actions()
			if len(actions) != 1 {
				t.Fatalf("got %d requests, want one", len(actions))
			}
			got, ok := actions[0].(clienttesting.PatchActionImpl)
			if !ok || got.GetName() != "web-0" || got.GetNamespace() != "default" || got.GetSubresource() != tt.subresource || got.GetPatchType() != tt.kind {
				t.Fatalf("got the request %+v", actions[0])
			}
			must.Equal(t, got.PatchOptions.FieldManager, api.FieldManager, "the field manager")
			var compact any
			must.Do(t, json.Unmarshal(got.GetPatch(), &compact))
			must.Equal(t, string(must.Get(json.Marshal(compact))(t)), tt.patch, "the patch")
			client.PrependReactor("patch", "pods", broken)
			_, err := tt.write(client)
			must.Equal(t, must.Said(err), tt.fails, "the error")
		})
	}
}

func TestDelete(t *testing.T) {
	pod := build.Pod("web-0", build.Size(t, ""))
	pod.ResourceVersion = "7"
	client := fake.NewClientset(pod)
	must.Do(t, pods.Delete(t.Context(), client.CoreV1(), pod))
	got, ok := client.Actions()[0].(clienttesting.DeleteActionImpl)
	if !ok || got.Name != "web-0" {
		t.Fatalf("got the request %+v", client.Actions()[0])
	}
	p := got.DeleteOptions.Preconditions
	if p == nil || ptr.Deref(p.UID, "") != pod.UID || ptr.Deref(p.ResourceVersion, "") != "7" {
		t.Errorf("got the preconditions %+v, want this very version of the pod", p)
	}
	client.PrependReactor("delete", "pods", broken)
	must.Equal(t, must.Said(pods.Delete(t.Context(), client.CoreV1(), pod)), "deleting pod web-0: broken", "the error")
}

func broken(clienttesting.Action) (bool, runtime.Object, error) {
	return true, nil, errors.New("broken")
}

// TestEvictionRefusal: a budget says that it was one.
func TestEvictionRefusal(t *testing.T) {
	budget, busy := apierrors.NewTooManyRequests("no", 0), apierrors.NewTooManyRequests("busy", 1)
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause}}
	for err, kind := range map[error]string{
		budget: judge.ReasonDisruptionBudget, apierrors.NewForbidden(schema.GroupResource{}, "web-0", errors.New("no")): judge.ReasonAdmissionDenied,
		busy: "", apierrors.NewServiceUnavailable("busy"): "",
	} {
		if r, refused := pods.EvictionRefusal(err); refused != (kind != "") || refused && r.Kind != kind {
			t.Errorf("%v: %+v, %t, want %s", err, r, refused, kind)
		}
	}
}

// etcdTimeout is what the API server answers when etcd changes its leader in the middle of a write, which may be carried out all the same.
var etcdTimeout = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: "etcdserver: request timed out"}}

// TestRelabelRefusal: of what the API server says to a write of labels, the first line is kept. The others are a change that
// a webhook has made, and can be long.
func TestRelabelRefusal(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	changed := field.ErrorList{field.Forbidden(field.NewPath("spec"), "pod updates may not change fields other than `image`\n  core.PodSpec{\n")}
	for _, tt := range []struct {
		what   string
		err    error
		reason string // empty: it is no refusal
	}{
		{"admission has changed the pod", fmt.Errorf("relabelling: %w", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-0", changed)),
			`Pod "web-0" is invalid: spec: Forbidden: pod updates may not change fields other than ` + "`image`"},
		{"a policy denies it", apierrors.NewForbidden(resource, "web-0", errors.New("no")), `pods "web-0" is forbidden: no`},
		{"the pod has changed", apierrors.NewConflict(resource, "web-0", errors.New("changed")), ""},
		{"the pod is gone", apierrors.NewNotFound(resource, "web-0"), ""},
		{"nobody has answered", errors.New("connection refused"), ""},
		{"the API server is busy", apierrors.NewTooManyRequests("busy", 1), ""},
		{"etcd has changed its leader", etcdTimeout, ""},
		{"a webhook fails", apierrors.NewInternalError(errors.New("no")), "Internal error occurred: no"},
		{"it is written", nil, ""},
	} {
		r, refused := pods.RelabelRefusal(tt.err)
		if r.Reason != tt.reason || refused != (tt.reason != "") || refused && (r.Kind != judge.ReasonAdmissionDenied || r.Final) {
			t.Errorf("%s: %+v, %t", tt.what, r, refused)
		}
	}
}

// Of managedFields, the entries of the resize subresource are kept, and when the kubelet last wrote.
func TestStripManagedFields(t *testing.T) {
	const fields = `{"f:spec":{}}`
	wrote := metav1.NewTime(build.Start)
	pod := build.Pod("web-0", build.Size(t, ""), build.Ours(fields), build.ResizedBy("somebody-else", build.Start, fields), func(pod *corev1.Pod) {
		pod.ManagedFields = append(pod.ManagedFields,
			metav1.ManagedFieldsEntry{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate},
			metav1.ManagedFieldsEntry{Manager: "somebody-else", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{}}}`)},
			metav1.ManagedFieldsEntry{Manager: "kubelet", Subresource: "status", Time: &wrote, FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:containerStatuses":{}}}`)},
			metav1.ManagedFieldsEntry{Manager: api.FieldManager},
		)
	})
	stripped := must.Get(pods.Strip(pod))(t)
	want, last := pod.ManagedFields[:2], len(stripped.ManagedFields)-1
	if kubelet := stripped.ManagedFields[last]; kubelet.Subresource != "status" || !kubelet.Time.Equal(&wrote) || kubelet.FieldsV1 != nil {
		t.Errorf("of the kubelet: kept %+v, want its time and no fields", kubelet)
	}
	if got := stripped.ManagedFields[:last]; !slices.EqualFunc(got, want, func(a, b metav1.ManagedFieldsEntry) bool {
		return a.Manager == b.Manager && a.Subresource == "resize" && string(a.FieldsV1.GetRawBytes()) == fields
	}) {
		t.Errorf("kept %+v, want what was set through the resize subresource", got)
	}
	must.Equal(t, len(pod.ManagedFields), 6, "managed fields of the pod itself: %+v", pod.ManagedFields)
	if _, err := pods.Strip("no pod"); err == nil {
		t.Error("what is no pod is stripped")
	}
}

// Of annotations, those are kept that plans read.
func TestStripAnnotations(t *testing.T) {
	kept := map[string]string{
		"kubernetes.io/limit-ranger": "a", "autoscaling.x-k8s.io/startup-cpu-boost": "b", "vpaCpuStartupBoost/app": "c",
	}
	pod := build.Pod("web-0", build.Size(t, ""), func(pod *corev1.Pod) {
		pod.Annotations = maps.Clone(kept)
		pod.Annotations["example.com/note"] = "d"
	})
	stripped := must.Get(pods.Strip(pod))(t)
	if !maps.Equal(stripped.Annotations, kept) {
		t.Errorf("kept %v, want %v", stripped.Annotations, kept)
	}
}

// Pods are listed page by page; or only the first of them.
func TestList(t *testing.T) {
	client := fake.NewClientset()
	next := map[string]string{"": "1", "1": "2"}
	var asked []string
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, fmt.Sprintf("%d from %q of %q", options.Limit, options.Continue, options.ResourceVersion))
		return true, &corev1.PodList{
			ListMeta: metav1.ListMeta{Continue: next[options.Continue]}, Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web-" + options.Continue}}},
		}, nil
	})
	all, err := pods.List(t.Context(), client.CoreV1(), "default", metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || len(all) != 3 || all[2].Name != "web-2" {
		t.Errorf("listed are %v: %v", all, err)
	}
	first, err := pods.First(t.Context(), client.CoreV1(), 7, metav1.ListOptions{})
	if err != nil || len(first) != 1 {
		t.Errorf("the first are %v: %v", first, err)
	}
	must.EqualLists(t, asked, []string{`500 from "" of "0"`, `500 from "1" of ""`, `500 from "2" of ""`, `7 from "" of ""`}, "what is asked for")
}

// TestNewest: where the API server does not stream the first pods, as this one does not, they are listed as they are now, and not
// as a cache has them.
func TestNewest(t *testing.T) {
	client, asked := fake.NewClientset(), make(chan metav1.ListOptions, 1)
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked <- a.(clienttesting.ListActionImpl).ListOptions
		return false, nil, nil
	})
	go pods.NewInformer(client, "default", "app=web").RunWithContext(t.Context())
	if o := <-asked; o.ResourceVersion != "" || o.LabelSelector != "app=web" {
		t.Errorf("listed is with %v", o)
	}
}
