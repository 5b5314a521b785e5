package simulated

import (
	"context"
	"fmt"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/webhook"
)

// Writer is who writes a workload.
type Writer struct{ user, manager string }

// ByWhom is the controller, a user of the command inplace-rollout release, or any other user.
func ByWhom(controller, releasing bool) Writer {
	switch {
	case controller:
		return Writer{user: deploy.User, manager: api.FieldManager}
	case releasing:
		return Writer{user: "somebody", manager: api.ReleaseManager}
	default:
		return Writer{user: "somebody", manager: "kubectl"}
	}
}

// builtIn is the controller of kube-controller-manager that writes the status.
var builtIn = Writer{user: "system:kube-controller-manager", manager: "kube-controller-manager"}

// Admission has the policies of deploy/cluster that hold the workloads of one kind. The API server's own
// library evaluates them.
type Admission[W any, P interface {
	*W
	Object
}] struct {
	policies, former func() *webhook.Policies // former are those of another commit; nil where nobody compares
	last             *before
}

// before is the object that was there before the last write.
type before struct {
	sync.Mutex

	typed   Object
	untyped *unstructured.Unstructured
}

// answering are the policies that are asked.
var answering = []string{"inplace-rollout-hold", "inplace-rollout-status"}

// NewAdmission is for workloads of one kind.
func NewAdmission[W any, P interface {
	*W
	Object
}]() Admission[W, P] {
	return Admission[W, P]{last: &before{}, policies: sync.OnceValue(func() *webhook.Policies {
		return sure(webhook.Load(deploy.Cluster, deploy.User, answering...))
	}), former: sync.OnceValue(func() *webhook.Policies {
		folder := os.Getenv("FORMER_POLICIES") // see `make former`
		if folder == "" {
			return nil
		}
		return sure(webhook.Load(os.DirFS(folder), deploy.User, answering...))
	})}
}

// Admit has the policies change an object that is written, where old was before; nil for a new one. Where
// others, such as a webhook, change that, too, the policies are asked once more. After some writes they are asked
// about their own answer, and Admit panics if they make another thing of it.
func (a Admission[W, P]) Admit(old, written P, by Writer, others func(P)) {
	w := a.write(old, written, by, "")
	if others != nil {
		decode(a.ask(w), written)
		others(written)
		w.Object = untyped(written)
	}
	w.Object = a.ask(w)
	if number(written.GetResourceVersion())%4 == 0 {
		if again := a.ask(w); !equality.Semantic.DeepEqual(w.Object, again) {
			panic(fmt.Sprintf("the policy says\n%+v, and asked again\n%+v", w.Object, again))
		}
	}
	decode(w.Object, written)
}

// AdmitStatus has the policies change the status that the controller writes, or a built-in one.
func (a Admission[W, P]) AdmitStatus(old, written P, ours bool) {
	by := builtIn
	if ours {
		by = ByWhom(true, false)
	}
	w := a.write(old, written, by, "status")
	if after := a.ask(w); after != w.Object {
		decode(after, written)
	}
}

func (a Admission[W, P]) write(old, written P, by Writer, subresource string) webhook.Write {
	w := webhook.Write{Object: untyped(written), Subresource: subresource, User: by.user, FieldManager: by.manager}
	if old != nil {
		a.last.Lock()
		defer a.last.Unlock()
		if a.last.typed != Object(old) || a.last.untyped.GetResourceVersion() != old.GetResourceVersion() {
			a.last.typed, a.last.untyped = old, untyped(old)
		}
		w.Old = a.last.untyped
	}
	return w
}

func (a Admission[W, P]) ask(w webhook.Write) *unstructured.Unstructured {
	after := sure(a.policies().Admit(context.Background(), w))
	if former := a.former(); former != nil {
		if is, was := after, sure(former.Admit(context.Background(), w)); !equality.Semantic.DeepEqual(is, was) {
			panic(fmt.Sprintf("the policies make of %+v\n%+v, and those of the other commit\n%+v", w, is, was))
		}
	}
	return after
}

func decode[W any](from *unstructured.Unstructured, to *W) {
	*to = *new(W)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, to); err != nil {
		panic(err)
	}
}

// untyped is an object as admission gets it.
func untyped(object Object) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: sure(runtime.DefaultUnstructuredConverter.ToUnstructured(object))}
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		panic(err)
	}
	u.SetGroupVersionKind(kinds[0])
	return u
}

func sure[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
