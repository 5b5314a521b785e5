// Package cli has what the commands for people share, whichever of the two products they are of: formats
// of output, tables, and flags that complete.
package cli

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

// Format is what the flag --output names; "" is a table.
type Format string

// Wide is a table with more in it.
const Wide Format = "wide"

// ForMachines reports whether it is no table.
func (f Format) ForMachines() bool { return f != "" && f != Wide }

// AddFlag adds the flag --output. Its help says what a wide table has.
func (f *Format) AddFlag(cmd *cobra.Command, wide string) {
	cmd.Flags().StringVarP((*string)(f), "output", "o", "", "json, yaml or wide ("+wide+"); none prints a table")
	CompleteFlag(cmd, "output", cobra.FixedCompletions([]cobra.Completion{"json", "yaml", cobra.Completion(Wide)}, cobra.ShellCompDirectiveNoFileComp))
}

// Validate checks the flag.
func (f *Format) Validate() error {
	if !slices.Contains([]Format{"", Wide, "json", "yaml"}, *f) {
		return fmt.Errorf("--output is %q: want json, yaml or wide, or none for a table", *f)
	}
	return nil
}

// Print writes reports in the format; table does it for people.
func Print[R any](out io.Writer, format Format, reports []R, table func(io.Writer, R) error) error {
	if format.ForMachines() {
		return Encode(out, format, reports)
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

// Encode writes something for machines, as YAML or JSON.
func Encode(out io.Writer, format Format, something any) error {
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

// Columns writes rows below each other; what is empty is shown as -.
func Columns(out io.Writer, rows ...[]string) error {
	w := printers.GetNewTabWriter(out)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = OrNone(cell)
		}
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// OrNone is what a table shows of s: - if it is empty.
func OrNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Counted is how many of something there are: 1 pod, 2 pods.
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// CompleteFlag makes a flag's values complete; it can only fail for want of the flag.
func CompleteFlag(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err)
	}
}
