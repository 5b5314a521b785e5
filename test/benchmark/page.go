package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
)

// report brings results into the documentation: the results themselves, the tables into the
// page, and the chart.
func report(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("benchmark report", flag.ContinueOnError)
	from := flags.String("from", "bin/benchmark.json", "what was measured")
	results := flags.String("json", "docs/performance.json", "where that is kept")
	file := flags.String("page", "docs/performance.md", "the page with a place for each table")
	picture := flags.String("chart", "docs/performance.svg", "where the chart goes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all, err := load(*from)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(*file)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	page, err := all.fillIn(string(text))
	if err != nil {
		return err
	}
	drawn, err := all.draw()
	if err != nil {
		return err
	}
	for name, text := range map[string]string{*file: page, *picture: drawn} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing the documentation: %w", err)
		}
	}
	return all.write(*results)
}

// place is where a table goes: it replaces what stands there.
var place = regexp.MustCompile(`(?s)(<!-- benchmark: (\w+) -->\n).*?<!-- end -->`)

// fillIn returns the page with all tables in their places.
func (r results) fillIn(page string) (string, error) {
	tables, err := r.tables()
	if err != nil {
		return "", err
	}
	found := map[string]bool{}
	page = place.ReplaceAllStringFunc(page, func(old string) string {
		parts := place.FindStringSubmatch(old)
		found[parts[2]] = true
		return parts[1] + "\n" + tables[parts[2]] + "\n<!-- end -->"
	})
	for name := range tables {
		if !found[name] {
			return "", fmt.Errorf("the page has no place for the table %s", name)
		}
		delete(found, name)
	}
	if len(found) > 0 {
		return "", fmt.Errorf("the page has places for tables that there are not: %v", found)
	}
	return page, nil
}
