package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// lineWidth is how wide the output is.
const lineWidth = 110

// style is an ANSI rendition.
type style string

const (
	plain style = ""
	bold  style = "1"
	dim   style = "2"
	red   style = "31"
	green style = "32"
)

// screen is where the demo is shown.
type screen struct {
	io.Writer
	colours bool
}

// newScreen writes to a file, and tells when that does not work any more. Only a terminal gets colours, unless NO_COLOR is set.
func newScreen(file *os.File, unread func()) *screen {
	terminal := term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
	return &screen{mustBeRead{file, unread}, terminal && os.Getenv("NO_COLOR") == ""}
}

// mustBeRead is a file that must have a reader.
type mustBeRead struct {
	*os.File
	unread func() // tells that it has none
}

func (r mustBeRead) Write(p []byte) (int, error) {
	n, err := r.File.Write(p)
	if err != nil {
		r.unread()
	}
	return n, err
}

// paint gives text a rendition, where there are colours.
func (s *screen) paint(st style, text string) string {
	if !s.colours || st == plain || text == "" {
		return text
	}
	return "\x1b[" + string(st) + "m" + text + "\x1b[0m"
}

// line writes one line. A failure is the writer's business.
func (s *screen) line(text string) { _, _ = fmt.Fprintln(s, strings.TrimRight(text, " ")) }

func (s *screen) say(format string, args ...any) { s.line(fmt.Sprintf(format, args...)) }

func (s *screen) title(text string) {
	s.line("")
	s.line(s.paint(bold, "── "+text+" "+strings.Repeat("─", lineWidth-4-utf8.RuneCountInString(text))))
}

// command shows what one would type, and quote what it has said.
func (s *screen) command(text string) { s.line(s.paint(bold, "$ "+text)) }

func (s *screen) quote(text string) { s.line(s.paint(dim, text)) }

// pad fills text up to a width.
func pad(text string, width int) string { return fmt.Sprintf("%-*s", width, text) }
