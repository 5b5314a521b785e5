package policy_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestAnnotationsAdmission asks the admission policy and Go about the same values: both accept, or both refuse in the same words.
// What was there before is not judged.
func TestAnnotationsAdmission(t *testing.T) {
	p := readPolicy[admissionv1.ValidatingAdmissionPolicy](t, "validate-annotations.yaml")
	accepts := compile(t, p.Spec.Variables, p.Spec.Validations...)
	set := func(annotations map[string]string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Annotations: annotations}}
	}
	kind := appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	bad := map[string]string{api.ResizePolicyAnnotation: "bad", api.ResizeActionAnnotation: "bad", api.DeferredTimeoutAnnotation: "bad", api.NotReadyTimeoutAnnotation: "bad"}
	timeouts := []string{"", "90s", "5m", "1h30m", "1.5h", "+500ms", " 1us\n", "5", "0", "0s", "-5m", "5 m", "1d", "5min", "9999999h"}
	for annotation, values := range map[string][]string{
		api.ResizePolicyAnnotation: {
			"", " ", "cpu=LiveResizeable", "cpu=LiveResizeable, app/memory:decrease=RestartOnly", "cpu=RestartOnly ,memory:increase=RestartOnly\n",
			"cpu=RestartOnly,cpu=RestartOnly", "0-app/cpu=RestartOnly", "a/cpu=RestartOnly, b/cpu=LiveResizeable, cpu:increase=LiveResizeable",
			strings.Repeat("a", 63) + "/cpu=RestartOnly",

			"cpu", "gpu=RestartOnly", "cpu=restartonly", "cpu=Restart", "cpu = RestartOnly", "cpu:up=RestartOnly", "cpu:=RestartOnly", "/cpu=RestartOnly",
			"My_App/cpu=RestartOnly", "a/b/cpu=RestartOnly", "cpu=RestartOnly,", "cpu=RestartOnly;memory=RestartOnly", "cpu=RestartOnly=x",
			strings.Repeat("a", 64) + "/cpu=RestartOnly",
			"app/cpu:increase=RestartOnly, cpu=RestartOnly, app/cpu:increase=LiveResizeable",
		},
		api.ResizeActionAnnotation:    {"", "Restart", "LiveResize", "LiveResizePreferred", " Restart\n", "restart", "ResizePreferred", "Restart,LiveResize"},
		api.DeferredTimeoutAnnotation: timeouts, api.NotReadyTimeoutAnnotation: timeouts, api.CanaryDurationAnnotation: append([]string{"manual"}, timeouts...),
	} {
		for _, value := range values {
			now, mended := map[string]string{annotation: value}, maps.Clone(bad)
			mended[annotation] = value
			_, want := policy.Read(now)
			for what, w := range map[string]write{
				"created": {kind: kind, object: set(now)}, "changed, while others are bad": {kind: kind, old: set(bad), object: set(mended)},
			} {
				allowed, said := accepts(t, w)
				if allowed != (want == nil) || want != nil && value != "9999999h" && !strings.Contains(said, want.Error()) {
					t.Errorf("%s, %s=%q: the policy says %t, %s, and Go says %v", what, annotation, value, allowed, said, want)
				}
			}
			if allowed, said := accepts(t, write{kind: kind, old: set(now), object: set(now)}); !allowed {
				t.Errorf("%s=%q was there before, and is refused: %s", annotation, value, said)
			}
		}
	}
}

