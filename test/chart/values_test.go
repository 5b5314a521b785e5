//go:build around

package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// on are the values that a release with all that the chart has switches on, which has the rest of everything besides.
var on = []string{
	"initialResources.enabled", "webhook.certManager.enabled", "releaseOnUninstall.argoCD", "networkPolicy.enabled", "metrics.serviceMonitor.enabled",
	"metrics.prometheusRule.enabled", "metrics.dashboard.enabled",
}

var everything = []string{"--set-json", `hold="webhook",initialResources.prometheusURL="http://prometheus",` + strings.Join(on, "=true,") + "=true"}

// other is for each value of values.yaml another one, as `helm --set-json` has it. By its last part, where the whole name is not there.
var other = map[string]string{
	"repository": `"example.com/it"`, "tag": `"v9"`, "digest": `"sha256:` + strings.Repeat("0a", 32) + `"`, "pullPolicy": `"Always"`, "pullSecrets": `[{"name": "registry"}]`,
	"hold": `"policy"`, "watch": `"namespace"`, "parts": `"cluster"`,
	"commonLabels": `{"team": "a"}`, "podLabels": `{"team": "a"}`, "podAnnotations": `{"team": "a"}`, "annotations": `{"team": "a"}`, "labels": `{"team": "a"}`,
	"priorityClassName": `"high"`, "nodeSelector": `{"pool": "a"}`, "tolerations": `[{"key": "a"}]`, "affinity": `{"nodeAffinity": {}}`, "topologySpreadConstraints": `[{"maxSkew": 2}]`,
	"extraArgs": `["--some-flag"]`, "extraEnv": `[{"name": "A", "value": "b"}]`, "volumes": `[{"name": "a", "emptyDir": {}}]`, "volumeMounts": `[{"name": "a", "mountPath": "/a"}]`,
	"resources": `{"limits": {"memory": "2Gi"}}`, "podSecurityContext": `{"runAsUser": 1000}`, "securityContext": `{"readOnlyRootFilesystem": false}`,
	"name": `"resizer"`, "criticalNamespaces": `["storage"]`, "interval": `"10s"`, "runbooks": `"https://example.com/docs/"`, "apiServers": `["10.0.0.2/32"]`, "prometheusURL": `"http://thanos"`,
	"defaultResourceResizePolicy": `"RestartOnly"`, "deferredTimeout": `"10m"`, "errorTimeout": `"10m"`, "notReadyTimeout": `"1m"`, "checksPrometheus": `"http://thanos"`, "checksHTTPConfig": `"/http.yaml"`, "checkTimeout": `"1m"`, "onUnknownCheck": `"Pass"`, "checks": `{"memory-near-limit": false}`, "whenAbsent": `"Hold"`, "whenRoomUnknown": `"Keep"`, "workers": `3`, "kubeAPIQPS": `3`, "kubeAPIBurst": `3`, "verbosity": `3`,
	"replicas": `3`, "port": `10250`, "activeDeadlineSeconds": `300`, "namespaceSelector": `{"matchLabels": {"team": "a"}}`,
	"defaultRequests": `{"mysql": {"cpu": "250m"}}`, "clientCAFile": `"/clients/ca.crt"`,
	"issuerRef": `{"name": "ours"}`, "duration": `"720h"`, "renewBefore": `"240h"`,
}

// beside has what else must be set, so that a value may be another one.
var beside = map[string]string{
	"watch": `parts="cluster",initialResources.enabled=false`, "leaderElection": "replicas=1", "metrics.service": "metrics.serviceMonitor.enabled=false",
}

