package resize

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Annotations of a pod in which startup boosters remember what to put back when it has started. They
// take them away after that, or note there that it is done.
const (
	// cpuBoost is that of google/kube-startup-cpu-boost (BoostPodAnnotation in internal/boost/pod).
	cpuBoost = "autoscaling.x-k8s.io/startup-cpu-boost"
	// verticalBoost and the name of a container are that of the Vertical Pod Autoscaler
	// (OriginalResources in pkg/utils/annotations).
	verticalBoost = "vpaCpuStartupBoost/"
)

// BoostAnnotation reports whether a startup booster remembers in this annotation what to put back.
func BoostAnnotation(key string) bool {
	return key == cpuBoost || strings.HasPrefix(key, verticalBoost)
}

// PutBack returns what a startup booster is about to change in a pod that has the size of the template:
// it puts back what the pod was born to have, which an edit has changed since. There is nothing
// where no booster is at work. An annotation that cannot be read is of none that we know.
func (t Target) PutBack(template *corev1.PodTemplateSpec) []Change {
	if t.pod == nil || !t.boosted() {
		return nil
	}
	var changes []Change
	for _, says := range parts(&template.Spec) {
		if says.kind != regularContainer {
			continue
		}
		has, before := counterpart(t.named, says), t.unboosted(says.name)
		if has == nil || before == nil {
			continue
		}
		for _, name := range resizable {
			for _, side := range sides {
				c := Change{says.name, name, side, has.value(side, name), before.value(side, name)}
				if c.To != nil && c.From != nil && same(c.From, says.wanted(side, name)) {
					changes = appendChange(changes, c)
				}
			}
		}
	}
	return changes
}

// boosted reports whether a startup booster has left a note on the pod, as on few.
func (t Target) boosted() bool {
	for key := range t.pod.Annotations {
		if BoostAnnotation(key) {
			return true
		}
	}
	return false
}

// unboosted returns what a startup booster is to put back in a container; nil if none is.
func (t Target) unboosted(container string) *part {
	before := part{kind: regularContainer, name: container, requirements: &corev1.ResourceRequirements{}}
	if note, is := t.pod.Annotations[verticalBoost+container]; is {
		if json.Unmarshal([]byte(note), before.requirements) == nil {
			return &before
		}
	}
	var boost struct {
		State           string                       `json:"state"` // older ones have none
		InitCPURequests map[string]resource.Quantity `json:"initCPURequests"`
		InitCPULimits   map[string]resource.Quantity `json:"initCPULimits"`
	}
	note, is := t.pod.Annotations[cpuBoost]
	if !is || json.Unmarshal([]byte(note), &boost) != nil || boost.State != "" && boost.State != "Active" {
		return nil
	}
	for side, of := range map[Side]map[string]resource.Quantity{Request: boost.InitCPURequests, Limit: boost.InitCPULimits} {
		if cpu, is := of[container]; is {
			setValue(side.of(before.requirements), corev1.ResourceCPU, cpu)
		}
	}
	return &before
}

// displace notes a value that is overwritten, if somebody else has given it to the pod.
func (t *Target) displace(v value) {
	if v.From != nil && v.was != nil && !v.by.ours && !same(v.From, v.was) {
		t.Displaced = appendChange(t.Displaced, Change{v.Container, v.Resource, v.Side, v.was, v.To})
	}
}

// Again returns the target that makes those of the changes once more that somebody else has undone in the pod.
// It fails if the pod's managedFields cannot be read.
func Again(pod *corev1.Pod, changes []Change) (Target, error) {
	set, err := ownersOf(pod)
	if err != nil {
		return Target{}, err
	}
	t := Target{pod: pod, Resized: set.last()}
	for _, p := range parts(&pod.Spec) {
		before := len(t.Changes)
		for _, c := range changes {
			if p.kind != podLevel && c.Container == p.name && same(c.From, p.value(c.Side, c.Resource)) && set.in(p).of(c.Side, c.Resource).other != "" {
				t.Changes = append(t.Changes, c)
			}
		}
		if len(t.Changes) > before {
			t.named = append(t.named, p)
		}
	}
	return t, nil
}
