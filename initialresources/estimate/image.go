package estimate

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// latest is the tag of an image of which neither a tag nor a digest is said.
const latest = "latest"

// Image is what a container runs.
type Image struct {
	// Name is normalised, and has no version: docker.io/library/nginx.
	Name string `json:"name"`
	// Version is the tag; without a tag the digest, as in sha256:…; without either "latest".
	// In a question, empty stands for any.
	Version string `json:"version,omitempty"`
}

// ParseImage reads an image as a container's spec names it.
func ParseImage(s string) (Image, error) {
	if strings.HasPrefix(s, "sha256:") { // it is what runtimes call an image that has lost its name
		return Image{}, fmt.Errorf("%q is the ID of an image, not a name", s)
	}
	named, err := reference.ParseNormalizedNamed(s)
	if err != nil {
		return Image{}, fmt.Errorf("%q is not the name of an image: %w", s, err)
	}
	image := Image{Name: named.Name(), Version: latest}
	switch n := named.(type) {
	case reference.Tagged: // with a digest or without
		image.Version = n.Tag()
	case reference.Digested:
		image.Version = n.Digest().String()
	}
	return image, nil
}

// AnyVersion is the image without its version.
func (i Image) AnyVersion() Image { return Image{Name: i.Name} }

// String is the image as it can be written into a container's spec.
func (i Image) String() string {
	switch {
	case i.Version == "":
		return i.Name
	case strings.Contains(i.Version, ":"):
		return i.Name + "@" + i.Version
	default:
		return i.Name + ":" + i.Version
	}
}

// Key says of which containers samples are. Those of one Key are kept together.
type Key struct {
	// Namespace of the pods. In a question, empty stands for any.
	Namespace string
	Image     Image
	// Role is the name of the container, where an image that runs in many roles is told apart
	// by it; empty where it is not. In a question, empty stands for any.
	Role string
}

// Matches reports whether the samples of other are among those that k, as a question, asks for.
func (k Key) Matches(other Key) bool {
	return (k.Namespace == "" || k.Namespace == other.Namespace) && k.Image.Name == other.Image.Name &&
		(k.Image.Version == "" || k.Image.Version == other.Image.Version) && (k.Role == "" || k.Role == other.Role)
}

// AnyVersion is the key without the version of its image.
func (k Key) AnyVersion() Key {
	k.Image = k.Image.AnyVersion()
	return k
}

// Entries of a table that are about no image. Their values do not matter.
const (
	// RolesEntry tells admission that the keys have roles.
	RolesEntry = "roles"
	// AnnotateEntry tells admission to look at pods that have all requests, too: there is
	// something to say of them.
	AnnotateEntry = "annotate"
)

// Entry is the key in the data of a ConfigMap for what is estimated of a resource, as in
// docker.io-_library-_nginx_-1.25.cpu. It is empty if there can be none: it would be too
// long, or has characters that such keys cannot have, as an IPv6 address has.
//
// Names of images and of containers have none of the pairs that stand for the separators,
// so no two keys have the same entry. A tag may have them; it comes after the first.
func (k Key) Entry(resource corev1.ResourceName) string {
	entry := strings.NewReplacer("/", "-_", ":", "_-").Replace(k.Image.Name)
	if k.Role != "" {
		entry += ".." + k.Role
	}
	switch version := strings.Replace(k.Image.Version, ":", "_-", 1); {
	case version == "":
	case version != k.Image.Version:
		entry += "-." + version
	default:
		entry += "_-" + version
	}
	entry += "." + string(resource)
	if len(validation.IsConfigMapKey(entry)) > 0 {
		return ""
	}
	return entry
}
