package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Enabled reports whether w is opted in and not about to be deleted.
func Enabled(w metav1.Object) bool {
	return w.GetLabels()[api.EnabledLabel] == "true" && w.GetDeletionTimestamp() == nil
}

// BadLabel says what is wrong with the label that opts w in; empty if nothing is. Admission refuses such a
// value, in the same words, but it may have got in before.
func BadLabel(w metav1.Object) string {
	value, labelled := w.GetLabels()[api.EnabledLabel]
	if !labelled || value == "true" || value == "false" {
		return ""
	}
	return fmt.Sprintf(`label %s: %q must be "true", which opts in, or "false", which means the same as no label`, api.EnabledLabel, value)
}

// NotOptedIn returns the reason for which a rollout of w, which is of that kind and not opted in, is left
// to the built-in controller.
func NotOptedIn(w metav1.Object, kind string) string {
	reason := "the " + kind + " is not opted in"
	if bad := BadLabel(w); bad != "" {
		reason += ": " + bad
	}
	return reason
}

// NotHoldable returns the reason for which a rollout is left to the built-in controller where nothing holds
// a set of this update strategy. Admission refuses to opt such a set in.
func NotHoldable(strategy string) string {
	return "the update strategy " + strategy + " cannot be held, only RollingUpdate and OnDelete can be opted in"
}

// Unconfirmed reports whether w is in one of the critical namespaces, and its user has not said that it may be
// opted in all the same. Admission refuses that, but it may have got in before.
func Unconfirmed(w metav1.Object, critical []string) bool {
	return slices.Contains(critical, w.GetNamespace()) && w.GetAnnotations()[api.AllowCriticalAnnotation] != "true"
}

// Held reports whether the rollout of w is held.
func Held(w metav1.Object) bool {
	_, held := w.GetAnnotations()[api.HoldAnnotation]
	return held
}

// Marked reports whether w is a StatefulSet under OnDelete whose hold is but a mark.
func Marked(w metav1.Object) bool {
	return w.GetAnnotations()[api.HoldAnnotation] == string(appsv1.OnDeleteStatefulSetStrategyType)
}

// Recorded reports whether it is recorded what has happened in a guarded rollout of w. Under OnDelete, that is so without a hold.
func Recorded(w metav1.Object) bool {
	_, recorded := w.GetAnnotations()[api.RolloutAnnotation]
	return recorded
}

// heldPartition is the partition of a StatefulSet that is held, until it is lowered for a pod.
const heldPartition = math.MaxInt32

// WishedPartition is the partition that the user of a StatefulSet wants, held or not, where
// inForce is the one that it has. A hold that cannot be read is there only if it was written
// without the admission policies. Then the wish is the partition in force, or 0 where that is
// the partition of a hold.
func WishedPartition(w metav1.Object, inForce int) int {
	if n, ok := partition(w.GetAnnotations()[api.HoldAnnotation]); ok {
		return n
	}
	if Held(w) && inForce == heldPartition {
		return 0
	}
	return inForce
}

// partition reads what a hold of a StatefulSet says; ok is false if that is no partition.
func partition(wish string) (n int, ok bool) {
	parsed, err := strconv.ParseUint(wish, 10, 31)
	return int(parsed), err == nil
}

// WishedPaused reports whether the user of a Deployment wants it paused, held or not, where
// inForce is what it is. A hold that cannot be read is no wish to pause.
func WishedPaused(w metav1.Object, inForce bool) bool {
	if wish, held := w.GetAnnotations()[api.HoldAnnotation]; held {
		return wish == "true"
	}
	return inForce
}

// WishedStrategy is the update strategy that the user of a DaemonSet wants, held or not, where
// inForce is the one that it has. No other than RollingUpdate is ever held.
func WishedStrategy(w metav1.Object, inForce appsv1.DaemonSetUpdateStrategyType) appsv1.DaemonSetUpdateStrategyType {
	if Held(w) {
		return appsv1.RollingUpdateDaemonSetStrategyType
	}
	return inForce
}
