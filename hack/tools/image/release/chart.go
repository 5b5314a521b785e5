package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/hack/tools/image/artifact"
)

// writeChart packages the chart, with the image of this release among its values.
func (r *release) writeChart(ctx context.Context, chart, temporary string) error {
	if err := rewrite(filepath.Join(chart, "values.yaml"), r.withImage, r.withRunbooks); err != nil {
		return err
	}
	if err := rewrite(filepath.Join(chart, "Chart.yaml"), r.withAnnotations); err != nil {
		return err
	}
	version := strings.TrimPrefix(r.version, "v")
	if _, err := run(ctx, r.helm, "package", chart, "--version", version, "--app-version", r.version, "--destination", temporary); err != nil {
		return err
	}
	name := "inplace-rollout-" + version + ".tgz"
	packaged, err := os.ReadFile(filepath.Join(temporary, name))
	if err != nil {
		return fmt.Errorf("reading the packaged chart: %w", err)
	}
	if packaged, err = withoutTimes(packaged); err != nil {
		return fmt.Errorf("archiving the chart: %w", err)
	}
	return r.writeFile(name, packaged)
}

// rewrite changes a file of the chart.
func rewrite(file string, changes ...func([]byte) ([]byte, error)) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading a file of the chart: %w", err)
	}
	for _, change := range changes {
		if text, err = change(text); err != nil {
			return err
		}
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fmt.Errorf("writing a file of the chart: %w", err)
	}
	return nil
}

var annotations = regexp.MustCompile(`(?m)^(  artifacthub.io/prerelease:) "true"$|^(    - \{name: inplace-rollout, image:) inplace-rollout:dev\}$`)

// withAnnotations tells Artifact Hub whether the version is a pre-release, and the image.
func (r *release) withAnnotations(chart []byte) ([]byte, error) {
	if len(annotations.FindAll(chart, -1)) != 2 {
		return nil, errors.New("not exactly one annotation artifacthub.io/prerelease and one of the image in Chart.yaml")
	}
	return annotations.ReplaceAllFunc(chart, func(line []byte) []byte {
		if bytes.Contains(line, []byte("image:")) {
			return fmt.Appendf(nil, "    - {name: inplace-rollout, image: \"%s@%s\"}", r.image, r.digest)
		}
		return fmt.Appendf(nil, `  artifacthub.io/prerelease: "%t"`, strings.Contains(r.version, "-"))
	}), nil
}

var imageValues = regexp.MustCompile(`(?m)^(  repository:) inplace-rollout$|^(  digest:) ""$`)

// withImage names the image in the chart's values, whose comments stay.
func (r *release) withImage(values []byte) ([]byte, error) {
	if len(imageValues.FindAll(values, -1)) != 2 {
		return nil, errors.New("the chart's values.yaml has not exactly one image.repository and one empty image.digest")
	}
	return imageValues.ReplaceAllFunc(values, func(line []byte) []byte {
		if bytes.HasPrefix(line, []byte("  digest:")) {
			return fmt.Appendf(nil, "  digest: %s", r.digest)
		}
		return fmt.Appendf(nil, "  repository: %s", r.image)
	}), nil
}

// newestPages is the part of addresses of pages that are those of the newest commit.
const newestPages = "/blob/main/"

// withRunbooks has the chart's value for the runbooks name those of this version.
func (r *release) withRunbooks(values []byte) ([]byte, error) {
	if bytes.Count(values, []byte(newestPages)) != 1 {
		return nil, errors.New("the chart's values.yaml has not exactly one address with " + newestPages)
	}
	return bytes.Replace(values, []byte(newestPages), []byte("/blob/"+r.version+"/"), 1), nil
}

// withoutTimes is the same archive without those times at which Helm has written it, and with
// modes that no umask has a say in.
func withoutTimes(archive []byte) ([]byte, error) {
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	var files []artifact.File
	for entries := tar.NewReader(compressed); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return artifact.TarGz(files)
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(entries)
		if err != nil {
			return nil, err
		}
		files = append(files, artifact.File{Name: header.Name, Mode: 0o644, Data: data})
	}
}
