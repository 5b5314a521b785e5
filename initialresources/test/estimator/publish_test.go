//go:build around

package estimator

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const (
	nginx = "docker.io-_library-_nginx"
	mysql = "docker.io-_library-_mysql"
)

// TestPublish: what bounds estimates is read, and published with them, with the rights that the estimator has. What becomes of it is
// in the tests of initialresources/estimator.
func TestPublish(t *testing.T) {
	namespace(t, "shop", "enabled")
	namespace(t, "bank", "")
	p := launch(t, controller.Options{Args: []string{"--leader-elect=false"}})
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
		must.Contain(t, table(t, "shop").Data[nginx+"_-1.25.memory"], `"capped":"LimitRange"`, "what the table says")
	})
	waitEntry(t, "shop", nginx+"_-1.25.memory", "65Mi")
	waitEntry(t, "shop", "pod-max.cpu", "")

	t.Run("what a quota has left", func(t *testing.T) {
		apply(t, `{apiVersion: v1, kind: ResourceQuota, metadata: {name: few, namespace: shop}, spec: {hard: {requests.cpu: "1"}}}`)
		waitEntry(t, "shop", "quota.cpu", "1")
		apply(t, pod("shop", "takes", "", "300m"))
		waitEntry(t, "shop", "quota.cpu", "700m")
	})
	waitEntry(t, "shop", "quota.cpu", "")

	t.Run("what nodes have room for", func(t *testing.T) {
		must.Get(cp.Kubectl(t.Context(), "cordon", "node-2"))(t)
		defer func() { must.Get(cp.Kubectl(t.Context(), "uncordon", "node-2"))(t) }()
		apply(t, pod("bank", "large", "", "5"))
		waitEntry(t, "shop", "room.cpu", "3")
	})
	waitEntry(t, "shop", "room.cpu", "8")
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
	eventually(t, "the table to go", func() (bool, string) { return table(t, "shop") == nil, "it is there" })
	label(t, "shop", "enabled")
	waitEntry(t, "shop", nginx+"_-1.25.cpu", "200m")
}

// TestRights: the estimator may write no ConfigMap but its own.
func TestRights(t *testing.T) {
	namespace(t, "shop", "")
	as := asEstimator(t)
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

// asEstimator is a client with the rights of the estimator.
func asEstimator(t *testing.T) kubernetes.Interface {
	t.Helper()
	kubeconfig := must.Get(cp.ServiceAccountKubeconfig(t.Context(), controller.Namespace, controller.EstimatorAccount, ""))(t)
	config := must.Get(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
	return must.Get(kubernetes.NewForConfig(config))(t)
}

func errorOf[T any](_ T, err error) error { return err }

// pod is one with an image of the history, and a request. It may have the annotation that admission gives.
func pod(namespace, name, annotation, cpu string) string {
	meta := ""
	if annotation != "" {
		meta = fmt.Sprintf(", annotations: {%s: '%s'}", api.EstimateAnnotation, annotation)
	}
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: %s%s}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: app, image: 'nginx:1.25', resources: {requests: {cpu: %q}}}]}}",
		namespace, name, meta, cpu)
}
