//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/test/counter"
)

// visitors count on an app's pods, one visitor per pod, and notice every request
// that is lost and every count that is forgotten.
type visitors struct {
	app    *app
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu   sync.Mutex
	seen seen
}

// seen is what visitors have noticed.
type seen struct {
	requests int // answered or not
	lost     int // not answered
	falls    int // how often a counter was behind its visitor
	lostSum  int64
	why      string // the first loss
}

func (s seen) String() string {
	return fmt.Sprintf("%5d requests, %3d lost; counters fell back %d times, %d counts forgotten", s.requests, s.lost, s.falls, s.lostSum)
}

// visit sends a visitor to every pod, until the test or stop ends.
func (a *app) visit() *visitors {
	a.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	v := &visitors{app: a, cancel: cancel}
	a.t.Cleanup(v.stop)
	for i := range a.replicas {
		v.all.Go(func() { v.keepCounting(ctx, i) })
	}
	return v
}

func (v *visitors) stop() {
	v.cancel()
	v.all.Wait()
}

// report ends the visits and returns what was noticed.
func (v *visitors) report() seen {
	v.stop()
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen
}

// keepCounting stays with a pod, over one connection, as long as it answers; then it takes
// the pod at its place among those that are Ready.
func (v *visitors) keepCounting(ctx context.Context, place int) {
	browser := node.HTTP(10 * time.Second)
	defer browser.CloseIdleConnections()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	var pod *corev1.Pod
	last := int64(0)
	for ctx.Err() == nil {
		number, err := int64(0), error(nil)
		if pod == nil {
			pod, err = v.app.podAt(ctx, place)
		}
		if err == nil {
			number, err = counter.Add(ctx, browser, pod)
		}
		if ctx.Err() != nil {
			return
		}
		v.note(number, last, err)
		if err != nil {
			pod = nil
		} else {
			last = number
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (v *visitors) note(number, last int64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen.requests++
	if err != nil {
		v.seen.lost++
		if v.seen.why == "" {
			v.seen.why = err.Error()
		}
		return
	}
	if number <= last {
		v.seen.falls++
		v.seen.lostSum += last + 1 - number
	}
}

// podAt is the pod at a place among those that are Ready.
func (a *app) podAt(ctx context.Context, place int) (*corev1.Pod, error) {
	pods, err := a.list(ctx)
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !podutils.IsPodReady(&p) })
	if len(pods) == 0 {
		return nil, errors.New("no pod is Ready")
	}
	return &pods[place%len(pods)], nil
}

// hold makes the program in a pod hold so many bytes of memory.
func hold(t *testing.T, pod *corev1.Pod, bytes int64) {
	t.Helper()
	browser := node.HTTP(patience)
	defer browser.CloseIdleConnections()
	if err := counter.Hold(t.Context(), browser, pod, bytes); err != nil {
		t.Fatal(err)
	}
}
