package controller

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Pulse knows which syncs are under way, and since when nothing has come of each. A nil Pulse
// knows nothing.
type Pulse struct {
	bound time.Duration

	mu    sync.Mutex
	beats map[beat]time.Time
}

type beat struct {
	kind string
	name cache.ObjectName
}

// NewPulse returns a Pulse that takes a sync for hung of which nothing has come for longer than
// bound.
func NewPulse(bound time.Duration) *Pulse {
	return &Pulse{bound: bound, beats: map[beat]time.Time{}}
}

// Err returns which sync hangs, and for how long; nil if none does.
func (p *Pulse) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	hung, longest := beat{}, time.Duration(0)
	for b, at := range p.beats {
		if silent := time.Since(at); silent > longest {
			hung, longest = b, silent
		}
	}
	if longest <= p.bound {
		return nil
	}
	return fmt.Errorf("the sync of %s %s hangs: nothing has come of it for %s", hung.kind, hung.name, longest.Round(time.Second))
}

// beat notes that the sync of a workload begins, or has made a write.
func (p *Pulse) beat(kind string, name cache.ObjectName) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beats[beat{kind, name}] = time.Now()
}

// end notes that the sync of a workload has ended.
func (p *Pulse) end(kind string, name cache.ObjectName) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.beats, beat{kind, name})
}
