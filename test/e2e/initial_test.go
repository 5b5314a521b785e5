//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/prometheus"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// TestInitialResources has a pod that states no size run, BestEffort, measured by the kubelet's
// cAdvisor, which a real Prometheus scrapes. Created again, it has requests near what it used, and
// is resized while it runs: by the estimator when it uses more, and by an edit of its template.
func TestInitialResources(t *testing.T) {
	if !node.AtLeast("1.36") {
		t.Skip("there is no MutatingAdmissionPolicy v1")
	}
	t.Parallel()
	const held, burnt = 64 << 20, 100
	a := newApp(t, options{Replicas: 1, Resources: "{}", Container: fmt.Sprintf(`args: ["--memory=%d", "--cpu=%d"]`, held, burnt)})
	unsized := a.pods()[0]
	if unsized.Status.QOSClass != corev1.PodQOSBestEffort {
		t.Fatalf("without requests, the pod is %s", unsized.Status.QOSClass)
	}
	began := time.Now()
	a.estimator(a.prometheus())
	a.kubectl("label", "namespace", a.namespace, api.InitialResourcesLabel+"="+api.InitialResourcesEnabled)

	// It must be seen for a while before its rate of cpu is that of all the time.
	a.eventually("a pod that would get requests near what was used", func() (bool, string) {
		time.Sleep(500 * time.Millisecond)
		has := a.wouldGet()
		return has.Cpu().MilliValue() >= burnt*7/10 && has.Memory().Value() >= held, fmt.Sprint(has)
	})
	t.Logf("an estimate was there after %s", time.Since(began).Round(time.Second))
	a.kubectl("delete", "pod", "web-0")
	a.eventually("the pod to be Ready again", func() (bool, string) {
		pods := a.pods()
		return len(pods) == 1 && pods[0].UID != unsized.UID && appOf(&pods[0]).Ready, fmt.Sprint(names(pods))
	})
	before := a.pods()
	born := &before[0]
	if born.Status.QOSClass != corev1.PodQOSBurstable {
		t.Fatalf("created again, the pod is %s: %v", born.Status.QOSClass, born.Spec.Containers[0].Resources)
	}
	requests := born.Spec.Containers[0].Resources.Requests
	if cpu, memory := requests.Cpu().MilliValue(), requests.Memory().Value(); cpu > 3*burnt || memory > held+(32<<20) {
		t.Errorf("it requests %v, and has used %dm and some more than %d bytes", requests, burnt, held)
	}
	a.assertSize(born, corev1.ResourceRequirements{Requests: requests})
	a.event("Pod", "InitialResourcesSet", fmt.Sprintf("web-0: app: cpu %s (percentile 90 of ", requests.Cpu()))

	// More than a tenth of its samples are larger.
	const more = 2 * held
	hold(t, born, more)
	a.eventually("the pod to be resized", func() (bool, string) {
		pod := a.pods()[0]
		has, status := pod.Spec.Containers[0].Resources, appOf(&pod).Resources
		return has.Requests.Memory().Value() >= more && status != nil && apiequality.Semantic.DeepEqual(*status, has), fmt.Sprint(has, status)
	})
	a.assertKept(before, 0)
	a.event("Pod", "InitialResourcesResized", "web-0: resized in place, because its estimate has changed: app: ")
	pod := a.pods()[0]
	a.assertSize(&pod, pod.Spec.Containers[0].Resources)
	now := pod.Spec.Containers[0].Resources.Requests
	t.Logf("born with %s and %s, it was resized to %s and %s after %s", requests.Cpu(), requests.Memory(), now.Cpu(), now.Memory(), time.Since(began).Round(time.Second))

	a.kubectl("set", "resources", a.ref, "--containers=app", "--requests=cpu=60m,memory=192Mi")
	a.complete()
	a.assertMoved()
	a.assertKept(before, 0)
	a.podEvents("ResizeCompleted")
}

// wouldGet are the requests that a new pod with the image of the counter would have.
func (a *app) wouldGet() corev1.ResourceList {
	a.t.Helper()
	pod := must.Get(client.CoreV1().Pods(a.namespace).Create(a.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "probe"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "inplace-rollout-counter:test"}}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))(a.t)
	return pod.Spec.Containers[0].Resources.Requests
}

