package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// remove takes out of a workload, as a manifest edits it, what its applier owns, and this one does not say any more. Server-side apply,
// and we, leave what others own, too.
func remove(own, others *fieldpath.Set, after, manifest *unstructured.Unstructured) {
	for path := range own.Difference(others).All() {
		within := others
		for _, e := range path {
			within = within.WithPrefix(e)
		}
		if within.Empty() {
			prune(after.Object, manifest.Object, path)
		}
	}
}

// helm are the managers by which Helm writes where it does not apply server-side. It removes what its manifest from before has, and the
// new one has not.
var helm = []string{"helm", "helm-controller"}

// owned returns the fields of whoever applies a manifest server-side, or by Helm, and those of all others. If there are several, it is
// the one whose fields match the manifest best, or the named manager, which owns nothing if it has applied nothing yet. Own is nil if it
// is nobody.
func owned(live, manifest *unstructured.Unstructured, manager string) (own, others *fieldpath.Set, err error) {
	entries := live.GetManagedFields()
	of, err := fieldsOf(entries)
	if err != nil {
		return nil, nil, err
	}
	by, best := -1, math.MinInt
	if manager != "" {
		own = &fieldpath.Set{}
	}
	for i, entry := range entries {
		if !appliesAs(entry, manager) {
			continue
		}
		fields := written(entry, of[i], manifest)
		if n := match(fields, manifest); n > best {
			own, by, best = fields, i, n
		}
	}
	if all := united(of, -1); manager == "" && by >= 0 && !saysImage(manifest, own) && (saysImage(manifest, all) || best <= 0) {
		own = nil // it has applied sizes or other containers only, or another manager applies this manifest
	}
	return own, united(of, by), nil
}

// fieldsOf returns the fields of each entry.
func fieldsOf(entries []metav1.ManagedFieldsEntry) ([]*fieldpath.Set, error) {
	of := make([]*fieldpath.Set, len(entries))
	for i, entry := range entries {
		of[i] = &fieldpath.Set{}
		if entry.FieldsV1 == nil {
			continue
		}
		if err := of[i].FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			return nil, err //nolint:wrapcheck // by the caller
		}
	}
	return of, nil
}

// united returns the fields of all but one.
func united(of []*fieldpath.Set, but int) *fieldpath.Set {
	all := &fieldpath.Set{}
	for i := range of {
		if i != but {
			all = all.Union(of[i])
		}
	}
	return all
}

// appliesAs reports whether an entry is that of a manager who applies manifests: of the named one, if any is.
func appliesAs(entry metav1.ManagedFieldsEntry, manager string) bool {
	applies := entry.Operation == metav1.ManagedFieldsOperationApply || slices.Contains(helm, entry.Manager)
	return applies && entry.Subresource == "" && entry.Manager == cmp.Or(manager, entry.Manager)
}

// written returns the fields of a manager without those that the API server may have filled in, which nobody removes.
func written(entry metav1.ManagedFieldsEntry, fields *fieldpath.Set, manifest *unstructured.Unstructured) *fieldpath.Set {
	if entry.Operation == metav1.ManagedFieldsOperationApply {
		return fields
	}
	return filtered(fields, func(path fieldpath.Path) bool { return neverDefaulted(path) || says(manifest.Object, path) })
}

// match is how many of the fields a manifest says, less those that it does not say.
func match(fields *fieldpath.Set, manifest *unstructured.Unstructured) (n int) {
	for path := range fields.All() { // which cannot be broken off
		if says(manifest.Object, path) {
			n++
		} else {
			n--
		}
	}
	return n
}

// likeLast reports whether a manifest says most of what was last applied client-side. What only that said goes, too: server-side apply takes it over.
func likeLast(live, manifest *unstructured.Unstructured, all *fieldpath.Set) bool {
	var last map[string]any
	_ = json.Unmarshal([]byte(live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]), &last) // there may be none
	return match(filtered(all, func(path fieldpath.Path) bool { return says(last, path) }), manifest) > 0
}

func filtered(fields *fieldpath.Set, keep func(fieldpath.Path) bool) *fieldpath.Set {
	kept := &fieldpath.Set{}
	for path := range fields.All() {
		if keep(path) {
			kept.Insert(slices.Clone(path))
		}
	}
	return kept
}

