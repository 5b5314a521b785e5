package estimate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// ParseDefaults reads what images request of which nothing is known: images without tags, each with
// cpu, memory or both.
func ParseDefaults(text []byte) (map[string]corev1.ResourceList, error) {
	var said map[string]corev1.ResourceList
	if err := yaml.UnmarshalStrict(text, &said); err != nil {
		return nil, fmt.Errorf("want images with their requests, such as nginx: {cpu: 50m, memory: 64Mi}: %w", err)
	}
	defaults := make(map[string]corev1.ResourceList, len(said))
	for name, requests := range said {
		image, err := ParseImage(name)
		switch {
		case err != nil:
			return nil, err
		case image.Version != latest || strings.HasSuffix(name, ":"+latest):
			return nil, fmt.Errorf("%s has a tag or a digest: remove it, because a default is for all versions of an image", name)
		case defaults[image.Name] != nil:
			return nil, fmt.Errorf("%s is listed twice", image.Name)
		}
		for resource, request := range requests {
			if !slices.Contains(Resources, resource) || request.Sign() <= 0 {
				return nil, fmt.Errorf("%s: %s is %s: want cpu or memory, and more than 0", name, resource, &request)
			}
		}
		defaults[image.Name] = requests
	}
	return defaults, nil
}
