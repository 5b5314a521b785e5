package resize_test

import (
	"slices"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestOldEnvironment(t *testing.T) {
	const env = "env: [{name: GOMAXPROCS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}, {name: HEAP, valueFrom: {resourceFieldRef: {resource: requests.memory}}}, {name: OTHER, value: x}]"
	tests := []struct {
		name, containers string
		cpu, memory      string // the new limit of cpu, and request of memory
		want             []string
	}{
		{"nothing changes", "{name: app, " + env + "}", "1", "1Gi", nil},
		{"cpu changes", "{name: app, " + env + "}", "2", "1Gi", []string{"app: GOMAXPROCS"}},
		{"both change", "{name: app, " + env + "}", "2", "2Gi", []string{"app: GOMAXPROCS", "app: HEAP"}},
		{"no variable shows it", "{name: app}", "2", "2Gi", nil},
		{"another container shows it", "{name: app}, {name: side, env: [{name: APP_CPU, valueFrom: {resourceFieldRef: {containerName: app, resource: limits.cpu}}}]}", "2", "1Gi", []string{"side: APP_CPU"}},
		{"the container restarts for it", "{name: app, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}], " + env + "}", "2", "2Gi", nil},
		{"it restarts for what does not change", "{name: app, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}], " + env + "}", "2", "1Gi", []string{"app: GOMAXPROCS"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			older := build.Template(t, "containers: ["+tt.containers+"]")
			newer := older.DeepCopy()
			for template, size := range map[*[2]string]string{{"1", "1Gi"}: "older", {tt.cpu, tt.memory}: "newer"} {
				sized := build.Size(t, "limits: {cpu: "+template[0]+", memory: 4Gi}, requests: {cpu: 500m, memory: "+template[1]+"}").Spec.Containers[0].Resources
				if size == "older" {
					older.Spec.Containers[0].Resources = sized
				} else {
					newer.Spec.Containers[0].Resources = sized
				}
			}
			target := must.Get(resize.For(build.Pod("web-0", older), older, newer))(t)
			if got := target.OldEnvironment(); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
