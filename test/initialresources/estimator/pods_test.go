//go:build around

package estimator

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// set is what admission says of a request that it has set.
const set = `{"app":{"cpu":{"request":"100m","from":"image:tag","window":"7d","percentile":90,"samples":80,"scope":"namespace"}}}`

// eventsOf are the messages of the estimator's events about a pod, with their reasons.
func eventsOf(t *testing.T, namespace, pod string) []string {
	t.Helper()
	list, err := client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range list.Items {
		if e.Source.Component == api.EstimatorFieldManager {
			all = append(all, e.Reason+": "+e.Message)
		}
	}
	return all
}

func waitEvents(t *testing.T, namespace, pod string, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("events %q of pod %s", want, pod), func() (bool, string) {
		all := eventsOf(t, namespace, pod)
		for _, w := range want {
			found := false
			for _, e := range all {
				found = found || strings.Contains(e, w)
			}
			if !found {
				return false, fmt.Sprintf("%q", all)
			}
		}
		return len(all) == len(want), fmt.Sprintf("%q", all)
	})
}

// requests are those of a pod's container, and what its annotation says of its cpu.
func requests(t *testing.T, namespace, name string) (cpu, annotation string, uid types.UID) {
	t.Helper()
	p, err := client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p.Spec.Containers[0].Resources.Requests.Cpu().String(), p.Annotations[api.EstimateAnnotation], p.UID
}

// TestResizeAfterwards: a pod that has been sized by an estimate is resized when that changes, and
// no other.
func TestResizeAfterwards(t *testing.T) {
	namespace(t, "shop", "") // admission leaves the annotations to the test
	apply(t, pod("shop", "ours", set, "", "100m"))
	apply(t, pod("shop", "users", set, "", "110m")) // somebody has resized it
	apply(t, pod("shop", "never", set, "", "100m"))
	apply(t, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {namespace: shop, name: stated}
spec:
  replicas: 1
  selector: {matchLabels: {app: stated}}
  template:
    metadata: {labels: {app: stated}, annotations: {`+api.EstimateAnnotation+`: '`+set+`'}}
    spec: {containers: [{name: app, image: "nginx:1.25", resources: {requests: {cpu: 100m}}}]}
`)
	if _, err := cp.Kubectl(t.Context(), "annotate", "--namespace=shop", "pod/never", api.InitialResourcesLabel+"=never"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "pods that run", func() (bool, string) {
		list, err := client.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running"})
		return err == nil && len(list.Items) >= 4, fmt.Sprint(err)
	})
	_, _, uid := requests(t, "shop", "ours")
	label(t, "shop", "enabled")
	p := alone(t, "--resize-afterwards")
	eventually(t, "the pod to be resized", func() (bool, string) {
		cpu, annotation, _ := requests(t, "shop", "ours")
		return cpu == "200m" && strings.Contains(annotation, `"request":"200m"`) && strings.Contains(annotation, `"was":"100m"`) && strings.Contains(annotation, `"resized":"20`), cpu + annotation
	})
	if _, _, now := requests(t, "shop", "ours"); now != uid {
		t.Error("it is another pod")
	}
	waitEvents(t, "shop", "ours", "InitialResourcesSet", "InitialResourcesResized: resized in place, because its estimate has changed: app: cpu request 100m→200m")
	waitMetric(t, p, `inplace_rollout_estimate_resizes_total{outcome="resized"} 1`)

	// What becomes of it later is in TestSize of pkg/initialresources/estimator.
	eventually(t, "the others to be left alone", func() (bool, string) {
		return metric(t, p, `workqueue_work_duration_seconds_count{name="estimates"} `) > 20, ""
	})
	for name, want := range map[string]string{"ours": "200m", "users": "110m", "never": "100m", "stated-0": "100m"} {
		if cpu, annotation, _ := requests(t, "shop", name); cpu != want {
			t.Errorf("pod %s has %s, want %s: %s", name, cpu, want, annotation)
		}
	}
}

// TestFence: the estimator may change nothing of pods but what it is there for.
func TestFence(t *testing.T) {
	namespace(t, "shop", "")
	apply(t, pod("shop", "ours", set, "", "100m"))
	apply(t, pod("shop", "users", "", "", "100m"))
	as := asEstimator(t)
	for _, tt := range []struct {
		what, pod, subresource, patch string
		allowed                       bool
	}{
		{"a label", "ours", "", `{"metadata":{"labels":{"a":"b"}}}`, false},
		{"another annotation", "ours", "", `{"metadata":{"annotations":{"a":"b"}}}`, false},
		{"an image", "ours", "", `{"spec":{"containers":[{"name":"app","image":"evil"}]}}`, false},
		{"no annotation any more", "ours", "", `{"metadata":{"annotations":{"` + api.EstimateAnnotation + `":null}}}`, false},
		{"a pod without an estimate", "users", "", `{"metadata":{"annotations":{"` + api.EstimateAnnotation + `":"{}"}}}`, false},
		{"the size of one", "users", "resize", `{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"200m"}}}]}}`, false},
		{"a limit", "ours", "resize", `{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"200m"}}}]}}`, false},
		{"its annotation", "ours", "", `{"metadata":{"annotations":{"` + api.EstimateAnnotation + `":"{}"}}}`, true},
	} {
		var subresources []string
		if tt.subresource != "" {
			subresources = []string{tt.subresource}
		}
		_, err := as.CoreV1().Pods("shop").Patch(t.Context(), tt.pod, types.StrategicMergePatchType, []byte(tt.patch), metav1.PatchOptions{}, subresources...)
		if (err == nil) != tt.allowed || err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
}
