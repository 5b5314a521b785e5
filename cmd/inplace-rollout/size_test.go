package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestNoTemplates: what we ship links no web page of golang.org/x/net/trace, with which a third of the binary would be methods that
// nobody calls. See hack/conntrack.
func TestNoTemplates(t *testing.T) {
	const pages = "golang.org/x/net/trace"
	imported := func(args ...string) bool {
		out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(strings.Fields(string(out)), pages)
	}
	if imported("-tags=grpcnotrace", ".") {
		t.Errorf("%s is imported: `go list -deps` says by whom", pages)
	}
	if !imported(".") {
		t.Errorf("%s is not imported without the tag either: it is not needed any more", pages)
	}
}
