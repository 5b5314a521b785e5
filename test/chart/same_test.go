//go:build around

package chart

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// labelled gives what components add the labels that deploy/ gives.
const labelled = "labels: [{pairs: {app.kubernetes.io/name: inplace-rollout, app.kubernetes.io/part-of: inplace-rollout}}]"

// TestSame compares what the chart installs with what kustomize makes of deploy/.
func TestSame(t *testing.T) {
	for name, tt := range map[string]struct {
		namespace, values string
		kustomization     string // its paths begin with deploy/
	}{
		"as it is": {namespace: "inplace-rollout", values: "hold=policy", kustomization: "resources: [deploy]"},
		"held by webhook, in another namespace": {
			namespace: "platform", values: "hold=webhook",
			kustomization: "{namespace: platform, resources: [deploy/overlays/webhook], components: [deploy/components/identity], " +
				"configMapGenerator: [{name: identity, literals: [namespace=platform], " +
				"options: {disableNameSuffixHash: true, annotations: {config.kubernetes.io/local-config: 'true'}}}]}",
		},
		"held by webhook with cert-manager, in another namespace": {
			namespace: "platform", values: "hold=webhook,webhook.certManager.enabled=true",
			kustomization: "{namespace: platform, resources: [deploy/overlays/webhook, identity.yaml], components: [deploy/components/cert-manager, deploy/components/identity], " +
				labelled + "}",
		},
		"for single namespaces, the cluster's part": {
			namespace: "anywhere", values: "hold=policy,watch=namespace,parts=cluster",
			kustomization: "resources: [deploy/overlays/one-namespace/cluster]",
		},
		"for single namespaces, a controller": {
			namespace: "team-a", values: "watch=namespace,parts=controller",
			kustomization: "{namespace: team-a, resources: [deploy/overlays/one-namespace]}",
		},
		"in another namespace": {
			namespace: "platform", values: "hold=policy",
			kustomization: "{namespace: platform, resources: [deploy, identity.yaml], components: [deploy/components/identity]}",
		},
		"with initial resources": {
			namespace: "inplace-rollout", values: "hold=policy,initialResources.enabled=true,initialResources.prometheusURL=http://prometheus.monitoring:9090",
			kustomization: "resources: [deploy, deploy/initial-resources]",
		},
		"with initial resources, in another namespace": {
			namespace: "platform", values: "hold=policy,initialResources.enabled=true,initialResources.resizeAfterwards=true,initialResources.prometheusURL=http://prometheus.monitoring:9090",
			kustomization: "{namespace: platform, resources: [deploy, deploy/initial-resources, identity.yaml], " +
				"components: [deploy/components/resize-afterwards, deploy/components/identity], " +
				labelled + "}",
		},
		"with initial resources by webhook, and cert-manager": {
			namespace: "inplace-rollout", values: "hold=webhook,webhook.certManager.enabled=true,initialResources.enabled=true,initialResources.prometheusURL=http://prometheus.monitoring:9090",
			kustomization: "{resources: [deploy/overlays/webhook-initial-resources], components: [deploy/components/cert-manager], " +
				labelled + "}",
		},
		"with initial resources by webhook, in another namespace": {
			namespace: "platform", values: "hold=webhook,initialResources.enabled=true,initialResources.prometheusURL=http://prometheus.monitoring:9090",
			kustomization: "{namespace: platform, resources: [deploy/overlays/webhook-initial-resources, identity.yaml], components: [deploy/components/identity]}",
		},
		"with the components": {
			namespace: "inplace-rollout", values: "hold=policy,fenceOwners=true,resizeRight=true,networkPolicy.enabled=true,metrics.secure=true",
			kustomization: "{namespace: inplace-rollout, resources: [deploy], components: [deploy/components/fence-owners, " +
				"deploy/components/resize-right, deploy/components/network-policy, deploy/components/secure-metrics], " +
				labelled + "}",
		},
		"held by webhook, with the network policies": {
			namespace: "inplace-rollout", values: "hold=webhook,networkPolicy.enabled=true",
			kustomization: "{namespace: inplace-rollout, resources: [deploy/overlays/webhook], components: [deploy/components/network-policy, " +
				"deploy/components/network-policy-webhook], " + labelled + "}",
		},
		"with all metrics over TLS": {
			namespace: "inplace-rollout", values: "hold=webhook,metrics.secure=true,initialResources.enabled=true,initialResources.prometheusURL=http://prometheus.monitoring:9090",
			kustomization: "{resources: [deploy/overlays/webhook-initial-resources], components: [deploy/components/secure-metrics], " +
				labelled + "}",
		},
		"with all metrics over TLS, in another namespace": {
			namespace: "platform", values: "hold=policy,metrics.secure=true,initialResources.enabled=true,initialResources.prometheusURL=http://prometheus.monitoring:9090",
			kustomization: "{namespace: platform, resources: [deploy, deploy/initial-resources, identity.yaml], " +
				"components: [deploy/components/secure-metrics, deploy/components/identity], " +
				labelled + "}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rendered := must.Get(template(t, folder(), tt.namespace, "--set", tt.values))(t)
			got, want := comparable(rendered), comparable(kustomize(t, tt.kustomization))
			if diff := diff.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("not the same objects (-kustomize +chart):\n%s", diff)
			}
			for name := range want {
				if diff := diff.Diff(want[name], got[name]); got[name] != nil && diff != "" {
					t.Errorf("%s is not the same (-kustomize +chart):\n%s", name, diff)
				}
			}
		})
	}
}

