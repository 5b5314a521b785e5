package daemonset

import (
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// defaults are those of the flags.
var defaults = policy.Defaults{DeferredTimeout: 5 * time.Minute, ErrorTimeout: 10 * time.Minute, ResizePolicy: policy.LiveResizeable}
