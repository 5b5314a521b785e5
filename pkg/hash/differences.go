package hash

import (
	"reflect"
	"strconv"
)

// differences returns the paths at which a and b differ: path itself, or paths below it. There are none exactly if a and
// b are equal. A value that is absent is nil.
func differences(path string, a, b any) []string {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	var found []string
	if objectA, objectB, ok := both[map[string]any](a, b); ok {
		found = objectDifferences(path, objectA, objectB)
	} else if listA, listB, ok := both[[]any](a, b); ok {
		found = listDifferences(path, listA, listB)
	}
	if len(found) == 0 {
		return []string{path}
	}
	return found
}

// both returns a and b as collections of type T, and whether both of them are. nil counts as an empty collection, so
// that the path of an added element does not depend on whether it is the first.
func both[T any](a, b any) (T, T, bool) {
	x, okA := a.(T)
	y, okB := b.(T)
	return x, y, (okA || a == nil) && (okB || b == nil)
}

func objectDifferences(path string, a, b map[string]any) []string {
	var found []string
	for key := range union(a, b) {
		found = append(found, differences(join(path, key), a[key], b[key])...)
	}
	return found
}

func listDifferences(path string, a, b []any) []string {
	elementsA, okA := byName(a)
	elementsB, okB := byName(b)
	if !okA || !okB {
		elementsA, elementsB = byIndex(a), byIndex(b)
	}
	var found []string
	for key := range union(elementsA, elementsB) {
		at := path + "[" + key + "]"
		elementA, inA := elementsA[key]
		elementB, inB := elementsB[key]
		if inA != inB {
			found = append(found, at)
			continue
		}
		found = append(found, differences(at, elementA, elementB)...)
	}
	return found
}

// byName returns the elements by their names, and whether every element has a name of its own.
func byName(list []any) (map[string]any, bool) {
	elements := map[string]any{}
	for _, element := range list {
		object, _ := element.(map[string]any)
		name, ok := object["name"].(string)
		if _, taken := elements[name]; !ok || taken {
			return nil, false
		}
		elements[name] = element
	}
	return elements, true
}

func byIndex(list []any) map[string]any {
	elements := map[string]any{}
	for i, element := range list {
		elements[strconv.Itoa(i)] = element
	}
	return elements
}

func union(a, b map[string]any) map[string]bool {
	keys := map[string]bool{}
	for key := range a {
		keys[key] = true
	}
	for key := range b {
		keys[key] = true
	}
	return keys
}
