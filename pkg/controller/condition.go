package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// A change of nothing but the condition's message is written ProgressInterval after the last
// write, and lastInterval after it if the message is the last word for now. Of a rollout that
// only makes progress, nearly every sync has another message: one that has not lasted for
// ProgressInterval waits for longProgressInterval. So a rollout of many quick steps has two
// writes, one at its beginning and one at its end.
const (
	ProgressInterval     = 10 * time.Second
	longProgressInterval = time.Minute
	lastInterval         = time.Second
)

// writeCondition writes the plan's condition if it differs, or others are to be written beside it, and
// then records the events that go with it. The time of a transition is told by the clock of the API server, which tells
// also when others have resized a pod. It returns after which time a message that was put off is due; 0 if none was.
func (c *Controller[W, K]) writeCondition(ctx context.Context, w W, p rollout.Plan, beside ...any) (due time.Duration, err error) {
	if p.Started != "" && !p.Condition.Complete && !c.options.DryRun {
		c.begun(w)
	}
	now := metav1.NewTime(c.clock.Now())
	have, want := c.access.Condition(w), p.Condition.Stored(*cmp.Or(written(w), &now))
	if have != nil && have.Status == want.Status {
		if !have.Pending() {
			want.LastTransitionTime = have.LastTransitionTime
		}
		if have.Reason == want.Reason && len(beside) == 0 {
			if have.Message == want.Message {
				c.upToDate(w)
				return 0, nil
			}
			if due := c.messageDue(w, p); due > 0 {
				return due, nil
			}
		}
	}
	if c.options.DryRun {
		klog.FromContext(ctx).Info("Would write the condition", "status", want.Status, "reason", want.Reason, "message", want.Message)
		return 0, nil
	}
	metadata := map[string]any{"uid": w.GetUID()}
	if p.Condition.Complete {
		// It is true of this version of the workload, and not after an edit in between.
		metadata["resourceVersion"] = w.GetResourceVersion()
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": metadata,
		"status":   map[string]any{"conditions": append([]any{c.access.NewCondition(want, now)}, beside...)},
	})
	if err != nil {
		return 0, fmt.Errorf("encoding the condition: %w", err)
	}
	if _, err := c.patch(ctx, w, types.StrategicMergePatchType, patch, "status"); err != nil {
		return 0, fmt.Errorf("writing the condition: %w", err)
	}
	c.recordCondition(w, have, p)
	c.wroteMessage(w)
	return 0, nil
}

// message is what is known of the messages of a workload's condition.
type message struct {
	wrote time.Time       // when the last one was written
	held  bool            // whether the workload was held then
	next  string          // that is to be written; empty if none is
	since time.Time       // since when
	left  rollout.Version // that was handed over since
}

// messageDue returns for how long a new message is still put off where nothing else of the
// condition changes; 0 or less if it is due. The first message after a hold is due at once.
// One of progress is due when it has lasted: then something may stand still, unless a held
// rollout only waits for other controllers for a moment. If the workload is Complete, a new
// message has to last, too: a pod that goes and comes back is not worth two writes.
func (c *Controller[W, K]) messageDue(w W, p rollout.Plan) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := cache.MetaObjectToName(w)
	m, now := c.messages[name], c.clock.Now()
	if next := p.Condition.Message(); m.next != next {
		m.next, m.since = next, now
		c.messages[name] = m
	}
	lasted, long := m.since.Add(ProgressInterval).Sub(now), m.wrote.Add(longProgressInterval).Sub(now)
	switch {
	case m.held && !policy.Held(w), p.WriteNow:
		return 0
	case p.LastWord():
		return m.wrote.Add(lastInterval).Sub(now)
	case p.Condition.Complete:
		return lasted
	case p.Condition.Reason == rollout.ReasonProgressing && p.Transient && policy.Held(w):
		return long
	case p.Condition.Reason == rollout.ReasonProgressing:
		return min(lasted, long)
	default: // pods wait for something
		return m.wrote.Add(ProgressInterval).Sub(now)
	}
}

// upToDate notes that there is nothing to write.
func (c *Controller[W, K]) upToDate(w W) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := cache.MetaObjectToName(w)
	if m, is := c.messages[name]; is {
		m.next = ""
		c.messages[name] = m
	}
}

func (c *Controller[W, K]) wroteMessage(w W) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages[cache.MetaObjectToName(w)] = message{wrote: c.clock.Now(), held: policy.Held(w)}
}
