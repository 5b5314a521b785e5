package initialresources

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/initialresources/history"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/golden"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// estimated runs the command with what the containers of estimateUsage have used, in the
// namespace web, and returns what it printed and how it ended.
func estimated(t *testing.T, args string, objects ...runtime.Object) (out, warnings string, err error) {
	t.Helper()
	o := estimateOptions{usage: newUsageOptions(), now: func() time.Time { return build.Start }}
	o.client, o.namespace = fake.NewClientset(objects...), "web"
	o.read = func(_ context.Context, h history.Options) (estimate.Source, error) {
		return build.Usage(build.Those(estimateUsage(t), func(u build.Used) bool {
			return slices.Contains(h.Images, u.Of.Image.AnyVersion()) && (h.Namespaces == nil || slices.Contains(h.Namespaces, u.Of.Namespace))
		})), nil
	}
	cmd := o.command()
	must.Do(t, cmd.ParseFlags(strings.Fields("--prometheus-url=http://127.0.0.1:9090 "+args)))
	must.Do(t, o.validate(cmd.Flags().Args()))
	var stdout, stderr bytes.Buffer
	err = o.run(t.Context(), &stdout, &stderr, cmd.Flags().Args(), nil)
	return stdout.String(), stderr.String(), err
}

func estimateUsage(t *testing.T) build.Usage {
	const mi = 1 << 20
	var usage build.Usage
	used := func(namespace, image string, name corev1.ResourceName, daysAgo int, values ...float64) *build.Used {
		parsed := must.Get(estimate.ParseImage(image))(t)
		usage = append(usage, build.Used{
			Of: estimate.Key{Namespace: namespace, Image: parsed}, Resource: name, At: build.Start.AddDate(0, 0, -daysAgo), Values: values,
		})
		return &usage[len(usage)-1]
	}
	day := slices.Concat(build.Evenly(900, 0.02, 0.05), build.Evenly(500, 0.05, 0.12), build.Evenly(40, 0.3, 0.31))
	used("web", "nginx:1.25", corev1.ResourceCPU, 1, day...)
	used("web", "nginx:1.25", corev1.ResourceMemory, 1, build.Evenly(1440, 20*mi, 31*mi)...)
	used("web", "example.com/shop/migrate:6", corev1.ResourceCPU, 20, 0.7)
	used("web", "envoy", corev1.ResourceCPU, 8, build.Evenly(60, 0.001, 0.002)...)
	used("web", "envoy", corev1.ResourceMemory, 8, build.Evenly(60, 90*mi, 95*mi)...)
	used("web", "registry:5000/shop:1", corev1.ResourceCPU, 2, build.Evenly(600, 0.1, 0.2)...)
	used("web", "registry:5000/shop:1", corev1.ResourceMemory, 2, build.Evenly(600, 300*mi, 512*mi)...).OOMKills = 3
	used("data", "postgres:17", corev1.ResourceCPU, 3, build.Evenly(600, 0.1, 3)...)
	used("data", "postgres:17", corev1.ResourceMemory, 3, build.Evenly(600, 150*mi, 900*mi)...)
	used("data", "nginx:1.25", corev1.ResourceCPU, 3, build.Evenly(60, 0.2, 0.2)...)
	used("data", "nginx:1.25", corev1.ResourceMemory, 3, build.Evenly(60, 50*mi, 50*mi)...)
	return usage
}

func TestEstimate(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("8Gi")}
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "limits"}}
	limits.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("80m")}}}

	unknown := `no estimate for
cpu of NGINX in namespace web: "NGINX" is not the name of an image: invalid reference format: repository name (library/NGINX) must be lowercase
memory of NGINX in namespace web: "NGINX" is not the name of an image: invalid reference format: repository name (library/NGINX) must be lowercase
memory of example.com/shop/migrate:7 in namespace web: no usage of the image is known
--cluster-wide takes what other namespaces have used, too`
	for name, tt := range map[string]struct {
		args     string
		warnings string
		fails    string
	}{
		"estimate.txt":             {"-f testdata/estimate.yaml", "", unknown},
		"estimate-patch.yaml":      {"-f testdata/estimate.yaml --patch", "daemonset/agent: nothing to set\ncronjob/often: nothing to set\npod/alone-: no patch: the object has no name\n", unknown},
		"estimate-images.txt":      {"nginx:1.26 nginx:1.25 postgres:17", "", "no estimate for\ncpu of postgres:17 in namespace web: no usage of the image is known\nmemory of"},
		"estimate-images-wide.txt": {"postgres:17 nginx:1.25 --cluster-wide -o wide", "", ""},
		"estimate.json":            {"example.com/shop/migrate:7 -o json", "", "no estimate for\nmemory of example.com/shop/migrate:7"},
	} {
		t.Run(name, func(t *testing.T) {
			out, warnings, err := estimated(t, tt.args, node, limits)
			golden.Assert(t, name, []byte(out))
			if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.fails)) {
				t.Errorf("it ended with %v, want %q", err, tt.fails)
			}
			must.Equal(t, warnings, tt.warnings, "what it warned of")
		})
	}
}

