package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// output is the format that the flag --output names; "" is a table.
type output string

// wide is a table with a row for each pod.
const wide output = "wide"

// forMachines reports whether it is no table.
func (o output) forMachines() bool { return o != "" && o != wide }

func (o *output) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", "", "json, yaml or wide (a row for each pod); none prints a table")
	completeFlag(cmd, "output", cobra.FixedCompletions([]cobra.Completion{"json", "yaml", cobra.Completion(wide)}, cobra.ShellCompDirectiveNoFileComp))
}

func (o *output) validate() error {
	if !slices.Contains([]output{"", wide, "json", "yaml"}, *o) {
		return fmt.Errorf("--output is %q: want json, yaml or wide, or none for a table", *o)
	}
	return nil
}

// print writes reports in the format; table does it for people.
func print[R any](out io.Writer, format output, reports []R, table func(io.Writer, R) error) error {
	if format.forMachines() {
		return encode(out, format, reports)
	}
	for i, r := range reports {
		if i > 0 {
			if _, err := fmt.Fprintln(out); err != nil {
				return err
			}
		}
		if err := table(out, r); err != nil {
			return err
		}
	}
	return nil
}

// encode writes something for machines, as YAML or JSON.
func encode(out io.Writer, format output, something any) error {
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(something)
	}
	text, err := yaml.Marshal(something)
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	_, err = out.Write(text)
	return err
}

// columns writes rows below each other; what is empty is shown as -.
func columns(out io.Writer, rows ...[]string) error {
	w := printers.GetNewTabWriter(out)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = orNone(cell)
		}
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// counted is how many of something there are: 1 pod, 2 pods.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
