//go:build around

package docs

import (
	"slices"
	"strings"
	"testing"
)

// TestItself shows that what is wrong with a page is found.
func TestItself(t *testing.T) {
	p, err := parse("page.md", []byte("<!-- docs test: own cluster -->\n# One `two`\n\nSay `kubectl get pods`, see [there](x.md#y).\n\n```sh exit=3\nfalse\n```\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := block{line: 7, language: "sh", exit: 3, text: "false\n", section: "One two"}
	if p.note != ownCluster || !slices.Equal(p.blocks, []block{want}) || p.headings[0].anchor != "one-two" ||
		!slices.Equal(p.spans[1:], []span{{4, "kubectl get pods"}}) || !slices.Equal(p.links, []span{{4, "x.md#y"}}) {
		t.Errorf("read %+v", p)
	}
	for name, text := range map[string]string{
		"an indented block":  "Do\n\n    kubectl delete pods --all\n",
		"an unknown word":    "```sh skip\nfalse\n```\n",
		"an unknown setting": "```sh exit=no\nfalse\n```\n",
	} {
		if _, err := parse("page.md", []byte(text)); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	for name, b := range map[string]block{
		"a language that is not known": {language: "bash", text: "true\n"},
		"a hidden command":             {language: "text", text: "Then:\n  $ kubectl get pods\n"},
		"a hidden make":                {text: "make all\n"},
		"a command behind another":     {language: "text", text: "cat x | kubectl apply -f -\n"},
		"two commands with a code":     {language: "sh", exit: 1, text: "false\nfalse\n"},
		"output before any command":    {language: "console", text: "done\n"},
		"a fragment of a manifest":     {language: "yaml", text: "spec: {}\n"},
	} {
		if err := (&place{}).test(t, b); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	if got := commandsOf("# why\na \\\n  b   # c\nd '\n e'\n"); !slices.Equal(got, []string{"a   b", "d '\n e'"}) {
		t.Errorf("commands %q", got)
	}
	if got := runnable("make image   # for nodes\nmake images\n"); got != "make images\n" {
		t.Errorf("of a command that is listed and one that is not, this is run: %q", got)
	}
	run := []string{"kubectl set image x | inplace-rollout plan -f -"}
	for command, want := range map[string]bool{
		"kubectl set image": true, "kubectl set … x": true, "inplace-rollout plan": true, "kubectl set im": false, "plan -f": false, "kubectl get": false,
	} {
		if mentioned(command, run) != want {
			t.Errorf("%q is mentioned: %t, want %t", command, !want, want)
		}
	}
	if !matches("a  b\nc 17s\n", "a b\nc …") || matches("a b c", "a b") || matches("xa b", "a b") {
		t.Error("what is printed is compared wrongly")
	}
	code := func(script string) int {
		_, code := (&place{dir: t.TempDir(), state: t.TempDir() + "/state"}).run(t, script)
		return code
	}
	if code("false\ntrue") == 0 || code("false | true") == 0 || code("exit 3") != 3 || code("echo $UNSET") == 0 {
		t.Error("a command that fails passes")
	}
	if !strings.Contains(elsewhere["make test"], ".ci/run") {
		t.Error("the list does not say where a command is proven")
	}
}
