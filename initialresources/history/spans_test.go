package history

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSpans reads, in any order, what random times lack, beside a plain list of seconds.
func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const end = 40
		var all spans
		var read [end]bool
		some := rapid.Custom(func(t *rapid.T) span {
			from := rapid.Int64Range(0, end-1).Draw(t, "from")
			return span{from, rapid.Int64Range(from+1, end).Draw(t, "to")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				more := some.Draw(t, "more")
				all = all.add(more)
				for i := more.from; i < more.to; i++ {
					read[i] = true
				}
			},
			"forget": func(t *rapid.T) {
				before := rapid.Int64Range(0, end).Draw(t, "before")
				all = all.forget(before)
				clear(read[:before])
			},
			"": func(t *rapid.T) {
				var seen [end]bool
				for i, s := range all {
					if s.empty() || i > 0 && all[i-1].to >= s.from {
						t.Fatalf("%v", all)
					}
					for j := s.from; j < s.to; j++ {
						seen[j] = true
					}
				}
				if seen != read {
					t.Fatalf("%v, want %v", all, read)
				}
				within := some.Draw(t, "within")
				want := span{within.to, within.to}
				for want.to > within.from && read[want.to-1] {
					want.to--
				}
				want.from = want.to
				for want.from > within.from && !read[want.from-1] {
					want.from--
				}
				if gap := all.newestGap(within); gap != want && (!gap.empty() || !want.empty()) {
					t.Fatalf("the newest gap of %v in %v is %v, want %v", all, within, gap, want)
				}
			},
		})
	})
}
