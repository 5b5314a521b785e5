package measure

import "time"

// Sample is what was true of a subject from some time after the edit on.
type Sample struct {
	After   time.Duration
	Ready   int // pods
	Started int // containers that were not running before, so far
}

// Trace is how a subject went from the edit until it was complete.
func Trace(history []Moment, from int, of Subject) []Sample {
	m := Edit(history, from, of)
	s := Replay(history[:from], of)
	w := newWitness(s)
	samples := []Sample{{Ready: s.Ready()}}
	for _, moment := range history[from:] {
		after := moment.At.Sub(m.Edited)
		if moment.Subject() != of || after > m.Took {
			continue
		}
		s.Apply(moment)
		w.look(moment.At, s)
		next := Sample{max(after, 0), s.Ready(), len(w.started)}
		if last := samples[len(samples)-1]; next.Ready != last.Ready || next.Started != last.Started {
			samples = append(samples, next)
		}
	}
	return samples
}
