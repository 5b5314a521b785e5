//go:build around

package integration

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestResizeRight: with deploy/components/resize-right, who opts in must have the right to
// resize pods. The ClusterRole edit has it not.
func TestResizeRight(t *testing.T) {
	w, d := newWorkload(t, options{Replicas: 1, OptedOut: true}), newDeployment(t, options{Replicas: 1})
	w.allow("mallory", "--clusterrole=edit", "get", "pods")
	d.allow("mallory", "--clusterrole=edit", "get", "pods")
	w.allow("alice", "--clusterrole=edit", "get", "pods")
	w.kubectl("create", "role", "resize", "--resource=pods/resize", "--verb=patch")
	w.allow("alice", "--role=resize", "patch", "pods/resize")
	optIn := func(user string) error {
		return w.try(t, "--as="+user, "label", "--overwrite", w.ref, enabled+"=true", "--dry-run=server")
	}
	must.Do(t, optIn("mallory"))
	const want = "mallory cannot patch pods/resize in the namespace "
	component(t, "resize-right", func() bool { return strings.Contains(must.Said(optIn("mallory")), want) })
	fresh := writeFile(t, strings.ReplaceAll(manifest(t, w.namespace, options{Kind: "Deployment"}), "web", "fresh"))
	daemons := writeFile(t, strings.ReplaceAll(manifest(t, w.namespace, options{Kind: "DaemonSet"}), "web", "daemons"))
	for _, file := range []string{fresh, daemons} {
		must.Fails(t, "creating", w.try(t, "--as=mallory", "create", "-f", file), want)
	}
	for _, args := range [][]string{{"create", "-f", fresh, "--dry-run=server"}, {"label", "--overwrite", w.ref, enabled + "=true"}} {
		must.Fails(t, fmt.Sprint(args), w.try(t, append([]string{"--as=alice"}, args...)...), "")
	}
	// What is opted in may be edited, scaled and opted out by all who may edit it.
	for _, args := range [][]string{
		{"set", "resources", d.ref, "--requests=cpu=150m"}, {"scale", d.ref, "--replicas=2"}, {"label", "--overwrite", d.ref, enabled + "=false"},
	} {
		must.Fails(t, fmt.Sprint(args), d.try(t, append([]string{"--as=mallory"}, args...)...), "")
	}
}

