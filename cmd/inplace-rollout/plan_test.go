package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/golden"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// planned runs plan on the manifest, and returns what it printed and its exit code.
func planned(t *testing.T, s *stage, m *unstructured.Unstructured, o planOptions) ([]byte, int) {
	t.Helper()
	text := must.Get(yaml.Marshal(m))(t)
	file := filepath.Join(t.TempDir(), "edit.yaml")
	o.files.Filenames = []string{file}
	must.Do(t, os.WriteFile(file, text, 0o600))
	o.cluster = s.cluster(t)
	var out bytes.Buffer
	err := o.run(t.Context(), &out, io.Discard, nil)
	if code := exitCode(err); code == 1 {
		t.Fatal(err)
	}
	return out.Bytes(), exitCode(err)
}

func TestPlan(t *testing.T) {
	const onDelete = "updateStrategy: {type: OnDelete, rollingUpdate: null}"
	notOptedIn := func(s *stage) { s.meta().Labels = nil }
	annotated := func(name, value string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{name: value}) }
	}
	guardedRestart := func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{api.ResizePolicyAnnotation: "cpu=RestartOnly", api.CanaryAnnotation: "1"})
	}
	checked := func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{api.CanaryAnnotation: "1", api.ChecksAnnotation: "latency"})
	}
	image := func(u *unstructured.Unstructured) { withImage(u, "app:2") }
	// A webhook keeps the image, such as one that has all images come from a mirror.
	kept := func(s *stage) { s.image = "app:1" }
	spelled := strings.ReplaceAll(size, "memory: 1Gi", "memory: 1073741824")
	tmpfs := func(u *unstructured.Unstructured) {
		u.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["volumes"] = []any{
			map[string]any{"name": "shm", "emptyDir": map[string]any{"medium": "Memory"}},
			map[string]any{"name": "bounded", "emptyDir": map[string]any{"medium": "Memory", "sizeLimit": "64Mi"}},
			map[string]any{"name": "disk", "emptyDir": map[string]any{}},
		}
	}
	ofWeb := func(u *unstructured.Unstructured) {
		u.SetLabels(map[string]string{api.EnabledLabel: "true"})
		u.Object["spec"].(map[string]any)["template"].(map[string]any)["metadata"] = map[string]any{"labels": map[string]any{"app": "web"}}
	}
	for name, tt := range map[string]struct {
		stage func(*testing.T) *stage // of three replicas of a StatefulSet, if nil
		kind  string                  // StatefulSet, if empty
		spec  string
		size  string // larger, if empty
		edit  func(*unstructured.Unstructured)
		set   planOptions
		code  int // with --fail-on=restart
	}{
		"live":              {},
		"min-ready-seconds": {spec: "minReadySeconds: 40"},
		"known-faults": {size: "requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 2Gi}", stage: func(t *testing.T) *stage {
			s := newSetStage(t, 9)
			s.set.Spec.Template = pointed(build.Size(t, "requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 1Gi}"))
			s.others = nil
			s.revision(t, "web-a", &s.set.Spec.Template)
			s.nodes = nil
			for i, kubelet := range []string{"v1.35.8-gke.1117000", "v1.37.1"} {
				n := node(fmt.Sprintf("node-%d", i), "4")
				n.Status.NodeInfo.KubeletVersion = kubelet
				s.nodes = append(s.nodes, n)
			}
			for i, pod := range s.pods {
				of := build.Pod(pod.Name, &s.set.Spec.Template, build.OwnedBy(s.set, "StatefulSet"))
				of.Labels, of.Spec.NodeName = pod.Labels, s.nodes[i/7].Name
				of.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled"}
				s.pods[i] = of
			}
			return s
		}},
		// Whether the kubelet of a node can resize init containers, and the pod as a whole, it declares.
		"undeclared": {code: 3, stage: setOf(2, func(s *stage) {
			s.withInit(t, "100m")
			s.nodes = append(s.nodes, node("newer", "4"))
			s.nodes[1].Status.DeclaredFeatures = []string{"InPlacePodVerticalScalingInitContainers"}
			s.pods[1].Spec.NodeName = "newer"
		}), size: size, edit: func(u *unstructured.Unstructured) {
			u.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["initContainers"] = []any{map[string]any{
				"name": "setup", "image": "setup:1", "resources": map[string]any{"requests": map[string]any{"cpu": "50m"}},
			}}
		}},
		// A tmpfs keeps the size that the memory limit gave it at the start of the pod, unless it says one itself.
		"tmpfs": {size: "requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 1, memory: 2Gi}", edit: tmpfs, stage: func(t *testing.T) *stage {
			s := newSetStage(t, 1)
			m := manifest(t, "StatefulSet", "", size)
			tmpfs(m)
			template, err := templateOf(m)
			must.Do(t, err)
			s.set.Spec.Template.Spec.Volumes, s.others = template.Spec.Volumes, nil
			s.revision(t, "web-a", &s.set.Spec.Template)
			return s
		}},
		"many": {code: 3, stage: setOf(24, func(s *stage) {
			s.nodes = nil
			for i, pod := range s.pods {
				pod.Spec.NodeName = fmt.Sprintf("node-%d", i)
				cpu := "4"
				if i%8 == 0 {
					cpu = fmt.Sprintf("15%dm", i)
				}
				s.nodes = append(s.nodes, node(pod.Spec.NodeName, cpu))
			}
		})},
		"from-zero": {stage: setOf(0), spec: "replicas: 3", edit: image}, // nothing is held where there is no pod
		"daemonset": {stage: daemonSetOf(3), kind: "DaemonSet"},
		"daemonset-node-too-small": {kind: "DaemonSet", stage: daemonSetOf(24, func(s *stage) {
			for i := range 7 {
				s.nodes[3*i] = node(s.nodes[3*i].Name, "150m")
			}
		})},
		"daemonset-held":             {stage: heldDaemonSetOf(3), kind: "DaemonSet", size: size},
		"daemonset-held-to-ondelete": {code: 3, stage: heldDaemonSetOf(3), kind: "DaemonSet", spec: onDelete, edit: image},
		"daemonset-new": {kind: "DaemonSet", spec: "selector: {matchLabels: {app: web}}", stage: daemonSetOf(2, func(s *stage) {
			s.daemons.Name = "other"
			for _, pod := range s.pods {
				pod.OwnerReferences = nil // as after a deletion with --cascade=orphan
			}
			s.others[0].(*appsv1.ControllerRevision).OwnerReferences = nil
		}), edit: ofWeb},
		"deployment-new": {code: 3, kind: "Deployment", spec: "selector: {matchLabels: {app: web}}", stage: deploymentOf(2, func(s *stage) { // nobody can hold a new one
			s.deploy.Name = "other"
			s.others[0].(*appsv1.ReplicaSet).OwnerReferences = nil // as after a deletion with --cascade=orphan
		}), edit: ofWeb},
		"daemonset-not-opted-in":    {code: 3, stage: daemonSetOf(2, notOptedIn), kind: "DaemonSet"},
		"daemonset-image":           {code: 3, stage: daemonSetOf(3), kind: "DaemonSet", edit: image},
		"partition":                 {spec: "updateStrategy: {rollingUpdate: {partition: 2}}"},
		"ondelete":                  {code: 3, spec: onDelete, edit: annotated(api.ResizePolicyAnnotation, "cpu=RestartOnly")},
		"restart-only-by-flag":      {code: 3, set: planOptions{resizePolicy: "RestartOnly"}},
		"restart-only-by-heartbeat": {code: 3, stage: setOf(3, heartbeat("default-resource-resize-policy=RestartOnly,error-timeout=1m0s", ""))},
		// Checks that nobody can answer keep the pods as they are: none is there, or not this one. Such as there are do not, nor if unknown ones pass.
		"no-checks":                {stage: setOf(3, heartbeat("", "")), edit: checked},
		"no-such-check":            {stage: setOf(3, heartbeat("", "memory,errors"), func(s *stage) { build.NotReady(s.pods[0]) }), edit: checked},
		"checks":                   {stage: setOf(3, heartbeat("", "latency,memory")), edit: checked},
		"no-checks-pass":           {stage: setOf(3, heartbeat("on-unknown-check=Pass", "")), edit: checked},
		"live-only-and-impossible": {size: "requests: {cpu: 1, memory: 1Gi}", edit: annotated(api.ResizeActionAnnotation, "LiveResize")},
		"not-opted-in":             {code: 3, stage: setOf(3, notOptedIn), spec: "updateStrategy: {rollingUpdate: {partition: 1}}"},
		// The Deployment was opted out when its ReplicaSet had the new size, and its pods had not.
		"not-opted-in-halfway": {code: 3, kind: "Deployment", stage: heldDeploymentOf(2, notOptedIn, func(s *stage) {
			rs := s.others[0].(*appsv1.ReplicaSet)
			rs.Annotations[api.AdoptedAnnotation] = `{"annotations":{},"template":` + string(must.Get(json.Marshal(rs.Spec.Template))(t)) + `}`
			rs.Spec.Template.Spec, s.deploy.Spec.Paused = s.deploy.Spec.Template.Spec, false
			s.deploy.Annotations = map[string]string{"deployment.kubernetes.io/revision": "2"}
		})},
		// A hold annotation that was left holds nothing.
		"not-opted-in-leftover": {code: 3, stage: setOf(3, notOptedIn, func(s *stage) {
			s.set.Annotations[api.HoldAnnotation] = "0"
			s.set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(2))
		})},
		"recreate": {code: 3, spec: "updateStrategy: {type: Recreate}", stage: setOf(2, func(s *stage) {
			s.set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: "Recreate"}
		})},
		"bad-label": {code: 3, stage: setOf(1, func(s *stage) { s.set.Labels = map[string]string{api.EnabledLabel: "yes"} }),
			edit: func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{api.EnabledLabel: "yes"}) }},
		"not-opted-in-ondelete": {code: 3, stage: setOf(2, notOptedIn), spec: onDelete},
		"image":                 {code: 3, edit: image},
		"image-kept":            {stage: setOf(3, kept), edit: image},
		"image-kept-held":       {stage: changed(heldStage, kept), size: size, edit: image},
		"image-kept-deployment": {stage: deploymentOf(2, kept), kind: "Deployment", edit: image},
		"nothing":               {size: size},
		// To all but the Deployment controller another spelling is another template.
		"spelled":                      {size: spelled},
		"spelled-not-opted-in":         {code: 3, stage: setOf(3, notOptedIn), size: spelled},
		"spelled-daemonset-unattended": {code: 3, stage: daemonSetOf(2, func(s *stage) { s.says = "none" }), kind: "DaemonSet", size: spelled},
		"spelled-daemonset-of-its-generation": {kind: "DaemonSet", size: spelled, stage: daemonSetOf(2, func(s *stage) {
			s.says = "none"
			for _, pod := range s.pods {
				pod.Labels["pod-template-generation"] = "1"
			}
		})},
		"spelled-deployment": {stage: deploymentOf(2, notOptedIn), kind: "Deployment", size: spelled},
		"new":                {size: size, edit: func(u *unstructured.Unstructured) { u.SetName("other") }},
		"container-restart": {code: 3, stage: func(t *testing.T) *stage {
			s := newSetStage(t, 2)
			policy := []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
			s.set.Spec.Template.Spec.Containers[0].ResizePolicy = policy
			s.others = nil
			s.revision(t, "web-a", &s.set.Spec.Template)
			for _, pod := range s.pods {
				pod.Spec.Containers[0].ResizePolicy = policy
			}
			return s
		}},
		"scaled-in":            {spec: "replicas: 1"}, // two go, and nobody is to read that nothing does
		"deployment-scaled-in": {stage: deploymentOf(3), kind: "Deployment", spec: "replicas: 2"},
		"missing": {stage: setOf(3, func(s *stage) {
			s.pods[2].DeletionTimestamp = ptr.To(s.pods[2].Status.Conditions[0].LastTransitionTime)
			s.pods[2].Finalizers = []string{"test/keep"} // the fake refuses deleted objects without
			s.pods = s.pods[1:]
		})},
		// web-2 is on a node that is too small for ever; of web-1 and web-0 there is room for one.
		"nodes": {code: 3, size: "requests: {cpu: 900m, memory: 50Mi}, limits: {cpu: 1, memory: 1Gi}", stage: setOf(3, func(s *stage) {
			s.nodes = []*corev1.Node{node("node", "1100m"), node("small", "500m")}
			s.pods[2].Spec.NodeName = "small"
		})},
		"no-node-fits": {size: "requests: {cpu: 5, memory: 100Mi}, limits: {cpu: 6, memory: 1Gi}"},
		// The user's partition is what is recorded, and another edit may change it.
		"held":                      {stage: heldStage, size: "requests: {cpu: 300m, memory: 100Mi}, limits: {cpu: 1, memory: 1Gi}"},
		"held-with-a-new-partition": {stage: heldStage, spec: "updateStrategy: {rollingUpdate: {partition: 1}}"},
		"deployment":                {stage: deploymentOf(2), kind: "Deployment"},
		"deployment-paused":         {stage: deploymentOf(2), kind: "Deployment", spec: "paused: true"},
		"deployment-handed-over":    {code: 3, stage: deploymentOf(2), kind: "Deployment", edit: annotated(api.ResizeActionAnnotation, "Restart")},
		// One pod is the canary, and the others wait; with maxSurge the DaemonSet controller waits for nobody.
		"deployment-guarded": {code: 3, stage: deploymentOf(3), kind: "Deployment", edit: guardedRestart},
		"daemonset-classes": {stage: daemonSetOf(4, func(s *stage) {
			for i, n := range s.nodes {
				n.Labels = map[string]string{"size": []string{"l", "s", "m", "x"}[i]}
			}
		}), kind: "DaemonSet", edit: annotated(api.NodeResourcesAnnotation, `[{"nodeSelector": {"size": "l"}, "containers": {"app": {"requests": {"cpu": "6"}, "limits": {"cpu": "6"}}}},
			{"nodeSelector": {"size": "s"}, "containers": {"app": {"requests": {"cpu": "50m"}}}}, {"nodeSelector": {"size": "x"}, "containers": {"sidecar": {"requests": {"cpu": "50m"}}}}]`)},
		"daemonset-surge-guarded": {code: 3, stage: daemonSetOf(3), kind: "DaemonSet", spec: "updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}", edit: guardedRestart},
		"deployment-two-replicasets": {code: 3, kind: "Deployment", stage: func(t *testing.T) *stage {
			s := newDeploymentStage(t, 2)
			s.replicaSet(t, "web-old", "0", "requests: {cpu: 50m}", 1)
			return s
		}},
		"deployment-not-opted-in": {code: 3, stage: deploymentOf(2, notOptedIn), kind: "Deployment"},
	} {
		t.Run(name, func(t *testing.T) {
			stage := tt.stage
			if stage == nil {
				stage = setOf(3)
			}
			edit := manifest(t, cmp.Or(tt.kind, "StatefulSet"), tt.spec, cmp.Or(tt.size, larger))
			if tt.edit != nil {
				tt.edit(edit)
			}
			out, code := planned(t, stage(t), edit, tt.set)
			golden.Assert(t, "plan-"+name+".txt", out)
			must.Equal(t, code, 0, "exit code without --fail-on=restart")
			tt.set.failOn = []string{failRestart}
			if _, code := planned(t, stage(t), edit, tt.set); code != tt.code {
				t.Errorf("exit code %d with --fail-on=restart, want %d", code, tt.code)
			}
		})
	}
}

