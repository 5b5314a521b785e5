package policy_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// classesPolicy is validate-node-resources.yaml: does it let in a new DaemonSet of this template
// with these classes, and if not, what does it say?
func classesPolicy(t testing.TB, template *corev1.PodTemplateSpec) func(t *testing.T, value string) (allowed bool, said string) {
	t.Helper()
	accepts := accepting(t, "validate-node-resources.yaml")
	return func(t *testing.T, value string) (bool, string) {
		t.Helper()
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Annotations: map[string]string{api.NodeResourcesAnnotation: value}}}
		d.Spec.Template = *template
		return accepts(t, write{kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), object: d})
	}
}

// classesTemplate is what the classes of these tests are about.
func classesTemplate(t testing.TB) *corev1.PodTemplateSpec {
	return build.Template(t, `{
		initContainers: [{name: proxy, restartPolicy: Always, resources: {requests: {cpu: 1m}}}],
		containers: [
			{name: app, resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: 10000, memory: 2Gi}}},
			{name: requests, resources: {limits: {cpu: 10000, memory: 10E}}},
			{name: containers, resources: {limits: {cpu: 10000, memory: 10E}}},
			{name: cpu, resources: {limits: {cpu: 10000, memory: 10E}}}]}`)
}

// TestClassesAdmission: the API server lets in what Go can read, and refuses the rest. Where the two
// differ, this says why.
func TestClassesAdmission(t *testing.T) {
	template := classesTemplate(t)
	accepts := classesPolicy(t, template)
	goAccepts := func(value string) error {
		classes, err := readClasses(value)
		for i := range classes {
			if err == nil {
				_, err = classes[i].Size(template)
			}
		}
		return err
	}
	class := func(selector, containers string) string {
		return `[{"nodeSelector": ` + selector + `, "containers": ` + containers + `}]`
	}
	nodes := func(selector string) string { return class(selector, `{"app": {"requests": {"cpu": 1}}}`) }
	containers := func(containers string) string { return class(`{"pool": "large"}`, containers) }
	size := func(size string) string { return containers(`{"app": ` + size + `}`) }
	cpu := func(quantity string) string { return size(`{"requests": {"cpu": ` + quantity + `}}`) }
	memory := func(quantity string) string { return size(`{"requests": {"memory": ` + quantity + `}}`) }
	const form = "must be a JSON list of"

	for _, value := range []string{
		"[]", " [ ]\n", nodes(`{"pool": "large"}`), nodes(`{"a/b": "", "c": "d.e_f-g"}`), nodes(`{"nodeSelector": "containers", "cpu": "memory"}`), nodes(`{"a" :"cpu","cpu":"a"}`),
		`[{"containers":{"app":{"limits":{"memory":"4Gi","cpu":"1"},"requests":{"memory":"2Gi"}}},"nodeSelector":{"a":"b"}},{"nodeSelector":{"a":"b"},"containers":{"app":{"requests":{"cpu":2}}}}]`,
		"[\t{\r\n\"nodeSelector\" : { \"a\":\"b\" } ,\n\"containers\": { \"app\":{ \"requests\":{ \"cpu\":1 } } } } ]",
		containers(`{"requests": {"requests": {"cpu": 1}}, "app": {"limits": {"cpu": 1}}, "containers": {"limits": {"cpu": 1}}, "cpu": {"requests": {"memory": 1, "cpu": 1}}}`),
		containers(`{"containers": {"requests": {"cpu": 1}, "limits": {"cpu": 1}}}`), containers(`{"proxy": {"requests": {"cpu": "10m"}}}`),
		cpu("1"), cpu("0.5"), cpu("1e-3"), cpu("1E3"), cpu(`"100m"`), cpu(`"1e3"`), cpu(`"+1"`), cpu(`".5"`), cpu(`"1."`), cpu(`" 1 "`), cpu(`"1u"`), cpu(`"0.0001"`),
		memory(`"1.5Gi"`), memory(`"0.5Gi"`), memory("1e9"), memory("1500000000.0"), memory(`"1073741824000m"`), size(`{"limits": {"memory": "5Ei"}}`), size(`{"limits": {"memory": "9E"}}`),
		size(`{"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": 2}}`), size(`{"requests": {"memory": "3Gi"}, "limits": {"memory": "3Gi"}}`),
	} {
		must.Fails(t, value, goAccepts(value), "")
		if allowed, said := accepts(t, value); !allowed {
			t.Errorf("%s: refused: %s", value, said)
		}
	}

	for value, want := range map[string]string{
		"{}": form, "null": form, "[": form, "[]]": form, "[] []": form, "[null]": form, "[{}]": form, "x": form, `"[]"`: form, "\f[]": form, "\u00a0[]": form, "[,]": form,
		class("{}", "{}"): form, nodes("{}"): form, nodes("null"): form, nodes(`{"a": null}`): form, nodes(`{"a": 1}`): form, nodes(`{"a": "b",}`): form, nodes(`{"a": "b" "c": "d"}`): form,
		nodes(`{"a": {"b": "c"}}`): form, containers("{}"): form, containers(`{"app": {}}`): form, containers(`{"app": null}`): form, size(`{"requests": {}}`): form,
		size(`{"requests": {"cpu": null}}`): form, size(`{"requests": {"cpu": 1, "cpu": 1}}`): form, size(`{"requests": {"cpu": 1}, "requests": {"memory": 1}}`): form,
		size(`{"requests": {"cpu": 1}, "claims": []}`): form, size(`{"Requests": {"cpu": 1}}`): form, size(`{"requests": {"nvidia.com/gpu": 1}}`): form,
		size(`{"requests": {"ephemeral-storage": 1}}`): form, cpu("{}"): form, cpu("[1]"): form, cpu("true"): form, cpu("1 2"): form, cpu("- 1"): form, cpu("1\f"): form,
		cpu("\"1\n\""): form, cpu("\"1\x00\""): form, cpu("1,"): form, cpu("'1'"): form,
		`[{"nodeSelector": {"a": "b"}}]`: form, `[{"containers": {"app": {"requests": {"cpu": 1}}}}]`: form,
		`[{"nodeSelector": {"a": "b"}, "containers": {"app": {"requests": {"cpu": 1}}}, "container": "app"}]`:         form,
		`[{"nodeSelector": {"a": "b"}, "nodeSelector": {"a": "b"}, "containers": {"app": {"requests": {"cpu": 1}}}}]`: form,
		`[{"nodeSelector": {"a": "b"}, "containers": {"app": {"requests": {"cpu": 1}}}} {"nodeSelector": {}}]`:        form,
		nodes(`{"a b": "c"}`): `"a b": "c" is not a valid label of a node`, nodes(`{"a": "b c"}`): "is not a valid label", nodes(`{"": "c"}`): "is not a valid label",
		nodes(`{"a": "b", "c/d/e": "f"}`): `"c/d/e": "f" is not a valid label`, nodes(`{"a": "` + strings.Repeat("b", 64) + `"}`): "is not a valid label",
		nodes(`{"a": "b", "a": "c"}`): "a class must name a once",
		containers(`{"app": {"requests": {"cpu": 1}}, "app": {"limits": {"cpu": 1}}}`): "a class must name app once",
		containers(`{"cpu": {"requests": {"cpu": 1}}, "cpu": {"limits": {"cpu": 1}}}`): "a class must name cpu once",
		containers(`{"web": {"requests": {"cpu": 1}}}`):                                "the template has no container web; it has app, requests, containers, cpu, proxy",
		containers(`{"proxy": {"limits": {"cpu": 1}}}`):                                "container proxy: the template has no cpu limit. Set it there, too: what only a class sets",
		containers(`{"proxy": {"requests": {"memory": 1}}}`):                           "container proxy: the template has no memory request",
		containers(`{"App": {"requests": {"cpu": 1}}}`):                                "the template has no container App",
		cpu(`"much"`): `"cpu": "much" must be a quantity such as 100m, and more than 0`,
		cpu(`""`):     `"cpu": "" must be a quantity`,
		cpu("01"):     `"cpu": 01 must be a quantity`,
		cpu(".5"):     `"cpu": .5 must be a quantity`,
		cpu("+1"):     `"cpu": +1 must be a quantity`,
		cpu("1e"):     `"cpu": 1e must be a quantity`,
		cpu(`"1,5"`):  `"cpu": "1,5" must be a quantity`,
		cpu(`"1}"`):   form, cpu(`"{"`): form,
		cpu("0"):         `"cpu": 0 must be a quantity`,
		cpu(`"-1"`):      `"cpu": "-1" must be a quantity`,
		cpu("-1"):        `"cpu": -1 must be a quantity`,
		memory(`"1.5"`):  `"memory": "1.5" must be a quantity such as 128Mi, a whole number of bytes, and more than 0`,
		memory(`"100m"`): `"memory": "100m" must be a quantity such as 128Mi, a whole number of bytes`,
		memory(`"cpu"`):  `"memory": "cpu" must be a quantity`,
		memory(`"3Gi"`):  "container app: the memory request 3Gi must not be more than the limit 2Gi",
		size(`{"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}`):               "container app: the cpu request 2 must not be more than the limit 1500m",
		size(`{"limits": {"cpu": "50m"}}`):                                         "container app: the cpu request 100m must not be more than the limit 50m",
		containers(`{"requests": {"limits": {"cpu": 1}, "requests": {"cpu": 2}}}`): "container requests: the cpu request 2 must not be more than the limit 1",
	} {
		if err := goAccepts(value); err == nil {
			t.Errorf("%s: Go accepts it", value)
		}
		switch allowed, said := accepts(t, value); {
		case allowed:
			t.Errorf("%s: accepted", value)
		case !strings.HasPrefix(said, "annotation inplace-rollout.io/node-resources: ") || !strings.Contains(said, want):
			t.Errorf("%s: refused with %q, want %q", value, said, want)
		}
	}

	// Only Go accepts these. Who writes them can write them otherwise.
	for what, value := range map[string]string{
		"an escape":                        nodes(`{"a": "\u0062"}`),
		"more text than patterns may read": nodes(`{"a": "b"}` + strings.Repeat(" ", 16384)),
		"a request beyond its limit by less than a thousandth, which is rounded away": size(`{"requests": {"cpu": "1.0002"}, "limits": {"cpu": "1.0001"}}`),
	} {
		must.Fails(t, value, goAccepts(value), "")
		if allowed, _ := accepts(t, value); allowed {
			t.Errorf("%s: accepted: %s", what, value)
		}
	}
	// Only the API server accepts these. The controller says what is wrong, in the condition.
	for what, value := range map[string]string{
		"a part of a byte, of more than 8 PiB": size(`{"limits": {"memory": "9007199254740992.5"}}`),
	} {
		if err := goAccepts(value); err == nil {
			t.Errorf("%s: Go accepts %s", what, value)
		}
		if allowed, said := accepts(t, value); !allowed {
			t.Errorf("%s: refused: %s: %s", what, value, said)
		}
	}
	guaranteed := build.Size(t, "limits: {cpu: 1, memory: 1Gi}")
	if allowed, said := classesPolicy(t, guaranteed)(t, cpu(`"500m"`)); !allowed {
		t.Errorf("another QoS class, which depends on all containers of the pods: refused: %s", said)
	}
}

