//go:build integration

package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// counted are our metrics that are not zero, as `rollouts_total{Deployment,complete}`;
// of histograms the number of observations.
func counted(t *testing.T, p *controller.Process) map[string]float64 {
	t.Helper()
	got := map[string]float64{}
	for name, family := range scrape(t, p) {
		short, is := strings.CutPrefix(name, ours)
		is = is && name != buildInfo
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if is && value != 0 {
				got[short+"{"+strings.Join(labels, ",")+"}"] = value
			}
		}
	}
	return got
}

// allowed are the values of each label.
var allowed = map[string][]string{
	"kind":         {"StatefulSet", "Deployment", "DaemonSet"},
	"installation": {controller.Namespace},
	"way":          {"policy", "webhook"},
	"result":       {"complete", "handed_over", "abandoned", "answered", "timeout", "too_long", "bad_query", "error"},
	"state":        {"passed", "failed", "unknown"},
	"outcome":      {"resized", "restarted", "refused"},
	"cause":        {"template", "policy", "action", "unresizable", "infeasible", "deferred", "error", "unavailable"},
	"reason": {
		rollout.ReasonDeferred, rollout.ReasonInfeasible, rollout.ReasonResizeError, rollout.ReasonQuotaExceeded,
		rollout.ReasonUnsupportedByNode, rollout.ReasonInvalid, rollout.ReasonAdmissionDenied,
		rollout.ReasonNotReadyAfterResize, rollout.ReasonResizeFailed, rollout.ReasonReverted, rollout.ReasonCheckUnknown, rollout.ReasonDeletedAfterResize, rollout.ReasonPodRejected, rollout.ReasonNodeLost, rollout.ReasonNoNodeFits, rollout.ReasonDisruptionBudget, rollout.ReasonWaitingForDelete,
		"queue_full", "rate_limited", "not_written", // of events that were dropped
	},
}

// TestTimesAreOfTheEdit: the admission policies take Complete back and cannot set its
// time; what is told and counted of the next rollout begins with its edit all the same.
func TestTimesAreOfTheEdit(t *testing.T) {
	p := ownController(t, controller.Options{})
	w, d, a := newWorkload(t, options{Replicas: 1}), newDeployment(t, options{Replicas: 1}), newDaemonSet(t, options{Replicas: 1})
	w.waitComplete()
	d.sandbox.waitComplete()
	a.waitComplete()
	w.annotatePod("web-0", simDeferred)
	d.annotatePod(d.names()[0], simDeferred)
	a.annotatePod(a.on(1).Name, simDeferred)
	time.Sleep(5 * time.Second) // the times that are told are whole seconds
	edited := time.Now().Truncate(time.Second)
	w.setResources("cpu=150m", "")
	d.setResources("cpu=150m", "")
	a.setResources("cpu=150m", "")
	w.waitCondition("Deferred", "web-0")
	d.waitCondition("Deferred", d.names()[0])
	a.waitCondition("Deferred", a.on(1).Name)
	if since := w.get().Status.Conditions[0].LastTransitionTime; since.Time.Before(edited) {
		t.Errorf("the StatefulSet's condition is of %s, and the edit of %s", since, edited)
	}
	for _, c := range d.get().Status.Conditions {
		if c.Type == api.ConditionComplete && c.LastTransitionTime.Time.Before(edited) {
			t.Errorf("the Deployment's condition is of %s, and the edit of %s", c.LastTransitionTime, edited)
		}
	}
	if since := a.get().Status.Conditions[0].LastTransitionTime; since.Time.Before(edited) {
		t.Errorf("the DaemonSet's condition is of %s, and the edit of %s", since, edited)
	}
	time.Sleep(time.Second)
	assert := func(metric string, seconds func(*dto.Metric) float64) {
		t.Helper()
		for _, m := range scrape(t, p)[ours+metric].Metric {
			if got := seconds(m); got == 0 || got > time.Since(edited).Seconds() {
				t.Errorf("%s of %s: %v, and the edit was %v ago", metric, m.Label[0].GetValue(), got, time.Since(edited))
			}
		}
	}
	assert("oldest_hold_timestamp_seconds", func(m *dto.Metric) float64 { return float64(time.Now().Unix()) - m.GetGauge().GetValue() })
	w.annotatePod("web-0", simAccepted)
	d.annotatePod(d.names()[0], simAccepted)
	a.annotatePod(a.on(1).Name, simAccepted)
	w.waitComplete()
	d.sandbox.waitComplete()
	a.waitComplete()
	eventually(t, "the rollouts to be counted", func() (bool, string) {
		got := counted(t, p)
		return got["rollout_duration_seconds{StatefulSet}"] == 1 && got["rollout_duration_seconds{Deployment}"] == 1 && got["rollout_duration_seconds{DaemonSet}"] == 1, fmt.Sprint(got)
	})
	assert("rollout_duration_seconds", func(m *dto.Metric) float64 { return m.GetHistogram().GetSampleSum() })
}

