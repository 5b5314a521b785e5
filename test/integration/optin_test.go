//go:build integration

package integration

import (
	"context"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// optIn is the admission policy that this file is about.
const optIn = "inplace-rollout-validate-opt-in"

// refusedOptIn fails the test unless the policy has refused a write as forbidden, with what is allowed.
func refusedOptIn(t *testing.T, what string, err error, because string) {
	t.Helper()
	if got := said(err); !strings.Contains(got, "forbidden: ValidatingAdmissionPolicy '"+optIn+"'") || !strings.Contains(got, because) {
		t.Errorf("%s is answered with %v; want that it is forbidden, with %q", what, err, because)
	}
}

// TestLabel: a value of the label that means nothing is refused, however it comes. Otherwise it would
// silently be no opt-in, and the next edit would restart every pod.
// It alone proves it of each kind, by each way to write: that is a hundred times kubectl.
func TestLabel(t *testing.T) {
	parallel(t)
	w, d, ds := newWorkload(t, options{Replicas: 1}), newDeployment(t, options{Replicas: 1}), newDaemonSet(t, options{Replicas: 1})
	t.Run("StatefulSet", func(t *testing.T) { w.testLabel(t, options{}) })
	t.Run("Deployment", func(t *testing.T) { d.testLabel(t, options{Kind: "Deployment"}) })
	t.Run("DaemonSet", func(t *testing.T) { ds.testLabel(t, options{Kind: "DaemonSet"}) })
}

func (s *sandbox[W]) testLabel(t *testing.T, o options) {
	const must = `must be "true", which opts in, or "false"`
	for _, value := range []string{"True", "TRUE", "1", "yes", "on", "enabled", ""} {
		refusedOptIn(t, "label "+value, s.try(t, "label", "--overwrite", s.ref, api.EnabledLabel+"="+value), `"`+value+`" `+must)
		o.Meta = "labels: {" + api.EnabledLabel + ": " + `"` + value + `"}`
		file := writeFile(t, manifest(t, s.namespace, o))
		refusedOptIn(t, "apply "+value, s.try(t, "apply", "--server-side", "--force-conflicts", "-f", file), must)
		other := writeFile(t, strings.Replace(manifest(t, s.namespace, o), "name: web\n", "name: other\n", 1))
		refusedOptIn(t, "create "+value, s.try(t, "create", "-f", other), must)
	}
	for _, value := range []string{"=false", "-", "=true"} {
		if err := s.try(t, "label", "--overwrite", s.ref, api.EnabledLabel+value); err != nil {
			t.Errorf("label %s: %v", value, err)
		}
	}
}

// TestCritical: what the cluster may need to come up is opted in by two words only, and what we run in not at
// all, however it comes.
func TestCritical(t *testing.T) {
	parallel(t)
	const because = `set the annotation inplace-rollout.io/allow-critical: "true", too`
	for _, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
		name := "critical-" + strings.ToLower(kind)
		ref := strings.ToLower(kind) + "/" + name
		kubectl := func(args ...string) error {
			_, err := cp.Kubectl(t.Context(), append([]string{"-n", api.CriticalNamespace}, args...)...)
			return err
		}
		file := func(o options) string {
			o.Kind, o.Spec = kind, "{}"
			text := strings.Replace(manifest(t, api.CriticalNamespace, o), "name: web\n", "name: "+name+"\n", 1)
			return writeFile(t, strings.Replace(text, "replicas: 3", "replicas: 0", 1))
		}
		refusedOptIn(t, "create "+kind, kubectl("create", "-f", file(options{})), because)
		if err := kubectl("create", "-f", file(options{OptedOut: true})); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := cp.Kubectl(context.Background(), "-n", api.CriticalNamespace, "delete", ref); err != nil {
				t.Error(err)
			}
		})
		label := []string{"label", "--overwrite", ref, api.EnabledLabel + "=true"}
		refusedOptIn(t, "label "+ref, kubectl(label...), because)
		refusedOptIn(t, "apply "+ref, kubectl("apply", "--server-side", "--force-conflicts", "-f", file(options{})), because)
		if err := kubectl("annotate", ref, api.AllowCriticalAnnotation+"=true"); err != nil {
			t.Error(err)
		}
		if err := kubectl(label...); err != nil {
			t.Errorf("opting %s in after it was confirmed: %v", ref, err)
		}
		refusedOptIn(t, "taking the confirmation away from "+ref, kubectl("annotate", ref, api.AllowCriticalAnnotation+"-"), because)
		if err := kubectl("label", ref, api.EnabledLabel+"-"); err != nil {
			t.Errorf("opting %s out: %v", ref, err)
		}
	}
	own, err := cp.Kubectl(t.Context(), "kustomize", "../../deploy/controller")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range strings.Split(own, "\n---\n") {
		if !strings.Contains(object, "\nkind: Deployment\n") {
			continue
		}
		object = strings.Replace(object, "\n  name: inplace-rollout\n", "\n  name: renamed\n  labels: {"+api.EnabledLabel+": \"true\"}\n", 1)
		_, err := cp.Kubectl(t.Context(), "create", "--dry-run=server", "-n", "inplace-rollout", "-f", writeFile(t, object))
		refusedOptIn(t, "opting the controller in", err, "inplace-rollout cannot roll out its own workloads")
		return
	}
	t.Error("deploy/controller has no Deployment")
}

