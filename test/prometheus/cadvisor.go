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

// CAdvisor stands in for the cAdvisors of nodes that are simulated: it serves what the containers
// that run now use.
type CAdvisor struct {
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

// ServeCAdvisor begins to serve, on 127.0.0.1, until Close.
func ServeCAdvisor(client kubernetes.Interface, usage Usage) (*CAdvisor, error) {
	c := &CAdvisor{client: client, usage: usage, used: map[string]used{}}
	var err error
	if c.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("serving metrics: %w", err)
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		return nil, errors.Join(err, c.listener.Close())
	}
	c.server = &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), ReadHeaderTimeout: patience}
	go func() { _ = c.server.Serve(c.listener) }() // until it is closed
	return c, nil
}

// Address is where it serves.
func (c *CAdvisor) Address() string { return c.listener.Addr().String() }

// Close ends it.
func (c *CAdvisor) Close() error { return c.server.Close() }

// Describe says nothing: which series there are depends on the pods.
func (c *CAdvisor) Describe(chan<- *prometheus.Desc) {}

// Collect looks at the pods.
func (c *CAdvisor) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.used
	c.used = map[string]used{}
	for i := range pods.Items {
		c.write(pod{&pods.Items[i], out}, before)
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

// write writes what the containers of a pod use that run.
func (c *CAdvisor) write(p pod, before map[string]used) {
	now := time.Now()
	for _, s := range p.Status.ContainerStatuses {
		i := slices.IndexFunc(p.Spec.Containers, func(spec corev1.Container) bool { return spec.Name == s.Name })
		if s.State.Running == nil || i < 0 {
			continue
		}
		cores, bytes := c.usage(p.Spec.Containers[i].Image, now)
		u, known := before[s.ContainerID]
		if !known {
			u.at = now
		}
		u = used{seconds: u.seconds + cores*now.Sub(u.at).Seconds(), at: now}
		c.used[s.ContainerID] = u
		name := s.ContainerID[strings.LastIndex(s.ContainerID, "/")+1:]
		of := []string{"container", s.Name, "id", "/kubepods/pod" + string(p.UID) + "/" + name, "name", name, "image", s.Image}
		p.write(prometheus.CounterValue, "container_cpu_usage_seconds_total", u.seconds, append(of, "cpu", "total")...)
		p.write(prometheus.GaugeValue, "container_memory_working_set_bytes", bytes, of...)
	}
}
