package rollout

// AtRest tells whether nothing is under way, or about to be: every pod is updated, or waits
// for something that may last, such as room on its node. What the condition says then is
// the last word for now.
func (s Step) AtRest() bool {
	waiting := 0
	for _, w := range s.Waits {
		if !w.Member.Updated && w.Reason != ReasonProgressing {
			waiting++
		}
	}
	return len(s.Resize)+len(s.MarkUpdated) == 0 && s.Updated+waiting == s.Total
}
