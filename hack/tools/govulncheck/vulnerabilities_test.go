// Package govulncheck tests that hack/vulnerabilities.sh fails where it should.
package govulncheck

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// entry is an invented one of a database. Its symbol is to be filled in.
const entry = `{"schema_version": "1.3.1", "id": "GO-2000-0001", "modified": "2000-01-01T00:00:00Z", "summary": "It is invented",
  "database_specific": {"url": "https://example.com/GO-2000-0001"},
  "affected": [{"package": {"name": "golang.org/x/mod", "ecosystem": "Go"},
    "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
    "ecosystem_specific": {"imports": [{"path": "golang.org/x/mod/semver", "symbols": [%q]}]}}]}`

func build(t *testing.T, pkg string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(pkg))
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, pkg).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// database is one with an entry about a function of a module that the program has.
func database(t *testing.T, symbol string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"index/db.json":        `{"modified": "2000-01-01T00:00:00Z"}`,
		"index/modules.json":   `[{"path": "golang.org/x/mod", "vulns": [{"id": "GO-2000-0001", "modified": "2000-01-01T00:00:00Z"}]}]`,
		"ID/GO-2000-0001.json": fmt.Sprintf(entry, symbol),
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return "file://" + dir
}

func TestVulnerabilities(t *testing.T) {
	check, program := build(t, "golang.org/x/vuln/cmd/govulncheck"), build(t, "./testdata/program")
	for _, tt := range []struct {
		name, database, program string
		fails                   bool
		says                    string
	}{
		{name: "the program has a function that is vulnerable", database: database(t, "Canonical"), program: program, fails: true, says: "Found in: golang.org/x/mod@"},
		{name: "it lacks that function", database: database(t, "Sort"), program: program, says: "No vulnerabilities found"},
		{name: "the database is away", program: program, says: "was NOT checked"},
		{name: "there is no database there", database: "file:///nowhere", program: program, fails: true},
		{name: "it is no Go program", database: database(t, "Canonical"), program: "/bin/sh", fails: true},
		{name: "there is no program", database: database(t, "Canonical"), program: "/nowhere", fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{check, tt.program}
			if tt.database != "" {
				args = append(args, "-db", tt.database)
			}
			script := exec.CommandContext(t.Context(), "../../vulnerabilities.sh", args...)
			script.Env = append(os.Environ(), "HTTPS_PROXY=http://127.0.0.1:1") // nobody is there
			out, err := script.CombinedOutput()
			if (err != nil) != tt.fails || !strings.Contains(string(out), tt.says) {
				t.Errorf("it ended with %v:\n%s\nwant it to fail: %t, and to say %q", err, out, tt.fails, tt.says)
			}
		})
	}
}
