//go:build around

package integration

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestHelm upgrades a release with new sizes, again in the middle of the rollout, and
// rolls it back: all of it goes in place. Helm does not wait for that of a Deployment.
// The manifests say what the hold changes.
func TestHelm(t *testing.T) {
	parallel(t)
	for _, serverSide := range []string{"true", "false"} {
		for kind, spec := range map[string]string{
			"StatefulSet": "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}", "Deployment": "paused: false",
			"DaemonSet": "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}",
		} {
			t.Run(kind+", on the server side "+serverSide, func(t *testing.T) {
				parallel(t)
				r := &release{t: t, serverSide: serverSide}
				o := options{By: r.install, Kind: kind, Spec: spec}
				switch kind {
				case "StatefulSet":
					w := newWorkload(t, o)
					before := w.uids()
					upgradeTwice(r, w.sandbox, o, w.waitComplete, true)
					w.assertMoved(0)
					w.assertReplaced(before)
				case "Deployment":
					d := newDeployment(t, o)
					before := d.uids()
					upgradeTwice(r, d.sandbox, o, d.waitComplete, false)
					d.assertMoved(before, "100m")
				case "DaemonSet":
					d := newDaemonSet(t, o)
					before := d.uids()
					upgradeTwice(r, d.sandbox, o, d.waitComplete, true)
					d.assertMoved(before, "100m")
				}
			})
		}
	}
}

// upgradeTwice upgrades the release and rolls it back; waits says whether Helm waits until all pods are done.
func upgradeTwice[W metav1.Object](r *release, s *sandbox[W], o options, waitComplete func(), waits bool) {
	r.t.Helper()
	strategy := map[bool]string{true: "--wait=watcher", false: "--wait=hookOnly"}
	waitComplete()
	slow := s.names()[0]
	s.annotatePod(slow, simDeferred)
	o.Resources = "{requests: {cpu: 150m, memory: 100Mi}, limits: {cpu: 200m, memory: 200Mi}}"
	r.chart(manifest(r.t, s.namespace, o))
	r.run("upgrade", "web", r.folder, strategy[!waits], "--timeout=1m")
	s.waitCondition("Deferred", slow)

	o.Resources = "{requests: {cpu: 170m, memory: 120Mi}, limits: {cpu: 250m, memory: 200Mi}}"
	r.chart(manifest(r.t, s.namespace, o))
	r.run("upgrade", "web", r.folder)
	s.waitCondition("Deferred", slow)
	if !held(s.get()) {
		r.t.Error("an upgrade in the middle of a rollout has it let go")
	}
	s.annotatePod(slow, simAccepted)
	waitComplete()
	for _, pod := range s.pods() {
		if got := cpuOf(pod.Spec.Containers[0].Resources); got != "170m" {
			r.t.Errorf("%s requests %s of cpu, want 170m", pod.Name, got)
		}
	}
	r.run("rollback", "web", "1", strategy[waits], "--timeout="+patience.String())
	s.waitPod(slow, "to be rolled back", func(pod corev1.Pod) bool { return cpuOf(pod.Spec.Containers[0].Resources) == "100m" })
	waitComplete()
}

// release is a release of Helm.
type release struct {
	t          *testing.T
	program    string // helm if empty
	serverSide string
	namespace  string
	folder     string // of the chart
}

// install makes a chart of a manifest, and a release of it.
func (r *release) install(namespace, manifest string) {
	r.t.Helper()
	r.namespace, r.folder = namespace, r.t.TempDir()
	r.write("Chart.yaml", "{apiVersion: v2, name: web, version: 1.0.0}")
	r.chart(manifest)
	args := []string{"install", "web", r.folder}
	if r.serverSide != "" {
		args = append(args, "--server-side="+r.serverSide)
	}
	r.run(args...)
}

// chart has the chart be of another manifest.
func (r *release) chart(manifest string) {
	r.t.Helper()
	r.write("templates/web.yaml", manifest)
}

func (r *release) write(name, text string) {
	r.t.Helper()
	file := filepath.Join(r.folder, name)
	must.Do(r.t, os.MkdirAll(filepath.Dir(file), 0o700))
	must.Do(r.t, os.WriteFile(file, []byte(text), 0o600))
}

func (r *release) run(args ...string) {
	r.t.Helper()
	must.Do(r.t, r.try(args...))
}

// try is run where an error is an answer.
func (r *release) try(args ...string) error {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), filepath.Join(controller.Root(), "bin", "gitops", cmp.Or(r.program, "helm")), append(args, "--namespace", r.namespace)...)
	home := r.t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cp.Kubeconfig(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", cmp.Or(r.program, "helm"), strings.Join(args, " "), err, out)
	}
	return nil
}
