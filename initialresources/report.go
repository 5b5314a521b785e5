package initialresources

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/plural"
)

// What a pod's annotation says of initial resources.
const (
	setAlways   = "always"
	setIfNotSet = "if-not-set"
	setNever    = "never"
)

var initialPolicies = []string{setAlways, setIfNotSet, setNever}

// bins is how many there are in a histogram, at most.
const bins = 12

// estimateKind is the kind of the report as a document.
const estimateKind = "Estimate"

// estimateReport is what the containers of a workload would request, or those of images.
type estimateReport struct {
	metav1.TypeMeta `json:",inline"`
	// Workload is missing if images are asked about.
	Workload   *cli.Workload       `json:"workload,omitempty"`
	Namespace  string              `json:"namespace"`
	Containers []containerEstimate `json:"containers"`
}

type containerEstimate struct {
	Name  string `json:"name,omitempty"`
	Type  string `json:"type,omitempty"` // init, sidecar, or none
	Image string `json:"image"`
	// Resources are cpu and memory.
	Resources []resourceEstimate `json:"resources"`
}

type resourceEstimate struct {
	Resource string `json:"resource"`
	// Request and Limit are what the container has now.
	Request string `json:"request,omitempty"`
	Limit   string `json:"limit,omitempty"`
	// Set: the container would get the estimate as its request. Reason is why not.
	Set    bool   `json:"set"`
	Reason string `json:"reason,omitempty"`
	// Estimate is missing if nothing is known.
	Estimate  *estimate.Estimate `json:"estimate,omitempty"`
	Histogram []estimate.Bin     `json:"histogram,omitempty"`

	wanted bool // it is to get a request
}

// reporter makes reports.
type reporter struct {
	ladder estimate.Ladder
	source estimate.Source
	roles  bool
	policy string
	now    time.Time
}

func (x reporter) report(s subject, bounds estimate.Bounds) (estimateReport, error) {
	r := estimateReport{TypeMeta: cli.Type(estimateKind), Namespace: s.namespace}
	policy := s.pod.Annotations[api.InitialResourcesLabel]
	if s.object != nil {
		r.Workload = &cli.Workload{Kind: s.object.GetKind(), Namespace: s.namespace, Name: cmp.Or(s.object.GetName(), s.object.GetGenerateName())}
		if policy != "" && !slices.Contains(initialPolicies, policy) {
			return r, fmt.Errorf("%s: the annotation %s is %q: want %s", s.name(), api.InitialResourcesLabel, policy, strings.Join(initialPolicies, ", "))
		}
	}
	if x.policy != "" {
		policy = x.policy
	}
	add := func(c corev1.Container, kind string) {
		of := containerEstimate{Name: c.Name, Type: kind, Image: c.Image}
		for _, name := range estimate.Resources {
			e := x.one(s.namespace, c, name, bounds)
			e.decide(policy, s)
			of.Resources = append(of.Resources, e)
		}
		r.Containers = append(r.Containers, of)
	}
	for _, c := range s.pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c, "sidecar")
		} else {
			add(c, "init")
		}
	}
	for _, c := range s.pod.Spec.Containers {
		add(c, "")
	}
	return r, nil
}

// one estimates a resource of a container.
func (x reporter) one(namespace string, c corev1.Container, name corev1.ResourceName, bounds estimate.Bounds) resourceEstimate {
	e := resourceEstimate{Resource: string(name)}
	if request, ok := c.Resources.Requests[name]; ok {
		e.Request = request.String()
	}
	if limit, ok := c.Resources.Limits[name]; ok {
		e.Limit = limit.String()
	}
	image, err := estimate.ParseImage(c.Image)
	if err != nil {
		e.Reason = err.Error()
		return e
	}
	key := estimate.Key{Namespace: namespace, Image: image}
	if x.roles {
		key.Role = c.Name
	}
	found, samples := x.ladder.Climb(x.source, key, name, x.now)
	if samples == nil {
		e.Reason = "no usage of the image is known"
		return e
	}
	found = bounds.ClampTo(found, c.Resources.Limits)
	e.Estimate, e.Histogram = &found, estimate.Histogram(samples, name, bins)
	return e
}

// decide says whether the container would get the estimate.
func (e *resourceEstimate) decide(policy string, s subject) {
	reason := ""
	_, labelled := s.pod.Labels[api.InitialResourcesLabel]
	switch {
	case policy == setNever:
		reason = "the policy is never"
	case s.pod.Spec.Resources != nil:
		reason = "the pod has resources as a whole"
	case policy == "" && !labelled && s.object != nil && s.object.GetKind() == "DaemonSet":
		reason = "pods of a DaemonSet need the label or annotation themselves"
	case policy == setAlways:
	case e.Request != "":
		reason = "it has a request"
	case e.Limit != "":
		reason = "it has a limit"
	}
	e.wanted = reason == ""
	if e.Estimate == nil {
		return
	}
	e.Reason, e.Set = reason, e.wanted
}

// unknown is an error that names what is to get a request, and for which nothing is known.
func unknown(reports []estimateReport, clusterWide bool) error {
	var missing []string
	for _, r := range reports {
		for _, c := range r.Containers {
			for _, e := range c.Resources {
				if e.wanted && e.Estimate == nil {
					missing = append(missing, fmt.Sprintf("%s of %s in namespace %s: %s", e.Resource, c.Image, r.Namespace, e.Reason))
				}
			}
		}
	}
	if missing == nil {
		return nil
	}
	slices.Sort(missing)
	text := "no estimate for\n" + strings.Join(slices.Compact(missing), "\n")
	if !clusterWide {
		text += "\n--cluster-wide takes what other namespaces have used, too"
	}
	return errors.New(text)
}

