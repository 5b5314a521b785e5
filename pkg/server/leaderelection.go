package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/inplace-rollout/inplace-rollout/pkg/version"
)

// leaseTolerance is how long this process may go on after its Lease has expired, before it counts as
// hung. It should have ended by itself.
const leaseTolerance = 20 * time.Second

// leaseDuration is how long the other replicas respect the Lease, and renewDeadline is how long the leader
// relies on it. The difference is the time in which the leader's last writes are answered.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
)

// LeaderElection has one of several replicas work, by a Lease, and lets only that one write.
type LeaderElection struct {
	lease, namespace string
	config           *rest.Config
	gate             *leaseGate
	health           *leaderelection.HealthzAdaptor
	lock             resourcelock.Interface // once it runs
}

// NewLeaderElection returns the leader election by the Lease of that name. The config's limit on the rate of requests
// does not apply to its own requests, so a busy leader renews the Lease in time.
func NewLeaderElection(config *rest.Config, lease, namespace string) *LeaderElection {
	return &LeaderElection{
		lease: lease, namespace: namespace, config: Unlimited(config), gate: newLeaseGate(renewDeadline),
		health: leaderelection.NewLeaderHealthzAdaptor(leaseTolerance),
	}
}

// Gate has the clients of a config write only while this process is the leader.
func (e *LeaderElection) Gate(config *rest.Config) { config.Wrap(e.gate.transport) }

// Alive returns an error if the Lease has expired and this process goes on.
func (e *LeaderElection) Alive() error { return e.health.Check(nil) }

// Standby returns an error unless another replica is seen to lead, so that this one need not. The Lease of one that was killed
// counts for nothing, though nobody else can lead until it has run out.
func (e *LeaderElection) Standby() error {
	if e.gate.othersLead() {
		return nil
	}
	return fmt.Errorf("no replica is seen to lead yet: waiting until Lease %s/%s is renewed, which takes seconds, or %s after a leader was killed", e.namespace, e.lease, leaseDuration)
}

// Followed reports whether another replica has the Lease, now that this one has given it back.
func (e *LeaderElection) Followed(ctx context.Context) bool {
	record, _, err := e.lock.Get(ctx)
	return err == nil && record.HolderIdentity != "" && record.HolderIdentity != e.lock.Identity()
}

// Run runs work while this process is the leader. Losing the Lease is an error:
// the process has to start anew.
func (e *LeaderElection) Run(ctx context.Context, work func(context.Context)) error {
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding the host's name: %w", err)
	}
	config := rest.AddUserAgent(rest.CopyConfig(e.config), "leader-election")
	config.Timeout = renewDeadline / 2 // one request that hangs must not cost the lead
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("setting up the leader election: %w", err)
	}
	lock, err := resourcelock.NewWithLabels(resourcelock.LeasesResourceLock, e.namespace, e.lease, client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: hostname + "_" + string(uuid.NewUUID())}, map[string]string{version.Label: version.Get().LabelValue()})
	if err != nil {
		return fmt.Errorf("setting up the leader election: %w", err)
	}
	e.lock = lock
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          &gatedLock{Interface: lock, gate: e.gate},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
		Name:            e.lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { work(ctx); cancel() },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("setting up the leader election: %w", err)
	}
	e.health.SetLeaderElection(elector)
	elector.Run(ctx)
	e.gate.end() // also if the Lease could not be given back
	if ctx.Err() == nil {
		return errors.New("leadership was lost")
	}
	return nil
}
