package artifact

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// licenses are those of one module that a program was compiled from.
type licenses struct {
	declared string            // in the words of SPDX
	files    map[string][]byte // the texts, by the names that they have in the image
}

// standardLibrary names the modules that come with the toolchain.
const standardLibrary = "stdlib"

var (
	licenseFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)s?([-._].*)?$`)
	// What has to go with a license, and is none.
	noticeFile = regexp.MustCompile(`(?i)^(notice|patents)([-._].*)?$`)
)

// licensesOf returns the licenses of all modules of a program but its own, by their paths. One
// without a license that is known is an error: nobody may hand the program on.
func licensesOf(ctx context.Context, info *debug.BuildInfo) (map[string]licenses, error) {
	root, err := output(ctx, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	of := map[string]licenses{}
	if of[standardLibrary], err = readLicenses(strings.TrimSpace(string(root)), standardLibrary+"@"+info.GoVersion); err != nil || len(othersOf(info)) == 0 {
		return of, err
	}
	list := []string{"list", "-m", "-json"}
	for _, m := range othersOf(info) {
		list = append(list, m.Path)
	}
	modules, err := output(ctx, "go", list...)
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(modules)); ; {
		var m struct{ Path, Version, Dir string }
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			return of, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the list of modules: %w", err)
		}
		if of[m.Path], err = readLicenses(m.Dir, m.Path+"@"+m.Version); err != nil {
			return nil, err
		}
	}
}

// readLicenses reads those in the folder of a module.
func readLicenses(folder, module string) (licenses, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return licenses{}, fmt.Errorf("looking for the license of %s: %w", module, err)
	}
	found := licenses{files: map[string][]byte{}}
	var ids []string
	for _, e := range entries {
		isLicense := licenseFile.MatchString(e.Name())
		if !e.Type().IsRegular() || !isLicense && !noticeFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return licenses{}, fmt.Errorf("reading the license of %s: %w", module, err)
		}
		found.files[path.Join("licenses", module, e.Name())] = text
		if isLicense {
			for _, match := range licensecheck.Scan(text).Match {
				ids = append(ids, match.ID)
			}
		}
	}
	if len(ids) == 0 {
		return licenses{}, fmt.Errorf("module %s has no license that is known, in %s", module, folder)
	}
	slices.Sort(ids)
	found.declared = strings.Join(slices.Compact(ids), " AND ")
	return found, nil
}
