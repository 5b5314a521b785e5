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

// without removes a time.
func (s spans) without(less span) spans {
	var rest spans
	for _, there := range s {
		for _, part := range []span{{there.from, min(there.to, less.from)}, {max(there.from, less.to), there.to}} {
			if !part.empty() {
				rest = append(rest, part)
			}
		}
	}
	return rest
}

// minus are the times that are in none of the others.
func (s spans) minus(others spans) spans {
	for _, other := range others {
		s = s.without(other)
	}
	return s
}

// seconds is how long they are together.
func (s spans) seconds() int64 {
	sum := int64(0)
	for _, there := range s {
		sum += there.to - there.from
	}
	return sum
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