// estimator runs in its image until the test ends, as deploy/initial-resources has it, but sooner
// content, and looks more often.
func (a *app) estimator(prometheus string) {
	a.t.Helper()
	manifest, err := controller.DeployEstimator(a.t.Context(), node, "--prometheus-url=http://"+prometheus,
		"--resolution=1s", "--range=40s", "--lag=1s", "--rung=1h:tag:20", "--refresh-interval=1s", "--publish-interval=1s",
		"--resize-afterwards", "--resize-interval=1s")
	must.Do(a.t, err)
	a.t.Cleanup(func() {
		if a.t.Failed() {
			said, err := node.Kubectl(context.Background(), "logs", "--namespace", controller.Namespace, "deployment/inplace-rollout-estimator", "--all-pods")
			a.t.Logf("the estimator: %s %v", said, err)
		}
		must.Get(node.Kubectl(context.Background(), "delete", "--wait=false", "--filename", manifest))(a.t)
	})
}

// scraped is the configuration of Prometheus. It reaches the kubelet by a proxy, and shows it a
// token; that the kubelet's certificate is its own is usual.
const scraped = `global: {scrape_interval: 2s, scrape_timeout: 2s}
scrape_configs:
- job_name: kubelet
  scheme: https
  metrics_path: /metrics/cadvisor
  authorization: {credentials: %q}
  tls_config: {insecure_skip_verify: true}
  proxy_url: %q
  static_configs: [{targets: [%q]}]
- job_name: kube-state-metrics
  honor_labels: true
  static_configs: [{targets: [%q]}]
`

// prometheus runs until the test ends. It returns where pods reach it.
func (a *app) prometheus() string {
	a.t.Helper()
	token := must.Get(client.CoreV1().ServiceAccounts(a.namespace).CreateToken(a.t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(a.t)
	proxy := httptest.NewServer(realnode.Egress(node.Dial))
	a.t.Cleanup(proxy.Close)
	dir := a.t.TempDir()
	states := must.Get(prometheus.StartStateMetrics(a.t.Context(), dir, filepath.Join(node.Dir(), "kubeconfig")))(a.t)
	a.t.Cleanup(states.Stop)
	server := must.Get(prometheus.Start(a.t.Context(), dir, fmt.Sprintf(scraped, token.Status.Token, proxy.URL, realnode.Kubelet, states.Address)))(a.t)
	a.t.Cleanup(func() {
		server.Stop()
		if a.t.Failed() {
			a.t.Logf("Prometheus: %s", server.Log())
		}
	})
	address, stop, err := node.Expose(server.Address)
	must.Do(a.t, err)
	a.t.Cleanup(func() { _ = stop() })
	return address
}

const webhook = "deployment/inplace-rollout-webhook"

// TestWebhook has rollouts held by the webhook, in its image and by its Service, and goes from the
// admission policies to it and back while a rollout is held, as docs/operations.md shows. It runs
// alone, because it changes how every rollout is held. What becomes of edits while replicas are away is in test/hold.
func TestWebhook(t *testing.T) {
	a := newApp(t, options{})
	before := a.pods()
	t.Cleanup(func() { must.Do(t, byPolicies(context.Background())) })
	kubectl := func(args ...string) {
		t.Helper()
		must.Get(node.Kubectl(t.Context(), args...))(t)
	}

	// From the policies to the webhook. In between both hold, and the controller touches nothing.
	kubectl("apply", "--kustomize", filepath.Join(controller.Root(), "deploy", "overlays", "webhook"))
	kubectl("rollout", "status", "-n", controller.Namespace, webhook, "--timeout=2m")
	a.eventually("the webhook's CA to be known", func() (bool, string) {
		_, err := node.Kubectl(t.Context(), "annotate", "--namespace", a.namespace, "--overwrite", a.ref, "a=1")
		return err == nil, fmt.Sprint(err)
	})
	a.setResources(largeRequests, largeLimits)
	must.Equal(t, a.get().GetAnnotations()[api.HoldAnnotation], "0", "held by both, the annotation")
	kubectl("delete", "mutatingadmissionpolicybindings,mutatingadmissionpolicies", "--selector=app.kubernetes.io/part-of=inplace-rollout")
	a.complete()
	a.assertKept(before, 0)
	a.assertMoved()

	// And back.
	must.Do(t, byPolicies(t.Context()))
	a.setResources(smallRequests, smallLimits)
	a.complete()
	a.assertKept(before, 0)
	a.assertMoved()
}

// byPolicies has rollouts held by the policies again, whatever holds them now.
func byPolicies(ctx context.Context) error {
	if err := controller.Apply(ctx, node.ControlPlane); err != nil {
		return err
	}
	// The configuration first, or every write of an opted-in workload would be refused.
	for _, file := range []string{"configuration.yaml", "webhook.yaml"} {
		file = filepath.Join(controller.Root(), "deploy", "overlays", "webhook", file)
		if _, err := node.Kubectl(ctx, "delete", "--namespace", controller.Namespace, "--filename", file, "--ignore-not-found"); err != nil {
			return err
		}
	}
	return controller.Deployed(ctx, node)
}
