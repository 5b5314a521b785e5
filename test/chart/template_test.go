//go:build around

package chart

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestLint has Helm look at the chart itself.
func TestLint(t *testing.T) {
	_, _, err := helm(t.Context(), t, os.DevNull, "lint", "--strict", folder())
	must.Do(t, err)
}

// TestPackage: the package has what the links of files/ lead to, and gives the same objects.
func TestPackage(t *testing.T) {
	dir := t.TempDir()
	_, _, err := helm(t.Context(), t, os.DevNull, "package", folder(), "--version", "1.2.3", "--app-version", "v1.2.3", "--destination", dir)
	must.Do(t, err)
	packed := filepath.Join(dir, "inplace-rollout-1.2.3.tgz")
	file := must.Get(os.Open(packed))(t)
	defer file.Close()
	unzipped := must.Get(gzip.NewReader(file))(t)
	sizes := map[string]int64{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		must.Equal(t, header.Typeflag, tar.TypeReg, "the type of %s", header.Name)
		sizes[header.Name] = header.Size
	}
	source, err := os.Stat(filepath.Join(controller.Root(), "deploy", "cluster", "hold.yaml"))
	if err != nil || sizes["inplace-rollout/files/cluster/hold.yaml"] != source.Size() {
		t.Errorf("of the policy there are %d bytes of %v: %v", sizes["inplace-rollout/files/cluster/hold.yaml"], source, err)
	}
	fromPackage := must.Get(template(t, packed, "inplace-rollout", "--set", "hold=policy,image.tag=dev"))(t)
	fromFolder := must.Get(template(t, folder(), "inplace-rollout", "--set", "hold=policy"))(t)
	got, want := mustMarshal(t, comparable(fromPackage)), mustMarshal(t, comparable(fromFolder))
	must.Equal(t, got, want, "the package, beside the folder")
	released, err := template(t, packed, "inplace-rollout", "--set", "hold=policy")
	if err != nil || !strings.Contains(mustMarshal(t, released), "image: inplace-rollout:v1.2.3\n") {
		t.Errorf("without a tag, the image is not that of the version: %v %v", released, err)
	}
}

func mustMarshal(t *testing.T, value any) string {
	t.Helper()
	text := must.Get(yaml.Marshal(value))(t)
	return string(text)
}

// TestRefused: values that cannot work are refused before anything is installed, and the message names them.
func TestRefused(t *testing.T) {
	for values, want := range map[string]string{
		"initialResources.estimator.defaultRequests.mysql.disk=1":   "additional properties 'disk' not allowed",
		"initialResources.estimator.defaultRequests.mysql:8.cpu=1":  "invalid propertyName 'mysql:8'",
		"webhook.clientCAFile=ca.crt":                               "at '/webhook/clientCAFile'",
		"replica=3":                                                 "additional properties 'replica' not allowed",
		"image.digest=latest":                                       "at '/image/digest'",
		"image.repository=here/it@sha256:abc":                       "at '/image/repository'",
		"hold=policies":                                             "at '/hold': value must be one of 'auto', 'policy', 'webhook'",
		"watch=namespace":                                           "at '/parts': value must be one of 'cluster', 'controller'",
		"replicas=2,leaderElection=false":                           "at '/replicas': maximum",
		"controller.deferredTimeout=10":                             "at '/controller/deferredTimeout'",
		"controller.workers=0":                                      "at '/controller/workers': minimum",
		"webhook.replicas=0":                                        "at '/webhook/replicas': minimum",
		"webhook.port=8080":                                         "at '/webhook/port'",
		"webhook.failurePolicy=Ignore":                              "additional properties 'failurePolicy' not allowed",
		"webhook.namespaceSelector.team=a":                          "invalid propertyName 'team'",
		"podLabels.app=ours":                                        "at '/podLabels/app'",
		"webhook.podLabels.app=ours":                                "at '/webhook/podLabels/app'",
		"nameOverride=ours":                                         "additional properties 'nameOverride' not allowed",
		"resources.limits.memory=plenty":                            "at '/resources/limits/memory'",
		"serviceAccount.name=Me":                                    "at '/serviceAccount/name'",
		"extraArgs[0]=dry-run":                                      "at '/extraArgs/0'",
		"releaseOnUninstall.enabled=perhaps":                        "at '/releaseOnUninstall/enabled'",
		"metrics.serviceMonitor.enabled=true,metrics.service=false": "at '/metrics/service': value must be true",
	} {
		_, err := template(t, folder(), "inplace-rollout", "--set", values)
		must.Fails(t, "--set "+values, err, want)
	}
	_, err := template(t, folder(), "inplace-rollout", "--kube-version", "1.33.9")
	must.Fails(t, "on Kubernetes 1.33", err, "incompatible with Kubernetes v1.33.9")
}

