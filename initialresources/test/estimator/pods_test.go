//go:build around

package estimator

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// set is what admission says of a request that it has set.
const set = `{"app":{"cpu":{"request":"100m","from":"image:tag","window":"7d","percentile":90,"samples":80,"scope":"namespace"}}}`

// TestFence: the estimator may change nothing of pods but what it is there for.
func TestFence(t *testing.T) {
	namespace(t, "shop", "")
	apply(t, pod("shop", "ours", set, "100m"))
	apply(t, pod("shop", "users", "", "100m"))
	as := asEstimator(t)
	// The API server applies a policy up to a second after it has accepted it.
	eventually(t, "the fence", func() (bool, string) {
		_, err := as.CoreV1().Pods("shop").Patch(t.Context(), "ours", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err) || apierrors.IsInvalid(err), fmt.Sprint(err)
	})
	for _, tt := range []struct {
		what, pod, subresource, patch string
		allowed                       bool
	}{
		{"a label", "ours", "", `{"metadata":{"labels":{"a":"b"}}}`, false},
		{"another annotation", "ours", "", `{"metadata":{"annotations":{"a":"b"}}}`, false},
		{"an image", "ours", "", `{"spec":{"containers":[{"name":"app","image":"evil"}]}}`, false},
		{"no annotation any more", "ours", "", `{"metadata":{"annotations":{"` + api.EstimateAnnotation + `":null}}}`, false},
		{"a pod without an estimate", "users", "", `{"metadata":{"annotations":{"` + api.EstimateAnnotation + `":"{}"}}}`, false},
		{"the size of one", "users", "resize", `{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"200m"}}}]}}`, false},
		{"a limit", "ours", "resize", `{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"200m"}}}]}}`, false},
		{"its annotation", "ours", "", `{"metadata":{"annotations":{"` + api.EstimateAnnotation + `":"{}"}}}`, true},
	} {
		var subresources []string
		if tt.subresource != "" {
			subresources = []string{tt.subresource}
		}
		_, err := as.CoreV1().Pods("shop").Patch(t.Context(), tt.pod, types.StrategicMergePatchType, []byte(tt.patch), metav1.PatchOptions{}, subresources...)
		if (err == nil) != tt.allowed || err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
}