// TestClassesAdmissionOfALongText: what the patterns cost stays within what the API server lets a
// policy cost, up to the longest text.
func TestClassesAdmissionOfALongText(t *testing.T) {
	accepts := classesPolicy(t, classesTemplate(t))
	var classes []string
	for i := 0; len(strings.Join(classes, ",")) < 16000; i++ {
		classes = append(classes, fmt.Sprintf(`{"nodeSelector":{"a":"%d"},"containers":{"app":{"requests":{"cpu":1,"memory":1},"limits":{"cpu":1,"memory":1}}}}`, i))
	}
	if allowed, said := accepts(t, "["+strings.Join(classes, ",")+"]"); !allowed {
		t.Errorf("%d classes are refused: %s", len(classes), said)
	}
	if allowed, said := accepts(t, strings.Repeat("[", 250_000)); allowed || !strings.Contains(said, "at most 16384 characters") {
		t.Errorf("an endless text: %t, %s", allowed, said)
	}
}

// FuzzClassesAdmission: whatever the API server lets in, Go can read, but for a QoS class that would
// change, and parts of a byte beyond 8 PiB.
func FuzzClassesAdmission(f *testing.F) {
	template := classesTemplate(f)
	accepts := classesPolicy(f, template)
	for _, value := range []string{
		`[{"nodeSelector":{"a":"b"},"containers":{"app":{"limits":{"cpu":1,"memory":"2Gi"}}}}]`,
		`[{"containers":{"cpu":{"requests":{"cpu":"1"}}},"nodeSelector":{"cpu":"cpu"}},{"nodeSelector":{"a":""},"containers":{"requests":{"requests":{"memory":1e3}}}}]`,
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if strings.TrimSpace(value) == "" || strings.ToValidUTF8(value, "") != value {
			return
		}
		if allowed, _ := accepts(t, value); !allowed {
			return
		}
		classes, err := readClasses(value)
		if err != nil {
			must.Fails(t, value, err, "whole number of bytes")
			return
		}
		for i := range classes {
			if _, err := classes[i].Size(template); err != nil && !strings.Contains(err.Error(), "QoS class") {
				t.Errorf("%q: %v", value, err)
			}
		}
	})
}