// TestHold: which way of holding auto takes, by what the cluster serves and has.
func TestHold(t *testing.T) {
	webhook := map[string]any{"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/inplace-rollout": map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": map[string]any{
			"name": "inplace-rollout", "labels": map[string]any{"app.kubernetes.io/managed-by": "Helm"},
			"annotations": map[string]any{"meta.helm.sh/release-name": "some-release", "meta.helm.sh/release-namespace": "default"},
		},
	}}
	policies := []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
	for _, tt := range []struct {
		has     map[string]any
		without []string
		args    []string
		want    string
	}{
		{without: policies, want: "webhook"},
		{want: "policy"},
		{has: webhook, want: "webhook"},
		{args: []string{"--set=hold=webhook"}, want: "webhook"},
		{has: webhook, args: []string{"--set=hold=policy"}, want: "policy"},
	} {
		out, _, err := helm(t.Context(), t, servedCluster(t, tt.has, tt.without...), append([]string{"template", "some-release", folder(), "--dry-run=server", "--disable-openapi-validation"}, tt.args...)...)
		must.Do(t, err)
		must.Equal(t, holdOf(objectsIn(t, out)), tt.want, "%+v: what holds", tt)
	}
}

// TestHoldWithoutCluster: nobody sees there what is installed, so the way must be named, also where a tool says what the
// cluster serves. What holds nothing by itself need not say it.
func TestHoldWithoutCluster(t *testing.T) {
	for _, args := range [][]string{nil, {"--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy", "--kube-version=1.37"}, {"--set=watch=namespace,parts=cluster"}} {
		_, err := template(t, folder(), "platform", args...)
		must.Fails(t, fmt.Sprint(args), err, "set hold to policy (Kubernetes 1.36 and later) or webhook")
	}
	for _, values := range []string{"hold=policy", "hold=webhook", "parts=controller"} {
		must.Get(template(t, folder(), "platform", "--set", values))(t)
	}
}

// TestNoHook: what is printed without a cluster may be applied, and has no Job then that lets go of everything, and no test.
func TestNoHook(t *testing.T) {
	for _, values := range []string{"hold=policy", "parts=controller,watch=namespace", "hold=policy,releaseOnUninstall.argoCD=true,releaseOnUninstall.enabled=false"} {
		objects := must.Get(template(t, folder(), "platform", "--set", values))(t)
		for _, o := range objects {
			if o["kind"] == "Job" || o.annotation("helm.sh/hook") != nil {
				t.Errorf("--set %s: there is %s", values, o)
			}
		}
	}
}

