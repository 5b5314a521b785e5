//go:build e2e

package e2e

import (
	"context"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// TestDisturbed has what a rollout needs go away in the middle of it: the rollout
// goes on when it is back, and still nobody notices. It runs alone, because it disturbs the node.
func TestDisturbed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		disturb func(*app)
	}{
		{"kubelet killed", func(a *app) {
			node.KillKubelet()
			a.restart(node.RestartKubelet(a.t.Context()))
		}},
		{"containerd killed", func(a *app) {
			node.KillContainerd()
			a.restart(node.RestartContainerd(a.t.Context()))
		}},
		{"leader killed", (*app).killLeader},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newApp(t, options{Replicas: 4})
			before := a.pods()
			visitors := a.visit()
			a.setResources(largeRequests, largeLimits)
			a.eventually("the first pod to be resized", func() (bool, string) {
				pods := a.pods()
				cpu := pods[len(pods)-1].Spec.Containers[0].Resources.Requests.Cpu().String()
				return cpu == "60m", cpu
			})
			tt.disturb(a)
			a.complete()
			a.assertKept(before, 0)
			a.assertMoved()
			if seen := visitors.report(); seen.somebody() {
				t.Errorf("somebody noticed: %s: %s", seen, seen.Why)
			}
		})
	}
}

// restart checks that something came back.
func (a *app) restart(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// killLeader kills the process of the controller that holds the Lease.
func (a *app) killLeader() {
	a.t.Helper()
	pod := a.leader()
	cgroup, err := node.Cgroup(pod, "controller")
	if err != nil {
		a.t.Fatal(err)
	}
	pids, err := cgroup.Processes()
	if err != nil || len(pids) != 1 {
		a.t.Fatalf("processes %v of the leader, want one: %v", pids, err)
	}
	if err := node.Signal(pids[0], syscall.SIGKILL); err != nil {
		a.t.Fatal(err)
	}
	// Later tests count on both replicas.
	a.t.Cleanup(func() {
		if err := controller.Deployed(context.Background(), node); err != nil {
			a.t.Error(err)
		}
	})
}

// leader is the controller's pod that holds the Lease.
func (a *app) leader() *corev1.Pod {
	a.t.Helper()
	lease, err := client.CoordinationV1().Leases(controller.Namespace).Get(a.t.Context(), "inplace-rollout", metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	pod, err := client.CoreV1().Pods(controller.Namespace).Get(a.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return pod
}
