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
// subresource. The API server writes that entry together with the size. So a resize is
// recognised even when its edit was given up, and by a controller that was restarted.
func Ours(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == api.FieldManager && entry.Subresource == "resize"
}

// Recorded reports whether a managedFields entry lists what anybody has set through the resize
// subresource.
func Recorded(entry metav1.ManagedFieldsEntry) bool { return entry.Subresource == "resize" }

// owner is who was the last to set a value through the resize subresource. It is zero if
// nobody has: then the pod was created with the value.
type owner struct {
	ours  bool
	other string    // the field manager; empty if it is us
	at    time.Time // when that manager last set any value; zero if that is not recorded
}

// owners are the values of a pod that were set through the resize subresource, by us and by
// others.
type owners struct {
	entries []owned
	last    time.Time // when we last set one; zero if never
}

type owned struct {
	owner

	fields *fieldpath.Set
}

// ownersOf reads the owners from managedFields. It fails if an entry cannot be read.
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

// sideFields and kindFields are the names of fields in a pod's spec.
var (
	sideFields = map[Side]string{Request: "requests", Limit: "limits"}
	kindFields = map[kind]string{initContainer: "initContainers", regularContainer: "containers"}
)

// of returns the owner of a value; the zero owner if nobody has set it. A value that we have
// set is ours, even if others have set the same.
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
