package main

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

// leaseTolerance is how long this process may go on after its Lease has run out, before it is not
// alive. It should have ended by itself.
const leaseTolerance = 20 * time.Second

// How long the Lease is good for the other replicas, and for the leader itself. Between the two
// there is time for what the leader has sent to be done.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
)

// turns are those that replicas take by a Lease.
type turns struct {
	lease, namespace string
	config           *rest.Config
	// fence is for the transport of all writes that only the leader makes.
	fence *fence
	// health fails if the Lease is lost and this process goes on.
	health *leaderelection.HealthzAdaptor
}

// newTurns are those by the Lease of that name. Its requests wait behind no others of the config.
func newTurns(config *rest.Config, lease, namespace string) *turns {
	return &turns{
		lease: lease, namespace: namespace, config: unlimited(config), fence: newFence(renewDeadline),
		health: leaderelection.NewLeaderHealthzAdaptor(leaseTolerance),
	}
}

// lead runs work while this process is the leader. Losing the lead is an error:
// the process has to start anew.
func (t *turns) lead(ctx context.Context, work func(context.Context)) error {
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding the host's name: %w", err)
	}
	config := rest.AddUserAgent(rest.CopyConfig(t.config), "leader-election")
	config.Timeout = renewDeadline / 2 // one request that hangs must not cost the lead
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("setting up the leader election: %w", err)
	}
	lock, err := resourcelock.NewWithLabels(resourcelock.LeasesResourceLock, t.namespace, t.lease, client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: hostname + "_" + string(uuid.NewUUID())}, map[string]string{version.Label: version.Get().LabelValue()})
	if err != nil {
		return fmt.Errorf("setting up the leader election: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          fencedLock{Interface: lock, fence: t.fence},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
		Name:            t.lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { work(ctx); cancel() },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("setting up the leader election: %w", err)
	}
	t.health.SetLeaderElection(elector)
	elector.Run(ctx)
	if ctx.Err() == nil {
		return errors.New("the lead was lost")
	}
	return nil
}
