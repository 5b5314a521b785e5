package cli

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/mitchellh/go-wordwrap"
	"golang.org/x/term"
)

const (
	// standardWidth is of a terminal that does not say how wide it is.
	standardWidth = 80
	// leastText is how wide a table's last column is at least; where less is left, it goes under its row.
	leastText = 36
	// gap is between columns, as kubectl has it.
	gap = 3
	// indent is of what goes on under a line.
	indent = 4
)

// Page is what a command for people writes on.
type Page struct {
	io.Writer
	Width  int // in columns; 0 if lines may have any length
	Colors bool
}

// PageOf returns out as a page: as wide as the terminal, if it is one. In a file or a pipe nothing wraps, so that programs
// find what they look for in one line.
func PageOf(out io.Writer) Page {
	if page, is := out.(Page); is {
		return page
	}
	page := Page{Writer: out}
	if file := Terminal(out); file != nil {
		page.Colors = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		page.Width = standardWidth
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			page.Width = width
		}
	}
	return page
}

// Terminal returns out if it is a terminal that understands escape sequences; nil if not. Of those of Windows one is known to.
func Terminal(out io.Writer) *os.File {
	file, is := out.(*os.File)
	if !is || !term.IsTerminal(int(file.Fd())) || runtime.GOOS == "windows" && os.Getenv("WT_SESSION") == "" {
		return nil
	}
	return file
}

// Tone is the color of a word.
type Tone string

// The tones.
const (
	Good    Tone = "\x1b[32m" // green
	Waiting Tone = "\x1b[33m" // yellow
	Bad     Tone = "\x1b[31m" // red
)

// paint colors a text if the page has colors, and there is a tone.
func (p Page) paint(text string, tone Tone) string {
	if !p.Colors || tone == "" {
		return text
	}
	return string(tone) + text + "\x1b[0m"
}

// Text writes a line, and goes on below it where it is longer than the page is wide.
func (p Page) Text(text string) error { return p.item("", text, p.Width) }

// Item writes the same after a bullet of one column.
func (p Page) Item(bullet string, tone Tone, text string) error {
	return p.item(p.paint(bullet, tone)+" ", text, p.Width-2)
}

func (p Page) item(lead, text string, width int) error {
	lines := p.wrap(text, width, p.Width-indent)
	_, err := fmt.Fprintln(p, lead+strings.Join(lines, "\n"+strings.Repeat(" ", indent)))
	return err
}

// wrap breaks a text into lines; those after the first have another width.
func (p Page) wrap(text string, first, next int) []string {
	if p.Width == 0 {
		return []string{text}
	}
	lines := strings.Split(wordwrap.WrapString(text, uint(max(first, 1))), "\n")
	if len(lines) == 1 {
		return lines
	}
	rest := strings.TrimSpace(strings.TrimPrefix(text, lines[0]))
	return append(lines[:1], strings.Split(wordwrap.WrapString(rest, uint(max(next, 1))), "\n")...)
}

// Table writes rows below each other. Of each the last cell is a text, which goes on below itself where it is long, or
// stands under the row where there is no room beside it. Other cells that are empty are shown as -.
func (p Page) Table(header []string, rows [][]string, tones map[string]Tone) error {
	last := len(header) - 1
	widths := make([]int, last)
	for _, row := range append([][]string{header}, rows...) {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(OrNone(row[i])))
		}
	}
	left := 0 // of the last column
	for _, width := range widths {
		left += width + gap
	}
	longest := utf8.RuneCountInString(header[last])
	for _, row := range rows {
		longest = max(longest, utf8.RuneCountInString(row[last]))
	}
	under := p.Width > 0 && p.Width-left < min(leastText, longest)
	if under {
		left = indent
		header = append(header[:last:last], "")
	}
	for _, row := range append([][]string{header}, rows...) {
		if err := p.row(row, widths, left, under, tones); err != nil {
			return err
		}
	}
	return nil
}

func (p Page) row(row []string, widths []int, left int, under bool, tones map[string]Tone) error {
	var line strings.Builder
	for i, width := range widths {
		cell := OrNone(row[i])
		line.WriteString(p.paint(cell, tones[cell]) + strings.Repeat(" ", width-utf8.RuneCountInString(cell)+gap))
	}
	text := row[len(row)-1]
	if under && text != "" {
		line.WriteString("\n" + strings.Repeat(" ", left))
	}
	if !under {
		text = OrNone(text)
	}
	room := p.Width - left
	line.WriteString(strings.Join(p.wrap(text, room, room), "\n"+strings.Repeat(" ", left)))
	for each := range strings.SplitSeq(line.String(), "\n") {
		if _, err := fmt.Fprintln(p, strings.TrimRight(each, " ")); err != nil {
			return err
		}
	}
	return nil
}
