//go:build integration

package chart

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// TestLint has Helm look at the chart itself.
func TestLint(t *testing.T) {
	if _, _, err := helm(t.Context(), t, os.DevNull, "lint", "--strict", folder()); err != nil {
		t.Error(err)
	}
}

// TestPackage: the package has what the links of files/ lead to, and gives the same objects.
func TestPackage(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := helm(t.Context(), t, os.DevNull, "package", folder(), "--version", "1.2.3", "--app-version", "v1.2.3", "--destination", dir); err != nil {
		t.Fatal(err)
	}
	packed := filepath.Join(dir, "inplace-rollout-1.2.3.tgz")
	file, err := os.Open(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int64{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			t.Errorf("%s is no file", header.Name)
		}
		sizes[header.Name] = header.Size
	}
	source, err := os.Stat(filepath.Join(controller.Root(), "deploy", "cluster", "hold-statefulsets.yaml"))
	if err != nil || sizes["inplace-rollout/files/cluster/hold-statefulsets.yaml"] != source.Size() {
		t.Errorf("of the policy there are %d bytes of %v: %v", sizes["inplace-rollout/files/cluster/hold-statefulsets.yaml"], source, err)
	}
	fromPackage, err := template(t, packed, "inplace-rollout", "--set", "image.tag=dev")
	if err != nil {
		t.Fatal(err)
	}
	fromFolder, err := template(t, folder(), "inplace-rollout")
	if err != nil {
		t.Fatal(err)
	}
	got, want := mustMarshal(t, comparable(fromPackage)), mustMarshal(t, comparable(fromFolder))
	if got != want {
		t.Errorf("the package gives\n%s\nthe folder\n%s", got, want)
	}
	released, err := template(t, packed, "inplace-rollout", "--show-only", "templates/controller.yaml")
	if err != nil || !strings.Contains(mustMarshal(t, released), "image: inplace-rollout:v1.2.3\n") {
		t.Errorf("without a tag, the image is not that of the version: %v %v", released, err)
	}
}

func mustMarshal(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRefused: values that cannot work are refused before anything is installed, and the message names them.
func TestRefused(t *testing.T) {
	for values, want := range map[string]string{
		"replica=3":                           "additional properties 'replica' not allowed",
		"image.digest=latest":                 "at '/image/digest'",
		"image.repository=here/it@sha256:abc": "at '/image/repository'",
		"hold=policies":                       "at '/hold': value must be one of 'auto', 'policy', 'v1beta1', 'webhook'",
		"watch=namespace":                     "at '/parts': value must be one of 'cluster', 'controller'",
		"replicas=2,leaderElection=false":     "at '/replicas': maximum",
		"controller.deferredTimeout=10":       "at '/controller/deferredTimeout'",
		"controller.workers=0":                "at '/controller/workers': minimum",
		"webhook.replicas=0":                  "at '/webhook/replicas': minimum",
		"podLabels.app=ours":                  "at '/podLabels/app'",
		"resources.limits.memory=plenty":      "at '/resources/limits/memory'",
		"serviceAccount.name=Me":              "at '/serviceAccount/name'",
		"extraArgs[0]=dry-run":                "at '/extraArgs/0'",
		"releaseOnUninstall.enabled=perhaps":  "at '/releaseOnUninstall/enabled'",
		"metrics.serviceMonitor.enabled=true,metrics.service=false": "at '/metrics/service': value must be true",
	} {
		if _, err := template(t, folder(), "inplace-rollout", "--set", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: %v, want %q", values, err, want)
		}
	}
	_, err := template(t, folder(), "inplace-rollout", "--kube-version", "1.32.9")
	if err == nil || !strings.Contains(err.Error(), "incompatible with Kubernetes v1.32.9") {
		t.Errorf("on Kubernetes 1.32: %v", err)
	}
}

// TestHold: which way of holding auto takes, by what the cluster serves.
func TestHold(t *testing.T) {
	const v1, beta = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy", "--api-versions=admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "webhook"},
		{[]string{v1}, "policy"},
		{[]string{v1, beta}, "policy"},
		{[]string{beta}, "v1beta1"},
		{[]string{v1, "--set=hold=webhook"}, "webhook"},
		{[]string{"--set=hold=policy"}, "policy"},
	} {
		objects, err := template(t, folder(), "platform", tt.args...)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := holdOf(objects); got != tt.want {
			t.Errorf("%v: it is held by %s, want %s", tt.args, got, tt.want)
		}
	}
}

