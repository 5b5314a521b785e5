package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// lineWidth is how wide the output is, and tableHeight how high the live table gets:
// a terminal needs that much.
const (
	lineWidth   = 100
	tableHeight = 22
)

// style is an ANSI rendition.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

// screen is where the demo is shown.
type screen struct {
	io.Writer
	live    bool // lines can be drawn anew
	colours bool
	drawn   int // lines of the table that stand above the cursor
}

// newScreen writes to a file, and tells when that does not work any more. Only a
// terminal gets colours, unless NO_COLOR is set, and, if it is large enough, a table
// that is drawn anew.
func newScreen(file *os.File, unread func()) *screen {
	s := &screen{Writer: mustBeRead{file, unread}}
	if !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return s
	}
	s.colours = os.Getenv("NO_COLOR") == ""
	width, height, err := term.GetSize(int(file.Fd()))
	unknown := err != nil || width == 0 || height == 0
	s.live = unknown || width >= lineWidth && height >= tableHeight
	return s
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

// command shows what one would type, on more than one line if it is long.
func (s *screen) command(text string) {
	for _, part := range continued(fold("$ "+text, lineWidth-2)) {
		s.line(s.paint(bold, part))
	}
}

// continued marks all lines but the last as going on below.
func continued(lines []string) []string {
	for i := range len(lines) - 1 {
		lines[i] += " \\"
	}
	return lines
}

// quote shows what a command has said.
func (s *screen) quote(text string) {
	for line := range strings.Lines(text) {
		for _, part := range fold(strings.TrimRight(line, "\n"), lineWidth) {
			s.line(s.paint(dim, part))
		}
	}
}

// draw shows a table in the place of the one that it drew before.
func (s *screen) draw(lines []string) {
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	for _, line := range lines {
		b.WriteString(strings.TrimRight(line, " ") + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	_, _ = io.WriteString(s, b.String())
	s.drawn = len(lines)
}

// keep leaves the table where it is.
func (s *screen) keep() { s.drawn = 0 }

// fold breaks a line at blanks so that no part is wider than width, if possible.
// Parts after the first stand under the line's last column of a table, if it is one.
func fold(line string, width int) []string {
	indent := strings.LastIndex(line, "  ") + 2
	if indent == 1 || indent > width/2 {
		indent = 4
	}
	var parts []string
	for utf8.RuneCountInString(line) > width {
		cut := strings.LastIndex(string([]rune(line)[:width+1]), " ")
		if cut <= indent {
			break
		}
		parts = append(parts, line[:cut])
		line = strings.Repeat(" ", indent) + line[cut+1:]
	}
	return append(parts, line)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
