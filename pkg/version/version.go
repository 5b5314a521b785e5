// Package version tells what this program was built from.
package version

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// The linker sets them in a release, so that it is the same wherever it is built. Any other
// build has what Go has noted about its sources.
var version, commit, date string

// Label is on the Lease of the controllers: the version of the one that leads.
const Label = "app.kubernetes.io/version"

// Info says what a program was built from.
type Info struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`
	Date      string `json:"date,omitempty"` // of the commit
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// Get is what this program was built from.
func Get() Info {
	built, _ := debug.ReadBuildInfo()
	return of(built)
}

func of(built *debug.BuildInfo) Info {
	i := Info{version, commit, date, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	if version == "" && built != nil {
		noted := map[string]string{}
		for _, setting := range built.Settings {
			noted[setting.Key] = setting.Value
		}
		i.Version, i.Commit, i.Date = built.Main.Version, noted["vcs.revision"], noted["vcs.time"]
		if noted["vcs.modified"] == "true" {
			i.Commit += "-dirty"
		}
	}
	i.Version = cmp.Or(i.Version, "(devel)")
	return i
}

// String is one line for people.
func (i Info) String() string {
	var more strings.Builder
	for _, part := range []string{i.Commit, i.Date, i.GoVersion, i.Platform} {
		if part == "" {
			continue
		}
		if more.Len() > 0 {
			more.WriteString(", ")
		}
		more.WriteString(part)
	}
	return fmt.Sprintf("%s (%s)", i.Version, &more)
}

// UserAgent is how the program calls itself in requests. Up to the slash it is the name of the
// program, because that is the field manager of writes that name none.
func (i Info) UserAgent() string {
	agent := fmt.Sprintf("%s/%s (%s)", filepath.Base(os.Args[0]), i.Version, i.Platform)
	if i.Commit != "" {
		agent += " " + i.Commit
	}
	return agent
}

var notInLabel = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// LabelValue is the version in the characters that a label may have.
func (i Info) LabelValue() string {
	value := notInLabel.ReplaceAllString(i.Version, "_")
	return strings.Trim(value[:min(len(value), 63)], "._-")
}
