package server

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`

// TestReviewsHaveALimitOfTheirOwn: whoever sends made-up tokens does not use up the controller's.
func TestReviewsHaveALimitOfTheirOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must.Do(t, os.WriteFile(file, []byte(kubeconfig), 0o600))
	config := must.Get(RESTConfig(file))(t)
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(5, 10)
	client := must.Get(kubernetes.NewForConfig(config))(t)
	reviewer := must.Get(newReviewer(file))(t)
	asks, writes := reviewer.AuthenticationV1().RESTClient().GetRateLimiter(), client.AppsV1().RESTClient().GetRateLimiter()
	for asks.TryAccept() {
	}
	if !writes.TryAccept() {
		t.Error("reviews have used up what is for writes")
	}
}
