//go:build integration

package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestWorkloads has the built-in controllers make pods.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	must.Do(t, cp.AddNode(t.Context(), "node", controlplane.Node{CPU: "10", Memory: "10Gi"}))
	n := namespace{name: "workloads", label: "enabled", table: known}
	must.Do(t, n.create(t.Context()))
	const pods = `{metadata: {labels: {app: %[1]s}}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: app, image: "web:1"}]}}`
	const text = `apiVersion: apps/v1
kind: %[2]s
metadata: {name: %[1]s}
spec: {selector: {matchLabels: {app: %[1]s}}, template: ` + pods + `}
`
	for _, tt := range []struct{ kind, text, requests, says string }{
		{"Deployment", text, "app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag)"},
		{"StatefulSet", text, "app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag)"},
		{"DaemonSet", text, "app", ""},
		{"Job", `apiVersion: batch/v1
kind: %[2]s
metadata: {name: %[1]s}
spec: {template: {metadata: {labels: {app: %[1]s}}, spec: {restartPolicy: Never, containers: [{name: app, image: "web:1"}]}}}
`, "app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag)"},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			name := strings.ToLower(tt.kind)
			must.Do(t, kubectl(t, fmt.Sprintf(tt.text, name, tt.kind), "apply", "--namespace", n.name))
			var pod corev1.Pod
			must.Do(t, await(t.Context(), func() error {
				pods, err := client.CoreV1().Pods(n.name).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
				if err != nil {
					return err
				}
				if len(pods.Items) != 1 {
					return fmt.Errorf("there are %d pods", len(pods.Items))
				}
				pod = pods.Items[0]
				return nil
			}))
			check(t, &pod, tt.requests, tt.says)
		})
	}
}

// TestTable has the table change, and go.
func TestTable(t *testing.T) {
	t.Parallel()
	n := namespace{name: "table", label: "enabled", table: known}
	must.Do(t, n.create(t.Context()))
	create := func(image string) *corev1.Pod {
		t.Helper()
		pod := must.Get(newPod(`spec: {containers: [{name: app, image: "` + image + `"}]}`))(t)
		return must.Get(client.CoreV1().Pods(n.name).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	}
	must.Do(t, publish(t.Context(), n.name, table(known, entries("web:1", "130m", ""))))
	check(t, create("web:1"), "app cpu=130m memory=300Mi", "app cpu=130m(image:tag) memory=300Mi(image:tag)")
	check(t, create("new:1"), "app", "")

	must.Do(t, client.CoreV1().ConfigMaps(n.name).Delete(t.Context(), api.EstimatesName, metav1.DeleteOptions{}))
	if err := await(t.Context(), func() error {
		if pod := create("web:1"); requests(pod) != "app" {
			return fmt.Errorf("the containers request %s", requests(pod))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestLater changes pods that are there: nothing is estimated then.
func TestLater(t *testing.T) {
	t.Parallel()
	pod := must.Get(newPod(`spec: {containers: [{name: app, image: "web:1"}, {name: own, image: "web:1", resources: {requests: {cpu: 5m, memory: 5Mi}}}, {name: new, image: "new:1"}]}`))(t)
	n := namespace{name: "later", label: "enabled", table: known}
	must.Do(t, n.create(t.Context()))
	pods := client.CoreV1().Pods(n.name)
	pod = must.Get(pods.Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	const said = "app cpu=120m(image:tag) memory=300Mi(image:tag)"
	check(t, pod, "app cpu=120m memory=300Mi; own cpu=5m memory=5Mi; new", said)

	pod.Annotations[api.InitialResourcesLabel] = "always"
	pod.Spec.Containers[2].Image = "web:1"
	pod = must.Get(pods.Update(t.Context(), pod, metav1.UpdateOptions{}))(t)
	check(t, pod, "app cpu=120m memory=300Mi; own cpu=5m memory=5Mi; new", said)

	pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("77m")
	pod = must.Get(pods.UpdateResize(t.Context(), pod.Name, pod, metav1.UpdateOptions{}))(t)
	check(t, pod, "app cpu=77m memory=300Mi; own cpu=5m memory=5Mi; new", said)
}
