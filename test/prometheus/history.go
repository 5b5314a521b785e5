package prometheus

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// History is what has been scraped from cAdvisor and kube-state-metrics.
type History struct {
	// Every is the interval of the scrapes.
	Every      time.Duration
	Containers []Container
	// Gaps are when nothing was scraped.
	Gaps []Span
	// KubeStateMetrics is how many replicas of it are scraped; one, if it says nothing.
	KubeStateMetrics int
	// Replicas of Prometheus, if there are more than one, each with a label of its own.
	Replicas int
	// Without are labels that are dropped, as many do with id and name of cAdvisor's.
	Without []string
	// Cores is how many series of cpu there are for each container; one of all, if it says nothing.
	Cores int
	// Extra are further lines of OpenMetrics.
	Extra string
}

// Span is a time. Its end is not part of it.
type Span struct{ From, To time.Time }

func (s Span) has(t time.Time) bool { return !t.Before(s.From) && t.Before(s.To) }

// Container is one of a pod, from its start to the pod's end.
type Container struct {
	Span
	Namespace, Pod, Name string
	Image                string // as the pod's spec says
	Init                 bool
	// CPU are cores, Memory bytes, at a time.
	CPU, Memory func(t time.Time) float64
	// Restarts are in order.
	Restarts []Restart
	// Ended says why it is not started again: Completed, OOMKilled. The pod stays for Kept.
	Ended string
	Kept  time.Duration
}

// Restart is when and why a container was started again.
type Restart struct {
	At     time.Time
	Reason string
}

// Always is a usage that does not change.
func Always(value float64) func(time.Time) float64 {
	return func(time.Time) float64 { return value }
}

// Import has promtool make blocks of the history in the folder that Start gets.
func (h History) Import(ctx context.Context, dir string) error {
	path := filepath.Join(dir, "history.txt")
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(path) }()
	defer file.Close()
	if err := h.Write(file); err != nil {
		return err
	}
	// promtool reads the whole file for each block: the fewer, the sooner it is done.
	cmd := exec.CommandContext(ctx, Bin("promtool"), "tsdb", "create-blocks-from", "--max-block-duration=500h", "--quiet",
		"openmetrics", path, filepath.Join(dir, "data"))
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("promtool: %w: %s", err, output)
	}
	return nil
}

// Write writes it as OpenMetrics.
func (h History) Write(w io.Writer) error {
	out := &writer{Writer: bufio.NewWriter(w), history: h}
	for replica := range max(1, h.Replicas) {
		for i, c := range h.Containers {
			out.replica = ""
			if h.Replicas > 1 {
				out.replica = strconv.Itoa(replica)
			}
			out.cadvisor(c, i)
			for state := range max(1, h.KubeStateMetrics) {
				out.kubeStateMetrics(c, i, state)
			}
		}
	}
	_, _ = out.WriteString(h.Extra)
	_, _ = out.WriteString("# EOF\n")
	return out.Flush() // it says what went wrong before, too
}

type writer struct {
	*bufio.Writer
	history History
	replica string
}

// scrapes calls f at each scrape within a time.
func (w *writer) scrapes(within Span, f func(t time.Time)) {
	first := within.From.Truncate(w.history.Every)
	if first.Before(within.From) {
		first = first.Add(w.history.Every)
	}
	for t := first; t.Before(within.To); t = t.Add(w.history.Every) {
		if !slices.ContainsFunc(w.history.Gaps, func(gap Span) bool { return gap.has(t) }) {
			f(t)
		}
	}
}

// line is a series, ready to get samples.
func (w *writer) line(metric string, labels ...string) []byte {
	add := func(name, value string) {
		if !slices.Contains(w.history.Without, name) {
			labels = append(labels, name, value)
		}
	}
	pairs := labels
	labels = nil
	for i := 0; i < len(pairs); i += 2 {
		add(pairs[i], pairs[i+1])
	}
	if w.replica != "" {
		add("prometheus_replica", w.replica)
	}
	var line bytes.Buffer
	line.WriteString(metric)
	for i := 0; i < len(labels); i += 2 {
		separator := ","
		if i == 0 {
			separator = "{"
		}
		fmt.Fprintf(&line, "%s%s=%q", separator, labels[i], labels[i+1])
	}
	line.WriteString("} ")
	return line.Bytes()
}

func (w *writer) sample(line []byte, value float64, t time.Time) {
	line = strconv.AppendFloat(line, value, 'g', -1, 64)
	line = append(line, ' ')
	line = strconv.AppendInt(line, t.Unix(), 10)
	_, _ = w.Write(append(line, '\n'))
}

