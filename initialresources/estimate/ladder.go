package estimate

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// From says of which images an estimate's samples are.
type From string

// What estimates are made from.
const (
	FromTag   From = "image:tag" // the same version of the image
	FromImage From = "image"     // the image, in any version
	// FromDefault is no samples: it is what somebody has said of the image.
	FromDefault From = "default"
)

// Scope says of which namespaces an estimate's samples are.
type Scope string

// Where the samples are from.
const (
	InNamespace Scope = "namespace" // the namespace of the container
	InCluster   Scope = "cluster"   // all namespaces
)

// Window is how far back samples count. It is written in days where it can be: 7d.
type Window time.Duration

const day = 24 * time.Hour

func (w Window) String() string {
	if d := time.Duration(w); d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return model.Duration(w).String()
}

// ParseWindow reads a time span as Prometheus writes them: 7d, 1h30m.
func ParseWindow(s string) (Window, error) {
	d, err := model.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a time span such as 7d or 12h", s)
	}
	return Window(d), nil
}

// MarshalText writes it as String does.
func (w Window) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads it as ParseWindow does.
func (w *Window) UnmarshalText(text []byte) (err error) {
	*w, err = ParseWindow(string(text))
	return err
}

// Rung is one step of a ladder.
type Rung struct {
	Window Window
	From   From
	// AtLeast is how many samples it takes.
	AtLeast int
}

// The names of From in a flag.
var fromNames = map[string]From{"tag": FromTag, "image": FromImage}

// ParseRung reads a rung as a flag has it: 7d:tag:60, or 30d:image:1.
func ParseRung(s string) (Rung, error) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return Rung{}, fmt.Errorf("%q is not a rung: want WINDOW:tag:SAMPLES or WINDOW:image:SAMPLES, such as 7d:tag:60", s)
	}
	window, err := ParseWindow(parts[0])
	if err != nil {
		return Rung{}, fmt.Errorf("%q is not a rung: %w", s, err)
	}
	from, ok := fromNames[parts[1]]
	if !ok {
		return Rung{}, fmt.Errorf("%q is not a rung: want tag or image, not %q", s, parts[1])
	}
	atLeast, err := strconv.Atoi(parts[2])
	if err != nil || atLeast < 1 {
		return Rung{}, fmt.Errorf("%q is not a rung: want 1 sample or more, not %q", s, parts[2])
	}
	return Rung{Window: window, From: from, AtLeast: atLeast}, nil
}

// String is the rung as ParseRung reads it.
func (r Rung) String() string {
	from := "tag"
	if r.From == FromImage {
		from = "image"
	}
	return fmt.Sprintf("%s:%s:%d", r.Window, from, r.AtLeast)
}

// Ladder says which samples an estimate is made from, and how.
type Ladder struct {
	// Percentile of the samples that is requested, from 0 to 100.
	Percentile float64
	// Rungs are tried in this order. The first that has enough samples counts.
	Rungs []Rung
	// Scopes are tried in this order, each with all the rungs.
	Scopes []Scope
	// OOMPercent and OOMLeast are what memory is raised by if containers were killed for want
	// of it: that share of the estimate, or that much, whichever is more.
	OOMPercent float64
	OOMLeast   resource.Quantity
	// Least is what is requested of a resource where the samples say less.
	Least corev1.ResourceList
	// Defaults are what images request of which no rung has enough, by their names.
	Defaults map[string]corev1.ResourceList
}

// Default is the ladder of the proposal, with what its next steps ask for OOM kills. An
// idle container's samples are next to nothing; 10m keeps it a share of a busy node that
// it can start up with, and a request of 0 would be none.
func Default() Ladder {
	return Ladder{
		Percentile: 90,
		Rungs: []Rung{
			{Window: Window(7 * day), From: FromTag, AtLeast: 60},
			{Window: Window(30 * day), From: FromTag, AtLeast: 60},
			{Window: Window(30 * day), From: FromImage, AtLeast: 1},
		},
		Scopes:     []Scope{InNamespace, InCluster},
		OOMPercent: 20,
		OOMLeast:   resource.MustParse("100Mi"),
		Least:      corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("1Mi")},
	}
}

// Longest is the longest of the rungs' windows.
func (l Ladder) Longest() time.Duration {
	longest := time.Duration(0)
	for _, r := range l.Rungs {
		longest = max(longest, time.Duration(r.Window))
	}
	return longest
}

// Estimate climbs the ladder for a container that key describes. There is no estimate if
// no rung has enough samples.
func (l Ladder) Estimate(source Source, key Key, resource corev1.ResourceName, now time.Time) (Estimate, bool) {
	e, samples := l.Climb(source, key, resource, now)
	return e, samples != nil
}

// Climb is Estimate for who wants to see the samples, too; nil if there is no estimate.
func (l Ladder) Climb(source Source, key Key, resource corev1.ResourceName, now time.Time) (Estimate, Samples) {
	for _, scope := range l.Scopes {
		asked := key
		switch {
		case scope == InCluster:
			asked.Namespace = ""
		case key.Namespace == "":
			continue
		}
		for _, r := range l.Rungs {
			of := asked
			switch {
			case r.From == FromImage:
				of = asked.AnyVersion()
			case key.Image.Version == "":
				continue
			}
			samples := source.Samples(now.Add(-time.Duration(r.Window)), of, resource)
			if samples == nil || samples.Count() < float64(r.AtLeast) {
				continue
			}
			e := Estimate{
				Resource: resource, From: r.From, Window: r.Window, Percentile: l.Percentile,
				Samples: int(samples.Count()), Scope: scope,
			}
			l.size(&e, samples)
			return e, samples
		}
	}
	if request, has := l.Defaults[key.Image.Name][resource]; has {
		return Estimate{Resource: resource, Request: plain(resource, request), From: FromDefault}, none{}
	}
	return Estimate{}, nil
}

// none are the samples of a default.
type none struct{}

func (none) Count() float64                   { return 0 }
func (none) Quantile(float64) float64         { return 0 }
func (none) OOMKills() int                    { return 0 }
func (none) All() iter.Seq2[float64, float64] { return func(func(float64, float64) bool) {} }
