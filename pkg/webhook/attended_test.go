package webhook_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/heartbeat"
	"github.com/inplace-rollout/inplace-rollout/pkg/webhook"
)

// TestAttended: whoever asks the policy that holds in a dry run hears whether it sees a controller, as Go says it, whatever becomes of the
// edit. Nothing of that is ever stored.
func TestAttended(t *testing.T) {
	at := time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)
	values := []string{"", "soon", "2026-11-24", "2026-11-24T03:00:00+01:00", "2026-11-24T03:00:00", "9999-12-31T23:59:59Z"}
	for _, after := range []time.Duration{-time.Hour, -time.Second, -time.Millisecond, 0, time.Millisecond, 999 * time.Millisecond, time.Second, time.Minute} {
		values = append(values, at.Add(after).Format(time.RFC3339Nano))
	}
	for _, until := range values {
		for _, whenAbsent := range []string{api.LetGo, api.Hold} {
			annotations := map[string]string{api.ReadyUntilAnnotation: until, api.WhenAbsentAnnotation: whenAbsent}
			policies := following(t, deploy.User, map[string]map[string]string{"inplace-rollout": annotations})
			want := heartbeat.There(annotations, at)
			for _, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
				ask := fmt.Sprintf(", %s: %q", api.AttendedAnnotation, "?")
				write := webhook.Write{Old: workload(t, kind, "", "", "2026-11-24T02:00:00Z"), Object: workload(t, kind, ":2", ask, at.Format(time.RFC3339)), User: "user", DryRun: true}
				after := admit(t, policies, write).GetAnnotations()
				if got := after[api.AttendedAnnotation]; got != strconv.FormatBool(want) {
					t.Errorf("until %q, %s: the policy says %q, and it is there: %t", until, kind, got, want)
				}
				if _, held := after[api.HoldAnnotation]; held != (want || whenAbsent == api.Hold) {
					t.Errorf("until %q, %s, %s: it is held: %t", until, whenAbsent, kind, held)
				}
				write.DryRun = false
				if got, is := admit(t, policies, write).GetAnnotations()[api.AttendedAnnotation]; is {
					t.Errorf("until %q, %s: %q would be stored", until, kind, got)
				}
			}
		}
	}
}
