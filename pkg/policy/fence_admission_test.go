package policy_test

import (
	"reflect"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// TestFenceOfStatus: of a workload that is not opted in, our ServiceAccount may take our own conditions away, and nothing else.
func TestFenceOfStatus(t *testing.T) {
	p := readDocument[admissionv1.ValidatingAdmissionPolicy](t, "fence-workloads.yaml", 2)
	accepts := compile(t, p.Spec.Variables, p.Spec.Validations...)
	const label, nothing = "only workloads with the label", "can change only these parts of a status"
	theirs := appsv1.StatefulSetCondition{Type: "Theirs", Status: corev1.ConditionTrue}
	is := func(status corev1.ConditionStatus) appsv1.StatefulSetCondition {
		return appsv1.StatefulSetCondition{Type: api.ConditionComplete, Status: status}
	}
	set := func(value string, replicas int32, conditions ...appsv1.StatefulSetCondition) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: labelled(value).ObjectMeta}
		s.Status.Replicas, s.Status.Conditions = replicas, conditions
		return s
	}
	held := appsv1.StatefulSetCondition{Type: api.ConditionObserved, Status: corev1.ConditionTrue}
	madeFrom := func(hold, current string) *appsv1.StatefulSet { // what lost pods come back as
		s := set("true", 1)
		s.Annotations = map[string]string{api.HoldAnnotation: hold}
		s.Generation, s.Status.ObservedGeneration, s.Status.CurrentRevision, s.Status.UpdateRevision = 2, 2, current, "web-2"
		return s
	}
	recorded := set("true", 1)
	recorded.Annotations = map[string]string{api.RolloutAnnotation: "{}"}
	notHeld := set("true", 1)
	notHeld.Annotations = map[string]string{api.NotHeldAnnotation: "2"}
	for _, tt := range []struct {
		name     string
		old, now *appsv1.StatefulSet
		want     string // of the answer; empty if it is let through
	}{
		{"opted in, another word", set("true", 1, is("True")), set("true", 1, is("False")), ""},
		{"opted in, the record of what is over goes", recorded, set("true", 1, is("True")), ""},
		{"opted in, a record comes", set("true", 1), recorded, nothing},
		{"opted in, the mark of what was not held goes", notHeld, set("true", 1, is("True")), ""},
		{"opted in, such a mark comes", set("true", 1), notHeld, nothing},
		{"opted in, another's condition goes", set("true", 1, theirs), set("true", 1), nothing},
		{"held, lost pods are made of the newest revision", madeFrom("0", "web-1"), madeFrom("0", "web-2"), ""},
		{"held, and of another one", madeFrom("0", "web-1"), madeFrom("0", "web-3"), nothing},
		{"held, and its user keeps pods back", madeFrom("1", "web-1"), madeFrom("1", "web-2"), nothing},
		{"opted out, ours go", set("none", 1, theirs, is("False"), held), set("none", 1, theirs), ""},
		{"opted out by a value, ours go", set("false", 1, is("True")), set("false", 1), ""},
		{"opted out, one of ours stays", set("none", 1, is("False"), held), set("none", 1, held), label},
		{"opted out, another word", set("none", 1, is("False")), set("none", 1, is("True")), label},
		{"opted out, another's condition goes", set("none", 1, theirs, is("False")), set("none", 1), nothing},
		{"opted out, more of the status", set("none", 1, is("False")), set("none", 2), nothing},
		{"opted out, and in by the status", set("none", 1, is("False")), set("true", 1), nothing},
	} {
		allowed, said := accepts(t, write{kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), object: tt.now, old: tt.old, subresource: "status"})
		if allowed != (tt.want == "") || !strings.Contains(said, tt.want) {
			t.Errorf("%s: allowed %t: %s, want %q", tt.name, allowed, said, tt.want)
		}
	}
	// What is no status stays as fenced as it was.
	if allowed, said := accepts(t, write{kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), object: set("none", 1), old: set("none", 1)}); allowed || !strings.Contains(said, label) {
		t.Errorf("a write of a workload that is not opted in: allowed %t: %s", allowed, said)
	}
}

// TestFencesOfOthers: the estimator cannot name further containers as those that it may resize, and the webhook makes no Secret
// that gets another ServiceAccount's token. Nobody's policy takes our annotations away, or the opt-in, in a write of the status.
func TestFencesOfOthers(t *testing.T) {
	const estimator, webhook = "../components/resize-afterwards/resize-afterwards.yaml", "../overlays/webhook/fence-webhook.yaml"
	pod := func(estimate string) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}, {Name: "was"}}}}
		p.Annotations = map[string]string{api.EstimateAnnotation: estimate}
		return p
	}
	const status = "guard.yaml"
	set := func(enabled string, annotations ...string) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: labelled(enabled).ObjectMeta}
		for _, key := range annotations {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, "0")
		}
		return s
	}
	const app, resized, both = `{"app":{"cpu":{"request":"1"}}}`, `{"app":{"cpu":{"request":"2","was":"1"}}}`, `{"app":{},"was":{}}`
	for _, tt := range []struct {
		file        string
		n           int
		old, object runtime.Object
		want        string // as above
	}{
		{estimator, 2, pod(app), pod(resized), ""},
		{estimator, 2, pod(both), pod(app), ""},
		{estimator, 2, pod(app), pod(both), "can add no container"},
		{webhook, 0, nil, &corev1.Secret{Type: corev1.SecretTypeOpaque}, ""},
		{webhook, 0, nil, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken}, "only Secrets of the type Opaque"},
		{status, 2, set("true", api.HoldAnnotation), set("true", api.HoldAnnotation, "example.com/a"), ""},
		{status, 2, set("true", api.HoldAnnotation), set("true"), "changes annotations or the label"},
		{status, 2, set("true"), set("none"), "changes annotations or the label"},
	} {
		p := readDocument[admissionv1.ValidatingAdmissionPolicy](t, tt.file, tt.n)
		kind := corev1.SchemeGroupVersion.WithKind(reflect.TypeOf(tt.object).Elem().Name()) // of these policies none asks for the group
		allowed, said := compile(t, p.Spec.Variables, p.Spec.Validations...)(t, write{kind: kind, object: tt.object, old: tt.old})
		if allowed != (tt.want == "") || !strings.Contains(said, tt.want) {
			t.Errorf("%T of %s: allowed %t: %s, want %q", tt.object, tt.file, allowed, said, tt.want)
		}
	}
}
