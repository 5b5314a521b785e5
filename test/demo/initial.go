package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
	"github.com/inplace-rollout/inplace-rollout/test/prometheus"
)

// The same Deployment, which states no size, runs in two namespaces; in the first one new pods get requests by what others of their
// image have used.
const (
	sized   = "shop"
	unsized = "plain"
)

var shop = workload{Kind: "Deployment", Name: "web", Replicas: 3, Image: "web:1.4", Requests: "{}", Limits: "{}"}

// lapse is how many times as fast as by default everything goes: a sample is taken each second, and not each minute, so that evidence
// grows while one looks. Seven days are 168 minutes.
const lapse = 60

// past is for how long the image has been running when the demo begins: six days, and more.
const past = 150 * time.Minute

// usage is what a container of the image uses now. The new version uses more than the old one.
func usage(image string) (cores, bytes float64) {
	if strings.HasSuffix(image, ":2.0") {
		return 0.46, 190 << 20
	}
	return 0.12, 80 << 20
}

// used is what the old version has used, which went up and down with the days.
func used(at time.Time) (cores, bytes float64) {
	wave := math.Sin(2 * math.Pi * at.Sub(at.Truncate(24*time.Hour/lapse)).Minutes() * lapse / (24 * 60))
	return 0.12 + 0.06*wave, (80 + 15*wave) * (1 << 20)
}

// serveUsage stands in for the cAdvisors of simulated nodes: it serves what the containers use that run.
func (d *demo) serveUsage() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, namespace := range []string{sized, unsized} {
			for _, pod := range d.now(shop.subject(namespace)).Pods {
				c := pod.Spec.Containers[0]
				status := measure.ContainerStatus(pod, c.Name)
				if status.State.Running == nil {
					continue
				}
				cores, bytes := usage(c.Image)
				labels := fmt.Sprintf("namespace=%q,pod=%q,container=%q,id=%q,name=%q,image=%q", namespace, pod.Name, c.Name, "/kubepods/"+status.ContainerID, status.ContainerID, c.Image)
				_, _ = fmt.Fprintf(w, "container_cpu_usage_seconds_total{cpu=\"total\",%s} %g\n", labels, cores*time.Since(status.State.Running.StartedAt.Time).Seconds())
				_, _ = fmt.Fprintf(w, "container_memory_working_set_bytes{%s} %g\n", labels, bytes)
			}
		}
	}))
}

// initialResources shows pods that are born with requests, and resized when more is known.
func (d *demo) initialResources(ctx context.Context) error {
	if !d.AtLeast("1.36") {
		return fmt.Errorf("the API server of Kubernetes %s has no MutatingAdmissionPolicy, by which pods get requests", d.Version())
	}
	d.introduce("Initial resources")
	d.say("Real are also Prometheus, and the estimator as deploy/initial-resources installs it; what cAdvisor says is simulated.")
	d.say("All goes %d times as fast as usual: a sample is taken each second, and the ladder's 7 days are 168 minutes.", lapse)
	if err := d.create(ctx, shop, sized, unsized); err != nil {
		return err
	}
	if err := d.requests(ctx, "before", 0, ""); err != nil {
		return err
	}
	if err := d.startEstimator(ctx); err != nil {
		return err
	}
	if err := d.known(ctx); err != nil {
		return err
	}
	for _, act := range []struct {
		title, say, edit string
		from             estimate.From
	}{
		{"Born with requests", "New pods of the namespace get what others of their image have used:", "rollout restart %s", estimate.FromTag},
		{"A version that nobody has seen", "It uses more than the old one, but who knows that? Its pods get what older versions have used:", "set image %s app=web:2.0", estimate.FromImage},
	} {
		d.title(act.title)
		d.say("%s", act.say)
		if err := d.reborn(ctx, act.edit); err != nil {
			return err
		}
		if err := d.requests(ctx, act.title, 0.17, act.from); err != nil {
			return err
		}
	}
	if err := d.evidence(ctx); err != nil {
		return err
	}
	return d.conclude(fmt.Sprintf("born with requests, resized while running (%.0f s in all).", time.Since(d.begin).Seconds()))
}