func TestPlanFormats(t *testing.T) {
	for _, format := range []cli.Format{"json", "yaml"} {
		s := newSetStage(t, 2)
		s.nodes = []*corev1.Node{node("node", "250m")}
		out, _ := planned(t, s, manifest(t, "StatefulSet", "", larger), planOptions{output: format})
		golden.Assert(t, "plan."+string(format), out)
	}
}

// What is to come of a hold is what the edit that began it would do now; where it was stopped, that is nothing. A resize that fails, or
// that no kubelet answers, ends at its deadline. What the condition says of nodes counts for whoever may not see them: the reason, and not
// the text, which is there to read. Whether a controller is there, a dry run shows to whoever may not read the heartbeat.
func TestPlanOfTheHold(t *testing.T) {
	failing := func(s *stage) {
		s.updated(2)
		s.asked(1, condition(corev1.PodResizeInProgress, "Error", "memory limit below what is in use"), observed)
		s.asked(0) // long ago
	}
	said := func(reason, message string) func(s *stage) {
		return func(s *stage) {
			c := &s.set.Status.Conditions[0]
			c.Reason, c.Message = reason, message
		}
	}
	infeasible := func(s *stage) {
		s.asked(2, condition(corev1.PodResizePending, "Infeasible", "Node didn't have enough capacity: cpu"), observed)
	}
	for name, tt := range map[string]struct {
		stage  begin
		hidden bool // the nodes
		fails  string
	}{
		"hold":              {heldStage, false, ""},
		"hold-unattended":   {changed(heldStage, func(s *stage) { s.says = "none" }), false, ""},
		"hold-unasked":      {changed(heldStage, func(s *stage) { s.says = "nothing" }), false, ""},
		"hold-untried":      {changed(heldStage, func(s *stage) { s.says = "forbidden" }), false, failUnknown},
		"stopped":           {stoppedStage, false, ""},
		"failing":           {heldSetOf(3, failing), false, failRestart},
		"failing-live-only": {heldSetOf(3, failing, func(s *stage) { s.set.Annotations[api.InForceAnnotation] = "LiveResize;" }), false, failInfeasible},
		"class":             {classStage, false, failInfeasible},
		"hidden-restart":    {heldSetOf(3, infeasible, said(judge.ReasonNoNodeFits, "no node has room; likewise web-1")), true, failInfeasible},
		"hidden-live":       {heldSetOf(3, said(judge.ReasonInfeasible, "0 of 3 pods resized; web-1: node node can never hold it")), true, failInfeasible},
	} {
		s := changed(tt.stage, func(s *stage) {
			s.report = prerequisite.Report{Attendance: errors.New("the heartbeat is forbidden")}
		})(t)
		o := planOptions{cluster: s.cluster(t)}
		if tt.hidden {
			o.client.(*fake.Clientset).PrependReactor("list", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", nil)
			})
		}
		live := s.live(t)
		for _, o.failOn = range [][]string{{failRestart}, {failInfeasible}, {failUnknown}} {
			if o.failOn[0] == failUnknown && tt.hidden { // whether nodes have room
				continue
			}
			var out bytes.Buffer
			if code := exitCode(o.runEdits(t.Context(), &out, []edit{{live: live, after: live}})); (code == 3) != (o.failOn[0] == tt.fails) {
				t.Errorf("%s: --fail-on=%s ended with %d", name, o.failOn, code)
			}
			golden.Assert(t, "plan-"+name+".txt", out.Bytes())
		}
	}
}

