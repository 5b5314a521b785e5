package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestLinks checks that what the pages link to within the repository is there.
func TestLinks(t *testing.T) {
	all := pages(t)
	anchors := map[string][]string{}
	for _, p := range all {
		for _, h := range p.headings {
			anchors[p.file] = append(anchors[p.file], h.anchor)
		}
	}
	for _, p := range all {
		for _, l := range p.links {
			link, err := url.Parse(l.text)
			if err != nil {
				t.Errorf("%s:%d: %v", p.file, l.line, err)
				continue
			}
			if link.Scheme != "" {
				continue
			}
			target := p.file
			if link.Path != "" {
				target = filepath.Join(filepath.Dir(p.file), link.Path)
			}
			if _, err := os.Stat(filepath.Join(controller.Root(), target)); err != nil {
				t.Errorf("%s:%d: %v", p.file, l.line, err)
			}
			if link.Fragment != "" && !slices.Contains(anchors[target], link.Fragment) {
				t.Errorf("%s:%d: %s has no heading #%s, only %q", p.file, l.line, target, link.Fragment, anchors[target])
			}
		}
	}
}

// TestIndex checks that the README leads to every page.
func TestIndex(t *testing.T) {
	all := pages(t)
	for _, p := range all[1:] {
		if !slices.ContainsFunc(all[0].links, func(l span) bool { return l.text == p.file }) {
			t.Errorf("README.md does not link to %s", p.file)
		}
	}
}

// TestMentioned checks that every command in a sentence is one that is run somewhere,
// and that the list of those that are not run here has no other.
func TestMentioned(t *testing.T) {
	all, seen := pages(t), map[string]bool{}
	var run []string
	for _, p := range all {
		for _, b := range p.blocks {
			switch b.language {
			case "sh":
				for _, command := range commandsOf(b.text) {
					seen[provenElsewhere(command)] = true
					run = append(run, command)
				}
			case "console":
				found, err := sessions(b.text)
				must.Fails(t, fmt.Sprintf("%s:%d", p.file, b.line), err, "")
				for _, s := range found {
					run = append(run, s.command)
				}
			}
		}
	}
	for _, p := range all {
		for _, s := range p.spans {
			if !programs.MatchString(s.text) || len(strings.Fields(s.text)) < 2 {
				continue
			}
			known := provenElsewhere(s.text)
			seen[known] = true
			if known == "" && !mentioned(s.text, run) {
				t.Errorf("%s:%d: `%s` is mentioned, but no page runs it", p.file, s.line, s.text)
			}
		}
	}
	for known := range elsewhere {
		if !seen[known] {
			t.Errorf("%q is no command of the documentation any more", known)
		}
	}
}

// goOn are the reasons for which nobody has to act.
var goOn = []string{judge.ReasonComplete, judge.ReasonDeferred, judge.ReasonPending, judge.ReasonProgressing}

// words of an act that the page has to have, too: commands, flags and kinds.
var actWords = regexp.MustCompile(`--action=\w+|inplace-rollout\.io/\w+|kubectl describe \w+|\b(?:retry|undo|resume|promote)\b|\w*[a-z][A-Z]\w*`)

// TestReasons checks that each reason of the condition has a section of its own that says what a person does, if anybody has to,
// and no other section is there.
func TestReasons(t *testing.T) {
	page := string(must.Get(os.ReadFile(filepath.Join(controller.Root(), "docs", "troubleshooting.md")))(t))
	for _, reason := range reasons(t) {
		act, acts := judge.Acts[reason]
		if acts == slices.Contains(goOn, reason) {
			t.Errorf("%s: does a person act? %t", reason, acts)
		}
		_, section, _ := strings.Cut(page, "\n### "+reason+"\n")
		section, _, _ = strings.Cut(section, "\n##")
		for _, says := range []string{act.Next, section} {
			if strings.Contains(says, api.ChecksAnnotation) && !strings.Contains(says, "edit again") {
				t.Errorf("%s: %s stays in force until the next edit: %s", reason, api.ChecksAnnotation, says)
			}
		}
		for _, word := range actWords.FindAllString(act.Next, -1) {
			if !strings.Contains(section, word) {
				t.Errorf("%s: the page does not speak of %s, as the condition does: %s", reason, word, act.Next)
			}
		}
	}
	want := reasons(t)
	var got []string
	inside := false
	for _, h := range readPage(t, filepath.Join(controller.Root(), "docs", "troubleshooting.md")).headings {
		switch {
		case h.level <= 2:
			inside = h.text == "Reasons of the condition"
		case inside:
			got = append(got, h.text)
		}
	}
	slices.Sort(got)
	must.EqualLists(t, got, want, "what is explained")
}

// TestUrgent checks that troubleshooting.md leads with what stops everybody's edits.
func TestUrgent(t *testing.T) {
	for _, h := range readPage(t, filepath.Join(controller.Root(), "docs", "troubleshooting.md")).headings {
		if h.level == 2 {
			must.Equal(t, h.text, "No webhook answers", "the first section")
			return
		}
	}
	t.Error("there is no section")
}

// TestReasonsElsewhere checks that gitops.md says of each reason which health of a workload it means: where nothing goes on, no progress.
func TestReasonsElsewhere(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join(controller.Root(), "docs", "gitops.md")))(t)
	for _, reason := range reasons(t) {
		health := regexp.MustCompile("(?m)^\\|.*`" + reason + "`.*\\| (.+) \\|").FindSubmatch(text)
		if health == nil || judge.Acts[reason].Stops && string(health[1]) == "Progressing" {
			t.Errorf("gitops.md says of the reason %s that its health is %q", reason, health)
		}
	}
}

// reasons reads the values of the constants Reason… of package judge.
func reasons(t *testing.T) []string {
	t.Helper()
	file := must.Get(parser.ParseFile(token.NewFileSet(), filepath.Join(controller.Root(), "pkg", "judge", "reasons.go"), nil, 0))(t)
	var values []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		value := must.Get(strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value))(t)
		values = append(values, value)
		return true
	})
	if len(values) == 0 {
		t.Fatal("found no reasons")
	}
	slices.Sort(values)
	return values
}
