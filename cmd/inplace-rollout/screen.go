package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
)

// screen shows reports as they change: on a terminal in one place, otherwise as
// lines of what is new.
type screen struct {
	out    io.Writer
	format cli.Format
	size   func() (width, height int) // of the terminal; nil if it is none
	lines  int                        // that are shown on the terminal
	// printed is the last line that was written of each workload and pod.
	printed map[string]string
	// troubled: nothing can be read at present, and that is shown.
	troubled bool
}

func newScreen(out io.Writer, format cli.Format) *screen {
	s := &screen{out: out, format: format, printed: map[string]string{}}
	if file, is := out.(*os.File); is && term.IsTerminal(int(file.Fd())) {
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
	if s.size == nil {
		return s.news(reports)
	}
	var text strings.Builder
	if err := printStatus(&text, s.format, reports, now); err != nil {
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

// trouble shows once why nothing can be read at present, below what was seen last.
func (s *screen) trouble(err error) error {
	if s.troubled {
		return nil
	}
	s.troubled = true
	text := fmt.Sprintf("looking again, because of: %v\n", err)
	if s.size != nil {
		shown := cut(text, s.size)
		s.lines += len(shown)
		text = strings.Join(shown, "")
	}
	_, err = fmt.Fprint(s.out, text)
	return err
}

// cut makes text fit on the terminal: what wraps, or scrolls out of it, could not be
// written over.
func cut(text string, size func() (width, height int)) []string {
	width, height := size()
	var lines []string
	for line := range strings.Lines(text) {
		runes := []rune(strings.TrimRight(line, " \n"))
		if len(runes) > width {
			runes = append(runes[:max(width-1, 0)], '…')
		}
		lines = append(lines, string(runes)+"\n")
	}
	if most := max(height-1, 2); len(lines) > most {
		hidden := len(lines) - most + 1
		lines = append(lines[:most-1], fmt.Sprintf("… and %s\n", cli.Counted(hidden, "more line")))
	}
	return lines
}

// news writes what is new of each workload and pod.
func (s *screen) news(reports []statusReport) error {
	if len(reports) == 0 {
		return s.line("", nobody)
	}
	for _, r := range reports {
		name := r.Namespace + "/" + r.Kind + "/" + r.Name
		if err := s.line(name, r.headline()); err != nil {
			return err
		}
		if len(r.Pods) > many && s.format != cli.Wide {
			continue // the headline says how many are done, and what others wait for
		}
		for _, p := range r.Pods {
			if err := s.line(name+"/"+p.Name, p.line()); err != nil {
				return err
			}
		}
	}
	return nil
}

// line is the pod's status in one line.
func (p podStatus) line() string {
	text := p.Name + ": " + string(p.State)
	if p.Wanted != "" {
		text += " " + p.Wanted
	}
	if p.Why != "" {
		text += ": " + p.Why
	}
	if p.Proved != nil { // a line of a log must not change with each second
		text += ": proved at " + p.Proved.UTC().Format(time.TimeOnly) + " UTC"
	}
	return text
}

func (s *screen) line(about, text string) error {
	if s.printed[about] == text {
		return nil
	}
	s.printed[about] = text
	_, err := fmt.Fprintln(s.out, text)
	return err
}
