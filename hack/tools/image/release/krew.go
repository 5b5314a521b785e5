package main

import (
	"cmp"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/hack/tools/image/artifact"
)

// krewName is the plugin's in Krew. The file that it is described in must be called the same.
const krewName = "inplace-rollout"

// object is a part of a manifest.
type object = map[string]any

// krewManifest tells Krew how the plugin is installed from these archives.
func (r *release) krewManifest(archives map[string][]byte, of map[string]*artifact.Program) ([]byte, error) {
	home := "https://" + r.programs[0].Module()
	url := cmp.Or(r.url, home+"/releases/download/"+r.version)
	var platforms []object
	for _, name := range slices.Sorted(maps.Keys(archives)) {
		p := of[name].Platform
		platforms = append(platforms, object{
			"selector": object{"matchLabels": object{"os": p.OS, "arch": p.Architecture}},
			"uri":      url + "/" + name,
			"sha256":   hash(archives[name]),
			"bin":      executable(of[name]),
		})
	}
	return yaml.Marshal(object{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   object{"name": krewName},
		"spec": object{
			"version":          r.version,
			"homepage":         home,
			"shortDescription": "See and steer rollouts that resize pods in place",
			"description": `Shows what an edit of a StatefulSet, Deployment or DaemonSet would do to its
pods, and how far its rollout is. Edits of cpu and memory are carried into the
running pods, in place, by the controller of inplace-rollout.
`,
			"caveats": `The controller of inplace-rollout must run in the cluster.
`,
			"platforms": platforms,
		},
	})
}
