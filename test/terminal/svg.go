// Package terminal draws what a command prints on a terminal.
package terminal

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"regexp"
	"strings"
	"text/template"
	"unicode/utf8"
)

// Screen is a terminal after one command.
type Screen struct {
	Title   string
	Command string
	Output  string // with the escape sequences of colors
	Columns int
}

// The measures of a character and of the frame, in pixels.
const (
	charWidth  = 7.8
	lineHeight = 19
	left       = 16
	top        = 52 // the base of the first line
)

//go:embed screen.svg.tmpl
var source string

var picture = template.Must(template.New("").Parse(source))

// classes are the colors of escape sequences, by their names in the picture.
var classes = map[string]string{"31": "red", "32": "green", "33": "yellow"}

var (
	escape  = regexp.MustCompile("\x1b\\[([0-9]*)m")
	painted = regexp.MustCompile("\x1b\\[([0-9]+)m([^\x1b]*)\x1b\\[0m")
)

// line is a line of the screen, as SVG.
type line struct {
	Y    int
	Text string
}

// SVG returns the picture. It is an error if a line is too long, or has a color that the picture does not know.
func (s Screen) SVG() ([]byte, error) {
	var lines []line
	for i, text := range strings.Split(strings.TrimRight("$ "+s.Command+"\n"+s.Output, "\n"), "\n") {
		if n := utf8.RuneCountInString(escape.ReplaceAllString(text, "")); n > s.Columns {
			return nil, fmt.Errorf("a line has %d columns of %d: %s", n, s.Columns, text)
		}
		drawn := painted.ReplaceAllStringFunc(html.EscapeString(text), func(word string) string {
			part := painted.FindStringSubmatch(word)
			if classes[part[1]] == "" {
				return word
			}
			return fmt.Sprintf(`<tspan class="%s">%s</tspan>`, classes[part[1]], part[2])
		})
		if escape.MatchString(drawn) {
			return nil, fmt.Errorf("a color that is not known: %q", drawn)
		}
		lines = append(lines, line{top + i*lineHeight, drawn})
	}
	var out bytes.Buffer
	err := picture.Execute(&out, map[string]any{
		"Title": html.EscapeString(s.Title), "Description": html.EscapeString(escape.ReplaceAllString(s.Output, "")),
		"Lines": lines, "Width": int(2*left + charWidth*float64(s.Columns)), "Height": top + len(lines)*lineHeight, "Left": left,
	})
	return out.Bytes(), err
}
