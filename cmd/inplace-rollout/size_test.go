package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestNoTemplates: what we ship links no web page of golang.org/x/net/trace, with which a third of the binary would be methods that
// nobody calls. See hack/conntrack.
func TestNoTemplates(t *testing.T) {
	const pages = "golang.org/x/net/trace"
	imported := func(args ...string) bool {
		out := must.Get(exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, args...)...).Output())(t)
		return slices.Contains(strings.Fields(string(out)), pages)
	}
	if imported("-tags=grpcnotrace", ".") {
		t.Errorf("%s is imported: `go list -deps` says by whom", pages)
	}
	if !imported(".") {
		t.Errorf("%s is not imported without the tag either: it is not needed any more", pages)
	}
}