// uid is the pod's: those with one name that follow each other have different ones.
func (c Container) uid() string { return fmt.Sprintf("%s-%d", c.Pod, c.From.Unix()) }

// cadvisor writes a series for each start of the container. The label image is not to be
// trusted, as it is not in life.
func (w *writer) cadvisor(c Container, node int) {
	starts := slices.Concat([]time.Time{c.From}, build.Each(c.Restarts, func(r Restart) time.Time { return r.At }))
	for i, start := range starts {
		life := Span{start, c.To}
		if i+1 < len(starts) {
			life.To = starts[i+1]
		}
		id := fmt.Sprintf("%s-%s-%d", c.uid(), c.Name, i)
		labels := []string{
			"namespace", c.Namespace, "pod", c.Pod, "container", c.Name, "id", "/kubepods/" + id, "name", id,
			"image", "registry.example/not-this@sha256:0", "instance", fmt.Sprintf("node-%d", node%10), "job", "kubelet",
		}
		cores := []string{"total"}
		for core := range w.history.Cores {
			cores = append(cores[:core], fmt.Sprintf("cpu%02d", core))
		}
		for _, core := range cores {
			line := w.line("container_cpu_usage_seconds_total", append([]string{"cpu", core}, labels...)...)
			total, before := 0.0, start
			w.scrapes(life, func(t time.Time) {
				total += c.CPU(t) * t.Sub(before).Seconds() / float64(len(cores))
				before = t
				w.sample(line, total, t)
			})
		}
		memory := w.line("container_memory_working_set_bytes", labels...)
		w.scrapes(life, func(t time.Time) { w.sample(memory, c.Memory(t), t) })
	}
}

func (w *writer) kubeStateMetrics(c Container, node, replica int) {
	prefix := "kube_pod_container_"
	if c.Init {
		prefix = "kube_pod_init_container_"
	}
	pod := []string{"namespace", c.Namespace, "pod", c.Pod, "uid", c.uid(), "instance", fmt.Sprintf("kube-state-metrics-%d", replica), "job", "kube-state-metrics"}
	labels := append([]string{"container", c.Name}, pod...)

	info := slices.Concat([]string{"image", c.Image, "image_spec", c.Image, "image_id", "registry.example/not-this@sha256:0", "container_id", fmt.Sprintf("containerd://%d", node)}, labels)
	life := c.Span
	if c.Ended != "" {
		life.To = life.To.Add(c.Kept)
	}
	line := w.line(prefix+"info", info...)
	w.scrapes(life, func(t time.Time) { w.sample(line, 1, t) })

	// last is how often it was started again until then, and why the last time.
	last := func(t time.Time) (int, string) {
		count, reason := 0, ""
		for _, r := range c.Restarts {
			if !t.Before(r.At) {
				count, reason = count+1, r.Reason
			}
		}
		return count, reason
	}
	line = w.line(prefix+"status_restarts_total", labels...)
	w.scrapes(life, func(t time.Time) {
		count, _ := last(t)
		w.sample(line, float64(count), t)
	})
	written := map[string]bool{}
	for _, r := range c.Restarts {
		if written[r.Reason] {
			continue
		}
		written[r.Reason] = true
		line, there := w.line(prefix+"status_last_terminated_reason", append([]string{"reason", r.Reason}, labels...)...), false
		w.scrapes(life, func(t time.Time) {
			switch _, reason := last(t); {
			case reason == r.Reason:
				w.sample(line, 1, t)
				there = true
			case there: // promtool cannot write the mark that Prometheus puts where a series ends
				w.sample(line, 0, t)
				there = false
			}
		})
	}
	if c.Ended != "" {
		after := Span{c.To, life.To}
		line := w.line(prefix+"status_terminated_reason", append([]string{"reason", c.Ended}, labels...)...)
		w.scrapes(after, func(t time.Time) { w.sample(line, 1, t) })
		line = w.line("kube_pod_completion_time", pod...)
		w.scrapes(after, func(t time.Time) { w.sample(line, float64(c.To.Unix()), t) })
	}
}

// Configuration is that of a Prometheus that scrapes nothing: it has a history only.
const Configuration = "global: {scrape_interval: 1m}\n"

// StartWith runs a Prometheus that has the history.
func StartWith(ctx context.Context, dir string, h History, flags ...string) (*Server, error) {
	if err := h.Import(ctx, dir); err != nil {
		return nil, err
	}
	return Start(ctx, dir, Configuration, flags...)
}
