package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"
)

// versionEnvironment names the version where Options do not: a minor version that hack/tools/ pins, such as 1.35.
const versionEnvironment = "KUBERNETES"

// versioned are the binaries of which each version has its own. An older API server works with the
// newest etcd, kwok and kubectl.
var versioned = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"}

// BinaryOf is the path of a binary of a version in the folders beside bin, such as bin/k8s-1.35 beside
// bin/k8s. An empty version is the newest, which is in bin itself.
func BinaryOf(bin, version, name string) string {
	if version != "" && slices.Contains(versioned, name) {
		bin += "-" + version
	}
	return filepath.Join(bin, name)
}

// versionOr returns the given version, or else that of the environment.
func versionOr(given string) string {
	if given != "" {
		return given
	}
	return os.Getenv(versionEnvironment)
}

// AtLeast reports whether the API server is of a minor version, such as 1.36, or a later one.
func (c *ControlPlane) AtLeast(minor string) bool {
	runs, err := version.ParseGeneric(c.version)
	if err != nil {
		panic(fmt.Sprintf("the API server says that its version is %q: %v", c.version, err))
	}
	return runs.AtLeast(version.MustParseGeneric(minor))
}
