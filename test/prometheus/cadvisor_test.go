//go:build around

package prometheus_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/inplace-rollout/inplace-rollout/test/prometheus"
)

// TestCAdvisor: names and labels are those of cAdvisor.
func TestCAdvisor(t *testing.T) {
	t.Parallel()
	end := metav1.Unix(1000, 0)
	killed := &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: end}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "copy", Image: "copy"}},
			Containers:     []corev1.Container{{Name: "web", Image: "web:1"}, {Name: "job", Image: "job:1"}},
		},
		Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "copy", Image: "sha256:0", ContainerID: "containerd://c"}},
			ContainerStatuses: []corev1.ContainerStatus{
				{
					Name: "web", Image: "docker.io/library/web:1", ImageID: "web@sha256:1", ContainerID: "containerd://w", RestartCount: 2,
					State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: corev1.ContainerState{Terminated: killed},
				},
				{Name: "job", State: corev1.ContainerState{Terminated: killed}},
			},
		},
	}
	cadvisor, err := prometheus.ServeCAdvisor(fake.NewClientset(pod), func(image string, _ time.Time) (cores, bytes float64) {
		if image != "web:1" {
			t.Errorf("asked what %s uses", image)
		}
		return 2, 1000
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cadvisor.Close()
	scrape := func() string {
		response, err := http.Get("http://" + cadvisor.Address() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	said := scrape()
	for _, line := range []string{
		`container_cpu_usage_seconds_total{container="web",cpu="total",id="/kubepods/podu/w",image="docker.io/library/web:1",name="w",namespace="shop",pod="web"} 0`,
		`container_memory_working_set_bytes{container="web",id="/kubepods/podu/w",image="docker.io/library/web:1",name="w",namespace="shop",pod="web"} 1000`,
	} {
		if !strings.Contains(said, "\n"+line+"\n") {
			t.Errorf("it does not say %s", line)
		}
	}
	if strings.Contains(scrape(), "\ncontainer_cpu_usage_seconds_total{"+`container="web",cpu="total",id="/kubepods/podu/w",image="docker.io/library/web:1",name="w",namespace="shop",pod="web"} 0`+"\n") {
		t.Error("it uses no cpu")
	}
	if t.Failed() {
		t.Log(said)
	}
}