// classStage has a pod whose node's class would change its QoS class.
func classStage(t *testing.T) *stage {
	t.Helper()
	s := newDaemonSetStage(t, 2)
	s.daemons.Annotations[api.NodeResourcesAnnotation] = `[{"nodeSelector": {"kubernetes.io/hostname": "` + s.nodes[0].Name + `"}, "containers": {"app": {"requests": {"cpu": "1", "memory": "1Gi"}}}}]`
	s.nodes[0].Labels = map[string]string{"kubernetes.io/hostname": s.nodes[0].Name}
	return s
}

// Where nobody holds an edit, it restarts pods. Who may see nothing of the installation reads the same, by the dry run of the edit.
func TestPlanNotHeld(t *testing.T) {
	nothing := prerequisite.Report{Installed: errors.New("the policy is missing")}
	nobody := prerequisite.Report{Controller: errors.New("no controller is ready")}
	unseen := prerequisite.Report{Attendance: errors.New("the heartbeat is forbidden")}
	liveResize := func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{api.ResizeActionAnnotation: "LiveResize"})
	}
	// Any write ends the hold, and one that changes nothing is none.
	asItIs := func(u *unstructured.Unstructured) {
		u.Object = manifest(t, "StatefulSet", "", strings.Replace(larger, "cpu: 1,", `cpu: "1",`, 1)).Object
	}
	labels := func(u *unstructured.Unstructured) {
		asItIs(u)
		u.SetLabels(map[string]string{"team": "shop"})
	}
	for name, tt := range map[string]struct {
		stage  begin
		kind   string
		says   string // the policy that holds
		report prerequisite.Report
		edit   func(*unstructured.Unstructured)
		fails  string
	}{
		"not-installed":            {setOf(1), "StatefulSet", "nothing", nothing, nil, failRestart},
		"no-controller":            {setOf(2), "StatefulSet", "none", nobody, nil, failRestart},
		"no-controller-held":       {heldStage, "StatefulSet", "none", nobody, nil, failRestart},
		"no-controller-held-label": {heldStage, "StatefulSet", "none", nobody, labels, failRestart},
		"no-controller-held-same":  {heldStage, "StatefulSet", "none", nobody, asItIs, ""},
		"no-controller-deployment": {deploymentOf(2), "Deployment", "none", nobody, nil, failRestart},
		"no-controller-daemonset":  {daemonSetOf(2), "DaemonSet", "none", nobody, nil, failRestart},
		"no-controller-live-only":  {setOf(1), "StatefulSet", "waits", nobody, liveResize, ""},
		"controller-shown":         {setOf(1), "StatefulSet", "", unseen, nil, ""},
		"controller-unseen":        {setOf(1), "StatefulSet", "forbidden", unseen, nil, failUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			m := manifest(t, tt.kind, "", "requests: {cpu: 300m, memory: 100Mi}, limits: {cpu: 1, memory: 1Gi}")
			if tt.edit != nil {
				tt.edit(m)
			}
			for _, sees := range []prerequisite.Report{tt.report, unseen} {
				begins := changed(tt.stage, func(s *stage) { s.says, s.report = tt.says, sees })
				var o planOptions
				out, _ := planned(t, begins(t), m, o)
				golden.Assert(t, "plan-"+name+".txt", out)
				for _, o.failOn = range [][]string{{failRestart}, {failUnknown}} {
					if _, code := planned(t, begins(t), m, o); (code == 3) != (o.failOn[0] == tt.fails) {
						t.Errorf("--fail-on=%s ended with %d", o.failOn, code)
					}
				}
			}
		})
	}
}

