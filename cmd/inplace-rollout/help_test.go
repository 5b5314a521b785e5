package main

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/version"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// examples are the commands for program in the examples of cmd.
func examples(cmd *cobra.Command, program string) [][]string {
	var found [][]string
	for line := range strings.Lines(cmd.Example) {
		for part := range strings.SplitSeq(line, " | ") {
			if words := strings.TrimSpace(part); strings.HasPrefix(words, program+" ") {
				found = append(found, strings.Fields(strings.TrimPrefix(words, program)))
			}
		}
	}
	return found
}

// Every command shows examples of itself, called as it was called, that it understands.
func TestExamples(t *testing.T) {
	for called, program := range map[string]string{
		"/usr/bin/inplace-rollout":         "inplace-rollout",
		"/usr/bin/kubectl-inplace_rollout": "kubectl inplace-rollout",
		"kubectl-inplace_rollout.exe":      "kubectl inplace-rollout",
	} {
		root := newRoot([]string{called})
		if len(root.Commands()) != 12 {
			t.Fatalf("there are %d commands, want 12", len(root.Commands()))
		}
		for _, cmd := range root.Commands() {
			found := examples(cmd, program)
			if len(found) < 2 {
				t.Errorf("%s has the examples %v, want more", cmd.CommandPath(), found)
			}
			for _, words := range found {
				meant, args, err := root.Find(words)
				if err != nil || meant != cmd {
					t.Errorf("%v is an example of %s, but a call of %s: %v", words, cmd.CommandPath(), meant.CommandPath(), err)
					continue
				}
				must.Fails(t, strings.Join(words, " "), cmd.ParseFlags(args), "")
				must.Fails(t, strings.Join(words, " "), cmd.ValidateArgs(cmd.Flags().Args()), "")
			}
		}
	}
}

// The commands stand in groups, the version is known without a command, and help calls a command as it was called.
func TestRoot(t *testing.T) {
	const usage = " plan (TYPE/NAME | -f FILE… | -k FOLDER) [flags]\n"
	for args, wants := range map[string][]string{
		"inplace-rollout --help": {
			"See and steer rollouts:\n  estimate ", "Operate the installation:\n  check ", "What runs in the cluster:\n  controller ",
		},
		"inplace-rollout --version":           {"inplace-rollout version " + version.Get().String() + "\n"},
		"inplace-rollout plan --help":         {"\n  inplace-rollout" + usage},
		"kubectl-inplace_rollout plan --help": {"\n  kubectl inplace-rollout" + usage},
	} {
		var out bytes.Buffer
		root := newRoot(strings.Fields(args))
		root.SetOut(&out)
		must.Do(t, root.ExecuteContext(t.Context()))
		for _, want := range wants {
			must.Contain(t, out.String(), want, "%s", args)
		}
		for _, cmd := range root.Commands() {
			if cmd.GroupID == "" && cmd.Name() != "completion" && cmd.Name() != "help" {
				t.Errorf("%s is in no group", cmd.Name())
			}
		}
	}
}

// What is completed without a cluster.
func TestCompletion(t *testing.T) {
	for _, tt := range []struct{ called, args, want string }{
		{"inplace-rollout", "__complete plan --output=", "json yaml wide :4"},
		{"inplace-rollout", "__complete controller --default-resource-resize-policy=", "LiveResizeable RestartOnly :4"},
		{"inplace-rollout", "__complete plan --filename=", "json yaml yml :8"},
		{"inplace-rollout", "__complete estimate --policy=", "always if-not-set never :4"},
		{"inplace-rollout", "__complete estimate --key=", "image image,container :4"},
		{"kubectl_complete-inplace_rollout", "status --output=", "json yaml wide :4"},
		{"inplace-rollout", "__complete status --server=http://127.0.0.1:1 sts/", ":1"}, // nobody answers there
	} {
		var out bytes.Buffer
		root := newRoot(append([]string{tt.called}, strings.Fields(tt.args)...))
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		must.Fails(t, tt.called+" "+tt.args, root.ExecuteContext(t.Context()), "")
		must.Equal(t, strings.Join(strings.Fields(out.String()), " "), tt.want, "%s %s", tt.called, tt.args)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		var out bytes.Buffer
		root := newRoot([]string{"inplace-rollout", "completion", shell})
		root.SetOut(&out)
		must.Do(t, root.ExecuteContext(t.Context()))
		must.Contain(t, out.String(), "__complete", "the script for %s", shell)
	}
}

// TestNoTemplates: what we ship links no web page of golang.org/x/net/trace, with which a third of the binary would be methods that
// nobody calls. See hack/conntrack.
func TestNoTemplates(t *testing.T) {
	const pages = "golang.org/x/net/trace"
	imported := func(args ...string) bool {
		out := must.Get(exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, args...)...).Output())(t)
		return slices.Contains(strings.Fields(string(out)), pages)
	}
	if imported("-tags=grpcnotrace", ".") {
		t.Errorf("%s is imported: `go list -deps` says by whom", pages)
	}
	if !imported(".") {
		t.Errorf("%s is not imported without the tag either: it is not needed any more", pages)
	}
}

// TestEveryKindHasCommands: the commands know each kind whose edits are held, and no other.
func TestEveryKindHasCommands(t *testing.T) {
	names := build.Each(kinds, func(k *kind) string { return k.name })
	must.EqualLists(t, names, prerequisite.HeldKinds, "what the commands know, beside what is held")
}
