package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/plural"
)

// statusView is how the status command shows reports.
type statusView struct {
	format cli.Format
	brief  bool // a row for each workload, unless the format is wide
	// selects says where workloads were looked for by a selector, and by which; empty if by none.
	selects string
}

// nobody is the report where no workload is opted in, or none of those that were asked about.
func (v statusView) nobody() string {
	if v.selects != "" {
		return "No workloads found" + v.selects
	}
	return "No workload is opted in: label one with " + api.EnabledLabel + "=true."
}

// print writes the reports in the format.
func (v statusView) print(out io.Writer, reports []statusReport, now time.Time) error {
	switch {
	case v.format.ForMachines():
		return cli.EncodeList(out, v.format, statusKind, reports)
	case len(reports) == 0:
		_, err := fmt.Fprintln(out, v.nobody())
		return err
	case v.brief && v.format != cli.Wide:
		return overview(out, reports)
	}
	return cli.Print(out, reports, func(out io.Writer, r statusReport) error { return r.table(out, v.format == cli.Wide, now) })
}

// overview has a row for each workload.
func overview(out io.Writer, reports []statusReport) error {
	rows := make([][]string, len(reports))
	for i, r := range reports {
		why := r.Message
		if r.Complete {
			why = ""
		}
		if r.Condition != nil {
			why = strings.TrimSuffix("the condition says "+r.Condition.Reason+"; "+why, "; ")
		}
		rows[i] = []string{r.Workload.Namespace, r.Workload.String(), r.Reason, fmt.Sprintf("%d/%d", r.sized(), len(r.Pods)), why}
	}
	return cli.PageOf(out).Table([]string{"NAMESPACE", "WORKLOAD", "STATE", "DONE", "WHY"}, rows, tones)
}

// key tells the workload from all others.
func (r statusReport) key() string { return r.Workload.Namespace + "/" + r.Workload.String() }

// headline is the status of the workload as a whole, in one line. Where pods follow, they say themselves what they wait for.
func (r statusReport) headline(pods bool) string {
	message := r.Message
	if pods {
		message = cmp.Or(r.short, message)
	}
	return fmt.Sprintf("%s (namespace %s): %s: %s", r.Workload, r.Workload.Namespace, r.Reason, message)
}

// details are what else is to be said of the workload as a whole.
func (r statusReport) details() string {
	text := "Revision " + cli.OrNone(r.Revision)
	if r.Held {
		text += ", held"
	}
	if wanted := r.wanted(); wanted != "" {
		text += ". Wanted: " + wanted
	}
	return text + "."
}

// wanted is the size of the pods, if it is the same of all that have one.
func (r statusReport) wanted() string {
	wanted := ""
	for _, p := range r.Pods {
		size := p.Wanted.String()
		if p.Wanted != nil && wanted != "" && size != wanted {
			return ""
		}
		if p.Wanted != nil {
			wanted = size
		}
	}
	return wanted
}

// table is the report for people.
func (r statusReport) table(out io.Writer, wide bool, now time.Time) error {
	page := cli.PageOf(out)
	if err := page.Text(r.headline(true)); err != nil {
		return err
	}
	if c := r.Condition; c != nil {
		written := ""
		if !c.Written.IsZero() {
			written = ", written " + duration.HumanDuration(now.Sub(c.Written.Time)) + " ago,"
		}
		if err := page.Text(fmt.Sprintf("The condition%s says %s: %s", written, c.Reason, c.Message)); err != nil {
			return err
		}
	}
	if r.Unknown != "" {
		return page.Text("Nothing is known of its pods: " + r.Unknown + ".")
	}
	if len(r.Pods) == 0 {
		return nil
	}
	if err := page.Text(r.details()); err != nil {
		return err
	}
	if r.recorded != nil && !r.Complete {
		if err := page.Text(r.recorded.next()); err != nil {
			return err
		}
	}
	header, one := []string{"STATE", "SINCE", "WHY"}, r.wanted() != "" // which stands above the table
	switch {
	case wide && one:
		header = []string{"STATE", "SINCE", "NODE", "APPLIED", "CONDITION", "WHY"}
	case wide:
		header = []string{"STATE", "SINCE", "NODE", "WANTED", "APPLIED", "CONDITION", "WHY"}
	}
	rows := make([]row, len(r.Pods))
	for i, p := range r.Pods {
		rows[i] = p.row(wide, one, now)
	}
	return tableOf(page, wide, header, rows)
}

// row is what the table says of the pod. One: the size that is wanted is said of all pods.
func (p podStatus) row(wide, one bool, now time.Time) row {
	since, why := "", p.why()
	if p.Since != nil {
		since = duration.HumanDuration(now.Sub(p.Since.Time))
	}
	if p.Proved != nil {
		why = "proved in " + duration.HumanDuration(p.Proved.Sub(now))
	}
	cells := []cell{{text: string(p.State)}, {since, hidden}}
	if wide {
		if p.Node != "" { // which has a column
			why = strings.ReplaceAll(why, " on "+judge.OnNode(p.Node), "")
		}
		cells = append(cells, cell{text: p.Node})
		if !one {
			cells = append(cells, cell{text: p.Wanted.String()})
		}
		applied := p.Applied.String()
		if len(p.Wanted) > 0 && applied == p.Wanted.String() {
			applied = "as wanted"
		}
		cells = append(cells, cell{text: applied}, cell{text: p.Condition})
	}
	return row{p.Name, p.Node, p.Class, cells, why}
}

