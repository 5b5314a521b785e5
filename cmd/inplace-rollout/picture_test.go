package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/golden"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/terminal"
)

// pictured is a set whose pod web-0 is on a node that has no room for the larger size.
func pictured(t *testing.T) *stage {
	t.Helper()
	s := newSetStage(t, 4)
	s.nodes = []*corev1.Node{node("node-1", "250m"), node("node-2", "4"), node("node-3", "4"), node("node-4", "4")}
	for i, pod := range s.pods {
		pod.Spec.NodeName = s.nodes[i].Name
	}
	other := build.Pod("other", &s.set.Spec.Template)
	other.Namespace, other.Spec.NodeName = "other", "node-1"
	s.others = append(s.others, other)
	return s
}

// screens are the width of the pictures, in columns.
const screens = 104

// draw compares a picture in docs/ with what a command prints on a terminal.
func draw(t *testing.T, name, title, command string, run func(out cli.Page) error) {
	t.Helper()
	var out bytes.Buffer
	if err := run(cli.Page{Writer: &out, Width: screens, Colors: true}); err != nil && !errors.As(err, new(cli.ExitCode)) {
		t.Fatal(err)
	}
	picture := must.Get(terminal.Screen{Title: title, Command: command, Output: out.String(), Columns: screens}.SVG())(t)
	golden.Assert(t, filepath.Join("..", "..", "..", "docs", name), picture)
}

// The pictures of plan and status in docs/ are what these print. make screens draws them again.
func TestPictures(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yaml")
	text := must.Get(yaml.Marshal(manifest(t, "StatefulSet", "", larger)))(t)
	must.Do(t, os.WriteFile(file, text, 0o600))
	draw(t, "plan.svg", "What an edit would do, pod by pod", "kubectl inplace-rollout plan -f web.yaml", func(out cli.Page) error {
		o := planOptions{cluster: pictured(t).cluster(t)}
		o.files.Filenames = []string{file}
		return o.run(t.Context(), out, io.Discard, nil)
	})

	s := pictured(t)
	s.heldAt(t, larger)
	s.updated(1, 2, 3)
	why := "Node didn't have enough resource: cpu, requested: 200, used: 100, capacity: 250"
	s.asked(0, condition(corev1.PodResizePending, "Deferred", why), observed)
	s.set.Status.Conditions[0].Reason, s.set.Status.Conditions[0].Message = judge.ReasonDeferred, "3 of 4 pods resized; web-0: deferred on node node-1: "+why
	draw(t, "status.svg", "How far a rollout has come, pod by pod", "kubectl inplace-rollout status sts/web", func(out cli.Page) error {
		return statusView{}.print(out, reportsOf(t, s), now)
	})
}