// identity tells the policies of another namespace, as docs/install.md says.
const identity = `{apiVersion: v1, kind: ConfigMap, metadata: {name: identity, annotations: {config.kubernetes.io/local-config: "true"}}, data: {namespace: platform}}`

// kustomize returns what it makes of a kustomization.
func kustomize(t *testing.T, kustomization string) []object {
	t.Helper()
	dir := t.TempDir()
	deploy := must.Get(filepath.Rel(dir, filepath.Join(controller.Root(), "deploy")))(t)
	for name, text := range map[string]string{"kustomization.yaml": strings.ReplaceAll(kustomization, "deploy", deploy), "identity.yaml": identity} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(controller.Root(), "bin", "k8s", "kubectl"), "kustomize", dir)
	cmd.Stderr = os.Stderr
	out := must.Get(cmd.Output())(t)
	return objectsIn(t, string(out))
}

// namespaced are the kinds that have a namespace. kustomize gives one to other kinds that it does not know.
var namespaced = []any{"ServiceAccount", "Role", "RoleBinding", "NetworkPolicy", "Deployment", "Service", "PodDisruptionBudget", "ConfigMap", "Certificate", "Issuer"}

// comparable returns the objects by name, without what Helm adds, and with blanks made equal. Helm
// creates no namespaces, and kustomize has no hooks.
func comparable(objects []object) map[string]object {
	all := map[string]object{}
	for _, o := range objects {
		name := fmt.Sprint(o.metadata()["name"])
		if o["kind"] == "Namespace" || o.annotation("helm.sh/hook") != nil ||
			slices.Contains(prerequisite.FormerMutatingPolicies(), name) || slices.Contains(prerequisite.FormerValidatingPolicies(), name) { // Helm deletes these
			continue
		}
		if !slices.Contains(namespaced, o["kind"]) {
			delete(o.metadata(), "namespace")
		}
		for _, fields := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
			for _, ofHelm := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
				unstructured.RemoveNestedField(o, append(slices.Clone(fields), ofHelm)...)
			}
		}
		all[o.String()] = squeeze(map[string]any(o)).(map[string]any)
	}
	return all
}

// squeeze makes all blanks of texts equal: kustomize adds empty lines, and Helm takes the last one away.
func squeeze(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = squeeze(value[key])
		}
	case []any:
		for i := range value {
			value[i] = squeeze(value[i])
		}
	case string:
		return strings.Join(strings.Fields(value), " ")
	}
	return value
}