// TestArgoCDHook: Argo CD, when it is named, finds a hook of its own, with all that the Job needs, and does not delete the
// Job with the rest. Helm takes the same objects for a hook of its own.
func TestArgoCDHook(t *testing.T) {
	for values, want := range map[string][]string{
		"hold=policy,releaseOnUninstall.argoCD=true":                      {"ClusterRole", "ClusterRoleBinding", "Job", "ServiceAccount"},
		"parts=controller,watch=namespace,releaseOnUninstall.argoCD=true": {"Job", "Role", "RoleBinding", "ServiceAccount"},
	} {
		objects := must.Get(template(t, folder(), "platform", "--set", values))(t)
		var hooks []string
		for _, o := range objects {
			if o.annotation("argocd.argoproj.io/hook") == nil && o.annotation("helm.sh/hook") == nil {
				continue
			}
			hooks = append(hooks, o["kind"].(string))
			for name, want := range map[string]string{
				"argocd.argoproj.io/hook": "PreDelete", "argocd.argoproj.io/hook-delete-policy": "BeforeHookCreation,HookSucceeded",
				"argocd.argoproj.io/sync-options": "Delete=false", "helm.sh/hook": "pre-delete",
			} {
				must.Equal[any](t, o.annotation(name), want, "--set %s: %s, its annotation %s", values, o, name)
			}
		}
		if slices.Sort(hooks); !slices.Equal(hooks, want) {
			t.Errorf("--set %s: the hook is %v, want %v", values, hooks, want)
		}
	}
}

// TestUmbrella: a chart that includes this one may switch it off by a value.
func TestUmbrella(t *testing.T) {
	umbrella := filepath.Join(t.TempDir(), "umbrella")
	must.Do(t, os.MkdirAll(filepath.Join(umbrella, "charts"), 0o700))
	const chart = `{apiVersion: v2, name: umbrella, version: 0.0.1, dependencies: [{name: inplace-rollout, version: ">=0.0.0-0", condition: inplace-rollout.enabled}]}`
	must.Do(t, os.WriteFile(filepath.Join(umbrella, "Chart.yaml"), []byte(chart), 0o600))
	_, _, err := helm(t.Context(), t, os.DevNull, "package", folder(), "--destination", filepath.Join(umbrella, "charts"))
	must.Do(t, err)
	for enabled, want := range map[string]bool{"true": true, "false": false} {
		objects := must.Get(template(t, umbrella, "platform", "--set", "inplace-rollout.hold=policy,inplace-rollout.enabled="+enabled))(t)
		must.Equal(t, len(objects) > 0, want, "enabled=%s: there are objects", enabled)
	}
}

// holdOf says what holds among the objects.
func holdOf(objects []object) string {
	var ways []string
	for _, o := range objects {
		switch o["kind"] {
		case "MutatingWebhookConfiguration":
			ways = append(ways, "webhook")
		case "MutatingAdmissionPolicy":
			ways = append(ways, "policy")
		}
	}
	slices.Sort(ways)
	return strings.Join(slices.Compact(ways), ", ")
}

// TestNotes: whoever has installed it reads how rollouts are held, and how it is upgraded and removed.
func TestNotes(t *testing.T) {
	for values, want := range map[string][]string{
		"hold=webhook": {"Rollouts are held by webhook.", "rollout status deployment/inplace-rollout\n", "helm upgrade ours ", "helm uninstall ours -n platform\n", "which first releases all held workloads", "helm test ours -n platform\n"},
		"watch=namespace,parts=cluster,hold=policy": {"kubectl label namespace team-a inplace-rollout.io/installed=true", "helm uninstall ours -n platform\n"},
	} {
		said, _, err := helm(t.Context(), t, os.DevNull, "install", "ours", folder(), "--namespace", "platform", "--dry-run=client", "--set", values)
		must.Do(t, err)
		_, notes, _ := strings.Cut(said, "\nNOTES:\n")
		for _, want := range want {
			must.Contain(t, notes, want, "--set %s: the notes", values)
		}
	}
}

// TestIdentity: nothing names the controller by another namespace or ServiceAccount than it has.
func TestIdentity(t *testing.T) {
	for _, hold := range []string{"policy", "webhook"} {
		objects := must.Get(template(t, folder(), "platform", "--set", "hold="+hold+",serviceAccount.name=resizer,fenceOwners=true,metrics.secure=true"))(t)
		text := mustMarshal(t, objects)
		for _, other := range []string{"system:serviceaccount:inplace-rollout:inplace-rollout", "namespace: inplace-rollout", ":inplace-rollout\""} {
			if strings.Contains(text, other) {
				t.Errorf("hold=%s: there is still %q", hold, other)
			}
		}
		if !strings.Contains(text, "system:serviceaccount:platform:resizer") {
			t.Errorf("hold=%s: no policy knows the controller", hold)
		}
		if hold == "webhook" && !strings.Contains(text, "- --controller=system:serviceaccount:platform:resizer\n") {
			t.Error("the webhook is not told who the controller is")
		}
	}
}

