package daemonset

import (
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// TestWritesInWords: each kind of write is logged by --dry-run.
func TestWritesInWords(t *testing.T) {
	for want, write := range map[string]rollout.Write{
		"let go of the hold":                       release{"", "web-b"},
		"let go of the hold: image of app differs": release{"image of app differs", "web-b"},
	} {
		if got := write.String(); got != want || !write.Loose() {
			t.Errorf("got %q, loose %t; want %q, and loose", got, write.Loose(), want)
		}
	}
}
