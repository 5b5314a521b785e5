package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"
)

// outcome is what came of the last run of a part.
type outcome struct {
	Commit  string  `json:"commit"`
	Minutes float64 `json:"minutes"`
	Passed  int     `json:"passed"` // tests, those within tests too
	Failed  int     `json:"failed"`
	OK      bool    `json:"ok"`
}

func (o outcome) word() string {
	if o.OK {
		return "passed"
	}
	return "failed"
}

// ledger has the outcomes by the names of parts.
type ledger struct {
	file     string
	outcomes map[string]outcome
}

func readLedger(file string) (ledger, error) {
	l := ledger{file, map[string]outcome{}}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &l.outcomes)
	}
	if err != nil {
		return l, fmt.Errorf("reading what has passed: %w", err)
	}
	return l, nil
}

// enter notes what came of a part, at once: the rest may be cut off.
func (l ledger) enter(name string, o outcome) error {
	l.outcomes[name] = o
	data, err := json.MarshalIndent(l.outcomes, "", "  ")
	if err == nil {
		err = os.WriteFile(l.file, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("noting what has passed: %w", err)
	}
	return nil
}

// proves reports whether the part has passed, and nothing that it is built from has changed since.
func (l ledger) proves(ctx context.Context, root string, p part) (bool, error) {
	o, has := l.outcomes[p.name]
	if !has || !o.OK {
		return false, nil
	}
	paths, err := p.paths(root)
	if err != nil {
		return false, err
	}
	diff := exec.CommandContext(ctx, "git", append([]string{"diff", "--quiet", o.Commit, "--"}, paths...)...)
	diff.Dir = root
	err = diff.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) { // something has changed, or the commit is gone
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking git for changes: %w", err)
	}
	return true, nil
}

// table has a line for each part. Those that are open have not passed at what is checked out.
func (l ledger) table(chosen []part, open []string) string {
	var lines, out strings.Builder
	lines.WriteString("PART\tRESULT\tAT\tMINUTES\tPASSED\tFAILED\n")
	isOpen := map[string]bool{}
	for _, name := range open {
		isOpen[name] = true
	}
	for _, p := range chosen {
		o, has := l.outcomes[p.name]
		switch {
		case !has:
			lines.WriteString(p.name + "\tnot run\t\t\t\t\n")
			continue
		case isOpen[p.name] && o.OK:
			lines.WriteString(p.name + "\tpassed before a change\t")
		default:
			lines.WriteString(p.name + "\t" + o.word() + "\t")
		}
		_, _ = fmt.Fprintf(&lines, "%s\t%.1f\t%d\t%d\n", o.Commit, o.Minutes, o.Passed, o.Failed)
	}
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	_, _ = io.WriteString(w, lines.String())
	_ = w.Flush()
	return out.String()
}
