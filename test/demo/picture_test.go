package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/golden"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

func at(after time.Duration, ready, started int) measure.Sample {
	return measure.Sample{After: after, Ready: ready, Started: started}
}

// steps has two pods replaced, one after the other, and for a moment one too many.
var steps = column{
	Kind: "Deployment", Replicas: 2,
	InPlace: curve{[]measure.Sample{at(0, 2, 0)}, 10 * time.Second},
	BuiltIn: curve{[]measure.Sample{at(0, 2, 0), at(time.Second, 1, 0), at(3*time.Second, 2, 1), at(4*time.Second, 3, 2), at(5*time.Second, 2, 2)}, 6 * time.Second},
}

func TestPicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "picture.svg")
	if err := (picture{"About <this>", "Measured & drawn.", []column{steps, steps}}).write(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var svg struct {
		Role       string `xml:"role,attr"`
		LabelledBy string `xml:"aria-labelledby,attr"`
		Title      string `xml:"title"`
		Desc       string `xml:"desc"`
		Groups     []struct {
			Paths []struct {
				Class string `xml:"class,attr"`
				Shape string `xml:"d,attr"`
			} `xml:"path"`
			Texts []string `xml:"text"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal(text, &svg); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if svg.Role != "img" || svg.LabelledBy != "title desc" || svg.Title != "About <this>" {
		t.Errorf("a screen reader finds role %q, label %q, title %q", svg.Role, svg.LabelledBy, svg.Title)
	}
	for _, want := range []string{
		"Deployment with 2 pods, in place: at least 2 Ready, 0 containers started anew, complete after 10.0 s.",
		"Deployment with 2 pods, built in: at least 1 Ready, 2 containers started anew, complete after 6.0 s.",
	} {
		if !strings.Contains(svg.Desc, want) {
			t.Errorf("the description is %q, want %q in it", svg.Desc, want)
		}
	}
	if len(svg.Groups) != 5 { // the legend, and two panels for each of two columns
		t.Fatalf("%d groups, want 5", len(svg.Groups))
	}
	shapes := func(group int, class string) []string {
		var found []string
		for _, p := range svg.Groups[group].Paths {
			if p.Class == class {
				found = append(found, p.Shape)
			}
		}
		return found
	}
	// A second is 350/10.2 pixels wide; of the pods there are 3 at most, of the containers 2.
	for _, tt := range []struct {
		group       int
		class, want string
	}{
		{1, "in-place", "M34.0 125.3H377.1"},
		{1, "built-in", "M34.0 125.3H68.3V158.7H136.9V125.3H171.3V92.0H205.6V125.3H239.9"},
		{1, "shaded", "M34.0 125.3H68.3V158.7H136.9V125.3H171.3V125.3H205.6V125.3H239.9V125.3H34.0Z"},
		{2, "in-place", "M34.0 352.0H377.1"},
		{2, "built-in", "M34.0 352.0H68.3V352.0H136.9V302.0H171.3V252.0H205.6V252.0H239.9"},
		{4, "in-place", "M454.0 352.0H797.1"},
	} {
		if got := shapes(tt.group, tt.class); len(got) != 1 || got[0] != tt.want {
			t.Errorf("panel %d has %s %q, want %q", tt.group, tt.class, got, tt.want)
		}
	}
	if got, want := svg.Groups[2].Texts, []string{"Containers that were restarted or replaced", "0", "1", "2", "0 s", "2 s", "4 s", "6 s", "8 s", "10 s", "built in: 2", "in place: 0"}; !slices.Equal(got, want) {
		t.Errorf("panel 2 has the texts %q, want %q", got, want)
	}
	for _, want := range []string{"in place: all Ready, all the time", "built in: pods missing for 2.0 s of 6.0 s"} {
		if !slices.Contains(svg.Groups[1].Texts, want) {
			t.Errorf("panel 1 has the texts %q, want %q among them", svg.Groups[1].Texts, want)
		}
	}
}

// The picture of the README is what is drawn of what was measured.
func TestPictureOfTheReadme(t *testing.T) {
	measured, err := os.ReadFile(filepath.Join("..", "..", "docs", "rollout.json"))
	if err != nil {
		t.Fatal(err)
	}
	var p picture
	if err := json.Unmarshal(measured, &p); err != nil {
		t.Fatal(err)
	}
	want, err := p.svg()
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, filepath.Join("..", "..", "..", "docs", "rollout.svg"), []byte(want))
}
