package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/inplace-rollout/inplace-rollout/hack/tools/image/artifact"
)

// The name under which kubectl finds the plugin.
const plugin = "kubectl-inplace_rollout"

// release is one that is being written.
type release struct {
	options
	source   artifact.Source
	programs []*artifact.Program
	notes    string
	digest   v1.Hash // of the image
}

func (r *release) write(ctx context.Context) error {
	if err := r.writeImage(); err != nil {
		return err
	}
	if err := r.writePlugin(); err != nil {
		return err
	}
	if err := r.writeManifests(ctx); err != nil {
		return err
	}
	if err := r.writeFile("CHANGELOG.md", []byte(r.notes)); err != nil {
		return err
	}
	if err := r.writeProvenance(); err != nil {
		return err
	}
	return r.writeSums()
}

// named is a file's name in the folder of the release, with the version.
func (r *release) named(prefix, suffix string) string { return prefix + "-" + r.version + suffix }

func (r *release) path(name string) string { return filepath.Join(r.output, name) }

func (r *release) writeFile(name string, data []byte) error {
	if err := os.WriteFile(r.path(name), data, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// writeImage writes the image twice: as a folder, and in a tar file.
func (r *release) writeImage() error {
	var programs []*artifact.Program
	for _, p := range r.programs {
		if p.Platform.OS == "linux" {
			programs = append(programs, p)
		}
	}
	if len(programs) == 0 {
		return errors.New("there is no platform of linux, so there is no image")
	}
	image, err := artifact.NewImage(r.image+":"+r.version, "65532:65532", programs)
	if err != nil {
		return err
	}
	r.digest = image.Digest
	return errors.Join(image.WriteLayout(r.path(r.named("inplace-rollout-image", ""))),
		image.Write(r.path(r.named("inplace-rollout-image", ".tar"))),
		image.WriteSBOM(r.path(r.named("inplace-rollout-image", ".spdx.json"))))
}

// executable is the plugin's name where the program runs.
func executable(p *artifact.Program) string {
	if p.Platform.OS == "windows" {
		return plugin + ".exe"
	}
	return plugin
}

// writePlugin writes an archive of the program for each platform, and a manifest that tells Krew
// where they are.
func (r *release) writePlugin() error {
	texts := map[string][]byte{}
	for _, p := range r.programs {
		maps.Copy(texts, p.Licenses())
	}
	var licenses bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		fmt.Fprintf(&licenses, "==== %s\n\n%s\n\n", strings.TrimPrefix(name, "licenses/"), bytes.TrimSpace(texts[name]))
	}
	if err := r.writeFile("licenses.txt", licenses.Bytes()); err != nil {
		return err
	}
	archives, of := map[string][]byte{}, map[string]*artifact.Program{}
	for _, p := range r.programs {
		name := r.named(plugin, "-"+p.Platform.OS+"-"+p.Platform.Architecture+".tar.gz")
		archive, err := artifact.TarGz([]artifact.File{{Name: executable(p), Mode: 0o755, Data: p.Binary}, {Name: "licenses.txt", Mode: 0o644, Data: licenses.Bytes()}})
		if err != nil {
			return err
		}
		if err := r.writeFile(name, archive); err != nil {
			return err
		}
		archives[name], of[name] = archive, p
	}
	if err := artifact.WriteArchivesSBOM(r.path(r.named(plugin, ".spdx.json")), plugin+" "+r.version, archives, of); err != nil {
		return err
	}
	manifest, err := r.krewManifest(archives, of)
	if err != nil {
		return err
	}
	return r.writeFile(krewName+".yaml", manifest)
}

// writeManifests writes what installs the image, by its digest.
func (r *release) writeManifests(ctx context.Context) error {
	temporary, err := os.MkdirTemp("", "release-")
	if err != nil {
		return fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	// The whole folder, because its parts point to each other.
	deploy := filepath.Join(temporary, "deploy")
	if err := os.CopyFS(deploy, os.DirFS("deploy")); err != nil {
		return fmt.Errorf("copying deploy/: %w", err)
	}
	for name, base := range map[string]string{
		"install.yaml": ".", "install-webhook.yaml": "overlays/webhook",
		"initial-resources.yaml": "initial-resources", "install-webhook-initial-resources.yaml": "overlays/webhook-initial-resources",
	} {
		manifest, err := r.manifest(ctx, temporary, filepath.Join("..", "deploy", base))
		if err != nil {
			return fmt.Errorf("making %s: %w", name, err)
		}
		if err := r.writeFile(name, manifest); err != nil {
			return err
		}
	}
	return r.writeChart(ctx, filepath.Join(deploy, "chart"), temporary)
}

// manifest is a kustomization with the image of this release.
func (r *release) manifest(ctx context.Context, temporary, base string) ([]byte, error) {
	folder := filepath.Join(temporary, "install")
	kustomization := fmt.Sprintf("resources: [%s]\nimages:\n- {name: inplace-rollout, newName: %q, digest: %q}\nlabels:\n- pairs: {app.kubernetes.io/version: %q}\n",
		base, r.image, r.digest, r.version)
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(kustomization), 0o600)); err != nil {
		return nil, err
	}
	manifest, err := run(ctx, r.kubectl, "kustomize", folder)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(manifest, []byte("image: "+r.reference())) || bytes.Contains(manifest, []byte("inplace-rollout:dev")) {
		return nil, errors.New("it does not name the image of this release everywhere")
	}
	return append(fmt.Appendf(nil, "# inplace-rollout %s, commit %s\n", r.version, r.source.Commit), manifest...), nil
}

// reference is the image's name with its digest.
func (r *release) reference() string { return r.image + "@" + r.digest.String() }

// files are those of the release, by their names, with what sha256 makes of them.
func (r *release) files() (map[string]string, error) {
	sums := map[string]string{}
	err := filepath.WalkDir(r.output, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(r.output, file)
		sums[filepath.ToSlash(name)] = hash(data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("summing up the release: %w", err)
	}
	return sums, nil
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// writeSums writes what `sha256sum --check` reads.
func (r *release) writeSums() error {
	sums, err := r.files()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&text, "%s  %s\n", sums[name], name)
	}
	return r.writeFile("SHA256SUMS", text.Bytes())
}

// run returns what a program prints.
func run(ctx context.Context, program string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, program, args...)
	var problems bytes.Buffer
	command.Stderr = &problems
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("running %s %s: %w\n%s", filepath.Base(program), args[0], err, &problems)
	}
	return out, nil
}
