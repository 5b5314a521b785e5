package resize

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// OldEnvironment lists the environment variables that show what changes (resourceFieldRef)
// and go on showing the old value, as `app: GOMAXPROCS`: they are set when a container
// starts, and these do not restart. Files of a downwardAPI volume are not among them: the
// kubelet writes these again.
func (t Target) OldEnvironment() []string {
	var found []string
	for _, p := range t.want {
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

// shows reports whether the reference of a container is to what changes.
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

// restarts reports whether the container restarts for what changes.
func (t Target) restarts(p part) bool {
	return slices.ContainsFunc(t.Changes, func(c Change) bool { return c.Container == p.name && p.restartsFor(c.Resource) })
}