// What holds edits in a namespace, and the controller's defaults there, are read once, for however many workloads.
func TestPlanReadsTheInstallationOnce(t *testing.T) {
	reads := func(workloads int) int {
		s := newSetStage(t, 1)
		o := planOptions{cluster: s.cluster(t)}
		o.reports = nil
		live := s.live(t)
		must.Do(t, o.runEdits(t.Context(), io.Discard, slices.Repeat([]edit{{live: live, after: live}}, workloads)))
		return build.Count(o.client.(*fake.Clientset).Actions(), func(a clienttesting.Action) bool { return a.GetResource().Resource == "serviceaccounts" })
	}
	if one, two := reads(1), reads(2); one == 0 || one != two {
		t.Errorf("ServiceAccounts were read %d times for one workload, and %d times for two", one, two)
	}
}

// What is missing is said of the namespaces of the manifests.
func TestPlanWarns(t *testing.T) {
	s := newSetStage(t, 1)
	o := planOptions{cluster: s.cluster(t)}
	o.namespace, o.reports = "mine", memo[prerequisite.Report]{"default": {Installed: errors.New("it is not installed")}, "mine": {}}
	o.files.Filenames = []string{filepath.Join(t.TempDir(), "edit.yaml")}
	must.Do(t, os.WriteFile(o.files.Filenames[0], must.Get(yaml.Marshal(manifest(t, "StatefulSet", "", larger)))(t), 0o600))
	var warnings bytes.Buffer
	must.Do(t, o.run(t.Context(), io.Discard, &warnings, nil))
	must.Equal(t, warnings.String(), "Warning: pods are not resized in place, because\nit is not installed\n", "the warnings")
}