// TestValues: what values say is in the objects.
func TestValues(t *testing.T) {
	for values, want := range map[string]string{
		"image.digest=sha256:" + strings.Repeat("0a", 32):                                       "image: inplace-rollout@sha256:0a0a",
		"resources.limits.memory=1Gi":                                                           "value: 921MiB",
		"resources.limits.memory=500M":                                                          "value: 429MiB",
		"leaderElection=false,replicas=1":                                                       "- --leader-elect=false",
		"controller.defaultResourceResizePolicy=RestartOnly":                                    "- --default-resource-resize-policy=RestartOnly",
		"controller.deferredTimeout=1h30m":                                                      "- --deferred-timeout=1h30m",
		"controller.workers=4,controller.kubeAPIQPS=12":                                         "- --kube-api-qps=12\n        - --workers=4",
		"resources.limits.memory=1073741824":                                                    "value: 921MiB",
		"resources.requests.cpu=1":                                                              "requests:\n            cpu: 1\n",
		"controller.kubeAPIBurst=100000":                                                        "- --kube-api-burst=100000",
		"controller.checksPrometheus=https://p,controller.checksHTTPConfig=/reach/http.yaml":    "- --checks-http-config=/reach/http.yaml\n        - --checks-prometheus=https://p",
		"controller.checkTimeout=5m,controller.onUnknownCheck=Pass":                             "- --check-timeout=5m\n        - --on-unknown-check=Pass",
		"volumes[0].name=reach,volumes[0].secret.secretName=p":                                  "volumes:\n      - name: reach\n        secret:\n          secretName: p",
		"volumeMounts[0].name=reach,volumeMounts[0].mountPath=/reach":                           "volumeMounts:\n        - mountPath: /reach\n          name: reach",
		"extraArgs[0]=--dry-run":                                                                "- --dry-run",
		"serviceAccount.create=false,serviceAccount.name=own":                                   "serviceAccountName: own",
		"metrics.serviceMonitor.enabled=true,metrics.secure=true":                               "scheme: https",
		"hold=webhook,webhook.replicas=3":                                                       "replicas: 3",
		"hold=webhook,webhook.resources.limits.memory=512Mi":                                    "value: 460MiB",
		"hold=webhook,podLabels.team=a":                                                         "app: inplace-rollout-webhook\n        app.kubernetes.io/component: webhook\n        app.kubernetes.io/instance: some-release\n        app.kubernetes.io/name: inplace-rollout\n        app.kubernetes.io/part-of: inplace-rollout\n        team: a",
		"hold=webhook,webhook.certManager.enabled=true":                                         "cert-manager.io/inject-ca-from: platform/inplace-rollout-webhook",
		"hold=webhook,webhook.certManager.enabled=true,webhook.replicas=1":                      "- --tls-cert-file=/tls/tls.crt",
		"hold=webhook,webhook.certManager.enabled=true,webhook.certManager.issuerRef.name=ours": "issuerRef:\n    name: ours",
		"hold=webhook,webhook.certManager.enabled=true,webhook.certManager.duration=720h":       "duration: 720h",
		"hold=webhook,webhook.certManager.enabled=true,webhook.certManager.renewBefore=240h":    "renewBefore: 240h",
		"hold=webhook,webhook.hostNetwork=true,webhook.replicas=4":                              "dnsPolicy: ClusterFirstWithHostNet\n      hostNetwork: true",
		"hold=webhook,webhook.hostNetwork=true":                                                 "maxSurge: 0\n      maxUnavailable: 1",
		"hold=webhook,networkPolicy.enabled=true,networkPolicy.apiServers={10.0.0.2/32}":        "from:\n    - ipBlock:\n        cidr: 10.0.0.2/32\n    ports:\n    - port: webhook",
		"hold=webhook,webhook.port=10250":                                                       "- --bind-address=:10250",
		"hold=webhook,webhook.port=10250,webhook.replicas=1":                                    "containerPort: 10250\n          name: webhook",
		"hold=webhook,webhook.extraArgs[0]=--shutdown-delay=30s":                                "- webhook\n        - --shutdown-delay=30s",
		"metrics.prometheusRule.enabled=true":                                                   "alert: InplaceRolloutControllerAbsent",
		"metrics.prometheusRule.enabled=true,metrics.runbooks=https://wiki/":                    "runbook_url: https://wiki/troubleshooting.md#controller-absent",
		"metrics.dashboard.enabled=true,metrics.runbooks=https://wiki/":                         "https://wiki/monitoring.md",
		"metrics.dashboard.enabled=true":                                                        "grafana_dashboard: \"1\"",
		"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.labels.release=prometheus":  "release: prometheus",
		"initialResources.enabled=true,initialResources.prometheusURL=https://p,initialResources.estimator.volumes[0].name=reach,initialResources.estimator.volumes[0].secret.secretName=prometheus":     "      - name: reach\n        secret:\n          secretName: prometheus",
		"initialResources.enabled=true,initialResources.prometheusURL=https://p,initialResources.estimator.volumeMounts[0].name=reach,initialResources.estimator.volumeMounts[0].mountPath=/reach":       "        - mountPath: /reach\n          name: reach",
		"initialResources.enabled=true,initialResources.prometheusURL=https://p,initialResources.estimator.defaultRequests.mysql.cpu=250m,initialResources.estimator.defaultRequests.mysql.memory=512Mi": "requests.yaml: |-\n    mysql:\n      cpu: 250m\n      memory: 512Mi",
		"hold=webhook,webhook.clientCAFile=/clients/ca.crt":                                               "- --client-ca-file=/clients/ca.crt",
		"checks.slow.message=takes $value,checks.slow.above=1,checks.slow.window=1m,checks.slow.query=up": "slow: |-\n    above: 1\n    message: takes $value\n    query: up\n    window: 1m",
	} {
		objects, err := template(t, folder(), "platform", "--set", "hold=policy", "--set", values)
		if err != nil {
			t.Error(err)
			continue
		}
		found := slices.ContainsFunc(objects, func(o object) bool { return strings.Contains(mustMarshal(t, o), want) })
		if !found {
			t.Errorf("--set %s: nothing has %q", values, want)
		}
	}
}

