package resize

import (
	"bytes"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Ours reports whether a managedFields entry lists what we have set through the resize
// subresource. It is what makes a resize recognisable after an edit was given up:
// the API server records it in the very write that sets the size.
func Ours(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == api.FieldManager && entry.Subresource == "resize"
}

// Recorded reports whether a managedFields entry lists what anybody has set through the resize
// subresource.
func Recorded(entry metav1.ManagedFieldsEntry) bool { return entry.Subresource == "resize" }

// owner is who was the last to set a value through the resize subresource. What nobody has
// set there was given to the pod at its birth.
type owner struct {
	ours  bool
	other string    // the field manager, if it is not us
	at    time.Time // when that one last set any
}

// owners are the values of a pod that were set through the resize subresource, by us and by
// others.
type owners struct {
	entries []owned
	last    time.Time // when we last did
}

type owned struct {
	owner

	fields *fieldpath.Set
}

func ownersOf(pod *corev1.Pod) (owners, error) {
	var o owners
	for _, entry := range pod.ManagedFields {
		if !Recorded(entry) || entry.FieldsV1 == nil {
			continue
		}
		e := owned{owner{ours: Ours(entry)}, &fieldpath.Set{}}
		if err := e.fields.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			return owners{}, fmt.Errorf("reading managedFields of pod %s: %w", pod.Name, err)
		}
		if !e.ours {
			e.other = entry.Manager
		}
		if entry.Time != nil {
			e.at = entry.Time.Time
		}
		if e.ours && e.at.After(o.last) {
			o.last = e.at
		}
		o.entries = append(o.entries, e)
	}
	return o, nil
}

// lists are the names of the fields, by the side of a value and the kind of a part.
var (
	sideFields = map[Side]string{Request: "requests", Limit: "limits"}
	kindFields = map[kind]string{initContainer: "initContainers", regularContainer: "containers"}
)

// of returns the owner of a value. Where others have set the same as we, it is ours.
func (o owners) of(p part, side Side, name corev1.ResourceName) owner {
	path := []any{"spec"}
	if p.kind != podLevel {
		path = append(path, kindFields[p.kind], fieldpath.KeyByFields("name", p.name))
	}
	field := fieldpath.MakePathOrDie(append(path, "resources", sideFields[side], string(name))...)
	var of owner
	for _, e := range o.entries {
		if e.fields.Has(field) && !of.ours {
			of = e.owner
		}
	}
	return of
}
