package prometheus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Live serves what is scraped of the pods that a cluster has now. It stands in for
// kube-state-metrics, as far as estimates are made of what that says of pods, and, where nodes
// are simulated, for their cAdvisors.
type Live struct {
	client   kubernetes.Interface
	usage    Usage
	server   *http.Server
	listener net.Listener

	mu   sync.Mutex
	used map[string]used // by container ID
}

// Usage says what containers of an image use at a time: cores and bytes.
type Usage func(image string, at time.Time) (cores, bytes float64)

// used is how many seconds of cpu a container had used by then.
type used struct {
	seconds float64
	at      time.Time
}

// patience is how long the API server may take to list pods.
const patience = 10 * time.Second

// ServeLive begins to serve, on 127.0.0.1, until Close. Without usage, what cAdvisor says is left
// out: real nodes say it themselves.
func ServeLive(client kubernetes.Interface, usage Usage) (*Live, error) {
	l := &Live{client: client, usage: usage, used: map[string]used{}}
	var err error
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("serving metrics: %w", err)
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(l); err != nil {
		return nil, errors.Join(err, l.listener.Close())
	}
	l.server = &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), ReadHeaderTimeout: patience}
	go func() { _ = l.server.Serve(l.listener) }() // until it is closed
	return l, nil
}

// Address is where it serves.
func (l *Live) Address() string { return l.listener.Addr().String() }

// Close ends it.
func (l *Live) Close() error { return l.server.Close() }

// Describe says nothing: which series there are depends on the pods.
func (l *Live) Describe(chan<- *prometheus.Desc) {}

// Collect looks at the pods.
func (l *Live) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pods, err := l.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.used
	l.used = map[string]used{}
	for i := range pods.Items {
		p := pod{&pods.Items[i], out}
		p.states("kube_pod_container_", p.Spec.Containers, p.Status.ContainerStatuses)
		p.states("kube_pod_init_container_", p.Spec.InitContainers, p.Status.InitContainerStatuses)
		p.completion()
		if l.usage != nil {
			l.cadvisor(p, before)
		}
	}
}

// pod is one of which metrics are written.
type pod struct {
	*corev1.Pod

	out chan<- prometheus.Metric
}

// write writes a sample of the pod.
func (p pod) write(kind prometheus.ValueType, name string, value float64, labels ...string) {
	names, values := []string{"namespace", "pod"}, []string{p.Namespace, p.Name}
	for pair := range slices.Chunk(labels, 2) {
		names, values = append(names, pair[0]), append(values, pair[1])
	}
	p.out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, "What is said of a pod.", names, nil), kind, value, values...)
}

// states writes what kube-state-metrics says of containers.
func (p pod) states(prefix string, specs []corev1.Container, statuses []corev1.ContainerStatus) {
	for _, s := range statuses {
		i := slices.IndexFunc(specs, func(c corev1.Container) bool { return c.Name == s.Name })
		if i < 0 {
			continue
		}
		of := []string{"uid", string(p.UID), "container", s.Name}
		p.write(prometheus.GaugeValue, prefix+"info", 1,
			append(of, "image_spec", specs[i].Image, "image", s.Image, "image_id", s.ImageID, "container_id", s.ContainerID)...)
		p.write(prometheus.CounterValue, prefix+"status_restarts_total", float64(s.RestartCount), of...)
		if last := s.LastTerminationState.Terminated; last != nil {
			p.write(prometheus.GaugeValue, prefix+"status_last_terminated_reason", 1, append(of, "reason", last.Reason)...)
		}
		if ended := s.State.Terminated; ended != nil {
			p.write(prometheus.GaugeValue, prefix+"status_terminated_reason", 1, append(of, "reason", ended.Reason)...)
		}
	}
}

// completion writes when the last of the containers ended that have.
func (p pod) completion() {
	var last time.Time
	for _, s := range p.Status.ContainerStatuses {
		if ended := s.State.Terminated; ended != nil && ended.FinishedAt.After(last) {
			last = ended.FinishedAt.Time
		}
	}
	if !last.IsZero() {
		p.write(prometheus.GaugeValue, "kube_pod_completion_time", float64(last.Unix()), "uid", string(p.UID))
	}
}

// cadvisor writes what cAdvisor says of the containers that run.
func (l *Live) cadvisor(p pod, before map[string]used) {
	now := time.Now()
	for _, s := range p.Status.ContainerStatuses {
		i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == s.Name })
		if s.State.Running == nil || i < 0 {
			continue
		}
		cores, bytes := l.usage(p.Spec.Containers[i].Image, now)
		u, known := before[s.ContainerID]
		if !known {
			u.at = now
		}
		u = used{seconds: u.seconds + cores*now.Sub(u.at).Seconds(), at: now}
		l.used[s.ContainerID] = u
		name := s.ContainerID[strings.LastIndex(s.ContainerID, "/")+1:]
		of := []string{"container", s.Name, "id", "/kubepods/pod" + string(p.UID) + "/" + name, "name", name, "image", s.Image}
		p.write(prometheus.CounterValue, "container_cpu_usage_seconds_total", u.seconds, append(of, "cpu", "total")...)
		p.write(prometheus.GaugeValue, "container_memory_working_set_bytes", bytes, of...)
	}
}
