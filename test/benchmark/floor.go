package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// floorAccount is the ServiceAccount of the program in floor/, in the namespace default.
const floorAccount = "floor"

// program is the floor program while it runs.
type program struct {
	pid  int
	stop func() error
}

// startFloor builds the floor program, starts it, and waits until it watches. When it ends by itself, so does the context.
func (f *fixture) startFloor(ctx context.Context) (context.Context, *program, error) {
	binary := filepath.Join(f.Dir(), floorAccount)
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./test/benchmark/floor")
	build.Dir = controller.Root()
	if said, err := build.CombinedOutput(); err != nil {
		return ctx, nil, fmt.Errorf("building the floor program: %w\n%s", err, said)
	}
	kubeconfig, err := f.floorKubeconfig(ctx)
	if err != nil {
		return ctx, nil, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	cmd := exec.CommandContext(ctx, binary, "--kubeconfig", kubeconfig, "--namespace", namespace, "--kind", f.shape.kind, "--limit", strconv.Itoa(f.shape.limit))
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fail(err)
		return ctx, nil, fmt.Errorf("starting the floor program: %w", err)
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // before its time, whatever it says
		fail(errors.New("the floor program has ended"))
	}()
	p := &program{cmd.Process.Pid, func() error {
		early := ctx.Err() != nil
		fail(nil)
		if <-ended; early {
			return errors.New("the floor program has ended")
		}
		return nil
	}}
	if err != nil {
		return ctx, nil, errors.Join(fmt.Errorf("waiting for the floor program: %w", err), p.stop())
	}
	return ctx, p, nil
}

// floorKubeconfig is for a ServiceAccount that may do everything.
func (f *fixture) floorKubeconfig(ctx context.Context) (string, error) {
	_, err := f.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: floorAccount}}, metav1.CreateOptions{})
	if err == nil {
		_, err = f.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: floorAccount},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: floorAccount}},
		}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) { // from the round before
		return "", fmt.Errorf("making the floor program's account: %w", err)
	}
	return f.ServiceAccountKubeconfig(ctx, metav1.NamespaceDefault, floorAccount, "")
}

// holds are the patches that hold a workload of a kind, so that the built-in controller touches no pod.
var holds = map[string]string{
	"StatefulSet": `{"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1000000}}}}`,
	"DaemonSet":   `{"spec": {"updateStrategy": {"type": "OnDelete"}}}`,
	"Deployment":  `{"spec": {"paused": true}}`,
}

// letGo reports whether a workload is not held any more, and the built-in controller has nothing left to do.
func letGo(w *unstructured.Unstructured) bool {
	partition, _, _ := unstructured.NestedInt64(w.Object, "spec", "updateStrategy", "rollingUpdate", "partition")
	strategy, _, _ := unstructured.NestedString(w.Object, "spec", "updateStrategy", "type")
	paused, _, _ := unstructured.NestedBool(w.Object, "spec", "paused")
	return partition == 0 && strategy != "OnDelete" && !paused && rolledOut(w)
}
