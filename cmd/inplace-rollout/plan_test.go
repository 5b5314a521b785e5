package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/golden"
)

// planned runs plan on the manifest, and returns what it printed and its exit code.
func planned(t *testing.T, s *stage, m *unstructured.Unstructured, o planOptions) ([]byte, int) {
	t.Helper()
	text, err := yaml.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "edit.yaml")
	o.files.Filenames = []string{file}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	o.cluster = s.cluster(t)
	if o.resizePolicy == "" {
		o.resizePolicy = "LiveResizeable"
	}
	var out bytes.Buffer
	err = o.run(t.Context(), &out, nil)
	if code := exitCode(err); code == 1 {
		t.Fatal(err)
	}
	return out.Bytes(), exitCode(err)
}

func TestPlan(t *testing.T) {
	onDelete := "updateStrategy: {type: OnDelete, rollingUpdate: null}"
	for name, tt := range map[string]struct {
		stage func(*testing.T) *stage
		edit  func(*testing.T) *unstructured.Unstructured
		set   planOptions
		code  int // with --fail-on-restart
	}{
		"live": {edit: func(t *testing.T) *unstructured.Unstructured { return manifest(t, "StatefulSet", "", larger) }},
		"min-ready-seconds": {edit: func(t *testing.T) *unstructured.Unstructured {
			return manifest(t, "StatefulSet", "minReadySeconds: 40", larger)
		}},
		"known-faults": {
			stage: func(t *testing.T) *stage {
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
			},
			edit: func(t *testing.T) *unstructured.Unstructured {
				return manifest(t, "StatefulSet", "", "requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 2Gi}")
			}},
		"many": {code: 3,
			stage: func(t *testing.T) *stage {
				s := newSetStage(t, 24)
				s.nodes = nil
				for i, pod := range s.pods {
					pod.Spec.NodeName = fmt.Sprintf("node-%d", i)
					cpu := "4"
					if i%8 == 0 {
						cpu = fmt.Sprintf("15%dm", i)
					}
					s.nodes = append(s.nodes, node(pod.Spec.NodeName, cpu))
				}
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured { return manifest(t, "StatefulSet", "", larger) }},
		"from-zero": { // nothing is held where there is no pod
			stage: func(t *testing.T) *stage { return newSetStage(t, 0) },
			edit: func(t *testing.T) *unstructured.Unstructured {
				m := manifest(t, "StatefulSet", "replicas: 3", larger)
				m.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["image"] = "app:2"
				return m
			}},
		"daemonset": {
			stage: func(t *testing.T) *stage { return newDaemonSetStage(t, 3) },
			edit:  func(t *testing.T) *unstructured.Unstructured { return manifest(t, "DaemonSet", "", larger) }},
		"daemonset-node-too-small": {
			stage: func(t *testing.T) *stage {
				s := newDaemonSetStage(t, 24)
				for i := range 7 {
					s.nodes[3*i] = node(s.nodes[3*i].Name, "150m")
				}
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured { return manifest(t, "DaemonSet", "", larger) }},
		"daemonset-held": {
			stage: func(t *testing.T) *stage {
				s := newDaemonSetStage(t, 3)
				s.heldDaemonsAt(t, larger)
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured { return manifest(t, "DaemonSet", "", size) }},
		"daemonset-held-to-ondelete": {code: 3,
			stage: func(t *testing.T) *stage {
				s := newDaemonSetStage(t, 3)
				s.heldDaemonsAt(t, larger)
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured {
				m := manifest(t, "DaemonSet", onDelete, larger)
				m.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["image"] = "app:2"
				return m
			}},
		"daemonset-new": {
			stage: func(t *testing.T) *stage {
				s := newDaemonSetStage(t, 2)
				s.daemons.Name = "other"
				for _, pod := range s.pods {
					pod.OwnerReferences = nil // as after a deletion with --cascade=orphan
				}
				s.others[0].(*appsv1.ControllerRevision).OwnerReferences = nil
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured {
				m := manifest(t, "DaemonSet", "selector: {matchLabels: {app: web}}", larger)
				m.SetLabels(map[string]string{api.EnabledLabel: "true"})
				if err := unstructured.SetNestedField(m.Object, "web", "spec", "template", "metadata", "labels", "app"); err != nil {
					t.Fatal(err)
				}
				return m
			}},
		"deployment-new": {code: 3, // nobody can hold a new one
			stage: func(t *testing.T) *stage {
				s := newDeploymentStage(t, 2)
				s.deploy.Name = "other"
				s.others[0].(*appsv1.ReplicaSet).OwnerReferences = nil // as after a deletion with --cascade=orphan
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured {
				m := manifest(t, "Deployment", "selector: {matchLabels: {app: web}}", larger)
				m.SetLabels(map[string]string{api.EnabledLabel: "true"})
				if err := unstructured.SetNestedField(m.Object, "web", "spec", "template", "metadata", "labels", "app"); err != nil {
					t.Fatal(err)
				}
				return m
			}},
		"daemonset-not-opted-in": {code: 3,
			stage: func(t *testing.T) *stage {
				s := newDaemonSetStage(t, 2)
				s.daemons.Labels = nil
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured { return manifest(t, "DaemonSet", "", larger) }},
		"daemonset-image": {code: 3,
			stage: func(t *testing.T) *stage { return newDaemonSetStage(t, 3) },
			edit: func(t *testing.T) *unstructured.Unstructured {
				m := manifest(t, "DaemonSet", "", larger)
				m.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["image"] = "app:2"
				return m
			}},
		"partition": {edit: func(t *testing.T) *unstructured.Unstructured {
			return manifest(t, "StatefulSet", "updateStrategy: {rollingUpdate: {partition: 2}}", larger)
		}},
		"ondelete": {code: 3, edit: func(t *testing.T) *unstructured.Unstructured {
			m := manifest(t, "StatefulSet", onDelete, larger)
			m.SetAnnotations(map[string]string{api.ResizePolicyAnnotation: "cpu=RestartOnly"})
			return m
		}},
		"restart-only-by-flag": {code: 3, set: planOptions{resizePolicy: "RestartOnly"},
			edit: func(t *testing.T) *unstructured.Unstructured { return manifest(t, "StatefulSet", "", larger) }},
		"live-only-and-impossible": {edit: func(t *testing.T) *unstructured.Unstructured {
			m := manifest(t, "StatefulSet", "", "requests: {cpu: 1, memory: 1Gi}")
			m.SetAnnotations(map[string]string{api.ResizeActionAnnotation: "LiveResize"})
			return m
		}},
		"not-opted-in": {code: 3,
			stage: func(t *testing.T) *stage {
				s := newSetStage(t, 3)
				s.set.Labels = nil
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured {
				return manifest(t, "StatefulSet", "updateStrategy: {rollingUpdate: {partition: 1}}", larger)
			}},
		"recreate": {code: 3,
			stage: func(t *testing.T) *stage {
				s := newSetStage(t, 2)
				s.set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: "Recreate"}
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured {
				return manifest(t, "StatefulSet", "updateStrategy: {type: Recreate}", larger)
			}},
		"bad-label": {code: 3,
			stage: func(t *testing.T) *stage {
				s := newSetStage(t, 1)
				s.set.Labels = map[string]string{api.EnabledLabel: "yes"}
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured {
				m := manifest(t, "StatefulSet", "", larger)
				m.SetLabels(map[string]string{api.EnabledLabel: "yes"})
				return m
			}},
		"not-opted-in-ondelete": {code: 3,
			stage: func(t *testing.T) *stage {
				s := newSetStage(t, 2)
				s.set.Labels = nil
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured { return manifest(t, "StatefulSet", onDelete, larger) }},
		"image": {code: 3, edit: func(t *testing.T) *unstructured.Unstructured {
			m := manifest(t, "StatefulSet", "", larger)
			containers := m.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
			containers[0].(map[string]any)["image"] = "app:2"
			return m
		}},
		"nothing": {edit: func(t *testing.T) *unstructured.Unstructured { return manifest(t, "StatefulSet", "", size) }},
		"new": {edit: func(t *testing.T) *unstructured.Unstructured {
			m := manifest(t, "StatefulSet", "", size)
			m.SetName("other")
			return m
		}},
		"container-restart": {code: 3,
			stage: func(t *testing.T) *stage {
				s := newSetStage(t, 2)
				policy := []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
				s.set.Spec.Template.Spec.Containers[0].ResizePolicy = policy
				s.others = nil
				s.revision(t, "web-a", &s.set.Spec.Template)
				for _, pod := range s.pods {
					pod.Spec.Containers[0].ResizePolicy = policy
				}
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured { return manifest(t, "StatefulSet", "", larger) }},
		// Two go, and nobody is to read that nothing does.
		"scaled-in": {edit: func(t *testing.T) *unstructured.Unstructured {
			return manifest(t, "StatefulSet", "replicas: 1", larger)
		}},
		"deployment-scaled-in": {
			stage: func(t *testing.T) *stage { return newDeploymentStage(t, 3) },
			edit:  func(t *testing.T) *unstructured.Unstructured { return manifest(t, "Deployment", "replicas: 2", larger) }},
		"missing": {
			stage: func(t *testing.T) *stage {
				s := newSetStage(t, 3)
				s.pods[2].DeletionTimestamp = ptr.To(s.pods[2].Status.Conditions[0].LastTransitionTime)
				s.pods[2].Finalizers = []string{"test/keep"} // the fake refuses deleted objects without
				s.pods = s.pods[1:]
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured { return manifest(t, "StatefulSet", "", larger) }},
		// web-2 is on a node that is too small for ever; of web-1 and web-0 there is room for one.
		"nodes": {code: 3,
			stage: func(t *testing.T) *stage {
				s := newSetStage(t, 3)
				s.nodes = []*corev1.Node{node("node", "1100m"), node("small", "500m")}
				s.pods[2].Spec.NodeName = "small"
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured {
				return manifest(t, "StatefulSet", "", "requests: {cpu: 900m, memory: 50Mi}, limits: {cpu: 1, memory: 1Gi}")
			}},
		"no-node-fits": {edit: func(t *testing.T) *unstructured.Unstructured {
			return manifest(t, "StatefulSet", "", "requests: {cpu: 5, memory: 100Mi}, limits: {cpu: 6, memory: 1Gi}")
		}},
		// The user's partition is what is recorded, and another edit may change it.
		"held": {stage: heldStage, edit: func(t *testing.T) *unstructured.Unstructured {
			return manifest(t, "StatefulSet", "", "requests: {cpu: 300m, memory: 100Mi}, limits: {cpu: 1, memory: 1Gi}")
		}},
		"held-with-a-new-partition": {stage: heldStage, edit: func(t *testing.T) *unstructured.Unstructured {
			return manifest(t, "StatefulSet", "updateStrategy: {rollingUpdate: {partition: 1}}", larger)
		}},
		"deployment": {stage: func(t *testing.T) *stage { return newDeploymentStage(t, 2) },
			edit: func(t *testing.T) *unstructured.Unstructured { return manifest(t, "Deployment", "", larger) }},
		"deployment-paused": {stage: func(t *testing.T) *stage { return newDeploymentStage(t, 2) },
			edit: func(t *testing.T) *unstructured.Unstructured {
				return manifest(t, "Deployment", "paused: true", larger)
			}},
		"deployment-handed-over": {code: 3, stage: func(t *testing.T) *stage { return newDeploymentStage(t, 2) },
			edit: func(t *testing.T) *unstructured.Unstructured {
				m := manifest(t, "Deployment", "", larger)
				m.SetAnnotations(map[string]string{api.ResizeActionAnnotation: "Restart"})
				return m
			}},
		"deployment-two-replicasets": {code: 3,
			stage: func(t *testing.T) *stage {
				s := newDeploymentStage(t, 2)
				s.replicaSet(t, "web-old", "0", "requests: {cpu: 50m}", 1)
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured { return manifest(t, "Deployment", "", larger) }},
		"deployment-not-opted-in": {code: 3,
			stage: func(t *testing.T) *stage {
				s := newDeploymentStage(t, 2)
				s.deploy.Labels = nil
				return s
			},
			edit: func(t *testing.T) *unstructured.Unstructured { return manifest(t, "Deployment", "", larger) }},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.stage == nil {
				tt.stage = func(t *testing.T) *stage { return newSetStage(t, 3) }
			}
			out, code := planned(t, tt.stage(t), tt.edit(t), tt.set)
			golden.Assert(t, "plan-"+name+".txt", out)
			if code != 0 {
				t.Errorf("exit code %d without --fail-on-restart", code)
			}
			tt.set.failOnRestart = true
			if _, code := planned(t, tt.stage(t), tt.edit(t), tt.set); code != tt.code {
				t.Errorf("exit code %d with --fail-on-restart, want %d", code, tt.code)
			}
		})
	}
}

// heldStage is held at larger, and web-2 has that size already.
func heldStage(t *testing.T) *stage {
	t.Helper()
	s := newSetStage(t, 3)
	s.heldAt(t, larger)
	build.Resized(&s.set.Spec.Template)(s.pods[2])
	s.pods[2].Labels["controller-revision-hash"] = "web-b"
	return s
}

func TestPlanFormats(t *testing.T) {
	for _, format := range []cli.Format{"json", "yaml"} {
		s := newSetStage(t, 2)
		s.nodes = []*corev1.Node{node("node", "250m")}
		out, _ := planned(t, s, manifest(t, "StatefulSet", "", larger), planOptions{output: format})
		golden.Assert(t, "plan."+string(format), out)
	}
}

// What is to come of a hold is what the edit that began it would do now.
func TestPlanOfTheHold(t *testing.T) {
	o := planOptions{cluster: heldStage(t).cluster(t), resizePolicy: "LiveResizeable"}
	live, err := o.get(t.Context(), manifest(t, "StatefulSet", "", ""))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := o.runEdits(t.Context(), &out, []edit{{live, live}}); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, "plan-hold.txt", out.Bytes())
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
			o := planOptions{cluster: s.cluster(t), resizePolicy: "LiveResizeable"}
			o.client.(*fake.Clientset).PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
				return forbidden(a), nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("no right"))
			})
			after, err := edited(s.live(t), manifest(t, "StatefulSet", "", larger))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := o.runEdits(t.Context(), &out, []edit{{s.live(t), after}}); err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, "plan-without-"+name+".txt", out.Bytes())
		})
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
		settings, err := edit{before, after}.settings()
		if err != nil {
			t.Fatal(err)
		}
		if string(settings.Action) != tt.want {
			t.Errorf("%s: action %q, want %q", tt.what, settings.Action, tt.want)
		}
	}
}

func TestEdited(t *testing.T) {
	stored := manifest(t, "StatefulSet", "replicas: 3", size)
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
	resources := func(u *unstructured.Unstructured) string {
		containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
		return fmt.Sprint(containers[0].(map[string]any)["resources"])
	}
	applied := func(t *testing.T, last *unstructured.Unstructured) *unstructured.Unstructured {
		t.Helper()
		text, err := last.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		live := stored.DeepCopy()
		live.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: string(text), "theirs": "stays"})
		return live
	}
	requests := "requests: {cpu: 200m, memory: 100Mi}"

	t.Run("apply keeps what the manifest never named", func(t *testing.T) {
		after, err := edited(applied(t, manifest(t, "StatefulSet", "", size)), manifest(t, "StatefulSet", "", larger))
		if err != nil {
			t.Fatal(err)
		}
		if got := resources(after); got != "map[limits:map[cpu:1 memory:1Gi] requests:map[cpu:200m memory:100Mi]]" {
			t.Errorf("resources %s", got)
		}
		for want, path := range map[string][]string{"3": {"spec", "replicas"}, "stays": {"metadata", "annotations", "theirs"}, "7": {"metadata", "resourceVersion"}, "map[replicas:3]": {"status"}} {
			if got := field(after, path...); got != want {
				t.Errorf("%v is %s, want %s", path, got, want)
			}
		}
	})
	t.Run("apply removes what the manifest named before", func(t *testing.T) {
		after, err := edited(applied(t, manifest(t, "StatefulSet", "replicas: 3", size)), manifest(t, "StatefulSet", "", requests))
		if err != nil {
			t.Fatal(err)
		}
		if got := resources(after); got != "map[requests:map[cpu:200m memory:100Mi]]" {
			t.Errorf("resources %s, want the limit to be gone", got)
		}
		if got := field(after, "spec", "replicas"); got != "none <nil>" {
			t.Errorf("replicas %s, want none", got)
		}
	})
	t.Run("without a last applied manifest nothing is removed", func(t *testing.T) {
		after, err := edited(stored, manifest(t, "StatefulSet", "", requests))
		if err != nil {
			t.Fatal(err)
		}
		if got := resources(after); got != "map[limits:map[cpu:1 memory:1Gi] requests:map[cpu:200m memory:100Mi]]" {
			t.Errorf("resources %s", got)
		}
	})
	t.Run("a whole object replaces the other", func(t *testing.T) {
		whole := manifest(t, "StatefulSet", "", requests)
		whole.SetResourceVersion("5")
		after, err := edited(stored, whole)
		if err != nil {
			t.Fatal(err)
		}
		if got := resources(after); got != "map[requests:map[cpu:200m memory:100Mi]]" {
			t.Errorf("resources %s", got)
		}
		for want, path := range map[string][]string{"none <nil>": {"spec", "replicas"}, "uid": {"metadata", "uid"}, "map[replicas:3]": {"status"}} {
			if got := field(after, path...); got != want {
				t.Errorf("%v is %s, want %s", path, got, want)
			}
		}
	})
}

func TestWishOfAHeldWorkload(t *testing.T) {
	set := func(partition string) *unstructured.Unstructured {
		u := manifest(t, "StatefulSet", "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: "+partition+"}}", size)
		u.SetAnnotations(map[string]string{api.HoldAnnotation: "2"})
		u.SetResourceVersion("7")
		u.SetLabels(map[string]string{api.EnabledLabel: "true"})
		return u
	}
	deployment := func(paused, hold string) *unstructured.Unstructured {
		u := manifest(t, "Deployment", "paused: "+paused, size)
		u.SetAnnotations(map[string]string{api.HoldAnnotation: hold})
		u.SetResourceVersion("7")
		u.SetLabels(map[string]string{api.EnabledLabel: "true"})
		return u
	}
	daemons := func(strategy string) *unstructured.Unstructured {
		u := manifest(t, "DaemonSet", "updateStrategy: {"+strategy+"}", size)
		u.SetAnnotations(map[string]string{api.HoldAnnotation: "RollingUpdate"})
		u.SetResourceVersion("7")
		u.SetLabels(map[string]string{api.EnabledLabel: "true"})
		return u
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
		e, err := newEdit(t.Context(), tt.live, tt.after)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.after.GetAnnotations()[api.HoldAnnotation]; got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
}
