package resize_test

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/heap"
)

// looks are pods as a look finds them: before the edit, and after the resize.
type looks struct {
	older, newer  *corev1.PodTemplateSpec
	before, after *corev1.Pod
}

// newLooks returns pods as they come in practice: two containers and a sidecar, each with an
// environment, mounts and probes, and with our entry in managedFields.
func newLooks(b *testing.B) looks {
	b.Helper()
	older, newer := realistic(b, "100m", "100Mi"), realistic(b, "150m", "200Mi")
	return looks{older, newer, build.Pod("web-0", older), build.Pod("web-0", newer, build.Ours(resizedFields))}
}

// realistic returns a template whose containers all have this size.
func realistic(b *testing.B, cpu, memory string) *corev1.PodTemplateSpec {
	b.Helper()
	const container = `{name: %[1]s, image: "registry.example.com/%[1]s:1.2.3", args: [--serve, --port=8080],
		env: [{name: LEVEL, value: info}, {name: ZONE, value: a}, {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: GOMAXPROCS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}],
		ports: [{containerPort: 8080}], volumeMounts: [{name: data, mountPath: /data}, {name: config, mountPath: /config}],
		readinessProbe: {httpGet: {path: /ready, port: 8080}}, livenessProbe: {httpGet: {path: /live, port: 8080}},
		resources: {requests: {cpu: %[2]s, memory: %[3]s}, limits: {cpu: 1, memory: 1Gi}}%[4]s}`
	of := func(name, more string) string { return fmt.Sprintf(container, name, cpu, memory, more) }
	return build.Template(b, "{serviceAccountName: web, securityContext: {runAsNonRoot: true}, tolerations: [{key: a, operator: Exists}, {key: b, operator: Exists}],\n"+
		"volumes: [{name: data, persistentVolumeClaim: {claimName: data-web-0}}, {name: config, configMap: {name: web}}],\n"+
		"initContainers: ["+of("proxy", ", restartPolicy: Always")+"], containers: ["+of("app", "")+", "+of("log", "")+"]}")
}

// resizedFields are those of a resize of all containers.
var resizedFields = fmt.Sprintf(`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":%[1]s,"k:{\"name\":\"log\"}":%[1]s},"f:initContainers":{"k:{\"name\":\"proxy\"}":%[1]s}}}`,
	`{"f:resources":{"f:limits":{"f:cpu":{},"f:memory":{}},"f:requests":{"f:cpu":{},"f:memory":{}}}}`)

func BenchmarkFor(b *testing.B) {
	l := newLooks(b)
	for name, pod := range map[string]*corev1.Pod{"before": l.before, "after": l.after} {
		b.Run(name, func(b *testing.B) {
			benchmarkTarget(b, func() (resize.Target, error) { return resize.For(pod, l.older, l.newer) })
		})
	}
}

func BenchmarkLeftover(b *testing.B) {
	l := newLooks(b)
	b.Run("none", func(b *testing.B) {
		benchmarkTarget(b, func() (resize.Target, error) { return resize.Leftover(l.after, l.newer) })
	})
	b.Run("of all values", func(b *testing.B) {
		benchmarkTarget(b, func() (resize.Target, error) { return resize.Leftover(l.after, l.older) })
	})
}

// benchmarkTarget measures a look at one pod, and how many bytes its target keeps.
func benchmarkTarget(b *testing.B, look func() (resize.Target, error)) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := look(); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	const many = 1000
	before := heap.InUse()
	kept := make([]resize.Target, many)
	for i := range kept {
		kept[i], _ = look()
	}
	b.ReportMetric(float64(heap.InUse()-before)/many, "B-kept/op")
	runtime.KeepAlive(kept)
}

func BenchmarkObserve(b *testing.B) {
	l := newLooks(b)
	target, err := resize.For(l.after, l.older, l.newer)
	if err != nil {
		b.Fatal(err)
	}
	if state, message := target.Observe(); state != resize.Actuated {
		b.Fatalf("the pod is %s: %s", state, message)
	}
	b.ReportAllocs()
	for b.Loop() {
		target.Observe()
	}
}

func BenchmarkBusy(b *testing.B) {
	l := newLooks(b)
	b.ReportAllocs()
	for b.Loop() {
		resize.Busy(l.after, resize.Kubelet{})
	}
}

func BenchmarkDescribe(b *testing.B) {
	l := newLooks(b)
	target, err := resize.For(l.before, l.older, l.newer)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		resize.Describe(target.Changes)
	}
}

func BenchmarkBetween(b *testing.B) {
	l := newLooks(b)
	b.ReportAllocs()
	for b.Loop() {
		resize.Between(l.older, l.newer)
	}
}

func BenchmarkNewborn(b *testing.B) {
	l := newLooks(b)
	target, err := resize.For(l.before, l.older, l.newer)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		target.Newborn(true)
	}
}
