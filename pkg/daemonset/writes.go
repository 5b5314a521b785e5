package daemonset

// release lets go of the hold, so that the user's strategy comes back. handOver is why the rest is
// left to the DaemonSet controller; empty if there is no rest.
type release struct{ handOver, revision string }

// Loose is that of rollout.Write.
func (release) Loose() bool { return true }

func (w release) String() string {
	if w.handOver != "" {
		return "let go of the hold: " + w.handOver
	}
	return "let go of the hold"
}