// Whoever may not see the nodes, or not all pods, is told the rest.
func TestPlanWithoutRights(t *testing.T) {
	for name, forbidden := range map[string]func(clienttesting.Action) bool{
		"nodes":     func(a clienttesting.Action) bool { return a.GetResource().Resource == "nodes" },
		"pods":      func(a clienttesting.Action) bool { return a.GetResource().Resource == "pods" && a.GetNamespace() == "" },
		"namespace": func(a clienttesting.Action) bool { return a.GetNamespace() == "" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetStage(t, 2)
			o := planOptions{cluster: s.cluster(t)}
			o.client.(*fake.Clientset).PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
				return forbidden(a), nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("no right"))
			})
			after := must.Get(newEdit(t.Context(), s.live(t), manifest(t, "StatefulSet", "", larger), ""))(t).sent
			var out bytes.Buffer
			must.Do(t, o.runEdits(t.Context(), &out, []edit{{live: s.live(t), after: after}}))
			golden.Assert(t, "plan-without-"+name+".txt", out.Bytes())
			// What one workload would need to know, another may not need.
			o.output = "json"
			out.Reset()
			none := s.live(t)
			must.Do(t, unstructured.SetNestedField(none.Object, int64(0), "spec", "replicas"))
			must.Do(t, o.runEdits(t.Context(), &out, []edit{{live: s.live(t), after: after}, {live: s.live(t), after: none}}))
			if says := strings.Count(out.String(), "whether nodes have room"); (says == 2) != (name != "pods") {
				t.Errorf("of two workloads, one of which is left without pods, it says %d times that the room is unknown", says)
			}
		})
	}
}

