package controller

import (
	"context"

	"k8s.io/utils/clock"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/watchdog"
)

// Options of a Controller.
type Options struct {
	// Namespace whose workloads are synced; all namespaces if empty.
	Namespace string
	// Workers that sync workloads at the same time; at least 1.
	Workers int
	// Sessions bounds how many workloads are watched at the same time; 0 is [DefaultSessions].
	Sessions int
	// Parallel bounds how many pods of one workload are written at the same time; 0 is 1.
	Parallel int
	// Critical are the namespaces whose workloads are opted in by a second word only.
	Critical []string
	// DryRun logs what would be written, and writes nothing.
	DryRun bool
	// Defaults where a workload says nothing.
	Defaults policy.Defaults
	// Ready gates every sync: while it returns an error, nothing is touched.
	Ready func() error
	// LeftOut reports whether edits in a namespace are not held: what is opted in there counts as not opted in. Nil says no.
	LeftOut func(namespace string) bool
	// LeftOutNow looks once more, before a hold is let go for that.
	LeftOutNow func(ctx context.Context, namespace string) (bool, error)
	// Ledger of the room that was promised, which all controllers of a process share; nil is one of its own.
	Ledger *capacity.Ledger
	// KeepIfRoomUnknown keeps a pod that only a restart helps where it cannot be known whether the new one would have room.
	KeepIfRoomUnknown bool
	// Checks asks about resized pods; nil knows nothing of them.
	Checks Checks
	// Metrics to count in; nil counts nothing.
	Metrics *Metrics
	// Watchdog is told of each sync; nil hears nothing.
	Watchdog *watchdog.Watchdog
	// Clock of the plans; nil is that of the machine.
	Clock clock.PassiveClock
}

// Checks asks whether resized pods are well, in the background. A *podchecks.Runner is one.
type Checks interface {
	// Ask replaces what is asked about a workload; changed is called when an outcome has changed. It ends with no pods.
	Ask(workload string, names []string, pods []podchecks.Subject, changed func())
	// Outcomes are those that are known.
	Outcomes(workload string) podchecks.Outcomes
	// Unanswerable is why checks of these names can have no outcome; empty if they can.
	Unanswerable(names []string) string
}

// DefaultSessions is how many workloads are watched at the same time. Each session has two watches;
// 500 of one pod each took 80 MiB, and deploy/ gives 256 to all.
const DefaultSessions = 300
