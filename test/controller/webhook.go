package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// WebhookOptions are those of a [Webhook].
type WebhookOptions struct {
	// Server overrides the URL of the API server, to put something in between.
	Server string
	// Replicas that run; 2 if zero.
	Replicas int
	// InitialResources has it set the requests of new pods, too: what is installed is
	// deploy/overlays/webhook-initial-resources then.
	InitialResources bool
	// Args follow the ones that StartWebhook gives.
	Args []string
	// Log receives what the replicas write.
	Log io.Writer
}

// A Webhook is what deploy/overlays/webhook has beside the controller, as processes.
type Webhook struct {
	cp       *controlplane.ControlPlane
	o        WebhookOptions
	listener net.Listener

	mu       sync.Mutex
	replicas []*replica
	asked    int // connections
}

type replica struct {
	*Process
	address string // where it is asked
}

// service is where the webhook configuration has the API server ask.
var service = regexp.MustCompile(`service:\n +name: inplace-rollout-webhook\n +namespace: inplace-rollout\n`)

// everywhere is the namespaceSelector of the webhooks that hold, and narrowed what AKS makes of it: it leaves out namespaces of its own,
// which are not there.
const (
	everywhere = "namespaceSelector: {}\n"
	narrowed   = "namespaceSelector: {matchExpressions: [{key: control-plane, operator: DoesNotExist}, {key: kubernetes.azure.com/managedby, operator: NotIn, values: [aks]}]}\n"
)

// StartWebhook applies deploy/overlays/webhook, runs replicas of the webhook, and waits until the
// API server asks them. All Deployments are scaled to nothing. In place of a Service a balancer on
// the loopback address brings requests to the replicas that are ready.
func StartWebhook(ctx context.Context, cp *controlplane.ControlPlane, o WebhookOptions) (*Webhook, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("finding a free port: %w", err)
	}
	w := &Webhook{cp: cp, o: o, listener: listener}
	go w.balance()
	if err := w.start(ctx); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

func (w *Webhook) start(ctx context.Context) error {
	if err := w.Apply(ctx); err != nil {
		return err
	}
	return w.serve(ctx)
}

// Renew starts the replicas as if the webhook had just been installed, with these arguments: there is no
// certificate yet, and the API server asks none of those that were there before.
func (w *Webhook) Renew(ctx context.Context, args ...string) error {
	for _, r := range w.replicas {
		r.Kill()
	}
	if _, err := w.cp.Kubectl(ctx, "delete", "--namespace", Namespace, "secret", "inplace-rollout-webhook"); err != nil {
		return fmt.Errorf("deleting the certificate: %w", err)
	}
	w.o.Args = args
	return w.serve(ctx)
}

// serve starts the replicas, and waits until the API server asks them.
func (w *Webhook) serve(ctx context.Context) error {
	for i := range cmp.Or(w.o.Replicas, 2) {
		if err := w.Start(ctx, i); err != nil {
			return err
		}
	}
	for _, r := range w.replicas {
		if err := r.WaitReady(ctx); err != nil {
			return fmt.Errorf("waiting for the webhook: %w", err)
		}
	}
	return waitForPolicies(ctx, w.cp)
}

// Apply applies the overlay again.
func (w *Webhook) Apply(ctx context.Context) error {
	overlay := filepath.Join(Root(), "deploy", "overlays", "webhook")
	if w.o.InitialResources {
		overlay += "-initial-resources"
	}
	manifest, err := w.cp.Kubectl(ctx, "kustomize", overlay)
	if err != nil {
		return fmt.Errorf("building %s: %w", overlay, err)
	}
	manifest = service.ReplaceAllString(manifest, "url: https://"+w.listener.Addr().String()+"\n")
	if os.Getenv("NARROWED") != "" {
		manifest = strings.ReplaceAll(manifest, everywhere, narrowed)
	}
	file := filepath.Join(w.cp.Dir(), "webhook.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		return fmt.Errorf("writing what is installed: %w", err)
	}
	if err := w.cp.Apply(ctx, "--filename", file); err != nil {
		return fmt.Errorf("installing %s: %w", overlay, err)
	}
	if err := WhenAbsent(ctx, w.cp, api.Hold); err != nil {
		return err
	}
	if _, err := w.cp.Kubectl(ctx, "scale", "--namespace", Namespace, "deployment", "--all", "--replicas=0"); err != nil {
		return fmt.Errorf("installing %s: %w", overlay, err)
	}
	return nil
}

