package plural

import "testing"

func TestOf(t *testing.T) {
	for n, want := range map[int]string{0: "0 pods", 1: "1 pod", 2: "2 pods", 11: "11 pods"} {
		if got := Of(n, "pod"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
