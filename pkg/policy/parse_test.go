package policy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const form = " must read [container/]resource[:increase|:decrease]=LiveResizeable|RestartOnly, where resource is cpu or memory; commas separate entries"

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name           string
		policy, action string
		err            string
	}{
		{name: "nothing is said"},
		{name: "only white space", policy: " \n", action: " "},
		{name: "one resource", policy: "cpu=LiveResizeable"},
		{name: "the example of the proposal", policy: "cpu=LiveResizeable,memory=RestartOnly", action: "LiveResizePreferred"},
		{name: "container and direction", policy: "cpu=LiveResizeable, app/memory:decrease=RestartOnly"},
		{name: "spaces around commas", policy: "cpu=LiveResizeable ,  memory=RestartOnly"},
		{name: "folded over lines, as YAML does", policy: "cpu=LiveResizeable,\nmemory=RestartOnly\n", action: "Restart\n"},
		{name: "a container whose name begins with a digit", policy: "0-app/cpu:increase=RestartOnly"},
		{name: "the same twice", policy: "cpu=RestartOnly, cpu=RestartOnly"},
		{name: "different directions do not contradict each other", policy: "cpu:increase=LiveResizeable, cpu:decrease=RestartOnly, cpu=RestartOnly"},
		{name: "different containers do not contradict each other", policy: "a/cpu=LiveResizeable, b/cpu=RestartOnly, cpu=RestartOnly"},
		{name: "action Restart", action: "Restart"},
		{name: "action LiveResize", action: "LiveResize"},

		{name: "another resource", policy: "cpu=RestartOnly, gpu=RestartOnly", err: `"gpu=RestartOnly"` + form},
		{name: "an extended resource", policy: "nvidia.com/gpu=RestartOnly", err: `"nvidia.com/gpu=RestartOnly"` + form},
		{name: "no policy", policy: "cpu", err: `"cpu"` + form},
		{name: "an empty policy", policy: "cpu=", err: `"cpu="` + form},
		{name: "a policy of another case", policy: "cpu=restartonly", err: `"cpu=restartonly"` + form},
		{name: "the spelling of KEP-1287", policy: "memory=RestartContainer", err: `"memory=RestartContainer"` + form},
		{name: "an action for a policy", policy: "memory=Restart", err: `"memory=Restart"` + form},
		{name: "spaces around =", policy: "cpu = RestartOnly", err: `"cpu = RestartOnly"` + form},
		{name: "another direction", policy: "cpu:up=RestartOnly", err: `"cpu:up=RestartOnly"` + form},
		{name: "an empty direction", policy: "cpu:=RestartOnly", err: `"cpu:=RestartOnly"` + form},
		{name: "two directions", policy: "cpu:increase:decrease=RestartOnly", err: `"cpu:increase:decrease=RestartOnly"` + form},
		{name: "an empty container", policy: "/cpu=RestartOnly", err: `"/cpu=RestartOnly"` + form},
		{name: "no container's name", policy: "My_App/cpu=RestartOnly", err: `"My_App/cpu=RestartOnly"` + form},
		{name: "a container of a container", policy: "a/b/cpu=RestartOnly", err: `"a/b/cpu=RestartOnly"` + form},
		{name: "a comma at the end", policy: "cpu=RestartOnly,", err: `""` + form},
		{name: "semicolons", policy: "cpu=RestartOnly;memory=RestartOnly", err: `"cpu=RestartOnly;memory=RestartOnly"` + form},
		{name: "no endless messages", policy: strings.Repeat("x", 1000), err: `"` + strings.Repeat("x", 100) + `"` + form},
		{
			name: "a contradiction", policy: "app/cpu:increase=RestartOnly, memory=RestartOnly, app/cpu:increase=LiveResizeable",
			err: "app/cpu:increase is said to be both LiveResizeable and RestartOnly; say one of them",
		},

		{name: "the proposal's own slip of the pen", action: "ResizePreferred", err: `"ResizePreferred" must be Restart, LiveResize or LiveResizePreferred`},
		{name: "an action of another case", action: "restart", err: `"restart" must be Restart, LiveResize or LiveResizePreferred`},
		{name: "two actions", action: "Restart,LiveResize", err: `"Restart,LiveResize" must be Restart, LiveResize or LiveResizePreferred`},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := test.err
			if want != "" && test.policy != "" {
				want = "annotation inplace-rollout.io/resource-resize-policy: " + want
			} else if want != "" {
				want = "annotation inplace-rollout.io/resource-resize-action: " + want
			}
			settings, err := policy.Parse(test.policy, test.action)
			must.Equal(t, must.Said(err), want, "the error")
			if action := policy.Action(strings.TrimSpace(test.action)); err == nil && settings.Action != action {
				t.Errorf("action %q, want %q", settings.Action, action)
			}
		})
	}
}

