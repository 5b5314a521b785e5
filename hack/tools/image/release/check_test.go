//go:build release

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/hack/tools/image/artifact"
)

// built is a release of the commit that is checked out.
type built struct {
	options
	root   string // of this repository
	source artifact.Source
	files  map[string][]byte
}

// program is one of this repository's pinned tools.
func (b *built) program(parts ...string) string {
	return filepath.Join(append([]string{b.root, "bin"}, parts...)...)
}

// buildIn builds the release in a new clone.
func (b *built) buildIn(t *testing.T, folder string) {
	t.Helper()
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	run("git", "clone", "--quiet", b.root, folder)
	t.Chdir(folder)
	var err error
	if b.source, err = artifact.SourceOf(t.Context(), b.version); err != nil {
		t.Fatal(err)
	}
	do(t, b.run(t.Context()))
	b.files = map[string][]byte{}
	dist := os.DirFS(b.output)
	err = fs.WalkDir(dist, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		b.files[file], err = fs.ReadFile(dist, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// file returns the only one whose name matches.
func (b *built) file(t *testing.T, pattern string) []byte {
	t.Helper()
	return b.files[b.only(t, pattern)]
}

func (b *built) only(t *testing.T, pattern string) string {
	t.Helper()
	var found []string
	for file := range b.files {
		if regexp.MustCompile(`^` + pattern + `$`).MatchString(file) {
			found = append(found, file)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s names the files %v, want one", pattern, found)
	}
	return found[0]
}

// TestRelease builds the release that CHANGELOG.md speaks of first, from two clones of the commit
// that is checked out, and does with it what users do. PLATFORMS says for which, as in make release.
func TestRelease(t *testing.T) {
	root := get(filepath.Abs("../../../.."))(t)
	changelog := get(os.ReadFile(filepath.Join(root, "CHANGELOG.md")))(t)
	version := regexp.MustCompile(`(?m)^## (v\S+)`).FindSubmatch(changelog)
	if version == nil {
		t.Fatal("CHANGELOG.md speaks of no release")
	}
	platforms := os.Getenv("PLATFORMS")
	if platforms == "" {
		platforms = "linux/" + runtime.GOARCH
	}
	b := &built{root: root, options: options{
		version: string(version[1]), image: "registry.example.com/tools/inplace-rollout", url: "https://example.com/downloads", output: "dist", platforms: platforms,
	}}
	b.kubectl, b.helm = b.program("k8s", "kubectl"), b.program("gitops", "helm")
	folder := t.TempDir()
	b.buildIn(t, filepath.Join(folder, "a"))
	t.Run("is the same when built elsewhere, in another environment", func(t *testing.T) { b.testSame(t, folder) })
	t.Chdir(filepath.Join(folder, "a"))
	t.Run("has sums of all files", b.testSums)
	t.Run("has an image that a registry takes", b.testImage)
	t.Run("has a program that knows its version", b.testProgram)
	t.Run("has manifests that name the image by its digest", b.testManifests)
	t.Run("has a chart that names the image by its digest", b.testChart)
	t.Run("has a plugin that Krew installs", b.testKrew)
	t.Run("has provenance of all files", b.testProvenance)
	t.Run("has SBOMs", b.testSBOMs)
}

func (b *built) testSame(t *testing.T, folder string) {
	out := get(exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE", "HOME").Output())(t)
	caches := strings.Fields(string(out))
	for name, value := range map[string]string{
		"GOCACHE": caches[0], "GOMODCACHE": caches[1], "HOME": t.TempDir(), "TMPDIR": t.TempDir(), "TZ": "Pacific/Kiritimati", "LC_ALL": "tr_TR.UTF-8",
		"GOFLAGS": "-tags=other -buildvcs=true", "GOARCH": "386", "GOAMD64": "v3", "CGO_ENABLED": "1", "GOOS": "windows", "GODEBUG": "http2client=0",
	} {
		t.Setenv(name, value)
	}
	before := syscall.Umask(0o077)
	t.Cleanup(func() { syscall.Umask(before) })
	again := &built{root: b.root, options: b.options}
	again.buildIn(t, filepath.Join(folder, "some where", "else"))
	if got, want := slices.Sorted(maps.Keys(again.files)), slices.Sorted(maps.Keys(b.files)); !slices.Equal(got, want) {
		t.Fatalf("the files are %v, want %v", got, want)
	}
	for file, data := range b.files {
		if !bytes.Equal(data, again.files[file]) {
			t.Errorf("%s is another one", file)
		}
	}
}

func (b *built) testSums(t *testing.T) {
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = b.output
	out, err := check.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if got := bytes.Count(out, []byte(": OK\n")); got != len(b.files)-1 {
		t.Errorf("%d sums were checked, want those of all %d files but itself", got, len(b.files))
	}
}

// image is that of the layout.
func (b *built) image(t *testing.T) (v1.ImageIndex, v1.Descriptor) {
	t.Helper()
	all := get(layout.ImageIndexFromPath(b.path("inplace-rollout-image-" + b.version)))(t)
	manifest, err := all.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the layout has %+v: %v", manifest, err)
	}
	image := get(all.ImageIndex(manifest.Manifests[0].Digest))(t)
	return image, manifest.Manifests[0]
}

func (b *built) path(name string) string { return filepath.Join(b.output, name) }

func (b *built) testImage(t *testing.T) {
	image, descriptor := b.image(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(t.Output(), "", 0))))
	defer server.Close()
	tag := get(name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/tools/inplace-rollout:" + b.version))(t)
	do(t, remote.WriteIndex(tag, image, remote.WithContext(t.Context())))
	pushed := get(remote.Index(tag, remote.WithContext(t.Context())))(t)
	if digest, err := pushed.Digest(); err != nil || digest != descriptor.Digest {
		t.Errorf("in the registry it is %s: %v, want %s", digest, err, descriptor.Digest)
	}
	want := map[string]string{
		"org.opencontainers.image.title": "inplace-rollout", "org.opencontainers.image.version": b.version, "org.opencontainers.image.revision": b.source.Commit,
		"org.opencontainers.image.source": "https://github.com/inplace-rollout/inplace-rollout", "org.opencontainers.image.created": b.source.Time.Format("2006-01-02T15:04:05Z07:00"),
	}
	index, err := pushed.IndexManifest()
	if err != nil || !maps.Equal(index.Annotations, want) {
		t.Fatalf("its annotations are %v: %v, want %v", index.Annotations, err, want)
	}
	linux := strings.Count(b.platforms, "linux/")
	if len(index.Manifests) != linux {
		t.Errorf("it is for %d platforms, want %d", len(index.Manifests), linux)
	}
	for _, m := range index.Manifests {
		one := get(pushed.Image(m.Digest))(t)
		manifest, manifestErr := one.Manifest()
		config, configErr := one.ConfigFile()
		do(t, errors.Join(manifestErr, configErr))
		if !maps.Equal(manifest.Annotations, want) || !maps.Equal(config.Config.Labels, want) || !config.Created.Equal(b.source.Time) {
			t.Errorf("for %s it has the annotations %v and the labels %v, of %s", m.Platform, manifest.Annotations, config.Config.Labels, config.Created)
		}
	}
}

func (b *built) testProgram(t *testing.T) {
	archive := b.only(t, `kubectl-inplace_rollout-v.*-linux-`+runtime.GOARCH+`\.tar\.gz`)
	folder := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "--extract", "--gzip", "--file", b.path(archive), "--directory", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out := get(exec.CommandContext(t.Context(), filepath.Join(folder, plugin), "version", "--client", "--output=json").Output())(t)
	var said struct {
		Client struct{ Version, Commit, Date, Platform string }
	}
	do(t, json.Unmarshal(out, &said))
	if c := said.Client; c.Version != b.version || c.Commit != b.source.Commit || c.Date != b.source.Time.Format("2006-01-02T15:04:05Z") || c.Platform != "linux/"+runtime.GOARCH {
		t.Errorf("it says %s", out)
	}
}

// reference is how the image has to be named.
func (b *built) reference(t *testing.T) string {
	t.Helper()
	_, descriptor := b.image(t)
	return b.options.image + "@" + descriptor.Digest.String()
}

// assertImages checks that manifests name the image by its digest, and no other one.
func (b *built) assertImages(t *testing.T, manifests []byte) {
	t.Helper()
	found := regexp.MustCompile(`(?m)^ *(?:- )?image: "?([^"\n]+)"?$`).FindAllSubmatch(manifests, -1)
	if len(found) == 0 {
		t.Error("there is no image")
	}
	for _, image := range found {
		if string(image[1]) != b.reference(t) {
			t.Errorf("an image is %s, want %s", image[1], b.reference(t))
		}
	}
}

func (b *built) testManifests(t *testing.T) {
	for file, mutates := range map[string]string{
		"install.yaml": "\nkind: MutatingAdmissionPolicy\n", "install-webhook.yaml": "\nkind: MutatingWebhookConfiguration\n",
		"initial-resources.yaml": "\nkind: MutatingAdmissionPolicy\n", "install-webhook-initial-resources.yaml": "\nkind: MutatingWebhookConfiguration\n",
	} {
		b.assertImages(t, b.files[file])
		for _, there := range []string{mutates, "\nkind: ValidatingAdmissionPolicy\n", "\nkind: Deployment\n", "app.kubernetes.io/version: " + b.version + "\n"} {
			if !bytes.Contains(b.files[file], []byte(there)) {
				t.Errorf("%s has no %q", file, there)
			}
		}
		if strings.Contains(file, "initial-resources") && !bytes.Contains(b.files[file], []byte("\n        app: inplace-rollout-estimator\n")) {
			t.Errorf("%s has no pods of the estimator", file)
		}
		// The API servers for which the webhook is have no such kind, and kubectl would stop at it.
		if strings.Contains(file, "webhook") && bytes.Contains(b.files[file], []byte("\nkind: MutatingAdmissionPolicy")) {
			t.Errorf("%s has a MutatingAdmissionPolicy", file)
		}
	}
}

func (b *built) testChart(t *testing.T) {
	chart := b.path(b.only(t, `inplace-rollout-[0-9].*\.tgz`))
	for _, args := range [][]string{{"lint", chart}, {"template", "a", chart, "--set", "hold=policy"}} {
		out, err := exec.CommandContext(t.Context(), b.helm, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("helm %v: %v\n%s", args, err, out)
		}
		if args[0] == "template" {
			b.assertImages(t, out)
		}
	}
	out := get(exec.CommandContext(t.Context(), b.helm, "show", "chart", chart).Output())(t)
	var metadata struct{ Name, Version, AppVersion string }
	if err := yaml.Unmarshal(out, &metadata); err != nil || metadata.Version != strings.TrimPrefix(b.version, "v") || metadata.AppVersion != b.version || metadata.Name != "inplace-rollout" {
		t.Errorf("it is %+v: %v", metadata, err)
	}
}

// testKrew installs the plugin as Krew does, for each platform, and calls it through kubectl.
func (b *built) testKrew(t *testing.T) {
	for platform := range strings.SplitSeq(b.platforms, ",") {
		system, architecture, _ := strings.Cut(platform, "/")
		archive := b.only(t, `kubectl-inplace_rollout-v.*-`+system+`-`+architecture+`\.tar\.gz`)
		home := t.TempDir()
		install := exec.CommandContext(t.Context(), b.program("krew", "krew"), "install", "--manifest="+b.path("inplace-rollout.yaml"), "--archive="+b.path(archive))
		install.Env = append(os.Environ(), "KREW_ROOT="+home, "KREW_OS="+system, "KREW_ARCH="+architecture)
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", platform, err, out)
		}
		if !bytes.Contains(b.files["inplace-rollout.yaml"], []byte("uri: "+b.url+"/"+archive+"\n")) {
			t.Errorf("the manifest does not say where %s is", archive)
		}
		if platform != "linux/"+runtime.GOARCH {
			continue
		}
		call := exec.CommandContext(t.Context(), b.kubectl, "inplace-rollout", "version", "--client")
		call.Env = append(os.Environ(), "PATH="+filepath.Join(home, "bin")+":"+os.Getenv("PATH"))
		if out, err := call.CombinedOutput(); err != nil || !bytes.Contains(out, []byte(b.version)) {
			t.Errorf("kubectl inplace-rollout version: %v\n%s", err, out)
		}
	}
}

func (b *built) testProvenance(t *testing.T) {
	var statement intoto.Statement
	do(t, protojson.Unmarshal(b.file(t, `provenance\.intoto\.json`), &statement))
	predicate := get(protojson.Marshal(statement.GetPredicate()))(t)
	var made provenance.Provenance
	do(t, protojson.Unmarshal(predicate, &made))
	if err := errors.Join(statement.Validate(), made.Validate()); err != nil {
		t.Error(err)
	}
	said := map[string]string{}
	for _, subject := range statement.GetSubject() {
		said[subject.GetName()] = subject.GetDigest()["sha256"]
	}
	_, descriptor := b.image(t)
	want := map[string]string{b.options.image: descriptor.Digest.Hex}
	for file, data := range b.files {
		if file != "SHA256SUMS" && file != "provenance.intoto.json" {
			want[file] = hash(data)
		}
	}
	if !maps.Equal(said, want) {
		t.Errorf("it speaks of %v, want %v", said, want)
	}
	materials := map[string]map[string]string{}
	for _, m := range made.GetBuildDefinition().GetResolvedDependencies() {
		materials[m.GetUri()] = m.GetDigest()
	}
	if got := materials["git+https://github.com/inplace-rollout/inplace-rollout"]["gitCommit"]; got != b.source.Commit {
		t.Errorf("it is of commit %s, want %s", got, b.source.Commit)
	}
	if len(materials) < 20 {
		t.Errorf("it is made of %v: too little", materials)
	}
}

func (b *built) testSBOMs(t *testing.T) {
	for pattern, described := range map[string]int{`inplace-rollout-image-v.*\.spdx\.json`: 1, `kubectl-inplace_rollout-v.*\.spdx\.json`: strings.Count(b.platforms, ",") + 1} {
		document := get(spdxjson.Read(bytes.NewReader(b.file(t, pattern))))(t)
		if err := spdxlib.ValidateDocument(document); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
		described -= len(slices.DeleteFunc(slices.Clone(document.Relationships), func(r *spdx.Relationship) bool { return r.Relationship != "DESCRIBES" }))
		if described != 0 || document.CreationInfo.Created != b.source.Time.Format("2006-01-02T15:04:05Z") {
			t.Errorf("%s of %s does not describe %d things", pattern, document.CreationInfo.Created, described)
		}
		for _, p := range document.Packages {
			if p.PackageFileName != "" && p.PackageChecksums[0].Value != hash(b.files[p.PackageFileName]) {
				t.Errorf("the sum of %s is another one", p.PackageFileName)
			}
			if p.PackageName == "github.com/inplace-rollout/inplace-rollout" && p.PackageVersion != b.version {
				t.Errorf("the program is of %s, want %s", p.PackageVersion, b.version)
			}
		}
	}
}
