//go:build around

package integration

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// The memory that deploy/ gives the controller.
const memoryLimit = 256 << 20

// TestStuckNeighbours: many workloads of one namespace are stuck for ever, and somebody touches
// them again and again, so that each has to be looked at. An edit in another namespace takes no
// more than 10 s longer than alone, and the controller has memory enough.
func TestStuckNeighbours(t *testing.T) {
	number := 40
	if said := os.Getenv("STUCK"); said != "" {
		number = must.Get(strconv.Atoi(said))(t)
	}
	t.Setenv("GOGC", "")             // the tests' own is not the controller's
	t.Setenv("GOMEMLIMIT", "230MiB") // as deploy/ has it
	process := ownController(t, controller.Options{})
	for i := range number/100 + 1 {
		name := fmt.Sprintf("stuck-%d", i)
		must.Do(t, cp.AddNode(t.Context(), name, controlplane.Node{CPU: "8", Memory: "16Gi"}))
		defer administer(t, "delete", "node", name)
	}
	w := newWorkload(t, options{})
	w.waitComplete()
	namespace, kinds := newNamespace(t, nil), map[string]string{}
	var manifests, refs []string
	for i := range number {
		name, kind := fmt.Sprintf("stuck-%d", i), []string{"StatefulSet", "Deployment"}[i%2]
		kinds[name], refs = kind, append(refs, strings.ToLower(kind)+"/"+name)
		manifests = append(manifests, strings.ReplaceAll(manifest(t, namespace, options{
			Kind: kind, Replicas: 1, Resources: "{requests: {cpu: 1m}}",
			Meta:    "annotations: {inplace-rollout.io/resource-resize-action: LiveResize}",
			PodMeta: "annotations: {" + strings.Replace(simInfeasible, "=", ": ", 1) + "}",
		}), "web", name))
	}
	defer administer(t, "delete", "statefulsets,deployments,pods", "--all", "-n", namespace, "--wait=false")
	apply(t, namespace, strings.Join(manifests, "---\n"))
	administer(t, append([]string{"wait", "--namespace", namespace, "--for=condition=inplace-rollout.io/Complete", "--timeout=" + patience.String()}, refs...)...)

	took := func(cpu string) time.Duration {
		t.Helper()
		begun := time.Now()
		w.setResources("cpu="+cpu, "")
		w.waitComplete()
		return time.Since(begun)
	}
	patchAll := func(atOnce int, patch string, ended <-chan struct{}) {
		t.Helper()
		var all errgroup.Group
		all.SetLimit(atOnce)
		for name, kind := range kinds {
			select {
			case <-ended:
				return
			default:
			}
			all.Go(func() (err error) {
				if kind == "StatefulSet" {
					_, err = client.AppsV1().StatefulSets(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
				} else {
					_, err = client.AppsV1().Deployments(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
				}
				return err
			})
		}
		must.Do(t, all.Wait())
	}
	stuck := func() (count int) {
		t.Helper()
		for reason := range strings.FieldsSeq(administer(t, "get", "statefulsets,deployments", "-n", namespace,
			"-o", `jsonpath={.items[*].status.conditions[?(@.type=="inplace-rollout.io/Complete")].reason}`)) {
			if reason == "Infeasible" {
				count++
			}
		}
		return count
	}
	alone := took("150m")
	patchAll(8, `{"spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "2m"}}}]}}}}`, nil)
	eventually(t, "all to be stuck", func() (bool, string) {
		count := stuck()
		return count == number, fmt.Sprintf("%d of %d are", count, number)
	})
	ended := make(chan struct{})
	var touching sync.WaitGroup
	touching.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			default:
				patchAll(2, fmt.Sprintf(`{"metadata": {"annotations": {"example.com/touched": "%d"}}}`, i), ended)
			}
		}
	})
	beside := took("180m")
	close(ended)
	touching.Wait()
	if beside > alone+10*time.Second {
		t.Errorf("it took %s beside %d workloads that are stuck, and %s alone", beside, number, alone)
	}
	w.assertMoved(0)
	must.Equal(t, stuck(), number, "how many are stuck still")
	p := must.Get(procfs.NewProc(process.PID()))(t)
	status := must.Get(p.NewStatus())(t)
	t.Logf("%d workloads are stuck: %s beside them, %s alone, %d MiB", number, beside.Round(time.Millisecond), alone.Round(time.Millisecond), status.VmHWM>>20)
	if status.VmHWM > memoryLimit {
		t.Errorf("the controller took %d MiB", status.VmHWM>>20)
	}
}

// The FlowSchemas of deploy/, which are named like their ServiceAccount.
const (
	flowSchema      = "inplace-rollout"
	flowSchemaLease = "inplace-rollout-leader-election"
)

// flowMetric returns a metric of the API server's priority and fairness, where label has value.
func flowMetric(t *testing.T, name, label, value string) float64 {
	t.Helper()
	text := must.Get(client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context()))(t)
	sum := 0.0
	for _, m := range parseMetrics(t, string(text))["apiserver_flowcontrol_"+name].GetMetric() {
		for _, l := range m.Label {
			if l.GetName() == label && l.GetValue() == value {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// TestFlowSchemas: what the controller asks for is taken for its own, and for nothing else. So many requests may be under way at once and no
// more, those of one namespace take turns with those of others, and the Lease waits for none of them: what API servers make of that
// is theirs.
func TestFlowSchemas(t *testing.T) {
	dispatched := func(schema string) float64 { return flowMetric(t, "dispatched_requests_total", "flow_schema", schema) }
	ours, lease, others := dispatched(flowSchema), dispatched(flowSchemaLease), dispatched("service-accounts")
	ownController(t, controller.Options{Args: []string{"--leader-elect"}})
	w := newWorkload(t, options{})
	w.waitComplete()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(0)
	if got := dispatched(flowSchema) - ours; got < 10 { // three resizes, three labels, statuses, events, watches
		t.Errorf("%v requests were of FlowSchema %s", got, flowSchema)
	}
	if got := dispatched(flowSchemaLease) - lease; got < 2 { // get and create, or update
		t.Errorf("%v requests were of FlowSchema %s", got, flowSchemaLease)
	}
	must.Equal(t, dispatched("service-accounts")-others, 0, "requests of all ServiceAccounts")
	levels := map[string]bool{}
	for name, by := range map[string]flowcontrolv1.FlowDistinguisherMethodType{flowSchema: flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowSchemaLease: flowcontrolv1.FlowDistinguisherMethodByUserType} {
		schema, err := client.FlowcontrolV1().FlowSchemas().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || schema.Spec.DistinguisherMethod == nil || schema.Spec.DistinguisherMethod.Type != by {
			t.Fatalf("FlowSchema %s: %v, %v", name, schema, err)
		}
		levels[schema.Spec.PriorityLevelConfiguration.Name] = true
	}
	level, err := client.FlowcontrolV1().PriorityLevelConfigurations().Get(t.Context(), flowSchema, metav1.GetOptions{})
	if err != nil || len(levels) != 2 || !levels[flowSchema] || level.Spec.Type != flowcontrolv1.PriorityLevelEnablementLimited || level.Spec.Limited.LimitResponse.Type != flowcontrolv1.LimitResponseTypeQueue {
		t.Errorf("the levels are %v, and ours %v, %v", levels, level, err)
	}
}