// printReports writes the reports in the format.
func printReports(out io.Writer, format cli.Format, reports []estimateReport) error {
	if format.ForMachines() {
		return cli.EncodeList(out, format, estimateKind, reports)
	}
	return cli.Print(out, reports, func(out io.Writer, r estimateReport) error { return r.table(out, format == cli.Wide) })
}

// table is the report for people.
func (r estimateReport) table(out io.Writer, bars bool) error {
	header := []string{"CONTAINER", "RESOURCE", "NOW", "ESTIMATE", "FROM", "DISTRIBUTION", "NOTE"}
	if r.Workload == nil {
		header = []string{"IMAGE", "RESOURCE", "ESTIMATE", "FROM", "DISTRIBUTION", "NOTE"}
	}
	rows := [][]string{header}
	for _, c := range r.Containers {
		for _, e := range c.Resources {
			row := []string{c.title(), e.Resource, e.text(), e.from(), sparkline(e.Histogram), e.note()}
			if r.Workload != nil {
				row = slices.Insert(row, 2, e.has())
			}
			rows = append(rows, row)
		}
	}
	if err := cli.Columns(out, rows...); err != nil {
		return err
	}
	if bars {
		for _, c := range r.Containers {
			for _, e := range c.Resources {
				if err := e.bars(out, c.title()); err != nil {
					return err
				}
			}
		}
	}
	if r.Workload == nil {
		return nil
	}
	_, err := fmt.Fprintf(out, "%s: %s\n", r.Workload, r.summary())
	return err
}

// summary counts what would be set.
func (r estimateReport) summary() string {
	set, kept, unknown := 0, 0, 0
	for _, c := range r.Containers {
		for _, e := range c.Resources {
			switch {
			case e.Set:
				set++
			case e.wanted:
				unknown++
			default:
				kept++
			}
		}
	}
	text := plural.Of(set, "request") + " would be set"
	if kept > 0 {
		text += fmt.Sprintf(", %d kept", kept)
	}
	if unknown > 0 {
		text += fmt.Sprintf(", %d unknown", unknown)
	}
	return text
}

// title names the container, or the image if that is all there is.
func (c containerEstimate) title() string {
	switch {
	case c.Name == "":
		return c.Image
	case c.Type == "":
		return c.Name
	default:
		return c.Name + " (" + c.Type + ")"
	}
}

// has is what the container has now.
func (e resourceEstimate) has() string {
	switch {
	case e.Request == "" && e.Limit == "":
		return "none"
	case e.Request == "":
		return "limit " + e.Limit
	case e.Limit == "":
		return e.Request
	default:
		return e.Request + ", limit " + e.Limit
	}
}

func (e resourceEstimate) text() string {
	if e.Estimate == nil {
		return "unknown"
	}
	return e.Estimate.Request.String()
}

func (e resourceEstimate) from() string {
	if e.Estimate == nil {
		return ""
	}
	if e.Estimate.From == estimate.FromDefault {
		return "default of the image"
	}
	text := fmt.Sprintf("p%g of %s of %s in %s", e.Estimate.Percentile, plural.Of(e.Estimate.Samples, "sample"), e.Estimate.From, e.Estimate.Window)
	if e.Estimate.Scope == estimate.InCluster {
		text += ", cluster-wide"
	}
	return text
}

// note says what is special about the estimate, and why it would not be set.
func (e resourceEstimate) note() string {
	var notes []string
	if e.Estimate != nil {
		if e.Estimate.OOMKills > 0 {
			notes = append(notes, "raised for "+plural.Of(e.Estimate.OOMKills, "OOM kill"))
		}
		switch e.Estimate.Capped {
		case estimate.CappedByLimitRange:
			notes = append(notes, "within the LimitRange")
		case estimate.CappedByNode:
			notes = append(notes, "the largest node has no more")
		case estimate.CappedByLimit:
			notes = append(notes, "as much as its limit")
		}
	}
	if e.Reason != "" {
		notes = append(notes, e.Reason)
	}
	return strings.Join(notes, "; ")
}

// sparkline draws a histogram in one line: the heights go with the numbers of samples, and
// where there are none, there is a gap.
func sparkline(bins []estimate.Bin) string {
	if len(bins) == 0 {
		return ""
	}
	blocks := []rune("▁▂▃▄▅▆▇█")
	most := mostOf(bins)
	var b strings.Builder
	for _, bin := range bins {
		if bin.Samples == 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(blocks[(bin.Samples*len(blocks)-1)/most])
	}
	return fmt.Sprintf("%s %s %s", &bins[0].From, b.String(), &bins[len(bins)-1].To)
}

// bars draws a histogram with a line for each bin.
func (e resourceEstimate) bars(out io.Writer, of string) error {
	if len(e.Histogram) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(out, "\n%s, %s:\n", of, e.Resource); err != nil {
		return err
	}
	const width = 40
	most := mostOf(e.Histogram)
	var rows []string
	longest := 0
	for _, bin := range e.Histogram {
		rows = append(rows, bin.From.String()+" to "+bin.To.String())
		longest = max(longest, len(rows[len(rows)-1]))
	}
	for i, bin := range e.Histogram {
		bar := strings.Repeat("█", (bin.Samples*width+most-1)/most)
		line := fmt.Sprintf("  %-*s  %*d  %s", longest, rows[i], len(strconv.Itoa(most)), bin.Samples, bar)
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

func mostOf(bins []estimate.Bin) int {
	most := 1
	for _, bin := range bins {
		most = max(most, bin.Samples)
	}
	return most
}
