package policy_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestAnnotationsAdmission asks the admission policy and Go about the same values: both accept, or both refuse in the same words.
// What was there before is not judged, but when it comes into force.
func TestAnnotationsAdmission(t *testing.T) {
	accepts := accepting(t, "validate-annotations.yaml")
	set := func(annotations map[string]string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Annotations: annotations}}
	}
	kind := appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	bad := map[string]string{api.ResizePolicyAnnotation: "bad", api.ResizeActionAnnotation: "bad", api.DeferredTimeoutAnnotation: "bad", api.NotReadyTimeoutAnnotation: "bad"}
	unread := map[string]string{ // what of these is no slip of the pen comes first
		api.PromoteAnnotation:       "be what `kubectl inplace-rollout promote` writes, the name of a rollout",
		api.AllowCriticalAnnotation: "be true, or false, which means the same as no annotation",
	}
	timeouts := []string{"", "90s", "5m", "1h30m", "1.5h", "+500ms", " 1us\n", "5", "0", "0s", "-5m", "5 m", "1d", "5min", "9999999h"}
	for annotation, values := range map[string][]string{
		api.ResizePolicyAnnotation: {
			"", " ", "cpu=LiveResizeable", "cpu=LiveResizeable, app/memory:decrease=RestartOnly", "cpu=RestartOnly ,memory:increase=RestartOnly\n",
			"cpu=RestartOnly,cpu=RestartOnly", "0-app/cpu=RestartOnly", "a/cpu=RestartOnly, b/cpu=LiveResizeable, cpu:increase=LiveResizeable",
			strings.Repeat("a", 63) + "/cpu=RestartOnly",

			"cpu", "gpu=RestartOnly", "cpu=restartonly", "cpu=Restart", "cpu = RestartOnly", "cpu:up=RestartOnly", "cpu:=RestartOnly", "/cpu=RestartOnly",
			"My_App/cpu=RestartOnly", "a/b/cpu=RestartOnly", "cpu=RestartOnly,", "cpu=RestartOnly;memory=RestartOnly", "cpu=RestartOnly=x", "cpu=RestartOnly\nmemory=RestartOnly",
			strings.Repeat("a", 64) + "/cpu=RestartOnly",
			"app/cpu:increase=RestartOnly, cpu=RestartOnly, app/cpu:increase=LiveResizeable",
		},
		api.ResizeActionAnnotation:    {"", "Restart", "LiveResize", "LiveResizePreferred", " Restart\n", "restart", "ResizePreferred", "Restart,LiveResize"},
		api.DeferredTimeoutAnnotation: timeouts, api.NotReadyTimeoutAnnotation: timeouts, api.CanaryDurationAnnotation: append([]string{"manual"}, timeouts...),
		api.CanaryAnnotation:        {"", "1", " 10%", "100%", "0", "101%", "1.5"},
		api.OnFailureAnnotation:     {"", "Hold", "Revert\n", "hold", "Hold,Revert"},
		api.ChecksAnnotation:        {"", "a", "cpu-throttling , b", "a,", "A", strings.Repeat("a,", 9) + "a", strings.Repeat("a,", 10) + "b"},
		api.PromoteAnnotation:       {"", "revision web-1@2026-11-24T03:00:00Z", "yes", "@"},
		api.AllowCriticalAnnotation: {"", "true", "false", "yes", "True"},
	} {
		for _, value := range values {
			now, mended := map[string]string{annotation: value}, maps.Clone(bad)
			mended[annotation] = value
			_, want := policy.Read(now)
			if must := unread[annotation]; must != "" && !slices.Contains(values[:slices.Index(values, "yes")], value) {
				want = fmt.Errorf("annotation %s: %q must %s", annotation, value, must)
			}
			optedIn := set(now)
			optedIn.Labels = map[string]string{api.EnabledLabel: "true"}
			for what, w := range map[string]write{
				"created": {kind: kind, object: set(now)}, "changed, while others are bad": {kind: kind, old: set(bad), object: set(mended)},
				"opted in with it": {kind: kind, old: set(now), object: optedIn},
			} {
				allowed, said := accepts(t, w)
				if allowed != (want == nil) || want != nil && value != "9999999h" && !strings.Contains(said, strings.ReplaceAll(want.Error(), "\n", " ")) {
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
	accepts := accepting(t, "validate-annotations.yaml")
	set := func(label string, names ...string) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: labelled(label).ObjectMeta}
		s.Annotations = map[string]string{"a": "b", api.HoldAnnotation: "0"}
		for _, name := range names {
			if label, is := strings.CutPrefix(name, "label "); is {
				metav1.SetMetaDataLabel(&s.ObjectMeta, label, "true")
				continue
			}
			s.Annotations[name] = "true"
		}
		return s
	}
	const canry, label = "inplace-rollout.io/canry", "label inplace-rollout.io/enable"
	const why = " is not known for a StatefulSet. Allowed are, after inplace-rollout.io/: the label enabled, and the annotations allow-critical, canary, canary-duration, checks, deferred-timeout, not-"
	for name, tt := range map[string]struct {
		now, old *appsv1.StatefulSet
		refused  string
	}{
		"a new one":                     {set("true", canry), nil, canry},
		"it comes":                      {set("true", canry), set("true"), canry},
		"the label comes":               {set("true", canry), set("none", canry), canry},
		"both come":                     {set("true", canry), set("none"), canry},
		"it was there":                  {set("true", canry), set("true", canry), ""},
		"it goes":                       {set("true"), set("true", canry), ""},
		"it is not opted in":            {set("none", canry), nil, ""},
		"it is opted out, and it comes": {set("false", canry), set("true"), ""},
		"another's":                     {set("true", "notinplace-rollout.io/canry"), set("true"), ""},

		"a label":                              {set("true", label), set("true"), label},
		"a label by which to opt in":           {set("none", label), set("none"), label},
		"a new one with it":                    {set("none", label), nil, label},
		"a label was there":                    {set("none", label), set("none", label), ""},
		"it was, and the label comes":          {set("true", label), set("none", label), ""},
		"an annotation's name as a label":      {set("true", "label "+api.CanaryAnnotation), nil, "label " + api.CanaryAnnotation},
		"an annotation by which to opt in":     {set("none", api.EnabledLabel), set("none"), api.EnabledLabel},
		"it was there, and the label comes":    {set("true", api.EnabledLabel), set("none", api.EnabledLabel), ""},
		"sizes by class of node":               {set("true", api.NodeResourcesAnnotation), set("true"), api.NodeResourcesAnnotation},
		"they were there":                      {set("true", api.NodeResourcesAnnotation), set("true", api.NodeResourcesAnnotation), ""},
		"they come to what is not opted in":    {set("none", api.NodeResourcesAnnotation), set("none"), ""},
		"a label that pods have, and it alike": {set("true", "label "+api.InitialResourcesLabel), nil, ""},
		"a label that its namespace has, too":  {set("none", "label inplace-rollout.io/scrapes"), nil, ""},
	} {
		want := ""
		if tt.refused != "" {
			_, name, is := strings.Cut(tt.refused, "label ")
			want = map[bool]string{true: "label " + name, false: "annotation " + tt.refused}[is] + why
		}
		w := write{kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), object: tt.now, old: orNone(tt.old)}
		if allowed, said := accepts(t, w); allowed != (want == "") || !strings.HasPrefix(said, want) {
			t.Errorf("%s: allowed %t: %s", name, allowed, said)
		}
	}

	// kubectl rollout undo brings what a ReplicaSet has; an edit that somebody writes is their own.
	deployment := func(label, image string, annotations ...string) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: set(label, annotations...).ObjectMeta}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: image}}
		return d
	}
	// A value is judged of what is not opted in, too. Of what is, the hold keeps those of now.
	for annotation, label := range map[string]string{canry: "true", api.ResizeActionAnnotation: "none"} {
		for manager, refused := range map[string]bool{"": false, "kubectl-edit": true} {
			w := write{kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), object: deployment(label, "a", annotation), old: deployment(label, "b"), manager: manager}
			if allowed, said := accepts(t, w); allowed == refused {
				t.Errorf("a Deployment goes back to %s, by %q: allowed %t: %s", annotation, manager, allowed, said)
			}
			if w.object = deployment(label, "b", annotation); manager == "" {
				if allowed, _ := accepts(t, w); allowed {
					t.Errorf("%s alone is allowed", annotation)
				}
			}
		}
	}

	// On other objects than workloads.
	elsewhere := []string{"initial-resources", "initial-resources-room", "initial-resources-estimate", "ready-until", "when-absent", "left-out-namespaces", "defaults"}
	names := must.Get(os.ReadFile("../api/names.go"))(t)
	known := []string{"refused", "release"} // of deploy/cluster, and of a version from before
	for _, found := range regexp.MustCompile(`(Label|Annotation) += "inplace-rollout.io/([a-z-]+)"`).FindAllStringSubmatch(string(names), -1) {
		known = append(known, map[string]string{"Label": "label "}[found[1]]+found[2])
	}
	for _, name := range known {
		written := set("true")
		if label, is := strings.CutPrefix(name, "label "); is {
			written.Labels["inplace-rollout.io/"+label] = "true"
		} else {
			written.Annotations = map[string]string{"inplace-rollout.io/" + name: ""}
		}
		if allowed, said := accepts(t, write{kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), object: written}); allowed == slices.Contains(elsewhere, name) {
			t.Errorf("%s: allowed %t: %s", name, allowed, said)
		}
	}
	if len(known) < 29 {
		t.Errorf("only %d names are known: %v", len(known), known)
	}
}

// TestUnknownChecks: a name of a check that there is not is refused in the write that brings it, as long as it is known which there are.
func TestUnknownChecks(t *testing.T) {
	accepts := accepting(t, "validate-checks.yaml")
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
		w := write{kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), object: tt.now, old: orNone(tt.old), params: tt.there}
		if allowed, said := accepts(t, w); allowed != (tt.want == "") || !strings.Contains(said, tt.want) {
			t.Errorf("%s: allowed %t: %s, want %q", name, allowed, said, tt.want)
		}
	}
}
