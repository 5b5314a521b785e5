package version

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestInfo(t *testing.T) {
	built := &debug.BuildInfo{
		Main: debug.Module{Version: "v0.1.1-0.20261122213903-1d71e2c21414+dirty"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "1d71e2c2141465a70f36c56506c060d1c4d378d3"}, {Key: "vcs.time", Value: "2026-11-22T21:39:03Z"}, {Key: "vcs.modified", Value: "true"},
		},
	}
	machine := runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH
	for _, tt := range []struct {
		name   string
		linked [3]string
		built  *debug.BuildInfo
		want   string
		label  string
	}{
		{"a build of a work tree", [3]string{}, built, built.Main.Version + " (1d71e2c2141465a70f36c56506c060d1c4d378d3-dirty, 2026-11-22T21:39:03Z, " + machine + ")", "v0.1.1-0.20261122213903-1d71e2c21414_dirty"},
		{"a release", [3]string{"v0.1.0", "abc", "2026-11-23T00:00:00Z"}, built, "v0.1.0 (abc, 2026-11-23T00:00:00Z, " + machine + ")", "v0.1.0"},
		{"a build without repository", [3]string{}, &debug.BuildInfo{}, "(devel) (" + machine + ")", "devel"},
		{"a build that notes nothing", [3]string{}, nil, "(devel) (" + machine + ")", "devel"},
		{"a long version", [3]string{"v1.0.0-" + strings.Repeat("x-", 40)}, nil, "v1.0.0-" + strings.Repeat("x-", 40) + " (" + machine + ")", "v1.0.0-" + strings.Repeat("x-", 27) + "x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			version, commit, date = tt.linked[0], tt.linked[1], tt.linked[2]
			t.Cleanup(func() { version, commit, date = "", "", "" })
			i := of(tt.built)
			must.Equal(t, i.String(), tt.want, "the version")
			if got := i.LabelValue(); strings.Trim(got, "_") != tt.label || len(validation.IsValidLabelValue(got)) > 0 {
				t.Errorf("the label is %s, want %s", got, tt.label)
			}
			if got, want := i.UserAgent(), "version.test/"+i.Version+" ("+runtime.GOOS; !strings.HasPrefix(got, want) {
				t.Errorf("the user agent is %s, want %s…", got, want)
			}
		})
	}
}
