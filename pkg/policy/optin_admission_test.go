package policy_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// labelled is a DaemonSet with this value of the label; without it, if the value is "none".
func labelled(value string) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
	if value != "none" {
		d.Labels = map[string]string{api.EnabledLabel: value}
	}
	return d
}

// TestLabelAdmission: a value of the label that means nothing is refused in the write that brings it.
func TestLabelAdmission(t *testing.T) {
	accepts := accepting(t, "validate-opt-in.yaml")
	const isNew = "new"
	for _, before := range []string{isNew, "none", "true", "false", "True", "yes"} {
		for _, now := range []string{"none", "true", "false", "True", "TRUE", "1", "yes", "", "enabled", `a"b`} {
			w := labelled(now)
			var old runtime.Object
			if before != isNew {
				old = labelled(before)
			}
			want := policy.BadLabel(w)
			if before == now {
				want = ""
			}
			allowed, said := accepts(t, write{kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), object: w, old: old})
			if allowed != (want == "") || !strings.Contains(strings.ReplaceAll(said, `a"b`, `a\"b`), want) {
				t.Errorf("from %s to %q: allowed: %t, %q; want %q", before, now, allowed, said, want)
			}
		}
	}
}

// accepting is a policy of deploy/cluster: does it let in a write, and if not, what does it say?
func accepting(t testing.TB, file string) func(t *testing.T, w write) (allowed bool, said string) {
	t.Helper()
	p := readPolicy[admissionv1.ValidatingAdmissionPolicy](t, file)
	return compile(t, p.Spec.Variables, p.Spec.Validations...)
}

// deployed is a Deployment of this namespace, which runs under this ServiceAccount.
func deployed(namespace, account string, optedIn bool) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "any", Namespace: namespace}}
	d.Spec.Template.Spec.ServiceAccountName = account
	if optedIn {
		d.Labels = map[string]string{api.EnabledLabel: "true"}
	}
	return d
}

// TestSelfAdmission: what we run in is not opted in, whatever it is called.
func TestSelfAdmission(t *testing.T) {
	accepts := accepting(t, "validate-opt-in.yaml")
	const ns, account = "inplace-rollout", "inplace-rollout"
	with := func(d *appsv1.Deployment, change func(*appsv1.Deployment)) *appsv1.Deployment {
		change(d)
		return d
	}
	image := func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeName = "edited" }
	for name, tt := range map[string]struct {
		now, old *appsv1.Deployment
		refused  bool
	}{
		"the controller":                    {deployed(ns, account, true), deployed(ns, account, false), true},
		"a new one":                         {deployed(ns, account, true), nil, true},
		"the webhook":                       {deployed(ns, "inplace-rollout-webhook", true), deployed(ns, "inplace-rollout-webhook", false), true},
		"the estimator":                     {deployed(ns, "inplace-rollout-estimator", true), nil, true},
		"it is not opted in":                {deployed(ns, account, false), nil, false},
		"of another ServiceAccount":         {deployed(ns, "default", true), nil, false},
		"of another namespace":              {deployed("default", account, true), nil, false},
		"it becomes ours":                   {deployed(ns, account, true), deployed(ns, "default", true), true},
		"it was opted in before":            {deployed(ns, account, true), deployed(ns, account, true), false},
		"it was, and its template changes":  {with(deployed(ns, account, true), image), deployed(ns, account, true), true},
		"it was, and is opted out":          {deployed(ns, account, false), deployed(ns, account, true), false},
		"opted out, and its template, too":  {with(deployed(ns, account, false), image), deployed(ns, account, true), false},
		"opted out, its template is edited": {with(deployed(ns, account, false), image), deployed(ns, account, false), false},
	} {
		w := write{kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), object: tt.now, old: orNone(tt.old)}
		if allowed, said := accepts(t, w); allowed == tt.refused || strings.Contains(said, "inplace-rollout cannot roll out its own workloads") != tt.refused {
			t.Errorf("%s: allowed: %t, %q", name, allowed, said)
		}
	}
}

