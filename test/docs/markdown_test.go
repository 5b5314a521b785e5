package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// page is what the tests read of one Markdown file.
type page struct {
	file     string // from the root of the repository
	note     string // what the page says to the tests, in a comment <!-- docs test: … -->
	headings []heading
	blocks   []block
	spans    []span
	links    []span
}

type heading struct {
	text, anchor string
	level        int
}

// block is a fenced block.
type block struct {
	line     int
	language string
	exit     int // the code that its command must end with, from the word exit=N after the language
	text     string
	section  string // the heading that it stands under
}

// acts reports whether the block needs a cluster.
func (b block) acts() bool { return slices.Contains([]string{"sh", "console", "yaml"}, b.language) }

// span is a piece of text within a paragraph.
type span struct {
	line int
	text string
}

// pages reads README.md and everything in docs/.
func pages(t *testing.T) []page {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(controller.Root(), "docs", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file in docs/: %v", err)
	}
	var all []page
	for _, file := range append([]string{filepath.Join(controller.Root(), "README.md")}, files...) {
		all = append(all, readPage(t, file))
	}
	return all
}

var noteComment = regexp.MustCompile(`<!-- docs test: (.*) -->`)

func readPage(t *testing.T, path string) page {
	t.Helper()
	source := must.Get(os.ReadFile(path))(t)
	file := must.Get(filepath.Rel(controller.Root(), path))(t)
	return must.Get(parse(file, source))(t)
}

func parse(file string, source []byte) (page, error) {
	p := page{file: file}
	if note := noteComment.FindSubmatch(source); note != nil {
		p.note = string(note[1])
	}
	line := func(offset int) int { return strings.Count(string(source[:offset]), "\n") + 1 }
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	at := 1 // of the newest block: inline nodes do not know their place
	err := ast.Walk(markdown.Parser().Parse(text.NewReader(source)), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		if n.Type() == ast.TypeBlock && n.Lines().Len() > 0 {
			at = line(n.Lines().At(0).Start)
		}
		switch n := n.(type) {
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			anchor, _ := id.([]byte)
			p.headings = append(p.headings, heading{plain(n, source), string(anchor), n.Level})
		case *ast.CodeBlock:
			return ast.WalkStop, fmt.Errorf("%s:%d: an indented block: fence it, and say what it is", file, at)
		case *ast.FencedCodeBlock:
			b, err := newBlock(n, source)
			if err != nil {
				return ast.WalkStop, fmt.Errorf("%s:%d: %w", file, at, err)
			}
			if b.line = at; len(p.headings) > 0 {
				b.section = p.headings[len(p.headings)-1].text
			}
			p.blocks = append(p.blocks, b)
		case *ast.CodeSpan:
			p.spans = append(p.spans, span{at, plain(n, source)})
		case *ast.Link:
			p.links = append(p.links, span{at, string(n.Destination)})
		case *ast.Image:
			p.links = append(p.links, span{at, string(n.Destination)})
		}
		return ast.WalkContinue, nil
	})
	return p, err
}

func newBlock(n *ast.FencedCodeBlock, source []byte) (block, error) {
	var b block
	if n.Info != nil {
		words := strings.Fields(string(n.Info.Value(source)))
		b.language, words = words[0], words[1:]
		for _, word := range words {
			if _, err := fmt.Sscanf(word, "exit=%d", &b.exit); err != nil {
				return b, fmt.Errorf("%q after the language: want exit=N", word)
			}
		}
	}
	b.text = string(n.Lines().Value(source))
	return b, nil
}

// plain is the text of a node without its markup.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			b.Write(t.Value(source))
			if t.SoftLineBreak() {
				b.WriteByte(' ')
			}
			continue
		}
		b.WriteString(plain(c, source))
	}
	return b.String()
}
