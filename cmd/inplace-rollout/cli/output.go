// Package cli has what the commands share, whichever of the two products they are of: clients, formats
// of output, tables, and flags that complete.
package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// AddDocumentFlag adds the flag --output of a command that prints lines, and no table.
func (f *Format) AddDocumentFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(f), "output", "o", "", "json or yaml; none prints lines")
	CompleteFlag(cmd, "output", cobra.FixedCompletions([]cobra.Completion{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// ValidateDocument checks that flag.
func (f *Format) ValidateDocument() error {
	if !slices.Contains([]Format{"", "json", "yaml"}, *f) {
		return fmt.Errorf("--output is %q: want json or yaml, or none for lines", *f)
	}
	return nil
}

// Validate checks the flag.
func (f *Format) Validate() error {
	if !slices.Contains([]Format{"", Wide, "json", "yaml"}, *f) {
		return fmt.Errorf("--output is %q: want json, yaml or wide, or none for a table", *f)
	}
	return nil
}

// APIVersion is that of what commands write for programs.
const APIVersion = "inplace-rollout.io/v1alpha1"

// Type is what a document for programs begins with.
func Type(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: APIVersion, Kind: kind} }

// Workload is what a report is about.
type Workload struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// WorkloadOf names an object.
func WorkloadOf(u interface {
	GetKind() string
	GetNamespace() string
	GetName() string
}) Workload {
	return Workload{u.GetKind(), u.GetNamespace(), u.GetName()}
}

// String is what people type: statefulset/web.
func (w Workload) String() string { return strings.ToLower(w.Kind) + "/" + w.Name }

// List is a document with several of one kind in it.
type List[R any] struct {
	metav1.TypeMeta `json:",inline"`
	Items           []R `json:"items"`
}

// EncodeList writes documents of a kind for programs, as one.
func EncodeList[R any](out io.Writer, format Format, kind string, items []R) error {
	return Encode(out, format, List[R]{Type(kind + "List"), items})
}

// EncodeNext writes a document into a stream of them: a line of JSON, or YAML between lines of dashes.
func EncodeNext(out io.Writer, format Format, document any) error {
	if format == "json" {
		return json.NewEncoder(out).Encode(document)
	}
	if _, err := fmt.Fprintln(out, "---"); err != nil {
		return err
	}
	return Encode(out, format, document)
}

// Print writes reports for people, with an empty line between them.
func Print[R any](out io.Writer, reports []R, table func(io.Writer, R) error) error {
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

// Encode writes a document for programs, as YAML or JSON.
func Encode(out io.Writer, format Format, document any) error {
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(document)
	}
	text, err := yaml.Marshal(document)
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

// CompleteFlag makes a flag's values complete; it can only fail for want of the flag.
func CompleteFlag(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err)
	}
}