// TestCriticalAdmission: what the cluster may need to come up is opted in by two words.
func TestCriticalAdmission(t *testing.T) {
	accepts := accepting(t, "validate-opt-in.yaml")
	daemons := func(namespace, label, allow string) *appsv1.DaemonSet {
		d := labelled(label)
		d.Namespace = namespace
		if allow != "" {
			d.Annotations = map[string]string{api.AllowCriticalAnnotation: allow}
		}
		return d
	}
	const critical = api.CriticalNamespace
	for name, tt := range map[string]struct {
		now, old *appsv1.DaemonSet
		refused  bool
	}{
		"a new one":                           {daemons(critical, "true", ""), nil, true},
		"opted in":                            {daemons(critical, "true", ""), daemons(critical, "none", ""), true},
		"opted in from false":                 {daemons(critical, "true", ""), daemons(critical, "false", ""), true},
		"with another word":                   {daemons(critical, "true", "yes"), daemons(critical, "none", ""), true},
		"confirmed in the same write":         {daemons(critical, "true", "true"), daemons(critical, "none", ""), false},
		"confirmed before":                    {daemons(critical, "true", "true"), daemons(critical, "none", "true"), false},
		"a new one that is confirmed":         {daemons(critical, "true", "true"), nil, false},
		"the confirmation is taken away":      {daemons(critical, "true", ""), daemons(critical, "true", "true"), true},
		"with the label":                      {daemons(critical, "none", ""), daemons(critical, "true", "true"), false},
		"it was opted in before":              {daemons(critical, "true", ""), daemons(critical, "true", ""), false},
		"it is not opted in":                  {daemons(critical, "none", ""), nil, false},
		"another namespace":                   {daemons("default", "true", ""), nil, false},
		"another namespace of that beginning": {daemons("kube-system-2", "true", ""), nil, false},
	} {
		w := write{kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), object: tt.now, old: orNone(tt.old)}
		if allowed, said := accepts(t, w); allowed == tt.refused || strings.Contains(said, `set the annotation inplace-rollout.io/allow-critical: "true"`) != tt.refused {
			t.Errorf("%s: allowed: %t, %q", name, allowed, said)
		}
	}
}

// TestStrategyAdmission: what nothing can hold is not opted in, and what is opted in is not switched to it.
func TestStrategyAdmission(t *testing.T) {
	accepts := accepting(t, "validate-opt-in.yaml")
	set := func(strategy, label string) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: labelled(label).ObjectMeta}
		s.Spec.UpdateStrategy.Type = appsv1.StatefulSetUpdateStrategyType(strategy)
		return s
	}
	for name, tt := range map[string]struct {
		now, old *appsv1.StatefulSet
		refused  bool
	}{
		"a new one":                          {set("Recreate", "true"), nil, true},
		"opted in":                           {set("Recreate", "true"), set("Recreate", "none"), true},
		"switched":                           {set("Recreate", "true"), set("RollingUpdate", "true"), true},
		"switched from OnDelete":             {set("Recreate", "true"), set("OnDelete", "true"), true},
		"one of the future":                  {set("Surge", "true"), nil, true},
		"opted in before this policy":        {set("Recreate", "true"), set("Recreate", "true"), false},
		"opted out":                          {set("Recreate", "false"), set("Recreate", "true"), false},
		"opted out, and switched":            {set("Recreate", "none"), set("RollingUpdate", "true"), false},
		"switched back":                      {set("RollingUpdate", "true"), set("Recreate", "true"), false},
		"opted in, and switched back":        {set("RollingUpdate", "true"), set("Recreate", "none"), false},
		"OnDelete":                           {set("OnDelete", "true"), nil, false},
		"RollingUpdate":                      {set("RollingUpdate", "true"), nil, false},
		"it is not opted in, and may be any": {set("Recreate", "none"), nil, false},
	} {
		w := write{kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), object: tt.now, old: orNone(tt.old)}
		want := "the update strategy " + string(tt.now.Spec.UpdateStrategy.Type) + " must be RollingUpdate or OnDelete"
		if allowed, said := accepts(t, w); allowed == tt.refused || strings.Contains(said, want) != tt.refused {
			t.Errorf("%s: allowed: %t, %q", name, allowed, said)
		}
	}
}
