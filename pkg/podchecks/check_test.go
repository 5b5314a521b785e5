package podchecks

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const selector = `up{namespace=~$namespace, pod=~$pod, container=~$container}`

// text is a check whose lines are these.
func text(query string, lines ...string) string {
	return strings.Join(append(lines, "query: "+strconv.Quote(query)), "\n")
}

// throttling is like the one that is shipped, and easier to answer.
func throttling(t testing.TB) *check {
	t.Helper()
	return must.Get(parseCheck("throttling", text(selector, "message: throttled in $value of its periods", `unit: "%"`, "above: 50", "timesBefore: 2", "window: 5m", "limit: cpu")))(t)
}

// TestParseCheck: what is no check says why, so that whoever wrote it can mend it.
func TestParseCheck(t *testing.T) {
	fine := []string{"message: has $value", "above: 1", "window: 1m"}
	without := func(line string, more ...string) []string {
		rest := slices.DeleteFunc(slices.Clone(fine), func(l string) bool { return l == line })
		return append(rest, more...)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"as it should be":               {text(selector, fine...), ""},
		"of the pod":                    {text(`up{namespace=~$namespace, pod=~$pod}`, fine...), ""},
		"blanks before a variable":      {text("up{namespace=~ $namespace, pod=~\n\t$pod}[$window]", fine...), ""},
		"a dollar in quotes":            {text(selector+` unless x{y=~"a$", z='$', w=~`+"`b$`}", fine...), ""},
		"a variable in a comment":       {text(selector+" # of $pod and $anything", fine...), ""},
		"a quote in a comment":          {text("# it's\n"+selector, fine...), ""},
		"an escaped quote":              {text(selector+` or x{y="a\"b"}`, fine...), ""},
		"too little":                    {text(selector, without("above: 1", "below: 1")...), ""},
		"a variable in quotes":          {text(`up{namespace=~$namespace, pod=~"$pod"}`, fine...), "remove the quotes around $pod"},
		"a variable in a raw string":    {text("up{namespace=~$namespace, pod=~`$pod`}", fine...), "remove the quotes around $pod"},
		"a variable after an escape":    {text(`up{x="\\", namespace=~$namespace, pod="$pod"}`, fine...), "remove the quotes around $pod"},
		"a variable after =":            {text(`up{namespace=~$namespace, pod=$pod}`, fine...), "$pod must follow =~"},
		"a variable after !~":           {text(`up{namespace=~$namespace, pod!~$pod}`, fine...), "$pod must follow =~"},
		"a variable as a query":         {text(`$pod`, fine...), "$pod must follow =~"},
		"no such variable":              {text(selector+` + $node`, fine...), `there is no variable "$node"`},
		"one that begins as another":    {text(`up{namespace=~$namespace, pod=~$pods}`, fine...), `there is no variable "$pods"`},
		"a lonely dollar":               {text(selector+` $`, fine...), `there is no variable "$"`},
		"nothing of pods":               {text(`up{namespace=~$namespace}`, fine...), "so that it finds only the pods in question"},
		"nothing of namespaces":         {text(`up{pod=~$pod}`, fine...), "so that it finds only the pods in question"},
		"a string without an end":       {text(`up{namespace=~$namespace, pod=~$pod, x="}`, fine...), "has no end"},
		"no query":                      {strings.Join(fine, "\n"), "so that it finds only the pods in question"},
		"an endless query":              {text(selector+strings.Repeat(" ", longestQuery), fine...), "more than 8192 bytes"},
		"no threshold":                  {text(selector, without("above: 1")...), "set either above or below"},
		"two thresholds":                {text(selector, append(fine, "below: 0")...), "set either above or below"},
		"no number":                     {text(selector, without("above: 1", "above: .nan")...), "NaN"},
		"no message":                    {text(selector, without("message: has $value")...), "message is"},
		"no value in the message":       {text(selector, without("message: has $value", "message: is bad")...), "message is"},
		"two lines in the message":      {text(selector, without("message: has $value", `message: "$value\nand more"`)...), "message is"},
		"no window":                     {text(selector, without("window: 1m")...), "window is"},
		"a window of nothing":           {text(selector, without("window: 1m", "window: 0s")...), "window is"},
		"a window of a day":             {text(selector, without("window: 1m", "window: 1d")...), "from 1s to 1h"},
		"times before of what is below": {text(selector, without("above: 1", "below: 1", "timesBefore: 2")...), "together with above"},
		"less than nothing before":      {text(selector, append(fine, "timesBefore: -1")...), "timesBefore is -1"},
		"a limit of what there is not":  {text(selector, append(fine, "limit: disk")...), "want cpu or memory"},
		"a line that nobody knows":      {text(selector, append(fine, "threshold: 3")...), "threshold"},
		"no YAML":                       {"{", "yaml"},
		"nothing":                       {"", "set either above or below"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := parseCheck("x", tt.text)
			switch {
			case tt.want == "" && (err != nil || c == nil):
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("the error is %v, want …%s…", err, tt.want)
			}
		})
	}
}

