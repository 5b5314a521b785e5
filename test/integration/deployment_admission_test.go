//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// admit has a webhook set the requests of new pods, and waits until it does.
func (d *deployment) admit(cpu, memory string) {
	d.t.Helper()
	webhook.Serve(d.t, client, webhook.Options{
		Namespace: d.namespace, Resources: []string{"pods"}, Mutate: requesting(map[string]string{"cpu": cpu, "memory": memory}),
	})
	eventually(d.t, "the webhook to be asked", func() (bool, string) {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}}
		probe.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *d.get().Spec.Template.Spec.Containers[0].Resources.Requests.Cpu()}
		made, err := client.CoreV1().Pods(d.namespace).Create(d.t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && cpuOf(made.Spec.Containers[0].Resources) == cpu, fmt.Sprint(err)
	})
}

// assertEvictedOnce checks that nobody but the named pod has been evicted, nor is, and that once.
func (d *deployment) assertEvictedOnce(name string) {
	d.t.Helper()
	time.Sleep(3 * time.Second) // nothing is to happen, and nothing tells of it
	if got := only(d.writes(), "create pods/eviction"); !slices.Equal(got, []string{name}) {
		d.t.Errorf("evicted %v, want %s, once", got, name)
	}
}

// TestDeploymentAdmissionMakesGuaranteed: the pod that comes for a restarted one is
// not what its template says, and cannot be: its QoS class is another one. It stays.
func TestDeploymentAdmissionMakesGuaranteed(t *testing.T) {
	parallel(t)
	for name, spec := range map[string]string{"evicted": "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}", "replaced": surge} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			d := newDeployment(t, options{Spec: spec})
			before := d.uids()
			stuck := d.names()[1]
			d.annotatePod(stuck, simInfeasible)
			d.admit("200m", "200Mi") // the limits
			d.markAudit()
			d.edit("150m")
			d.assertEvictedOnce(stuck)
			d.assertReplaced(before, stuck)
			for name, pod := range d.pods() {
				if _, old := before[name]; old {
					d.waitSize(name, "150m")
				} else if pod.Status.QOSClass != corev1.PodQOSGuaranteed {
					t.Errorf("%s is %s, want what admission has made of it", name, pod.Status.QOSClass)
				}
			}
			d.assertReplicaSets(2)

			// The next edit leaves what admission has decided: a new pod would have it, too.
			before = d.uids()
			d.edit("160m")
			d.waitComplete()
			d.assertReplaced(before)
		})
	}
}

// TestDeploymentAdmissionRaisesRequests: the pod that comes for a restarted one finds no
// room, as admission has raised its request. Nothing is given up for it, and the rollout
// is not over before it runs.
func TestDeploymentAdmissionRaisesRequests(t *testing.T) {
	parallel(t)
	addToPool(t, "raised", "raised-0", "1")
	d := newDeployment(t, options{
		Replicas: 2, Spec: "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}",
		Pod: "{nodeSelector: {pool: raised}, tolerations: [{key: pool, operator: Exists}]}", Resources: "{requests: {cpu: 100m}}",
	})
	before := d.uids()
	stuck := d.names()[0]
	d.annotatePod(stuck, simInfeasible)
	d.admit("900m", "1Mi")
	d.markAudit()
	d.setResources("cpu=150m", "")
	d.waitEvent("RestartFallback", stuck+": evicted")
	newcomer := ""
	eventually(t, "the new pod to find no room", func() (bool, string) {
		for name, pod := range d.pods() {
			if before[name] == "" && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable }) {
				newcomer = name
			}
		}
		return newcomer != "", strings.Join(d.names(), " ")
	})
	d.assertEvictedOnce(stuck)
	d.waitCondition("Progressing", newcomer+": waiting for a node")
	if !held(d.get()) {
		t.Error("the rollout is not held, and a pod is not back")
	}
	addToPool(t, "raised", "raised-1", "1")
	d.waitComplete()
	d.assertEvictedOnce(stuck)
	d.assertReplaced(before, stuck)
}
