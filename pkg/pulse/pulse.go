// Package pulse tells a process that works from one that hangs.
package pulse

import (
	"fmt"
	"sync"
	"time"
)

// Pulse knows what is under way, and since when nothing has come of it. A nil Pulse knows nothing.
type Pulse struct {
	bound time.Duration

	mu    sync.Mutex
	beats map[string]time.Time
}

// New returns a Pulse that takes for hung of which nothing has come for longer than bound.
func New(bound time.Duration) *Pulse {
	return &Pulse{bound: bound, beats: map[string]time.Time{}}
}

// Err returns what hangs, and for how long; nil if nothing does.
func (p *Pulse) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	hung, longest := "", time.Duration(0)
	for what, at := range p.beats {
		if silent := time.Since(at); silent > longest {
			hung, longest = what, silent
		}
	}
	if longest <= p.bound {
		return nil
	}
	return fmt.Errorf("%s hangs: it has made no progress for %s", hung, longest.Round(time.Second))
}

// Beat notes that something begins, or that something has come of it.
func (p *Pulse) Beat(what string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beats[what] = time.Now()
}

// End notes that it has ended.
func (p *Pulse) End(what string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.beats, what)
}
