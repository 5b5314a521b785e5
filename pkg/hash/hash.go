// Package hash compares pod templates without their cpu and memory. Two templates with the same resource-free hash
// differ in nothing else, so that an edit from one to the other is resources-only. The idea is that of the 2017
// proposal for vertical scaling of StatefulSets. Which templates count as the same follows from Kubernetes' own
// defaulting.
//
// Templates are read as raw JSON and not through the API types: a field that these do not know yet counts too.
package hash

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// size is the length of a hash in bytes. Half a SHA-256 is plenty: templates are only compared with those of the same
// workload.
const size = 16

// Of returns the resource-free hash of a pod template, as 32 lower-case hexadecimal digits.
//
// Cpu and memory, as requests or limits of a container, an init container or the pod as a whole, do not count. Nor does
// the spelling of a template: quantities such as 1000m and 1, fields that Kubernetes defaults, a resizePolicy that
// says NotRequired, null, empty lists, the order of keys, and the "$patch" key that a ControllerRevision adds.
// Everything else counts.
//
// It fails if raw is not one JSON object.
func Of(raw []byte) (string, error) {
	template, err := canonical(raw)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(template)
	if err != nil {
		return "", fmt.Errorf("encoding pod template: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:size]), nil
}

// Text names a pod template as it is written: two have the same one exactly when they are written in the same way.
func Text(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:size])
}

// Differences returns the paths at which two pod templates differ, sorted. What does not count for [Of] does not count
// here either: there are no paths exactly when the hashes are equal.
//
// The path of an element of a list has its name if all elements have one, as in spec.containers[app].image, and its
// index otherwise. If nothing but the order of a list differs, the path is that of the list.
//
// It fails if a or b is not one JSON object.
func Differences(a, b []byte) ([]string, error) {
	templateA, err := canonical(a)
	if err != nil {
		return nil, fmt.Errorf("reading the first template: %w", err)
	}
	templateB, err := canonical(b)
	if err != nil {
		return nil, fmt.Errorf("reading the second template: %w", err)
	}
	paths := differences("", templateA, templateB)
	slices.Sort(paths)
	return paths, nil
}

// canonical returns what counts of a template, in its canonical spelling. It fails if raw is not one JSON object.
func canonical(raw []byte) (any, error) {
	template, err := decode(raw)
	if err != nil {
		return nil, err
	}
	return clean("", template), nil
}

func decode(raw []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("decoding pod template: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decoding pod template: there is more after the JSON object")
	}
	template, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("decoding pod template: not a JSON object")
	}
	return template, nil
}
