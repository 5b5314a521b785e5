package cli_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
)

// A terminal has a width, and colors unless somebody wants none; a file has neither.
func TestColors(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there is no terminal here: %v", err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	for _, tt := range []struct {
		what, noColor, term string
		want                bool
	}{
		{"a terminal", "", "xterm", true},
		{"NO_COLOR is set", "1", "xterm", false},
		{"it knows none", "", "dumb", false},
	} {
		t.Setenv("NO_COLOR", tt.noColor)
		t.Setenv("TERM", tt.term)
		if page := cli.PageOf(terminal); page.Colors != tt.want || page.Width == 0 {
			t.Errorf("%s: %+v, want colors %t", tt.what, page, tt.want)
		}
	}
	if page := cli.PageOf(&bytes.Buffer{}); page.Colors || page.Width != 0 {
		t.Errorf("what is no terminal: %+v", page)
	}
}
