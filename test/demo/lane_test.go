package main

import (
	"encoding/xml"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

var (
	edit    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	workers = measure.Subject{Namespace: "demo", Name: "worker"}
)

func after(seconds float64) time.Time {
	return edit.Add(time.Duration(seconds * float64(time.Second)))
}

// podWith is a pod that is to have a limit and has another one, which is empty if the kubelet tells of none.
func podWith(seconds float64, uid, limit, has string, killed ...string) measure.Moment {
	list := func(q string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(q)}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "worker-2", UID: types.UID(uid), Labels: map[string]string{"app": "worker"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "worker", Resources: corev1.ResourceRequirements{Limits: list(limit)}}}
	status := corev1.ContainerStatus{Name: "worker"}
	if has != "" {
		status.Resources = &corev1.ResourceRequirements{Limits: list(has)}
	}
	for _, id := range killed {
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			Reason: "OOMKilled", ContainerID: id, FinishedAt: metav1.NewTime(after(seconds).Truncate(time.Second)),
		}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	return measure.Moment{At: after(seconds), Object: pod}
}

func gone(m measure.Moment) measure.Moment { m.Deleted = true; return m }

// called is a call each half second, of which those in some times are not answered.
func called(until float64, silences ...[2]float64) []call {
	var calls []call
	for at := -1.0; at < until; at += 0.5 {
		c := call{at: after(at)}
		for _, s := range silences {
			if at >= s[0] && at < s[1] {
				c.err = errors.New("no answer")
			}
		}
		calls = append(calls, c)
	}
	return calls
}