// TestFill: what is filled in is one string, and what a regular expression takes for something is escaped.
func TestFill(t *testing.T) {
	c := throttling(t)
	got := c.fill([]string{"shop"}, []string{"web-0", `a"} or vector(1) #`, "b\nc", `d\`, "e.f|g"}, []string{"app"})
	want := `up{namespace=~"shop", pod=~"web-0|a\"\\} or vector\\(1\\) #|b\nc|d\\\\|e\\.f\\|g", container=~"app"}`
	if got != want {
		t.Errorf("the query is\n%s\nwant\n%s", got, want)
	}
	w := must.Get(parseCheck("x", text("rate("+selector+"[$window])", "message: $value", "above: 1", "window: 90s")))(t)
	if got, want := w.fill([]string{"a"}, []string{"b"}, []string{"c"}), `rate(up{namespace=~"a", pod=~"b", container=~"c"}[1m30s])`; got != want {
		t.Errorf("the query is %s, want %s", got, want)
	}
}

// FuzzTemplate: whatever is filled in stays within one string that a matcher has, whatever the template is.
func FuzzTemplate(f *testing.F) {
	f.Add(selector, "web-0")
	f.Add(`a{namespace=~$namespace,pod=~$pod,x="\""}#'`, `"} or b{`)
	f.Add("a{namespace=~$namespace,pod=~$pod,x=`\\`}", "\n\\")
	f.Fuzz(func(t *testing.T, query, name string) {
		parsed, err := parseTemplate(query)
		if err != nil {
			return
		}
		if strings.Join(parsed, "") != query {
			t.Fatalf("%q is read as %q", query, parsed)
		}
		c := &check{query: parsed, window: time.Minute}
		filled := c.fill([]string{name}, []string{name}, []string{name})
		// With every variable's string taken out again, letter by letter, what is left is the template.
		rest, back := filled, ""
		for i, part := range parsed {
			if i%2 == 0 {
				if !strings.HasPrefix(rest, part) {
					t.Fatalf("%q does not go on with %q", rest, part)
				}
				rest, back = rest[len(part):], back+part
				continue
			}
			if part == ofWindow {
				rest, back = strings.TrimPrefix(rest, "1m"), back+part
				continue
			}
			end, err := endOfString(rest, 0)
			if err != nil || rest[0] != '"' {
				t.Fatalf("%q begins with no string: %v", rest, err)
			}
			value := must.Get(strconv.Unquote(rest[:end]))(t)
			if expression, err := regexp.Compile("^(?s:" + value + ")$"); err != nil || !expression.MatchString(strings.ToValidUTF8(name, "\uFFFD")) {
				t.Errorf("%s does not match %q: %v", value, name, err)
			}
			rest, back = rest[end:], back+part
		}
		if rest != "" || back != query {
			t.Errorf("%q is left, and %q comes back", rest, back)
		}
	})
}

// one is a pod with these containers, each with a limit of cpu.
func one(containers ...string) Subject {
	s := Subject{Namespace: "shop", Name: "web-0", UID: "u"}
	for _, name := range containers {
		s.Containers = append(s.Containers, Container{Name: name, CPULimit: true})
	}
	return s
}

func TestJudge(t *testing.T) {
	plain := func(lines ...string) *check {
		return must.Get(parseCheck("x", text(`up{namespace=~$namespace, pod=~$pod}`, append([]string{"message: serves $value", "window: 1m"}, lines...)...)))(t)
	}
	c := throttling(t)
	sidecar := one("app")
	sidecar.Containers = append(sidecar.Containers, Container{Name: "proxy"})
	unlimited := Subject{Containers: []Container{{Name: "app", MemoryLimit: true}}}
	for name, tt := range map[string]struct {
		check       *check
		of          Subject
		now, before values
		want        judgement
		open        bool
	}{
		"little":                         {c, one("app"), values{"app": 3.14159}, nil, judgement{Passed, "app", "throttled in 3.14 % of its periods, not more than 50 %"}, false},
		"as much as is allowed":          {c, one("app"), values{"app": 50}, nil, judgement{Passed, "app", "throttled in 50 % of its periods, not more than 50 %"}, false},
		"much, and nobody asked before":  {c, one("app"), values{"app": 83}, nil, judgement{Passed, "", ""}, true},
		"much, and more than twice":      {c, one("app"), values{"app": 83}, values{"app": 10}, judgement{Failed, "app", "throttled in 83 % of its periods, more than 50 %, and more than 2 times the 10 % before its resize"}, false},
		"much, and it was so before":     {c, one("app"), values{"app": 83}, values{"app": 60}, judgement{Passed, "app", "throttled in 83 % of its periods, more than 50 %, but not more than 2 times the 60 % before its resize"}, false},
		"much, twice as much as before":  {c, one("app"), values{"app": 83}, values{"app": 41.5}, judgement{Passed, "app", "throttled in 83 % of its periods, more than 50 %, but not more than 2 times the 41.5 % before its resize"}, false},
		"much, and nothing known before": {c, one("app"), values{"app": 83}, values{}, judgement{Unknown, "app", "throttled in 83 % of its periods, more than 50 %, but " + noBefore}, false},
		"no data": {c, one("app"), values{}, nil, judgement{
			Unknown, "app", "Prometheus has no data of it: check that it is scraped, and that its series have the labels namespace, pod and container",
		}, false},
		"no data of one of two":           {c, one("app", "proxy"), values{"app": 1}, nil, judgement{Unknown, "proxy", "Prometheus has no data of it: check that it is scraped, and that its series have the labels namespace, pod and container"}, false},
		"one fails, of the other no data": {c, one("app", "proxy"), values{"proxy": 90}, values{"proxy": 0}, judgement{Failed, "proxy", "throttled in 90 % of its periods, more than 50 %, and more than 2 times the 0 % before its resize"}, false},
		"one fails, the other unknown":    {c, one("app", "proxy"), values{"app": 83, "proxy": 90}, values{"proxy": 0}, judgement{Failed, "proxy", "throttled in 90 % of its periods, more than 50 %, and more than 2 times the 0 % before its resize"}, false},
		"one has no limit":                {c, sidecar, values{"app": 1}, nil, judgement{Passed, "app", "throttled in 1 % of its periods, not more than 50 %"}, false},
		"none has a limit":                {c, unlimited, values{}, nil, judgement{Passed, "", "no container has a limit of cpu"}, false},
		"no containers":                   {plain("above: 1"), Subject{}, values{}, nil, judgement{Unknown, "", "Prometheus has no data of it: check that it is scraped, and that its series have the labels namespace, pod and container"}, false},
		"of the pod, enough":              {plain("below: 100"), one("app"), values{"": 1234.5}, nil, judgement{Passed, "", "serves 1234, not less than 100"}, false},
		"of the pod, too little":          {plain("below: 100"), one("app"), values{"": 0}, nil, judgement{Failed, "", "serves 0, less than 100"}, false},
		"of one of the containers":        {plain("above: 1"), one("app", "proxy"), values{"proxy": 2}, nil, judgement{Failed, "proxy", "serves 2, more than 1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, open := tt.check.judge(tt.of, tt.now, tt.before)
			if got != tt.want || open != tt.open {
				t.Errorf("it is %+v, open: %v, want %+v, %v", got, open, tt.want, tt.open)
			}
		})
	}
}

// TestTake: nobody else's series count, and no number that is none.
func TestTake(t *testing.T) {
	sample := func(namespace, pod, container string, value float64) *model.Sample {
		metric := model.Metric{"namespace": model.LabelValue(namespace), "pod": model.LabelValue(pod)}
		if container != "" {
			metric["container"] = model.LabelValue(container)
		}
		return &model.Sample{Metric: metric, Value: model.SampleValue(value)}
	}
	two := one("app")
	two.Name, two.UID = "web-1", "v"
	b := batch{check: throttling(t), asks: []*ask{{of: one("app", "proxy")}, {of: two}}}
	got := b.take(model.Vector{
		sample("shop", "web-0", "app", 10), sample("shop", "web-0", "app", 30), sample("shop", "web-0", "app", 20), // the worst of them
		sample("shop", "web-0", "proxy", math.NaN()), sample("shop", "web-0", "proxy", math.Inf(1)), sample("shop", "web-0", "proxy", math.Inf(-1)),
		sample("bank", "web-0", "app", 99), sample("shop", "web-2", "app", 99), sample("shop", "web-1", "proxy", 99),
		{Metric: model.Metric{"pod": "web-1", "container": "app"}, Value: 99}, {Value: 99}, nil,
		sample("shop", "web-1", "app", 40),
	})
	if want := (measured{{"app": 30}, {"app": 40}}); !reflect.DeepEqual(got, want) {
		t.Errorf("it takes %v, want %v", got, want)
	}
	below := values{}
	for _, value := range []float64{2, 1, 3} {
		(&check{below: true}).add(below, "app", value)
	}
	if below["app"] != 1 {
		t.Errorf("where too little is bad, the worst of 2, 1 and 3 is %v", below["app"])
	}
}

func TestSubjectOf(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	limits := func(name corev1.ResourceName) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{name: {}}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: &always, Resources: limits("memory")}},
		Containers:     []corev1.Container{{Name: "app", Resources: limits("cpu")}},
	}}
	pod.Namespace, pod.Name, pod.UID = "n", "p", "u"
	at := time.Now()
	want := Subject{Namespace: "n", Name: "p", UID: "u", Asked: at, Since: at, Containers: []Container{{Name: "sidecar", MemoryLimit: true}, {Name: "app", CPULimit: true}}}
	if got := SubjectOf(pod, at, at); !reflect.DeepEqual(got, want) {
		t.Errorf("it is %+v, want %+v", got, want)
	}
}

// shipped are the checks of deploy/.
func shipped(t testing.TB) map[string]string {
	t.Helper()
	file := must.Get(os.ReadFile(filepath.Join("..", "..", "deploy", "controller", "checks.yaml")))(t)
	var configMap corev1.ConfigMap
	first, _, _ := strings.Cut(string(file), "\n---\n")
	must.Do(t, yaml.UnmarshalStrict([]byte(first), &configMap))
	if configMap.Name != ConfigMapName {
		t.Fatalf("it is called %s", configMap.Name)
	}
	return configMap.Data
}

func TestShipped(t *testing.T) {
	for name, limit := range map[string]corev1.ResourceName{"cpu-throttling": "cpu", "memory-near-limit": "memory"} {
		c, err := parseCheck(name, shipped(t)[name])
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if c.limit != limit {
			t.Errorf("%s is of a limit of %q", name, c.limit)
		}
	}
}
