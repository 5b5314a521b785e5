package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// fairness measures how long small rollouts take alone, and beside a large one of the same
// namespace that has begun before them.
func fairness(ctx context.Context, args []string) (err error) {
	var o options
	flags := o.flags("fairness")
	large := flags.String("large", "statefulset:1x1000:10", "the shape beside which")
	small := flags.String("small", "statefulset:50x5", "the shape that is measured")
	flags.IntVar(&o.rounds, "rounds", 1, "how often each is edited")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var f fairnessFixture
	if f.large.shape, err = parseShape(*large); err != nil {
		return err
	}
	if f.small.shape, err = parseShape(*small); err != nil {
		return err
	}
	f.large.shape.prefix, f.large.resize, f.small.resize = "large", o.resize, o.resize
	c, err := startCluster(ctx, o, f.large.shape.all()+f.small.shape.all())
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			c.KeepLogs()
		}
		err = errors.Join(err, c.stop())
	}()
	f.large.cluster, f.small.cluster = c, c
	for _, one := range []*fixture{&f.large, &f.small} {
		if err := one.fill(ctx); err != nil {
			return err
		}
		if err := one.prepare(ctx, inPlace); err != nil {
			return err
		}
	}
	for range o.rounds {
		if err := f.round(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fairnessFixture is a large rollout and small ones.
type fairnessFixture struct{ large, small fixture }

// round prints what the small rollouts take alone, and beside the large one.
func (f *fairnessFixture) round(ctx context.Context) error {
	alone, _, err := f.small.times(ctx)
	if err != nil {
		return err
	}
	largeEnd, failed := time.Time{}, make(chan error, 1)
	go func() {
		_, end, err := f.large.times(ctx)
		largeEnd = end
		failed <- err
	}()
	select {
	case <-ctx.Done():
	case <-time.After(3 * f.large.resize): // until it is in full swing
	}
	beside, end, err := f.small.times(ctx)
	if err = errors.Join(err, <-failed); err != nil {
		return err
	}
	if !end.Before(largeEnd) {
		return fmt.Errorf("%s was complete before the small ones: nothing was measured beside it", f.large.shape.title())
	}
	fmt.Printf("%s: half of them done in %.1f s, 99 %% in %.1f s alone; in %.1f s and %.1f s beside %s, which took %.1f s longer than they\n",
		f.small.shape.title(), alone.P50, alone.P99, beside.P50, beside.P99, f.large.shape.title(), largeEnd.Sub(end).Seconds())
	return nil
}

// times edits all workloads, and returns how long their rollouts took, and when the last ended.
func (f *fixture) times(ctx context.Context) (took spread, end time.Time, err error) {
	begin := time.Now()
	done, err := f.edit(ctx, inPlace)
	if err != nil {
		return spread{}, end, err
	}
	var all []time.Duration
	for _, at := range done {
		all = append(all, at.Sub(begin))
	}
	return newSpread(all), slices.MaxFunc(slices.Collect(maps.Values(done)), time.Time.Compare), nil
}
