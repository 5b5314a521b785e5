package resize

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// OldEnvironment lists the environment variables that refer to a value that changes
// (resourceFieldRef) and go on showing the old one, as `app: GOMAXPROCS`. A variable is set
// when its container starts, and these containers do not restart. Files of a downwardAPI
// volume are not listed: the kubelet writes them again.
func (t Target) OldEnvironment() []string {
	var found []string
	for _, p := range t.named {
		if p.container == nil || p.kind == initContainer && !p.sidecar() || t.restarts(p) {
			continue
		}
		for _, env := range p.container.Env {
			if env.ValueFrom != nil && env.ValueFrom.ResourceFieldRef != nil && t.shows(p, env.ValueFrom.ResourceFieldRef) {
				found = append(found, p.name+": "+env.Name)
			}
		}
	}
	return found
}

// OldVolumes lists the volumes in memory (tmpfs) of the pod's template that keep their size though a memory limit changes: one without a
// sizeLimit has it from the limits that the pod was started with. KEP-6030 would change that.
func (t Target) OldVolumes(template *corev1.PodTemplateSpec) []string {
	if !slices.ContainsFunc(t.Changes, func(c Change) bool { return c.Side == Limit && c.Resource == corev1.ResourceMemory }) {
		return nil
	}
	var found []string
	for _, v := range template.Spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory && v.EmptyDir.SizeLimit == nil {
			found = append(found, v.Name)
		}
	}
	return found
}

// shows reports whether ref, of the container p, refers to a value that changes.
func (t Target) shows(p part, ref *corev1.ResourceFieldSelector) bool {
	of := ref.ContainerName
	if of == "" {
		of = p.name
	}
	side, name, _ := strings.Cut(ref.Resource, ".")
	return slices.ContainsFunc(t.Changes, func(c Change) bool {
		return c.Container == of && sideFields[c.Side] == side && string(c.Resource) == name
	})
}

// restarts reports whether the kubelet restarts the container for what changes.
func (t Target) restarts(p part) bool {
	return slices.ContainsFunc(t.Changes, func(c Change) bool { return c.Container == p.name && p.restartsFor(c.Resource) })
}