// What the API server does not take is no plan, and its words are told.
func TestPlanRefused(t *testing.T) {
	of := schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	for _, tt := range []struct {
		what    string
		answer  error
		err     string
		unknown string
	}{
		{"it is taken", nil, "", ""},
		{"the template is invalid", apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "web", field.ErrorList{
			field.Invalid(field.NewPath("spec"), "200m", "must be less than or equal to cpu limit of 100m"),
		}), "the API server refuses the edit: StatefulSet.apps \"web\" is invalid: spec: Invalid value: \"200m\": must be less than or equal to cpu limit of 100m", ""},
		{"a policy refuses it", apierrors.NewForbidden(of, "web", errors.New("denied request: no")), "the API server refuses the edit: statefulsets.apps \"web\" is forbidden: denied request: no", ""},
		{"a webhook denies it", apierrors.NewBadRequest(`admission webhook "w" denied the request: no`), "the API server refuses the edit: admission webhook \"w\" denied the request: no", ""},
		{"whoever asks may not edit", apierrors.NewForbidden(of, "web", errors.New(`User "me" cannot update resource "statefulsets" in API group "apps"`)), "",
			"It is unknown whether the API server takes the edit: its dry run needs the right to update it.\n"},
		{"a webhook takes no dry run", apierrors.NewBadRequest("webhook w does not support dry run"), "",
			"It is unknown whether the API server takes the edit: webhook w does not support dry run.\n"},
	} {
		s := newSetStage(t, 1)
		o := planOptions{cluster: s.cluster(t)}
		o.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("update", "statefulsets", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if dry := a.(clienttesting.UpdateActionImpl).UpdateOptions.DryRun; len(dry) != 1 {
				t.Errorf("%s: it writes", tt.what)
			}
			return true, s.live(t), tt.answer
		})
		e := must.Get(newEdit(t.Context(), s.live(t), manifest(t, "StatefulSet", "", larger), ""))(t)
		var out bytes.Buffer
		said := ""
		if err := o.runEdits(t.Context(), &out, []edit{e}); err != nil {
			said = err.Error()
		}
		if said != tt.err || !strings.HasSuffix(out.String(), tt.unknown) || strings.Contains(out.String(), "unknown") != (tt.unknown != "") {
			t.Errorf("%s: %q, and\n%s", tt.what, said, &out)
		}
	}
}

