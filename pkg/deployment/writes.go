package deployment

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// detach takes a pod out of its ReplicaSet and puts it under the Deployment itself. So the pod
// is never without an owner, which the garbage collector looks for.
type detach struct{ restart rollout.Restart }

// evict evicts a pod that only a new one can replace, or that has been replaced.
type evict struct {
	restart rollout.Restart
	down    bool // it is not Ready, so that it is deleted
}

// reattach puts detached pods under their ReplicaSets again.
type reattach struct {
	pods []*corev1.Pod
	came []*corev1.Pod // in their place, and go first
}

// removeSet removes a ReplicaSet that has no pods, and the same template as another one.
type removeSet struct{ set *replicaSet }

// saveHistory writes the former template of a ReplicaSet into the history: into another
// ReplicaSet that is used again, or into a new one, with none of the names that are taken.
type saveHistory struct {
	set, reuse *replicaSet // reuse may be nil
	taken      []*replicaSet
}

// adopt makes a ReplicaSet the Deployment's new one or, with back, the one that it was before a rollout that was stopped.
type adopt struct {
	set      *replicaSet
	template *hash.Template
	restarts []string // the pods that lack its size
	forgets  string   // why the former template is not in the history; empty if it is, or need not be
	back     bool
	rejects  bool // a kubelet rejects what the ReplicaSet makes, again and again
}

// closeAdoption closes the record of adoption of a ReplicaSet, or begins one that is closed: no other
// pods than these may be restarted.
type closeAdoption struct {
	set      *replicaSet
	restarts []string
}

// endAdoption removes the record of adoption from a ReplicaSet.
type endAdoption struct {
	set     *replicaSet
	forgets string // as in adopt
}

// revert gives a ReplicaSet a template that its pods were made from, so that the Deployment
// controller takes it for an old one.
type revert struct {
	set      *replicaSet
	template *hash.Template
}

// Guards is that of rollout.Guarding.
func (w adopt) Guards() bool { return w.back }

func (w detach) String() string {
	return "detach pod " + w.restart.Member.Name + ": " + w.restart.Reason
}

func (w evict) String() string {
	verb := "evict"
	if w.down {
		verb = "delete"
	}
	return verb + " pod " + w.restart.Member.Name + ": " + w.restart.Reason
}

func (w reattach) String() string {
	return "give pods back to their ReplicaSets: " + strings.Join(namesOf(w.pods), ", ")
}

func (w removeSet) String() string { return "remove ReplicaSet " + w.set.Name }

func (w saveHistory) String() string {
	if w.reuse != nil {
		return "keep the former template of ReplicaSet " + w.set.Name + " in ReplicaSet " + w.reuse.Name
	}
	return "keep the former template of ReplicaSet " + w.set.Name + " in a new one"
}

func (w adopt) String() string { return "give ReplicaSet " + w.set.Name + " the new template" }

func (w closeAdoption) String() string { return "mark ReplicaSet " + w.set.Name + " as adopted" }

func (w endAdoption) String() string { return "take the mark from ReplicaSet " + w.set.Name }

func (w revert) String() string { return "give ReplicaSet " + w.set.Name + " a former template back" }
