package podchecks

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/promapi"
)

// check is one of the ConfigMap.
type check struct {
	name        string
	message     string // with $value
	unit        string
	threshold   float64
	below       bool // what is below the threshold has failed; otherwise what is above
	timesBefore float64
	window      time.Duration
	limit       corev1.ResourceName
	query       template
	text        string // what all that was read from
}

// What a check may be.
const (
	longestQuery   = 8 << 10
	longestMessage = 200
	longestWindow  = time.Hour
)

// parseCheck reads what the ConfigMap has under a name.
func parseCheck(name, text string) (*check, error) {
	var read struct {
		Message     string              `json:"message"`
		Unit        string              `json:"unit"`
		Above       *float64            `json:"above"`
		Below       *float64            `json:"below"`
		TimesBefore float64             `json:"timesBefore"`
		Window      string              `json:"window"`
		Limit       corev1.ResourceName `json:"limit"`
		Query       string              `json:"query"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &read); err != nil {
		return nil, err
	}
	c := &check{
		name: name, message: read.Message, unit: read.Unit, below: read.Below != nil, timesBefore: read.TimesBefore, limit: read.Limit, text: text,
	}
	switch {
	case (read.Above == nil) == (read.Below == nil):
		return nil, errors.New("set either above or below: the number beyond which a pod fails")
	case read.Above != nil:
		c.threshold = *read.Above
	default:
		c.threshold = *read.Below
	}
	if !strings.Contains(c.message, "$value") || len(c.message)+len(c.unit) > longestMessage || strings.ContainsFunc(c.message+c.unit, unicode.IsControl) {
		return nil, fmt.Errorf("message is %q: want a line such as \"throttled in $value of its periods\", of %d bytes with the unit", c.message, longestMessage)
	}
	if c.timesBefore < 0 || c.timesBefore > 0 && c.below {
		return nil, fmt.Errorf("timesBefore is %g: want more than 0, together with above", c.timesBefore)
	}
	if !slices.Contains([]corev1.ResourceName{"", corev1.ResourceCPU, corev1.ResourceMemory}, c.limit) {
		return nil, fmt.Errorf("limit is %q: want cpu or memory, or none", c.limit)
	}
	window, err := model.ParseDuration(read.Window)
	if c.window = time.Duration(window); err != nil || c.window < time.Second || c.window > longestWindow {
		return nil, fmt.Errorf("window is %q: want the time that the query looks back, from 1s to %s", read.Window, model.Duration(longestWindow))
	}
	if len(read.Query) > longestQuery {
		return nil, fmt.Errorf("the query has more than %d bytes", longestQuery)
	}
	c.query, err = parseTemplate(read.Query)
	return c, err
}

// template is a query with variables in it: every second part is the name of one.
type template []string

// Variables of a query.
const (
	ofNamespace = "$namespace"
	ofPod       = "$pod"
	ofContainer = "$container"
	ofWindow    = "$window"
)

// parseTemplate finds the variables of a query. They stand where a string or a duration may stand in PromQL, so that nothing but those can
// be filled in: not in quotes, and those of names after =~.
func parseTemplate(query string) (template, error) {
	var t template
	last := 0 // where the text begins that is not in t yet
	for i := 0; i < len(query); {
		switch query[i] {
		case '"', '\'', '`':
			end, err := endOfString(query, i)
			if err != nil {
				return nil, err
			}
			for _, variable := range []string{ofNamespace, ofPod, ofContainer, ofWindow} {
				if strings.Contains(query[i:end], variable) {
					return nil, fmt.Errorf("query: remove the quotes around %s: its value has them", variable)
				}
			}
			i = end
		case '#':
			end := strings.IndexByte(query[i:], '\n')
			if end < 0 {
				end = len(query) - i
			}
			i += end
		case '$':
			variable := query[i : i+1+length(query[i+1:])]
			switch {
			case !slices.Contains([]string{ofNamespace, ofPod, ofContainer, ofWindow}, variable):
				return nil, fmt.Errorf("query: there is no variable %q: want %s, %s, %s or %s", variable, ofNamespace, ofPod, ofContainer, ofWindow)
			case variable != ofWindow && !strings.HasSuffix(strings.TrimRight(query[:i], " \t\r\n"), "=~"):
				return nil, fmt.Errorf("query: %s must follow =~, because one query asks about many pods", variable)
			}
			t = append(t, query[last:i], variable)
			i += len(variable)
			last = i
		default:
			i++
		}
	}
	t = append(t, query[last:])
	if !t.has(ofNamespace) || !t.has(ofPod) {
		return nil, fmt.Errorf("query: want a matcher with %s and one with %s, so that it finds only the pods in question", ofNamespace, ofPod)
	}
	return t, nil
}

