//go:build integration || around

// Package integration tests the controller, as deploy/ installs it, on a real
// control plane with simulated nodes and kubelets. Each test has a namespace of its
// own. Tests that need a controller of their own, or none, run first and one by one;
// their parts may run at the same time, if their controllers look after one namespace
// each. Tests marked parallel share one.
package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

var (
	cp      *controlplane.ControlPlane
	client  kubernetes.Interface
	objects dynamic.Interface
	mapper  meta.ResettableRESTMapper // to what the API server calls each kind
	hook    *controller.Webhook       // nil where no webhook holds rollouts
)

func TestMain(m *testing.M) {
	os.Exit(controlplane.RunTests(m, controlplane.Options{TypeChecking: true}, setUp))
}

func setUp(ctx context.Context, started *controlplane.ControlPlane) (tearDown func(), err error) {
	cp = started
	config := cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{} // each edit has one
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		if err := cp.AddNode(ctx, node, controlplane.Node{CPU: "8", Memory: "16Gi"}); err != nil {
			return nil, err
		}
	}
	return func() {
		if shared.process != nil {
			shared.process.Stop()
		}
		if hook != nil {
			hook.Stop()
		}
	}, install(ctx)
}

// install installs deploy/ in the way of $HOLD, or mends what is installed.
func install(ctx context.Context) error {
	switch {
	case controller.Hold(cp) != prerequisite.Webhook:
		return controller.Install(ctx, cp)
	case hook != nil:
		return hook.Apply(ctx)
	}
	file, err := logFile("webhook.log")
	if err != nil {
		return err
	}
	hook, err = controller.StartWebhook(ctx, cp, controller.WebhookOptions{Log: file})
	return err
}

// errorTimeout is the flag of the shared controller.
const errorTimeout = 3 * time.Second

var shared struct {
	tests   sync.Map // whose parts may share it, by name
	once    sync.Once
	process *controller.Process
	err     error
}

// inParallel runs a part of a test beside others.
func inParallel(t *testing.T, name string, part func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { parallel(t); part(t) })
}

// parallel marks a test that runs beside others and shares their controller.
func parallel(t *testing.T) {
	t.Helper()
	whole, _, part := strings.Cut(t.Name(), "/")
	if _, shares := shared.tests.LoadOrStore(whole, nil); part && !shares {
		t.Fatalf("%s must be parallel itself: otherwise the controller runs among the tests that want none", whole)
	}
	t.Parallel()
	shared.once.Do(func() {
		shared.process, shared.err = start(controller.Options{Args: []string{"--error-timeout=" + errorTimeout.String()}})
	})
	must.Do(t, shared.err)
}

// ownController runs a controller for this test alone.
func ownController(t *testing.T, o controller.Options) *controller.Process {
	t.Helper()
	process := must.Get(start(o))(t)
	t.Cleanup(process.Stop)
	return process
}

// ownController runs a controller for the sandbox's namespace alone, so that other tests that
// do this can run at the same time.
func (s *sandbox[W]) ownController(t *testing.T, o controller.Options) *controller.Process {
	t.Helper()
	o.Args = append(o.Args, "--namespace="+s.namespace)
	return ownController(t, o)
}

// start runs a controller and waits until it is ready.
func start(o controller.Options) (*controller.Process, error) {
	process, err := launch(o)
	if err != nil {
		return nil, err
	}
	if err := process.WaitReady(context.Background()); err != nil {
		process.Stop()
		return nil, err
	}
	return process, nil
}

// launch runs a controller; all of them log into one file.
func launch(o controller.Options) (*controller.Process, error) {
	file, err := logFile("inplace-rollout.log")
	if err != nil {
		return nil, err
	}
	o.Log = file
	return controller.Start(context.Background(), cp, o)
}

// logFile opens a log beside those of the control plane.
func logFile(name string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(cp.Dir(), "log", name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	return file, nil
}
