package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/invariant"
)

// absent has no controller be there for a while, or no policy, while people edit.
func (s *storm) absent(ctx context.Context) error {
	switch s.random.IntN(3) {
	case 0:
		return s.lose(ctx)
	case 1:
		return s.upgrade(ctx)
	default:
		return s.reinstall(ctx)
	}
}

// lose kills all controllers, as the loss of their nodes does, and has them come back later. Their heartbeat counts for up to 45 s.
// Nobody has so much time: it becomes as old as it would be.
func (s *storm) lose(ctx context.Context) error {
	s.tally.absences["lost"]++
	for _, process := range s.controllers {
		process.Kill()
	}
	if err := controller.Beat(context.WithoutCancel(ctx), s.cp, time.Duration(1+s.random.IntN(3))*time.Second); err != nil {
		return err
	}
	sleep(ctx, time.Duration(1000+s.random.IntN(5000))*time.Millisecond)
	if s.restarts && s.random.IntN(3) == 0 {
		if err := s.restart(ctx, "kube-apiserver"); err != nil {
			return err
		}
		sleep(ctx, time.Duration(s.random.IntN(2000))*time.Millisecond)
	}
	return s.startAll(ctx)
}

// upgrade has all controllers end by themselves, and others start later.
func (s *storm) upgrade(ctx context.Context) error {
	s.tally.absences["upgraded"]++
	var wait sync.WaitGroup
	for _, process := range s.controllers {
		wait.Go(process.Stop)
	}
	wait.Wait()
	sleep(ctx, time.Duration(s.random.IntN(5000))*time.Millisecond)
	return s.startAll(ctx)
}

// reinstall deletes the policies, and applies them again later.
func (s *storm) reinstall(ctx context.Context) error {
	s.tally.absences["reinstalled"]++
	defer s.gaps.begin()()
	if err := s.policies.Delete(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	sleep(ctx, time.Duration(s.random.IntN(3000))*time.Millisecond)
	if err := s.policies.Apply(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	time.Sleep(time.Second) // those that nobody has tried
	return nil
}

// startAll starts all controllers.
func (s *storm) startAll(ctx context.Context) error {
	for i := range s.controllers {
		if err := s.start(context.WithoutCancel(ctx), i); err != nil {
			return err
		}
	}
	return nil
}

// restart kills the API server or etcd, and starts it again.
func (s *storm) restart(ctx context.Context, name string) error {
	s.tally.restarts[name]++
	defer s.doubts.begin()()
	return s.cp.Restart(context.WithoutCancel(ctx), name)
}

// spans are stretches of time. The last one may not have ended.
type spans struct {
	mu  sync.Mutex
	all []invariant.Span
}

// begin begins one, and returns what ends it.
func (s *spans) begin() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.all)
	s.all = append(s.all, invariant.Span{From: time.Now()})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all[n].To = time.Now()
	}
}

// since reports whether there was one at a moment or later.
func (s *spans) since(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.all, func(one invariant.Span) bool { return one.To.IsZero() || one.To.After(t) })
}

// list returns all, each longer by so much.
func (s *spans) list(before, after time.Duration) []invariant.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []invariant.Span
	for _, one := range s.all {
		all = append(all, invariant.Span{From: one.From.Add(-before), To: one.To.Add(after)})
	}
	return all
}
