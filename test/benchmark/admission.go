package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// admissionOptions are the flags of initial-resources.
type admissionOptions struct {
	bin, version, policy, json string
	rounds, pods, containers   int
}

// admitted is what the creation of pods has taken in one way.
type admitted struct {
	Way   string  `json:"way"`
	P50   seconds `json:"p50"`
	P99   seconds `json:"p99"`
	Added seconds `json:"added"` // to the median of the same round without a policy; the median of all rounds
	// Admission is what the API server says that policies and webhooks took, for each pod.
	Admission seconds `json:"admission"`
	CPU       seconds `json:"cpu"` // of the API server, for each pod
}

// admissionWay is one way to create pods.
type admissionWay struct {
	name      string
	namespace string
	images    int // that the namespace's table knows
	labels    map[string]string
	policy    bool // whether the policy is there
	own       bool // whether the pods have requests of their own
	sets      bool // whether they have requests when they are there

	containers int // of each pod

	rounds    [][]time.Duration
	admission time.Duration
	cpu       float64
}

func admissionWays() []*admissionWay {
	enabled := map[string]string{api.InitialResourcesLabel: "enabled"}
	ways := []*admissionWay{
		{name: "no policy", namespace: "without"},
		{name: "policy, not opted in", namespace: "without", policy: true},
		{name: "policy, opted in, no table", namespace: "no-table", labels: enabled, policy: true},
		{name: "policy, nothing to estimate", namespace: "own", images: 100, labels: enabled, policy: true, own: true, sets: true},
	}
	for _, images := range []int{10, 100, 500, 1000} {
		ways = append(ways, &admissionWay{
			name: fmt.Sprintf("policy, %d images", images), namespace: fmt.Sprintf("images-%d", images), images: images, labels: enabled, policy: true, sets: true,
		})
	}
	return append(ways, &admissionWay{name: "webhook with a map", namespace: "webhook", policy: true, sets: true})
}

// initialResources measures what the policy of initial resources adds to the creation of a pod,
// beside a webhook that does as much.
func initialResources(ctx context.Context, args []string) error {
	var o admissionOptions
	flags := flag.NewFlagSet("benchmark initial-resources", flag.ContinueOnError)
	flags.StringVar(&o.bin, "bin", "bin/k8s", "folder of the Kubernetes binaries")
	flags.StringVar(&o.version, "kubernetes", "", "minor version of Kubernetes, such as 1.36; the newest if empty")
	flags.StringVar(&o.policy, "policy", "deploy/initial-resources/estimate-pods.yaml", "file of the policy")
	flags.StringVar(&o.json, "json", "", "add what was measured to this file")
	flags.IntVar(&o.rounds, "rounds", 20, "how often each way has its turn")
	flags.IntVar(&o.pods, "pods", 50, "how many pods are created in each turn, one after the other")
	flags.IntVar(&o.containers, "containers", 1, "how many containers each pod has")
	if err := flags.Parse(args); err != nil {
		return err
	}
	begin := time.Now()
	measured, version, err := o.measure(ctx)
	if err != nil {
		return err
	}
	all := results{Machine: thisMachine(), Admission: measured}
	all.Machine.Kubernetes = version
	if err := all.save(o.json); err != nil {
		return err
	}
	fmt.Printf("%s The pods have %d containers.\n", all.Machine, o.containers)
	if err := printAdmitted(os.Stdout, measured); err != nil {
		return err
	}
	fmt.Printf("\nMeasured in %s.\n", time.Since(begin).Round(time.Second))
	return nil
}

func (o admissionOptions) measure(ctx context.Context) (_ []admitted, version string, err error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{Bin: o.bin, Version: o.version})
	if err != nil {
		return nil, "", err
	}
	c := &cluster{Cluster: &measure.Cluster{ControlPlane: cp}}
	defer c.End(ctx, &err)
	config := cp.RESTConfig()
	config.QPS = -1
	if c.Client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, "", fmt.Errorf("making a client: %w", err)
	}
	ways := admissionWays()
	for _, w := range ways {
		w.containers = o.containers
		if err := w.prepare(ctx, c); err != nil {
			return nil, "", fmt.Errorf("%s: %w", w.name, err)
		}
	}
	stop, err := webhook.Start(ctx, c.Client, webhook.Options{Namespace: "webhook", Resources: []string{"pods"}, Mutate: lookUp(10000)})
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, stop(context.WithoutCancel(ctx))) }()
	for i := range o.rounds {
		if err := o.round(ctx, c, ways, i); err != nil {
			return nil, "", err
		}
	}
	var measured []admitted
	for _, w := range ways {
		measured = append(measured, w.result(ways[0]))
	}
	return measured, cp.Version(), nil
}

