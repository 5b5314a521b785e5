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
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// restricted are the rules of OpenShift's SecurityContextConstraints restricted-v2, as a policy for the pods of a namespace whose
// range of users and groups begins with 1000680000. What it fills in where a pod is silent (the user, the groups, the SELinux
// options, the seccomp profile, the dropped capabilities) may be left out.
const restricted = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: restricted-v2}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  variables:
  - {name: containers, expression: "object.spec.containers + object.spec.?initContainers.orValue([])"}
  - {name: range, expression: "{'first': 1000680000, 'last': 1000689999}"}
  validations:
  - {message: no namespace of the host, expression: "!object.spec.?hostNetwork.orValue(false) && !object.spec.?hostPID.orValue(false) && !object.spec.?hostIPC.orValue(false)"}
  - {message: no port of the host, expression: "variables.containers.all(c, c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0))"}
  - {message: no such volume, expression: "object.spec.?volumes.orValue([]).all(v, has(v.configMap) || has(v.csi) || has(v.downwardAPI) || has(v.emptyDir) || has(v.ephemeral) || has(v.persistentVolumeClaim) || has(v.projected) || has(v.secret))"}
  - message: a user of the namespace's range
    expression: >
      ([object.spec.?securityContext.?runAsUser.orValue(variables.range.first)] + variables.containers.map(c, c.?securityContext.?runAsUser.orValue(variables.range.first))).all(user,
        user >= variables.range.first && user <= variables.range.last)
  - {message: a group of the namespace's range, expression: "object.spec.?securityContext.?fsGroup.orValue(variables.range.first) >= variables.range.first && object.spec.?securityContext.?fsGroup.orValue(variables.range.first) <= variables.range.last"}
  - {message: no SELinux options of its own, expression: "!object.spec.?securityContext.?seLinuxOptions.hasValue() && variables.containers.all(c, !c.?securityContext.?seLinuxOptions.hasValue())"}
  - {message: no privileges, expression: "variables.containers.all(c, !c.?securityContext.?privileged.orValue(false) && !c.?securityContext.?allowPrivilegeEscalation.orValue(false))"}
  - {message: no capabilities, expression: "variables.containers.all(c, c.?securityContext.?capabilities.?add.orValue([]).all(a, a == 'NET_BIND_SERVICE'))"}
  - message: the seccomp profile of the runtime
    expression: >
      object.spec.?securityContext.?seccompProfile.?type.orValue('RuntimeDefault') == 'RuntimeDefault' &&
      variables.containers.all(c, c.?securityContext.?seccompProfile.?type.orValue('RuntimeDefault') == 'RuntimeDefault')
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: restricted-v2}
spec:
  policyName: restricted-v2
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: openshift}}}
`

// TestOpenShift: every pod of the chart and of deploy/ meets restricted-v2, and the Pod Security Standard restricted, which the
// API server enforces. That the rules are looked at is shown by pods that break each of them.
func TestOpenShift(t *testing.T) {
	cp, client := needCluster(t)
	const byRules, byStandard = "openshift", "pod-security"
	for namespace, level := range map[string]string{byRules: "privileged", byStandard: "restricted"} {
		must.Get(client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": level},
		}}, metav1.CreateOptions{}))(t)
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	policy := file("policy.yaml", restricted)
	must.Get(cp.Kubectl(t.Context(), "apply", "--filename", policy))(t)
	defer func() { must.Get(cp.Kubectl(t.Context(), "delete", "--filename", policy))(t) }()
	create := func(namespace string, template object) error {
		t.Helper()
		spec := template["spec"].(map[string]any)
		spec["serviceAccountName"] = "default" // theirs are not there
		pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "any", "namespace": namespace}, "spec": spec}
		_, err := cp.Kubectl(t.Context(), "create", "--dry-run=server", "--filename", file("pod.yaml", mustMarshal(t, pod)))
		return err
	}
	chart := func(values string) map[string]object {
		t.Helper()
		objects := must.Get(connected(t, folder(), byRules, slices.Concat(everything, []string{"--set", values})...))(t)
		return podsOf(objects)
	}

	for values, want := range map[string]string{
		"podSecurityContext.runAsUser=1000":          "a user of the namespace's range",
		"securityContext.runAsUser=0":                "a user of the namespace's range",
		"podSecurityContext.fsGroup=1000":            "a group of the namespace's range",
		"podSecurityContext.seLinuxOptions.level=s0": "no SELinux options of its own",
		"podSecurityContext.seccompProfile.type=Localhost,podSecurityContext.seccompProfile.localhostProfile=a.json": "the seccomp profile of the runtime",
		"volumes[0].name=a,volumes[0].nfs.server=a,volumes[0].nfs.path=/a":                                           "no such volume",
		"securityContext.allowPrivilegeEscalation=true":                                                              "no privileges",
		"securityContext.capabilities.add={SYS_ADMIN}":                                                               "no capabilities",
		"webhook.hostNetwork=true":                                                                                   "no namespace of the host",
	} {
		name := "controller"
		if strings.HasPrefix(values, "webhook.") {
			name = "webhook"
		}
		// Once the policy is in force, it refuses them.
		deadline, pod := time.Now().Add(patience), chart(values)[name]
		for {
			err := create(byRules, pod)
			if err != nil && strings.Contains(err.Error(), want) {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("--set %s: %v, want %q", values, err, want)
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}

	for about, pods := range map[string]map[string]object{
		"chart":            chart("replicas=2"),
		"held by policies": chart("hold=policy,metrics.secure=true"),
		// The values of docs/initial-resources.md.
		"for Thanos Querier": chart("initialResources.estimator.volumes[0].name=reach,initialResources.estimator.volumes[0].configMap.name=openshift-service-ca.crt," +
			"initialResources.estimator.volumeMounts[0].name=reach,initialResources.estimator.volumeMounts[0].mountPath=/reach,initialResources.estimator.volumeMounts[0].readOnly=true"),
		"manifests": podsOf(kustomize(t, "resources: [deploy/overlays/webhook-initial-resources]")),
		"policies":  podsOf(kustomize(t, "resources: [deploy, deploy/initial-resources]")),
	} {
		if got := slices.Sorted(maps.Keys(pods)); len(got) < 2 || got[0] != "controller" || got[1] != "estimator" {
			t.Errorf("%s: there are the pods %v", about, got)
		} else if ofDeploy := about == "manifests" || about == "policies"; slices.Contains(got, "test") == ofDeploy {
			t.Errorf("%s: there are the pods %v, and helm test has one in the chart only", about, got)
		}
		for name, pod := range pods {
			for _, namespace := range []string{byRules, byStandard} {
				must.Fails(t, about+": "+name, create(namespace, pod), "")
			}
		}
	}
}