// TestRecreate: a StatefulSet whose strategy no partition can hold is not opted in, nor switched to that strategy
// when it is, on a control plane that has the strategy at all.
func TestRecreate(t *testing.T) {
	if !cp.AtLeast("1.37") {
		t.Skip("the strategy Recreate of a StatefulSet is of 1.37 and later")
	}
	flags := map[string][]string{}
	for _, binary := range []string{"kube-apiserver", "kube-controller-manager"} {
		flags[binary] = append(flags[binary], "--feature-gates=StatefulSetRecreateStrategy=true")
	}
	with, err := controlplane.Start(t.Context(), controlplane.Options{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := with.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := controller.Install(t.Context(), with); err != nil {
		t.Fatal(err)
	}
	kubectl := func(args ...string) error {
		_, err := with.Kubectl(t.Context(), append([]string{"-n", "default"}, args...)...)
		return err
	}
	file := func(strategy string, optedOut bool) string {
		return writeFile(t, manifest(t, "default", options{Replicas: 1, OptedOut: optedOut, Spec: "updateStrategy: {type: " + strategy + "}"}))
	}
	const because = "the update strategy Recreate must be RollingUpdate or OnDelete"
	eventually(t, "the policy to be in force", func() (bool, string) {
		err := kubectl("create", "--dry-run=server", "-f", file("Recreate", false))
		return err != nil, said(err)
	})
	refusedOptIn(t, "create", kubectl("create", "-f", file("Recreate", false)), because)
	for _, step := range []struct {
		what, because string
		args          []string
	}{
		{"a set that is not opted in", "", []string{"create", "-f", file("Recreate", true)}},
		{"opting it in", because, []string{"label", "--overwrite", "statefulset/web", api.EnabledLabel + "=true"}},
		{"applying it opted in", because, []string{"apply", "--server-side", "--force-conflicts", "-f", file("Recreate", false)}},
		{"another strategy", "", []string{"apply", "--server-side", "--force-conflicts", "-f", file("RollingUpdate", false)}},
		{"switching back", because, []string{"patch", "statefulset/web", "--patch", `{"spec": {"updateStrategy": {"type": "Recreate", "rollingUpdate": null}}}`}},
		{"opting out and switching back", "", []string{"patch", "statefulset/web", "--patch",
			`{"metadata": {"labels": {"` + api.EnabledLabel + `": null}}, "spec": {"updateStrategy": {"type": "Recreate", "rollingUpdate": null}}}`}},
	} {
		switch err := kubectl(step.args...); {
		case step.because != "":
			refusedOptIn(t, step.what, err, step.because)
		case err != nil:
			t.Errorf("%s: %v", step.what, err)
		}
	}
}
