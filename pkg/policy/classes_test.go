package policy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// readClasses reads the value of the annotation.
func readClasses(value string) (policy.Classes, error) {
	return policy.ReadClasses(map[string]string{api.NodeResourcesAnnotation: value})
}

func TestReadClassesSaysWhatIsWrong(t *testing.T) {
	const form = `must be a JSON list of {"nodeSelector": {LABEL: VALUE, …}, "containers": {NAME: {"requests": {"cpu": …, "memory": …}, "limits": {…}}, …}}`
	app := func(size string) string { return `[{"nodeSelector": {"a": "b"}, "containers": {"app": ` + size + `}}]` }
	nodes := func(selector string) string {
		return `[{"nodeSelector": ` + selector + `, "containers": {"app": {"requests": {"cpu": 1}}}}]`
	}
	for value, want := range map[string]string{
		"": "", " \n": "", "[]": "", app(`{"requests": {"cpu": "100m"}}`): "", app(`{"requests": {"cpu": 0.5}, "limits": {"memory": "1Gi", "cpu": "500m"}}`): "",
		nodes(`{"example.com/pool": "large", "zone": ""}`): "",
		"{}":   form + ": json: cannot unmarshal object into Go value of type []policy.writtenClass",
		"null": form,
		"[":    form + ": unexpected end of JSON input",
		"[] x": form + ": invalid character 'x' after top-level value",
		`[{"nodeSelector": {"a": "b"}, "container": {}, "containers": {}}]`: form + `: unknown field "[0].container"`,
		nodes(`{"a": "b", "a": "c"}`):                                       form + `: duplicate field "[0].nodeSelector.a"`,
		app(`{"requests": {"cpu": "100m", "cpu": 1}}`):                      form + `: duplicate field "[0].containers.app.requests.cpu"`,
		app(`{"Requests": {"cpu": 1}}`):                                     form + `: unknown field "[0].containers.app.Requests"`,
		app(`{"requests": {"cpu": 1}, "claims": []}`):                       form + `: unknown field "[0].containers.app.claims"`,
		app(`{"requests": {"cpu": "much"}}`):                                form + ": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
		"[null]":                                                            "entry 1: nodeSelector must name a label; the size for all other nodes is the template's",
		nodes("{}"):                                                         "entry 1: nodeSelector must name a label; the size for all other nodes is the template's",
		`[{"nodeSelector": {"a": "b"}}]`:                                    "entry 1: containers must name a container",
		nodes(`{"a": null}`):                                                `entry 1: nodeSelector: label "a" has no value`,
		app("null"):                                                         `entry 1: container "app": requests or limits must set cpu or memory`,
		app(`{"limits": {}}`):                                               `entry 1: container "app": requests or limits must set cpu or memory`,
		app(`{"requests": {"cpu": null}}`):                                  `entry 1: container "app": requests: cpu must be more than 0`,
		app(`{"requests": {"cpu": 0}}`):                                     `entry 1: container "app": requests: cpu must be more than 0`,
		app(`{"limits": {"memory": "-1Gi"}}`):                               `entry 1: container "app": limits: memory must be more than 0`,
		app(`{"limits": {"memory": "1.5"}}`):                                `entry 1: container "app": limits: memory 1500m must be a whole number of bytes`,
		app(`{"limits": {"disk": 1}}`):                                      `entry 1: container "app": limits: "disk": only cpu and memory can be resized`,
		app(`{"requests": {"cpu": 2}, "limits": {"cpu": 1}}`):               `entry 1: container "app": the cpu request 2 is more than the limit 1`,
		strings.Replace(app(`{"limits": {"cpu": 1}}`), "app", "App", 1): `entry 1: container "App": this is not a name of a container: a lowercase RFC 1123 label must consist of ` +
			`lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is ` +
			`'[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
	} {
		if want != "" {
			want = "annotation inplace-rollout.io/node-resources: " + want
		}
		_, err := readClasses(value)
		must.Equal(t, must.Said(err), want, "%s: error", value)
	}
	for _, selector := range []string{`{"a b": "c"}`, `{"a": "b c"}`, `{"": "c"}`} {
		_, err := readClasses(nodes(selector))
		must.Fails(t, selector, err, "is not a valid label")
	}
}

func TestFirstClassThatMatchesCounts(t *testing.T) {
	const size = `"containers": {"app": {"requests": {"cpu": 1}}}`
	classes := must.Get(readClasses(`[{"nodeSelector": {"pool": "large", "zone": "a"}, ` + size + `}, {"nodeSelector": {"pool": "large"}, ` + size + `}, {"nodeSelector": {"zone": "a"}, ` + size + `}]`))(t)
	for _, tt := range []struct {
		node map[string]string
		want string
	}{
		{nil, ""}, {map[string]string{"pool": "small"}, ""}, {map[string]string{"pool": "large"}, "pool=large"}, {map[string]string{"pool": "small", "zone": "a"}, "zone=a"},
		{map[string]string{"pool": "large", "zone": "a", "more": ""}, "pool=large,zone=a"},
	} {
		must.Equal(t, classes.Of(tt.node).String(), tt.want, "the class of %v", tt.node)
	}
	if none, err := policy.Classes(nil).Of(nil).Size(build.Size(t, "")); err != nil || none == nil {
		t.Errorf("no class: template %v, error %v", none, err)
	}
}

func TestSizeOfAClass(t *testing.T) {
	template := build.Template(t, `{
		initContainers: [{name: prepare, resources: {limits: {cpu: 1}}}, {name: proxy, restartPolicy: Always, resources: {requests: {cpu: 10m}}}],
		containers: [{name: app, resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 2Gi, example.com/gpu: 1}}}, {name: log}]}`)
	for _, tt := range []struct{ containers, changes, void string }{
		{`{"app": {"requests": {"cpu": "200m"}}}`, "app: cpu request 100m→200m", ""},
		{`{"app": {"limits": {"memory": "3Gi"}}, "proxy": {"requests": {"cpu": "20m"}}}`, "proxy: cpu request 10m→20m, app: memory limit 2Gi→3Gi", ""},
		{`{"prepare": {"requests": {"cpu": "500m"}}}`, "prepare: cpu request none→500m", ""}, // its pods have one, by the limit
		{`{"app": {"limits": {"cpu": 1}}}`, "", "app: the template has no cpu limit. Set it there, too: what only a class sets could not be removed without a restart"},
		{`{"log": {"requests": {"memory": "10Mi"}}}`, "", "log: the template has no memory request. Set it there, too: what only a class sets could not be removed without a restart"},
		{`{"app": {"requests": {"cpu": "100m"}}}`, "", ""},
		{`{"app": {"requests": {"memory": "3Gi"}}}`, "", "app: the memory request 3Gi is more than the limit 2Gi"},
		{`{"app": {"limits": {"cpu": "50m"}}}`, "", "app: the cpu request 100m is more than the limit 50m"},
		{`{"web": {"limits": {"cpu": 1}}, "app": {"requests": {"cpu": 1}}, "db": {"limits": {"cpu": 1}}}`, "", "the template has no container db, web"},
	} {
		classes := must.Get(readClasses(`[{"nodeSelector": {"a": "b"}, "containers": ` + tt.containers + `}]`))(t)
		before := template.DeepCopy()
		sized, err := classes[0].Size(template)
		must.Equal(t, must.Said(err), tt.void, "%s: error", tt.containers)
		if err == nil {
			must.Equal(t, resize.Describe(resize.Between(template, sized)), tt.changes, "%s: changes", tt.containers)
		}
		if !equality.Semantic.DeepEqual(before, template) {
			t.Fatalf("%s: the template itself has changed", tt.containers)
		}
	}
	guaranteed := build.Size(t, "limits: {cpu: 1, memory: 1Gi}")
	for containers, void := range map[string]string{
		`{"app": {"limits": {"cpu": 2}}}`:                           "", // the request follows the limit
		`{"app": {"requests": {"cpu": "500m"}}}`:                    "the QoS class would change from Guaranteed to Burstable",
		`{"app": {"requests": {"cpu": "2"}, "limits": {"cpu": 2}}}`: "",
	} {
		classes := must.Get(readClasses(`[{"nodeSelector": {"a": "b"}, "containers": ` + containers + `}]`))(t)
		_, err := classes[0].Size(guaranteed)
		must.Equal(t, must.Said(err), void, "%s: error", containers)
	}
}

// FuzzReadClasses: what is read as classes gives sizes that a pod of the template may be resized
// to, and changes nothing that it does not name.
func FuzzReadClasses(f *testing.F) {
	for _, value := range []string{
		`[{"nodeSelector": {"a": "b"}, "containers": {"app": {"requests": {"cpu": "200m"}, "limits": {"memory": "3Gi"}}}}]`,
		`[{"nodeSelector": {"a": "b", "c/d": ""}, "containers": {"log": {"requests": {"cpu": 1e-3}}, "app": {"limits": {"cpu": 1}}}}, {"nodeSelector": {"a": "b"}, "containers": {"app": {"requests": {"memory": "999E"}}}}]`,
		`[null]`, `[{"nodeSelector": null, "containers": {"app": null}}]`,
	} {
		f.Add(value)
	}
	template := build.Template(f, `containers: [{name: app, resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 2Gi}}}, {name: log}]`)
	f.Fuzz(func(t *testing.T, value string) {
		classes, err := readClasses(value)
		if err != nil || strings.Contains(value, `\`) { // what is escaped is not found again
			return
		}
		for i := range classes {
			sized, err := classes[i].Size(template)
			if err != nil {
				continue
			}
			if again, err := classes[i].Size(sized); err != nil || !equality.Semantic.DeepEqual(again, sized) {
				t.Errorf("%s: sized once more, it is another one; error %v", value, err)
			}
			for _, c := range resize.Between(template, sized) {
				if !strings.Contains(value, c.Container) || !strings.Contains(value, string(c.Resource)) || c.To == nil || c.To.Sign() <= 0 {
					t.Errorf("%s: makes %s", value, c)
				}
			}
			before, after := qos.ComputePodQOS(&corev1.Pod{Spec: *resize.Defaulted(template)}), qos.ComputePodQOS(&corev1.Pod{Spec: *resize.Defaulted(sized)})
			must.Equal(t, after, before, "%s: the QoS class", value)
		}
	})
}

func TestWithinLimits(t *testing.T) {
	for size, want := range map[string]bool{
		"requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 2Gi}": true, "requests: {cpu: 1}": true, "limits: {cpu: 1}": true, "": true,
		"requests: {cpu: 1, memory: 2Gi}, limits: {cpu: 1, memory: 1Gi}": false,
	} {
		must.Equal(t, policy.WithinLimits(&build.Size(t, size).Spec), want, "%s is within limits", size)
	}
}