func TestMetrics(t *testing.T) {
	p := ownController(t, controller.Options{})
	w, d, a := newWorkload(t, options{Replicas: 2}), newDeployment(t, options{Replicas: 2}), newDaemonSet(t, options{Replicas: 2})
	w.waitComplete()
	d.sandbox.waitComplete()
	a.waitComplete()
	start := counted(t, p)
	since := func() map[string]float64 {
		now := counted(t, p)
		for name, value := range start {
			if now[name] -= value; now[name] == 0 {
				delete(now, name)
			}
		}
		return now
	}
	wait := func(what string, want map[string]float64) {
		t.Helper()
		eventually(t, what+" to be counted", func() (bool, string) {
			got := since()
			return maps.Equal(got, want), fmt.Sprintf("%v, want %v", got, want)
		})
	}
	first := map[string]float64{"ready{" + controller.Namespace + "}": 1, "hold_info{" + string(controller.Hold(cp)) + "}": 1}
	for _, kind := range allowed["kind"] {
		first["edits_held{"+kind+"}"] = 1
	}
	if !maps.Equal(start, first) {
		t.Errorf("new workloads are no rollouts: %v, want %v", start, first)
	}

	w.setResources("cpu=150m", "")
	d.setResources("cpu=150m", "")
	a.setResources("cpu=150m", "")
	w.waitComplete()
	d.waitComplete()
	a.waitComplete()
	want := map[string]float64{}
	for _, kind := range allowed["kind"] {
		want["rollouts_total{"+kind+",complete}"], want["pods_total{"+kind+",resized}"] = 1, 2
		want["rollout_duration_seconds{"+kind+"}"], want["pod_duration_seconds{"+kind+"}"] = 1, 2
	}
	wait("rollouts in place", want)

	w.kubectl("set", "image", w.ref, "app=app:2")
	d.kubectl("set", "image", d.ref, "app=app:2")
	a.kubectl("set", "image", a.ref, "app=app:2")
	w.waitComplete()
	d.sandbox.waitComplete()
	a.waitComplete()
	for _, kind := range allowed["kind"] {
		want["rollouts_total{"+kind+",handed_over}"] = 1
	}
	wait("rollouts that were handed over", want)

	w.annotatePod("web-1", simInfeasible)
	w.setResources("cpu=160m", "")
	d.annotatePod(d.names()[0], simInfeasible)
	d.setResources("cpu=160m", "")
	a.annotatePod(a.on(1).Name, simInfeasible) // while node 2 is still held
	a.setResources("cpu=160m", "")
	w.waitComplete()
	d.waitComplete()
	a.waitComplete()
	for _, kind := range allowed["kind"] {
		want["rollouts_total{"+kind+",complete}"]++
		want["rollout_duration_seconds{"+kind+"}"]++
		want["pods_total{"+kind+",resized}"]++
		want["pod_duration_seconds{"+kind+"}"]++
		want["pods_total{"+kind+",restarted}"]++
		// Label names are in the order of the alphabet.
		want["pod_restarts_total{infeasible,"+kind+"}"]++
	}
	wait("a restart", want)

	w.annotatePod("web-1", simDeferred)
	w.setResources("cpu=170m", "")
	w.waitCondition("Deferred", "web-1")
	eventually(t, "the hold to be counted", func() (bool, string) {
		got := since()
		return got["held_workloads{StatefulSet}"] == 1 && got["oldest_hold_timestamp_seconds{StatefulSet}"] > 1 &&
			got["waiting_pods{StatefulSet,Deferred}"] == 1 && got["held_workloads{Deployment}"]+got["held_workloads{DaemonSet}"] == 0, fmt.Sprint(got)
	})
	for name, family := range scrape(t, p) {
		if !strings.HasPrefix(name, ours) || name == buildInfo {
			continue
		}
		for _, m := range family.Metric {
			for _, l := range m.Label {
				if !slices.Contains(allowed[l.GetName()], l.GetValue()) {
					t.Errorf("%s has %s=%q", name, l.GetName(), l.GetValue())
				}
			}
		}
	}
	w.annotatePod("web-1", simAccepted)
	w.waitComplete()
	want["rollouts_total{StatefulSet,complete}"]++
	want["rollout_duration_seconds{StatefulSet}"]++
	want["pods_total{StatefulSet,resized}"] += 2
	want["pod_duration_seconds{StatefulSet}"] += 2
	wait("the end of the hold", want)

	families := scrape(t, p)
	for _, name := range []string{"go_goroutines", "process_start_time_seconds", "rest_client_requests_total", "workqueue_depth"} {
		if families[name] == nil {
			t.Errorf("no %s", name)
		}
	}
}
