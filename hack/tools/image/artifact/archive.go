package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// File is one of an archive.
type File struct {
	Name string
	Mode int64
	Data []byte
}

// Tar is an archive of these files, in this order and without times.
func Tar(files []File) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.Name, Size: int64(len(f.Data)), Mode: f.Mode}); err != nil {
			return nil, fmt.Errorf("archiving %s: %w", f.Name, err)
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, fmt.Errorf("archiving %s: %w", f.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("archiving: %w", err)
	}
	return out.Bytes(), nil
}

// TarGz is the same, compressed.
func TarGz(files []File) ([]byte, error) {
	data, err := Tar(files)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	return out.Bytes(), nil
}

// archive writes a folder as a tar file, its names in order and without times.
func archive(folder, output string) error {
	var files []File
	err := filepath.WalkDir(folder, func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		files = append(files, File{filepath.ToSlash(name), 0o644, data})
		return err
	})
	if err != nil {
		return fmt.Errorf("archiving the image: %w", err)
	}
	data, err := Tar(files)
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(output), 0o755), os.WriteFile(output, data, 0o644)); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}
