//go:build e2e

package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

const webhook = "deployment/inplace-rollout-webhook"

// TestWebhook has rollouts held by the webhook, in its image and by its Service, and goes from the
// admission policies to it and back while a rollout is held, as docs/operations.md shows. It runs
// alone, because it changes how every rollout is held.
func TestWebhook(t *testing.T) {
	a, plain := newApp(t, options{}), newApp(t, options{OptedOut: true, Replicas: 1})
	before := a.pods()
	t.Cleanup(func() {
		if err := byPolicies(context.Background()); err != nil {
			t.Error(err)
		}
	})
	must := func(args ...string) {
		t.Helper()
		if _, err := node.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}

	// From the policies to the webhook. In between both hold, and the controller touches nothing.
	must("apply", "--kustomize", filepath.Join(controller.Root(), "deploy", "overlays", "webhook"))
	must("rollout", "status", "-n", controller.Namespace, webhook, "--timeout=2m")
	a.eventually("the webhook's CA to be known", func() (bool, string) {
		return a.try(func() error { return a.edits("a", "1") })
	})
	a.setResources(largeRequests, largeLimits)
	if hold := a.get().Annotations[api.HoldAnnotation]; hold != "0" {
		t.Errorf("held by both, the annotation says %q, want 0", hold)
	}
	must("delete", "mutatingadmissionpolicybindings,mutatingadmissionpolicies", "--selector=app.kubernetes.io/part-of=inplace-rollout")
	a.complete()
	a.assertKept(before, 0)
	a.assertMoved()

	// One of two replicas dies: what is accepted is held.
	pods, err := client.CoreV1().Pods(controller.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=inplace-rollout-webhook"})
	if err != nil || len(pods.Items) != 2 {
		t.Fatalf("%d replicas of the webhook, want 2: %v", len(pods.Items), err)
	}
	cgroup, err := node.Cgroup(&pods.Items[0], "webhook")
	if err != nil {
		t.Fatal(err)
	}
	pids, err := cgroup.Processes()
	if err != nil || len(pids) != 1 {
		t.Fatalf("processes %v of the webhook, want one: %v", pids, err)
	}
	if err := node.Signal(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a.eventually("an edit to be accepted", func() (bool, string) {
		return a.try(func() error { return a.sizes(smallRequests, smallLimits) })
	})
	a.complete()
	a.assertKept(before, 0)
	a.assertMoved()

	// None is there: an edit is refused, and of workloads that are not opted in nobody is asked.
	must("scale", "-n", controller.Namespace, webhook, "--replicas=0")
	must("wait", "--for=delete", "pods", "-n", controller.Namespace, "--selector=app=inplace-rollout-webhook", "--timeout=2m")
	if err := a.sizes(largeRequests, largeLimits); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("an edit without the webhook: %v", err)
	}
	plain.setResources(largeRequests, largeLimits)
	plain.rolledOut()
	must("scale", "-n", controller.Namespace, webhook, "--replicas=2")
	must("rollout", "status", "-n", controller.Namespace, webhook, "--timeout=2m")
	a.eventually("an edit to be accepted", func() (bool, string) {
		return a.try(func() error { return a.sizes(largeRequests, largeLimits) })
	})
	a.complete()
	a.assertKept(before, 0)

	// And back.
	if err := byPolicies(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.setResources(smallRequests, smallLimits)
	a.complete()
	a.assertKept(before, 0)
	a.assertMoved()
}

// byPolicies has rollouts held by the policies again, whatever holds them now.
func byPolicies(ctx context.Context) error {
	if err := controller.Apply(ctx, node.ControlPlane); err != nil {
		return err
	}
	// The configuration first, or every write of an opted-in workload would be refused.
	for _, file := range []string{"configuration.yaml", "webhook.yaml"} {
		file = filepath.Join(controller.Root(), "deploy", "overlays", "webhook", file)
		if _, err := node.Kubectl(ctx, "delete", "--namespace", controller.Namespace, "--filename", file, "--ignore-not-found"); err != nil {
			return err
		}
	}
	return controller.Deployed(ctx, node)
}

// edits sets an annotation of the workload.
func (a *app) edits(key, value string) error {
	_, err := node.Kubectl(a.t.Context(), "annotate", "--namespace", a.namespace, "--overwrite", a.ref, key+"="+value)
	return err
}

// sizes is setResources where that may be refused.
func (a *app) sizes(requests, limits string) error {
	_, err := node.Kubectl(a.t.Context(), "set", "resources", "--namespace", a.namespace, a.ref, "--containers=app", "--requests="+requests, "--limits="+limits)
	return err
}

// try is for eventually.
func (a *app) try(do func() error) (bool, string) {
	if err := do(); err != nil {
		return false, err.Error()
	}
	return true, ""
}