// scraped is the configuration of a Prometheus that asks two addresses each second.
const scraped = `global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- {job_name: kubelet, honor_labels: true, static_configs: [{targets: ["%s"]}]}
- {job_name: kube-state-metrics, honor_labels: true, static_configs: [{targets: [%q]}]}
`

// startEstimator runs a Prometheus that knows what the pods have used for long, and the estimator beside it.
func (d *demo) startEstimator(ctx context.Context) error {
	dir, now := filepath.Join(d.Dir(), "prometheus"), time.Now()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	h := prometheus.History{Every: 2 * time.Second}
	for _, pod := range d.now(shop.subject(sized)).PodNames() {
		h.Containers = append(h.Containers, prometheus.Container{
			Span: prometheus.Span{From: now.Add(-past), To: now}, Namespace: sized, Pod: pod, Name: "app", Image: shop.Image,
			CPU:    func(t time.Time) float64 { cores, _ := used(t); return cores },
			Memory: func(t time.Time) float64 { _, bytes := used(t); return bytes },
		})
	}
	if err := h.Import(ctx, dir); err != nil {
		return err
	}
	cadvisor := d.serveUsage()
	d.ends = append(d.ends, cadvisor.Close)
	states, err := prometheus.StartStateMetrics(ctx, dir, filepath.Join(d.Dir(), "kubeconfig"))
	if err != nil {
		return err
	}
	d.ends = append(d.ends, states.Stop)
	server, err := prometheus.Start(ctx, dir, fmt.Sprintf(scraped, cadvisor.Listener.Addr(), states.Address))
	if err != nil {
		return err
	}
	d.ends = append(d.ends, server.Stop)
	if err := controller.InstallEstimator(ctx, d.ControlPlane); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(logs(d.Dir()), "estimator.log"))
	if err != nil {
		return fmt.Errorf("creating the estimator's log: %w", err)
	}
	d.ends = append(d.ends, func() { _ = log.Close() })
	args := []string{
		"--prometheus-url=" + server.URL(), "--refresh-interval=5s", "--publish-interval=1s", "--room-interval=1s", "--resize-afterwards", "--resize-interval=10s",
		"--resolution=1s", "--range=4s", "--lag=2s",
	}
	for _, r := range estimate.Default().Rungs {
		r.Window /= lapse
		args = append(args, "--rung="+r.String())
	}
	estimator, err := controller.StartEstimator(ctx, d.ControlPlane, controller.Options{Binary: d.options.controller, Log: log, Args: args})
	if err != nil {
		return err
	}
	d.ends = append(d.ends, estimator.Stop)
	return estimator.WaitReady(ctx)
}

// known opts the namespace in, and waits until the API server knows the estimates: it would give them to a pod.
func (d *demo) known(ctx context.Context) error {
	d.say("The pods have been running for %.0f minutes, as Prometheus knows. One label opts their namespace in:", past.Minutes())
	if err := d.kubectl(ctx, fmt.Sprintf("label namespace %s %s=%s", sized, api.InitialResourcesLabel, api.InitialResourcesEnabled)); err != nil {
		return err
	}
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: shop.Image}}}}
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		pod, err := d.Client.CoreV1().Pods(sized).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && len(pod.Spec.Containers[0].Resources.Requests) == 2, err
	})
	if err != nil {
		return fmt.Errorf("waiting until the API server knows estimates: %w", err)
	}
	return nil
}

// reborn has both Deployments replace their pods, as they always do.
func (d *demo) reborn(ctx context.Context, edit string) error {
	for _, namespace := range []string{sized, unsized} {
		before := d.now(shop.subject(namespace))
		if err := d.kubectl(ctx, fmt.Sprintf(edit, shop.in(namespace))); err != nil {
			return err
		}
		replaced := func(s *measure.State) bool {
			return s.Settled() && !slices.ContainsFunc(s.PodNames(), func(name string) bool { return before.Pods[name] != nil })
		}
		if err := d.recorder.Await(ctx, "the pods are replaced", replaced, shop.subject(namespace)); err != nil {
			return err
		}
	}
	return nil
}

