package history

import (
	"cmp"
	"slices"
)

// span is a time, in seconds since 1970. Its end is not part of it.
type span struct{ from, to int64 }

// spans are in order, and none touches the next.
type spans []span

// add adds a time.
func (s spans) add(more span) spans {
	first, _ := slices.BinarySearchFunc(s, more.from, func(s span, from int64) int { return cmp.Compare(s.to, from) })
	last := first
	for ; last < len(s) && s[last].from <= more.to; last++ {
		more = span{min(more.from, s[last].from), max(more.to, s[last].to)}
	}
	return slices.Replace(s, first, last, more)
}

// forget removes what is before a time.
func (s spans) forget(before int64) spans {
	s = slices.DeleteFunc(s, func(s span) bool { return s.to <= before })
	if len(s) > 0 {
		s[0].from = max(s[0].from, before)
	}
	return s
}

// newestGap is the last time within another that is not among them; empty if all of it is.
func (s spans) newestGap(within span) span {
	gap := within
	for _, there := range slices.Backward(s) {
		switch {
		case there.from >= gap.to:
		case there.to >= gap.to:
			gap.to = there.from
		default:
			gap.from = max(gap.from, there.to)
			return gap
		}
	}
	return gap
}

func (s span) empty() bool { return s.from >= s.to }