// screen shows reports as they change: on a terminal in one place, otherwise as
// lines of what is new.
type screen struct {
	out   io.Writer
	view  statusView
	size  func() (width, height int) // of the terminal; nil if it is none
	lines int                        // that are shown on the terminal
	// printed is what was written last of each workload and pod.
	printed map[string]string
	// troubled: nothing can be read at present, and that is shown.
	troubled bool
}

func newScreen(out io.Writer, view statusView) *screen {
	s := &screen{out: out, view: view, printed: map[string]string{}}
	if file := cli.Terminal(out); file != nil && !view.format.ForMachines() {
		s.size = func() (int, int) {
			width, height, err := term.GetSize(int(file.Fd()))
			if err != nil {
				return 80, 24
			}
			return width, height
		}
	}
	return s
}

func (s *screen) show(reports []statusReport, now time.Time) error {
	s.troubled = false
	switch {
	case s.view.format.ForMachines():
		return s.stream(reports)
	case s.size == nil:
		return s.news(reports)
	}
	var text strings.Builder
	page := cli.PageOf(s.out)
	page.Writer = &text
	page.Width, _ = s.size()
	if err := s.view.print(page, reports, now); err != nil {
		return err
	}
	// Up to the first line that was shown, and clear from there on.
	up := ""
	if s.lines > 0 {
		up = fmt.Sprintf("\x1b[%dA\x1b[J", s.lines)
	}
	shown := cut(text.String(), s.size)
	s.lines = len(shown)
	_, err := fmt.Fprint(s.out, up, strings.Join(shown, ""))
	return err
}

// stream writes each report that is new.
func (s *screen) stream(reports []statusReport) error {
	for _, r := range reports {
		var text strings.Builder
		if err := cli.EncodeNext(&text, s.view.format, r); err != nil {
			return err
		}
		if err := s.tell(r.key(), text.String()); err != nil {
			return err
		}
	}
	return nil
}

// trouble shows once why nothing can be read at present, below what was seen last.
func (s *screen) trouble(err error) error {
	if s.troubled {
		return nil
	}
	s.troubled = true
	if s.view.format.ForMachines() {
		return nil
	}
	text := fmt.Sprintf("looking again, because of: %v\n", err)
	if s.size != nil {
		shown := cut(text, s.size)
		s.lines += len(shown)
		text = strings.Join(shown, "")
	}
	_, err = fmt.Fprint(s.out, text)
	return err
}

// color is what sets one.
var color = regexp.MustCompile(`\x1b\[[0-9]*m`)

// cut makes text fit on the terminal: what wraps, or scrolls out of it, could not be
// written over.
func cut(text string, size func() (width, height int)) []string {
	width, height := size()
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if runes := []rune(color.ReplaceAllString(line, "")); len(runes) > width {
			line = string(append(runes[:max(width-1, 0)], '…'))
		}
		lines = append(lines, line+"\n")
	}
	if most := max(height-1, 2); len(lines) > most {
		hidden := len(lines) - most + 1
		lines = append(lines[:most-1], fmt.Sprintf("… and %s\n", plural.Of(hidden, "more line")))
	}
	return lines
}

// news writes what is new of each workload and pod.
func (s *screen) news(reports []statusReport) error {
	if len(reports) == 0 {
		return s.tell("", s.view.nobody()+"\n")
	}
	for _, r := range reports {
		name := r.key()
		pods := !s.view.brief && len(r.Pods) <= many || s.view.format == cli.Wide // else the headline says what they wait for
		if err := s.tell(name, r.headline(pods)+"\n"); err != nil {
			return err
		}
		if !pods {
			continue
		}
		for _, p := range r.Pods {
			if err := s.tell(name+"/"+p.Name, p.line()+"\n"); err != nil {
				return err
			}
		}
	}
	return nil
}

// line is the pod's status in one line.
func (p podStatus) line() string {
	text := p.Name + ": " + string(p.State)
	if p.Wanted != nil {
		text += " " + p.Wanted.String()
	}
	if why := p.why(); why != "" {
		text += ": " + why
	}
	if p.Proved != nil { // a line of a log must not change with each second
		text += ": proved at " + p.Proved.UTC().Format(time.TimeOnly) + " UTC"
	}
	return text
}

// tell writes a text about something if it is another one than the last.
func (s *screen) tell(about, text string) error {
	if s.printed[about] == text {
		return nil
	}
	s.printed[about] = text
	_, err := io.WriteString(s.out, text)
	return err
}
