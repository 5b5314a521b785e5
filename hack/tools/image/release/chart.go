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
	values := filepath.Join(chart, "values.yaml")
	text, err := os.ReadFile(values)
	if err != nil {
		return fmt.Errorf("reading the chart's values: %w", err)
	}
	if text, err = r.withImage(text); err != nil {
		return err
	}
	if err := os.WriteFile(values, text, 0o600); err != nil {
		return fmt.Errorf("writing the chart's values: %w", err)
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
