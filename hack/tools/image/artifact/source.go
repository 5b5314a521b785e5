package artifact

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Source says what artifacts are made from, and what they are called. Without a version, they
// say nothing of it.
type Source struct {
	Version string
	Commit  string
	Time    time.Time // of the commit, or of SOURCE_DATE_EPOCH
	Dirty   bool      // there is something that is not in the commit
}

// SourceOf is that of a version which is built from the work tree of this folder.
func SourceOf(ctx context.Context, version string) (Source, error) {
	s := Source{Version: version}
	head, err := output(ctx, "git", "show", "--no-patch", "--format=%H %ct", "HEAD")
	if err != nil {
		return s, err
	}
	changes, err := output(ctx, "git", "status", "--porcelain")
	if err != nil {
		return s, err
	}
	commit, epoch, _ := strings.Cut(strings.TrimSpace(string(head)), " ")
	s.Commit = commit
	if given := os.Getenv("SOURCE_DATE_EPOCH"); given != "" {
		epoch = given
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return s, fmt.Errorf("reading the time of the sources: %w", err)
	}
	s.Time = time.Unix(seconds, 0).UTC()
	if s.Dirty = len(changes) > 0; s.Dirty {
		s.Commit += "-dirty"
	}
	return s, nil
}

// ldflags have the linker stamp a program.
func (s Source) ldflags() string {
	const flags = "-s -w -buildid="
	if s.Version == "" {
		return flags
	}
	return fmt.Sprintf("%s -X %[2]s.version=%[3]s -X %[2]s.commit=%[4]s -X %[2]s.date=%[5]s", flags, stamped, s.Version, s.Commit, s.Time.Format(time.RFC3339))
}

// stamped is the package whose variables say what a program was built from.
const stamped = "github.com/inplace-rollout/inplace-rollout/pkg/version"

// annotations say it of an image, in the words of OCI.
func (s Source) annotations(title, module string) map[string]string {
	if s.Version == "" {
		return nil
	}
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":    title,
		prefix + "version":  s.Version,
		prefix + "revision": s.Commit,
		prefix + "source":   "https://" + module,
		prefix + "created":  s.Time.Format(time.RFC3339),
	}
}
