package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// resizePolicyFlag is a flag that the controller and plan have in common.
const resizePolicyFlag = "default-resource-resize-policy"

// ValidResizePolicy checks that flag.
func ValidResizePolicy(p policy.Policy) error {
	if p != policy.LiveResizeable && p != policy.RestartOnly {
		return fmt.Errorf("--"+resizePolicyFlag+" is %q: want LiveResizeable or RestartOnly", p)
	}
	return nil
}

// CompleteResizePolicy offers its values.
func CompleteResizePolicy(cmd *cobra.Command) {
	CompleteFlag(cmd, resizePolicyFlag, cobra.FixedCompletions(
		[]cobra.Completion{string(policy.LiveResizeable), string(policy.RestartOnly)}, cobra.ShellCompDirectiveNoFileComp))
}
