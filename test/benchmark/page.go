package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
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
	groups, err := groupsOf(all.Rollouts)
	if err != nil {
		return err
	}
	if all.Large, err = foresee(groups); err != nil {
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

// row is the first row of a table, after the line below its head.
var row = regexp.MustCompile(`(?m)^\|(-+\|)+\n\|`)

// empty reports whether a table has no row. What is no table says something.
func empty(table string) bool { return strings.HasPrefix(table, "|") && !row.MatchString(table) }

// told are the blocks that the page has of what was measured.
var told = []string{"summary", "first", "real", "targets", "growth", "large", "fairness"}

// later are those of them that results from before 2026-11-26 have not. They come with the floor, and are blank without.
var later = []string{"first", "fairness"}

// fillIn returns the page with the tables that it has places for.
func (r results) fillIn(page string) (string, error) {
	tables, err := r.tables()
	if err != nil {
		return "", err
	}
	var names []string
	for _, p := range place.FindAllStringSubmatch(page, -1) {
		names = append(names, p[2])
	}
	if err := errors.Join(r.complete(names, tables), r.allReady()); err != nil {
		return "", err
	}
	return place.ReplaceAllStringFunc(page, func(old string) string {
		parts := place.FindStringSubmatch(old)
		if tables[parts[2]] == "" {
			return parts[1] + "<!-- end -->"
		}
		return parts[1] + "\n" + tables[parts[2]] + "\n<!-- end -->"
	}), nil
}

// complete reports which of the tables that a page has places for is empty, and which place it lacks.
func (r results) complete(places []string, tables map[string]string) error {
	hasFloor := slices.ContainsFunc(r.Rollouts, func(r result) bool { return r.Way == floored })
	for _, name := range places {
		table, known := tables[name]
		if !known {
			return fmt.Errorf("the page has a place for the table %s, which there is not", name)
		}
		if empty(table) || table == "" && (hasFloor || !slices.Contains(later, name)) {
			return fmt.Errorf("the table %s is empty: measure what belongs there", name)
		}
	}
	for _, name := range told {
		if !slices.Contains(places, name) {
			return fmt.Errorf("the page has no place for the table %s", name)
		}
	}
	return nil
}

// allReady reports where the page would be wrong: it says that in place every pod stays, and stays Ready.
func (r results) allReady() error {
	for _, one := range r.Rollouts {
		s, err := parseShape(one.Shape)
		if err != nil {
			return err
		}
		if one.Way == inPlace && (one.Replaced > 0 || one.LeastReady < s.all()) {
			return fmt.Errorf("%s: the page says that in place every pod stays Ready; %d were replaced, and %d Ready", one.Shape, one.Replaced, one.LeastReady)
		}
	}
	return nil
}
