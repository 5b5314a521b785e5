package controller

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	engine "github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/server"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`

func kubeconfigFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must.Do(t, os.WriteFile(file, []byte(kubeconfig), 0o600))
	return file
}

// What client-go makes of the configuration: its limit is off only where the rate is negative
// and there is no limiter.
func TestRateLimits(t *testing.T) {
	file := kubeconfigFile(t)
	for name, tt := range map[string]struct {
		qps     float32
		burst   int
		atOnce  int // 0 means without a limit
		ofLease bool
	}{
		"no limit":                        {},
		"no limit, said by a negative":    {qps: -1},
		"a rate, and what it lets out":    {qps: 5, atOnce: 10},
		"less than one in two seconds":    {qps: 0.2, atOnce: 1},
		"a rate and a burst":              {qps: 5, burst: 7, atOnce: 7},
		"the Lease does not wait with it": {qps: 5, burst: 7, ofLease: true},
	} {
		t.Run(name, func(t *testing.T) {
			config := must.Get(options{kubeconfig: file, qps: tt.qps, burst: tt.burst}.restConfig())(t)
			if tt.ofLease {
				config = server.Unlimited(config)
			}
			must.Equal(t, atOnce(config), tt.atOnce, "requests that may go out at once")
		})
	}
}

// atOnce is how many requests a new limit lets out; 0 if there is none.
func atOnce(config *rest.Config) int {
	if config.RateLimiter == nil && config.QPS < 0 {
		return 0
	}
	count := 0
	for config.RateLimiter.TryAccept() {
		count++
	}
	return count
}

// TestNobodyLeads: where replicas take turns, one that waits is not ready while none leads. Plans can read the defaults of any.
func TestNobodyLeads(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:1"}
	defaults := policy.Defaults{DeferredTimeout: 1, ErrorTimeout: 2, BoosterTimeout: 0, NotReadyTimeout: 4, ResizePolicy: policy.RestartOnly}
	for _, o := range []options{{defaults: defaults}, {leaderElect: true, defaults: defaults, checks: checksOptions{onUnknown: "Pass"}}, {leaderElect: true, dryRun: true, defaults: defaults}} {
		heart := must.Get(o.newHeart(config, config, prerequisite.NewGate(), nil, server.NewLeaderElection(config, LeaseName, "a")))(t)
		if err := heart.Err(); (err != nil) != o.elects() {
			t.Errorf("elects is %t, and it is not ready for: %v", o.elects(), err)
		}
		o.defaults.UnknownChecksPass = o.checks.onUnknown == "Pass"
		must.Equal(t, policy.ReadDefaults(heart.Defaults), o.defaults, "what plans read beside the heartbeat")
	}
}

// TestEveryKindRuns: each kind whose edits are held has a controller.
func TestEveryKindRuns(t *testing.T) {
	c := must.Get(newControllers(t.Context(), fake.NewClientset(), dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), nil, engine.Options{}))(t)
	must.Equal(t, len(c.kinds), len(prerequisite.HeldKinds), "controllers for %v", prerequisite.HeldKinds)
}
