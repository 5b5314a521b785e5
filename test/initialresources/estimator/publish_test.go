//go:build around

package estimator

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

const (
	nginx = "docker.io-_library-_nginx"
	mysql = "docker.io-_library-_mysql"
)

func TestPublish(t *testing.T) {
	namespace(t, "shop", "enabled")
	namespace(t, "bank", "")
	p := alone(t)
	waitEntry(t, "shop", nginx+"_-1.25.memory", "65Mi")
	if data := table(t, "shop").Data; data["room.cpu"] != "8" || data["room.memory"] != "16Gi" || data[mysql+".cpu"] != "" || data["quota.cpu"] != "" {
		t.Errorf("the table has %v", data)
	}
	if value := table(t, "shop").Data[nginx+"_-1.25.cpu"]; !strings.Contains(value, `"from":"image:tag","window":"7d","percentile":90,"samples":`) || !strings.Contains(value, `"scope":"namespace"`) {
		t.Errorf("of nginx it says %s", value)
	}
	if table(t, "bank") != nil {
		t.Error("a namespace has a table that is not opted in")
	}
	waitMetric(t, p, "inplace_rollout_history_complete 1")
	waitMetric(t, p, `inplace_rollout_estimate_tables{state="published"} 1`)

	t.Run("within a LimitRange", func(t *testing.T) {
		apply(t, `{apiVersion: v1, kind: LimitRange, metadata: {name: small, namespace: shop}, spec: {limits: [{type: Container, max: {memory: 50Mi}}, {type: Pod, min: {cpu: 20m}, max: {cpu: "3"}}]}}`)
		waitEntry(t, "shop", nginx+"_-1.25.memory", "50Mi")
		waitEntry(t, "shop", "pod-max.cpu", "3")
		waitEntry(t, "shop", "pod-min.cpu", "20m")
		if value := table(t, "shop").Data[nginx+"_-1.25.memory"]; !strings.Contains(value, `"capped":"LimitRange"`) {
			t.Errorf("it says %s", value)
		}
	})
	waitEntry(t, "shop", nginx+"_-1.25.memory", "65Mi")
	waitEntry(t, "shop", "pod-max.cpu", "")

	t.Run("what a quota has left", func(t *testing.T) {
		apply(t, `{apiVersion: v1, kind: ResourceQuota, metadata: {name: few, namespace: shop}, spec: {hard: {requests.cpu: "1"}}}`)
		waitEntry(t, "shop", "quota.cpu", "1")
		apply(t, pod("shop", "takes", "", "", "300m"))
		waitEntry(t, "shop", "quota.cpu", "700m")
	})
	waitEntry(t, "shop", "quota.cpu", "")

	t.Run("what nodes have room for", func(t *testing.T) {
		if _, err := cp.Kubectl(t.Context(), "cordon", "node-2"); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := cp.Kubectl(t.Context(), "uncordon", "node-2"); err != nil {
				t.Error(err)
			}
		}()
		apply(t, pod("bank", "large", "", "", "5"))
		waitEntry(t, "shop", "room.cpu", "3")
	})
	waitEntry(t, "shop", "room.cpu", "8")

	t.Run("a pod opts its namespace in", func(t *testing.T) {
		apply(t, pod("bank", "asks", "", "enabled", ""))
		waitEntry(t, "bank", mysql+"_-8.cpu", "1010m")
	})
	waitGone(t, "bank")

	t.Run("a namespace that is opted in has its table at once", func(t *testing.T) {
		label(t, "bank", "annotate")
		waitEntry(t, "bank", mysql+"_-8.cpu", "1010m")
		if data := table(t, "bank").Data; data[nginx+"_-1.25.cpu"] != "" {
			t.Errorf("it is told of another namespace's: %v", data)
		}
		label(t, "bank", "")
		waitGone(t, "bank")
	})

	t.Run("what somebody else changes is set back", func(t *testing.T) {
		if _, err := cp.Kubectl(t.Context(), "patch", "--namespace=shop", "configmap", api.EstimatesName, "--patch", `{"data":{"room.cpu":"100"}}`); err != nil {
			t.Fatal(err)
		}
		waitEntry(t, "shop", "room.cpu", "8")
	})

	t.Run("nothing is written without need", func(t *testing.T) {
		mark, err := cp.AuditMark()
		if err != nil {
			t.Fatal(err)
		}
		looks := `workqueue_work_duration_seconds_count{name="estimates"} `
		before := metric(t, p, looks)
		// It looks at each namespace after it has read the history.
		eventually(t, "looks at all tables", func() (bool, string) { now := metric(t, p, looks); return now > before+20, fmt.Sprint(now) })
		writes, err := cp.AuditSince(mark, controlplane.ByUser(controller.EstimatorUser), controlplane.OnResource("configmaps", ""), func(e *auditv1.Event) bool {
			return e.Verb != "watch" && e.Verb != "list" && e.Verb != "get"
		})
		if err != nil || len(writes) > 0 {
			t.Errorf("it has written %v, %v", writes, err)
		}
	})
}

