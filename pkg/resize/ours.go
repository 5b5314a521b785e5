package resize

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
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

// owned are values of a pod, or of a part of it, that were set through the resize subresource.
type owned struct {
	owner

	fields *fieldpath.Set
}

// owners are what each manager has set of the values of a pod.
type owners []owned

// ownersOf reads the owners from managedFields. It fails if an entry cannot be read.
func ownersOf(pod *corev1.Pod) (owners, error) {
	var o owners
	for _, entry := range pod.ManagedFields {
		if !Recorded(entry) || entry.FieldsV1 == nil {
			continue
		}
		fields, err := fieldsOf(entry.FieldsV1)
		if err != nil {
			return nil, fmt.Errorf("reading managedFields of pod %s: %w", pod.Name, err)
		}
		e := owned{owner{ours: Ours(entry)}, fields}
		if !e.ours {
			e.other = entry.Manager
		}
		if entry.Time != nil {
			e.at = entry.Time.Time
		}
		o = append(o, e)
	}
	return o, nil
}

// fieldSets are those that were read, by their text: all pods of a workload have the same few.
var fieldSets = lru.New(256)

// longestKept bounds the text of a set that is kept, in bytes, so that nobody fills the memory with what they write into a pod.
const longestKept = 4 << 10

// fieldsOf reads a set of fields. It is shared: do not change it.
func fieldsOf(v1 *metav1.FieldsV1) (*fieldpath.Set, error) {
	text := v1.GetRawString()
	if known, is := fieldSets.Get(text); is {
		return known.(*fieldpath.Set), nil
	}
	fields := &fieldpath.Set{}
	if err := fields.FromJSON(strings.NewReader(text)); err != nil {
		return nil, err
	}
	if len(text) <= longestKept {
		fieldSets.Add(text, fields)
	}
	return fields, nil
}

// last returns when we last set a value; zero if we never have.
func (o owners) last() time.Time {
	var last time.Time
	for _, e := range o {
		if e.ours && e.at.After(last) {
			last = e.at
		}
	}
	return last
}

// sideFields and kindFields are the names of fields in a pod's spec.
var (
	sideFields = map[Side]string{Request: "requests", Limit: "limits"}
	kindFields = map[kind]string{initContainer: "initContainers", regularContainer: "containers"}
)

// in returns the owners of the values of p.
func (o owners) in(p part) owners {
	if len(o) == 0 {
		return nil
	}
	path := fieldpath.Path{fieldpath.FieldNameElement("spec")}
	if p.kind != podLevel {
		path = append(path, fieldpath.FieldNameElement(kindFields[p.kind]), fieldpath.PathElement{Key: fieldpath.KeyByFields("name", p.name)})
	}
	path = append(path, fieldpath.FieldNameElement("resources"))
	of := slices.Clone(o)
	for i := range of {
		for _, field := range path {
			of[i].fields = of[i].fields.WithPrefix(field)
		}
	}
	return of
}

// of returns the owner of a value of the part that o is about; the zero owner if nobody has set
// it. A value that we have set is ours, even if others have set the same.
func (o owners) of(side Side, name corev1.ResourceName) owner {
	if len(o) == 0 {
		return owner{}
	}
	var of owner
	path := fieldpath.Path{fieldpath.FieldNameElement(sideFields[side]), fieldpath.FieldNameElement(string(name))}
	for _, e := range o {
		if !of.ours && e.fields.Has(path) {
			of = e.owner
		}
	}
	return of
}

// SetBy returns the field manager that was the last to set a container's value through the resize
// subresource, and when it last set any; empty if nobody has, and the pod was created with it. It
// fails if the pod's managedFields cannot be read.
func SetBy(pod *corev1.Pod, container string, side Side, name corev1.ResourceName) (manager string, at time.Time, err error) {
	all, err := ownersOf(pod)
	if err != nil {
		return "", time.Time{}, err
	}
	for _, p := range parts(&pod.Spec) {
		if p.kind != podLevel && p.name == container {
			by := all.in(p).of(side, name)
			if manager = by.other; by.ours {
				manager = api.FieldManager
			}
			return manager, by.at, nil
		}
	}
	return "", time.Time{}, nil
}
