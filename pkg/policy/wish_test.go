package policy_test

import (
	"fmt"
	"math"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

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
		if got := policy.WishedPartition(withHold(tt.hold), tt.inForce); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
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
		if got := policy.WishedPaused(withHold(tt.hold), tt.inForce); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

// TestEdited: what a hold says after an edit in mid-hold.
func TestEdited(t *testing.T) {
	const held = math.MaxInt32
	for _, tt := range []struct {
		name, live, edited string
		inForce, asked     int
		want               string
	}{
		{"nothing is said of the partition", "1", "1", held, held, "1"},
		{"another partition", "1", "1", held, 3, "3"},
		{"the partition that was lowered for a pod is no wish", "1", "1", 2, 2, "1"},
		{"a manifest that was saved in another hold", "1", "0", held, held, "0"},
		{"a manifest whose hold cannot be read", "1", "nonsense", held, held, "1"},
		{"a manifest without the hold", "1", notHeld, held, held, "1"},
	} {
		if got := policy.EditedPartition(withHold(tt.live), withHold(tt.edited), tt.inForce, tt.asked); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		name, live, edited string
		asked              bool
		want               string
	}{
		{"nothing is said of the pause", "true", "true", true, "true"},
		{"it is resumed", "true", "true", false, "false"},
		{"a manifest that was saved in another hold", "false", "true", true, "true"},
		{"a manifest whose hold cannot be read", "false", "nonsense", true, "false"},
	} {
		if got := policy.EditedPaused(withHold(tt.live), withHold(tt.edited), tt.asked); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestStrategy: Go knows the same wish as the policy that holds DaemonSets, whatever is edited,
// and while it is held.
func TestStrategy(t *testing.T) {
	p := readPolicy[admissionv1.MutatingAdmissionPolicy](t, "hold-daemonsets.yaml")
	wishes := compile(t, p.Spec.Variables, admissionv1.Validation{Expression: `variables.wish == "RollingUpdate"`})
	holds := compile(t, p.Spec.Variables, admissionv1.Validation{Expression: `variables.hold`})
	rolling, onDelete := appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType
	daemonSet := func(hold string, strategy appsv1.DaemonSetUpdateStrategyType, limits bool) *appsv1.DaemonSet {
		d := &appsv1.DaemonSet{ObjectMeta: *withHold(hold)}
		d.Labels = map[string]string{api.EnabledLabel: "true"}
		d.Spec.UpdateStrategy.Type = strategy
		if limits {
			d.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{}
		}
		return d
	}
	kind := appsv1.SchemeGroupVersion.WithKind("DaemonSet")
	for _, was := range []string{notHeld, "RollingUpdate", "nonsense"} {
		for _, says := range []string{notHeld, "RollingUpdate", "OnDelete", "nonsense"} {
			for _, asked := range []appsv1.DaemonSetUpdateStrategyType{rolling, onDelete} {
				for _, had := range []bool{true, false} {
					for _, has := range []bool{true, false} {
						live, edited := daemonSet(was, onDelete, had), daemonSet(says, asked, has)
						policyWishes, why := wishes(t, write{kind, edited, live})
						var goWishes appsv1.DaemonSetUpdateStrategyType
						switch {
						case was != notHeld:
							goWishes = policy.EditedStrategy(edited, asked, had && !has)
						case says != "OnDelete": // what was saved in a hold never says that
							goWishes = policy.WishedStrategy(edited, asked)
						default:
							goWishes = asked
						}
						what := fmt.Sprintf("hold %s, with limits %t, then %s, with %s and limits %t", was, had, says, asked, has)
						if policyWishes != (goWishes == rolling) {
							t.Errorf("%s: the policy wishes RollingUpdate %t (%s), and Go %s", what, policyWishes, why, goWishes)
						}
						if held, said := holds(t, write{kind, edited, live}); held != policyWishes {
							t.Errorf("%s: held %t (%s), want exactly what rolls", what, held, said)
						}
					}
				}
			}
		}
	}
}
