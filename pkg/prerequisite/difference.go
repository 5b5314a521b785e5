package prerequisite

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// difference returns where two values from JSON differ first, and how; "" if they are equal.
func difference(path string, have, want any) string {
	switch want := want.(type) {
	case map[string]any:
		have, is := have.(map[string]any)
		if !is {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(union(have, want))) {
			if d := differencePart(path+"."+key, in(have, key), in(want, key)); d != "" {
				return d
			}
		}
		return ""
	case []any:
		have, is := have.([]any)
		if !is {
			break
		}
		for i := range max(len(have), len(want)) {
			if d := differencePart(fmt.Sprintf("%s[%d]", path, i), at(have, i), at(want, i)); d != "" {
				return d
			}
		}
		return ""
	}
	if have == want { // most are, and texts are long
		return ""
	}
	a, b := squeeze(have), squeeze(want)
	if a == b {
		return ""
	}
	a, b = excerpts(a, b)
	return fmt.Sprintf("%s: it is %q, and should be %q", path, a, b)
}

// squeeze returns the text of a value with its blanks made equal: kustomize adds empty lines to
// expressions of several lines, and Helm takes the last line's end away.
func squeeze(value any) string { return strings.Join(strings.Fields(fmt.Sprint(value)), " ") }

// part is a value that may be absent.
type part struct {
	value any
	is    bool
}

func differencePart(path string, have, want part) string {
	switch {
	case !want.is && !have.is:
		return ""
	case !want.is:
		return path + ": it should not be there"
	case !have.is:
		return path + ": it is missing"
	}
	return difference(path, have.value, want.value)
}

// whole is a part that is absent if it is nil.
func whole(value any) part { return part{value, value != nil} }

func in(m map[string]any, key string) part {
	value, is := m[key]
	return part{value, is}
}

func at(list []any, i int) part {
	if i < len(list) {
		return part{list[i], true}
	}
	return part{}
}

func union(a, b map[string]any) map[string]any {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

// excerpts returns the two texts from shortly before the place where they begin to differ.
func excerpts(a, b string) (string, string) {
	const before, length = 10, 60
	ra, rb := []rune(a), []rune(b)
	same := 0
	for same < min(len(ra), len(rb)) && ra[same] == rb[same] {
		same++
	}
	cut := func(text []rune) string {
		from, to := max(same-before, 0), min(same-min(same, before)+length, len(text))
		shown := string(text[from:to])
		if from > 0 {
			shown = "…" + shown
		}
		if to < len(text) {
			shown += "…"
		}
		return shown
	}
	return cut(ra), cut(rb)
}
