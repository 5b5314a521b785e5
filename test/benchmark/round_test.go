package main

import (
	"slices"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

func after(n int) time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(ms(n)) }

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestWritten(t *testing.T) {
	const kubelet, statefulSets = "system:kwok", "system:serviceaccount:kube-system:statefulset-controller"
	r := result{Way: inPlace, Writes: []measure.Write{
		{User: "admin", Verb: "patch", Resource: "statefulsets", Count: 1},
		{User: controller.User, Verb: "patch", Resource: "pods/resize", Count: 4},
		{User: controller.User, Verb: "create", Resource: "events", Count: 2},
		{User: kubelet, Verb: "patch", Resource: "pods/status", Count: 5},
		{User: statefulSets, Verb: "update", Resource: "statefulsets/status", Count: 1},
	}}
	for what, c := range map[string]struct {
		counts func(measure.Write) bool
		want   float64
	}{
		"everything":                  {func(measure.Write) bool { return true }, 13},
		"events":                      {isEvent, 2},
		"what the controller wrote":   {r.carries, 6},
		"status of workloads":         {isStatus, 6},
		"the built-in controller's":   {result{Way: builtIn}.carries, 1},
		"what the controller resized": {func(w measure.Write) bool { return r.carries(w) && w.Resource == "pods/resize" && w.Verb == "patch" }, 4},
	} {
		if n := r.written(c.counts); n != c.want {
			t.Errorf("%s: %v writes, want %v of %+v", what, n, c.want, r.Writes)
		}
	}
}

func TestPauses(t *testing.T) {
	times := func(all ...int) (at []time.Time) {
		for _, ms := range all {
			at = append(at, after(ms))
		}
		return at
	}
	for name, c := range map[string]struct {
		limit int
		steps measure.Steps
		want  []time.Duration
	}{
		"one at a time": {
			1, measure.Steps{Asked: times(0, 310, 625), Actuated: times(300, 610, 925)}, []time.Duration{ms(10), ms(15)},
		},
		"slow start waits for whole batches": {
			3, measure.Steps{Asked: times(0, 310, 311, 640), Actuated: times(300, 605, 620, 940)}, []time.Duration{ms(10), ms(11), ms(20)},
		},
		"then each one that is done lets another one go, whichever it is": {
			2, measure.Steps{Asked: times(0, 310, 311, 615, 625, 905), Actuated: times(300, 610, 620, 900, 930, 1200)},
			// The second has proved the size with the first: two may be under way from then on.
			[]time.Duration{ms(10), ms(11), ms(5), ms(5), ms(5)},
		},
		"in any order in the log": {
			1, measure.Steps{Asked: times(310, 0), Actuated: times(610, 300)}, []time.Duration{ms(10)},
		},
		"what has no size yet lets nobody go": {1, measure.Steps{Asked: times(0, 310), Actuated: nil}, nil},
	} {
		if got := pausesOf(&c.steps, c.limit); !slices.Equal(got, c.want) {
			t.Errorf("%s: paused %s, want %s", name, got, c.want)
		}
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = ms(100 - i)
	}
	for _, c := range []struct {
		values []time.Duration
		p      float64
		want   time.Duration
	}{
		{hundred, 50, ms(50)}, {hundred, 99, ms(99)}, {hundred[:1], 99, ms(100)}, {hundred[:3], 50, ms(99)}, {hundred[:3], 99, ms(100)}, {nil, 50, 0},
	} {
		if got := percentile(c.values, c.p); got != c.want {
			t.Errorf("%v%% of %d: %s, want %s", c.p, len(c.values), got, c.want)
		}
	}
}