// saysImage reports whether a manifest says an image that is among the fields. Each container has one.
func saysImage(manifest *unstructured.Unstructured, fields *fieldpath.Set) bool {
	return !filtered(fields, func(path fieldpath.Path) bool {
		return inTemplate(path) && isField(path[len(path)-1], "image") && says(manifest.Object, path)
	}).Empty()
}

// says reports whether an object has something at the path.
func says(object any, path fieldpath.Path) bool {
	for _, e := range path {
		switch of := object.(type) {
		case map[string]any:
			if e.FieldName == nil {
				return false
			}
			object = of[*e.FieldName]
		case []any:
			i := item(of, e)
			if i < 0 {
				return false
			}
			object = of[i]
		default:
			return false
		}
	}
	return object != nil
}

// neverDefaulted reports whether a field of the template was written by whoever owns it. Who does not apply server-side owns what the
// API server has filled in, too: that is no size, and no item of a list.
func neverDefaulted(path fieldpath.Path) bool {
	return inTemplate(path) && (path[len(path)-1].Key != nil || slices.ContainsFunc(path, func(e fieldpath.PathElement) bool { return isField(e, "resources") }))
}

func inTemplate(path fieldpath.Path) bool { return len(path) > 2 && isField(path[1], "template") }

func isField(e fieldpath.PathElement, name string) bool {
	return e.FieldName != nil && *e.FieldName == name
}

// prune takes what is at the path out of have, unless said has something there, too. It returns what is left.
func prune(have, said any, path fieldpath.Path) any {
	switch have := have.(type) {
	case map[string]any:
		if path[0].FieldName == nil || have[*path[0].FieldName] == nil {
			return have
		}
		name := *path[0].FieldName
		theirs, _ := said.(map[string]any)
		if len(path) > 1 {
			have[name] = prune(have[name], theirs[name], path[1:])
		}
		left, isMap := have[name].(map[string]any)
		if theirs[name] == nil && (len(path) == 1 || isMap && len(left) == 0) {
			delete(have, name)
		}
		return have
	case []any:
		theirs, _ := said.([]any)
		return pruneItem(have, theirs, path)
	default:
		return have
	}
}

// pruneItem is prune for a list.
func pruneItem(have, said []any, path fieldpath.Path) []any {
	i, at := item(have, path[0]), item(said, path[0])
	switch {
	case i < 0:
	case len(path) == 1 && at < 0:
		return slices.Delete(have, i, i+1)
	case len(path) > 1:
		var theirs any
		if at >= 0 {
			theirs = said[at]
		}
		have[i] = prune(have[i], theirs, path[1:])
	}
	return have
}

// item returns where a list has the item that a path names; -1 if nowhere. A manifest may leave out a part of its key that has a default.
func item(list []any, e fieldpath.PathElement) int {
	return slices.IndexFunc(list, func(of any) bool {
		fields, is := of.(map[string]any)
		if !is || e.Key == nil {
			return false
		}
		said := 0
		for _, part := range *e.Key {
			has, there := fields[part.Name]
			if there && fmt.Sprint(has) != fmt.Sprint(part.Value.Unstructured()) {
				return false
			}
			if there {
				said++
			}
		}
		return said > 0
	})
}

// unsaidSizes lists what an edited workload has of cpu and memory, and the manifest does not say.
func unsaidSizes(manifest, after *unstructured.Unstructured) (unsaid []string) {
	for _, list := range []string{"initContainers", "containers"} {
		theirs, _, _ := unstructured.NestedSlice(manifest.Object, "spec", "template", "spec", list)
		ours, _, _ := unstructured.NestedSlice(after.Object, "spec", "template", "spec", list)
		for _, c := range ours {
			container, _ := c.(map[string]any)
			i := slices.IndexFunc(theirs, func(their any) bool { t, is := their.(map[string]any); return is && t["name"] == container["name"] })
			if i < 0 {
				continue
			}
			for _, side := range []string{"requests", "limits"} {
				has, _, _ := unstructured.NestedMap(container, "resources", side)
				for _, name := range []string{"cpu", "memory"} {
					if _, says, _ := unstructured.NestedFieldNoCopy(theirs[i].(map[string]any), "resources", side, name); has[name] != nil && !says {
						unsaid = append(unsaid, fmt.Sprintf("%s: %s %s", container["name"], name, strings.TrimSuffix(side, "s")))
					}
				}
			}
		}
	}
	return unsaid
}
