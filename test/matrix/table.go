package main

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// place is where the table is: it replaces what stands there.
var place = regexp.MustCompile(`(?s)(<!-- matrix -->\n)(.*?)(<!-- end -->)`)

const head = "| `ONLY=` | Kubernetes | kubelet | passed | not applicable | failed |\n|---|---|---|---:|---:|---:|\n"

// enter writes the result of a cell into the page.
func enter(page string, c cell, r result) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	if !place.Match(text) {
		return fmt.Errorf("%s has no place for the table: %s", page, place)
	}
	filled := place.ReplaceAllStringFunc(string(text), func(old string) string {
		parts := place.FindStringSubmatch(old)
		return parts[1] + "\n" + fill(parts[2], c, r) + "\n" + parts[3]
	})
	if err := os.WriteFile(page, []byte(filled), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// fill returns the table with a row for each cell: c's is new, and the others' stay, if there are any.
func fill(old string, c cell, r result) string {
	rows := map[string]string{}
	for line := range strings.Lines(old) {
		if name, _, is := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); is {
			rows[name] = line
		}
	}
	rows[c.name()] = fmt.Sprintf("| `%s` | %s | %s | %d | %d | %d |\n", c.name(), r.kubernetes, r.kubelet, r.Passed, r.Skipped, r.Failed)
	var table strings.Builder
	table.WriteString(head)
	for _, c := range cells {
		row, is := rows[c.name()]
		if !is {
			row = fmt.Sprintf("| `%s` | %s | %s | not run | | |\n", c.name(), c.version, cmp.Or(c.kubelet, simulatedKubelet))
		}
		table.WriteString(row)
	}
	return table.String()
}
