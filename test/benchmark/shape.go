package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	deploymentutil "k8s.io/kubectl/pkg/util/deployment"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// shape is how many workloads of which kind, with how many pods each, are edited at once.
type shape struct {
	kind            string
	workloads, pods int
	// limit is how many pods of a StatefulSet or a DaemonSet may be under way at once: its maxUnavailable.
	limit int
}

// kindsByName are those of shapes.
var kindsByName = map[string]string{"statefulset": "StatefulSet", "daemonset": "DaemonSet", "deployment": "Deployment"}

var shapePattern = regexp.MustCompile(`^(statefulset|daemonset|deployment):([1-9]\d*)x([1-9]\d*)(?::([1-9]\d*))?$`)

// parseShape reads "statefulset:1x100" (one StatefulSet of 100 pods, one at a time),
// "statefulset:1x100:10" (ten at a time), "daemonset:1x100:10" (on 100 nodes) or "deployment:20x10".
func parseShape(text string) (shape, error) {
	found := shapePattern.FindStringSubmatch(text)
	if found == nil || found[1] == "deployment" && found[4] != "" {
		return shape{}, fmt.Errorf("shape %q: want (statefulset|daemonset):WORKLOADSxPODS[:MAXUNAVAILABLE] or deployment:WORKLOADSxPODS", text)
	}
	s := shape{kind: kindsByName[found[1]], limit: 1}
	s.workloads, _ = strconv.Atoi(found[2]) // the pattern has digits only
	s.pods, _ = strconv.Atoi(found[3])
	if found[4] != "" {
		s.limit, _ = strconv.Atoi(found[4])
	}
	if s.kind == "Deployment" {
		quarter := intstr.FromString("25%") // Kubernetes' defaults
		surge, unavailable, err := deploymentutil.ResolveFenceposts(&quarter, &quarter, int32(s.pods))
		if err != nil {
			return shape{}, fmt.Errorf("shape %q: %w", text, err)
		}
		s.limit = int(surge + unavailable)
	}
	return s, nil
}

// all is how many pods there are.
func (s shape) all() int { return s.workloads * s.pods }

// nodes are as many as a DaemonSet has pods; those of other kinds may have another beside half of
// them for a while, and a node takes 110.
func (s shape) nodes() int {
	if s.kind == "DaemonSet" {
		return s.pods
	}
	return s.all()*3/2/110 + 1
}

// String is what parseShape reads.
func (s shape) String() string {
	text := fmt.Sprintf("%s:%dx%d", strings.ToLower(s.kind), s.workloads, s.pods)
	if s.kind != "Deployment" && s.limit > 1 {
		text += fmt.Sprintf(":%d", s.limit)
	}
	return text
}

// title names the shape for people.
func (s shape) title() string {
	text := fmt.Sprintf("%s %d×%d", s.kind, s.workloads, s.pods)
	if s.kind != "Deployment" && s.limit > 1 {
		text += fmt.Sprintf(":%d", s.limit)
	}
	return text
}

// simulated is the manifest of a workload with a name, so many pods, and a time that a resize
// takes. Grace 0: simulated kubelets cannot terminate gracefully.
const simulated = `
apiVersion: apps/v1
metadata:
  labels: {app: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s}
      annotations: {sim.inplace-rollout.io/resize-time: %[3]s}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: app
        image: registry.example.com/team/app:1.2.3
        args: [--listen=:8080, --data=/var/lib/app]
        env:
        - {name: LOG_LEVEL, value: info}
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /ready, port: http}, periodSeconds: 1}
        livenessProbe: {httpGet: {path: /live, port: http}}
        resources: {requests: {cpu: 100m, memory: 128Mi}, limits: {cpu: 900m, memory: 128Mi}}
        volumeMounts: [{name: data, mountPath: /var/lib/app}]
      volumes: [{name: data, emptyDir: {}}]
`

// name is that of the i-th workload.
func (s shape) name(i int) string { return "web-" + strconv.Itoa(i) }

// workload reads the manifest of one.
func (s shape) workload(name string, resize time.Duration) (*unstructured.Unstructured, error) {
	w := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, simulated, name, s.pods, resize), &w.Object); err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	w.SetKind(s.kind)
	w.SetName(name)
	spec := w.Object["spec"].(map[string]any)
	if s.kind != "Deployment" && s.limit > 1 {
		spec["updateStrategy"] = map[string]any{"rollingUpdate": map[string]any{"maxUnavailable": int64(s.limit)}}
	}
	switch s.kind {
	case "DaemonSet":
		delete(spec, "replicas")
	case "StatefulSet":
		spec["serviceName"] = name
		if s.limit > 1 {
			spec["podManagementPolicy"] = string(appsv1.ParallelPodManagement)
		}
	}
	return w, nil
}

// edit is the patch of the n-th edit: each brings a size that the workload has never had.
func edit(n int) string {
	return fmt.Sprintf(`[{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/cpu", "value": "%dm"}]`, 100+n)
}

// complete reports whether the rollout is complete, as `kubectl wait` judges.
func complete(w *unstructured.Unstructured) bool {
	observed, _, _ := unstructured.NestedInt64(w.Object, "status", "observedGeneration")
	conditions, _, _ := unstructured.NestedSlice(w.Object, "status", "conditions")
	if observed != w.GetGeneration() {
		return false
	}
	for _, c := range conditions {
		if c, is := c.(map[string]any); is && c["type"] == api.ConditionComplete {
			return c["status"] == string(metav1.ConditionTrue)
		}
	}
	return false
}
