//go:build around

// Package docs runs the commands of README.md and docs/ on a real control plane
// with simulated nodes, and checks the rest of them: links, manifests, and that
// every reason of the condition is explained.
//
// A fenced block says by its language what becomes of it:
//
//	sh       is run; every command must succeed. With exit=N after the language it
//	         is one command, which must end with that code.
//	console  is run, too: the lines that begin with "$ ". What it prints is compared
//	         with the lines below, where … stands for anything.
//	yaml     is a manifest, and the API server must accept it.
//	text, mermaid, or nothing: is only looked at, and must not hide a command.
//
// A page starts with the workloads of docs/examples, opted in, in a namespace of
// its own, and with a clone of the repository, into which their manifests are
// copied. In a comment <!-- docs test: … --> it may say "each section starts anew"
// or "own cluster".
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// What a page may say in its comment.
const (
	eachSection = "each section starts anew"
	ownCluster  = "own cluster"
)

// TestCommands runs what the pages show. It alone proves that a reader can do it. The pages go through one cluster, one
// after the other; beside them, others have a cluster of their own.
func TestCommands(t *testing.T) {
	t.Parallel()
	shared := make(chan *world, 1)
	shared <- nil // the first page starts it
	for _, p := range pages(t) {
		t.Run(filepath.Base(p.file), func(page *testing.T) {
			page.Parallel()
			switch p.note {
			case ownCluster:
				testPage(page, newWorld(page, page), p)
			case "", eachSection:
				w := <-shared
				page.Cleanup(func() { shared <- w }) // after the page has left it
				if w == nil {
					w = newWorld(page, t)
				}
				testPage(page, w, p)
			default:
				page.Fatalf("the page says %q: want %q or %q", p.note, eachSection, ownCluster)
			}
		})
	}
}

// testPage goes through the blocks of one page.
func testPage(t *testing.T, w *world, p page) {
	var at *place
	section := ""
	for _, b := range p.blocks {
		if at != nil && p.note == eachSection && b.section != section {
			at.leave()
			at = nil
		}
		if at == nil && b.acts() {
			at, section = w.newPlace(t, strings.HasSuffix(b.section, "OnDelete")), b.section
		}
		if err := at.test(t, b); err != nil {
			t.Fatalf("%s:%d: %v", p.file, b.line, err)
		}
	}
}

// test does with a block what its language says.
func (p *place) test(t *testing.T, b block) error {
	t.Helper()
	switch b.language {
	case "sh":
		script := runnable(b.text)
		if b.exit != 0 && len(commandsOf(script)) != 1 {
			return fmt.Errorf("exit=%d is for one command: %s", b.exit, script)
		}
		if out, code := p.run(t, script); code != b.exit {
			return fmt.Errorf("ended with %d, want %d:\n%s\n%s", code, b.exit, script, out)
		}
	case "console":
		return p.console(t, b)
	case "yaml":
		return p.manifest(t, b)
	case "", "text", "mermaid", "hcl":
		for line := range strings.Lines(b.text) {
			if programs.MatchString(strings.TrimSpace(line)) {
				return fmt.Errorf("a command that is not run: %s", line)
			}
		}
	default:
		return fmt.Errorf("language %q: this test does not know what to do with it", b.language)
	}
	return nil
}

func (p *place) console(t *testing.T, b block) error {
	t.Helper()
	all, err := sessions(b.text)
	if err != nil {
		return err
	}
	for i, s := range all {
		want := 0
		if i == len(all)-1 {
			want = b.exit
		}
		out, code := p.run(t, s.command)
		if code != want {
			return fmt.Errorf("%s\nended with %d, want %d:\n%s", s.command, code, want, out)
		}
		if !matches(out, s.output) {
			return fmt.Errorf("%s\nprinted\n%s\nbut the page shows\n%s", s.command, out, s.output)
		}
	}
	return nil
}

// settings are parts of the configuration of other programs, by a key at their top.
var settings = []string{"scrape_configs", "rules", "ignoreDifferences"}

// manifest lets the API server judge the objects of a block.
func (p *place) manifest(t *testing.T, b block) error {
	t.Helper()
	for _, text := range strings.Split(b.text, "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			return fmt.Errorf("reading the manifest: %w", err)
		}
		if object["kind"] == nil && slices.ContainsFunc(settings, func(key string) bool { return object[key] != nil }) {
			continue
		}
		if object["apiVersion"] == nil || object["kind"] == nil {
			return fmt.Errorf("not a whole manifest:\n%s", text)
		}
		file := p.state + ".yaml"
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		if out, code := p.run(t, "kubectl apply --dry-run=server --validate=strict -f "+file); code != 0 {
			return fmt.Errorf("the API server refuses it: %s\n%s", out, text)
		}
	}
	return nil
}