// evidence waits until enough is known of the new version, and the estimator has resized its pods.
func (d *demo) evidence(ctx context.Context) error {
	d.title("Evidence grows, and the pods with it")
	d.say("When there are 60 samples of the new version, its own usage counts. The estimator (with --resize-afterwards) then resizes")
	d.say("the pods that it has sized, while they run. It takes half a minute.\n")
	of, from := shop.subject(sized), d.recorder.Now()
	enough := func(s *measure.State) bool {
		return s.Settled() && !slices.ContainsFunc(s.PodNames(), func(name string) bool {
			pod := s.Pods[name]
			requests := pod.Spec.Containers[0].Resources.Requests
			return why(pod)[corev1.ResourceCPU].From != estimate.FromTag || requests.Cpu().MilliValue() < 400 || !measure.HasSize(pod, pod.Spec.Containers)
		})
	}
	if err := d.recorder.Await(ctx, "all pods are resized", enough, of); err != nil {
		return err
	}
	history, _ := d.recorder.From(0)
	m := measure.Edit(history, from, of)
	d.is("evidence: pods replaced", m.Replaced, 0)
	d.is("evidence: containers started anew", m.Started, 0)
	d.is("evidence: pods not Ready at some time", m.NotReady, 0)
	return d.requests(ctx, "evidence", 0.46, estimate.FromTag)
}

// requests shows the pods of both namespaces. It checks that those of the first one request about so many cores, if any, and why; the
// others never request anything.
func (d *demo) requests(ctx context.Context, when string, cores float64, from estimate.From) error {
	const c = ".spec.containers[0].resources.requests"
	var one *corev1.Pod
	for _, namespace := range []string{sized, unsized} {
		if err := d.kubectl(ctx, "get pods -n "+namespace+" -o custom-columns=POD:.metadata.name,QOS:.status.qosClass,CPU:"+c+".cpu,MEMORY:"+c+".memory"); err != nil {
			return err
		}
		pods := d.now(shop.subject(namespace)).Pods
		d.is(when+": pods in "+namespace, len(pods), 3)
		for name, pod := range pods {
			what, requests := when+": "+name, pod.Spec.Containers[0].Resources.Requests
			if namespace == unsized || cores == 0 {
				d.is(what+": QoS class", pod.Status.QOSClass, corev1.PodQOSBestEffort)
				continue
			}
			one = pod
			d.is(what+": QoS class", pod.Status.QOSClass, corev1.PodQOSBurstable)
			d.is(fmt.Sprintf("%s: cpu %s is about %.2f", what, requests.Cpu(), cores), math.Abs(requests.Cpu().AsApproximateFloat64()-cores) < 0.1*cores, true)
			d.is(what+": estimated from", why(pod)[corev1.ResourceCPU].From, from)
			d.is(what+": memory of its annotation", requests.Memory().Cmp(why(pod)[corev1.ResourceMemory].Request), 0)
		}
	}
	for _, name := range estimate.Resources {
		e, known := why(one)[name]
		if !known {
			continue
		}
		d.say("Why? %s: of %d samples in the last %s (%s), %g %% are %s or less.", name, e.Samples, e.Window, e.From, e.Percentile, &e.Request)
	}
	return nil
}

// why is what a pod's annotation says of its container.
func why(pod *corev1.Pod) map[corev1.ResourceName]estimate.Estimate {
	var all map[string]map[corev1.ResourceName]estimate.Estimate
	if pod != nil {
		_ = json.Unmarshal([]byte(pod.Annotations[api.EstimateAnnotation]), &all) // what it does not say is missing
	}
	return all["app"]
}
