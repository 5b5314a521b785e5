package rollout

import "testing"

// The message is read as it is written, and nothing else is.
func TestObserved(t *testing.T) {
	for _, o := range []Observed{0, 1, 9007199254740993} {
		if got := ParseObserved(o.String()); got != o {
			t.Errorf("%q is %d", o, got)
		}
	}
	for _, other := range []string{"", "observed generation", "observed generation x", "observed generation 7; and more", "generation 7"} {
		if got := ParseObserved(other); got != 0 {
			t.Errorf("%q is %d", other, got)
		}
	}
	for _, tt := range []struct {
		field int64
		said  *StoredCondition
		want  int64
	}{{7, nil, 7}, {6, &StoredCondition{Message: Observed(7).String()}, 7}, {8, &StoredCondition{Message: Observed(7).String()}, 8}} {
		if got := ObservedGeneration(tt.field, tt.said); got != tt.want {
			t.Errorf("%d and %v are of generation %d, want %d", tt.field, tt.said, got, tt.want)
		}
	}
}
