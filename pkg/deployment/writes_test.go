package deployment

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// TestWritesInWords: each kind of write is logged by --dry-run.
func TestWritesInWords(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-x"}}
	restart := rollout.Restart{Member: judge.Member{Place: judge.Place{Name: "web-x", Pod: pod}}, Reason: "the action is Restart"}
	set := func(name string) *replicaSet {
		return &replicaSet{ReplicaSet: &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
	for want, write := range map[string]rollout.Write{
		"detach pod web-x: the action is Restart":                              detach{restart},
		"evict pod web-x: the action is Restart":                               evict{restart, false},
		"give pods back to their ReplicaSets: web-x":                           reattach{[]*corev1.Pod{pod}},
		"remove ReplicaSet web-a":                                              removeSet{set("web-a")},
		"keep the former template of ReplicaSet web-a in a new one":            saveHistory{set: set("web-a")},
		"keep the former template of ReplicaSet web-a in ReplicaSet web-b":     saveHistory{set: set("web-a"), reuse: set("web-b")},
		"give ReplicaSet web-a the new template":                               adopt{set: set("web-a")},
		"mark ReplicaSet web-a as adopted":                                     closeAdoption{set: set("web-a")},
		"take the mark from ReplicaSet web-a":                                  endAdoption{set: set("web-a")},
		"release the hold":                                                     rollout.Release{},
		"release the hold: every pod would be restarted: image of app differs": rollout.Release{HandOver: "every pod would be restarted: image of app differs"},
	} {
		if got := write.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