// TestFenceOwners: with deploy/components/fence-owners, the controller's ServiceAccount may
// touch nothing of workloads that are not opted in, and the controller does all that it does.
func TestFenceOwners(t *testing.T) {
	w := newWorkload(t, options{})
	d := newDeployment(t, options{Replicas: 2, Spec: "strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}"})
	out := options{Replicas: 1, OptedOut: true}
	w.apply(strings.ReplaceAll(manifest(t, w.namespace, out), "web", "out"))
	out.Kind = "Deployment"
	d.apply(strings.ReplaceAll(manifest(t, d.namespace, out), "web", "out"))
	w.kubectl("wait", "--for=condition=Ready", "pod/out-0", "--timeout="+patience.String())
	d.kubectl("wait", "--for=condition=Available", "deployment/out", "--timeout="+patience.String())
	ds := newDaemonSet(t, options{Replicas: 1})
	out.Kind = "DaemonSet"
	ds.apply(strings.ReplaceAll(manifest(t, ds.namespace, out), "web", "out"))
	ds.kubectl("rollout", "status", "daemonset/out", "--timeout="+patience.String())
	w.unchecked, d.unchecked, ds.unchecked = true, true, true // the ServiceAccount does what the controller never does
	s, of, ofNodes := takeOver(t, w.namespace), takeOver(t, d.namespace), takeOver(t, ds.namespace)
	daemon, otherDaemon := ds.on(1), podsOf(t, ds.namespace, "app=out")[0]
	outside := podsOf(t, d.namespace, "app=out")[0]
	outsideSet := metav1.GetControllerOf(&outside).Name
	inside, live := d.pods()[d.names()[0]], d.active()
	const ofSet, ofDeployment, ofDaemonSet = "pods of a StatefulSet that is not opted in", "pods of a Deployment that is not opted in", "pods of a DaemonSet that is not opted in"
	annotate := of.patches("replicaset/"+outsideSet, `{"metadata":{"annotations":{"a":"b"}}}`)
	const ofReplicaSet = "ReplicaSets of a Deployment that is not opted in"
	// The API server takes up each policy, and the workloads that it asks about, by itself.
	component(t, "fence-owners", func() bool {
		return strings.Contains(must.Said(s.remove("out-0", nil)), ofSet) && strings.Contains(must.Said(of.evict(&outside)), ofDeployment) &&
			strings.Contains(must.Said(ofNodes.remove(otherDaemon.Name, nil)), ofDaemonSet) && strings.Contains(must.Said(annotate()), ofReplicaSet)
	})
	for _, tt := range []struct {
		name string
		do   func() error
		want string // of the answer; empty if it is to be let through
	}{
		{"resizing a set's pod", s.patches("pod/web-0", bigger, "resize"), ""},
		{"relabelling one", s.patches("pod/web-0", label("controller-revision-hash", "web-1")), ""},
		{"deleting one", func() error { return s.remove("web-0", nil) }, ""},
		{"resizing another set's pod", s.patches("pod/out-0", bigger, "resize"), ofSet},
		{"relabelling one of it", s.patches("pod/out-0", label("controller-revision-hash", "out-1")), ofSet},
		{"resizing a Deployment's pod", of.patches("pod/"+inside.Name, bigger, "resize"), ""},
		{"evicting one", func() error { return of.evict(&inside) }, ""},
		{"resizing another Deployment's pod", of.patches("pod/"+outside.Name, bigger, "resize"), ofDeployment},
		{"resizing a DaemonSet's pod", ofNodes.patches("pod/"+daemon.Name, bigger, "resize"), ""},
		{"deleting one of it", func() error { return ofNodes.remove(daemon.Name, nil) }, ""},
		{"resizing another DaemonSet's pod", ofNodes.patches("pod/"+otherDaemon.Name, bigger, "resize"), ofDaemonSet},
		{"another Deployment's ReplicaSet", annotate, ofReplicaSet},
		{"a ReplicaSet of another size", of.histories(live, func(rs *appsv1.ReplicaSet) {
			rs.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("90m")
		}), ""},
		{"a ReplicaSet of another image", of.histories(live, func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Spec.Containers[0].Image = "evil" }), "but for cpu and memory"},
		{"a ReplicaSet that mounts a Secret", of.histories(live, func(rs *appsv1.ReplicaSet) {
			rs.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "stolen", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "stolen"}}}}
		}), "but for cpu and memory"},
		{"a ReplicaSet with a container more", of.histories(live, func(rs *appsv1.ReplicaSet) {
			rs.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "evil", Image: "evil"}}
		}), "but for cpu and memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := must.Said(tt.do()); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	w.ownController(t, controller.Options{})
	d.ownController(t, controller.Options{})
	ds.ownController(t, controller.Options{})
	before, daemons := d.uids(), ds.uids()
	ds.setResources("cpu=150m", "")
	d.annotatePod(inside.Name, simInfeasible) // it is detached, evicted, and replaced
	w.setResources("cpu=150m", "")
	d.edit("150m")
	w.waitComplete()
	w.assertMoved(0)
	d.assertReplaced(before, inside.Name)
	d.assertSettled("150m")
	d.assertReplicaSets(2)
	ds.waitComplete()
	ds.assertMoved(daemons, "150m")
	// A label of now counts.
	w.kubectl("label", "statefulset/out", "--overwrite", enabled+"=true")
	eventually(t, "the opt-in to be known to the policy", func() (bool, string) {
		err := s.patch("pod/out-0", bigger, "resize")
		return err == nil, must.Said(err)
	})
}
