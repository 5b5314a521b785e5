package simulated

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// Eyes are a controller of a kind whose watches see something new only when the simulation lets
// them.
type Eyes[W interface {
	comparable
	controller.Workload
}, K controller.KindState] struct {
	Kind *Kind[W, K]
	// Seen is what the watches have seen.
	Seen struct {
		Workload W
		Pods     map[string]*corev1.Pod
	}

	driver     *Driver
	cluster    *Cluster
	view       View
	controller *controller.Controller[W, K]
}

// Open puts a new controller in the place of the one that there is.
func (e *Eyes[W, K]) Open(d *Driver, c *Cluster, kind controller.Kind[W, K], client *fake.Clientset, nodes *Nodes, defaults policy.Defaults) {
	var none W
	e.driver, e.cluster, e.view = d, c, NewView()
	e.Kind = &Kind[W, K]{Kind: seeing[W, K]{kind, e}, Pods: e.view}
	var err error
	e.controller, err = controller.New(d.Renew(), e.Kind, client, &record.FakeRecorder{}, nodes,
		controller.Options{Defaults: defaults, Ready: func() error { return nil }, Clock: c.Clock})
	d.NoError(err)
	e.Seen.Workload, e.Seen.Pods = none, nil
}

// See lets the watch of workloads catch up.
func (e *Eyes[W, K]) See(now W) {
	e.cluster.Looks(deploy.User, "workload")
	if e.Seen.Workload == now {
		return
	}
	e.Seen.Workload = now
	e.driver.Notice()
	e.driver.NoError(e.Kind.Workloads.Show(now))
}

// SeePods lets the watch of pods catch up.
func (e *Eyes[W, K]) SeePods() {
	e.cluster.Looks(deploy.User, "pods")
	if maps.Equal(e.Seen.Pods, e.cluster.Pods) {
		return
	}
	e.Seen.Pods = maps.Clone(e.cluster.Pods)
	e.driver.Notice()
	var list []any
	for _, pod := range e.cluster.Pods {
		list = append(list, pod)
	}
	e.driver.NoError(e.view.Show(list))
}

// Sync has the controller take one step.
func (e *Eyes[W, K]) Sync() (time.Duration, error) {
	e.Kind.Planned = e.Seen.Workload
	return e.controller.Sync(e.driver.t.Context(), Web)
}

// seeing is the kind, whose sessions watch what the eyes see.
type seeing[W interface {
	comparable
	controller.Workload
}, K controller.KindState] struct {
	controller.Kind[W, K]
	eyes *Eyes[W, K]
}

// Open has a new watch begin with what there is: mutationcache.Newest asks for it.
func (k seeing[W, K]) Open(ctx context.Context, w W, changed func()) (K, error) {
	k.eyes.SeePods()
	return k.Kind.Open(ctx, w, changed)
}
