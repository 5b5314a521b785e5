//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// boostMark is what google/kube-startup-cpu-boost leaves on the pods that it boosts.
const boostMark = "autoscaling.x-k8s.io/startup-cpu-boost"

// booster plays google/kube-startup-cpu-boost: it gives pods 500m at their admission, remembers what they were to
// have, and puts that back by the resize subresource.
type booster[W metav1.Object] struct {
	*sandbox[W]
}

// boosts has pods of a workload born with 500m, marked or not.
func boosts(t *testing.T, o options, marked bool) options {
	t.Helper()
	o.Resources = "{requests: {cpu: 100m, memory: 100Mi}}"
	o.By = func(namespace, manifest string) {
		t.Helper()
		asked := &atomic.Bool{}
		webhook.Serve(t, client, webhook.Options{Namespace: namespace, Resources: []string{"pods"}, Mutate: func(r *admissionv1.AdmissionRequest, pod *unstructured.Unstructured) {
			asked.Store(true)
			containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
			if r.Operation != admissionv1.Create || len(containers) == 0 {
				return
			}
			app, _ := containers[0].(map[string]any)
			original, _, _ := unstructured.NestedString(app, "resources", "requests", "cpu")
			_ = unstructured.SetNestedField(app, "500m", "resources", "requests", "cpu")
			_ = unstructured.SetNestedSlice(pod.Object, containers, "spec", "containers")
			if marked {
				mark := fmt.Sprintf(`{"state":"Active","timestamp":"2026-01-01T00:00:00Z","initCPURequests":{"app":%q}}`, original)
				_ = unstructured.SetNestedField(pod.Object, mark, "metadata", "annotations", boostMark)
			}
		}})
		eventually(t, "the booster to be asked", func() (bool, string) {
			_, err := cp.Kubectl(t.Context(), "-n", namespace, "run", "probe", "--image=app:1", "--dry-run=server")
			return asked.Load(), said(err)
		})
		apply(t, namespace, manifest)
	}
	return o
}

// putBack puts the cpu request of a pod back, and takes the mark away.
func (b booster[W]) putBack(name string) {
	b.t.Helper()
	b.resize(name, "100m")
	b.annotatePod(name, boostMark+"-")
}

// resize is a resize by the booster.
func (b booster[W]) resize(name, cpu string) {
	b.t.Helper()
	if err := b.tryResize(name, cpu); err != nil {
		b.t.Fatal(err)
	}
}

func (b booster[W]) tryResize(name, cpu string) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"name": "app", "resources": map[string]any{"requests": map[string]any{"cpu": cpu}}},
	}}})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Pods(b.namespace).Patch(b.t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "manager"}, "resize")
	return err
}

// waitBooster waits until every pod has its size, and nothing is left but to wait for the booster of one.
func (b booster[W]) waitBooster(name string) {
	b.t.Helper()
	b.waitFor("the condition to name the booster of "+name, func(workload W) bool {
		_, reason, message := complete(workload)
		return reason == "Progressing" && strings.HasPrefix(message, "3 of 3 pods resized; ") && strings.Contains(message, name) &&
			strings.Contains(message, "waiting for its startup booster to put back app: cpu request 150m→100m")
	})
}

// asked is how often the controller has asked each pod for a size.
func (b booster[W]) asked() map[string]int {
	b.t.Helper()
	asked := map[string]int{}
	for _, pod := range only(b.writes(), "patch pods/resize") {
		asked[pod]++
	}
	return asked
}

// TestStartupBoosters is what docs/autoscalers.md says of them: what they put back after an edit is asked for
// once more, and the rollout is over only then.
func TestStartupBoosters(t *testing.T) {
	t.Run("StatefulSet", func(t *testing.T) {
		t.Parallel()
		testBooster(t, newWorkload(t, boosts(t, options{}, true)).sandbox)
	})
	t.Run("OnDelete", func(t *testing.T) {
		t.Parallel()
		testBooster(t, newWorkload(t, boosts(t, options{Spec: "updateStrategy: {type: OnDelete}"}, true)).sandbox)
	})
	t.Run("Deployment", func(t *testing.T) {
		t.Parallel()
		testBooster(t, newDeployment(t, boosts(t, options{}, true)).sandbox)
	})
	t.Run("DaemonSet", func(t *testing.T) {
		t.Parallel()
		testBooster(t, newDaemonSet(t, boosts(t, options{}, true)).sandbox)
	})
	t.Run("unmarked", func(t *testing.T) {
		t.Parallel()
		t.Run("StatefulSet", func(t *testing.T) {
			t.Parallel()
			testUnmarked(t, newWorkload(t, boosts(t, options{}, false)).sandbox)
		})
		t.Run("Deployment", func(t *testing.T) {
			t.Parallel()
			testUnmarked(t, newDeployment(t, boosts(t, options{}, false)).sandbox)
		})
		t.Run("DaemonSet", func(t *testing.T) {
			t.Parallel()
			testUnmarked(t, newDaemonSet(t, boosts(t, options{}, false)).sandbox)
		})
	})
	t.Run("forever", func(t *testing.T) {
		t.Parallel()
		testBoosterForever(t, newWorkload(t, boosts(t, options{}, true)).sandbox)
	})
	t.Run("gone", func(t *testing.T) {
		t.Parallel()
		testBoosterGone(t, newWorkload(t, boosts(t, options{}, true)).sandbox)
	})
}

