package server

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
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
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := RESTConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(5, 10)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	reviewer, err := newReviewer(file)
	if err != nil {
		t.Fatal(err)
	}
	asks, writes := reviewer.AuthenticationV1().RESTClient().GetRateLimiter(), client.AppsV1().RESTClient().GetRateLimiter()
	for asks.TryAccept() {
	}
	if !writes.TryAccept() {
		t.Error("reviews have used up what is for writes")
	}
}
