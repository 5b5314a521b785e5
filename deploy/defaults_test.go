package deploy

import (
	"bytes"
	"os"
	"path"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestDefaultRequests: the estimator reads the table that is installed beside it, where that is mounted, and nothing is in it.
func TestDefaultRequests(t *testing.T) {
	read := func(file string, into any) {
		t.Helper()
		text := must.Get(os.ReadFile("initial-resources/" + file))(t)
		text, _, _ = bytes.Cut(text, []byte("\n---\n"))
		must.Do(t, yaml.UnmarshalStrict(text, into))
	}
	var table corev1.ConfigMap
	var estimator appsv1.Deployment
	read("default-requests.yaml", &table)
	read("estimator.yaml", &estimator)
	pod := estimator.Spec.Template.Spec
	volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil && v.ConfigMap.Name == table.Name })
	if volume < 0 {
		t.Fatalf("the estimator has no volume of %s", table.Name)
	}
	container := pod.Containers[0]
	mount := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == pod.Volumes[volume].Name })
	if mount < 0 {
		t.Fatalf("the estimator does not mount %s", table.Name)
	}
	for name, text := range table.Data {
		if flag := "--default-requests=" + path.Join(container.VolumeMounts[mount].MountPath, name); !slices.Contains(container.Args, flag) {
			t.Errorf("the estimator lacks %s: it has %q", flag, container.Args)
		}
		if defaults, err := estimate.ParseDefaults([]byte(text)); err != nil || len(defaults) > 0 {
			t.Errorf("%s: %v, %v: want nothing", name, defaults, err)
		}
	}
	must.Equal(t, len(table.Data), 1, "files of the table")
}
