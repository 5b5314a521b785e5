//go:build around

package hold

import (
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// over does something again and again, with pauses, until told to stop. It returns how often that went well, and the errors.
func over(do func(n int) error) (stop func() (well int, errs []error)) {
	stopping, done := make(chan struct{}), make(chan struct{})
	var well int
	var errs []error
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stopping:
				return
			case <-time.After(pause):
			}
			if err := do(n); err != nil {
				errs = append(errs, err)
			} else {
				well++
			}
		}
	}()
	return func() (int, []error) {
		close(stopping)
		<-done
		return well, errs
	}
}

// editOn makes one edit after the other; each that is accepted must be held.
func editOn(t *testing.T, name string) (stop func() (accepted int, refused []error)) {
	t.Helper()
	return over(func(n int) error {
		set, err := edit(t, name, 10+n)
		if err == nil && !held(set) {
			t.Errorf("an edit was accepted and is not held: %v %v", set.Annotations, set.Spec.UpdateStrategy)
		}
		return err
	})
}

// TestReplicaGoes: edits are held while one of two replicas dies, again and again; and none is refused while one is told to end, as by
// a drain or an upgrade: it answers until nobody asks it.
func TestReplicaGoes(t *testing.T) {
	for name, tt := range map[string]struct {
		args    []string
		end     func(*controller.Process)
		refused int // at most
	}{
		"dies": {nil, (*controller.Process).Kill, 10},
		"ends": {[]string{"--shutdown-delay=2s"}, func(p *controller.Process) {
			must.Do(t, syscall.Kill(p.PID(), syscall.SIGTERM))
			select {
			case <-p.Done():
			case <-time.After(time.Minute):
				t.Fatal("the replica goes on")
			}
			must.Equal(t, p.ExitCode(), 0, "exit code of the replica")
		}, 0},
	} {
		w := serve(t, tt.args...)
		create(t, name, true)
		stop := editOn(t, name)
		for i := range 4 {
			tt.end(w.Replica(i % 2))
			must.Do(t, w.Start(t.Context(), i%2))
			must.Do(t, w.Replica(i%2).WaitReady(t.Context()))
		}
		accepted, refused := stop()
		for _, err := range refused { // it was just being asked
			if !strings.Contains(err.Error(), "failed calling webhook") {
				t.Error(err)
			}
		}
		if accepted == 0 || len(refused) > tt.refused {
			t.Errorf("a replica %s: %d edits were held, %d refused: %v", name, accepted, len(refused), refused)
		}
	}
}

