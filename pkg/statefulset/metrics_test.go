package statefulset

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// measured are the metrics that are not zero, as `name{kind,label}`; of histograms the number of observations.
func measured(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families := must.Get(registry.Gather())(t)
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				if l.GetName() != "kind" {
					labels = append(labels, l.GetValue())
				}
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if value != 0 {
				got[strings.TrimPrefix(family.GetName(), "inplace_rollout_")+fmt.Sprint(labels)] = value
			}
		}
	}
	return got
}

// newMeasured is a cluster with metrics.
func newMeasured(t *testing.T, replicas int, outcomes ...simulated.Outcome) (*cluster, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	return newCluster(t, replicas, controller.Options{Metrics: controller.NewMetrics(registry)}, outcomes...), registry
}

func TestMetrics(t *testing.T) {
	t.Run("resized", func(t *testing.T) {
		c, registry := newMeasured(t, 3)
		must.Get(c.Sync())(t)
		wants(t, "at rest", registry, map[string]float64{})
		c.edit(newer)
		wants(t, "held, and not looked at", registry, map[string]float64{"held_workloads[]": 1})
		c.Rest()
		must.Get(c.Sync())(t)
		wants(t, "complete", registry, map[string]float64{
			"rollouts_total[complete]": 1, "pods_total[resized]": 3,
			"pod_duration_seconds[]": 3, "rollout_duration_seconds[]": 1,
		})
		families := must.Get(registry.Gather())(t)
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("promlint: %v %v", problems, err)
		}
	})
	t.Run("refused and restarted", func(t *testing.T) {
		c, registry := newMeasured(t, 3)
		c.Refuse("patch pods/resize web-1", invalid("web-1"), 1<<20)
		c.edit(newer)
		c.Rest()
		wants(t, "complete", registry, map[string]float64{
			"rollouts_total[complete]": 1, "pods_total[resized]": 2, "pods_total[restarted]": 1, "pods_total[refused]": 1,
			"pod_restarts_total[infeasible]": 1, "pod_duration_seconds[]": 2, "rollout_duration_seconds[]": 1,
		})
	})
	t.Run("has the size already", func(t *testing.T) {
		c, registry := newMeasured(t, 3)
		resized := c.Pods["web-1"].DeepCopy() // by a vertical autoscaler, say
		build.Resized(templates[newer])(resized)
		c.WritePod(resized)
		c.edit(newer)
		c.Rest()
		if got := measured(t, registry); got["pods_total[resized]"] != 2 || got["pod_duration_seconds[]"] != 2 {
			t.Errorf("2 of 3 pods were resized, and the metrics say %v", got)
		}
		must.Equal(t, simulated.Count(c.Events, judge.EventResized+" resized in place"), 2, "pods of which events say that they were resized: %q", c.Events)
		// The one before it may have its size by then, or not yet: they are written at once.
		count := func(event string) int { return simulated.Count(c.Events, judge.EventResized+event) }
		for _, n := range []int{count(" has the size of revision"), count(" 1 of 3 pods resized; web-1: has the size of revision") + count(" 2 of 3 pods resized; web-1: has the size of revision")} {
			if n != 1 {
				t.Errorf("recorded %d times that web-1 has its size, want once on the pod, and once on the set: %q", n, c.Events)
			}
		}
	})
	t.Run("opted out before the end", func(t *testing.T) {
		c, registry := newMeasured(t, 3, simulated.Outcome{Slow: 3})
		c.edit(newer)
		must.Get(c.Sync())(t)
		c.User(func(set *appsv1.StatefulSet) { delete(set.Labels, api.EnabledLabel) })
		c.Sees()
		for range 2 {
			must.Get(c.Sync())(t)
		}
		must.Equal(t, measured(t, registry)["rollouts_total[abandoned]"], 1, "rollouts that are counted as abandoned")
	})
	t.Run("stopped, and reverted", func(t *testing.T) {
		for onFailure, reason := range map[string]string{policy.OnFailureHold: judge.ReasonResizeFailed, policy.OnFailureRevert: judge.ReasonReverted} {
			c, registry := newMeasured(t, 3)
			g := c.guarded(t)
			g.Doomed(onFailure)
			g.Edit(newer)
			count := func(when string, want map[string]float64) {
				t.Helper()
				got := measured(t, registry)
				maps.DeleteFunc(got, func(name string, _ float64) bool { return !strings.HasPrefix(name, "stopped_workloads") })
				if !maps.Equal(got, want) {
					t.Errorf("%s, %s: %v, want %v", onFailure, when, got, want)
				}
			}
			count("before", map[string]float64{})
			c.Rounds(60)
			count("stopped", map[string]float64{"stopped_workloads[" + reason + "]": 1})
			g.Edit(older)
			c.completes(t, "the undo")
			count("undone", map[string]float64{})
		}
	})
	t.Run("handed over, and not complete once more", func(t *testing.T) {
		c, registry := newMeasured(t, 3)
		c.edit(version{Image: 2, CPU: 1})
		c.Rest()
		wants(t, "complete", registry, map[string]float64{"rollouts_total[handed_over]": 1})
	})
}