func TestTimeouts(t *testing.T) {
	for annotation, of := range map[string]func(policy.Settings) *time.Duration{
		api.DeferredTimeoutAnnotation: func(s policy.Settings) *time.Duration { return s.DeferredTimeout },
		api.NotReadyTimeoutAnnotation: func(s policy.Settings) *time.Duration { return s.NotReadyTimeout },
	} {
		for value, want := range map[string]time.Duration{
			"90s": 90 * time.Second, "5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "1.5h\n": 90 * time.Minute, "500ms": time.Second / 2, " ": 0,
		} {
			settings := must.Get(policy.Read(map[string]string{annotation: value}))(t)
			must.Equal(t, ptr.Deref(of(settings), 0), want, "%s=%q", annotation, value)
		}
		for _, value := range []string{"5", "0", "0s", "-5m", "5 m", "5min", "1d", "forever", "9999999h"} {
			_, err := policy.Read(map[string]string{annotation: value})
			want := `annotation ` + annotation + `: "` + value + `" must be a positive duration such as 90s, 5m or 1h30m`
			must.Equal(t, must.Said(err), want, "%s=%q: error", annotation, value)
		}
	}
}

func TestRead(t *testing.T) {
	settings, err := policy.Read(map[string]string{api.ResizeActionAnnotation: "LiveResize", api.DeferredTimeoutAnnotation: "90s"})
	if err != nil || settings.Action != policy.LiveResize || settings.DeferredTimeout == nil || *settings.DeferredTimeout != 90*time.Second {
		t.Errorf("settings %+v and error %v", settings, err)
	}
	for _, silent := range []map[string]string{nil, {api.DeferredTimeoutAnnotation: " "}} {
		if settings, err := policy.Read(silent); err != nil || settings.DeferredTimeout != nil || settings.Action != "" {
			t.Errorf("%v: settings %+v and error %v", silent, settings, err)
		}
	}
	for _, bad := range []map[string]string{{api.ResizePolicyAnnotation: "x"}, {api.ResizeActionAnnotation: "x"}, {api.DeferredTimeoutAnnotation: "x"}} {
		if _, err := policy.Read(bad); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

// admission reads the patterns that the API server matches against.
func admission(t *testing.T) (entry, timeout *regexp.Regexp) {
	t.Helper()
	file := must.Get(os.ReadFile("../../deploy/cluster/validate-annotations.yaml"))(t)
	var forms []*regexp.Regexp
	for _, of := range []string{`"resource-resize-policy", "(.*)"`, `name: time\s+expression: '"(.*)"'`} {
		found := regexp.MustCompile(of).FindSubmatch(file)
		if found == nil {
			t.Fatalf("the admission policy has no %s", of)
		}
		forms = append(forms, regexp.MustCompile("^("+string(found[1])+")$"))
	}
	return forms[0], forms[1]
}

// Every one of some thousand entries, good and bad.
func TestParseAcceptsTheEntriesThatAdmissionAccepts(t *testing.T) {
	pattern, _ := admission(t)
	good := 0
	for _, container := range []string{"", "app/", "0-a/", strings.Repeat("a", 63) + "/", strings.Repeat("a", 64) + "/", "/", "-a/", "a-/", "A/", "a/b/", "a.b/"} {
		for _, resource := range []string{"cpu", "memory", "", "disk", "CPU", "cpu ", "cpumemory"} {
			for _, towards := range []string{"", ":increase", ":decrease", ":", ":up", ":increase:decrease"} {
				for _, said := range []string{"=LiveResizeable", "=RestartOnly", "", "=", "=Restart", "=RestartOnly=", "= RestartOnly", "=restartonly"} {
					entry := container + resource + towards + said
					want := pattern.MatchString(entry)
					if want {
						good++
					}
					if _, err := policy.Parse(entry, ""); (err == nil) != (want || entry == "") {
						t.Errorf("%q: error %v, want accepted %t", entry, err, want)
					}
				}
			}
		}
	}
	if want := 4 * 2 * 3 * 2; good != want { // of containers, resources, directions and policies
		t.Errorf("%d entries are accepted, want %d", good, want)
	}
}

func TestParseAcceptsTheListsThatAdmissionAccepts(t *testing.T) {
	pattern, _ := admission(t)
	entry := rapid.StringMatching(`(app/)?(cpu|memory)(:increase|:decrease)?=(LiveResizeable|RestartOnly)|x?`)
	comma := rapid.SampledFrom([]string{",", ", ", " ,\n", "\u00a0,", ",,", ";", " "})
	lists := rapid.Custom(func(t *rapid.T) string {
		list := entry.Draw(t, "first")
		for range rapid.IntRange(0, 4).Draw(t, "more") {
			list += comma.Draw(t, "comma") + entry.Draw(t, "next")
		}
		return list
	})
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.OneOf(lists, rapid.String()).Draw(t, "list")
		want, said := true, map[string]string{}
		for entry := range strings.SplitSeq(list, ",") {
			entry = strings.TrimSpace(entry)
			name, value, _ := strings.Cut(entry, "=")
			contradicts := said[name] != "" && said[name] != value
			said[name] = value
			want = want && pattern.MatchString(entry) && !contradicts
		}
		want = want || strings.TrimSpace(list) == ""
		if _, err := policy.Parse(list, ""); (err == nil) != want {
			t.Errorf("%q: error %v, want accepted %t", list, err, want)
		}
	})
}

