package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// profile takes profiles of the controller during one more rollout in place, from the edit on and as long as the one before took:
// of the cpu, and of what is allocated; and one of the heap in its middle.
func (f *fixture) profile(ctx context.Context, dir string, took time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making a folder for profiles: %w", err)
	}
	if err := f.prepare(ctx, inPlace); err != nil {
		return err
	}
	file := filepath.Join(dir, strings.ReplaceAll(f.shape.String(), ":", "-"))
	all, ctx := errgroup.WithContext(ctx)
	for of, name := range map[string]string{"profile": ".cpu.pprof", "allocs": ".allocs.pprof"} {
		all.Go(func() error { return f.fetch(ctx, fmt.Sprintf("%s?seconds=%d", of, int(took.Seconds())+1), file+name) })
	}
	all.Go(func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(took / 2):
			return f.fetch(ctx, "heap", file+".heap.pprof")
		}
	})
	all.Go(func() error {
		_, err := f.edit(ctx, inPlace)
		return err
	})
	return all.Wait()
}

// fetch writes a profile of the controller into a file.
func (f *fixture) fetch(ctx context.Context, profile, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.Controller.Address()+"/debug/pprof/"+profile, nil)
	if err != nil {
		return fmt.Errorf("fetching a profile: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("fetching a profile: %w", err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, data)
	}
	if err != nil {
		return fmt.Errorf("fetching profile %s: %w", profile, err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return fmt.Errorf("writing a profile: %w", err)
	}
	return nil
}
