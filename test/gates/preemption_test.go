//go:build around

package gates

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestPreemptionForDeferred: with KEP-5836 the scheduler makes room for a resize that is Deferred, on the node of its
// pod, by the priority of pods. The rollout waits for that as for any room, and the pod stays. Where the node forbids
// it, or nothing is less important, the deadline decides as ever. The kubelet is simulated: it takes the resize when
// the test has seen that the room is there.
func TestPreemptionForDeferred(t *testing.T) {
	kubectl(t, "", "create", "priorityclass", "important", "--value=1000")
	for _, tt := range []struct {
		name      string
		filler    string // priority class of what fills the node
		forbidden bool   // by the node
		preempts  bool
		says      string // once the deadline is over; empty if it never is
		restarted bool
	}{
		{name: "room-is-made", preempts: true},
		{name: "forbidden", forbidden: true, preempts: true, restarted: true},
		{name: "nothing-less-important", filler: "important", says: "NoNodeFits"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFull(t, tt.filler, tt.forbidden)
			before := f.uid("web-0")
			f.run("set", "resources", "statefulset/web", "--containers=app", "--requests=cpu=1")
			switch {
			case tt.says != "":
				f.waitReason(tt.says)
			case tt.restarted:
				f.waitReason("Deferred")
				time.Sleep(2 * time.Second) // in which the scheduler would have made room
				if f.uid("filler") == "" {
					t.Error("a pod went for a resize on a node that forbids that")
				}
				f.waitReason("Complete")
			default:
				f.eventually("the scheduler to make room", func() (bool, string) { return f.uid("filler") == "", f.run("events") })
				f.run("annotate", "pod/web-0", "sim.inplace-rollout.io/resize-") // the kubelet looks again
				f.waitReason("Complete")
			}
			must.Equal(t, f.uid("web-0") != before, tt.restarted, "restarted")
			must.Equal(t, f.uid("filler") == "", tt.preempts, "preempted")
		})
	}
}

// full is a namespace with a node of its own that another pod fills, beside the only one of a StatefulSet.
type full struct {
	*testing.T

	namespace string
}

func newFull(t *testing.T, filler string, forbidden bool) *full {
	t.Helper()
	name := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
	f := &full{t, name}
	must.Do(t, cp.AddNode(t.Context(), name, controlplane.Node{CPU: "2", Memory: "4Gi", Labels: map[string]string{"pool": name}}))
	if forbidden {
		kubectl(t, "", "patch", "node", name, `--patch={"spec": {"podPreemptionPolicy": {"disableResizePreemption": ["test"]}}}`)
	}
	kubectl(t, "", "create", "namespace", name)
	timeout := "1m" // longer than it takes to make room
	if forbidden || filler != "" {
		timeout = "5s"
	}
	file := filepath.Join(t.TempDir(), "full.yaml")
	must.Do(t, os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: web
  namespace: %[1]s
  labels: {inplace-rollout.io/enabled: "true"}
  annotations: {inplace-rollout.io/deferred-timeout: %[2]s}
spec:
  serviceName: web
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {pool: %[1]s}
      priorityClassName: important
      terminationGracePeriodSeconds: 0
      containers: [{name: app, image: app, resources: {requests: {cpu: 100m}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: filler, namespace: %[1]s}
spec:
  nodeSelector: {pool: %[1]s}
  priorityClassName: %[3]q
  terminationGracePeriodSeconds: 0
  containers: [{name: app, image: app, resources: {requests: {cpu: 1800m}}}]
`, name, timeout, filler), 0o600))
	f.run("apply", "--filename", file)
	f.run("wait", "pod/filler", "--for=condition=Ready", "--timeout=60s")
	f.run("rollout", "status", "statefulset/web", "--timeout=60s")
	f.waitReason("Complete")
	f.run("annotate", "pod/web-0", "sim.inplace-rollout.io/resize=deferred")
	return f
}

func kubectl(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	return must.Get(cp.Kubectl(t.Context(), append([]string{"--namespace", namespace}, args...)...))(t)
}

func (f *full) run(args ...string) string {
	f.Helper()
	return kubectl(f.T, f.namespace, args...)
}

// uid of a pod; empty if there is none.
func (f *full) uid(pod string) types.UID {
	f.Helper()
	got, err := client.CoreV1().Pods(f.namespace).Get(f.Context(), pod, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		f.Fatal(err)
	}
	if err != nil || got.DeletionTimestamp != nil {
		return ""
	}
	return got.UID
}

// waitReason waits until the condition Complete has the reason. While the rollout is held, the generation is not observed.
func (f *full) waitReason(reason string) {
	f.Helper()
	f.eventually("the reason "+reason, func() (bool, string) {
		got := f.run("get", "statefulset/web", `--output=jsonpath={.metadata.generation} {.status.observedGeneration} {.status.conditions[?(@.type=="inplace-rollout.io/Complete")].reason}`)
		fields := strings.Fields(got)
		return len(fields) == 3 && fields[2] == reason && (reason != "Complete" || fields[0] == fields[1]), got
	})
}

func (f *full) eventually(what string, met func() (bool, string)) {
	f.Helper()
	must.Eventually(f, 200*time.Millisecond, patience, what, met)
}
