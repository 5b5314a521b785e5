package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
)

// history is what a session keeps of a set: its revisions.
type history struct {
	generation int64 // of the set, when they were read
	// revisions by the hash in their label, which is the one that their pods carry, and by that of those that are unmarked. What one
	// says never changes. One that is gone, or that nobody can read, is nil.
	revisions map[string]*revision
	newest    *revision
	// last is the revision with the highest number, whatever it says; nil if there is none.
	last *revision
	// order of the pods by node when they were sorted last: the next ones are nearly in order then.
	order []int
}

// revision is what a ControllerRevision says.
type revision struct {
	name, hash string
	number     int64
	template   *hash.Template
}

// unmarked is the hash that a pod carries which was made of the revision, and is not to count as one of it: then the DaemonSet controller
// takes it for an older one, and everybody else knows what it is. It is the hash, encoded as if it were none yet. The fence
// around our ServiceAccount lets no label through that could be no hash.
func (r *revision) unmarked() string { return rand.SafeEncodeString(r.hash) }

// HasSynced is that of controller.KindState: revisions are read when they are needed.
func (*history) HasSynced() bool { return true }

// Size is that of controller.KindState.
func (h *history) Size() (size int) {
	for of, r := range h.revisions {
		if r != nil && r.hash == of {
			size += len(r.template.Raw)
		}
	}
	return size
}

// read takes over what is stored of the set, and finds the revision of a template.
//
// Several may say the same, spelled otherwise, and the set has but the one that is spelled as its
// template: another spelling is a new revision, though it is no new generation. Until the DaemonSet
// controller has made it, there is none: pods of another one would be restarted after a release.
func (h *history) read(set *appsv1.DaemonSet, template *corev1.PodTemplateSpec, stored []appsv1.ControllerRevision) {
	h.revisions, h.newest, h.last = map[string]*revision{}, nil, nil
	wanted := hash.Brief(template).Name
	for i := range stored {
		s := &stored[i]
		r := &revision{name: s.Name, hash: s.Labels[appsv1.ControllerRevisionHashLabelKey], number: s.Revision}
		if !revisions.BelongsTo(set, s, set.Name+"-"+r.hash) {
			continue
		}
		var err error
		if r.template, err = hash.OfRevision(s); err != nil {
			continue
		}
		h.revisions[r.hash], h.revisions[r.unmarked()] = r, r
		if h.last == nil || r.number > h.last.number {
			h.last = r
		}
		if (h.newest == nil || r.number > h.newest.number) && hash.Brief(r.template.PodTemplateSpec).Name == wanted {
			h.newest = r
		}
	}
}

// templateGeneration counts the templates of the set. The API server keeps it, and the DaemonSet
// controller labels pods with it.
func templateGeneration(set *appsv1.DaemonSet) string {
	return set.Annotations[appsv1.DeprecatedTemplateGeneration]
}