func TestSettingsOfAnEdit(t *testing.T) {
	live := manifest(t, "StatefulSet", "", size)
	live.SetLabels(map[string]string{api.EnabledLabel: "true"})
	live.SetAnnotations(map[string]string{api.InForceAnnotation: "LiveResize;", api.ResizeActionAnnotation: "Restart"})
	for _, tt := range []struct {
		what  string
		after func(*unstructured.Unstructured)
		live  func(*unstructured.Unstructured)
		want  string
	}{
		{"the template is the same, so what is in force stays", func(*unstructured.Unstructured) {}, nil, "LiveResize"},
		{"spelled in another way it is the same", func(u *unstructured.Unstructured) {
			u.Object["spec"] = manifest(t, "StatefulSet", "", strings.ReplaceAll(size, "cpu: 1,", "cpu: 1000m,")).Object["spec"]
		}, nil, "LiveResize"},
		{"in another unit it is an edit", func(u *unstructured.Unstructured) {
			u.Object["spec"] = manifest(t, "StatefulSet", "", strings.ReplaceAll(size, "memory: 1Gi", "memory: 1073741824")).Object["spec"]
		}, nil, "Restart"},
		{"an edit brings its own", func(u *unstructured.Unstructured) {
			u.Object["spec"] = manifest(t, "StatefulSet", "", larger).Object["spec"]
		}, nil, "Restart"},
		{"so does the opt-in", func(*unstructured.Unstructured) {}, func(u *unstructured.Unstructured) { u.SetLabels(nil) }, "Restart"},
	} {
		before, after := live.DeepCopy(), live.DeepCopy()
		tt.after(after)
		if tt.live != nil {
			tt.live(before)
		}
		settings := must.Get(edit{live: before, after: after}.settings())(t)
		must.Equal(t, string(settings.Action), tt.want, "%s: action", tt.what)
	}
}

// resourcesOf are those of the first container.
func resourcesOf(u *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	return fmt.Sprint(containers[0].(map[string]any)["resources"])
}