// Start starts the replica of that number, or starts it again after it has ended. Args follow those of the
// options.
func (w *Webhook) Start(ctx context.Context, i int, args ...string) error {
	o := w.o
	o.Args = slices.Concat(o.Args, args)
	p, address, err := StartReplica(ctx, w.cp, Namespace, o)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if i == len(w.replicas) {
		w.replicas = append(w.replicas, nil)
	}
	w.replicas[i] = &replica{Process: p, address: address}
	return nil
}

// StartReplica starts a replica of a webhook that is installed in a namespace. The API server asks it at
// the address.
func StartReplica(ctx context.Context, cp *controlplane.ControlPlane, namespace string, o WebhookOptions) (p *Process, address string, err error) {
	kubeconfig, err := cp.ServiceAccountKubeconfig(ctx, namespace, "inplace-rollout-webhook", o.Server)
	if err != nil {
		return nil, "", err
	}
	if address, err = FreeAddress(); err != nil {
		return nil, "", err
	}
	metrics, err := FreeAddress()
	if err != nil {
		return nil, "", err
	}
	args := []string{
		filepath.Join(Root(), "bin", "inplace-rollout"), "webhook", "--kubeconfig", kubeconfig, "--namespace", namespace, "--bind-address", address,
		"--metrics-bind-address", metrics,
	}
	if o.InitialResources {
		args = append(args, "--initial-resources")
	}
	p, err = start(append(args, o.Args...), metrics, o.Log)
	return p, address, err
}

// ServeFiles starts a replica with a certificate in files, which no API server asks.
func ServeFiles(cp *controlplane.ControlPlane, certificate, key string, log io.Writer) (*Process, error) {
	metrics, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	return start([]string{
		filepath.Join(Root(), "bin", "inplace-rollout"), "webhook", "--kubeconfig", cp.Kubeconfig(), "--bind-address", "127.0.0.1:0", "--metrics-bind-address", metrics,
		"--tls-cert-file", certificate, "--tls-private-key-file", key,
	}, metrics, log)
}

// Replica is the process of that number.
func (w *Webhook) Replica(i int) *Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replicas[i].Process
}

// Address is where the API server asks.
func (w *Webhook) Address() string { return w.listener.Addr().String() }

// Connections is how often the API server, or somebody else, has connected to ask something.
func (w *Webhook) Connections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// Stop kills the replicas that still run, and the balancer.
func (w *Webhook) Stop() {
	_ = w.listener.Close() // what is left of its connections ends with the replicas
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.replicas {
		r.Kill()
	}
}

// balance brings each connection to a replica that is ready.
func (w *Webhook) balance() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return // it was stopped
		}
		go func() {
			defer client.Close()
			server, err := w.dial()
			if err != nil {
				return
			}
			defer server.Close()
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(client, server)
		}()
	}
}

func (w *Webhook) dial() (net.Conn, error) {
	w.mu.Lock()
	w.asked++
	var replicas []*replica
	for i := range w.replicas {
		replicas = append(replicas, w.replicas[(w.asked+i)%len(w.replicas)])
	}
	w.mu.Unlock()
	for _, r := range replicas {
		if r.Ready(context.Background()) != nil {
			continue
		}
		if server, err := net.Dial("tcp", r.address); err == nil {
			return server, nil
		}
	}
	return nil, errors.New("no replica is ready")
}

// The identity that deploy/initial-resources gives to the estimator.
const (
	EstimatorAccount = "inplace-rollout-estimator"
	EstimatorUser    = "system:serviceaccount:" + Namespace + ":" + EstimatorAccount
)