// TestEstimateIsSet: who gets the estimate. A container without anything always counts as
// one that is to get a request.
func TestEstimateIsSet(t *testing.T) {
	const none, request, limit = "{}", "{requests: {cpu: 1}}", "{limits: {cpu: 2}}"
	for _, tt := range []struct{ annotation, flag, has, ofPod, want string }{
		{"", "", none, "", "106m"},
		{"", "", request, "", "it has a request"},
		{"", "", limit, "", "it has a limit"},
		{"", "", "{limits: {cpu: 50m}}", "", "it has a limit"},
		{"", "", "{requests: {cpu: 0}}", "", "it has a request"},
		{"", "", "{requests: {memory: 1Gi}, limits: {memory: 1Gi}}", "", "106m"},
		{"", "", none, "{requests: {cpu: 1}}", "the pod has resources as a whole"},
		{"if-not-set", "", none, "", "106m"},
		{"if-not-set", "", request, "", "it has a request"},
		{"always", "", none, "", "106m"},
		{"always", "", request, "", "106m"},
		{"always", "", limit, "", "106m"},
		{"always", "", "{limits: {cpu: 50m}}", "", "50m"},
		{"always", "", none, "{requests: {cpu: 1}}", "the pod has resources as a whole"},
		{"never", "", none, "", "the policy is never"},
		{"never", "", request, "", "the policy is never"},
		{"never", "always", request, "", "106m"},
		{"always", "if-not-set", request, "", "it has a request"},
		{"always", "never", request, "", "the policy is never"},
		{"", "always", request, "", "106m"},
	} {
		manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: web, annotations: {inplace-rollout.io/initial-resources: '" + tt.annotation +
			"'}}\nspec: {resources: " + cmp.Or(tt.ofPod, "null") + ", containers: [{name: app, image: 'nginx:1.25', resources: " + tt.has + "}]}\n"
		out, _, err := estimated(t, "-o json --policy="+tt.flag+" -f "+written(t, manifest))
		var list cli.List[estimateReport]
		must.Do(t, errors.Join(err, json.Unmarshal([]byte(out), &list)))
		got := list.Items[0].Containers[0].Resources[0].Reason
		if e := list.Items[0].Containers[0].Resources[0]; e.Set {
			got += e.Estimate.Request.String()
		}
		must.Equal(t, got, tt.want, "annotation %q, --policy=%s, %s, pod %s", tt.annotation, tt.flag, tt.has, tt.ofPod)
	}
	for metadata, want := range map[string]string{"": "0 requests would be set, 2 kept", "labels: {inplace-rollout.io/initial-resources: enabled}": "2 requests would be set"} {
		out, _, err := estimated(t, "-f "+written(t, "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: web}\nspec: {template: {metadata: {"+metadata+
			"}, spec: {containers: [{name: app, image: 'nginx:1.25'}]}}}\n"))
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("a DaemonSet whose template has %q: %v, and\n%s", metadata, err, out)
		}
	}
	if _, _, err := estimated(t, "-f "+written(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web, annotations: {inplace-rollout.io/initial-resources: sometimes}}\n")); err == nil {
		t.Error("a policy that is none is taken")
	}
}

// written is the name of a file with a manifest.
func written(t *testing.T, manifest string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	must.Do(t, os.WriteFile(file, []byte(manifest), 0o600))
	return file
}

