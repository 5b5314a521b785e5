package terminal

import (
	"encoding/xml"
	"testing"
)

func TestSVG(t *testing.T) {
	screen := Screen{Title: "a <title>", Command: "true", Output: "pod \x1b[32mDone\x1b[0m\n<1s  &\n", Columns: 10}
	text, err := screen.SVG()
	if err != nil {
		t.Fatal(err)
	}
	var svg struct {
		Width string `xml:"width,attr"`
		Title string `xml:"title"`
		Desc  string `xml:"desc"`
		Lines []struct {
			Text string `xml:",innerxml"`
		} `xml:"text"`
	}
	if err := xml.Unmarshal(text, &svg); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if svg.Width != "110" || svg.Title != "a <title>" || svg.Desc != "pod Done\n<1s  &\n" {
		t.Errorf("the picture is %s wide, of %q, and says %q", svg.Width, svg.Title, svg.Desc)
	}
	want := []string{"$ true", `pod <tspan class="green">Done</tspan>`, "&lt;1s  &amp;"}
	for i, line := range svg.Lines {
		if i >= len(want) || line.Text != want[i] {
			t.Errorf("line %d is %q, want %q", i, line.Text, want)
		}
	}
	if len(svg.Lines) != len(want) {
		t.Errorf("%d lines, want %d", len(svg.Lines), len(want))
	}
}

func TestNotDrawn(t *testing.T) {
	for name, output := range map[string]string{"a line that is too long": "12345678901\n", "an unknown color": "\x1b[35mpod\x1b[0m\n"} {
		if text, err := (Screen{Command: "true", Output: output, Columns: 10}).SVG(); err == nil {
			t.Errorf("%s is drawn: %s", name, text)
		}
	}
}
