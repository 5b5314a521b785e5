package statefulset

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestUnborn: of a pod of 1m that is missing, where 2m are wanted now.
func TestUnborn(t *testing.T) {
	load(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	milli := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(n, resource.DecimalSI)}
	}
	least := func(n int64) corev1.LimitRange {
		return corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Min: milli(n)}}}}
	}
	quota := func(n int64) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "small"},
			Status: corev1.ResourceQuotaStatus{Hard: milli(n), Used: milli(0)}}
	}
	for name, tt := range map[string]struct {
		waited     time.Duration
		least      int64 // of a LimitRange; 0 if there is none
		quota      int64 // likewise
		node       int64 // the only one's cpu
		from       version
		kind, says string
		remade     bool
	}{
		"a moment":                              {waited: time.Second},
		"too long":                              {waited: neverCameAfter, kind: judge.ReasonAdmissionDenied, says: "no pod has been created for 30s", remade: true},
		"too long, and no node is so large":     {waited: neverCameAfter, node: 1, kind: judge.ReasonNoNodeFits, says: "no pod has been created for 30s; a pod of the new size could not be created either: it needs 2m cpu"},
		"a LimitRange":                          {least: 2, kind: judge.ReasonInvalid, says: "must be at least 2m", remade: true},
		"a LimitRange, and no node is so large": {least: 2, node: 1, kind: judge.ReasonInvalid, says: "must be at least 2m", remade: true},
		"a LimitRange refuses both":             {least: 3, kind: judge.ReasonInvalid, says: "a pod of the new size could not be created either: app: cpu per Container must be at least 3m, and 2m is requested"},
		"a quota has room for neither":          {waited: time.Second, quota: 1, from: version{Image: 1, CPU: 3}, kind: judge.ReasonQuotaExceeded, says: "a pod of the new size could not be created either: quota small has no room for cpu 2m"},
		"a quota has room for the new":          {waited: time.Second, quota: 2, from: version{Image: 1, CPU: 3}, kind: judge.ReasonQuotaExceeded, says: "quota small has no room for cpu 3m", remade: true},
		"a quota has room for the old":          {waited: time.Second, quota: 1},
		"another image":                         {waited: neverCameAfter, from: version{Image: 2, CPU: 1}},
		"it is the newest already":              {waited: neverCameAfter, from: version{Image: 1, CPU: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := tt.from, version{Image: 1, CPU: 2}
			if from == (version{}) {
				from = version{Image: 1, CPU: 1}
			}
			set := webSet(to, 1)
			set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](everything)
			set.Status.CurrentRevision, set.Status.UpdateRevision = revisionOf(from), revisionOf(to)
			client := fake.NewClientset()
			if tt.quota > 0 {
				client = fake.NewClientset(quota(tt.quota))
			}
			quotas := must.Get(capacity.New(client, capacity.Sizes, now).Quotas(t.Context(), "default"))(t)
			limits := capacity.Limits{}
			if tt.least > 0 {
				limits.Ranges = []corev1.LimitRange{least(tt.least)}
			}
			node := largeNode()
			if tt.node > 0 {
				node.Status.Allocatable = milli(tt.node)
			}
			o := observation{
				set: set, revisions: allRevisions, births: births{due: map[int]time.Time{0: now.Add(-tt.waited)}, quotas: quotas, limits: limits},
				Facts: rollout.Facts{Now: now, Places: capacity.NewPlaces([]*corev1.Node{node}, false, limits), Defaults: policy.Standard},
			}
			why, remade := o.unborn(0)
			if why.Kind != tt.kind || !strings.Contains(why.Reason, tt.says) || remade != tt.remade || (why.Reason == "") != (tt.says == "") {
				t.Errorf("%s: %q, remade %t; want %s: …%s…, %t", why.Kind, why.Reason, remade, tt.kind, tt.says, tt.remade)
			}
		})
	}
}