// TestEstimatePatch puts the patches into what they are for, as kubectl patch does: the
// requests are there, and nothing else is different.
func TestEstimatePatch(t *testing.T) {
	types := map[string]any{
		"Deployment": appsv1.Deployment{}, "StatefulSet": appsv1.StatefulSet{}, "DaemonSet": appsv1.DaemonSet{}, "ReplicaSet": appsv1.ReplicaSet{},
		"Job": batchv1.Job{}, "CronJob": batchv1.CronJob{}, "Pod": corev1.Pod{},
	}
	if len(types) != len(templates) {
		t.Fatalf("of %d kinds %d are tried", len(templates), len(types))
	}
	const pod = `initContainers: [{name: a, image: "nginx:1.25"}, {name: b, image: "nginx:1.25", restartPolicy: Always, resources: {requests: {cpu: 1m}, limits: {memory: 1Gi}}}],
		containers: [{name: c, image: "nginx:1.25", ports: [{containerPort: 80}]}, {name: d, image: "nginx:1.25", resources: {requests: {cpu: 1m}}}, {name: e, image: "nginx:1.25", resources: {requests: {cpu: 1m, memory: 1Mi}}}]`
	for kind, object := range types {
		t.Run(kind, func(t *testing.T) {
			manifest := `{apiVersion: ` + map[string]string{"Pod": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}[kind]
			if kind != "Pod" && kind != "Job" && kind != "CronJob" {
				manifest += "apps/v1"
			}
			manifest += `, kind: ` + kind + `, metadata: {name: web, namespace: web}, spec: `
			switch kind {
			case "Pod":
				manifest += `{` + pod + `}}`
			case "CronJob":
				manifest += `{jobTemplate: {spec: {template: {spec: {` + pod + `}}}}}}`
			default:
				manifest += `{template: {spec: {` + pod + `}}}}`
			}
			patch, warnings, err := estimated(t, "--patch --policy=if-not-set -o json -f "+written(t, manifest))
			if err != nil || warnings != "" {
				t.Fatal(err, warnings)
			}
			original := must.Get(yaml.YAMLToJSON([]byte(manifest)))(t)
			patched := must.Get(strategicpatch.StrategicMergePatch(original, []byte(patch), object))(t)
			const cpu, memory = `"cpu":"106m"`, `"memory":"30Mi"`
			want := strings.NewReplacer(
				`"name":"a"`, `"name":"a","resources":{"requests":{`+cpu+`,`+memory+`}}`,
				`"name":"c"`, `"name":"c","resources":{"requests":{`+cpu+`,`+memory+`}}`,
				`"name":"d","resources":{"requests":{`, `"name":"d","resources":{"requests":{`+memory+`,`,
			).Replace(string(original))
			var is, wanted any
			must.Do(t, errors.Join(json.Unmarshal(patched, &is), json.Unmarshal([]byte(want), &wanted)))
			if !reflect.DeepEqual(is, wanted) {
				t.Errorf("patched with\n%s\nit is\n%s\nwant\n%s", patch, patched, want)
			}
		})
	}
}

// What cannot be asked is said, and what is estimated all the same.
func TestEstimateWithoutRights(t *testing.T) {
	o := estimateOptions{usage: newUsageOptions(), now: time.Now}
	client := fake.NewClientset()
	build.Answers(client, "list", "nodes", nil, apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("no")))
	o.client, o.namespace = client, "web"
	o.read = func(context.Context, history.Options) (estimate.Source, error) { return estimateUsage(t), nil }
	o.now = func() time.Time { return build.Start }
	for why, noCluster := range map[string]error{
		"nodes are ignored: nodes is forbidden: no":                        nil,
		"LimitRanges and nodes are ignored: no configuration was provided": errors.New("no configuration was provided"),
	} {
		var out, warnings bytes.Buffer
		must.Do(t, o.run(t.Context(), &out, &warnings, []string{"nginx:1.25"}, noCluster))
		must.Contain(t, out.String(), "106m", "what it printed")
		must.Equal(t, warnings.String(), "Warning: "+why+"\n", "what it warned of")
	}
	o.read = func(context.Context, history.Options) (estimate.Source, error) {
		return estimateUsage(t), errors.New("a store is dead")
	}
	var out, warnings bytes.Buffer
	err := o.run(t.Context(), &out, &warnings, []string{"nginx:1.25"}, errors.New("no cluster"))
	if err != nil || !strings.Contains(out.String(), "106m") || !strings.Contains(warnings.String(), "Warning: estimated from a part of the history only: a store is dead\n") {
		t.Errorf("without some of the history: %v, %s, warned %q", err, out.String(), warnings.String())
	}
	o.read = func(context.Context, history.Options) (estimate.Source, error) { return nil, errors.New("no answer") }
	err = o.run(t.Context(), &bytes.Buffer{}, &bytes.Buffer{}, []string{"nginx:1.25"}, nil)
	must.Equal(t, must.Said(err), "reading what containers have used: no answer", "without Prometheus")
}

// TestEstimateDefault: of what nobody has run, that is estimated which a file says.
func TestEstimateDefault(t *testing.T) {
	file := filepath.Join(t.TempDir(), "defaults.yaml")
	must.Do(t, os.WriteFile(file, []byte("valkey/valkey: {cpu: 70m, memory: 90Mi}\nnginx: {cpu: 5, memory: 5Gi}\n"), 0o600))
	for _, format := range []string{"", " -o wide"} {
		out, _, err := estimated(t, "valkey/valkey:9 nginx:1.25 --default-requests="+file+format)
		if err != nil || !strings.Contains(out, "70m") || !strings.Contains(out, "90Mi") || !strings.Contains(out, "default of the image") ||
			!strings.Contains(out, "106m") || strings.Contains(out, "5Gi") {
			t.Errorf("it printed %s, %v", out, err)
		}
	}
}
