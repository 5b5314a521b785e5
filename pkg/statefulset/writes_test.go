package statefulset

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestWritesInWords: each kind of write is logged by --dry-run.
func TestWritesInWords(t *testing.T) {
	m := judge.Member{Place: judge.Place{Name: "web-1", Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}}}}
	restart := rollout.Restart{Member: m, Reason: "the action is Restart"}
	for want, write := range map[string]rollout.Write{
		"mark pod web-1 as updated":               rollout.MarkPod{Member: m, Label: "web-b", Revision: "web-b"},
		"delete pod web-1: the action is Restart": rollout.DeletePod{Restart: restart},
		"lower the partition to 1":                lowerPartition{1, []rollout.Restart{restart}},
		"release the hold":                        rollout.Release{},
		"release the hold: image of app differs":  rollout.Release{HandOver: "image of app differs"},
	} {
		if got := write.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestDryRunLogs: what would be written is logged, of the pod and of the condition.
func TestDryRunLogs(t *testing.T) {
	c := newCluster(t, 2, controller.Options{DryRun: true})
	c.edit(newer)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	for range 2 { // the first one only starts to watch
		must.Get(c.Controller.Sync(klog.NewContext(t.Context(), logger), cache.MetaObjectToName(c.Set)))(t)
		c.Sees()
	}
	logged := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	for _, want := range []string{"resize pod web-1: ", `Would write the condition status="False" reason="Progressing"`} {
		if !strings.Contains(logged, want) {
			t.Errorf("%q is not logged: %s", want, logged)
		}
	}
}
