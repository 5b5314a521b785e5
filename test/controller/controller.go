// Package controller installs deploy/ into a test control plane and runs the real
// controller binary there, under the ServiceAccount that deploy/ ships; or, on a
// real node, in its image, as deploy/ does.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// The identity that deploy/ gives to the controller.
const (
	Namespace      = "inplace-rollout"
	ServiceAccount = "inplace-rollout"
	User           = "system:serviceaccount:" + Namespace + ":" + ServiceAccount
)

// Found at the start: tests may change the working directory.
var root, errRoot = controlplane.ModuleRoot()

// Root is the folder of this module, in which everything that is in test/ must be started.
func Root() string {
	if errRoot != nil {
		panic(errRoot)
	}
	return root
}

// Apply applies deploy/ as it is, in the way of [Hold], and waits until the policies are in force. Edits are held from then
// on, before there is any controller.
func Apply(ctx context.Context, cp *controlplane.ControlPlane) error {
	if err := apply(ctx, cp); err != nil {
		return err
	}
	if err := WhenAbsent(ctx, cp, api.Hold); err != nil {
		return err
	}
	return waitForPolicies(ctx, cp)
}

// Beat writes a heartbeat, as a controller does that is there for so long; or takes it away, as one does that ends, if that is 0.
func Beat(ctx context.Context, cp *controlplane.ControlPlane, valid time.Duration) error {
	until := "-"
	if valid != 0 {
		until = "=" + time.Now().Add(valid).UTC().Format(time.RFC3339)
	}
	return say(ctx, cp, api.ReadyUntilAnnotation+until)
}

// WhenAbsent says what becomes of edits while no controller is there, until one is started that says otherwise.
func WhenAbsent(ctx context.Context, cp *controlplane.ControlPlane, what string) error {
	return say(ctx, cp, api.WhenAbsentAnnotation+"="+what)
}

// say writes an annotation where controllers say that they are there, or takes it away. No manifest has that object.
func say(ctx context.Context, cp *controlplane.ControlPlane, annotation string) error {
	const object = "serviceaccount/" + api.HeartbeatName
	if _, err := cp.Kubectl(ctx, "get", "--namespace", Namespace, object); err != nil {
		if _, err := cp.Kubectl(ctx, "create", "serviceaccount", "--namespace", Namespace, api.HeartbeatName); err != nil {
			return fmt.Errorf("creating the object of the heartbeat: %w", err)
		}
	}
	if _, err := cp.Kubectl(ctx, "annotate", "--overwrite", "--namespace", Namespace, object, annotation); err != nil {
		return fmt.Errorf("writing a heartbeat: %w", err)
	}
	return nil
}

func apply(ctx context.Context, cp *controlplane.ControlPlane) error {
	folder, err := manifests(Hold(cp))
	if err != nil {
		return err
	}
	if err := cp.Apply(ctx, "--kustomize", folder); err != nil {
		return fmt.Errorf("installing deploy/: %w", err)
	}
	return nil
}

// Install applies deploy/. The controller's Deployment is scaled to nothing,
// because [Start] runs the controller as a process; simulated nodes run no images.
func Install(ctx context.Context, cp *controlplane.ControlPlane) error {
	if err := Apply(ctx, cp); err != nil {
		return err
	}
	if _, err := cp.Kubectl(ctx, "scale", "--namespace", Namespace, "deployment/inplace-rollout", "--replicas=0"); err != nil {
		return fmt.Errorf("installing deploy/: %w", err)
	}
	return nil
}

// Uninstall deletes deploy/, and waits until the namespace is gone. It lets kubectl wait for nothing: that asks for each
// object, five times a second.
func Uninstall(ctx context.Context, cp *controlplane.ControlPlane) error {
	if _, err := cp.Kubectl(ctx, "delete", "--wait=false", "--kustomize", filepath.Join(Root(), "deploy")); err != nil {
		return fmt.Errorf("uninstalling deploy/: %w", err)
	}
	if _, err := cp.Kubectl(ctx, "wait", "--for=delete", "namespace/"+Namespace, "--timeout=1m"); err != nil {
		return fmt.Errorf("uninstalling deploy/: %w", err)
	}
	return nil
}

// Deploy brings the controller's image to a real node, applies deploy/ as users do,
// and waits until the controller is ready.
func Deploy(ctx context.Context, node *realnode.Node) error {
	if err := node.Import(ctx, "inplace-rollout"); err != nil {
		return err
	}
	if err := apply(ctx, node.ControlPlane); err != nil {
		return err
	}
	if err := Deployed(ctx, node); err != nil {
		said, _ := node.Kubectl(ctx, "describe", "pods", "--namespace", Namespace)
		logs, _ := node.Kubectl(ctx, "logs", "--namespace", Namespace, "deployment/inplace-rollout", "--all-pods")
		return fmt.Errorf("%w\n%s\n%s", err, said, logs)
	}
	return waitForPolicies(ctx, node.ControlPlane)
}

// Deployed waits until all replicas that deploy/ has are ready.
func Deployed(ctx context.Context, node *realnode.Node) error {
	deployments := []string{"deployment/inplace-rollout"}
	if Hold(node.ControlPlane) == prerequisite.Webhook {
		deployments = append(deployments, "deployment/inplace-rollout-webhook")
	}
	for _, deployment := range deployments {
		if _, err := node.Kubectl(ctx, "rollout", "status", "--namespace", Namespace, deployment, "--timeout=2m"); err != nil {
			return fmt.Errorf("waiting for %s: %w", deployment, err)
		}
	}
	return nil
}

