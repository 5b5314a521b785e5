package controller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Deadlined is a kind whose status says when a rollout has not moved for as long as its user
// allows. While a rollout is held, the built-in controller does not say it, so that we do.
type Deadlined[W Workload] interface {
	// Deadline is for how long the held rollout of w may not move, and whether its status says that
	// it has not. Without a deadline it is 0.
	Deadline(w W) (deadline time.Duration, exceeded bool)
	// NewDeadline is the condition that says whether it is exceeded, as written now.
	NewDeadline(w W, exceeded bool, now metav1.Time) any
}

// movement is how far a held rollout has come, and since when.
type movement struct {
	edit           string
	updated, asked int  // pods, at most
	proving        bool // a canary was proving itself when last looked at
	since          time.Time
}

// deadline returns the condition that says whether the rollout has not moved for too long, if the
// workload has another one or none, the edit if it is late, and after which time that may be otherwise; 0 if it will not.
//
// Only our own clock counts. A controller that has just begun takes for true what the status says: the
// admission policies take it back with a new template.
func (c *Controller[W, K]) deadline(m *memory, w W, p rollout.Plan) (beside []any, late rollout.Version, due time.Duration) {
	kind, is := c.kind.(Deadlined[W])
	if !is || !policy.Held(w) {
		m.moved = movement{}
		return nil, "", 0
	}
	allowed, exceeded := kind.Deadline(w)
	now := c.clock.Now()
	if allowed == 0 {
		m.moved = movement{}
		if exceeded {
			beside = []any{kind.NewDeadline(w, false, metav1.NewTime(now))}
		}
		return beside, "", 0
	}
	if m.moved.since.IsZero() && exceeded {
		m.moved.since = now.Add(-allowed)
		m.moved.advance(editOf(w), p)
	} else if m.moved.advance(editOf(w), p) {
		m.moved.since = now
	}
	left := m.moved.since.Add(allowed).Sub(now)
	over := left <= 0
	if over != exceeded {
		beside = []any{kind.NewDeadline(w, over, metav1.NewTime(now))}
	}
	if over {
		late = rollout.EditNamed(w.GetAnnotations()[api.EditAnnotation])
	}
	return beside, late, max(left, 0)
}

// advance notes how far the plan's rollout has come, and reports whether it has moved: another pod has
// been asked, or is updated, a canary is or was still proving itself, or there is another edit. A pod that is asked once
// more is no news, and neither is scaling: an autoscaler that scales again and again would keep the deadline from ever
// running out.
//
// The end of a proof counts, too. With a deadline of 8 s and a proof of 12 s that were looked at after 3 s, the next look may
// come after 12 s, when nothing is proving and the other pods are still to be asked: 9 s would have passed.
func (m *movement) advance(edit string, p rollout.Plan) bool {
	asked := 0
	for _, v := range p.Verdicts {
		if !judge.Gone(v.Member.Pod) && v.Member.Differs == "" && len(v.Member.Target.Changes) == 0 {
			asked++
		}
	}
	moved := m.edit != edit
	if moved {
		m.edit, m.updated, m.asked = edit, p.Updated, asked
	}
	moved = moved || p.Updated > m.updated || asked > m.asked || p.Proving() || m.proving
	m.proving = p.Proving()
	m.updated, m.asked = max(m.updated, p.Updated), max(m.asked, asked)
	return moved
}

// editOf names the edit that is carried out, and the last time that its user had it tried again.
func editOf(w Workload) string {
	return w.GetAnnotations()[api.EditAnnotation] + ";" + w.GetAnnotations()[api.RetryAnnotation]
}
