package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestExitCodes: each command ends as the table says that docs/commands.md has, and each line of the table is tried.
func TestExitCodes(t *testing.T) {
	check := func(p place) func(*testing.T) error {
		return func(t *testing.T) error {
			return checkOptions{cluster: &cluster{client: p.client(t), namespace: "default"}}.run(t.Context(), &bytes.Buffer{})
		}
	}
	status := func(stage func(*testing.T) *stage) func(*testing.T) error {
		return func(t *testing.T) error {
			return statusOptions{cluster: stage(t).cluster(t)}.run(t.Context(), &bytes.Buffer{}, &bytes.Buffer{}, nil)
		}
	}
	plan := func(policy string) func(*testing.T) error {
		return func(t *testing.T) error {
			edit := manifest(t, "StatefulSet", "", larger)
			edit.SetAnnotations(map[string]string{api.ResizePolicyAnnotation: policy})
			_, code := planned(t, newSetStage(t, 1), edit, planOptions{failOnRestart: true})
			return cli.ExitCode(code)
		}
	}
	root := func(args string) func(*testing.T) error {
		return func(t *testing.T) error {
			root := newRoot(append([]string{"inplace-rollout"}, strings.Fields(args)...))
			root.SetOut(&bytes.Buffer{})
			root.SetErr(&bytes.Buffer{})
			return execute(t.Context(), root)
		}
	}
	trials := map[string]func(*testing.T) error{
		"check 0":  check(place{installed: true, asks: true, there: true, creates: true}),
		"check 1":  check(place{installed: true, asks: true, creates: true}),
		"check 2":  root("check --timeout=1s"),
		"status 0": status(func(t *testing.T) *stage { return newSetStage(t, 1) }),
		"status 2": status(heldStage),
		"status 3": status(stoppedStage),
		"plan 0":   plan("cpu=LiveResizeable"),
		"plan 3":   plan("cpu=RestartOnly"),
		" 0":       root("version --client"),
		" 1":       root("version --server=http://127.0.0.1:1 --request-timeout=" + time.Second.String()),
	}
	var listed []string
	for _, m := range cli.ExitCodes {
		name := fmt.Sprint(m.Command, " ", int(m.Code))
		listed = append(listed, name)
		trial := trials[name]
		if trial == nil {
			t.Errorf("%q is not tried: %s", name, m.Means)
			continue
		}
		must.Equal(t, exitCode(trial(t)), int(m.Code), "exit code of %q: %s", name, m.Means)
	}
	for name := range trials {
		if !slices.Contains(listed, name) {
			t.Errorf("%q is not in the table", name)
		}
	}
}

// TestWarned: people read warnings of API servers once, as kubectl prints them, and nothing of what libraries log, nor of what a command only
// tries.
func TestWarned(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if w.Header().Set("Warning", `299 - "careful"`); r.Method == http.MethodPatch {
			w.Header().Set("Warning", `299 - "it was tried: `+r.URL.RawQuery+`"`)
		}
		_, _ = fmt.Fprint(w, `{"gitVersion": "v1.37.1"}`)
	}))
	t.Cleanup(server.Close)
	root, stderr := newRoot([]string{"inplace-rollout", "version", "--server=" + server.URL}), &bytes.Buffer{}
	root.SetOut(&bytes.Buffer{})
	root.SetErr(stderr)
	err := root.ExecuteContext(t.Context())
	set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": map[string]any{"name": "web", "namespace": "default"}}}
	c := &cluster{objects: must.Get(dynamic.NewForConfig(&rest.Config{Host: server.URL}))(t)}
	_, _ = retryOptions{cluster: c}.try(t.Context(), set)
	if got := stderr.String(); got != "Warning: careful\n" || klog.Background().GetSink() != nil {
		t.Errorf("stderr has %q, the log is discarded: %t, and it ended with %v", got, klog.Background().GetSink() == nil, err)
	}
}
