package policy_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// TestStrategyOfAHold: a webhook that changes what is in force of a held Deployment's strategy has its write refused.
func TestStrategyOfAHold(t *testing.T) {
	p := readPolicy[admissionv1.ValidatingAdmissionPolicy](t, "guard.yaml")
	accepts := compile(t, p.Spec.Variables, p.Spec.Validations...)
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
	p := readPolicy[admissionv1.ValidatingAdmissionPolicy](t, "guard.yaml")
	accepts := compile(t, p.Spec.Variables, p.Spec.Validations...)
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
