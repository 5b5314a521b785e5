package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// fairness is how long many small rollouts take, alone and beside a large one.
type fairness struct {
	Large      string  `json:"large"`
	Small      string  `json:"small"`
	Alone      spread  `json:"alone"`  // each small one, from its edit until it is complete
	Beside     spread  `json:"beside"` // the same, begun when the large one is in full swing
	LargeAlone seconds `json:"largeAlone"`
	LargeTook  seconds `json:"largeBeside"`
}

// fairnesses measures that.
func fairnesses(ctx context.Context, args []string) (err error) {
	var o options
	flags := o.flags("fairness")
	large := flags.String("large", "statefulset:1x1000:10", "the large rollout")
	small := flags.String("small", "statefulset:50x5", "the small ones beside it")
	flags.IntVar(&o.rounds, "rounds", 3, "how often all are edited")
	if err := flags.Parse(args); err != nil {
		return err
	}
	one, errLarge := parseShape(*large)
	many, errSmall := parseShape(*small)
	if err := errors.Join(errLarge, errSmall); err != nil {
		return err
	}
	one.prefix, many.prefix = "large", "small"
	c, err := startCluster(ctx, o, nodesFor(one.all()+many.all()))
	if err != nil {
		return err
	}
	defer c.End(ctx, &err)
	f := neighbours{
		large: &fixture{cluster: c, shape: one, resize: o.resize},
		small: &fixture{cluster: c, shape: many, resize: o.resize},
	}
	if err := f.prepare(ctx); err != nil {
		return err
	}
	all := results{Machine: thisMachine()}
	all.Machine.Kubernetes = c.Version()
	for range o.rounds {
		r, err := f.measure(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %.1f s alone, %.1f s beside %s\n", many.title(), r.Alone.P99, r.Beside.P99, one.title())
		all.Fairness = append(all.Fairness, r)
	}
	return errors.Join(all.print(os.Stdout, "fairness"), all.save(o.json))
}

// neighbours are a large rollout and many small ones.
type neighbours struct{ large, small *fixture }

func (n neighbours) prepare(ctx context.Context) error {
	for _, f := range []*fixture{n.large, n.small} {
		if err := f.fill(ctx); err != nil {
			return err
		}
		if err := f.prepare(ctx, inPlace); err != nil {
			return err
		}
	}
	return nil
}

// measure edits the small ones alone, the large one alone, and then all.
func (n neighbours) measure(ctx context.Context) (fairness, error) {
	r := fairness{Large: n.large.shape.String(), Small: n.small.shape.String()}
	alone, err := n.small.durations(ctx)
	if err != nil {
		return r, err
	}
	large, err := n.large.durations(ctx)
	if err != nil {
		return r, err
	}
	var together, beside []time.Duration
	both, inBoth := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		together, err = n.large.durations(inBoth)
		return err
	})
	both.Go(func() (err error) {
		select {
		case <-inBoth.Done():
			return inBoth.Err()
		case <-time.After(3 * n.large.resize): // until it is in full swing
		}
		beside, err = n.small.durations(inBoth)
		return err
	})
	if err := both.Wait(); err != nil {
		return r, err
	}
	if slices.Max(together) < slices.Max(beside) {
		return r, fmt.Errorf("%s was complete before the small ones: nothing was measured beside it", n.large.shape.title())
	}
	r.Alone, r.Beside = newSpread(alone), newSpread(beside)
	r.LargeAlone, r.LargeTook = inSeconds(slices.Max(large)), inSeconds(slices.Max(together))
	return r, n.large.quiet(ctx)
}

// durations edits all workloads, and returns how long each rollout took.
func (f *fixture) durations(ctx context.Context) ([]time.Duration, error) {
	mark, err := f.AuditMark()
	if err != nil {
		return nil, err
	}
	done, err := f.edit(ctx, inPlace)
	if err != nil {
		return nil, err
	}
	t, err := f.AuditLog(mark, namespace, measure.InPlace, nil)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for name, at := range done {
		took = append(took, at.Sub(t.Steps[name].Edited))
	}
	return took, nil
}

// fairnessTable has a row for each pair of shapes, with the medians of all rounds.
func fairnessTable(all []fairness) string {
	if len(all) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("Small rollouts beside a large one:\n\n")
	text.WriteString("| s | small alone: p50 | p99 | beside: p50 | p99 | large alone | beside |\n|---|---|---|---|---|---|---|\n")
	for len(all) > 0 {
		first := all[0]
		same := func(r fairness) bool { return r.Small == first.Small && r.Large == first.Large }
		fmt.Fprintf(&text, "| %s beside %s |", titled(first.Small), titled(first.Large))
		for _, value := range []func(fairness) seconds{
			func(r fairness) seconds { return r.Alone.P50 }, func(r fairness) seconds { return r.Alone.P99 },
			func(r fairness) seconds { return r.Beside.P50 }, func(r fairness) seconds { return r.Beside.P99 },
			func(r fairness) seconds { return r.LargeAlone }, func(r fairness) seconds { return r.LargeTook },
		} {
			var values []seconds
			for _, r := range all {
				if same(r) {
					values = append(values, value(r))
				}
			}
			slices.Sort(values)
			fmt.Fprintf(&text, " %.1f |", values[len(values)/2])
		}
		text.WriteString("\n")
		all = slices.DeleteFunc(slices.Clone(all), same)
	}
	return text.String()
}

// titled names a shape for people.
func titled(text string) string {
	s, err := parseShape(text)
	if err != nil {
		return text
	}
	return s.title()
}
