// Command backtest asks what containers would request if pods were created now and then in
// the past, by the ladder of initialresources/estimate and by other rules, and holds it against what they
// went on to use. It brings that into docs/estimates.md, as a table and as a picture:
//
//	backtest --page docs/estimates.md --picture docs/backtest.svg
//
// What was used is made up (kinds.go), the same each time. There are traces of real clusters,
// but none that says which image in which version a container ran, and none in a package.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
)

// casts are as many as it takes for figures that another workload or two would not change much.
const casts = 6

func main() {
	if err := backtest(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "backtest:", err)
		os.Exit(1)
	}
}

func backtest(args []string) error {
	flags := flag.NewFlagSet("backtest", flag.ContinueOnError)
	many := flags.Int("casts", casts, "how many workloads of each kind there are, of which births are looked at")
	page := flags.String("page", "", "the page with a place for the table; without one it is printed")
	picture := flags.String("picture", "", "where the picture goes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	scores, err := play(*many)
	if err != nil {
		return err
	}
	if *picture != "" {
		drawn, err := scores.draw()
		if err != nil {
			return err
		}
		if err := os.WriteFile(*picture, []byte(drawn), 0o644); err != nil {
			return fmt.Errorf("writing the picture: %w", err)
		}
	}
	if *page == "" {
		fmt.Print(scores.byRule())
		return nil
	}
	text, err := os.ReadFile(*page)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	filled, err := scores.fillIn(string(text))
	if err != nil {
		return err
	}
	if err := os.WriteFile(*page, []byte(filled), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// place is where the table goes: it replaces what stands there.
var place = regexp.MustCompile(`(?s)(<!-- backtest: rules -->\n).*?<!-- end -->`)

// fillIn returns the page with the table in its place.
func (s scores) fillIn(page string) (string, error) {
	if !place.MatchString(page) {
		return "", errors.New("the page has no place for the table")
	}
	return place.ReplaceAllString(page, "${1}\n"+s.byRule()+"\n<!-- end -->"), nil
}