func TestParseTimeoutAcceptsWhatAdmissionAccepts(t *testing.T) {
	_, pattern := admission(t)
	// Fractions of ns are left out: Go rounds them, maybe to nothing.
	values := rapid.StringMatching(`[+-]?([0-9]{0,3}[.]?[0-9]{0,2}(us|µs|μs|ms|s|m|h|d|x)|[0-9]{1,3}ns){0,3}[0-9]?`)
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(values, rapid.String()).Draw(t, "value")
		_, err := policy.Read(map[string]string{api.DeferredTimeoutAnnotation: value})
		trimmed := strings.TrimSpace(value)
		if want := trimmed == "" || pattern.MatchString(trimmed) && strings.ContainsAny(trimmed, "123456789"); (err == nil) != want {
			t.Errorf("%q: error %v, want accepted %t", value, err, want)
		}
	})
}

// What the documentation tells people to write is accepted.
func TestDocumentedValues(t *testing.T) {
	doc := must.Get(os.ReadFile("../../docs/policies.md"))(t)
	good, _, _ := strings.Cut(string(doc), "## Bad values")
	values := regexp.MustCompile(`(inplace-rollout\.io/[a-z-]+)(?:=|: )(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9=:/,-]+))`).FindAllStringSubmatch(good, -1)
	read := 0
	for _, v := range values {
		name, value := v[1], v[2]+v[3]+v[4]
		if name != api.ResizePolicyAnnotation && name != api.ResizeActionAnnotation && name != api.DeferredTimeoutAnnotation {
			continue
		}
		read++
		_, err := policy.Read(map[string]string{name: value})
		must.Fails(t, v[0], err, "")
	}
	if read < 6 {
		t.Errorf("only %d values are found in the documentation", read)
	}
}