// length is that of a variable's name.
func length(text string) int {
	end := strings.IndexFunc(text, func(r rune) bool {
		return r != '_' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
	})
	if end < 0 {
		return len(text)
	}
	return end
}

// endOfString is where the string ends that begins there.
func endOfString(query string, begin int) (int, error) {
	quote := query[begin]
	for i := begin + 1; i < len(query); i++ {
		switch {
		case query[i] == '\\' && quote != '`':
			i++
		case query[i] == quote:
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("query: the string that begins with %.20q has no end", query[begin:])
}

func (t template) has(variable string) bool {
	for i := 1; i < len(t); i += 2 {
		if t[i] == variable {
			return true
		}
	}
	return false
}

// fill asks about all these.
func (c *check) fill(namespaces, pods, containers []string) string {
	values := map[string]string{
		ofNamespace: promapi.Alternatives(namespaces), ofPod: promapi.Alternatives(pods), ofContainer: promapi.Alternatives(containers),
		ofWindow: model.Duration(c.window).String(),
	}
	var filled strings.Builder
	for i, part := range c.query {
		if i%2 == 1 {
			part = values[part]
		}
		filled.WriteString(part)
	}
	return filled.String()
}

// containers are those of a pod that are asked about.
func (c *check) containers(of Subject) []string {
	var names []string
	for _, container := range of.Containers {
		if c.limit == "" || c.limit == corev1.ResourceCPU && container.CPULimit || c.limit == corev1.ResourceMemory && container.MemoryLimit {
			names = append(names, container.Name)
		}
	}
	return names
}

// values are what was measured of a pod, by container; "" is the pod as a whole.
type values map[string]float64

// add takes a sample that is a number. Of two, the worse counts.
func (c *check) add(to values, container string, value float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	if other, there := to[container]; there && (other > value) != c.below {
		value = other
	}
	to[container] = value
}

func (c *check) breaks(value float64) bool {
	if c.below {
		return value < c.threshold
	}
	return value > c.threshold
}

// judgement is what values say of a pod.
type judgement struct {
	state              State
	container, message string
}

// judge says what the values mean. Where before is nil, and it depends on it, open is true.
func (c *check) judge(of Subject, now, before values) (j judgement, open bool) {
	containers := c.containers(of)
	if len(containers) == 0 && c.limit != "" {
		return judgement{state: Passed, message: fmt.Sprintf("no container has a limit of %s", c.limit)}, false
	}
	if !c.query.has(ofContainer) { // it asks about the pod, and whatever it answers counts
		containers = slices.DeleteFunc(append([]string{""}, containers...), func(name string) bool {
			_, there := now[name]
			return !there
		})
	}
	passed, unknown := judgement{state: Passed}, judgement{}
	if len(containers) == 0 {
		unknown = judgement{Unknown, "", noData}
	}
	for _, name := range containers {
		value, there := now[name]
		was, compared := before[name]
		switch {
		case !there:
			unknown = cmp.Or(unknown, judgement{Unknown, name, noData})
		case !c.breaks(value):
			if passed.message == "" {
				passed.container, passed.message = name, c.says(value)+", "+c.within()
			}
		case c.timesBefore == 0:
			return judgement{Failed, name, c.says(value) + ", " + c.beyond()}, false
		case before == nil:
			open = true
		case !compared:
			unknown = cmp.Or(unknown, judgement{Unknown, name, fmt.Sprintf("%s, %s, but %s", c.says(value), c.beyond(), noBefore)})
		case value <= c.timesBefore*was:
			passed.container, passed.message = name, fmt.Sprintf("%s, %s, but not more than %s times the %s before its resize", c.says(value), c.beyond(), number(c.timesBefore), c.quantity(was))
		default:
			return judgement{Failed, name, fmt.Sprintf("%s, %s, and more than %s times the %s before its resize", c.says(value), c.beyond(), number(c.timesBefore), c.quantity(was))}, false
		}
	}
	return cmp.Or(unknown, passed), open
}

// Why nothing is known.
const (
	noData   = "Prometheus has no data of it: check that it is scraped, and that its series have the labels namespace, pod and container"
	noBefore = "Prometheus has no value from before to compare that with, as of a pod that was replaced: promote the canary if that is fine"
)

func (c *check) says(value float64) string {
	return strings.ReplaceAll(c.message, "$value", c.quantity(value))
}

// beyond and within say where a value is.
func (c *check) beyond() string {
	if c.below {
		return "less than " + c.quantity(c.threshold)
	}
	return "more than " + c.quantity(c.threshold)
}

func (c *check) within() string { return "not " + c.beyond() }

func (c *check) quantity(value float64) string {
	if c.unit == "" {
		return number(value)
	}
	return number(value) + " " + c.unit
}

// number has three digits, or all before the point.
func number(value float64) string {
	if math.Abs(value) >= 1000 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3g", value)
}
