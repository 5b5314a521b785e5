package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// A built-in controller acknowledges within seconds what it is shown. If somebody's admission policy takes that out of its write,
// neither it nor we get an error, and nothing makes it write once more but another write to the workload. So the condition says
// how long it has taken, 30 s after the beginning, and then each time after twice as long, up to rarestReminder.
const (
	firstReminder  = 30 * time.Second
	rarestReminder = 8 * time.Minute
)

// acknowledgement is what the built-in controller has yet to acknowledge, and since when.
type acknowledgement struct {
	what  string
	since time.Time
}

// lasts says for how long the acknowledgement has been waited for, and after which time to say so again. It is empty at first, and
// where nothing is waited for, which is no name.
func (a *acknowledgement) lasts(what string, now time.Time) (said string, again time.Duration) {
	if a.what != what {
		*a = acknowledgement{what, now}
	}
	if what == "" {
		return "", 0
	}
	lasted, each := now.Sub(a.since), firstReminder
	for each < rarestReminder && 2*each <= lasted {
		each *= 2
	}
	lasted = lasted.Truncate(each)
	if lasted > 0 {
		said = "; not acknowledged for " + lasted.String()
	}
	return said, a.since.Add(lasted + each).Sub(now)
}

// awaited names what is waited for after a plan's writes, which have returned that error: the last write, if they have failed, or what is
// not acknowledged; empty if there is neither.
func awaited(w metav1.Object, p rollout.Plan, err error) string {
	if !failed(err) || len(p.Writes) == 0 {
		return p.Unacknowledged
	}
	return fmt.Sprintf("%s of generation %d", p.Writes[len(p.Writes)-1], w.GetGeneration())
}

// failed reports whether a write has failed. A conflict is only a reason to look again.
func failed(err error) bool {
	return err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err)
}

// stuck is the plan's condition, and where something is awaited for so long, what that is.
func stuck(p rollout.Plan, lasts string, err error) rollout.Condition {
	c := p.Condition
	if lasts == "" || c.Complete {
		return c
	}
	if !failed(err) {
		c.Details += "; " + p.Unacknowledged + lasts
		return c
	}
	first, _, _ := strings.Cut(err.Error(), "\n") // of several
	if c.Reason == "" {
		c.Reason, c.Why = judge.ReasonProgressing, first
	} else {
		c.Details += "; " + first
	}
	if c.Reason == judge.ReasonProgressing && pods.Answered(err) { // a policy says Forbidden, Invalid, or what else it likes
		c.Reason = judge.ReasonAdmissionDenied
	}
	return c
}

// lasts is [acknowledgement.lasts] of what the workload awaits now.
func (c *Controller[W, K]) lasts(name cache.ObjectName, what string) (said string, again time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.awaited[name]
	said, again = a.lasts(what, c.clock.Now())
	if c.awaited[name] = a; what == "" {
		delete(c.awaited, name)
	}
	return said, again
}

// remind has the condition of a workload that is held, or was let go and is not Complete yet, say for how long its built-in controller
// has not acknowledged the last write, which has that controller look at it again. It returns after which time the next one is due.
func (c *Controller[W, K]) remind(ctx context.Context, w W) (again time.Duration, err error) {
	have, held := c.access.Condition(w), policy.Held(w)
	if !held && (have == nil || have.Complete()) {
		return 0, nil
	}
	now := metav1.NewTime(c.clock.Now())
	what := fmt.Sprintf("waiting for the %s controller to observe generation %d", c.access.Kind, w.GetGeneration())
	said, again := c.lasts(cache.MetaObjectToName(w), what)
	if said == "" || c.options.DryRun {
		return again, nil
	}
	// As when it is acknowledged, what was Complete is Pending, and what was not stays as it was.
	says := rollout.StoredCondition{Status: corev1.ConditionFalse, Reason: judge.ReasonPending, LastTransitionTime: now}
	if have != nil && !have.Complete() {
		says = *have
	}
	if says.Message == what+said {
		return again, nil
	}
	says.Message = what + said
	if err := c.putConditions(ctx, w, map[string]any{"uid": w.GetUID(), "resourceVersion": w.GetResourceVersion()}, c.access.NewCondition(says, now)); err != nil {
		return 0, err
	}
	klog.FromContext(ctx).Info("The built-in controller does not acknowledge the last write. Does an admission policy change its status writes?", "condition", says.Message)
	return again, nil
}
