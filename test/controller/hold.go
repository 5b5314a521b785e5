package controller

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

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
