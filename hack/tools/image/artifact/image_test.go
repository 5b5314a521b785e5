package artifact

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/package-url/packageurl-go"
	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
)

// platforms are those that make image builds for.
const platforms = "linux/amd64,linux/arm64"

// itself is a program that needs other modules: this one.
const itself = "github.com/inplace-rollout/inplace-rollout/hack/tools/image"

// built is an image of this program, unpacked.
type built struct {
	tar, sbom []byte
	index     v1.ImageIndex
	named     v1.Descriptor // the index, in the layout
	images    map[string]v1.Image
}

func build(t *testing.T, source Source) built {
	t.Helper()
	dir := t.TempDir()
	programs := get(Compile(t.Context(), itself, platforms, source))(t)
	image := get(NewImage("tools/image:test", "65532:65532", programs))(t)
	archive, sbom := filepath.Join(dir, "images", "image.tar"), filepath.Join(dir, "images", "image.spdx.json")
	do(t, errors.Join(image.Write(archive), image.WriteSBOM(sbom)))
	b := built{tar: read(t, archive), sbom: read(t, sbom), images: map[string]v1.Image{}}
	unpacked := filepath.Join(dir, "layout")
	for name, file := range files(t, bytes.NewReader(b.tar)) {
		path := filepath.Join(unpacked, name)
		do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, file.data, 0o600)))
	}
	all := get(layout.ImageIndexFromPath(unpacked))(t)
	if err := validate.Index(all); err != nil {
		t.Errorf("the layout is invalid: %v", err)
	}
	b.named = manifests(t, all)[0]
	b.index = get(all.ImageIndex(b.named.Digest))(t)
	for _, m := range manifests(t, b.index) {
		b.images[m.Platform.String()] = get(b.index.Image(m.Digest))(t)
	}
	return b
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	return get(os.ReadFile(file))(t)
}

// file in a tar archive.
type file struct {
	mode int64
	data []byte
}

func files(t *testing.T, archive io.Reader) map[string]file {
	t.Helper()
	found := map[string]file{}
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		data := get(io.ReadAll(r))(t)
		found[header.Name] = file{header.Mode, data}
	}
}

func manifests(t *testing.T, index v1.ImageIndex) []v1.Descriptor {
	t.Helper()
	m := get(index.IndexManifest())(t)
	return m.Manifests
}

// contents are the files of an image.
func contents(t *testing.T, image v1.Image) map[string]file {
	t.Helper()
	layers := get(image.Layers())(t)
	all := map[string]file{}
	for _, layer := range layers {
		r := get(layer.Uncompressed())(t)
		maps.Copy(all, files(t, r))
	}
	return all
}

