package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// TestRetryWhileAway: a controller that takes over obeys a retry that was written after the last status, and no older one, and no
// other write.
func TestRetryWhileAway(t *testing.T) {
	at := func(seconds int) *metav1.Time {
		return &metav1.Time{Time: time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC)}
	}
	status := metav1.ManagedFieldsEntry{Manager: api.FieldManager, Subresource: "status", Time: at(10), FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)}
	for name, tt := range map[string]struct {
		others []metav1.ManagedFieldsEntry
		again  bool
	}{
		"written after it":     {[]metav1.ManagedFieldsEntry{{Manager: api.RetryFieldManager, Time: at(11)}, status}, true},
		"written before it":    {[]metav1.ManagedFieldsEntry{{Manager: api.RetryFieldManager, Time: at(9)}, status}, false},
		"in the same second":   {[]metav1.ManagedFieldsEntry{{Manager: api.RetryFieldManager, Time: at(10)}, status}, false},
		"by somebody else":     {[]metav1.ManagedFieldsEntry{status, {Manager: "kubectl-annotate", Time: at(11)}}, false},
		"no status of ours":    {[]metav1.ManagedFieldsEntry{{Manager: api.RetryFieldManager, Time: at(11)}}, false},
		"the spec, not status": {[]metav1.ManagedFieldsEntry{{Manager: api.RetryFieldManager, Time: at(11)}, {Manager: api.FieldManager, Time: at(10)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.RetryAnnotation: "1"}, ManagedFields: tt.others}}
			keepWritten(w)
			for _, entry := range w.ManagedFields {
				if entry.FieldsV1 != nil {
					t.Errorf("kept fields in %+v", entry)
				}
			}
			if again := askedAgain(w); again != tt.again {
				t.Errorf("asked again: %t, want %t", again, tt.again)
			}
			if last := written(w); last == nil || last.Before(tt.others[0].Time) {
				t.Errorf("written at %v", last)
			}
		})
	}
	w := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{status}}}
	if keepWritten(w); len(w.ManagedFields) != 1 || w.ManagedFields[0].Manager != "" {
		t.Errorf("without a retry, %+v is kept", w.ManagedFields)
	}
}
