package invariant

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
)

// failure is a version of a workload whose size has failed, as its record has said first at that time.
type failure struct {
	version
	recorded time.Time
}

// stopped reports whether the record says that a size has failed.
func (v version) stopped() bool {
	phase, _, _ := strings.Cut(strings.TrimPrefix(v.annotation("rollout"), `{"phase":"`), `"`)
	return slices.Contains([]string{"Stopped", "Reverting", "Reverted"}, phase)
}

// named reports whether a retry names the rollout that is recorded: it says of@since.
func (v version) named(retry string) bool {
	name, _, _ := strings.Cut(retry, ";")
	of, since, _ := strings.Cut(name, "@")
	return strings.Contains(v.annotation("rollout"), `"of":"`+of+`"`) && strings.Contains(v.annotation("rollout"), `"since":"`+since+`"`)
}

// fail notes whether the size of a version that is stored has failed. A person asks for it all the same by an edit to it, by a retry, by
// letting go, and by opting out. A retry names the rollout. That the record goes, or the hold, lifts nothing.
func (w *workload) fail(v version, by Write, unguarded bool) {
	before := w.last()
	same := func(f failure) bool { return equality.Semantic.DeepEqual(sizeOf(f.template), sizeOf(v.template)) }
	switch {
	case !v.enabled(), unguarded, (before.held || before.annotation("rollout") != "") && strings.Contains(by.RequestURI, "fieldManager=inplace-rollout-release"):
		w.failed = nil
	case v.edit != before.edit, v.annotation("retry") != before.annotation("retry") && before.named(v.annotation("retry")):
		w.failed = slices.DeleteFunc(w.failed, same)
	case v.stopped() && !before.stopped() && !slices.ContainsFunc(w.failed, same):
		w.failed = append(w.failed, failure{v, by.at})
	}
}

// checkFailed checks that a pod which the controller resizes, or a built-in one makes, does not get a size that has failed. Those that
// somebody deletes under OnDelete do, and so do new ones of a DaemonSet.
func (h *history) checkFailed(w Write) {
	stored := w.pod()
	if stored == nil || w.ObjectRef.Resource != "pods" {
		return
	}
	work, _ := h.workload(stored)
	if work == nil {
		return
	}
	p := h.pods[stored.UID]
	made, known := h.template(stored)
	for _, f := range work.failed {
		gets := false
		switch {
		case !f.recorded.Before(w.Since):
		case p != nil:
			wanted := func(v version) bool { return v.edit != f.edit && v.lackedBy(stored) == "" }
			gets = w.resized && h.ours(w.User.Username) && f.lackedBy(p.last()) != "" && f.lackedBy(stored) == "" && !work.any(w.Since, wanted)
		case work.kind != "DaemonSet" && !work.any(w.Since, func(v version) bool { return v.onDelete }):
			gets = known && equality.Semantic.DeepEqual(sizeOf(made), sizeOf(f.template))
		}
		if gets {
			h.violate(w, Failed, "pods/"+stored.Name, "it got a size that had failed at %s", f.recorded.Format(time.TimeOnly))
		}
	}
}