func TestImage(t *testing.T) {
	b := build(t, Source{})
	t.Run("has a name", func(t *testing.T) {
		if got, want := b.named.Annotations["io.containerd.image.name"], "docker.io/tools/image:test"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	t.Run("is for all platforms", func(t *testing.T) {
		if got := strings.Join(slices.Sorted(maps.Keys(b.images)), ","); got != platforms {
			t.Errorf("it is for %s, want %s", got, platforms)
		}
	})
	for platform, image := range b.images {
		t.Run("runs one program, not as root, on "+platform, func(t *testing.T) { testProgram(t, platform, image) })
		t.Run("has licenses, on "+platform, func(t *testing.T) { testLicenses(t, b, platform, image) })
		t.Run("has an SBOM for "+platform, func(t *testing.T) { testModules(t, b, platform, image) })
	}
}

// testLicenses holds the licenses in the image against the modules that the SBOM names.
func testLicenses(t *testing.T, b built, platform string, image v1.Image) {
	d, packages := document(t, b)
	found := contents(t, image)
	declared := map[string]string{}
	for _, p := range related(d, packages, spdx.ElementID("Image-"+strings.ReplaceAll(platform, "/", "-")), "CONTAINS") {
		if declared[p.PackageName] = p.PackageLicenseDeclared; p.PackageName == itself {
			continue
		}
		folder := "licenses/" + p.PackageName + "@" + p.PackageVersion + "/"
		if p.PackageName == standardLibrary {
			folder = "licenses/stdlib@go" + p.PackageVersion + "/"
		}
		size := 0
		for name, license := range found {
			if size += len(license.data); !strings.HasPrefix(name, folder) {
				size -= len(license.data)
			} else if license.mode != 0o644 {
				t.Errorf("%s has mode %o", name, license.mode)
			}
		}
		if size < 500 || p.PackageLicenseDeclared == noAssertion {
			t.Errorf("%s is under %s; its licenses in the image have %d bytes", p.PackageName, p.PackageLicenseDeclared, size)
		}
	}
	for module, want := range map[string]string{"github.com/google/go-containerregistry": "Apache-2.0", "golang.org/x/sync": "BSD-3-Clause", standardLibrary: "BSD-3-Clause"} {
		if declared[module] != want {
			t.Errorf("%s is under %s, want %s", module, declared[module], want)
		}
	}
}

// A module without a license, or with one that nobody knows, may not be handed on.
func TestNoLicense(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		do(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	write("NOTICE.txt", "This is a product.")
	for _, text := range []string{"", "All rights reserved.", "Ask my lawyer before you read this."} {
		if text != "" {
			write("LICENSE", text)
		}
		if l, err := readLicenses(folder, "example.com/a@v1.0.0"); err == nil || !strings.Contains(err.Error(), "example.com/a@v1.0.0 has no license that is known") {
			t.Errorf("with %q: %+v, %v", text, l, err)
		}
	}
	root := get(output(t.Context(), "go", "env", "GOROOT"))(t)
	write("COPYING.md", string(read(t, filepath.Join(strings.TrimSpace(string(root)), "LICENSE"))))
	do(t, os.Remove(filepath.Join(folder, "LICENSE")))
	l, err := readLicenses(folder, "example.com/a@v1.0.0")
	if err != nil || l.declared != "BSD-3-Clause" || len(l.files) != 2 || l.files["licenses/example.com/a@v1.0.0/NOTICE.txt"] == nil {
		t.Errorf("%+v: %v", l, err)
	}
}

func testProgram(t *testing.T, platform string, image v1.Image) {
	config := get(image.ConfigFile())(t)
	if got := config.Platform().String(); got != platform {
		t.Errorf("it says that it is for %s", got)
	}
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/image"}) || len(config.Config.Cmd) > 0 {
		t.Errorf("it runs %v %v as %q", config.Config.Entrypoint, config.Config.Cmd, config.Config.User)
	}
	found := contents(t, image)
	for name := range found {
		if name != "image" && !strings.HasPrefix(name, "licenses/") {
			t.Errorf("it has the file %s, want only the program and licenses", name)
		}
	}
	if mode := found["image"].mode; mode != 0o755 {
		t.Errorf("the program has mode %o", mode)
	}
	program := get(elf.NewFile(bytes.NewReader(found["image"].data)))(t)
	if want := map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}[platform]; program.Machine != want {
		t.Errorf("it was compiled for %s, want %s", program.Machine, want)
	}
	// A program that is linked dynamically names its loader.
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it is not static: it has a segment %s", p.Type)
		}
	}
}

// document parses the SBOM, and returns its packages by their identifiers.
func document(t *testing.T, b built) (*spdx.Document, map[spdx.ElementID]*spdx.Package) {
	t.Helper()
	d := get(json.Read(bytes.NewReader(b.sbom)))(t)
	packages := map[spdx.ElementID]*spdx.Package{}
	for _, p := range d.Packages {
		if packages[p.PackageSPDXIdentifier] != nil {
			t.Errorf("two packages are called %s", p.PackageSPDXIdentifier)
		}
		packages[p.PackageSPDXIdentifier] = p
	}
	return d, packages
}

