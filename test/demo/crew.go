package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/inplace-rollout/inplace-rollout/test/counter"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// Each pod is visited all the time, and has a job to do now and then, which needs memory for a while. Those of a StatefulSet's pods
// begin one after the other, in the order in which they are updated.
const (
	visitEvery = 100 * time.Millisecond
	jobEvery   = 15 * time.Second
	jobLasts   = 300 * time.Millisecond
	jobsApart  = 1500 * time.Millisecond
	jobNeeds   = 200 << 20
	jobAtMost  = 30 * time.Second // on a busy machine
	patience   = 5 * time.Second
)

// crew calls pods by their names, whether they are there or not: it cannot be said that they were spared.
type crew struct {
	node  *realnode.Node
	begin time.Time
	calls sync.WaitGroup
	leave context.CancelFunc

	mu           sync.Mutex
	working      int // pods
	pods         map[types.NamespacedName]*corev1.Pod
	visits, jobs map[types.NamespacedName][]call
}

// call is a visit or a job.
type call struct {
	at  time.Time // when it began
	err error     // if it was not answered
}

var errNoPod = errors.New("there is no such pod, or it has no address")

// callAll begins to call all pods that some subjects have now.
func callAll(ctx context.Context, node *realnode.Node, r *measure.Recorder, subjects ...measure.Subject) *crew {
	calling, leave := context.WithCancel(ctx)
	c := &crew{
		node: node, begin: time.Now(), leave: leave,
		pods: map[types.NamespacedName]*corev1.Pod{}, visits: map[types.NamespacedName][]call{}, jobs: map[types.NamespacedName][]call{},
	}
	history, _ := r.From(0)
	c.learn(history)
	c.calls.Go(func() { c.follow(calling, r, len(history)) })
	for _, of := range subjects {
		names := measure.Replay(history, of).PodNames()
		slices.Reverse(names)
		for i, name := range names {
			browser, client := node.HTTP(patience), node.HTTP(jobAtMost)
			context.AfterFunc(ctx, browser.CloseIdleConnections)
			context.AfterFunc(ctx, client.CloseIdleConnections)
			pod := types.NamespacedName{Namespace: of.Namespace, Name: name}
			c.calls.Go(func() {
				c.call(calling, ctx, c.begin, visitEvery, pod, c.visits, func(at *corev1.Pod) error { return visitOnce(ctx, browser, at) })
			})
			c.calls.Go(func() {
				first := c.begin.Add(time.Duration(i) * jobsApart)
				c.call(calling, ctx, first, jobEvery, pod, c.jobs, func(at *corev1.Pod) error { return c.workOnce(ctx, client, at) })
			})
		}
	}
	return c
}

// rest waits until so many pods have done a job, and have nothing to do for a while: a kubelet does not lower a limit to below what is
// in use, and takes its time to try again.
func (c *crew) rest(ctx context.Context, pods int) error {
	err := wait.PollUntilContextTimeout(ctx, visitEvery, time.Minute, true, func(context.Context) (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		since := time.Since(c.begin) % jobEvery
		return len(c.jobs) == pods && c.working == 0 && since > jobEvery/2 && since < jobEvery*2/3, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until all pods have worked: %w", err)
	}
	return nil
}

// end ends the calls, and waits for the answers to the last ones.
func (c *crew) end() {
	c.leave()
	c.calls.Wait()
}

// follow learns where the pods are from the nth moment on.
func (c *crew) follow(ctx context.Context, r *measure.Recorder, n int) {
	for ctx.Err() == nil {
		moments, changed := r.From(n)
		n += len(moments)
		c.learn(moments)
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (c *crew) learn(moments []measure.Moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range moments {
		pod, is := m.Object.(*corev1.Pod)
		if !is {
			continue
		}
		name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		c.pods[name] = pod
		if m.Deleted {
			delete(c.pods, name)
		}
	}
}

// call calls a pod again and again until calling is done, and does not wait for one answer before the next call. What is interrupted
// with ctx counts for nothing.
func (c *crew) call(calling, ctx context.Context, next time.Time, pause time.Duration, name types.NamespacedName, done map[types.NamespacedName][]call, ask func(*corev1.Pod) error) {
	for ; ; next = next.Add(pause) {
		select {
		case <-calling.Done():
			return
		case <-time.After(time.Until(next)):
		}
		c.calls.Go(func() {
			at := time.Now()
			c.mu.Lock()
			pod := c.pods[name]
			c.mu.Unlock()
			err := errNoPod
			if pod != nil && pod.Status.PodIP != "" {
				err = ask(pod)
			}
			if ctx.Err() == nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				done[name] = append(done[name], call{at, err})
			}
		})
	}
}

func visitOnce(ctx context.Context, browser *http.Client, pod *corev1.Pod) error {
	_, err := counter.Add(ctx, browser, pod)
	return err
}

func (c *crew) workOnce(ctx context.Context, client *http.Client, pod *corev1.Pod) error {
	c.work(1)
	defer c.work(-1)
	if err := counter.Hold(ctx, client, pod, jobNeeds); err != nil {
		return err
	}
	time.Sleep(jobLasts)
	return counter.Hold(ctx, client, pod, 0)
}

func (c *crew) work(pods int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.working += pods
}

// between are the calls that began in some time, in their order.
func between(calls []call, from, to time.Time) []call {
	among := slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return c.at.Before(from) || c.at.After(to) })
	slices.SortFunc(among, func(a, b call) int { return a.at.Compare(b.at) })
	return among
}

// unanswered are how many got no answer, and why the first of them did not.
func unanswered(calls []call) (n int, why error) {
	for _, c := range calls {
		if c.err != nil {
			n++
			why = cmp.Or(why, c.err)
		}
	}
	return n, why
}
