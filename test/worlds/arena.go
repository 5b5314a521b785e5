package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/faults"
	"github.com/inplace-rollout/inplace-rollout/test/invariant"
)

// The controller's flags: what is waited for must not take long.
const (
	deferredTimeout = 4 * time.Second
	errorTimeout    = 3 * time.Second
)

// trouble says what the worlds of a round have to cope with.
type trouble struct {
	seed uint64
	// Rates of faults, of requests and of watches.
	rate, watchRate float64
	replicas        int  // controllers; with more than one there is a Lease
	blows           bool // controllers are killed and paused
	restarts        bool // of the API server and etcd, too
	flaps           bool // controllers are there, and then not, and again, to those who edit
	absences        bool // all controllers go, or all policies, and come back later
}

// arena is a control plane with controllers behind a hostile proxy, in which worlds are played.
type arena struct {
	cp    *controlplane.ControlPlane
	hook  *controller.Webhook // where it holds
	log   io.WriteCloser      // the controllers', and the webhook's
	tally tally
	names int
	limit time.Duration // for everything to converge

	policies *controller.Policies
	gaps     spans // when they are not all there
	doubts   spans // when what is stored may not be in the audit log
}

// newArena starts the control plane.
func newArena(ctx context.Context, bin string, out io.Writer) (*arena, error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{Bin: bin, Log: out})
	if err != nil {
		return nil, err
	}
	a := &arena{cp: cp, tally: tally{}, limit: 90 * time.Second}
	if err := a.equip(ctx); err != nil {
		cp.KeepLogs()
		return nil, errors.Join(err, cp.Stop())
	}
	return a, nil
}

