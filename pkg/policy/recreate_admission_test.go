package policy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// TestStrategyOfAHold: a webhook that changes what is in force of a held Deployment's strategy has its write refused.
func TestStrategyOfAHold(t *testing.T) {
	accepts := accepting(t, "guard.yaml")
	deployment := func(recreates bool, marked, template string) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Generation: 2, ResourceVersion: "7", Annotations: map[string]string{api.HoldAnnotation: "false"}}}
		d.Spec.Paused, d.Spec.Template.Spec.SchedulerName = true, template
		if recreates {
			d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		} else {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromString("25%")), MaxUnavailable: ptr.To(intstr.FromInt32(0))}
		}
		if marked != "" {
			d.Annotations[api.InForceStrategyAnnotation] = marked
		}
		return d
	}
	rolling := deployment(false, "", "")
	for name, tt := range map[string]struct {
		is, was *appsv1.Deployment
		refused bool
	}{
		"it comes":                  {deployment(true, "25%;0", ""), rolling, false},
		"and is lost":               {deployment(true, "", ""), rolling, true},
		"or another one":            {deployment(true, "0;9", ""), rolling, true},
		"it stays":                  {deployment(true, "25%;0", ""), deployment(true, "25%;0", ""), false},
		"it is lost later":          {deployment(true, "", ""), deployment(true, "25%;0", ""), true},
		"the next edit":             {deployment(true, "", "other"), deployment(true, "25%;0", ""), false},
		"the strategy is as it was": {rolling, deployment(true, "25%;0", ""), false},
		"the edit has come with it": {deployment(true, "", ""), deployment(true, "", ""), false},
	} {
		allowed, said := accepts(t, write{kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), object: tt.is, old: tt.was})
		if allowed == tt.refused || tt.refused && !strings.Contains(said, api.InForceStrategyAnnotation) {
			t.Errorf("%s: allowed: %t: %s", name, allowed, said)
		}
	}
}

// TestWebhookKeepsAll: a webhook that is asked last may keep all pods of a held StatefulSet back, if that is recorded as wished.
func TestWebhookKeepsAll(t *testing.T) {
	accepts := accepting(t, "guard.yaml")
	const all = 2147483647
	set := func(hold string, partition int32, template string) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Generation: 2, ResourceVersion: "7"}}
		if hold != "" {
			s.Annotations = map[string]string{api.HoldAnnotation: hold}
		}
		s.Spec.Replicas, s.Spec.Template.Spec.SchedulerName = ptr.To[int32](3), template
		s.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app"}} // a write that changes nothing of them has to be judged, too
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition}}
		return s
	}
	handedOver := func(s *appsv1.StatefulSet) *appsv1.StatefulSet {
		s.Annotations = map[string]string{api.HandedOverAnnotation: "web-2"}
		return s
	}
	for name, tt := range map[string]struct {
		is, was *appsv1.StatefulSet
		allowed bool
	}{
		"the partition is lowered":           {set("", 1, ""), set("", 2, ""), false},
		"what is handed over already":        {set("", 0, ""), handedOver(set("", 2, "")), true},
		"and not an edit":                    {set("", 0, "new"), handedOver(set("", 2, "")), false},
		"as the policy holds":                {set("3", all, "new"), set("", 0, ""), true},
		"all are kept back":                  {set("3", 3, "new"), set("", 0, ""), true},
		"more than there are":                {set("7", 7, "new"), set("", 0, ""), true},
		"in the middle of a hold":            {set("3", 3, ""), set("0", all, ""), true},
		"one is not":                         {set("2", 2, "new"), set("", 0, ""), false},
		"it is not what is wished":           {set("0", 3, "new"), set("", 0, ""), false},
		"nor in the middle of a hold":        {set("0", 3, ""), set("0", all, ""), false},
		"nothing is recorded":                {set("", 3, "new"), set("", 0, ""), false},
		"one is not, without another edit":   {set("2", 2, ""), set("0", all, ""), false},
		"a wish that does not keep all back": {set("2", 3, "new"), set("", 0, ""), false},
	} {
		if allowed, said := accepts(t, write{kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), object: tt.is, old: tt.was}); allowed != tt.allowed {
			t.Errorf("%s: allowed: %t: %s", name, allowed, said)
		}
	}
}

