// Package autoscaler runs the real Vertical Pod Autoscaler beside a test control plane, with the
// rights that it comes with, and feeds it by a metrics API: see [Usage].
package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/process"
)

// Updater is the user that resizes and evicts pods.
const Updater = "system:serviceaccount:kube-system:vpa-updater"

// module of the autoscaler, which hack/tools/vpa pins.
const module = "k8s.io/autoscaler/vertical-pod-autoscaler"

// webhook is the configuration that the admission controller makes for itself.
const webhook = "vpa-webhook-config"

// Start runs the recommender, the updater, the admission controller and the metrics API, and
// returns when all of them are at work. What it has started ends with stop, or with this process.
func Start(ctx context.Context, cp *controlplane.ControlPlane) (stop func(context.Context) error, err error) {
	client, err := kubernetes.NewForConfig(cp.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	var ends []func(context.Context) error
	stop = func(ctx context.Context) error {
		var errs []error
		for len(ends) > 0 {
			errs = append(errs, ends[len(ends)-1](ctx))
			ends = ends[:len(ends)-1]
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stop(context.WithoutCancel(ctx)))
		}
	}()

	metrics, err := serveMetrics(ctx, client)
	if metrics != nil {
		ends = append(ends, metrics)
	}
	if err != nil {
		return nil, err
	}
	if err := install(ctx, cp); err != nil {
		return nil, err
	}
	commands, err := commands(cp)
	if err != nil {
		return nil, err
	}
	spawner := process.NewSpawner()
	ends = append(ends, func(ctx context.Context) error {
		spawner.Close()
		return gone(client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, webhook, metav1.DeleteOptions{}))
	})
	for name, args := range commands {
		kubeconfig, err := cp.ServiceAccountKubeconfig(ctx, metav1.NamespaceSystem, "vpa-"+name, "")
		if err != nil {
			return nil, err
		}
		args = append(args, "--kubeconfig="+kubeconfig, "--address=127.0.0.1:0")
		p, err := spawner.Start(cp.Dir(), filepath.Join(controller.Root(), "bin", "autoscaler", name), &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, args)
		if err != nil {
			return nil, fmt.Errorf("%w (make autoscaler-tools builds it)", err)
		}
		ends = append(ends, func(context.Context) error { p.Stop(); return nil })
	}
	return stop, atWork(ctx, cp, client)
}

// install applies what of the autoscaler's own manifests is no Deployment.
func install(ctx context.Context, cp *controlplane.ControlPlane) error {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Dir = filepath.Join(controller.Root(), "hack", "tools", "vpa")
	dir, err := list.Output()
	if err != nil {
		return fmt.Errorf("finding the module %s: %w", module, err)
	}
	deploy := filepath.Join(strings.TrimSpace(string(dir)), "deploy")
	for _, file := range []string{"vpa-v1-crd-gen.yaml", "vpa-rbac.yaml"} {
		if err := cp.Apply(ctx, "--filename", filepath.Join(deploy, file)); err != nil {
			return fmt.Errorf("installing the autoscaler: %w", err)
		}
	}
	if _, err := cp.Kubectl(ctx, "wait", "--for=condition=Established", "customresourcedefinition/verticalpodautoscalers.autoscaling.k8s.io"); err != nil {
		return fmt.Errorf("installing the autoscaler: %w", err)
	}
	return nil
}

// commands are the command lines of the three programs. They look every second or two instead of
// every minute, and the updater does not wait for pods to be twelve hours old.
func commands(cp *controlplane.ControlPlane) (map[string][]string, error) {
	address, err := controller.FreeAddress()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", address, err)
	}
	certificate, boosts := filepath.Join(cp.Dir(), "apiserver.crt"), "--feature-gates=CPUStartupBoost=true"
	return map[string][]string{
		"recommender": {"--recommender-interval=1s", "--pod-recommendation-min-memory-mb=10"},
		"updater":     {"--updater-interval=1s", "--in-recommendation-bounds-eviction-lifetime-threshold=1s", boosts},
		"admission-controller": {
			"--port=" + port, "--register-by-url", "--webhook-address=https://127.0.0.1", "--webhook-port=" + port,
			boosts, "--client-ca-file=" + certificate, "--tls-cert-file=" + certificate, "--tls-private-key=" + filepath.Join(cp.Dir(), "apiserver.key"),
		},
	}, nil
}

// atWork waits until the metrics API answers, and until the admission controller has registered
// its webhook, for which it takes ten seconds, and has told the updater.
func atWork(ctx context.Context, cp *controlplane.ControlPlane, client kubernetes.Interface) error {
	var last error
	if err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, last = client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "vpa-admission-controller", metav1.GetOptions{})
		if last == nil {
			_, last = cp.Kubectl(ctx, "get", "--raw", "/apis/"+group+"/pods")
		}
		return last == nil, nil
	}); err != nil {
		return fmt.Errorf("waiting for the autoscaler: %w", errors.Join(err, last))
	}
	return nil
}
