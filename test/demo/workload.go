package main

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// Every workload runs in both namespaces, and only in the first it is opted in.
const (
	inPlace = "demo"
	builtIn = "demo-builtin"
)

// workload is what the demo shows in one chapter. Everything that belongs to it has
// the label app with its name.
type workload struct {
	kind, name string
	file       string // its manifest in this folder
	manifest   []byte
	about      string
	more, edit string // what the edit brings, in words and as flags of kubectl
	waiter     string // the kubectl command that waits for the opted-in one
}

var (
	//go:embed database.yaml
	databaseManifest []byte
	//go:embed web.yaml
	webManifest []byte
	//go:embed agent.yaml
	agentManifest []byte
	//go:embed counter.yaml
	counterManifest []byte
)

// Workloads in the order in which they are shown, each with another way to wait.
var (
	simulated = []workload{database, web}
	counters  = []workload{counting("StatefulSet", "counter", completeWaiter), counting("Deployment", "web", rolloutStatus)}
)

const (
	completeWaiter = "wait --for=condition=" + api.ConditionComplete
	rolloutStatus  = "rollout status"
)

var database = workload{
	kind: "StatefulSet", name: "db",
	file: "database.yaml", manifest: databaseManifest,
	about: "two containers, probes, a volume claim each, a PodDisruptionBudget",
	more:  "cpu and memory",
	edit:  "-c database --requests=cpu=1,memory=1Gi --limits=memory=1Gi",

	waiter: completeWaiter,
}

var web = workload{
	kind: "Deployment", name: "web",
	file: "web.yaml", manifest: webManifest,
	about: "probes, the default strategy, a PodDisruptionBudget",
	more:  "cpu",
	edit:  "-c nginx --requests=cpu=500m",

	waiter: rolloutStatus,
}

// agent is shown at a glance.
var agent = workload{
	kind: "DaemonSet", name: "agent",
	file: "agent.yaml", manifest: agentManifest,
	about: "a probe, the default strategy, one pod on each node",
	edit:  "-c agent --requests=cpu=200m",
}

// counting is a workload on a real node.
func counting(kind, name, waiter string) workload {
	return workload{
		kind: kind, name: name,
		file: "counter.yaml", manifest: []byte(strings.NewReplacer("KIND", kind, "NAME", name).Replace(string(counterManifest))),
		about: "a program that counts, probes, a PodDisruptionBudget",
		more:  "cpu and memory",
		edit:  "-c counter --requests=cpu=100m,memory=128Mi --limits=cpu=100m,memory=128Mi",

		waiter: waiter,
	}
}

// in names the workload in a namespace, as arguments of kubectl.
func (w *workload) in(namespace string) string {
	return fmt.Sprintf("%s/%s -n %s", strings.ToLower(w.kind), w.name, namespace)
}

// subject is the workload in one of the namespaces.
func (w *workload) subject(namespace string) measure.Subject {
	return measure.Subject{Namespace: namespace, Name: w.name}
}
