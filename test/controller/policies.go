package controller

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// admission are the policies of deploy/, and their bindings.
var admission = regexp.MustCompile(`(?m)^kind: (Mutating|Validating)AdmissionPolicy`)

// Policies are the admission policies that [Install] has installed, and their bindings.
type Policies struct {
	cp   *controlplane.ControlPlane
	file string
}

// NewPolicies finds them.
func NewPolicies(ctx context.Context, cp *controlplane.ControlPlane) (*Policies, error) {
	folder, err := manifests(Hold(cp))
	if err != nil {
		return nil, err
	}
	all, err := cp.Kubectl(ctx, "kustomize", folder)
	if err != nil {
		return nil, fmt.Errorf("building deploy/: %w", err)
	}
	p := &Policies{cp: cp, file: filepath.Join(cp.Dir(), "policies.yaml")}
	kept := ""
	for _, object := range regexp.MustCompile(`(?m)^---$`).Split(all, -1) {
		if admission.MatchString(object) {
			kept += "---\n" + strings.TrimPrefix(object, "\n")
		}
	}
	if err := os.WriteFile(p.file, []byte(kept), 0o600); err != nil {
		return nil, fmt.Errorf("writing the policies: %w", err)
	}
	return p, nil
}

// Delete deletes them.
func (p *Policies) Delete(ctx context.Context) error {
	if _, err := p.cp.Kubectl(ctx, "delete", "--ignore-not-found", "--filename", p.file); err != nil {
		return fmt.Errorf("deleting the policies: %w", err)
	}
	return nil
}

// Apply applies them again, and waits until they are in force.
func (p *Policies) Apply(ctx context.Context) error {
	if _, err := p.cp.Kubectl(ctx, "apply", "--filename", p.file); err != nil {
		return fmt.Errorf("applying the policies: %w", err)
	}
	return waitForPolicies(ctx, p.cp)
}

// holdEnvironment names the way in which rollouts are held.
const holdEnvironment = "HOLD"

// Hold is the way in which rollouts are held in this control plane: the one of $HOLD, or else the
// one that clusters of this version have.
func Hold(cp *controlplane.ControlPlane) prerequisite.Way {
	switch way := prerequisite.Way(os.Getenv(holdEnvironment)); {
	case way != "":
		return way
	case cp.AtLeast("1.36"):
		return prerequisite.Policy
	}
	return prerequisite.Webhook
}

// manifests is the folder of deploy/ for a way.
func manifests(way prerequisite.Way) (string, error) {
	if !slices.Contains(prerequisite.Ways, way) {
		return "", fmt.Errorf("$%s is %q, and should be one of %q", holdEnvironment, way, prerequisite.Ways)
	}
	if way == prerequisite.Policy {
		return filepath.Join(Root(), "deploy"), nil
	}
	return filepath.Join(Root(), "deploy", "overlays", string(way)), nil
}
