package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func TestValidVersion(t *testing.T) {
	for version, valid := range map[string]bool{
		"v0.1.0": true, "v1.2.3-rc.1": true, "v1.2.3-dev": true,
		"": false, "0.1.0": false, "v1": false, "v1.2": false, "v01.2.3": false, "latest": false, "v1.2.3+meta": false, "v1.2.3\n": false,
	} {
		if err := validVersion(version); (err == nil) != valid {
			t.Errorf("%q: %v", version, err)
		}
	}
}

func TestSection(t *testing.T) {
	const changelog = "# Changelog\n\n## v0.3.0\n\n## v0.2.0 (2027-01-01)\n\n- Two.\n\n### For operators\n\nMore.\n\n## v0.1.0-rc.1\n\nCandidate.\n\n## v0.1.0\n\nOne.\n"
	for version, want := range map[string]string{
		"v0.2.0": "- Two.\n\n### For operators\n\nMore.\n", "v0.1.0": "One.\n", "v0.1.0-rc.1": "Candidate.\n", "v0.2.0-dev": "- Two.\n\n### For operators\n\nMore.\n",
	} {
		if got, err := section(changelog, version); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", version, got, err, want)
		}
	}
	for _, version := range []string{"v0.3.0", "v0.4.0", "v0.4.0-dev", "v0.2.1", "v0.1"} {
		if got, err := section(changelog, version); err == nil || !strings.Contains(err.Error(), `CHANGELOG.md has no section "## `+strings.TrimSuffix(version, "-dev")+`"`) {
			t.Errorf("%s: %q, %v", version, got, err)
		}
	}
}

// repository is a repository of its own with one commit, which becomes the current folder.
func repository(t *testing.T) {
	t.Helper()
	folder := t.TempDir()
	t.Chdir(folder)
	do(t, os.WriteFile("CHANGELOG.md", []byte("## v0.1.0\n\nOne.\n"), 0o600))
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message=One"}} {
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
}

// A release is refused before anything is built, and nothing is left of one that fails.
func TestRefusals(t *testing.T) {
	repository(t)
	refused := func(version, want string) {
		t.Helper()
		err := options{version: version, output: "dist", platforms: "linux/amd64"}.run(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %q", version, err, want)
		}
		if _, err := os.Stat("dist"); err == nil {
			t.Errorf("%s: there is something in dist/", version)
		}
	}
	const noProgram = "compiling for linux/amd64" // this repository has none: nothing else was wrong
	refused("v0.2.0", `no section "## v0.2.0"`)
	refused("v0.1.0", noProgram)
	do(t, os.WriteFile("more", nil, 0o600))
	refused("v0.1.0", "not committed")
	refused("v0.1.0-rc.1", "not committed")
	refused("v0.1.0-dev", noProgram)
}

func TestChartValues(t *testing.T) {
	r := &release{options: options{image: "registry.example.com/a/b"}, digest: v1.Hash{Algorithm: "sha256", Hex: "abc"}}
	got, err := r.withImage([]byte("# The image.\nimage:\n  repository: inplace-rollout\n  # Counts first.\n  digest: \"\"\n"))
	if want := "# The image.\nimage:\n  repository: registry.example.com/a/b\n  # Counts first.\n  digest: sha256:abc\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for _, values := range []string{"", "image:\n  repository: inplace-rollout\n", "a:\n  digest: \"\"\nb:\n  digest: \"\"\n  repository: inplace-rollout\n"} {
		if got, err := r.withImage([]byte(values)); err == nil {
			t.Errorf("of %q came %q", values, got)
		}
	}
}

// What Artifact Hub is told of the chart in deploy/ is that of the version.
func TestChartAnnotations(t *testing.T) {
	kept := get(os.ReadFile(filepath.Join("..", "..", "..", "..", "deploy", "chart", "Chart.yaml")))(t)
	for version, want := range map[string]string{"v0.1.0": "false", "v0.1.0-rc.1": "true"} {
		r := &release{options: options{image: "registry.example.com/a/b", version: version}, digest: v1.Hash{Algorithm: "sha256", Hex: "abc"}}
		got := get(r.withAnnotations(kept))(t)
		for _, line := range []string{"  artifacthub.io/prerelease: \"" + want + "\"\n", "    - {name: inplace-rollout, image: \"registry.example.com/a/b@sha256:abc\"}\n"} {
			if !strings.Contains(string(got), line) {
				t.Errorf("%s: %q is missing in\n%s", version, line, got)
			}
		}
		if strings.Count(string(got), "\n") != strings.Count(string(kept), "\n") {
			t.Errorf("%s: there are other lines besides:\n%s", version, got)
		}
	}
	if got, err := (&release{}).withAnnotations([]byte("annotations: {}\n")); err == nil {
		t.Errorf("of nothing came %q", got)
	}
}

func TestWithRunbooks(t *testing.T) {
	r := &release{options: options{version: "v1.2.3"}}
	got, err := r.withRunbooks([]byte("runbooks: https://example.com/blob/main/docs/\n"))
	if want := "runbooks: https://example.com/blob/v1.2.3/docs/\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if got, err := r.withRunbooks([]byte("runbooks: \n")); err == nil {
		t.Errorf("without an address: %q", got)
	}
}

// do ends the test if there is an error.
func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// get returns the value for which there is no error.
func get[V any](value V, err error) func(*testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		do(t, err)
		return value
	}
}
