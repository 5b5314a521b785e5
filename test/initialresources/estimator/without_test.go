//go:build around

package estimator

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// TestWithout: while the estimator, Prometheus or both are gone, pods are created with the last
// estimates. Nobody is asked for them, so there is nobody to wait for: no webhook is there, what
// listens where the estimator and Prometheus were hears nothing, and it takes no longer.
func TestWithout(t *testing.T) {
	if !cp.AtLeast("1.36") {
		t.Skip("there is no MutatingAdmissionPolicy v1")
	}
	namespace(t, "shop", "enabled")
	p := alone(t)
	waitEntry(t, "shop", nginx+"_-1.25.cpu", "200m")
	eventually(t, "a pod with requests", func() (bool, string) { // the API server takes a moment to see the table
		born := bear(t, true)
		return born.estimated(), fmt.Sprint(born.Spec.Containers[0].Resources)
	})
	assertNoWebhooks(t)
	usual := bearMany(t)
	usual.assert(t, "all is there", true)

	t.Cleanup(func() {
		if server.Ended() { // the other tests want it
			if err := server.Restart(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	server.Pause()
	silent := listen(t, server.Address)
	p.Kill()
	p = alone(t) // it has everything to ask
	eventually(t, "the estimator to ask in vain", func() (bool, string) { return silent.heard() > 0, "it does not" })
	bearMany(t).assert(t, "without Prometheus", true, usual)

	p.Kill()
	deaf := listen(t, p.Address())
	asked := silent.heard()
	bearMany(t).assert(t, "without both", true, usual)
	if got := silent.heard() - asked + deaf.heard(); got != 0 {
		t.Errorf("without both, somebody has asked them %d times", got)
	}

	if err := client.CoreV1().ConfigMaps("shop").Delete(t.Context(), api.EstimatesName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a pod without requests", func() (bool, string) {
		born := bear(t, true)
		return !born.estimated(), fmt.Sprint(born.Spec.Containers[0].Resources)
	})
	asked = silent.heard()
	bearMany(t).assert(t, "without both, and without estimates", false, usual)
	if got := silent.heard() - asked + deaf.heard(); got != 0 {
		t.Errorf("without estimates, somebody has asked for them %d times", got)
	}

	silent.close()
	deaf.close()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p = alone(t)
	waitEntry(t, "shop", nginx+"_-1.25.cpu", "200m")
	eventually(t, "a pod with requests", func() (bool, string) {
		born := bear(t, true)
		return born.estimated(), fmt.Sprint(born.Spec.Containers[0].Resources)
	})
	p.Kill()
	deaf = listen(t, p.Address())
	bearMany(t).assert(t, "without the estimator", true, usual)
	if got := deaf.heard(); got != 0 {
		t.Errorf("without the estimator, somebody has asked it %d times", got)
	}
}

// born is a new pod.
type born struct {
	*corev1.Pod

	took time.Duration
}

// estimated reports whether it has the requests that the history of its image says.
func (b born) estimated() bool {
	requests := b.Spec.Containers[0].Resources.Requests
	return requests.Cpu().String() == "200m" && requests.Memory().String() == "65Mi" && strings.Contains(b.Annotations[api.EstimateAnnotation], `"request":"200m"`)
}

// bear creates a pod without requests, which may be one that only would be created.
func bear(t *testing.T, dry bool) born {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "born-", Labels: map[string]string{"born": ""}},
		// It waits for a node in vain, or there would be less and less room.
		Spec: corev1.PodSpec{NodeSelector: map[string]string{"none": ""}, Containers: []corev1.Container{{Name: "app", Image: "nginx:1.25"}}},
	}
	var options metav1.CreateOptions
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	began := time.Now()
	created, err := client.CoreV1().Pods("shop").Create(t.Context(), pod, options)
	if err != nil {
		t.Fatal(err)
	}
	return born{created, time.Since(began)}
}

// generation are pods that were born one after the other.
type generation []born

func bearMany(t *testing.T) generation {
	t.Helper()
	var g generation
	for range 50 {
		g = append(g, bear(t, false))
	}
	if err := client.CoreV1().Pods("shop").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "born"}); err != nil {
		t.Fatal(err)
	}
	return g
}

// median is how long the creation of a pod has taken.
func (g generation) median() time.Duration {
	var all []time.Duration
	for _, b := range g {
		all = append(all, b.took)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// assert checks that all pods have the estimates, or none, and that they were not born slower than
// others by more than noise: who waits for somebody that is gone waits for a timeout.
func (g generation) assert(t *testing.T, when string, estimated bool, others ...generation) {
	t.Helper()
	t.Logf("%s: a pod is created in %s", when, g.median().Round(10*time.Microsecond))
	for _, b := range g {
		if b.estimated() != estimated || !estimated && len(b.Spec.Containers[0].Resources.Requests)+len(b.Annotations) > 0 {
			t.Fatalf("%s: pod %s has %v and %v", when, b.Name, b.Spec.Containers[0].Resources, b.Annotations)
		}
	}
	for _, other := range others {
		if g.median() > 5*other.median() {
			t.Errorf("%s: a pod is created in %s, and otherwise in %s", when, g.median(), other.median())
		}
	}
}

// assertNoWebhooks checks that there is nobody whom the API server could ask about pods.
func assertNoWebhooks(t *testing.T) {
	t.Helper()
	mutating, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	validating, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(mutating.Items)+len(validating.Items) > 0 {
		t.Errorf("deploy/initial-resources has webhooks: %v %v", mutating.Items, validating.Items)
	}
}

// listener takes connections in the place of something that is gone, and never answers.
type listener struct {
	net.Listener

	connections atomic.Int32
}

// listen listens at an address until the test ends.
func listen(t *testing.T, address string) *listener {
	t.Helper()
	l := &listener{}
	eventually(t, "the address "+address+" to be free", func() (bool, string) {
		var err error
		l.Listener, err = net.Listen("tcp", address)
		return err == nil, fmt.Sprint(err)
	})
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return // closed
			}
			l.connections.Add(1)
		}
	}()
	t.Cleanup(l.close)
	return l
}

// heard is how many connections there were.
func (l *listener) heard() int { return int(l.connections.Load()) }

func (l *listener) close() { _ = l.Close() }