// TestDurationsAreOfTheEdit: the admission policy takes Complete back, and its time stays.
func TestDurationsAreOfTheEdit(t *testing.T) {
	c, registry := newMeasured(t, 2, simulated.Outcome{Slow: 3})
	c.Rounds(1)
	c.Clock.SetTime(c.Clock.Now().Add(72 * time.Hour))
	edited := c.Clock.Now()
	c.Set.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: edited}}}
	c.edit(newer)
	oldest := func() float64 { return measured(t, registry)["oldest_hold_timestamp_seconds[]"] }
	if have := condition(c.Set); have == nil || have.Reason != judge.ReasonPending || c.Clock.Since(have.LastTransitionTime.Time) < 72*time.Hour {
		t.Fatalf("the edited set says %+v, want Pending since Complete", have)
	}
	must.Equal(t, oldest(), float64(edited.Unix()), "the beginning of the oldest hold, which is not looked at")
	c.Rounds(3)
	if got := oldest(); got < float64(edited.Unix()) || got > float64(c.Clock.Now().Unix()) {
		t.Errorf("the oldest hold began at %v, and the edit was at %v", got, edited.Unix())
	}
	c.Rest()
	took := histogram(t, registry, "inplace_rollout_rollout_duration_seconds")
	if sum := took.GetSampleSum(); took.GetSampleCount() != 1 || sum == 0 || sum > c.Clock.Since(edited).Seconds() {
		t.Errorf("%d rollouts took %v s, and the edit was %v ago", took.GetSampleCount(), sum, c.Clock.Since(edited))
	}
}

// TestPodDuration: a pod takes from our request to the sync that sees it done, by our own clock. The
// API server notes whole seconds. A controller that was restarted has not asked, and does not know.
func TestPodDuration(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		c, registry := newMeasured(t, 1)
		c.edit(newer)
		asked := c.Clock.Now().Add(700 * time.Millisecond)
		c.Clock.SetTime(asked)
		if _, err := c.Sync(); err != nil || simulated.Count(c.Writes, "patch pods/resize web-0") != 1 {
			t.Fatalf("%v, and the writes are %q", err, c.Writes)
		}
		for range 5 {
			c.Lives()
		}
		c.Sees()
		if restarted {
			registry = prometheus.NewRegistry()
			c.Start(New(c.Client), controller.Options{Metrics: controller.NewMetrics(registry)})
		}
		c.Clock.SetTime(asked.Add(300 * time.Millisecond))
		if _, err := c.Sync(); err != nil || label(c.Pods["web-0"]) != revisionOf(newer) {
			t.Fatalf("%v, and web-0 is of %s", err, label(c.Pods["web-0"]))
		}
		took := histogram(t, registry, "inplace_rollout_pod_duration_seconds")
		if count, sum := took.GetSampleCount(), took.GetSampleSum(); restarted && count != 0 || !restarted && (count != 1 || math.Abs(sum-0.3) > 1e-6) {
			t.Errorf("restarted: %t: %d pods took %v s", restarted, count, sum)
		}
	}
}

// histogram returns the one of this name.
func histogram(t *testing.T, registry *prometheus.Registry, name string) *dto.Histogram {
	t.Helper()
	families := must.Get(registry.Gather())(t)
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
	return families[i].Metric[0].GetHistogram()
}

// TestMetricsLabelsAreClosed: every series is there from the start, rollouts make
// no other, and none names an object.
func TestMetricsLabelsAreClosed(t *testing.T) {
	want := map[string][]string{
		"held_workloads": {""}, "oldest_hold_timestamp_seconds": {""}, "step_errors_total": {""},
		"pod_duration_seconds": {""}, "rollout_duration_seconds": {""},
		"rollouts_total":     {"result=abandoned", "result=complete", "result=handed_over"},
		"pods_total":         {"outcome=refused", "outcome=resized", "outcome=restarted"},
		"pod_restarts_total": {"cause=action", "cause=deferred", "cause=error", "cause=infeasible", "cause=policy", "cause=template", "cause=unavailable", "cause=unresizable"},
		"stopped_workloads":  {"reason=ResizeFailed", "reason=Reverted"},
		"waiting_pods": {
			"reason=AdmissionDenied", "reason=CheckUnknown", "reason=Deferred", "reason=DeletedAfterResize", "reason=DisruptionBudget", "reason=Infeasible", "reason=Invalid", "reason=NoNodeFits", "reason=NodeLost",
			"reason=NotReadyAfterResize", "reason=PodRejected", "reason=QuotaExceeded", "reason=ResizeError", "reason=RoomUnknown", "reason=UnsupportedByNode", "reason=WaitingForDelete",
		},
	}
	for _, at := range []struct {
		name  string
		edits []version
	}{
		{name: "at the start"},
		{"after a rollout in place", []version{newer}},
		{"after one that was handed over", []version{{Image: 2, CPU: 1}}},
		{"after both", []version{newer, {Image: 2, CPU: 1}}},
	} {
		c, registry := newMeasured(t, 3)
		c.Refuse("patch pods/resize web-1", invalid("web-1"), 1<<20)
		for _, edit := range at.edits {
			c.edit(edit)
			c.Rest()
		}
		if got := series(t, registry); !maps.EqualFunc(got, want, slices.Equal[[]string]) {
			t.Errorf("%s: %v, want %v", at.name, got, want)
		}
	}
}

// series are the labels of every metric, without the kind, which is always StatefulSet.
func series(t *testing.T, registry *prometheus.Registry) map[string][]string {
	t.Helper()
	families := must.Get(registry.Gather())(t)
	got := map[string][]string{}
	for _, family := range families {
		name := strings.TrimPrefix(family.GetName(), "inplace_rollout_")
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				if l.GetName() == "kind" && l.GetValue() == "StatefulSet" {
					continue
				}
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			got[name] = append(got[name], strings.Join(labels, ","))
		}
	}
	return got
}

func wants(t *testing.T, when string, registry *prometheus.Registry, want map[string]float64) {
	t.Helper()
	if got := measured(t, registry); !maps.Equal(got, want) {
		t.Errorf("%s: %v, want %v", when, got, want)
	}
}
