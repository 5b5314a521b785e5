package main

import "time"

// sample is what was true of a subject from some time after the edit on.
type sample struct {
	after   time.Duration
	ready   int // pods
	started int // containers that were not running before, so far
}

// trace is how a subject went from the edit until it was complete.
func trace(history []moment, from int, of subject) []sample {
	m := measure(history, from, of)
	s := replay(history[:from], of)
	w := newWitness(s)
	samples := []sample{{ready: s.ready()}}
	for _, moment := range history[from:] {
		after := moment.at.Sub(m.edited)
		if moment.subject() != of || after > m.took {
			continue
		}
		s.apply(moment)
		w.look(moment.at, s)
		next := sample{max(after, 0), s.ready(), len(w.started)}
		if last := samples[len(samples)-1]; next.ready != last.ready || next.started != last.started {
			samples = append(samples, next)
		}
	}
	return samples
}
