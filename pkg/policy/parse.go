package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Policy says whether a pod can take a change of one resource live.
type Policy string

// The policies, as the proposal calls them.
const (
	LiveResizeable Policy = "LiveResizeable"
	RestartOnly    Policy = "RestartOnly"
)

// Action is how the user wants an edit to be carried out. None means LiveResizePreferred.
type Action string

// The actions, as the proposal calls them.
const (
	Restart             Action = "Restart"
	LiveResize          Action = "LiveResize"
	LiveResizePreferred Action = "LiveResizePreferred"
)

// Actions are the names of all that a workload can have.
var Actions = []string{string(Restart), string(LiveResize), string(LiveResizePreferred)}

// Settings are what the annotations of a workload say.
type Settings struct {
	// Action is empty where the annotation says nothing.
	Action Action
	// DeferredTimeout and NotReadyTimeout are nil where the annotation says nothing.
	DeferredTimeout, NotReadyTimeout *time.Duration
	// Guard is nil where no annotation asks for a guarded rollout.
	Guard *Guard

	entries map[key]Policy
}

// key is what one entry of the policy annotation is about.
type key struct {
	container string // empty for every container, and for the pod's own resources
	resource  corev1.ResourceName
	direction direction // empty for both
}

// String is the key as the user writes it.
func (k key) String() string {
	entry := string(k.resource)
	if k.container != "" {
		entry = k.container + "/" + entry
	}
	if k.direction != "" {
		entry += ":" + string(k.direction)
	}
	return entry
}

// Read reads all annotations. It fails if one of them is malformed.
func Read(annotations map[string]string) (Settings, error) {
	s, err := Parse(annotations[api.ResizePolicyAnnotation], annotations[api.ResizeActionAnnotation])
	if err != nil {
		return Settings{}, err
	}
	if s.DeferredTimeout, err = parseTimeout(annotations, api.DeferredTimeoutAnnotation); err != nil {
		return Settings{}, err
	}
	if s.NotReadyTimeout, err = parseTimeout(annotations, api.NotReadyTimeoutAnnotation); err != nil {
		return Settings{}, err
	}
	if s.Guard, err = readGuard(annotations); err != nil {
		return Settings{}, err
	}
	return s, nil
}

// Parse reads the values of the policy and the action annotation; an empty one is as if it
// were not there. It accepts exactly what deploy/cluster/validate-annotations.yaml lets
// pass, and fails in the same words.
func Parse(policy, action string) (Settings, error) {
	var s Settings
	var err error
	if s.entries, err = parseEntries(policy); err != nil {
		return Settings{}, fmt.Errorf("annotation %s: %w", api.ResizePolicyAnnotation, err)
	}
	a := Action(strings.TrimSpace(action))
	if a != "" && !slices.Contains(Actions, string(a)) {
		return Settings{}, fmt.Errorf(`annotation %s: "%.100s" must be Restart, LiveResize or LiveResizePreferred`, api.ResizeActionAnnotation, a)
	}
	s.Action = a
	return s, nil
}

func parseEntries(list string) (map[key]Policy, error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	entries := map[key]Policy{}
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		k, policy, ok := parseEntry(entry)
		if !ok {
			return nil, fmt.Errorf(`"%.100s" must read [container/]resource[:increase|:decrease]=LiveResizeable|RestartOnly, `+
				`where resource is cpu or memory; commas separate entries`, entry)
		}
		if other, given := entries[k]; given && other != policy {
			return nil, fmt.Errorf("%s is said to be both LiveResizeable and RestartOnly; say one of them", k)
		}
		entries[k] = policy
	}
	return entries, nil
}

func parseEntry(entry string) (key, Policy, bool) {
	name, value, _ := strings.Cut(entry, "=")
	container, rest, prefixed := strings.Cut(name, "/")
	if !prefixed {
		container, rest = "", name
	}
	resource, towards, directed := strings.Cut(rest, ":")
	k := key{container, corev1.ResourceName(resource), direction(towards)}
	policy := Policy(value)
	ok := (!prefixed || len(validation.IsDNS1123Label(container)) == 0) &&
		(k.resource == corev1.ResourceCPU || k.resource == corev1.ResourceMemory) &&
		(!directed || k.direction == increase || k.direction == decrease) &&
		(policy == LiveResizeable || policy == RestartOnly)
	return k, policy, ok
}

// parseTimeout reads the value of an annotation that says a timeout; nil if it says nothing. It fails unless that is positive.
func parseTimeout(annotations map[string]string, name string) (*time.Duration, error) {
	value := strings.TrimSpace(annotations[name])
	if value == "" {
		return nil, nil
	}
	timeout, err := time.ParseDuration(value)
	if err != nil || timeout <= 0 {
		return nil, fmt.Errorf(`annotation %s: "%.100s" must be a positive duration such as 90s, 5m or 1h30m`, name, value)
	}
	return &timeout, nil
}
