package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

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