// TestRoomBound: where the cluster autoscaler is in sight, room bounds nothing, unless the namespace says so.
func TestRoomBound(t *testing.T) {
	namespace(t, "shop", "enabled")
	status := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cluster-autoscaler-status"}}
	if _, err := client.CoreV1().ConfigMaps("kube-system").Create(t.Context(), status, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.CoreV1().ConfigMaps("kube-system").Delete(context.Background(), status.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	alone(t)
	waitEntry(t, "shop", nginx+"_-1.25.cpu", "200m")
	if room, has := table(t, "shop").Data["room.cpu"]; has {
		t.Errorf("room is %s", room)
	}
	annotate := func(to string) {
		if _, err := cp.Kubectl(t.Context(), "annotate", "namespace", "shop", api.RoomAnnotation+to); err != nil {
			t.Fatal(err)
		}
	}
	annotate("=always")
	waitEntry(t, "shop", "room.cpu", "8")
	annotate("-")
	waitEntry(t, "shop", "room.cpu", "")
}

// TestClusterWide tells a namespace of images that are new to it.
func TestClusterWide(t *testing.T) {
	namespace(t, "new", "enabled")
	namespace(t, "bank", "enabled")
	alone(t, "--cluster-wide", "--max-images=1")
	waitEntry(t, "new", nginx+"_-1.25.memory", "65Mi")
	// What has run in a namespace itself comes first, in any version.
	waitEntry(t, "bank", mysql+"_-8.cpu", "1010m")
	if data := table(t, "bank").Data; data[nginx+"_-1.25.cpu"] != "" || !strings.Contains(data[nginx+"_-1.26.cpu"], `"scope":"namespace"`) {
		t.Errorf("of nginx in its own namespace it says %v", data)
	}
	if value := table(t, "new").Data[nginx+"_-1.25.cpu"]; !strings.Contains(value, `"scope":"cluster"`) {
		t.Errorf("of nginx it says %s", value)
	}
	if value := table(t, "new").Data[mysql+"_-8.cpu"]; value != "" {
		t.Errorf("it is told of more than one image: %s", value)
	}
}

// TestSomebodyElses leaves alone a ConfigMap that has the name of the table, and says so.
func TestSomebodyElses(t *testing.T) {
	namespace(t, "mine", "enabled")
	apply(t, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: mine}, data: {mine: "1"}}`, api.EstimatesName))
	before := table(t, "mine")
	p := alone(t)
	waitMetric(t, p, `inplace_rollout_estimate_tables{state="withheld"} 1`)
	eventually(t, "an event", func() (bool, string) {
		list, err := client.CoreV1().Events("mine").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=EstimatesNotPublished"})
		return err == nil && len(list.Items) == 1, fmt.Sprint(list, err)
	})
	if after := table(t, "mine"); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("it is %v now", after)
	}
	if err := client.CoreV1().ConfigMaps("mine").Delete(t.Context(), api.EstimatesName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitEntry(t, "mine", "room.cpu", "8")
}

// TestOutage: while Prometheus is gone, and the estimator starts anew, the estimates stay, within
// what is allowed now.
func TestOutage(t *testing.T) {
	namespace(t, "shop", "enabled")
	namespace(t, "bank", "enabled")
	p := alone(t)
	waitEntry(t, "shop", nginx+"_-1.25.cpu", "200m")
	waitEntry(t, "bank", mysql+"_-8.cpu", "1010m")
	before := table(t, "shop")
	server.Pause()
	p.Kill()
	label(t, "bank", "")
	p = alone(t)
	waitGone(t, "bank") // it works
	if after := table(t, "shop"); !maps.Equal(before.Data, after.Data) {
		t.Errorf("the table was %v, and is %v", before.Data, after.Data)
	}
	waitMetric(t, p, "inplace_rollout_history_complete 0")
	apply(t, `{apiVersion: v1, kind: LimitRange, metadata: {name: small, namespace: shop}, spec: {limits: [{type: Container, max: {cpu: 150m}}]}}`)
	waitEntry(t, "shop", nginx+"_-1.25.cpu", "150m")
	label(t, "bank", "enabled")
	if err := client.CoreV1().LimitRanges("shop").Delete(t.Context(), "small", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitEntry(t, "shop", nginx+"_-1.25.cpu", "200m")
	waitEntry(t, "bank", mysql+"_-8.cpu", "1010m")
	waitMetric(t, p, "inplace_rollout_history_complete 1")
}

// TestReplicas: one of two works, and the other goes on where it ends.
func TestReplicas(t *testing.T) {
	namespace(t, "shop", "enabled")
	first := launch(t, controller.Options{})
	waitMetric(t, first, `leader_election_master_status{name="inplace-rollout-estimator"} 1`)
	second := launch(t, controller.Options{})
	waitEntry(t, "shop", nginx+"_-1.25.cpu", "200m")
	if text, err := second.Metrics(t.Context()); err != nil || strings.Contains(text, "\ninplace_rollout_estimates_timestamp_seconds ") {
		t.Errorf("the other works, too: %v", err)
	}
	first.Kill()
	label(t, "shop", "")
	waitGone(t, "shop")
	label(t, "shop", "enabled")
	waitEntry(t, "shop", nginx+"_-1.25.cpu", "200m")
}

// TestRights: the estimator may write no ConfigMap but its own.
func TestRights(t *testing.T) {
	namespace(t, "shop", "")
	kubeconfig, err := cp.ServiceAccountKubeconfig(t.Context(), controller.Namespace, controller.EstimatorAccount, "")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	as, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"creates another ConfigMap by server-side apply": errorOf(as.CoreV1().ConfigMaps("shop").Apply(t.Context(), applycorev1.ConfigMap("other", "shop"), metav1.ApplyOptions{FieldManager: "test"})),
		"creates a ConfigMap":                            errorOf(as.CoreV1().ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: api.EstimatesName}}, metav1.CreateOptions{})),
		"reads ConfigMaps":                               errorOf(as.CoreV1().ConfigMaps("shop").List(t.Context(), metav1.ListOptions{})),
		"reads Secrets":                                  errorOf(as.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})),
		"deletes a pod":                                  as.CoreV1().Pods("shop").Delete(t.Context(), "any", metav1.DeleteOptions{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("it %s: %v", what, err)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

// pod is one with an image of the history. It may have the annotation that admission gives, the
// label that opts in, and a request.
func pod(namespace, name, annotation, mode, cpu string) string {
	meta, resources := "", ""
	if mode != "" {
		meta += fmt.Sprintf(", labels: {%s: %s}", api.InitialResourcesLabel, mode)
	}
	if annotation != "" {
		meta += fmt.Sprintf(", annotations: {%s: '%s'}", api.EstimateAnnotation, annotation)
	}
	if cpu != "" {
		resources = fmt.Sprintf(", resources: {requests: {cpu: %q}}", cpu)
	}
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: %s%s}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: app, image: 'nginx:1.25'%s}]}}",
		namespace, name, meta, resources)
}
