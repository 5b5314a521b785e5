// Command image builds a container image that holds one static Go program, the
// licenses of what it was compiled from, and nothing else, and writes it as an OCI image layout in a tar file, which
// `ctr images import`, `kind load image-archive` and `docker load` read:
//
//	image --package ./cmd/inplace-rollout --name inplace-rollout:dev --output bin/images/inplace-rollout.tar
//
// Beside it, in bin/images/inplace-rollout.spdx.json, it writes an SBOM. That is not a
// referrer in the layout, because tools that load every manifest of a layout as an
// image would fail at it.
//
// The same sources and the same Go version give the same bytes, whatever the environment says.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

type options struct {
	pkg, name, output, platforms, user string
}

func main() {
	var o options
	flag.StringVar(&o.pkg, "package", "", "the program's package")
	flag.StringVar(&o.name, "name", "", "name and tag of the image")
	flag.StringVar(&o.output, "output", "", "the tar file to write")
	flag.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64", "comma-separated platforms to build for")
	flag.StringVar(&o.user, "user", "65532:65532", "user and group to run as")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func (o options) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	temporary, err := os.MkdirTemp("", "image-")
	if err != nil {
		return fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(temporary) }()

	tag, err := name.NewTag(o.name)
	if err != nil {
		return fmt.Errorf("parsing name: %w", err)
	}
	index, bom := mutate.IndexMediaType(empty.Index, types.OCIImageIndex), newSBOM()
	for platform := range strings.SplitSeq(o.platforms, ",") {
		p, err := v1.ParsePlatform(platform)
		if err != nil {
			return fmt.Errorf("parsing platform %s: %w", platform, err)
		}
		program, err := o.compile(ctx, filepath.Join(temporary, p.OS+"-"+p.Architecture), *p)
		if err != nil {
			return fmt.Errorf("compiling for %s: %w", platform, err)
		}
		of, err := licensesOf(ctx, program)
		if err != nil {
			return err
		}
		image, err := o.image(program, of, *p)
		if err != nil {
			return fmt.Errorf("making the image for %s: %w", platform, err)
		}
		if err := bom.addPlatform(tag, *p, image, program, of); err != nil {
			return fmt.Errorf("describing the image for %s: %w", platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: p}})
	}
	folder := filepath.Join(temporary, "layout")
	if _, err := layout.Write(folder, named(index, tag)); err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	if err := archive(folder, o.output); err != nil {
		return err
	}
	return bom.write(strings.TrimSuffix(o.output, filepath.Ext(o.output))+".spdx.json", tag, index)
}

// compile returns the program for one platform.
func (o options) compile(ctx context.Context, binary string, p v1.Platform) ([]byte, error) {
	// Make compiles everything else without debuggers' tables: so the build cache has it already.
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w -buildid=", "-o", binary, o.pkg)
	env, err := environment(ctx)
	if err != nil {
		return nil, err
	}
	build.Env = slices.Concat(env, []string{"GOOS=" + p.OS, "GOARCH=" + p.Architecture})
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return nil, err
	}
	return os.ReadFile(binary)
}

// environment is the one that programs are compiled in: of this process's own it has only what
// cannot be seen in them, such as where modules are downloaded from.
func environment(ctx context.Context) ([]string, error) {
	env := []string{"CGO_ENABLED=0", "GOENV=off", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0"}
	kept := []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOINSECURE", "GOTOOLCHAIN"}
	settings := exec.CommandContext(ctx, "go", append([]string{"env"}, kept...)...)
	settings.Stderr = os.Stderr
	out, err := settings.Output()
	if err != nil {
		return nil, fmt.Errorf("asking for Go's settings: %w", err)
	}
	for i, value := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		env = append(env, kept[i]+"="+value)
	}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"} {
		if value, is := os.LookupEnv(name); is {
			env = append(env, name+"="+value)
		}
	}
	return env, nil
}

// image puts a program and its licenses into an image.
func (o options) image(program []byte, of map[string]licenses, p v1.Platform) (v1.Image, error) {
	file := "/" + path.Base(o.pkg)
	texts := map[string][]byte{}
	for _, l := range of {
		maps.Copy(texts, l.files)
	}
	data, err := archiveOf(file, program, texts)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("making the layer: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, fmt.Errorf("adding the layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = p.OS, p.Architecture
	config.Config = v1.Config{Entrypoint: []string{file}, User: o.user, WorkingDir: "/"}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	return image, nil
}

// archiveOf is a tar archive of one executable and some texts, without times.
func archiveOf(name string, program []byte, texts map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(name string, mode int64, data []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, "/"), Size: int64(len(data)), Mode: mode}); err != nil {
			return fmt.Errorf("archiving %s: %w", name, err)
		}
		if _, err := w.Write(data); err != nil {
			return fmt.Errorf("archiving %s: %w", name, err)
		}
		return nil
	}
	if err := add(name, 0o755, program); err != nil {
		return nil, err
	}
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		if err := add(text, 0o644, texts[text]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("archiving the program: %w", err)
	}
	return out.Bytes(), nil
}

// named puts the index of the platforms into the layout's own, under the name by
// which containerd and Kubernetes know the image.
func named(platforms v1.ImageIndex, tag name.Tag) v1.ImageIndex {
	full := strings.Replace(tag.Name(), name.DefaultRegistry, "docker.io", 1)
	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: platforms,
		Descriptor: v1.Descriptor{Annotations: map[string]string{
			"io.containerd.image.name":          full,
			"org.opencontainers.image.ref.name": tag.TagStr(),
		}},
	})
}

// archive writes a folder as a tar file, its names in order and without times.
func archive(folder, output string) error {
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return fmt.Errorf("making folder: %w", err)
	}
	out, err := os.Create(output)
	if err != nil {
		return fmt.Errorf("creating archive: %w", err)
	}
	defer func() { _ = out.Close() }()
	w := tar.NewWriter(out)
	err = filepath.WalkDir(folder, func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return addFile(w, folder, file)
	})
	if err != nil {
		return fmt.Errorf("archiving the image: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("archiving the image: %w", err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("writing archive: %w", err)
	}
	return nil
}

func addFile(w *tar.Writer, folder, file string) error {
	relative, err := filepath.Rel(folder, file)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(relative), Size: int64(len(data)), Mode: 0o644}); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}
