// Package golden compares what tests print with files.
package golden

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

var update = flag.Bool("update", false, "write what the tests print to testdata/")

// Assert compares with what is in testdata/.
func Assert(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		must.Do(t, os.WriteFile(file, got, 0o644))
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with `go test` of this package with -update", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("printed\n%s\nwant (%s)\n%s", got, file, want)
	}
}