// TestNoHook: what is printed without a cluster may be applied, and has no Job then that lets go of everything.
func TestNoHook(t *testing.T) {
	for _, values := range []string{"parts=all", "parts=controller,watch=namespace"} {
		objects, err := template(t, folder(), "platform", "--set", values)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if o["kind"] == "Job" || o.annotation("helm.sh/hook") != nil {
				t.Errorf("--set %s: there is %s", values, o)
			}
		}
	}
}

// holdOf says what holds among the objects.
func holdOf(objects []object) string {
	var ways []string
	for _, o := range objects {
		switch {
		case o["kind"] == "MutatingWebhookConfiguration":
			ways = append(ways, "webhook")
		case o["kind"] == "MutatingAdmissionPolicy" && o["apiVersion"] == "admissionregistration.k8s.io/v1":
			ways = append(ways, "policy")
		case o["kind"] == "MutatingAdmissionPolicy":
			ways = append(ways, "v1beta1")
		}
	}
	slices.Sort(ways)
	return strings.Join(slices.Compact(ways), ", ")
}

// TestIdentity: nothing names the controller by another namespace or ServiceAccount than it has.
func TestIdentity(t *testing.T) {
	for _, hold := range []string{"policy", "v1beta1", "webhook"} {
		objects, err := template(t, folder(), "platform", "--set", "hold="+hold+",serviceAccount.name=resizer,fenceOwners=true,metrics.secure=true")
		if err != nil {
			t.Fatal(err)
		}
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
		"image.pullSecrets[0].name=registry":                                                    "imagePullSecrets:\n      - name: registry",
		"priorityClassName=system-cluster-critical":                                             "priorityClassName: system-cluster-critical",
		"resources.limits.memory=1Gi":                                                           "value: 921MiB",
		"resources.limits.memory=500M":                                                          "value: 429MiB",
		"leaderElection=false,replicas=1":                                                       "- --leader-elect=false",
		"controller.defaultResourceResizePolicy=RestartOnly":                                    "- --default-resource-resize-policy=RestartOnly",
		"controller.deferredTimeout=1h30m":                                                      "- --deferred-timeout=1h30m",
		"controller.workers=4,controller.kubeAPIQPS=12":                                         "- --kube-api-qps=12\n        - --workers=4",
		"controller.kubeAPIBurst=100000":                                                        "- --kube-api-burst=100000",
		"extraArgs[0]=--dry-run":                                                                "- --dry-run",
		"extraEnv[0].name=HTTPS_PROXY,extraEnv[0].value=x":                                      "- name: HTTPS_PROXY\n          value: x",
		"podLabels.team=a":                                                                      "team: a",
		"podSecurityContext.runAsUser=1000":                                                     "runAsUser: 1000",
		"serviceAccount.create=false,serviceAccount.name=own":                                   "serviceAccountName: own",
		"metrics.serviceMonitor.enabled=true,metrics.secure=true":                               "scheme: https",
		"hold=webhook,webhook.replicas=3":                                                       "replicas: 3",
		"hold=webhook,webhook.resources.limits.memory=512Mi":                                    "value: 460MiB",
		"hold=webhook,priorityClassName=high,podLabels.team=a":                                  "app: inplace-rollout-webhook\n        team: a",
		"hold=webhook,webhook.certManager.enabled=true":                                         "cert-manager.io/inject-ca-from: platform/inplace-rollout-webhook",
		"hold=webhook,webhook.certManager.enabled=true,webhook.replicas=1":                      "- --tls-cert-file=/tls/tls.crt",
		"hold=webhook,webhook.certManager.enabled=true,webhook.certManager.issuerRef.name=ours": "issuerRef:\n    name: ours",
		"metrics.prometheusRule.enabled=true":                                                   "alert: InplaceRolloutControllerAbsent",
		"metrics.dashboard.enabled=true":                                                        "grafana_dashboard: \"1\"",
		"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.labels.release=prometheus":  "release: prometheus",
	} {
		objects, err := template(t, folder(), "platform", "--set", values)
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

// TestCriticalNamespaces: more of them are named to the policy and to the controller.
func TestCriticalNamespaces(t *testing.T) {
	objects, err := template(t, folder(), "inplace-rollout", "--set", "criticalNamespaces={calico-system,storage}")
	if err != nil {
		t.Fatal(err)
	}
	text := mustMarshal(t, objects)
	for _, want := range []string{`expression: '["kube-system","calico-system","storage"]'`, "--critical-namespaces=calico-system,storage\n"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is there %d times, want once", want, strings.Count(text, want))
		}
	}
}
