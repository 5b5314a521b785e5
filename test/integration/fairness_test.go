//go:build around

package integration

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

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
	if got := dispatched("service-accounts") - others; got != 0 {
		t.Errorf("%v requests were of all ServiceAccounts", got)
	}
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
