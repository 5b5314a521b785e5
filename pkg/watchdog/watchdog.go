// Package watchdog tells a process that works from one that hangs, for its liveness probe.
package watchdog

import (
	"fmt"
	"sync"
	"time"
)

// Watchdog knows what is under way, and since when it has made no progress. A nil Watchdog knows nothing.
type Watchdog struct {
	bound time.Duration

	mu       sync.Mutex
	progress map[string]time.Time // when each that is under way has made the last one
}

// New returns a Watchdog that takes for hung what has made no progress for longer than bound.
func New(bound time.Duration) *Watchdog {
	return &Watchdog{bound: bound, progress: map[string]time.Time{}}
}

// Err returns what hangs, and for how long; nil if nothing does.
func (w *Watchdog) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	hung, longest := "", time.Duration(0)
	for what, at := range w.progress {
		if silent := time.Since(at); silent > longest {
			hung, longest = what, silent
		}
	}
	if longest <= w.bound {
		return nil
	}
	return fmt.Errorf("%s hangs: it has made no progress for %s", hung, longest.Round(time.Second))
}

// Progress notes that something begins, or gets on.
func (w *Watchdog) Progress(what string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress[what] = time.Now()
}

// Done notes that it has ended.
func (w *Watchdog) Done(what string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.progress, what)
}
