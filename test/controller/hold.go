package controller

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// Hold is the way in which rollouts are held.
type Hold string

// The ways that deploy/ has.
const (
	Policy  Hold = "policy"
	Beta    Hold = "v1beta1"
	Webhook Hold = "webhook"
)

// holdEnvironment names the way; without it, it is the one that clusters of the version have.
const holdEnvironment = "HOLD"

// HoldOf is the way in which rollouts are held in this control plane.
func HoldOf(cp *controlplane.ControlPlane) Hold {
	switch hold := Hold(os.Getenv(holdEnvironment)); {
	case hold != "":
		return hold
	case cp.AtLeast("1.36"):
		return Policy
	}
	return Webhook
}

// Flags are what a control plane must be started with.
func Flags() map[string][]string {
	if Hold(os.Getenv(holdEnvironment)) != Beta {
		return nil
	}
	return map[string][]string{"kube-apiserver": {
		"--feature-gates", "MutatingAdmissionPolicy=true", "--runtime-config", "admissionregistration.k8s.io/v1beta1=true",
	}}
}

// manifests is the folder of deploy/ for this way.
func (h Hold) manifests() (string, error) {
	switch h {
	case Policy:
		return filepath.Join(Root(), "deploy"), nil
	case Beta, Webhook:
		return filepath.Join(Root(), "deploy", "overlays", string(h)), nil
	}
	return "", fmt.Errorf("$%s is %q, and should be %s, %s or %s", holdEnvironment, h, Policy, Beta, Webhook)
}