// related are the packages that have the relationship with a.
func related(d *spdx.Document, packages map[spdx.ElementID]*spdx.Package, a spdx.ElementID, relationship string) []*spdx.Package {
	var found []*spdx.Package
	for _, r := range d.Relationships {
		if r.RefA.ElementRefID == a && r.Relationship == relationship {
			found = append(found, packages[r.RefB.ElementRefID])
		}
	}
	return found
}

// testModules holds the SBOM against what the compiler has noted in the program.
func testModules(t *testing.T, b built, platform string, image v1.Image) {
	d, packages := document(t, b)
	id := spdx.ElementID("Image-" + strings.ReplaceAll(platform, "/", "-"))
	digest := get(image.Digest())(t)
	if packages[id] == nil {
		t.Fatalf("there is no package %s", id)
	}
	if p := packages[id]; p.PackageName != "tools/image:test" || p.PackageVersion != digest.String() || !slices.Equal(p.PackageChecksums, []spdx.Checksum{{Algorithm: "SHA256", Value: digest.Hex}}) {
		t.Errorf("the image is %s %s with %v, want digest %s", p.PackageName, p.PackageVersion, p.PackageChecksums, digest)
	}
	if all := related(d, packages, id, "VARIANT_OF"); len(all) != 1 || all[0].PackageVersion != b.named.Digest.String() {
		t.Errorf("it is a variant of %v", all)
	}

	info := get(buildinfo.Read(bytes.NewReader(contents(t, image)["image"].data)))(t)
	if len(info.Deps) < 5 {
		t.Fatalf("the program has the modules %v: too few to prove anything", info.Deps)
	}
	want := []string{info.Main.Path + " " + info.Main.Version, "stdlib " + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		want = append(want, m.Path+" "+m.Version)
	}
	var got []string
	for _, p := range related(d, packages, id, "CONTAINS") {
		got = append(got, p.PackageName+" "+p.PackageVersion)
		testLocator(t, p)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the SBOM has %v, the program %v", got, want)
	}
}

// testLocator checks that scanners find the module: they go by its package URL.
func testLocator(t *testing.T, p *spdx.Package) {
	t.Helper()
	if len(p.PackageExternalReferences) != 1 {
		t.Fatalf("%s has the references %v, want one", p.PackageName, p.PackageExternalReferences)
	}
	purl := get(packageurl.FromString(p.PackageExternalReferences[0].Locator))(t)
	name := strings.TrimPrefix(purl.Namespace+"/"+purl.Name, "/")
	if purl.Type != "golang" || !strings.EqualFold(name, p.PackageName) || purl.Version != p.PackageVersion {
		t.Errorf("%s %s is referred to as %s", p.PackageName, p.PackageVersion, purl.String())
	}
}

// A module that is replaced is named as what it was replaced by: that is in the program.
func TestReplacedModule(t *testing.T) {
	m := &debug.Module{Path: "example.com/a", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/Fork", Version: "v1.1.0+incompatible", Sum: "h1:sum"}}
	p := modulePackage(inForce(m))
	if p.PackageName != "example.com/Fork" || p.PackageVersion != "v1.1.0+incompatible" || p.PackageSourceInfo != "go.sum: h1:sum" {
		t.Errorf("got %+v", p)
	}
	testLocator(t, p)
}

// A folder of ours that takes the place of a module is ours, as the program is: nobody else has to be named.
func TestReplacedByFolder(t *testing.T) {
	other := &debug.Module{Path: "example.com/b", Version: "v1.0.0"}
	folder := &debug.Module{Path: "example.com/a", Version: "v1.0.0", Replace: &debug.Module{Path: "./hack/a", Version: "(devel)"}}
	if got := othersOf(&debug.BuildInfo{Deps: []*debug.Module{folder, other}}); !slices.Equal(got, []*debug.Module{other}) {
		t.Errorf("of others are %v, want %v", got, other)
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
