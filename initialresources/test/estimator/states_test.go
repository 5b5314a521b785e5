//go:build around

package estimator

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/prometheus"
)

// TestStateMetrics: what initialresources/history asks for has the names and labels that the real kube-state-metrics gives.
func TestStateMetrics(t *testing.T) {
	t.Parallel()
	states := must.Get(prometheus.StartStateMetrics(t.Context(), t.TempDir(), filepath.Join(cp.Dir(), "kubeconfig")))(t)
	t.Cleanup(states.Stop)
	pods := client.CoreV1().Pods("default")
	pod := must.Get(pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "states"},
		Spec: corev1.PodSpec{
			SchedulerName:  "nobody",
			InitContainers: []corev1.Container{{Name: "copy", Image: "copy"}},
			Containers:     []corev1.Container{{Name: "web", Image: "web:1"}, {Name: "job", Image: "job:1"}},
		},
	}, metav1.CreateOptions{}))(t)
	killed := &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.Unix(1000, 0)}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "copy", Image: "sha256:0", ContainerID: "containerd://c"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "web", Image: "docker.io/library/web:2", ContainerID: "containerd://w", RestartCount: 2, LastTerminationState: corev1.ContainerState{Terminated: killed}},
		{Name: "job", State: corev1.ContainerState{Terminated: killed}},
	}
	must.Get(pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}))(t)
	ofPod := regexp.MustCompile(`(?m)^.*pod="states".*$`)
	for _, line := range []string{
		`kube_pod_container_info\{namespace="default",pod="states",uid="[^"]*",container="web",image_spec="web:1",image="docker.io/library/web:2",.*\} 1`,
		`kube_pod_init_container_info\{namespace="default",pod="states",uid="[^"]*",container="copy",.*image_spec="copy",.*\} 1`,
		`kube_pod_container_status_restarts_total\{namespace="default",pod="states",uid="[^"]*",container="web"\} 2`,
		`kube_pod_container_status_last_terminated_reason\{namespace="default",pod="states",uid="[^"]*",container="web",reason="OOMKilled"\} 1`,
		`kube_pod_container_status_terminated_reason\{namespace="default",pod="states",uid="[^"]*",container="job",reason="OOMKilled"\} 1`,
		`kube_pod_completion_time\{namespace="default",pod="states",uid="[^"]*"\} 1000`,
	} {
		said := regexp.MustCompile(`(?m)^` + line + `$`)
		eventually(t, "kube-state-metrics to say "+line, func() (bool, string) {
			response, err := http.Get(states.URL() + "/metrics")
			if err != nil {
				return false, err.Error()
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			return err == nil && said.Match(text), fmt.Sprintf("%q", ofPod.FindAll(text, -1))
		})
	}
}