// TestEveryValue: each value of values.yaml changes what is installed. Of the components with pods, a value is in the pods of the
// component that has it, and, if it is of all, in those of each. It alone proves that of each value, by a run of Helm for it. That
// has a cluster where the pods of the test matter, which are not there without one.
func TestEveryValue(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join(folder(), "values.yaml")))(t)
	var values, schema map[string]any
	must.Do(t, yaml.Unmarshal(text, &values))
	text = must.Get(os.ReadFile(filepath.Join(folder(), "values.schema.json")))(t)
	must.Do(t, yaml.Unmarshal(text, &schema))
	render := func(hasTest bool, values ...string) []object {
		t.Helper()
		by := template
		if hasTest {
			by = connected
		}
		objects, err := by(t, folder(), "platform", slices.Concat(everything, values)...)
		if err != nil {
			t.Error(err)
		}
		return objects
	}
	tried, everything := 0, map[bool][]object{true: render(true), false: render(false)}
	var try func(path string, value any, schema map[string]any)
	try = func(path string, value any, schema map[string]any) {
		parts, is := value.(map[string]any)
		if properties, described := schema["properties"].(map[string]any); is && described && len(parts) > 0 {
			for key, value := range parts {
				of, _ := properties[key].(map[string]any)
				try(strings.TrimPrefix(path+"."+key, "."), value, of)
			}
			return
		}
		tried++
		last := path[strings.LastIndex(path, ".")+1:]
		to := other[last]
		var before []string
		components := componentsOf(path, last)
		hasTest := strings.HasPrefix(path, "test.") || slices.Contains(components, "test")
		without := everything[hasTest]
		if with := beside[path]; with != "" {
			before = append(before, "--set-json", with)
			without = render(hasTest, before...)
		}
		is, boolean := value.(bool)
		if boolean {
			to = fmt.Sprint(!is && !slices.Contains(on, path))
		}
		if to == "" {
			t.Errorf("which other value may %s have?", path)
			return
		}
		with := render(hasTest, append(before, "--set-json", path+"="+to)...)
		if mustMarshal(t, with) == mustMarshal(t, without) {
			t.Errorf("%s: %s changes nothing", path, to)
		}
		if last == "resources" && path == last {
			return // of the controller, and of what has none of its own
		}
		changed := podsThatDiffer(t, with, without)
		if components != nil && !slices.Equal(changed, components) {
			t.Errorf("%s changes the pods of %v, want %v", path, changed, components)
		}
	}
	try("", values, schema)
	if tried < 80 {
		t.Errorf("%d values were tried", tried)
	}
}

// ofPods are the values that each component has.
var ofPods = []string{
	"priorityClassName", "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "podLabels", "podAnnotations", "extraArgs", "volumes", "volumeMounts", "resources",
}

// componentsOf are those whose pods the value changes; nil where that is another question.
func componentsOf(path, last string) []string {
	all := []string{"controller", "estimator", "release", "test", "webhook"}
	switch {
	case slices.Contains([]string{"extraArgs", "volumes", "volumeMounts", "topologySpreadConstraints"}, path):
		return []string{"controller"}
	case slices.Contains(ofPods, path) || slices.Contains([]string{"commonLabels", "podSecurityContext", "securityContext", "extraEnv", "image.pullPolicy", "image.pullSecrets", "image.tag", "image.digest", "image.repository"}, path):
		return all
	case !slices.Contains(ofPods, last):
		return nil
	}
	section, _, _ := strings.Cut(path, ".")
	return map[string][]string{"controller": {"controller"}, "webhook": {"webhook"}, "initialResources": {"estimator"}, "releaseOnUninstall": {"release"}, "test": {"test"}}[section]
}

// podsThatDiffer are the components whose pods are not the same.
func podsThatDiffer(t *testing.T, a, b []object) []string {
	t.Helper()
	pods := func(objects []object) map[string]string {
		all := map[string]string{}
		for name, pod := range podsOf(objects) {
			all[name] = mustMarshal(t, pod)
		}
		return all
	}
	before, after := pods(a), pods(b)
	var differ []string
	for name := range before {
		if before[name] != after[name] {
			differ = append(differ, name)
		}
	}
	slices.Sort(differ)
	return differ
}

// podsOf are the pods that are made of the objects, by their component.
func podsOf(objects []object) map[string]object {
	pods := map[string]object{}
	for _, o := range objects {
		pod := o
		switch o["kind"] {
		case "Pod":
		case "Deployment", "Job":
			pod = o["spec"].(map[string]any)["template"].(map[string]any)
		default:
			continue
		}
		name, _ := pod.metadata()["labels"].(map[string]any)["app.kubernetes.io/component"].(string)
		pods[name] = pod
	}
	return pods
}

// TestNull: null is as good as nothing.
func TestNull(t *testing.T) {
	want := must.Get(connected(t, folder(), "platform", everything...))(t)
	nothing := []string{"commonLabels", "extraEnv", "image.pullSecrets"}
	for _, component := range []string{"", "webhook.", "initialResources.estimator.", "releaseOnUninstall.", "test."} {
		for _, value := range []string{"podLabels", "podAnnotations", "extraArgs", "volumes", "volumeMounts", "tolerations", "affinity"} {
			nothing = append(nothing, component+value)
		}
	}
	for _, value := range []string{"podLabels", "podAnnotations"} {
		nothing = append(nothing, "controller."+value)
	}
	got := must.Get(connected(t, folder(), "platform", append(slices.Clone(everything), "--set", strings.Join(nothing, "=null,")+"=null")...))(t)
	if mustMarshal(t, got) != mustMarshal(t, want) {
		t.Errorf("null makes a difference: %s", mustMarshal(t, got))
	}
}
