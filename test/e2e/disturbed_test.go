//go:build e2e

package e2e

import "testing"

// TestDisturbed has what a rollout needs go away in the middle of it: the rollout
// goes on when it is back, and still nobody notices. It runs alone, because it disturbs the node.
func TestDisturbed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		disturb func() error
	}{
		{"kubelet killed", func() error { node.KillKubelet(); return node.RestartKubelet(t.Context()) }},
		{"containerd killed", func() error { node.KillContainerd(); return node.RestartContainerd(t.Context()) }},
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
			if err := tt.disturb(); err != nil {
				t.Fatal(err)
			}
			a.complete()
			a.assertKept(before, 0)
			a.assertMoved()
			if seen := visitors.report(); seen.Visits == 0 || seen.Lost > 0 || seen.Forgotten > 0 {
				t.Errorf("of %d visits %d were lost, and %d counts forgotten: %s", seen.Visits, seen.Lost, seen.Forgotten, seen.Why)
			}
		})
	}
}
