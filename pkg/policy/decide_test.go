package policy_test

import (
	"math"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// table is the proposal's, written out for every state. By its words: "resize
// resource with restart (with delete command)" is delete, "with allowed spec
// update commands" is restart; "live only" leaves alone what cannot be resized;
// "live resize preferred" restarts it, with the delete command or managed by the
// controller.
const table = `
policy          action               strategy       Unsent   Refused  InProgress  Unready  Deferred  Failing  Actuated  DeferredTooLong  FailingTooLong  Infeasible  Unresizable Disruptive

RestartOnly     none                 OnDelete       delete   delete   delete      delete   delete    delete   mark      delete           delete          delete      delete      delete
RestartOnly     Restart              OnDelete       delete   delete   delete      delete   delete    delete   mark      delete           delete          delete      delete      delete
RestartOnly     LiveResize           OnDelete       delete   delete   delete      delete   delete    delete   mark      delete           delete          delete      delete      delete
RestartOnly     LiveResizePreferred  OnDelete       delete   delete   delete      delete   delete    delete   mark      delete           delete          delete      delete      delete
LiveResizeable  Restart              OnDelete       delete   delete   delete      delete   delete    delete   mark      delete           delete          delete      delete      delete

RestartOnly     none                 RollingUpdate  restart  restart  restart     restart  restart   restart  mark      restart          restart         restart     restart     restart
RestartOnly     Restart              RollingUpdate  restart  restart  restart     restart  restart   restart  mark      restart          restart         restart     restart     restart
RestartOnly     LiveResize           RollingUpdate  restart  restart  restart     restart  restart   restart  mark      restart          restart         restart     restart     restart
RestartOnly     LiveResizePreferred  RollingUpdate  restart  restart  restart     restart  restart   restart  mark      restart          restart         restart     restart     restart
LiveResizeable  Restart              RollingUpdate  restart  restart  restart     restart  restart   restart  mark      restart          restart         restart     restart     restart

LiveResizeable  LiveResize           OnDelete       resize   resize   wait        wait     wait      wait     mark      leave            leave           leave       leave       leave
LiveResizeable  LiveResize           RollingUpdate  resize   resize   wait        wait     wait      wait     mark      leave            leave           leave       leave       leave

LiveResizeable  none                 OnDelete       resize   resize   wait        wait     wait      wait     mark      delete           delete          delete      delete      delete
LiveResizeable  LiveResizePreferred  OnDelete       resize   resize   wait        wait     wait      wait     mark      delete           delete          delete      delete      delete

LiveResizeable  none                 RollingUpdate  resize   resize   wait        wait     wait      wait     mark      restart          restart         restart     restart     restart
LiveResizeable  LiveResizePreferred  RollingUpdate  resize   resize   wait        wait     wait      wait     mark      restart          restart         restart     restart     restart
`

var decisions = map[string]policy.Decision{
	"resize": policy.Resize, "wait": policy.Wait, "mark": policy.MarkUpdated, "leave": policy.Leave,
	"restart": policy.RestartByController, "delete": policy.WaitForDelete,
}

func TestDecide(t *testing.T) {
	var states []string
	seen := map[string]bool{}
	for line := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		cells := strings.Fields(line)
		if len(cells) == 0 {
			continue
		}
		if states == nil {
			states = cells[3:]
			continue
		}
		if len(cells) != 3+len(states) {
			t.Fatalf("not a row of the table: %s", line)
		}
		p, action, s := policy.Policy(cells[0]), policy.Action(cells[1]), policy.Strategy(cells[2])
		if action == "none" {
			action = ""
		}
		for i, state := range states {
			r, want := resize.State(state), decisions[cells[3+i]]
			must.Equal(t, policy.Decide(p, action, s, r), want, "%s, action %q, %s, %s", p, action, s, r)
			seen[strings.Join([]string{cells[0], cells[1], cells[2], state}, " ")] = true
		}
	}
	for _, p := range []policy.Policy{policy.RestartOnly, policy.LiveResizeable} {
		for _, a := range []policy.Action{"none", policy.Restart, policy.LiveResize, policy.LiveResizePreferred} {
			for _, s := range []policy.Strategy{policy.OnDelete, policy.RollingUpdate} {
				for _, r := range []resize.State{
					resize.Unsent, resize.InProgress, resize.Unready, resize.Actuated, resize.Deferred, resize.DeferredTooLong,
					resize.Failing, resize.FailingTooLong, resize.Infeasible, resize.Refused, resize.Unresizable, resize.Disruptive,
				} {
					if cell := strings.Join([]string{string(p), string(a), string(s), string(r)}, " "); !seen[cell] {
						t.Errorf("the table lacks %s", cell)
					}
				}
			}
		}
	}
}

// What a later kubelet may say counts as Deferred, as unknown states always did.
func TestUnknownStateWaits(t *testing.T) {
	for _, action := range []policy.Action{"", policy.LiveResize, policy.LiveResizePreferred} {
		must.Equal(t, policy.Decide(policy.LiveResizeable, action, policy.RollingUpdate, "Unheard"), policy.Wait, "action %q", action)
	}
}

const notHeld = "not held"

// withHold is a workload whose hold says this.
func withHold(hold string) *metav1.ObjectMeta {
	if hold == notHeld {
		return &metav1.ObjectMeta{}
	}
	return &metav1.ObjectMeta{Annotations: map[string]string{api.HoldAnnotation: hold}}
}

func TestWishedPartition(t *testing.T) {
	for _, tt := range []struct {
		name, hold string
		inForce    int
		want       int
	}{
		{"not held", notHeld, 2, 2},
		{"not held, and above all", notHeld, math.MaxInt32, math.MaxInt32},
		{"held", "3", math.MaxInt32, 3},
		{"held, and lowered for one pod", "0", 2, 0},
		{"a hold that cannot be read", "nonsense", math.MaxInt32, 0},
		{"a hold that cannot be read, and a partition that is none of a hold", "-1", 2, 2},
		{"a hold beyond all partitions", "4294967296", 2, 2},
	} {
		must.Equal(t, policy.WishedPartition(withHold(tt.hold), tt.inForce), tt.want, "%s", tt.name)
	}
}

func TestWishedPaused(t *testing.T) {
	for _, tt := range []struct {
		name, hold    string
		inForce, want bool
	}{
		{"not held", notHeld, false, false},
		{"not held, and paused", notHeld, true, true},
		{"held", "false", true, false},
		{"held for a user who paused", "true", true, true},
		{"a hold that cannot be read", "nonsense", true, false},
	} {
		must.Equal(t, policy.WishedPaused(withHold(tt.hold), tt.inForce), tt.want, "%s", tt.name)
	}
}