// probe is a workload of some kind that its hold policy changes even when it is new.
const probe = `
apiVersion: apps/v1
kind: %s
metadata:
  name: probe
  namespace: default
  labels: {inplace-rollout.io/enabled: "true"}
  annotations: {inplace-rollout.io/hold: forged}
spec:
  selector: {matchLabels: {app: probe}}
  template:
    metadata: {labels: {app: probe}}
    spec: {containers: [{name: probe, image: probe}]}
`

// waitForPolicies waits until the API server applies the policies that it has
// accepted, which takes it up to a second.
func waitForPolicies(ctx context.Context, cp *controlplane.ControlPlane) error {
	config := cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, kind := range []string{"StatefulSet", "Deployment"} {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(fmt.Appendf(nil, probe, kind), &object.Object); err != nil {
			return fmt.Errorf("parsing the probe: %w", err)
		}
		workloads := client.Resource(appsv1.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "s")).Namespace("default")
		var last error // such as that of a webhook whose CA the API server does not know yet
		if err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			created, err := workloads.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			last = err
			return err == nil && created.GetAnnotations()[api.HoldAnnotation] != "forged", nil
		}); err != nil {
			return fmt.Errorf("waiting for the admission policies: %w", cmp.Or(last, err))
		}
	}
	return nil
}

// Options of a Process.
type Options struct {
	// Binary of the controller; bin/inplace-rollout of this module if empty, with --when-absent=Hold: many tests edit while
	// no controller runs.
	Binary string
	// Namespace of its ServiceAccount; that of deploy/ if empty.
	Namespace string
	// Server overrides the URL of the API server, to put something in between.
	Server string
	// Args follow the ones that Start gives.
	Args []string
	// Log receives what the controller writes.
	Log io.Writer
}

// Process is a running controller.
type Process struct {
	cmd     *exec.Cmd
	address string
	done    chan struct{}
}

// Run runs the controller as one of the control plane's own processes, which ends
// with it, and waits until it is ready. More follow the arguments that Start gives.
func Run(ctx context.Context, cp *controlplane.ControlPlane, more ...string) error {
	args, address, err := arguments(ctx, cp, Options{Args: more})
	if err != nil {
		return err
	}
	if err := cp.Run(args[0], args[1:]...); err != nil {
		return err
	}
	return (&Process{address: address}).WaitReady(ctx)
}

// arguments are the controller's command line, and the address that it serves.
func arguments(ctx context.Context, cp *controlplane.ControlPlane, o Options) (args []string, address string, err error) {
	kubeconfig, err := cp.ServiceAccountKubeconfig(ctx, cmp.Or(o.Namespace, Namespace), ServiceAccount, o.Server)
	if err != nil {
		return nil, "", err
	}
	if address, err = FreeAddress(); err != nil {
		return nil, "", err
	}
	args = []string{o.Binary, "controller", "--kubeconfig", kubeconfig, "--metrics-bind-address", address, "--leader-elect=false", "-v", "4"}
	if o.Binary == "" { // another one may be of a version that does not know this
		args[0] = filepath.Join(Root(), "bin", "inplace-rollout")
		args = append(args, "--when-absent="+api.Hold)
	}
	return append(args, o.Args...), address, nil
}

// Start starts the controller and does not wait until it is ready.
func Start(ctx context.Context, cp *controlplane.ControlPlane, o Options) (*Process, error) {
	args, address, err := arguments(ctx, cp, o)
	if err != nil {
		return nil, err
	}
	return start(args, address, o.Log)
}

// start starts a program of ours that serves its readiness and metrics at the address.
func start(args []string, address string, log io.Writer) (*Process, error) {
	p := &Process{cmd: exec.Command(args[0], args[1:]...), address: address, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// It dies with this process, however that ends; the signal is bound to the thread that started it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended does not matter: tests kill it
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", args[1], err)
	}
	return p, nil
}

// FreeAddress returns an address of 127.0.0.1 where nobody listens.
func FreeAddress() (string, error) {
	port, err := controlplane.FreePort()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", port), nil
}

// Ready returns nil if the controller says that it is ready, or what it says instead.
func (p *Process) Ready(ctx context.Context) error {
	_, err := p.get(ctx, "/readyz")
	return err
}

// Address is where the controller serves /metrics, /healthz and /readyz.
func (p *Process) Address() string { return p.address }

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Metrics returns what the controller serves for Prometheus.
func (p *Process) Metrics(ctx context.Context) (string, error) { return p.get(ctx, "/metrics") }

// get returns the answer to a request; what comes with an error code is an error.
func (p *Process) get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, nil)
	if err != nil {
		return "", fmt.Errorf("asking the controller for %s: %w", path, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking the controller for %s: %w", path, err)
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("asking the controller for %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", errors.New(strings.TrimSpace(string(said)))
	}
	return string(said), nil
}

// WaitReady waits until the controller is ready, at most two minutes: the Lease of one that was killed runs out before.
func (p *Process) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		err := p.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("the controller ended: %s", p.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("the controller is not ready: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Kill ends the controller without a chance to clean up, and waits until it is gone.
func (p *Process) Kill() { p.end(os.Kill) }

// Stop asks the controller to end, and waits until it is gone. A paused one goes on to do so.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended already
	p.end(syscall.SIGCONT)
}

// Pause stops the controller where it is, by SIGSTOP, until Resume. Kill ends it all the same.
func (p *Process) Pause() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pausing the controller: %w", err)
	}
	return nil
}

// Resume lets the controller go on after Pause.
func (p *Process) Resume() error {
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("resuming the controller: %w", err)
	}
	return nil
}

// Done is closed when the controller has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode is how the controller ended, or -1 if a signal ended it or it still runs.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

func (p *Process) end(signal os.Signal) {
	_ = p.cmd.Process.Signal(signal) // fails only if it has ended already
	<-p.done
}
