package hash

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ignored are the paths of the values that never count.
var ignored = map[string]bool{
	"$patch": true, // of a ControllerRevision, which holds the template as a patch

	"spec.resources.requests.cpu":                 true,
	"spec.resources.requests.memory":              true,
	"spec.resources.limits.cpu":                   true,
	"spec.resources.limits.memory":                true,
	"spec.containers[].resources.requests.cpu":    true,
	"spec.containers[].resources.requests.memory": true,
	"spec.containers[].resources.limits.cpu":      true,
	"spec.containers[].resources.limits.memory":   true,
}

// rules mirror the defaulting that depends on other values of the same object, by the path of that object.
var rules = map[string]func(map[string]any){
	"spec":                 mergeServiceAccount, // SetDefaults_PodSpec
	"spec.containers[]":    defaultContainer,
	"spec.volumes[]":       defaultToEmptyDir,                                // SetDefaults_Volume
	"spec.volumes[].image": dropDefaultPullPolicy("reference", "pullPolicy"), // SetDefaults_Volume
}

// clean returns value in its canonical spelling: values that mean the same are equal then. Objects and lists are changed
// in place. The path is that of the field, with [] for any element of a list.
func clean(path string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		cleanMap(path, v)
	case []any:
		for i := range v { // nothing is dropped: positions count
			v[i] = clean(path+"[]", v[i])
		}
	default:
		if quantities(path) {
			return canonicalQuantity(v)
		}
	}
	return value
}

func cleanMap(path string, object map[string]any) {
	for key, value := range object {
		at := elementOf(path, key)
		if value = clean(at, value); counts(at, value) {
			object[key] = value
		} else {
			delete(object, key)
		}
	}
	if fields[path] == resourceListType {
		for name, value := range object {
			object[name] = canonicalQuantity(value)
		}
	}
	if rule, ok := rules[path]; ok {
		rule(object)
	}
}

// elementOf returns the path of an object's field.
func elementOf(path, key string) string {
	at := join(path, key)
	if at == "spec.initContainers" { // the same type with the same defaults
		return "spec.containers"
	}
	return at
}

// quantities reports whether the value at the path is a quantity, or a list of them by resource.
func quantities(path string) bool {
	t := fields[path]
	return t == quantityType || t == reflect.PointerTo(quantityType) || t == resourceListType
}

// counts reports whether a cleaned value of an object means something else than no value.
func counts(path string, value any) bool {
	if value == nil || ignored[path] {
		return false
	}
	if list, ok := value.([]any); ok && len(list) == 0 {
		return false
	}
	if isZero(value) && heldByValue(path) {
		return false
	}
	byDefault, ok := defaults[path]
	return !ok || !reflect.DeepEqual(value, byDefault)
}

func isZero(value any) bool {
	object, ok := value.(map[string]any)
	return ok && len(object) == 0 || value == "" || value == false || value == json.Number("0")
}

// canonicalQuantity returns the canonical spelling of a quantity, rounded up to milli as SetDefaults_ResourceList does.
// It returns a value that is no quantity as it is.
func canonicalQuantity(value any) any {
	quantity, err := resource.ParseQuantity(fmt.Sprint(value))
	if err != nil {
		return value
	}
	quantity.RoundUp(resource.Milli)
	return resource.NewDecimalQuantity(*quantity.AsDec(), resource.DecimalSI).String()
}

// mergeServiceAccount drops serviceAccount, the deprecated alias of serviceAccountName. Where only the alias has a value,
// serviceAccountName gets it.
func mergeServiceAccount(spec map[string]any) {
	alias, ok := spec["serviceAccount"]
	if _, named := spec["serviceAccountName"]; ok && !named {
		spec["serviceAccountName"] = alias
	}
	delete(spec, "serviceAccount")
}

// defaultContainer drops from a container the values that it would have by default.
func defaultContainer(container map[string]any) {
	dropDefaultPullPolicy("image", "imagePullPolicy")(container) // SetDefaults_Container
	keepRestartContainer(container)
}

// keepRestartContainer drops NotRequired from a container's resizePolicy, and sorts what is left by the resource. For
// the kubelet, NotRequired and no entry are the same (computePodResizeAction in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go of Kubernetes).
func keepRestartContainer(container map[string]any) {
	policies, ok := container["resizePolicy"].([]any)
	if !ok {
		return
	}
	policies = slices.DeleteFunc(policies, func(p any) bool {
		object, ok := p.(map[string]any)
		return ok && object["restartPolicy"] == string(corev1.NotRequired)
	})
	slices.SortStableFunc(policies, func(a, b any) int { return cmp.Compare(resourceOf(a), resourceOf(b)) })
	if container["resizePolicy"] = policies; len(policies) == 0 {
		delete(container, "resizePolicy")
	}
}

func resourceOf(policy any) string {
	object, _ := policy.(map[string]any)
	name, _ := object["resourceName"].(string)
	return name
}

func defaultToEmptyDir(volume map[string]any) {
	for key := range volume {
		if key != "name" {
			return
		}
	}
	volume["emptyDir"] = map[string]any{}
}

func dropDefaultPullPolicy(imageKey, policyKey string) func(map[string]any) {
	return func(object map[string]any) {
		image, _ := object[imageKey].(string)
		if object[policyKey] == string(defaultPullPolicy(image)) {
			delete(object, policyKey)
		}
	}
}

// defaultPullPolicy returns Always for an image with the tag latest, or with neither tag nor digest, and IfNotPresent
// for any other. As for the API server, an image that cannot be parsed is one of the others.
func defaultPullPolicy(image string) corev1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	tagged, ok := reference.TagNameOnly(named).(reference.Tagged)
	if ok && tagged.Tag() == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// join appends a key to a path. A key that could be taken for a path itself goes into brackets.
func join(path, key string) string {
	switch {
	case key == "": // [] is any element of a list
		return path + `[""]`
	case strings.ContainsAny(key, "./[]"):
		return path + "[" + key + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}