func TestEdited(t *testing.T) {
	stored := manifest(t, "StatefulSet", "updateStrategy: {type: OnDelete}\n  replicas: 3", size)
	stored.SetUID("uid")
	stored.SetResourceVersion("7")
	stored.Object["status"] = map[string]any{"replicas": int64(3)}
	field := func(u *unstructured.Unstructured, path ...string) string {
		value, found, err := unstructured.NestedFieldNoCopy(u.Object, path...)
		if err != nil || !found {
			return fmt.Sprint("none ", err)
		}
		return fmt.Sprint(value)
	}
	applied := func(t *testing.T, last *unstructured.Unstructured) *unstructured.Unstructured {
		t.Helper()
		last.SetAnnotations(map[string]string{}) // as kubectl has it
		text := must.Get(last.MarshalJSON())(t)
		live := stored.DeepCopy()
		live.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: string(text), "theirs": "stays"})
		return live
	}
	const (
		requests = "requests: {cpu: 200m, memory: 100Mi}"
		all      = "map[limits:map[cpu:1 memory:1Gi] requests:map[cpu:200m memory:100Mi]]"
		some     = "map[requests:map[cpu:200m memory:100Mi]]"
	)
	whole := manifest(t, "StatefulSet", "", requests)
	whole.SetResourceVersion("5")
	for _, tt := range []struct {
		what           string
		live, manifest *unstructured.Unstructured
		resources      string
		fields         map[string]string
	}{
		{"apply keeps what the manifest never named", applied(t, manifest(t, "StatefulSet", "", size)), manifest(t, "StatefulSet", "", larger), all, map[string]string{
			"spec replicas": "3", "metadata annotations theirs": "stays", "metadata resourceVersion": "7", "status": "map[replicas:3]",
		}},
		{"apply removes what the manifest named before", applied(t, manifest(t, "StatefulSet", "updateStrategy: {type: OnDelete}\n  replicas: 3", size)), manifest(t, "StatefulSet", "", requests), some, map[string]string{
			"spec replicas": "none <nil>", "spec updateStrategy": "map[type:RollingUpdate]", // which the API server fills in
		}},
		{"without a last applied manifest nothing is removed", stored, manifest(t, "StatefulSet", "", requests), all, nil},
		{"a whole object replaces the other", stored, whole, some, map[string]string{"spec replicas": "none <nil>", "metadata uid": "uid", "status": "map[replicas:3]"}},
	} {
		after := must.Get(newEdit(t.Context(), tt.live, tt.manifest, ""))(t).sent
		must.Equal(t, resourcesOf(after), tt.resources, "%s: resources", tt.what)
		for path, want := range tt.fields {
			must.Equal(t, field(after, strings.Fields(path)...), want, "%s: %s", tt.what, path)
		}
	}
}

func TestWishOfAHeldWorkload(t *testing.T) {
	held := func(kind, spec, hold string) *unstructured.Unstructured {
		u := manifest(t, kind, spec, size)
		u.SetAnnotations(map[string]string{api.HoldAnnotation: hold})
		u.SetResourceVersion("7")
		u.SetLabels(map[string]string{api.EnabledLabel: "true"})
		return u
	}
	set := func(partition string) *unstructured.Unstructured {
		return held("StatefulSet", "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: "+partition+"}}", "2")
	}
	deployment := func(paused, hold string) *unstructured.Unstructured {
		return held("Deployment", "paused: "+paused, hold)
	}
	daemons := func(strategy string) *unstructured.Unstructured {
		return held("DaemonSet", "updateStrategy: {"+strategy+"}", "RollingUpdate")
	}
	for _, tt := range []struct {
		what        string
		live, after *unstructured.Unstructured
		want        string
	}{
		{"the held value says nothing", set("2147483647"), set("2147483647"), "2"},
		{"nor does the maximum", set("1"), set("2147483647"), "2"},
		{"another one counts", set("2147483647"), set("1"), "1"},
		{"a pause says nothing", deployment("true", "false"), deployment("true", "false"), "false"},
		{"resuming counts", deployment("true", "true"), deployment("false", "true"), "false"},
		{"OnDelete says nothing", daemons("type: OnDelete, rollingUpdate: {maxUnavailable: 1}"), daemons("type: OnDelete, rollingUpdate: {maxUnavailable: 2}"), "RollingUpdate"},
		{"without rollingUpdate it does", daemons("type: OnDelete, rollingUpdate: {maxUnavailable: 1}"), daemons("type: OnDelete"), ""},
	} {
		tt.after.SetAnnotations(nil) // removing the hold is not up to the user
		e := must.Get(newEdit(t.Context(), tt.live, tt.after, ""))(t)
		must.Equal(t, e.after.GetAnnotations()[api.HoldAnnotation], tt.want, "%s", tt.what)
	}
}

// TestWarnsOfWaiting: where edits wait for a controller, nothing restarts, and it is said all the same that none is there.
func TestWarnsOfWaiting(t *testing.T) {
	waits := prerequisite.Unattended(&metav1.ObjectMeta{Annotations: map[string]string{api.AttendedAnnotation: "false", api.HoldAnnotation: "0", api.InForceAnnotation: ""}})
	c := newSetStage(t, 1).cluster(t)
	c.reports = memo[prerequisite.Report]{"default": {Controller: waits}}
	var warnings bytes.Buffer
	must.Do(t, c.warn(t.Context(), &warnings, "default"))
	must.Equal(t, warnings.String(), "Warning: rollouts wait, because\nno controller is ready: edits stay held until one is. See the log of the Deployment inplace-rollout\n", "the warnings")
}