// TestUnknownAnnotations: a slip of the pen is refused where it would have been in force, and nothing that any version has written is.
func TestUnknownAnnotations(t *testing.T) {
	p := readPolicy[admissionv1.ValidatingAdmissionPolicy](t, "validate-annotations.yaml")
	accepts := compile(t, p.Spec.Variables, p.Spec.Validations...)
	set := func(label string, names ...string) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: labelled(label).ObjectMeta}
		s.Annotations = map[string]string{"a": "b", api.HoldAnnotation: "0"}
		for _, name := range names {
			s.Annotations[name] = "true"
		}
		return s
	}
	const canry = "inplace-rollout.io/canry"
	const said = "annotation inplace-rollout.io/canry is not known. Allowed are, after inplace-rollout.io/: allow-critical, canary, canary-duration, checks, deferred-timeout, "
	for name, tt := range map[string]struct {
		now, old *appsv1.StatefulSet
		refused  bool
	}{
		"a new one":                     {set("true", canry), nil, true},
		"it comes":                      {set("true", canry), set("true"), true},
		"the label comes":               {set("true", canry), set("none", canry), true},
		"both come":                     {set("true", canry), set("none"), true},
		"it was there":                  {set("true", canry), set("true", canry), false},
		"it goes":                       {set("true"), set("true", canry), false},
		"it is not opted in":            {set("none", canry), nil, false},
		"it is opted out, and it comes": {set("false", canry), set("true"), false},
		"another's":                     {set("true", "notinplace-rollout.io/canry"), set("true"), false},
	} {
		w := write{kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), object: tt.now}
		if tt.old != nil {
			w.old = tt.old
		}
		if allowed, why := accepts(t, w); allowed == tt.refused || strings.HasPrefix(why, said) != tt.refused {
			t.Errorf("%s: allowed %t: %s", name, allowed, why)
		}
	}

	// kubectl rollout undo brings what a ReplicaSet has; an edit that somebody writes is their own.
	deployment := func(image string, annotations ...string) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: set("true", annotations...).ObjectMeta}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: image}}
		return d
	}
	for manager, refused := range map[string]bool{"": false, "kubectl-edit": true} {
		w := write{kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), object: deployment("a", canry), old: deployment("b"), manager: manager}
		if allowed, why := accepts(t, w); allowed == refused {
			t.Errorf("a Deployment goes back, by %q: allowed %t: %s", manager, allowed, why)
		}
		if w.object = deployment("b", canry); manager == "" {
			if allowed, _ := accepts(t, w); allowed {
				t.Error("an annotation alone is allowed")
			}
		}
	}

	// On other objects than workloads.
	elsewhere := []string{"initial-resources", "initial-resources-room", "initial-resources-estimate", "ready-until", "when-absent", "left-out-namespaces", "defaults"}
	names := must.Get(os.ReadFile("../api/names.go"))(t)
	known := []string{"refused", "release"} // of deploy/cluster, and of a version from before
	for _, found := range regexp.MustCompile(`Annotation += "inplace-rollout.io/([a-z-]+)"`).FindAllStringSubmatch(string(names), -1) {
		known = append(known, found[1])
	}
	for _, name := range known {
		written := set("true")
		written.Annotations = map[string]string{"inplace-rollout.io/" + name: ""}
		if allowed, why := accepts(t, write{kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), object: written}); allowed == slices.Contains(elsewhere, name) {
			t.Errorf("%s: allowed %t: %s", name, allowed, why)
		}
	}
	if len(known) < 25 {
		t.Errorf("only %d names are known: %v", len(known), known)
	}
}

// TestUnknownChecks: a name of a check that there is not is refused in the write that brings it, as long as it is known which there are.
func TestUnknownChecks(t *testing.T) {
	p := readPolicy[admissionv1.ValidatingAdmissionPolicy](t, "validate-checks.yaml")
	accepts := compile(t, p.Spec.Variables, p.Spec.Validations...)
	set := func(label, checks string) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: labelled(label).ObjectMeta}
		s.Annotations = map[string]string{api.ChecksAnnotation: checks}
		return s
	}
	heartbeat := func(annotations map[string]string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	}
	some := heartbeat(map[string]string{api.ChecksAnnotation: "errors,latency"})
	for name, tt := range map[string]struct {
		now, old *appsv1.StatefulSet
		there    *corev1.ServiceAccount
		want     string
	}{
		"one of them":                 {set("true", "latency"), nil, some, ""},
		"all":                         {set("true", " latency ,errors"), set("true", ""), some, ""},
		"none":                        {set("true", " "), nil, some, ""},
		"another":                     {set("true", "latncy"), set("true", ""), some, `there is no check "latncy", only errors,latency`},
		"another besides":             {set("true", "errors, lat"), set("true", "errors"), some, `there is no check "lat"`},
		"a part of one":               {set("true", "error"), nil, some, `there is no check "error"`},
		"it was there":                {set("true", "latncy"), set("true", "latncy"), some, ""},
		"the label comes":             {set("true", "latncy"), set("none", "latncy"), some, `there is no check "latncy"`},
		"it is not opted in":          {set("none", "latncy"), nil, some, ""},
		"there is no check":           {set("true", "latency"), nil, heartbeat(map[string]string{api.ChecksAnnotation: ""}), "no check can have a result, because the controller lacks the flag --checks-prometheus"},
		"it is unknown which are":     {set("true", "latency"), nil, heartbeat(map[string]string{api.ReadyUntilAnnotation: "now"}), ""},
		"the heartbeat says nothing":  {set("true", "latency"), nil, heartbeat(nil), ""},
		"opted out, and another name": {set("false", "latncy"), set("true", "latency"), some, ""},
	} {
		w := write{kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), object: tt.now, params: tt.there}
		if tt.old != nil {
			w.old = tt.old
		}
		if allowed, said := accepts(t, w); allowed != (tt.want == "") || !strings.Contains(said, tt.want) {
			t.Errorf("%s: allowed %t: %s, want %q", name, allowed, said, tt.want)
		}
	}
}
