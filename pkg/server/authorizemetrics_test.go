package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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

// TestDeadline: no request waits for ever for an API server that does not answer, or stops in
// the middle of its answer. A watch goes on for as long as it has asked for.
func TestDeadline(t *testing.T) {
	const in = 200 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then it is seen that the client has gone
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_, _ = fmt.Fprint(w, `{"kind": "Pod`)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}))
	defer server.Close()
	client := must.Get(kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, WrapTransport: func(next http.RoundTripper) http.RoundTripper { return deadline{next, in} }}))(t)
	pods := client.CoreV1().Pods("default")
	for name, ask := range map[string]func() error{
		"a write without an answer": func() error { return pods.Delete(t.Context(), "web-0", metav1.DeleteOptions{}) },
		"a read with half of one": func() error {
			_, err := pods.Get(t.Context(), "web-0", metav1.GetOptions{})
			return err
		},
		"a watch whose time is over": func() error {
			seconds, asked := int64(1), time.Now()
			w, err := pods.Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: &seconds})
			if err != nil {
				return err
			}
			defer w.Stop()
			if _, open := <-w.ResultChan(); open || time.Since(asked) < time.Second {
				return fmt.Errorf("ended after %s", time.Since(asked))
			}
			return context.DeadlineExceeded
		},
	} {
		ended := make(chan error, 1)
		go func() { ended <- ask() }()
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: it is waited for", name)
		}
	}
}
