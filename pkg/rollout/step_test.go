package rollout_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// member makes the place name-index in one of the situations that a place can be in.
func member(t *testing.T, index int, situation string) rollout.Member {
	t.Helper()
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	name := "web-" + string(rune('0'+index))
	m := rollout.Member{Name: name, Index: index, Available: true}
	stale := func(change ...func(*corev1.Pod)) {
		m.Pod = build.Pod(name, older, change...)
		var err error
		if m.Target, err = resize.For(m.Pod, older, newer); err != nil {
			t.Fatal(err)
		}
	}
	switch situation {
	case "updated":
		m.Updated, m.Pod = true, build.Pod(name, newer)
	case "updated, not available":
		m.Updated, m.Available, m.Pod = true, false, build.Pod(name, newer)
	case "stale":
		stale()
	case "stale, not available":
		stale(build.NotReady)
		m.Available = false
	case "resizing":
		stale(build.WithSize(newer))
	case "resized":
		stale(build.Resized(newer))
	case "resized, not available":
		stale(build.Resized(newer))
		m.Available = false
	case "deferred":
		stale(build.WithSize(newer), build.Condition(corev1.PodResizePending, corev1.PodReasonDeferred, "no room"))
	case "infeasible":
		stale(build.WithSize(newer), build.Condition(corev1.PodResizePending, corev1.PodReasonInfeasible, "too big"))
	case "failing":
		stale(build.WithSize(newer), build.Condition(corev1.PodResizeInProgress, corev1.PodReasonError, "in use"))
	case "refused":
		stale()
		m.Refusal, m.Final = "node too small", true
	case "refused for now":
		stale()
		m.Refusal = "quota exceeded"
	case "other image":
		m.Pod, m.Differs = build.Pod(name, older), "the image changed"
	case "missing":
	case "missing, born with another image":
		m.Differs = "the image changed"
	case "terminating":
		stale(build.Terminating)
		m.Available = false
	default:
		t.Fatalf("no such situation: %s", situation)
	}
	return m
}

func TestNext(t *testing.T) {
	tests := []struct {
		name        string
		places      string // the highest index first
		limit       int
		passRestart bool
		want        string
		reason      string
		message     string
	}{
		{name: "the highest goes first, and alone", places: "stale|stale|stale", limit: 1, want: "resize 2, live left",
			reason: "Progressing", message: "0 of 3 pods resized; web-2: resizing: app: cpu request 100m→150m"},
		{name: "as many as the limit go at once", places: "stale|stale|stale", limit: 2, want: "resize 2 1, live left"},
		{name: "the next waits while one is being resized", places: "resizing|stale", limit: 1, want: "live left"},
		{name: "a resized one is settled, and the next may go in the same step", places: "resized|stale", limit: 1, want: "resize 0, settle 1, live left"},
		{name: "a resized one that is not available for minReadySeconds yet holds up the next", places: "resized, not available|stale", limit: 1, want: "settle 1, live left"},
		{name: "an updated one that is not available holds up the next", places: "updated, not available|stale", limit: 1, want: "live left",
			reason: "Progressing", message: "1 of 2 pods resized; web-1: waiting for the pod to become available"},
		{name: "a pod that is not Ready is resized all the same: the size may be the cure", places: "stale, not available|stale", limit: 1, want: "resize 1, live left"},
		{name: "deferred: the next waits", places: "deferred|stale", limit: 1, want: "live left",
			reason: "Deferred", message: "0 of 2 pods resized; web-1: deferred: no room"},
		{name: "failing: the next waits", places: "failing|stale", limit: 1, want: "live left",
			reason: "ResizeError", message: "0 of 2 pods resized; web-1: in use"},
		{name: "infeasible: only a restart helps", places: "infeasible|stale", limit: 1, want: "restart 1, live left",
			reason: "Progressing", message: "0 of 2 pods resized; web-1: restarting: infeasible: too big"},
		{name: "refused for good: only a restart helps", places: "refused|stale", limit: 1, want: "restart 1, live left"},
		{name: "refused for now: asked again, and the next waits", places: "refused for now|stale", limit: 1, want: "resize 1, live left",
			reason: "ResizeError", message: "0 of 2 pods resized; web-1: quota exceeded"},
		{name: "restarts side by side go together, up to the first live one", places: "other image|infeasible|stale|other image", limit: 1, want: "restart 3 2, live left"},
		{name: "a restart below a live one waits for it", places: "stale|other image", limit: 1, want: "resize 1, live left"},
		{name: "with nothing live left, all restarts are free", places: "updated|other image|refused", limit: 1, want: "restart 1 0"},
		{name: "everything updated", places: "updated|updated", limit: 1, want: "", message: "2 of 2 pods resized"},
		{name: "a missing pod will be born old and can be resized then", places: "updated|missing", limit: 1, want: "live left"},
		{name: "a missing pod that would be born with another image needs no waiting", places: "missing, born with another image|other image", limit: 1, want: "restart 1 0"},
		{name: "a terminating pod is not resized", places: "terminating|stale", limit: 1, want: "live left"},
		{name: "OnDelete: restarts hold up nobody", places: "other image|stale", limit: 1, passRestart: true, want: "resize 0, live left",
			reason: "WaitingForDelete", message: "0 of 2 pods resized; web-1: restarts when it is deleted: the image changed; web-0: resizing: app: cpu request 100m→150m"},
		{name: "many waits are counted, not told", places: "other image|other image|other image|other image|other image", limit: 1, passRestart: true, want: "",
			reason: "WaitingForDelete", message: "0 of 5 pods resized; web-4: restarts when it is deleted: the image changed; " +
				"web-3: restarts when it is deleted: the image changed; web-2: restarts when it is deleted: the image changed; and 2 more"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			places := strings.Split(tt.places, "|")
			var members []rollout.Member
			for i, situation := range places {
				members = append(members, member(t, len(places)-1-i, situation))
			}
			step := rollout.Next(members, tt.limit, tt.passRestart)
			if got := describe(step); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			c := step.Condition()
			if tt.reason != "" && c.Reason != tt.reason {
				t.Errorf("reason %q, want %q", c.Reason, tt.reason)
			}
			if tt.message != "" && c.Message != tt.message {
				t.Errorf("message:\n got %s\nwant %s", c.Message, tt.message)
			}
		})
	}
}

func describe(s rollout.Step) string {
	var said []string
	for _, part := range []struct {
		verb    string
		members []rollout.Member
	}{{"resize", s.Resize}, {"settle", s.Settle}, {"restart", s.Restart}} {
		if len(part.members) > 0 {
			text := part.verb
			for _, m := range part.members {
				text += " " + strings.TrimPrefix(m.Name, "web-")
			}
			said = append(said, text)
		}
	}
	if s.LiveLeft {
		said = append(said, "live left")
	}
	return strings.Join(said, ", ")
}