// TestNotHeld: of a write that says of itself that no controller was there, the guard's own parameter must say so, too.
func TestNotHeld(t *testing.T) {
	conditions := readPolicy[admissionv1.ValidatingAdmissionPolicy](t, "guard.yaml").Spec.MatchConditions
	toBeHeld := conditions[slices.IndexFunc(conditions, func(c admissionv1.MatchCondition) bool { return c.Name == "is-to-be-held" })].Expression
	judges := compile(t, nil, admissionv1.Validation{Expression: toBeHeld})
	for said, want := range map[string][2]bool{"": {true, true}, "2": {true, true}, "3": {true, false}} { // while a controller is there, and not
		for i, until := range []string{"2026-11-24T03:00:00Z", "2026-11-24T02:59:59Z"} {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Generation: 2, Annotations: map[string]string{api.ResizeActionAnnotation: "LiveResize", api.NotHeldAnnotation: said}}}
			written := d.DeepCopy()
			written.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)}}}
			heartbeat := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.ReadyUntilAnnotation: until}}}
			if got, _ := judges(t, write{kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), object: written, old: d, params: heartbeat}); got != want[i] {
				t.Errorf("not held %q, there until %s: judged %t", said, until, got)
			}
		}
	}
}

// TestUndone: whatever another policy, which may be asked after ours, undoes of a hold, the edit is refused, or what is left keeps all pods.
func TestUndone(t *testing.T) {
	accepts := accepting(t, "guard.yaml")
	about := func(hold bool) metav1.ObjectMeta {
		o := metav1.ObjectMeta{Name: "web", Namespace: "default", Generation: 2, ResourceVersion: "7"}
		if hold {
			o.Annotations = map[string]string{api.HoldAnnotation: "0"}
		}
		return o
	}
	for kind, made := range map[string]func(hold, keeps bool, template corev1.PodSpec) runtime.Object{
		"StatefulSet": func(hold, keeps bool, template corev1.PodSpec) runtime.Object {
			partition := map[bool]int32{true: 2147483647}[keeps]
			return &appsv1.StatefulSet{ObjectMeta: about(hold), Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3), Template: corev1.PodTemplateSpec{Spec: template}, UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition},
			}}}
		},
		"Deployment": func(hold, keeps bool, template corev1.PodSpec) runtime.Object {
			return &appsv1.Deployment{ObjectMeta: about(hold), Spec: appsv1.DeploymentSpec{Paused: keeps, Template: corev1.PodTemplateSpec{Spec: template}}}
		},
		"DaemonSet": func(hold, keeps bool, template corev1.PodSpec) runtime.Object {
			strategy := map[bool]appsv1.DaemonSetUpdateStrategyType{true: appsv1.OnDeleteDaemonSetStrategyType, false: appsv1.RollingUpdateDaemonSetStrategyType}[keeps]
			return &appsv1.DaemonSet{ObjectMeta: about(hold), Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: template}, UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type: strategy, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(0))},
			}}}
		},
	} {
		for i := range 8 {
			held, hold, keeps := i&1 > 0, i&2 > 0, i&4 > 0 // before the edit, and what is left of both then
			allowed, said := accepts(t, write{kind: appsv1.SchemeGroupVersion.WithKind(kind), object: made(hold, keeps, corev1.PodSpec{SchedulerName: "new"}), old: made(held, held, corev1.PodSpec{})})
			if want := keeps && (hold || !held && kind != "StatefulSet"); allowed != want { // else it looks as if its user had paused it, or wanted OnDelete
				t.Errorf("%s, held before: %t, the hold's annotation is left: %t, and what keeps its pods: %t: allowed %t: %s", kind, held, hold, keeps, allowed, said)
			}
		}
	}
}
