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

// Ours tells whether a managedFields entry lists what we set through the resize
// subresource. It is what makes a resize recognisable after an edit was given up:
// the API server records it in the very write that sets the size.
func Ours(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == api.FieldManager && entry.Subresource == "resize"
}

// ours are the fields of a pod that we were the last to set through the resize
// subresource.
type ours struct {
	sets []*fieldpath.Set
	last time.Time
}

func oursOf(pod *corev1.Pod) (ours, error) {
	var o ours
	for _, entry := range pod.ManagedFields {
		if !Ours(entry) || entry.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			return ours{}, fmt.Errorf("reading managedFields of pod %s: %w", pod.Name, err)
		}
		o.sets = append(o.sets, set)
		if entry.Time != nil && entry.Time.After(o.last) {
			o.last = entry.Time.Time
		}
	}
	return o, nil
}

// lists are the names of the fields, by the side of a value and the kind of a part.
var (
	sideFields = map[Side]string{Request: "requests", Limit: "limits"}
	kindFields = map[kind]string{initContainer: "initContainers", regularContainer: "containers"}
)

func (o ours) have(p part, side Side, name corev1.ResourceName) bool {
	path := []any{"spec"}
	if p.kind != podLevel {
		path = append(path, kindFields[p.kind], fieldpath.KeyByFields("name", p.name))
	}
	field := fieldpath.MakePathOrDie(append(path, "resources", sideFields[side], string(name))...)
	for _, set := range o.sets {
		if set.Has(field) {
			return true
		}
	}
	return false
}
