//go:build e2e

package e2e

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/test/counter"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// visitors count on an app's pods, one visitor per pod, and notice every request
// that is lost and every count that is forgotten.
type visitors struct {
	*measure.Recorder
	subject measure.Subject
	from    int
	cancel  context.CancelFunc
}

// visit sends a visitor to every pod, until the test or report ends.
func (a *app) visit() *visitors {
	a.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a.t.Cleanup(cancel)
	recorder := must.Get(measure.Record(ctx, client, a.namespace, func(err error) { a.t.Error(err) }))(a.t)
	v := &visitors{Recorder: recorder, subject: measure.Subject{Namespace: a.namespace, Name: "web"}, cancel: cancel}
	v.Visit(ctx, node, 50*time.Millisecond, a.namespace)
	visited := func(s *measure.State) bool { return s.Settled() && len(s.Visits) == a.replicas }
	must.Do(a.t, v.Await(ctx, "every pod is visited", visited, v.subject))
	v.from = v.Now()
	return v
}

// report ends the visits and returns what was noticed.
func (v *visitors) report() measure.Measurement {
	v.cancel()
	history, _ := v.From(0)
	return measure.Edit(history, v.from, v.subject)
}

// hold makes the program in a pod hold so many bytes of memory.
func hold(t *testing.T, pod *corev1.Pod, bytes int64) {
	t.Helper()
	browser := node.HTTP(patience)
	defer browser.CloseIdleConnections()
	must.Do(t, counter.Hold(t.Context(), browser, pod, bytes))
}
