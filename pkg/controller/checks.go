package controller

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// outcomes returns what is known of the checks of the session's workload; nil if nobody asks.
func (s *Session[W, K]) outcomes() rollout.Outcomes {
	c := s.controller
	if c.options.Checks == nil {
		return nil
	}
	known := c.options.Checks.Outcomes(c.checked(s.name))
	return func(pod types.UID, check string) rollout.Outcome {
		o := known.Of(pod, check)
		return rollout.Outcome{Passed: o.Effect == podchecks.GoOn, Failed: o.Effect == podchecks.Fail, Overdue: o.Effect == podchecks.Hold, Message: o.Message}
	}
}

// unanswerable returns why the checks that a workload names can have no outcome; empty if nobody asks.
func (s *Session[W, K]) unanswerable(names []string) string {
	if checks := s.controller.options.Checks; checks != nil {
		return checks.Unanswerable(names)
	}
	return ""
}

// checked is how checks know a workload.
func (c *Controller[W, K]) checked(name cache.ObjectName) string {
	return c.access.Kind + " " + name.String()
}

// ask has the checks asked about the pods of a plan, and no others.
func (s *Session[W, K]) ask(p rollout.Plan) {
	c := s.controller
	if c.options.Checks == nil || len(p.Subjects) == 0 && !s.checks {
		return
	}
	s.checks = len(p.Subjects) > 0
	var subjects []podchecks.Subject
	for _, subject := range p.Subjects {
		subjects = append(subjects, podchecks.SubjectOf(subject.Pod, subject.Asked, subject.Done))
	}
	c.options.Checks.Ask(c.checked(s.name), p.Checks, subjects, s.Requeue)
}
