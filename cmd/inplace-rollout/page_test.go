package main

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/spf13/cobra"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/test/golden"
)

// TestCommandsPage checks that docs/commands.md is what the commands say of themselves.
func TestCommandsPage(t *testing.T) {
	t.Setenv("HOME", "/home/you") // a flag has a default in it
	t.Setenv("KUBECACHEDIR", "")
	var page bytes.Buffer
	fmt.Fprint(&page, `# Commands

This page is the output of `+"`--help`"+`, and a test keeps it the same. The controller's image runs
`+"`inplace-rollout controller`"+`; the other commands are for people, and for pipelines. With `+"`bin/`"+` in the `+"`PATH`"+`, each of
them is a command of kubectl, too, such as `+"`kubectl inplace-rollout status`"+`, and kubectl's own completion knows their
arguments. For completion of the binary itself (the `+"`--help`"+` of
that command says how in zsh, fish and PowerShell):

`+"```sh\nsource <(inplace-rollout completion bash)\n```"+`

What `+"`-o json`"+` and `+"`-o yaml`"+` write has an `+"`apiVersion`"+` and a `+"`kind`"+`, and is described by [JSON schemas](schemas): of
[status](schemas/rolloutstatus.json), [plan](schemas/rolloutplan.json), [check](schemas/check.json),
[version](schemas/version.json) and [estimate](schemas/estimate.json). On a terminal there are colors, unless `+"`NO_COLOR`"+` is set.

`)
	writeExitCodes(&page)
	var connection string
	for _, cmd := range newRoot([]string{"inplace-rollout"}).Commands() {
		writeSection(&page, cmd)
		if cmd.HasAvailablePersistentFlags() {
			connection = cmd.PersistentFlags().FlagUsages()
		}
	}
	fmt.Fprintf(&page, "\n## Flags of kubectl\n\nThe commands for people have them, too.\n\n```text\n%s```\n", connection)
	golden.Assert(t, filepath.Join("..", "..", "..", "docs", "commands.md"), page.Bytes())
}

// writeExitCodes writes what each command ends with.
func writeExitCodes(page *bytes.Buffer) {
	fmt.Fprint(page, "| command | exit code | |\n|---|---|---|\n")
	for _, m := range cli.ExitCodes {
		fmt.Fprintf(page, "| %s | %d | %s |\n", cmp.Or(m.Command, "all others"), m.Code, m.Means)
	}
}

// writeSection writes what `--help` shows, with headings for a page.
func writeSection(page *bytes.Buffer, cmd *cobra.Command) {
	fmt.Fprintf(page, "\n## inplace-rollout %s\n\n%s\n", cmd.Name(), cmd.Long)
	fmt.Fprintf(page, "\n```text\nUsage: %s\n\n%s```\n", cmd.UseLine(), cmd.LocalNonPersistentFlags().FlagUsages())
	indent := regexp.MustCompile(`(?m)^  `)
	fmt.Fprintf(page, "\n```sh\n%s\n```\n", indent.ReplaceAllString(cmd.Example, ""))
}