// mutating are the policies that API servers before 1.36 do not have.
var mutating = regexp.MustCompile(`(?m)^kind: MutatingAdmissionPolicy`)

// InstallEstimator applies deploy/initial-resources with the component resize-afterwards, beside
// deploy/ or by itself. Its Deployment is scaled to nothing: [StartEstimator] runs it as a process.
func InstallEstimator(ctx context.Context, cp *controlplane.ControlPlane) error {
	_, err := applyEstimator(ctx, cp, "replicas: [{name: inplace-rollout-estimator, count: 0}]\n")
	return err
}

// DeployEstimator applies the same to a real node that has the image already, but as users do: the
// Deployment runs, with these arguments. It returns the file that has been applied.
func DeployEstimator(ctx context.Context, node *realnode.Node, args ...string) (applied string, err error) {
	value, err := json.Marshal(append([]string{"estimator"}, args...))
	if err != nil {
		return "", fmt.Errorf("encoding arguments: %w", err)
	}
	applied, err = applyEstimator(ctx, node.ControlPlane, fmt.Sprintf(`
patches:
- target: {kind: Deployment, name: inplace-rollout-estimator}
  patch: '[{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": %s}]'
`, value))
	if err != nil {
		return "", err
	}
	if _, err := node.Kubectl(ctx, "rollout", "status", "--namespace", Namespace, "deployment/inplace-rollout-estimator", "--timeout=2m"); err != nil {
		said, _ := node.Kubectl(ctx, "logs", "--namespace", Namespace, "deployment/inplace-rollout-estimator", "--all-pods")
		return "", fmt.Errorf("waiting for the estimator: %w\n%s", err, said)
	}
	return applied, nil
}

// applyEstimator applies deploy/initial-resources with the component resize-afterwards, and with
// more in the kustomization. It returns the file that it has applied.
func applyEstimator(ctx context.Context, cp *controlplane.ControlPlane, more string) (applied string, err error) {
	dir, err := os.MkdirTemp(cp.Dir(), "initial-resources")
	if err != nil {
		return "", fmt.Errorf("making a folder: %w", err)
	}
	deploy, err := filepath.Rel(dir, filepath.Join(Root(), "deploy"))
	if err != nil {
		return "", fmt.Errorf("finding deploy/: %w", err)
	}
	kustomization := fmt.Sprintf("resources: [%s/initial-resources]\ncomponents: [%[1]s/components/resize-afterwards]\n", deploy) + more
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		return "", fmt.Errorf("writing a kustomization: %w", err)
	}
	manifest, err := cp.Kubectl(ctx, "kustomize", dir)
	if err != nil {
		return "", fmt.Errorf("building deploy/initial-resources: %w", err)
	}
	kept := ""
	for _, object := range regexp.MustCompile(`(?m)^---$`).Split(manifest, -1) {
		if cp.AtLeast("1.36") || !mutating.MatchString(object) {
			kept += "---\n" + strings.TrimPrefix(object, "\n")
		}
	}
	applied = filepath.Join(dir, "all.yaml")
	if err := os.WriteFile(applied, []byte(kept), 0o600); err != nil {
		return "", fmt.Errorf("writing what is installed: %w", err)
	}
	for _, file := range []string{filepath.Join(Root(), "deploy", "common", "namespace.yaml"), applied} {
		if err := cp.Apply(ctx, "--filename", file); err != nil {
			return "", fmt.Errorf("installing deploy/initial-resources: %w", err)
		}
	}
	return applied, nil
}

// StartEstimator starts the estimator and does not wait until it is ready.
func StartEstimator(ctx context.Context, cp *controlplane.ControlPlane, o Options) (*Process, error) {
	kubeconfig, err := cp.ServiceAccountKubeconfig(ctx, Namespace, EstimatorAccount, o.Server)
	if err != nil {
		return nil, err
	}
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	args := []string{cmp.Or(o.Binary, filepath.Join(Root(), "bin", "inplace-rollout")), "estimator", "--kubeconfig", kubeconfig, "--metrics-bind-address", address, "-v", "4"}
	return start(append(args, o.Args...), address, o.Log)
}
