package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// unreadable has the record of a guarded rollout be of a later version.
var unreadable = heldSetOf(3, func(s *stage) {
	s.set.Annotations[api.CanaryAnnotation], s.set.Annotations[api.RolloutAnnotation] = "1", `{"phase":"Canary","version":2,"of":"revision web-b"}`
})

// TestUnreadableRecord: everything stays as it is, and nobody says that anything else would come.
func TestUnreadableRecord(t *testing.T) {
	u := unreadable(t).live(t)
	r := reportsOf(t, unreadable(t))[0]
	if len(r.Pods) > 0 || !r.Stopped || !strings.Contains(r.Message, "its version is 2, and this controller knows version 1") {
		t.Errorf("status says %+v", r)
	}
	_, retried := retryOptions{cluster: unreadable(t).cluster(t)}.retry(t.Context(), u)
	for what, err := range map[string]error{
		"plan":  planOptions{cluster: unreadable(t).cluster(t)}.runEdits(t.Context(), &bytes.Buffer{}, []edit{{live: u, after: u}}),
		"retry": retried,
	} {
		must.Fails(t, what, err, "knows version 1")
	}
}

// underWay is what plan prints of the rollout that is under way.
func underWay(t *testing.T, s *stage) string {
	t.Helper()
	u, out := s.live(t), &bytes.Buffer{}
	must.Do(t, planOptions{cluster: s.cluster(t)}.runEdits(t.Context(), out, []edit{{live: u, after: u}}))
	return out.String()
}

// TestPlanOfTheWayBack: nothing is to be proved, and no check asked.
func TestPlanOfTheWayBack(t *testing.T) {
	s := changed(canaryStage, heartbeat("", ""), func(s *stage) {
		s.set.Annotations[api.ChecksAnnotation] = "latency"
		s.set.Spec.Template, s.set.Status.UpdateRevision = pointed(build.Size(t, size)), "web-a"
		s.recorded(rollout.Record{Phase: rollout.PhasePending, Of: rollout.RevisionNamed("web-b"), From: "web-a"}, s.pods[2])
	})(t)
	said := underWay(t, s)
	if strings.Contains(said, "KeptBack") || strings.Contains(said, "Guarded") || !strings.Contains(said, "1 live") {
		t.Errorf("says %s", said)
	}
}

// TestPlanBelievesWhatIsRemembered: what only the controller knows is not foreseen to be otherwise.
func TestPlanBelievesWhatIsRemembered(t *testing.T) {
	for reason, action := range map[string]string{"AdmissionDenied": "", "UnsupportedByNode": "LiveResize", "RoomUnknown": "Restart", "PodRejected": "Restart"} {
		s := heldSetOf(2, func(s *stage) {
			s.set.Annotations[api.ResizeActionAnnotation] = action
			s.set.Status.Conditions[0].Reason, s.set.Status.Conditions[0].Message = reason, "0 of 2 pods resized"
		})(t)
		said := underWay(t, s)
		if !strings.Contains(said, "the condition says "+reason) || strings.Contains(said, "2 restart") {
			t.Errorf("%s: says %s", reason, said)
		}
	}
}

// TestPromoteOnDelete: nobody follows by himself.
func TestPromoteOnDelete(t *testing.T) {
	s := changed(canaryStage, func(s *stage) {
		s.set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		s.set.Annotations[api.ResizeActionAnnotation] = "Restart"
	})(t)
	var out bytes.Buffer
	must.Do(t, promoteOptions{cluster: s.cluster(t)}.run(t.Context(), &out, s.live(t)))
	must.Contain(t, out.String(), "follow, those that only a restart helps when they are deleted", "what it says")
}

// TestTimeoutOfTheFirstLook: nothing that has been seen is no success.
func TestTimeoutOfTheFirstLook(t *testing.T) {
	c := heldStage(t).cluster(t)
	o := statusOptions{cluster: c, watch: true, timeout: time.Nanosecond}
	c.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, context.DeadlineExceeded
	})
	if err := o.run(t.Context(), &bytes.Buffer{}, &bytes.Buffer{}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ends with %v", err)
	}
}