func testBooster[W metav1.Object](t *testing.T, s *sandbox[W]) {
	t.Helper()
	b := booster[W]{s}
	process := b.ownController(t, controller.Options{})
	b.waitComplete()
	before, names := b.uids(), b.names()
	for _, name := range names {
		b.waitSize(name, "500m")
	}
	b.markAudit()
	b.setResources("cpu=150m", "")
	b.waitBooster(names[0])
	process.Stop() // nothing is remembered but in the cluster
	b.ownController(t, controller.Options{})
	for i, name := range names {
		b.waitSize(name, "150m")
		if b.putBack(name); i < len(names)-1 {
			b.waitBooster(names[i+1])
		}
	}
	b.waitComplete()
	for name, pod := range b.pods() {
		if !hasSize(pod, "150m") {
			t.Errorf("%s is Complete with %+v", name, pod.Spec.Containers[0].Resources)
		}
	}
	if fmt.Sprint(b.uids()) != fmt.Sprint(before) {
		t.Errorf("the pods were %v and are %v", before, b.uids())
	}
	for _, name := range names {
		if n := b.asked()[name]; n != 2 {
			t.Errorf("%s was asked %d times, want twice", name, n)
		}
	}
	b.waitEvent("ResizedByOthers", "manager also resizes pods")
}

// testBoosterForever: the booster puts back whatever comes. It is given up then, and said so.
func testBoosterForever[W metav1.Object](t *testing.T, s *sandbox[W]) {
	t.Helper()
	b := booster[W]{s}
	b.ownController(t, controller.Options{Args: []string{"--booster-timeout=3s"}})
	b.waitComplete()
	b.markAudit()
	edited := b.mark
	b.setResources("cpu=150m", "")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			list, err := client.CoreV1().Pods(b.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
			if err != nil {
				continue
			}
			for _, pod := range list.Items {
				if hasSize(pod, "150m") {
					_ = b.tryResize(pod.Name, "100m") // it tries again
				}
			}
		}
	}()
	for _, name := range b.names() {
		b.waitEvent("ResizedByOthers", name+": manager keeps resizing this pod. Its next size stays until the next edit")
	}
	b.waitComplete()
	if _, _, message := complete(b.get()); !strings.HasSuffix(message, "; also resized by manager") {
		t.Errorf("the condition says %q", message)
	}
	b.markAudit()
	time.Sleep(2 * time.Second) // in which the booster would have acted twenty times
	close(stop)
	<-stopped
	if writes := b.writes(); len(writes) > 0 {
		t.Errorf("the controller goes on: %v", writes)
	}
	b.mark = edited
	for name, n := range b.asked() {
		if n > 6 {
			t.Errorf("%s was asked %d times, want 6 at most", name, n)
		}
	}
}

// testBoosterGone: nobody puts anything back any more. That is waited for as long as the flag says.
func testBoosterGone[W metav1.Object](t *testing.T, s *sandbox[W]) {
	t.Helper()
	b := booster[W]{s}
	b.ownController(t, controller.Options{Args: []string{"--booster-timeout=3s"}})
	b.waitComplete()
	b.setResources("cpu=150m", "")
	b.waitBooster(b.names()[0])
	b.waitComplete()
	for name, pod := range b.pods() {
		if !hasSize(pod, "150m") {
			t.Errorf("%s has %+v", name, pod.Spec.Containers[0].Resources)
		}
	}
}

// testUnmarked: of a booster that leaves no mark nothing is known before it puts something back, soon after the rollout. That
// is asked for once more, and only once; what else somebody does to a pod between edits is theirs.
func testUnmarked[W metav1.Object](t *testing.T, s *sandbox[W]) {
	t.Helper()
	b := booster[W]{s}
	b.ownController(t, controller.Options{Args: []string{"--booster-timeout=10s"}})
	b.waitComplete()
	names := b.names()
	b.markAudit()
	b.setResources("cpu=150m", "")
	b.waitComplete()
	over := time.Now()
	b.resize(names[0], "100m")
	b.waitEvent("ResizedByOthers", names[0]+": somebody put the old size back soon after the rollout, so the pod was resized once more: app: cpu request 100m→150m")
	b.waitSize(names[0], "150m")
	b.resize(names[0], "100m")
	b.resize(names[1], "120m")
	time.Sleep(2 * time.Second) // in which the controller would have asked again
	for i, cpu := range []string{"100m", "120m", "150m"} {
		b.waitSize(names[i], cpu)
	}
	time.Sleep(time.Until(over.Add(12 * time.Second)))
	b.resize(names[2], "100m") // too late
	time.Sleep(2 * time.Second)
	b.waitSize(names[2], "100m")
	b.waitComplete()
	if asked := b.asked(); asked[names[0]] != 2 || asked[names[1]] != 1 || asked[names[2]] != 1 {
		t.Errorf("the pods were asked so often: %v", asked)
	}
}