func TestLane(t *testing.T) {
	for name, c := range map[string]struct {
		history []measure.Moment
		visits  []call
		want    lane
	}{
		"nothing happens": {
			nil, called(12),
			lane{stretches: []stretch{{10 * time.Second, former}}, visits: 21},
		},
		"what was before the edit, and comes after the end, does not count": {
			[]measure.Moment{podWith(11, "a", "100Mi", "100Mi", "1")}, called(12, [2]float64{-1, 0}, [2]float64{10.5, 12}),
			lane{stretches: []stretch{{10 * time.Second, former}}, visits: 21},
		},
		"it is resized, killed once, of which the status tells twice, and resized back": {
			[]measure.Moment{
				podWith(1, "a", "100Mi", "256Mi"), podWith(2, "a", "100Mi", "100Mi"),
				podWith(5.2, "a", "100Mi", "100Mi", "1"), podWith(5.8, "a", "256Mi", "256Mi", "1"),
			},
			called(12, [2]float64{4.5, 6}),
			lane{
				stretches: []stretch{{2 * time.Second, former}, {4500 * time.Millisecond, edited}, {6 * time.Second, down}, {10 * time.Second, former}},
				kills:     []time.Duration{4500 * time.Millisecond}, asked: true, visits: 21, lost: 3,
			},
		},
		"it is replaced, and killed, of which the status tells to the second": {
			[]measure.Moment{gone(podWith(1, "a", "256Mi", "256Mi")), podWith(1.2, "b", "100Mi", ""), podWith(7.8, "b", "100Mi", "100Mi", "1")},
			called(12, [2]float64{1, 2}, [2]float64{7.5, 12}),
			lane{
				stretches: []stretch{{time.Second, former}, {2 * time.Second, down}, {7500 * time.Millisecond, edited}, {10 * time.Second, down}},
				kills:     []time.Duration{7500 * time.Millisecond}, asked: true, visits: 21, lost: 8,
			},
		},
		"it is asked and refuses": {
			[]measure.Moment{podWith(1, "a", "100Mi", "256Mi")}, called(12),
			lane{stretches: []stretch{{10 * time.Second, former}}, asked: true, visits: 21},
		},
		"it is killed before a visitor comes": {
			[]measure.Moment{podWith(3.2, "a", "256Mi", "256Mi", "1")}, called(12),
			lane{stretches: []stretch{{10 * time.Second, former}}, kills: []time.Duration{3 * time.Second}, visits: 21},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := newLane(c.history, workers, "worker-2", resource.MustParse("100Mi"), edit, after(10), c.visits, nil)
			same := slices.Equal(got.stretches, c.want.stretches) && slices.Equal(got.kills, c.want.kills)
			if !same || got.asked != c.want.asked || got.visits != c.want.visits || got.lost != c.want.lost {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// lanesOf are those of two pods that do not answer at different times, and for a while at the same time.
var lanesOf = []lane{
	{
		pod: "worker-1", asked: true, visits: 20, lost: 4, kills: []time.Duration{3 * time.Second},
		stretches: []stretch{{time.Second, former}, {3 * time.Second, edited}, {5 * time.Second, down}, {6 * time.Second, former}},
	},
	{pod: "worker-0", visits: 20, lost: 4, stretches: []stretch{{4 * time.Second, former}, {6 * time.Second, down}}},
}

func TestFewest(t *testing.T) {
	for want, lanes := range map[int][]lane{0: lanesOf, 1: {lanesOf[0], {stretches: []stretch{{6 * time.Second, former}}}}} {
		if got := fewest(lanes); got != want {
			t.Errorf("%d of 2 pods answered at least, want %d", got, want)
		}
	}
}

func TestGuardedPicture(t *testing.T) {
	p := guardedPicture{
		Title: "About <this>", About: "At <0 s>.", Source: "Measured & drawn.", Former: "256Mi", Edited: "100Mi", Span: 6 * time.Second,
		Groups: []laneGroup{{"in-place", "One", "it <went>", lanesOf}, {"built-in", "Other", "so, too", lanesOf[1:]}},
	}
	text, err := p.svg()
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Role       string `xml:"role,attr"`
		LabelledBy string `xml:"aria-labelledby,attr"`
		Title      string `xml:"title"`
		Desc       string `xml:"desc"`
		Groups     []struct {
			Rects []struct {
				Class string `xml:"class,attr"`
				X     string `xml:"x,attr"`
				Width string `xml:"width,attr"`
				High  string `xml:"height,attr"`
			} `xml:"rect"`
			Kills []struct {
				X string `xml:"x,attr"`
			} `xml:"use"`
			Texts []string `xml:"text"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if d.Role != "img" || d.LabelledBy != "title desc" || d.Title != "About <this>" {
		t.Errorf("a screen reader finds role %q, label %q, title %q", d.Role, d.LabelledBy, d.Title)
	}
	want := "One: it <went>. worker-1: given the limit of 100Mi, killed at 3.0 s, no answer for 2.0 s from 3.0 s on; 4 of 20 visits failed. " +
		"worker-0: never given the limit of 100Mi, not killed, no answer for 2.0 s from 4.0 s on; 4 of 20 visits failed. "
	if !strings.HasPrefix(d.Desc, want) {
		t.Errorf("the description is %q, want %q first", d.Desc, want)
	}
	if len(d.Groups) != 3 { // the legend, and two StatefulSets
		t.Fatalf("%d groups, want 3", len(d.Groups))
	}
	// A second is 560/6 pixels wide.
	for i, want := range map[int]struct{ rects, kills []string }{
		1: {[]string{"former 78.0+93.3 high 8.0", "edited 171.3+186.7 high 8.0", "down 358.0+186.7 high 20.0", "former 544.7+93.3 high 8.0", "former 78.0+373.3 high 8.0", "down 451.3+186.7 high 20.0"}, []string{"358.0"}},
		2: {[]string{"former 78.0+373.3 high 8.0", "down 451.3+186.7 high 20.0"}, nil},
	} {
		var rects, kills []string
		for _, r := range d.Groups[i].Rects {
			rects = append(rects, r.Class+" "+r.X+"+"+r.Width+" high "+r.High)
		}
		for _, k := range d.Groups[i].Kills {
			kills = append(kills, k.X)
		}
		if !slices.Equal(rects, want.rects) || !slices.Equal(kills, want.kills) {
			t.Errorf("group %d has the bars %q and the kills %q, want %q and %q", i, rects, kills, want.rects, want.kills)
		}
	}
	if got, want := d.Groups[1].Texts, []string{"One", "it <went>", "worker-1", "4 of 20 visits failed", "worker-0", "4 of 20 visits failed"}; !slices.Equal(got, want) {
		t.Errorf("group 1 has the texts %q, want %q", got, want)
	}
	if got := d.Groups[2].Texts; !slices.Contains(got, "6 s") {
		t.Errorf("the last group has the texts %q, without the times", got)
	}
}
