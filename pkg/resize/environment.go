package resize

import (
	"cmp"
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
	all := t.parts()
	for _, p := range all {
		if p.container == nil || p.kind == initContainer && !p.sidecar() || p.restartedFor(all, t.sets) {
			continue
		}
		for _, env := range p.container.Env {
			if env.ValueFrom != nil && env.ValueFrom.ResourceFieldRef != nil && t.shows(all, p, env.ValueFrom.ResourceFieldRef) {
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

// shows reports whether ref, of the container p, one of all parts of the pod, refers to a value that changes.
func (t Target) shows(all []part, p part, ref *corev1.ResourceFieldSelector) bool {
	of := counterpart(all, part{name: cmp.Or(ref.ContainerName, p.name)})
	if of == nil {
		return false
	}
	side, field, _ := strings.Cut(ref.Resource, ".")
	name := corev1.ResourceName(field)
	if side == sideFields[Limit] {
		return t.sets(of.limiter(all, name), Limit, name)
	}
	return t.sets(*of, Request, name)
}