func (a *arena) equip(ctx context.Context) error {
	for i := range 6 {
		if err := a.cp.AddNode(ctx, fmt.Sprintf("node-%d", i+1), controlplane.Node{CPU: "8", Memory: "16Gi"}); err != nil {
			return err
		}
	}
	var err error
	if a.log, err = os.OpenFile(filepath.Join(a.cp.Dir(), "log", "inplace-rollout.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return fmt.Errorf("opening the controllers' log: %w", err)
	}
	if a.policies, err = controller.NewPolicies(ctx, a.cp); err != nil {
		return err
	}
	if controller.Hold(a.cp) != prerequisite.Webhook {
		return controller.Install(ctx, a.cp)
	}
	a.hook, err = controller.StartWebhook(ctx, a.cp, controller.WebhookOptions{Log: a.log})
	return err
}

func (a *arena) close() error {
	if a.hook != nil {
		a.hook.Stop()
	}
	return errors.Join(a.log.Close(), a.cp.Stop())
}

// outcome is what became of one world.
type outcome struct {
	World
	namespace  string
	violations []invariant.Violation
	err        error // that kept it from being played
}

// round plays worlds at the same time: they are created and edited while faults go on, then the
// faults end, and all must converge.
func (a *arena) round(ctx context.Context, worlds []World, t trouble) ([]outcome, error) {
	mark, err := a.cp.AuditMark()
	if err != nil {
		return nil, err
	}
	storm, err := a.storm(ctx, t)
	if err != nil {
		return nil, err
	}
	defer storm.end()

	outcomes := make([]outcome, len(worlds))
	players := make([]*player, len(worlds))
	for i, w := range worlds {
		a.names++
		outcomes[i] = outcome{World: w, namespace: fmt.Sprintf("world-%d-%d", w.Seed, a.names)}
		if players[i], err = newPlayer(a.cp, w, outcomes[i].namespace); err != nil {
			return nil, err
		}
		players[i].gaps = &a.gaps
	}
	each := func(do func(*player, *outcome) error) {
		var wait sync.WaitGroup
		for i := range players {
			if outcomes[i].err == nil {
				wait.Go(func() { outcomes[i].err = do(players[i], &outcomes[i]) })
			}
		}
		wait.Wait()
	}
	each(func(p *player, _ *outcome) error { return p.create(ctx) })
	stop := storm.begin(ctx)
	each(func(p *player, _ *outcome) error { return p.play(ctx) })
	if err := stop(); err != nil {
		return nil, err
	}
	each(func(p *player, o *outcome) (err error) { o.violations, err = p.converge(ctx, a.limit); return err })
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := a.judge(outcomes, players, mark); err != nil {
		return nil, err
	}
	for i, o := range outcomes {
		if len(o.violations) > 0 || o.err != nil {
			a.dump(ctx, o)
		}
		for what, n := range players[i].tally {
			a.tally[what] += n
		}
		if err := players[i].clear(ctx); err != nil {
			return nil, fmt.Errorf("clearing %s: %w", o.namespace, err)
		}
	}
	return outcomes, nil
}

// judge checks in the audit log what each of the worlds was promised.
func (a *arena) judge(outcomes []outcome, players []*player, mark int64) error {
	about := map[string]int{}
	for i, o := range outcomes {
		about[o.namespace] = i
	}
	events := make([][]auditv1.Event, len(outcomes))
	if _, err := a.cp.AuditSince(mark, func(e *auditv1.Event) bool {
		if e.ObjectRef != nil {
			namespace := e.ObjectRef.Namespace
			if e.ObjectRef.Resource == "nodes" {
				namespace, _, _ = strings.Cut(e.ObjectRef.Name, ".")
			}
			if i, known := about[namespace]; known {
				events[i] = append(events[i], *e)
			}
			if e.ObjectRef.Resource == "serviceaccounts" && namespace == controller.Namespace {
				for i := range events {
					events[i] = append(events[i], *e)
				}
			}
		}
		return false
	}); err != nil {
		return err
	}
	for i := range outcomes {
		found, err := invariant.Check(events[i], invariant.Options{
			Controllers: []string{controller.User}, DeferredTimeout: deferredTimeout, ErrorTimeout: errorTimeout,
			Gaps: a.gaps.list(0, 2*time.Second), Doubts: a.doubts.list(time.Second, 5*time.Second),
		})
		if err != nil {
			return fmt.Errorf("checking %s: %w", outcomes[i].namespace, err)
		}
		outcomes[i].violations = append(found, outcomes[i].violations...)
		for _, e := range events[i] {
			if e.ObjectRef.Subresource == "resize" && e.User.Username == controller.User && e.ResponseStatus != nil && e.ResponseStatus.Code < 300 {
				players[i].tally["resizes"]++
			}
		}
	}
	return nil
}

// dump writes what there is in a namespace into the control plane's folder, for people.
func (a *arena) dump(ctx context.Context, o outcome) {
	a.cp.KeepLogs()
	objects, err := a.cp.Kubectl(ctx, "--namespace", o.namespace, "get", "--output=yaml",
		"statefulsets,deployments,daemonsets,replicasets,controllerrevisions,pods,events,resourcequotas,limitranges,poddisruptionbudgets")
	if err != nil {
		objects += err.Error()
	}
	text := o.String() + "---\n" + objects
	_ = os.WriteFile(filepath.Join(a.cp.Dir(), o.namespace+".yaml"), []byte(text), 0o600) // people do without
}

// storm are the controllers of a round, and what happens to them.
type storm struct {
	*arena
	trouble
	proxies     []*faults.Proxy
	controllers []*controller.Process
	random      *rand.Rand
}

// storm starts the controllers, while it is calm.
func (a *arena) storm(ctx context.Context, t trouble) (*storm, error) {
	s := &storm{arena: a, trouble: t, random: rand.New(rand.NewPCG(t.seed, 1))}
	for i := range t.replicas {
		certificate, err := a.cp.Certificate()
		if err != nil {
			return nil, err
		}
		proxy, err := faults.New(faults.Options{
			Target: a.cp.RESTConfig(), Certificate: certificate, Seed: t.seed + uint64(i), Rate: t.rate, WatchRate: t.watchRate,
			UserAgent: fmt.Sprintf("replica-%d", i),
		})
		if err != nil {
			s.end()
			return nil, err
		}
		proxy.Calm()
		s.proxies, s.controllers = append(s.proxies, proxy), append(s.controllers, nil)
		if err := s.start(ctx, i); err != nil {
			s.end()
			return nil, err
		}
	}
	return s, s.ready(ctx)
}

// start starts a replica of the controller.
func (s *storm) start(ctx context.Context, i int) error {
	args := []string{
		"--deferred-timeout=" + deferredTimeout.String(), "--error-timeout=" + errorTimeout.String(),
		fmt.Sprintf("--leader-elect=%t", s.replicas > 1),
	}
	if s.flaps || s.absences {
		args = append(args, "--when-absent="+api.LetGo)
	}
	process, err := controller.Start(ctx, s.cp, controller.Options{Server: s.proxies[i].URL(), Log: s.log, Args: args})
	if err != nil {
		return err
	}
	s.controllers[i] = process
	return nil
}

// ready waits until the controllers are. One that ends meanwhile, as it has lost the lead, is started again.
func (s *storm) ready(ctx context.Context) error {
	for i := range s.controllers {
		err := s.controllers[i].WaitReady(ctx)
		if err != nil && ended(s.controllers[i]) {
			if err = s.start(ctx, i); err == nil {
				err = s.controllers[i].WaitReady(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// begin lets the faults and blows happen, until stop is called: then all is calm again, and the
// controllers are there.
func (s *storm) begin(ctx context.Context) (stop func() error) {
	for _, proxy := range s.proxies {
		proxy.Storm()
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		var flapping errgroup.Group
		flapping.Go(func() error { return s.flap(ctx) })
		done <- errors.Join(s.blow(ctx), flapping.Wait())
	}()
	return func() error {
		cancel()
		err := <-done
		for i, proxy := range s.proxies {
			proxy.Calm()
			for kind, n := range proxy.Counts() {
				s.tally["faults: "+string(kind)] += n
			}
			if ended(s.controllers[i]) {
				err = errors.Join(err, s.start(context.WithoutCancel(ctx), i))
			}
		}
		return errors.Join(err, s.ready(context.WithoutCancel(ctx)))
	}
}

// flap takes the heartbeat away and brings it back, again and again. So there is a controller all the time, but for some
// edits there is none.
func (s *storm) flap(ctx context.Context) error {
	random := rand.New(rand.NewPCG(s.seed, 3))
	for s.flaps && sleep(ctx, time.Duration(200+random.IntN(2000))*time.Millisecond) {
		err := controller.Beat(ctx, s.cp, pick(generator{random}, 0, time.Minute))
		if err != nil && ctx.Err() == nil && !s.restarts { // the API server may be away
			return err
		}
	}
	return nil
}

// blow kills and pauses controllers, pauses the built-in ones, restarts the API server and
// etcd, and has controllers or policies be away, again and again.
func (s *storm) blow(ctx context.Context) error {
	for s.blows && sleep(ctx, time.Duration(500+s.random.IntN(3500))*time.Millisecond) {
		if s.absences && s.random.IntN(2) == 0 {
			if err := s.absent(ctx); err != nil {
				return err
			}
			continue
		}
		i := s.random.IntN(len(s.controllers))
		switch n := s.random.IntN(10); {
		case s.restarts && n == 0:
			if err := s.restart(ctx, []string{"kube-apiserver", "etcd"}[s.random.IntN(2)]); err != nil {
				return err
			}
		case n == 1:
			s.tally["pauses of the built-in controllers"]++
			resume, err := s.cp.Pause("kube-controller-manager")
			if err != nil {
				return err
			}
			sleep(ctx, time.Duration(500+s.random.IntN(2500))*time.Millisecond)
			resume()
		case n < 6:
			s.tally["kills of controllers"]++
			s.controllers[i].Kill()
			if err := s.start(context.WithoutCancel(ctx), i); err != nil {
				return err
			}
		default:
			s.tally["pauses of controllers"]++
			pause := time.Duration(200+s.random.IntN(2000)) * time.Millisecond
			if s.replicas > 1 && !s.absences {
				pause = 17 * time.Second // longer than the lease
			}
			if err := s.pause(ctx, i, pause); err != nil {
				return err
			}
		}
		for i, process := range s.controllers {
			if ended(process) {
				if err := s.start(context.WithoutCancel(ctx), i); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// pause stops a controller for a time, unless it has just ended by itself.
func (s *storm) pause(ctx context.Context, i int, d time.Duration) error {
	switch err := s.controllers[i].Pause(); {
	case errors.Is(err, os.ErrProcessDone):
		return nil
	case err != nil:
		return err
	}
	sleep(ctx, d)
	return s.controllers[i].Resume()
}

// ended reports whether a controller has ended by itself, as one does that has lost the lead.
func ended(p *controller.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// end ends the controllers of the round.
func (s *storm) end() {
	for _, process := range s.controllers {
		if process != nil {
			process.Stop()
		}
	}
	for _, proxy := range s.proxies {
		proxy.Close()
	}
}
