//go:build integration || around

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// known is what the tables know, where nothing else is said.
var known = table(
	entries("web:1", "120m", "300Mi"), anyVersion("web", "200m", "400Mi"),
	entries("small:1", "10m", "16Mi"),
	entries("counted:1", "30m", ""), anyVersion("counted", "40m", "50Mi"),
	entries("onlycpu:1", "30m", ""),
)

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// namespace has pods that are estimated, or not.
type namespace struct {
	name   string
	label  string                  // that opts it in
	ranges []corev1.LimitRangeItem // each in a LimitRange of its own
	table  map[string]string       // none if nil
}

// create makes the namespace and what is in it, and waits until the API server knows its table.
func (n *namespace) create(ctx context.Context) error {
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	if n.label != "" {
		made.Labels = map[string]string{api.InitialResourcesLabel: n.label}
	}
	if _, err := client.CoreV1().Namespaces().Create(ctx, made, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating it: %w", err)
	}
	for _, item := range n.ranges {
		l := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{GenerateName: "range-"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
		if _, err := client.CoreV1().LimitRanges(n.name).Create(ctx, l, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating a LimitRange: %w", err)
		}
	}
	if err := await(ctx, func() error { // without its service account, no pod can be created
		_, err := client.CoreV1().ServiceAccounts(n.name).Get(ctx, "default", metav1.GetOptions{})
		return err
	}); err != nil || n.table == nil {
		return err
	}
	return publish(ctx, n.name, n.table)
}

var published atomic.Int64

// publish writes the table as the estimator does, and waits until new pods get what it says.
func publish(ctx context.Context, namespace string, table map[string]string) error {
	const probe = "probe.example.com/published"
	now := fmt.Sprintf("%dm", published.Add(1))
	table = maps.Clone(table)
	maps.Copy(table, entries(probe, now, ""))
	if _, has := table[estimate.RolesEntry]; has {
		table = maps.Clone(table)
		maps.Copy(table, roleEntries(probe, "probe", now, ""))
	}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: api.EstimatesName, Labels: map[string]string{api.ManagedByLabel: api.ManagedBy},
	}, Data: table}
	_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, made, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.CoreV1().ConfigMaps(namespace).Update(ctx, made, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("publishing a table: %w", err)
	}
	return await(ctx, func() error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: map[string]string{api.InitialResourcesLabel: "annotate"}}}
		size := amounts("100m", "16Mi") // with which no LimitRange finds fault
		pod.Spec.Containers = []corev1.Container{{Name: "probe", Image: probe, Resources: corev1.ResourceRequirements{Requests: size, Limits: size}}}
		pod, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !strings.Contains(pod.Annotations[api.EstimateAnnotation], `"`+now+`"`) {
			err = errors.New("the API server does not know the table")
		}
		return err
	})
}

// entries are what a table says of an image; without a quantity it says nothing.
func entries(image, cpu, memory string) map[string]string { return roleEntries(image, "", cpu, memory) }

func roleEntries(image, role, cpu, memory string) map[string]string {
	parsed, err := estimate.ParseImage(image)
	if err != nil {
		panic(err)
	}
	key := estimate.Key{Image: parsed, Role: role}
	made := map[string]string{}
	for name, request := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if request != "" {
			e := estimate.Estimate{Resource: name, Request: resource.MustParse(request), From: estimate.FromTag, Window: 7 * 24 * 60 * 60e9, Percentile: 90, Samples: 10080, Scope: estimate.InNamespace}
			made[key.Entry(name)] = e.Value()
		}
	}
	return made
}

// anyVersion are what a table says of an image in every version.
func anyVersion(image, cpu, memory string) map[string]string {
	made := map[string]string{}
	for key, value := range entries(image+":v", cpu, memory) {
		made[strings.Replace(key, "_-v.", ".", 1)] = strings.Replace(value, `"image:tag"`, `"image"`, 1)
	}
	return made
}

// table is all of that.
func table(parts ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all
}

// newPod reads a pod, and sees to it that no scheduler looks at it.
func newPod(text string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		return nil, fmt.Errorf("reading a pod: %w", err)
	}
	pod.GenerateName = "pod-"
	pod.Spec.SchedulerName = "nobody"
	return pod, nil
}

// requests tells in one line what the containers request, and of limits what there is.
func requests(pod *corev1.Pod) string {
	var all []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		said := []string{c.Name}
		for prefix, list := range map[string]corev1.ResourceList{"": c.Resources.Requests, "limit-": c.Resources.Limits} {
			for name, q := range list {
				said = append(said, prefix+string(name)+"="+q.String())
			}
		}
		slices.Sort(said[1:])
		all = append(all, strings.Join(said, " "))
	}
	return strings.Join(all, "; ")
}

// why is what the annotation says of a resource.
type why struct {
	Skipped string
	Request resource.Quantity
	Was     string
	From    string
	Window  string
	Samples int
	Capped  string
}

// says tells in one line what the annotation says.
func says(pod *corev1.Pod) (string, error) {
	text, has := pod.Annotations[api.EstimateAnnotation]
	if !has {
		return "", nil
	}
	var said map[string]map[string]why
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return "", fmt.Errorf("reading the annotation %s: %w", text, err)
	}
	var all []string
	for _, container := range slices.Sorted(maps.Keys(said)) {
		line := []string{container}
		for _, name := range slices.Sorted(maps.Keys(said[container])) {
			w := said[container][name]
			one := name + "=" + w.Request.String() + "(" + w.From
			if w.Was != "" {
				one += ",was " + w.Was
			}
			for _, more := range []string{w.Capped, w.Skipped} {
				if more != "" {
					one += "," + more
				}
			}
			line = append(line, one+")")
		}
		all = append(all, strings.Join(line, " "))
	}
	return strings.Join(all, "; "), nil
}

// check compares what a pod's containers request, and what its annotation says.
func check(t *testing.T, pod *corev1.Pod, want, wantSaid string) {
	t.Helper()
	must.Equal(t, requests(pod), want, "what the containers request")
	got := must.Get(says(pod))(t)
	must.Equal(t, got, wantSaid, "what the annotation says, %s", pod.Annotations[api.EstimateAnnotation])
}

// kubectl runs it with the manifest.
func kubectl(t *testing.T, manifest string, args ...string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	must.Do(t, os.WriteFile(file, []byte(manifest), 0o600))
	_, err := cp.Kubectl(t.Context(), append(args, "--filename", file)...)
	return err
}