// TestChecks: the ConfigMap of the checks has those of the values beside those that are shipped, and not those that the values take away.
func TestChecks(t *testing.T) {
	for values, want := range map[string][]string{
		"hold=policy": {"cpu-throttling", "memory-near-limit"},
		"hold=policy,checks.slow.message=$value,checks.slow.above=1,checks.slow.window=1m,checks.slow.query=up": {"cpu-throttling", "memory-near-limit", "slow"},
		"hold=policy,checks.cpu-throttling=false": {"memory-near-limit"},
	} {
		objects, err := template(t, folder(), "platform", "--set", values)
		if err != nil {
			t.Error(err)
			continue
		}
		found := false
		for _, o := range objects {
			data, is := o["data"].(map[string]any)
			if found = found || is; is {
				if got := slices.Sorted(maps.Keys(data)); !slices.Equal(got, want) || o.metadata()["namespace"] != "platform" {
					t.Errorf("--set %s: in %v there are the checks %v, want %v", values, o.metadata()["namespace"], got, want)
				}
			}
		}
		if !found {
			t.Errorf("--set %s: there is no ConfigMap", values)
		}
	}
}

// TestNamespaceSelector: a narrower selector is that of every webhook that holds, beside the label of single namespaces, and of no other.
func TestNamespaceSelector(t *testing.T) {
	const narrower = "webhook.namespaceSelector.matchExpressions[0].key=team,webhook.namespaceSelector.matchExpressions[0].operator=Exists," +
		"webhook.namespaceSelector.matchLabels.stage=production"
	for values, labels := range map[string]map[string]any{
		"initialResources.enabled=true,initialResources.prometheusURL=http://prometheus": {"stage": "production"},
		"watch=namespace,parts=cluster": {"stage": "production", "inplace-rollout.io/installed": "true"},
	} {
		objects := must.Get(template(t, folder(), "platform", "--set", "hold=webhook", "--set", values, "--set", narrower))(t)
		all, narrowed := 0, 0
		// Only a controller of the whole cluster lists namespaces.
		if lists := strings.Contains(mustMarshal(t, objects), "inplace-rollout-left-out"); lists == (labels["inplace-rollout.io/installed"] != nil) {
			t.Errorf("%s: a controller may list namespaces: %t", values, lists)
		}
		for _, o := range objects {
			if o["kind"] != "MutatingWebhookConfiguration" {
				continue
			}
			for _, hook := range o["webhooks"].([]any) {
				hook := hook.(map[string]any)
				if strings.Contains(hook["name"].(string), "initial-resources") {
					continue
				}
				all++
				want := map[string]any{"matchLabels": labels, "matchExpressions": []any{map[string]any{"key": "team", "operator": "Exists"}}}
				if reflect.DeepEqual(hook["namespaceSelector"], want) {
					narrowed++
				} else {
					t.Errorf("%s: %s selects %v, want %v", values, hook["name"], hook["namespaceSelector"], want)
				}
			}
		}
		if all != 4 || all != narrowed {
			t.Errorf("%s: %d of %d webhooks are narrowed", values, narrowed, all)
		}
	}
}

