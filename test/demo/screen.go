package main

import (
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// lineWidth is how wide the output is.
const lineWidth = 110

// screen is where the demo is shown, and tells when nobody reads it any more.
type screen struct {
	*os.File
	unread func()
}

func (s screen) say(format string, args ...any) {
	if _, err := fmt.Fprintln(s.File, strings.TrimRight(fmt.Sprintf(format, args...), " \n")); err != nil {
		s.unread()
	}
}

func (s screen) title(text string) {
	s.say("\n── %s %s", text, strings.Repeat("─", lineWidth-4-utf8.RuneCountInString(text)))
}
