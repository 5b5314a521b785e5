//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

const webhook = "deployment/inplace-rollout-webhook"

// TestWebhook has rollouts held by the webhook, in its image and by its Service, and goes from the
// admission policies to it and back while a rollout is held, as docs/operations.md shows. It runs
// alone, because it changes how every rollout is held. What becomes of edits while replicas are away is in test/hold.
func TestWebhook(t *testing.T) {
	a := newApp(t, options{})
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
		_, err := node.Kubectl(t.Context(), "annotate", "--namespace", a.namespace, "--overwrite", a.ref, "a=1")
		return err == nil, fmt.Sprint(err)
	})
	a.setResources(largeRequests, largeLimits)
	if hold := a.get().GetAnnotations()[api.HoldAnnotation]; hold != "0" {
		t.Errorf("held by both, the annotation says %q, want 0", hold)
	}
	must("delete", "mutatingadmissionpolicybindings,mutatingadmissionpolicies", "--selector=app.kubernetes.io/part-of=inplace-rollout")
	a.complete()
	a.assertKept(before, 0)
	a.assertMoved()

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
