package artifact

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
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

// Image is a container image, for each platform that there is a program for. It holds the program,
// the licenses of what that was compiled from, and nothing else.
type Image struct {
	Digest v1.Hash // of all platforms

	tag      name.Tag
	index    v1.ImageIndex
	programs []*Program
	images   []v1.Image // one of each program
}

// NewImage makes the image of one program, to run as a user and group, under a name with a tag.
func NewImage(tagged, user string, programs []*Program) (*Image, error) {
	tag, err := name.NewTag(tagged)
	if err != nil {
		return nil, fmt.Errorf("parsing name: %w", err)
	}
	i := &Image{tag: tag, index: mutate.IndexMediaType(empty.Index, types.OCIImageIndex), programs: programs}
	for _, p := range programs {
		image, err := p.image(user)
		if err != nil {
			return nil, fmt.Errorf("making the image for %s: %w", p.Platform, err)
		}
		i.images = append(i.images, image)
		i.index = mutate.AppendManifests(i.index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &p.Platform}})
	}
	if annotations := programs[0].annotations(); annotations != nil {
		i.index = mutate.Annotations(i.index, annotations).(v1.ImageIndex) // as documented, it is what it was
	}
	if i.Digest, err = i.index.Digest(); err != nil {
		return nil, fmt.Errorf("computing the digest of all platforms: %w", err)
	}
	return i, nil
}

// annotations say of the image what it was made from.
func (p *Program) annotations() map[string]string { return p.Source.annotations(p.Name, p.Module()) }

// image puts a program and its licenses into an image.
func (p *Program) image(user string) (v1.Image, error) {
	files := []File{{p.Name, 0o755, p.Binary}}
	licenses := p.Licenses()
	for _, name := range slices.Sorted(maps.Keys(licenses)) {
		files = append(files, File{name, 0o644, licenses[name]})
	}
	data, err := Tar(files)
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
	config.OS, config.Architecture = p.Platform.OS, p.Platform.Architecture
	config.Created = v1.Time{Time: p.Source.Time}
	config.Config = v1.Config{Entrypoint: []string{"/" + p.Name}, User: user, WorkingDir: "/", Labels: p.annotations()}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	if p.annotations() != nil {
		image = mutate.Annotations(image, p.annotations()).(v1.Image) // as documented, it is what it was
	}
	return image, nil
}

// WriteLayout writes the image as an OCI image layout, a folder.
func (i *Image) WriteLayout(folder string) error {
	if _, err := layout.Write(folder, i.named()); err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	return nil
}

// Write writes the same in a tar file, which `ctr images import`, `kind load image-archive` and
// `docker load` read.
func (i *Image) Write(file string) error {
	temporary, err := os.MkdirTemp("", "image-")
	if err != nil {
		return fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	folder := filepath.Join(temporary, "layout")
	if err := i.WriteLayout(folder); err != nil {
		return err
	}
	return archive(folder, file)
}

// named puts the index of the platforms into the layout's own, under the name by
// which containerd and Kubernetes know the image.
func (i *Image) named() v1.ImageIndex {
	full := strings.Replace(i.tag.Name(), name.DefaultRegistry, "docker.io", 1)
	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: i.index,
		Descriptor: v1.Descriptor{Annotations: map[string]string{
			"io.containerd.image.name":          full,
			"org.opencontainers.image.ref.name": i.tag.TagStr(),
		}},
	})
}
