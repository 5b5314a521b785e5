package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// Options of a Controller.
type Options struct {
	// Namespace whose workloads are looked after; all namespaces if empty.
	Namespace string
	// Workers that sync workloads at the same time; at least 1.
	Workers int
	// DryRun logs what would be written, and writes nothing.
	DryRun bool
	// Defaults where a workload says nothing.
	Defaults policy.Defaults
	// Ready gates every sync: while it returns an error, nothing is touched.
	Ready func() error
	// Metrics to count in; nil counts nothing.
	Metrics *Metrics
	// Clock of the plans; nil is that of the machine.
	Clock clock.PassiveClock
}

// NotOptedIn is why the built-in controller makes a rollout of a workload without the label.
func NotOptedIn(kind string) string { return "the " + kind + " is not opted in" }

// Adopts reports whether w, if its selector matches and it does not exist yet, takes what
// has no owner for its own.
func Adopts(w, orphan metav1.Object) bool {
	return w.GetUID() == "" && metav1.GetControllerOfNoCopy(orphan) == nil
}
