package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// unsaid takes out of a workload, as a manifest edits it, what whoever applies manifests has set, and this one does not say any more.
// Who that is, managedFields say: the last manager that has applied the images server-side, or Helm. Server-side apply, and we, leave
// what others own, too. Where it is not known, the sizes are returned that the manifest does not say, as `app: memory limit`.
func unsaid(live, manifest, after *unstructured.Unstructured) (unknown []string, err error) {
	own, others, err := owned(live.GetManagedFields())
	if err != nil {
		return nil, fmt.Errorf("reading the managedFields of %s: %w", nameOf(live), err)
	}
	if own == nil {
		if live.GetAnnotations()[corev1.LastAppliedConfigAnnotation] == "" {
			unknown = unsaidSizes(manifest, after)
		}
		return unknown, nil
	}
	for path := range own.Difference(others).All() {
		within := others
		for _, e := range path {
			within = within.WithPrefix(e)
		}
		if within.Empty() {
			prune(after.Object, manifest.Object, path)
		}
	}
	return nil, nil
}

// helm are the managers by which Helm writes where it does not apply server-side. It removes what its manifest from before has, and the
// new one has not.
var helm = []string{"helm", "helm-controller"}

// owned returns the fields of the manager that applies the template of a workload, which are nil if there is none, and those of all others.
func owned(entries []metav1.ManagedFieldsEntry) (own, others *fieldpath.Set, err error) {
	of := make([]*fieldpath.Set, len(entries))
	by := -1
	for i, entry := range entries {
		of[i] = &fieldpath.Set{}
		if entry.FieldsV1 == nil {
			continue
		}
		if err := of[i].FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			return nil, nil, err //nolint:wrapcheck // by the caller
		}
		applies, helms := entry.Operation == metav1.ManagedFieldsOperationApply, slices.Contains(helm, entry.Manager)
		if entry.Subresource == "" && (applies || helms && by < 0) && ownsImage(of[i]) {
			by = i
		}
	}
	if by < 0 {
		return nil, nil, nil
	}
	if own = of[by]; entries[by].Operation != metav1.ManagedFieldsOperationApply {
		own = &fieldpath.Set{}
		for path := range of[by].All() {
			if neverDefaulted(path) {
				own.Insert(slices.Clone(path))
			}
		}
	}
	others = &fieldpath.Set{}
	for i := range of {
		if i != by {
			others = others.Union(of[i])
		}
	}
	return own, others, nil
}

// ownsImage reports whether the fields are those of whoever owns the template: an image, of which each container has one.
func ownsImage(fields *fieldpath.Set) (owns bool) {
	for path := range fields.All() { // which cannot be broken off
		owns = owns || inTemplate(path) && isField(path[len(path)-1], "image")
	}
	return owns
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