// round gives each way its turn: those with the policy in an order that changes, so that what goes
// on beside us disturbs all alike.
func (o admissionOptions) round(ctx context.Context, c *cluster, ways []*admissionWay, i int) error {
	without, with := ways[:1], slices.Clone(ways[1:])
	for range i % len(with) {
		with = append(with[1:], with[0])
	}
	for _, policy := range []bool{false, true} {
		turns, verb := without, []string{"delete", "--ignore-not-found"}
		if policy {
			turns, verb = with, []string{"apply"}
		}
		if _, err := c.Kubectl(ctx, append(verb, "--filename", o.policy)...); err != nil {
			return fmt.Errorf("changing the policy: %w", err)
		}
		if err := c.inForce(ctx, policy); err != nil {
			return err
		}
		for _, w := range turns {
			if err := w.turn(ctx, c, o.pods); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return nil
}

// unmeasured is how many pods each turn begins with that do not count: what was idle is slow at first.
const unmeasured = 20

// inForce waits until the policy is applied, or no more.
func (c *cluster) inForce(ctx context.Context, applied bool) error {
	w := admissionWay{namespace: "images-10", images: 10, sets: applied}
	for {
		_, err := c.Client.CoreV1().Pods(w.namespace).Create(ctx, w.pod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return fmt.Errorf("asking for the policy: %w", err)
		}
		if err = w.create(ctx, c, "probe", metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return wait(ctx, time.Second) // for what goes on at once
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("the policy does not do as it should: %w", err)
		}
	}
}

func imageName(i int) string {
	return fmt.Sprintf("registry.example.com:5000/some-team/some-service-%05d", i)
}

// prepare makes the namespace and its tables.
func (w *admissionWay) prepare(ctx context.Context, c *cluster) error {
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace, Labels: w.labels}}
	if _, err := c.Client.CoreV1().Namespaces().Create(ctx, made, metav1.CreateOptions{}); err != nil {
		if w.name == "policy, not opted in" {
			return nil // it is there already
		}
		return fmt.Errorf("creating a namespace: %w", err)
	}
	if w.images > 0 {
		table := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: api.EstimatesName, Labels: map[string]string{api.ManagedByLabel: api.ManagedBy}}, Data: map[string]string{},
		}
		for i := range w.images { // with more than 1000, it is larger than ConfigMaps may be
			key := strings.NewReplacer("/", "-_", ":", "_-").Replace(imageName(i))
			for _, version := range []string{"_-v1.2.3", ""} {
				table.Data[key+version+".cpu"] = `120m {"request":"120m","from":"image:tag","window":"7d","percentile":90,"samples":10080,"scope":"namespace"}`
				table.Data[key+version+".memory"] = `300Mi {"request":"300Mi","from":"image:tag","window":"7d","percentile":90,"samples":10080,"scope":"namespace"}`
			}
		}
		if _, err := c.Client.CoreV1().ConfigMaps(w.namespace).Create(ctx, table, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating a table: %w", err)
		}
	}
	for { // without its service account, no pod can be created there
		_, err := c.Client.CoreV1().ServiceAccounts(w.namespace).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// pod is one as charts make them, which no scheduler looks at.
func (w *admissionWay) pod(name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web", "team": "some-team"}},
		Spec: corev1.PodSpec{
			SchedulerName: "nobody", TerminationGracePeriodSeconds: new(int64),
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
	for i := range max(1, w.containers) {
		c := corev1.Container{
			Name: fmt.Sprintf("container-%d", i), Image: imageName(max(w.images, 10)/2) + ":v1.2.3",
			Ports:          []corev1.ContainerPort{{Name: fmt.Sprintf("http-%d", i), ContainerPort: int32(8080 + i)}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(8080 + i)}}},
			VolumeMounts:   []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		}
		for j := range 10 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", j), Value: "value"})
		}
		if w.own {
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// create creates a pod, and checks that it is as it should be.
func (w *admissionWay) create(ctx context.Context, c *cluster, name string, o metav1.CreateOptions) error {
	pod, err := c.Client.CoreV1().Pods(w.namespace).Create(ctx, w.pod(name), o)
	if err != nil {
		return fmt.Errorf("creating a pod: %w", err)
	}
	for _, one := range pod.Spec.Containers {
		if set := !one.Resources.Requests.Cpu().IsZero() && !one.Resources.Requests.Memory().IsZero(); set != w.sets {
			return fmt.Errorf("the pod's container %s has requests: %v, want %v", one.Name, set, w.sets)
		}
	}
	return nil
}

// turn creates pods one after the other, and deletes them.
func (w *admissionWay) turn(ctx context.Context, c *cluster, pods int) error {
	for i := range unmeasured {
		if err := w.create(ctx, c, "first-"+strconv.Itoa(i), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	before, err := c.apiServerSays(ctx)
	if err != nil {
		return err
	}
	var took []time.Duration
	for i := range pods {
		begin := time.Now()
		if err := w.create(ctx, c, "pod-"+strconv.Itoa(i), metav1.CreateOptions{}); err != nil {
			return err
		}
		took = append(took, time.Since(begin))
	}
	after, err := c.apiServerSays(ctx)
	if err != nil {
		return err
	}
	w.rounds = append(w.rounds, took)
	w.admission += after.admission - before.admission
	w.cpu += after.cpu - before.cpu
	if err := c.Client.CoreV1().Pods(w.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("deleting pods: %w", err)
	}
	return nil
}

// said is what the API server has taken since it was started.
type said struct {
	admission time.Duration // for policies and webhooks that mutate what is created
	cpu       float64
}

func (c *cluster) apiServerSays(ctx context.Context) (said, error) {
	var s said
	text, err := c.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return s, fmt.Errorf("reading metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return s, fmt.Errorf("reading metrics: %w", err)
	}
	for _, m := range families["apiserver_admission_controller_admission_duration_seconds"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if strings.HasPrefix(labels["name"], "MutatingAdmission") && labels["operation"] == "CREATE" {
			s.admission += time.Duration(m.GetHistogram().GetSampleSum() * float64(time.Second))
		}
	}
	s.cpu, err = cpuOf(apiServer, c.PID(apiServer))
	return s, err
}

// lookUp does what the policy does, from a map of so many images.
func lookUp(images int) webhook.Mutate {
	table := map[string]corev1.ResourceList{}
	for i := range images {
		table[imageName(i)+":v1.2.3"] = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("120m"), corev1.ResourceMemory: resource.MustParse("300Mi"),
		}
	}
	return func(_ *admissionv1.AdmissionRequest, pod *unstructured.Unstructured) {
		for _, list := range []string{"initContainers", "containers"} {
			containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", list)
			for _, c := range containers {
				if c, ok := c.(map[string]any); ok {
					for name, quantity := range table[fmt.Sprint(c["image"])] {
						_ = unstructured.SetNestedField(c, quantity.String(), "resources", "requests", string(name))
					}
				}
			}
			_ = unstructured.SetNestedSlice(pod.Object, containers, "spec", list)
		}
	}
}

// result sums up the rounds.
func (w *admissionWay) result(without *admissionWay) admitted {
	all := slices.Concat(w.rounds...)
	var added []time.Duration
	for i, round := range w.rounds {
		added = append(added, percentile(round, 50)-percentile(without.rounds[i], 50))
	}
	n := len(all)
	return admitted{
		Way: w.name, P50: inSeconds(percentile(all, 50)), P99: inSeconds(percentile(all, 99)), Added: inSeconds(percentile(added, 50)),
		Admission: inSeconds(w.admission / time.Duration(n)), CPU: seconds(w.cpu / float64(n)),
	}
}

func printAdmitted(out io.Writer, rows []admitted) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "creating a pod, ms\tp50\tp99\tadded to the p50\tpolicies and webhooks, mean\tkube-apiserver's cpu")
	for _, r := range rows {
		_, _ = fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%+.2f\t%.3f\t%.2f\n", r.Way, 1000*r.P50, 1000*r.P99, 1000*r.Added, 1000*r.Admission, 1000*r.CPU)
	}
	return w.Flush()
}
