package webhook

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Write is a write to the API server, as admission sees it.
type Write struct {
	// Object is what is written, and Old what there was before; nil if the object is new.
	Object, Old *unstructured.Unstructured
	// Subresource that is written; empty for the object itself.
	Subresource string
	// User and FieldManager are who writes.
	User, FieldManager string
	// DryRun says that nothing is stored.
	DryRun bool
}

// Admit returns what the policies make of a write, each asked once. It fails where the write would.
func (p *Policies) Admit(ctx context.Context, w Write) (*unstructured.Unstructured, error) {
	kind, resource := w.resource()
	for _, name := range p.Names() {
		after, err := p.apply(ctx, p.byName[name], w.attributes(kind, resource))
		if err != nil {
			return nil, fmt.Errorf("evaluating the policy %s: %w", name, err)
		}
		if after, is := after.(*unstructured.Unstructured); is {
			w.Object = after
		}
	}
	return w.Object, nil
}

func (w Write) resource() (schema.GroupVersionKind, schema.GroupVersionResource) {
	kind := w.Object.GroupVersionKind()
	return kind, kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
}

func (w Write) attributes(kind schema.GroupVersionKind, resource schema.GroupVersionResource) admission.Attributes {
	operation, options := admission.Create, &unstructured.Unstructured{Object: map[string]any{"fieldManager": w.FieldManager}}
	options.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("CreateOptions"))
	if w.Old != nil {
		operation = admission.Update
		options.SetKind("UpdateOptions")
	}
	return admission.NewAttributesRecord(w.Object, orNil(w.Old), kind, w.Object.GetNamespace(), w.Object.GetName(), resource, w.Subresource,
		operation, options, w.DryRun, &user.DefaultInfo{Name: w.User})
}