// While no replica answers, writes of opted-in workloads are refused and say why, and no other
// write is even sent.
func TestNobodyAnswers(t *testing.T) {
	w := serve(t)
	create(t, "optedin", true)
	create(t, "other", false)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bare", Labels: map[string]string{"inplace-rollout.io/enabled": "true"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}
	before, err := edit(t, "optedin", 2)
	if err != nil || !held(before) {
		t.Fatalf("an edit is not held: %v", err)
	}
	w.Replica(0).Kill()
	eventually(t, "an edit is held beside one dead replica", func() (bool, error) {
		before, err = edit(t, "optedin", 2)
		return err == nil && held(before), err
	})
	w.Replica(1).Kill()

	_, err = edit(t, "optedin", 3)
	must.Fails(t, "an edit that nobody can hold", err, `failed calling webhook "inplace-rollout-hold.inplace-rollout.io"`)
	sets := client.AppsV1().StatefulSets("default")
	after := must.Get(sets.Get(t.Context(), "optedin", metav1.GetOptions{}))(t)
	if after.Generation != before.Generation || after.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String() != "2m" {
		t.Errorf("it was written all the same: %v", after)
	}
	// The webhook fails whatever it is asked, so it is not asked about any of these.
	resume := must.Get(cp.Pause("kube-controller-manager"))(t) // which goes on to write the status of the other
	defer resume()
	asked := func() int {
		before := w.Connections()
		_, err := edit(t, "other", 3)
		must.Fails(t, "an edit of a workload that is not opted in", err, "")
		for _, write := range []func() error{
			func() error {
				_, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
				return err
			},
			func() error {
				_, err := client.CoreV1().Pods("default").Patch(t.Context(), "bare", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
				return err
			},
			func() error {
				return client.CoreV1().Pods("default").Delete(t.Context(), "bare", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			},
		} {
			must.Fails(t, "a write of a pod", write(), "")
		}
		return w.Connections() - before
	}
	// The first time, a write that it sent before it was paused may still be asked about.
	if asked() > 0 {
		if n := asked(); n > 0 {
			t.Errorf("the API server has asked the webhook %d times about what it does not hold", n)
		}
	}

	must.Do(t, w.Start(t.Context(), 0))
	eventually(t, "an edit is held again", func() (bool, error) {
		set, err := edit(t, "optedin", 4)
		return err == nil && held(set), err
	})
}

// TestWayOut: while no replica answers, a workload can be opted out, released, and deleted with a finalizer. While one
// answers, opting out still lets go in the same write.
func TestWayOut(t *testing.T) {
	w := serve(t)
	sets := client.AppsV1().StatefulSets("default")
	patch := func(name, patch string) (*appsv1.StatefulSet, error) {
		return sets.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	}
	optOut := `{"metadata":{"labels":{"inplace-rollout.io/enabled":null}}}`
	for _, name := range []string{"alive", "optout", "release"} {
		create(t, name, true)
	}
	create(t, "goes", true)
	for _, name := range []string{"alive", "optout", "release", "goes"} {
		if set, err := edit(t, name, 2); err != nil || !held(set) {
			t.Fatalf("an edit is not held: %v", err)
		}
	}
	if set, err := patch("alive", optOut); err != nil || policy.Held(set) || *set.Spec.UpdateStrategy.RollingUpdate.Partition != 0 {
		t.Errorf("opting out does not let go: %v %v", err, set)
	}
	again := must.Get(patch("goes", `{"metadata":{"finalizers":["example.com/f"]}}`))(t)
	w.Replica(0).Kill()
	w.Replica(1).Kill()

	if _, err := edit(t, "optout", 3); err == nil {
		t.Error("an edit that nobody can hold is not refused")
	}
	_, err := patch("optout", optOut)
	must.Fails(t, "opting out", err, "")
	for _, name := range []string{"optout", "release"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(controller.Root(), "bin", "inplace-rollout"), "--kubeconfig", cp.Kubeconfig(), "release", "sts/"+name, "--yes").CombinedOutput()
		if err != nil {
			t.Errorf("release: %v: %s", err, out)
		}
		if set, err := sets.Get(t.Context(), name, metav1.GetOptions{}); err != nil || policy.Held(set) || *set.Spec.UpdateStrategy.RollingUpdate.Partition != 0 {
			t.Errorf("it is not let go of: %v %v", err, set.Spec.UpdateStrategy)
		}
	}
	must.Fails(t, "deleting", sets.Delete(t.Context(), "goes", metav1.DeleteOptions{}), "")
	if _, err := patch("goes", `{"metadata":{"finalizers":null}}`); err != nil {
		t.Errorf("removing a finalizer: %v", err)
	}
	gone, err := sets.Get(t.Context(), "goes", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Fatalf("it is still there: %v %v", gone.Finalizers, err)
	}
	again.ObjectMeta = metav1.ObjectMeta{Name: "goes"}
	must.Get(sets.Create(t.Context(), again, metav1.CreateOptions{}))(t) // the clean-up deletes it
}

// TestComesUp: a cluster that is built again gets its network also while no replica answers. While one answers, such a
// DaemonSet is held as others are, and gets its pods all the same: see TestCreateDaemonSetWithoutController in
// test/integration.
func TestComesUp(t *testing.T) {
	w := serve(t)
	create := func(namespace string) (*appsv1.DaemonSet, error) {
		labels := map[string]string{"app": "network"}
		return client.AppsV1().DaemonSets(namespace).Create(t.Context(), &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: "network", Labels: map[string]string{api.EnabledLabel: "true"}, Annotations: map[string]string{api.AllowCriticalAnnotation: "true"}},
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}},
			},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	if ds, err := create("kube-system"); err != nil || !policy.Held(ds) {
		t.Errorf("with a webhook: %v, %v", ds.Annotations, err)
	}
	w.Replica(0).Kill()
	w.Replica(1).Kill()
	_, err := create("kube-system")
	must.Fails(t, "in kube-system", err, "")
	if _, err := create("default"); err == nil {
		t.Error("one elsewhere, that nobody can hold, is not refused")
	}
}

// apiserver is the certificate that the API server shows to webhooks that ask for one.
var apiserver build.Client

// shown writes what lets the API server show a certificate: its configuration, which names a kubeconfig, and that.
func shown(dir string) (build.Client, error) {
	c, err := build.NewClient(x509.ExtKeyUsageClientAuth)
	if err != nil {
		return build.Client{}, err
	}
	kubeconfig := filepath.Join(dir, "webhooks.kubeconfig")
	for name, text := range map[string]string{
		"client.crt": string(c.Certificate),
		"client.key": string(c.Key),
		"webhooks.kubeconfig": `apiVersion: v1
kind: Config
users:
- {name: "*", user: {client-certificate: client.crt, client-key: client.key}}
`,
		"admission.yaml": fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %q}
`, kubeconfig),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return build.Client{}, fmt.Errorf("writing the API server's configuration: %w", err)
		}
	}
	return c, nil
}

// TestClientCA: with --client-ca-file only an API server that shows a certificate of that CA is answered, though others know the path.
// Of each certificate, TestClients of pkg/webhook proves that; this one is shown by a real API server.
func TestClientCA(t *testing.T) {
	foreign := must.Get(build.NewClient(x509.ExtKeyUsageClientAuth))(t)
	file := func(ca []byte) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "ca.crt")
		must.Do(t, os.WriteFile(path, ca, 0o600))
		return "--client-ca-file=" + path
	}
	defer serve(t)
	serve(t, file(apiserver.CA))
	create(t, "clientca", true)
	if set, err := edit(t, "clientca", 2); err != nil || !held(set) {
		t.Fatalf("an edit is not held, and the API server has the certificate: %v", err)
	}
	at, _, err := theBundle(t.Context())
	must.Do(t, err)
	if err := ask(at); err == nil {
		t.Error("who shows no certificate is answered")
	}
	restart(t, file(foreign.CA))
	_, err = edit(t, "clientca", 3)
	must.Fails(t, "an edit of an API server whose certificate is of another CA", err, "failed calling webhook")
}