// TestCriticalNamespaces: more of them are named to the policy and to the controller.
func TestCriticalNamespaces(t *testing.T) {
	objects := must.Get(template(t, folder(), "inplace-rollout", "--set", "hold=policy,criticalNamespaces={calico-system,storage}"))(t)
	text := mustMarshal(t, objects)
	for _, want := range []string{`expression: '["kube-system","calico-system","storage"]'`, "--critical-namespaces=calico-system,storage\n"} {
		must.Equal(t, strings.Count(text, want), 1, "how often %q is there", want)
	}
}

// TestDrain: of the controller, the webhook and the estimator one pod at a time may be evicted, also where there is only one, so that no
// node waits for it: that is what maxUnavailable of 1 says, and minAvailable does not.
func TestDrain(t *testing.T) {
	objects := must.Get(template(t, folder(), "platform", "--set", "hold=webhook,initialResources.enabled=true,initialResources.prometheusURL=http://prometheus:9090"))(t)
	for _, name := range []string{"inplace-rollout", "inplace-rollout-webhook", "inplace-rollout-estimator"} {
		budget, deployment := ofKind(objects, "PodDisruptionBudget", name), ofKind(objects, "Deployment", name)
		if budget == nil || deployment == nil {
			t.Errorf("of %s there are %s and %s", name, budget, deployment)
			continue
		}
		of, spec := deployment["spec"].(map[string]any), budget["spec"].(map[string]any)
		if spec["maxUnavailable"] != 1.0 || spec["unhealthyPodEvictionPolicy"] != "AlwaysAllow" || mustMarshal(t, spec["selector"]) != mustMarshal(t, of["selector"]) {
			t.Errorf("the budget of %s is %s", name, mustMarshal(t, spec))
		}
	}
}

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
	nothing := []string{"commonLabels", "extraEnv", "image.pullSecrets", "controller.podLabels", "controller.podAnnotations"}
	for _, component := range []string{"", "webhook.", "initialResources.estimator.", "releaseOnUninstall.", "test."} {
		for _, value := range []string{"podLabels", "podAnnotations", "extraArgs", "volumes", "volumeMounts", "tolerations", "affinity"} {
			nothing = append(nothing, component+value)
		}
	}
	got := must.Get(connected(t, folder(), "platform", append(slices.Clone(everything), "--set", strings.Join(nothing, "=null,")+"=null")...))(t)
	must.Equal(t, mustMarshal(t, got), mustMarshal(t, want), "what null makes of it")
}
