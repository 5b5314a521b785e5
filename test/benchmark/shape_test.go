package main

import (
	"slices"
	"testing"
	"time"
)

func TestParseShape(t *testing.T) {
	for text, want := range map[string]shape{
		"statefulset:1x100":     {kind: "StatefulSet", workloads: 1, pods: 100, limit: 1},
		"statefulset:1x1000:10": {kind: "StatefulSet", workloads: 1, pods: 1000, limit: 10},
		"daemonset:1x100:10":    {kind: "DaemonSet", workloads: 1, pods: 100, limit: 10},
		"deployment:20x10":      {kind: "Deployment", workloads: 20, pods: 10, limit: 5}, // maxSurge 3, maxUnavailable 2
	} {
		got, err := parseShape(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s is read as %+v (%s), %v", text, got, got, err)
		}
	}
	for _, text := range []string{"", "1x100", "job:1x3", "statefulset:0x1", "statefulset:1x1:0", "deployment:1x10:2", "statefulset:1x10,"} {
		if got, err := parseShape(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

func TestFloor(t *testing.T) {
	for _, c := range []struct {
		pods, limit int
		needs       []int
		floor       int // in resizes
	}{
		{4, 1, []int{0, 1, 2, 3}, 4},
		{6, 2, []int{0, 1, 1, 2, 3, 4}, 4},
		{8, 3, []int{0, 1, 1, 3, 3, 3, 4, 5}, 4},
		{20, 10, []int{0, 1, 1, 3, 3, 3, 3, 7, 7, 7, 7, 7, 7, 7, 7, 10, 10, 10, 10, 10}, 5},
		{3, 100, []int{0, 1, 1}, 2},
	} {
		var got []int
		for i := range c.pods {
			got = append(got, needs(i, c.limit))
		}
		if !slices.Equal(got, c.needs) {
			t.Errorf("%d pods, %d at a time: they need %v, want %v", c.pods, c.limit, got, c.needs)
		}
		s := shape{kind: "StatefulSet", workloads: 7, pods: c.pods, limit: c.limit}
		if floor := s.floor(time.Second); floor != time.Duration(c.floor)*time.Second {
			t.Errorf("%d pods, %d at a time: %s, want %d s", c.pods, c.limit, floor, c.floor)
		}
	}
}
