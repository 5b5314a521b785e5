package simulated

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// T is a test, by hand or of rapid.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// Driver has a controller look at its workload, and others do things before that and meanwhile.
type Driver struct {
	actors  Actors
	t       T
	cluster *Cluster
	syncing bool
	again   bool // the controller has been told of something new, or has to try again
	at      time.Time
	stop    context.CancelFunc
}

// Actors is what is different in the simulation of each kind of workload.
type Actors interface {
	// Sync has the controller take one step.
	Sync() (time.Duration, error)
	// Restart puts a new controller in the place of the one that there is.
	Restart()
	// Do is one thing that happens. Pod is one of the pods; nil if there is none to choose.
	Do(one Step, pod *corev1.Pod)
	// Pod chooses one by a number.
	Pod(n int) *corev1.Pod
	// Pass lets time pass.
	Pass(time.Duration)
	// Round lets everybody do one thing.
	Round()
	// Live lets the kubelets and the built-in controllers do one thing each.
	Live()
}

// NewDriver returns one for the controller of that kind, which works on the pods of cluster.
func NewDriver(t T, cluster *Cluster, actors Actors) *Driver {
	return &Driver{actors: actors, t: t, cluster: cluster}
}

// Begin puts the first controller into the world, and has that many rounds.
func (d *Driver) Begin(rounds int) {
	d.actors.Restart()
	for range rounds {
		d.actors.Round()
	}
}

// Others lets all but the controller do one thing each, n times.
func (d *Driver) Others(n int) {
	for range n {
		d.actors.Live()
	}
}

// Renew stops the controller that there is, and returns the context of the next one.
func (d *Driver) Renew() context.Context {
	if d.stop != nil {
		d.stop()
	}
	ctx, stop := context.WithCancel(d.t.Context())
	d.stop = stop
	return ctx
}

// Syncing reports whether the controller is at it.
func (d *Driver) Syncing() bool { return d.syncing }

// Notice tells the controller that there is something new.
func (d *Driver) Notice() { d.again = true }

// NoError reports whether there is no error. It passes over what the next look mends: conflicts,
// objects that are there or gone, what is opted out meanwhile, and broken connections.
func (d *Driver) NoError(err error) bool {
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !errors.Is(err, ErrBroken) && !errors.Is(err, errFenced) {
		d.t.Fatal(err)
	}
	return err == nil
}

// Look has the controller take one step, if it has reason to look: it has been told of
// something new, or has to try again, or wanted to look again by now.
func (d *Driver) Look() {
	if now := d.cluster.Clock.Now(); d.syncing || !d.again && (d.at.IsZero() || now.Before(d.at)) {
		return
	}
	d.again, d.at = false, time.Time{}
	before := d.cluster.RV
	d.syncing = true
	after, err := d.actors.Sync()
	d.syncing = false
	d.NoError(err)
	if d.cluster.Dead() {
		d.actors.Restart()
	}
	d.again = d.again || err != nil || d.cluster.Any() || d.cluster.RV != before // the controller requeues what was refused
	if after > 0 {
		d.at = d.cluster.Clock.Now().Add(after)
	}
	d.cluster.Requests = Requests{}
}

// All does one step after the other. What follows Meanwhile, but for what the controller
// itself does, happens while the controller writes.
func (d *Driver) All(list []Step) {
	for i := 0; i < len(list); i++ {
		if list[i].Do == Meanwhile {
			rest := list[i+1 : min(i+2+list[i].Arg%3, len(list))]
			i += len(rest)
			d.cluster.Meanwhile = func() { d.meanwhile(rest) }
			d.again = true
			d.Look()
		} else {
			d.One(list[i])
		}
	}
}

func (d *Driver) meanwhile(list []Step) {
	for _, one := range list {
		if !strings.HasPrefix(one.Do, "sync") && !slices.Contains([]string{"round", "rounds", "restart"}, one.Do) {
			d.One(one)
		}
	}
}

// One does one step.
func (d *Driver) One(one Step) {
	pod := d.actors.Pod(one.Arg)
	switch one.Do {
	case "round":
		d.actors.Round()
	case "rounds":
		for range 12 {
			d.actors.Round()
		}
	case "kubelets":
		d.cluster.Kubelets()
	case "delete":
		if pod != nil {
			d.cluster.DeletePod(pod.Name)
		}
	case "sync":
		d.again = true
		d.Look()
	case "sync and die":
		d.cluster.Dies, d.again = 1+one.Arg%4, true
		d.Look()
	case "sync and lose":
		d.cluster.Loses, d.again = 1+one.Arg%4, true
		d.Look()
	case "time":
		d.actors.Pass(longer)
	case "restart":
		d.actors.Restart()
	default:
		d.actors.Do(one, pod)
	}
}

// Crash has the pod not be Ready: until its kubelet looks again, or for good, until it has
// another size.
func (c *Cluster) Crash(pod *corev1.Pod, forGood bool) {
	if forGood {
		c.Broken[pod.UID] = AppliedSize(pod)
	}
	crashed := pod.DeepCopy()
	c.SetReady(crashed, false)
	c.WritePod(crashed)
}

// Rest has rounds until nothing changes any more, for longer than any timeout of the simulation.
// It fails when that takes too long.
func (d *Driver) Rest() {
	for quiet, rounds := 0, 0; quiet < 15; rounds++ {
		before := d.cluster.RV
		if d.actors.Round(); d.cluster.RV != before {
			quiet = 0
		} else if quiet++; quiet > 3 {
			d.actors.Pass(longer)
		}
		if rounds > 1000 {
			d.t.Fatal("it does not come to rest")
		}
	}
}

// Finish has the rollout come to its end. Where only people can help, they do.
func (d *Driver) Finish(unfinished func() string, help func()) {
	if d.Rest(); unfinished() != "" {
		help()
		d.cluster.Mended = true
		clear(d.cluster.Broken)
		d.Rest()
	}
	if left := unfinished(); left != "" {
		d.t.Fatal(left)
	}
}

// Converges has the rollout complete within a bounded time, or say who must act: reason is that of the condition. Then those
// do, by help, and it completes.
func (d *Driver) Converges(unfinished func() string, reason func() string, help func()) {
	for _, helped := range []bool{false, true} {
		for rounds, waits := 0, 0; unfinished() != ""; rounds++ {
			if waits++; helped || slices.Contains(underWay, reason()) {
				waits = 0
			}
			if waits > 20 {
				break
			}
			if rounds > 500 {
				d.t.Fatalf("it does not converge (helped: %t), and the condition says %q: %s", helped, reason(), unfinished())
			}
			before := d.cluster.RV
			if d.actors.Round(); d.cluster.RV == before {
				d.actors.Pass(5 * longer)
			}
		}
		if !helped {
			help()
		}
	}
}

// underWay are the reasons of a condition with which nobody is to act.
var underWay = []string{"", judge.ReasonProgressing, judge.ReasonPending, judge.ReasonComplete}

// Timeout is that of resizes which do not come to an end.
const Timeout = 10 * time.Second

// longer than a round takes.
const longer = 4 * time.Second

// Step is one thing that happens.
type Step struct {
	Do  string
	Arg int
}

// Steps draws from what may happen, as often as it says.
func Steps(often map[string]int) *rapid.Generator[[][]Step] {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(often)) {
		names = append(names, slices.Repeat([]string{name}, often[name])...)
	}
	return rapid.SliceOf(rapid.SliceOf(rapid.Custom(func(t *rapid.T) Step {
		return Step{rapid.SampledFrom(names).Draw(t, "do"), rapid.IntRange(0, 11).Draw(t, "arg")}
	})))
}

// Outcomes draws what becomes of resizes.
func Outcomes(t *rapid.T) []Outcome {
	return rapid.SliceOfN(rapid.SampledFrom([]Outcome{
		{}, {Slow: 2}, {Deferred: 3}, {Deferred: 1, Slow: 1}, {Infeasible: true}, {Refused: true}, {Unready: true}, {Slow: 1, Unready: true},
	}), 0, 7).Draw(t, "outcomes")
}

// OutcomesOfRoom draws what becomes of resizes where many wait for room, which comes.
func OutcomesOfRoom(t *rapid.T) []Outcome {
	return rapid.SliceOfN(rapid.SampledFrom([]Outcome{{}, {Deferred: 1, Slow: 1}, {Deferred: 3}, {Refused: true}}), 1, 5).Draw(t, "outcomes")
}

// OutcomesOfHands draws what becomes of resizes where others have a hand in them.
func OutcomesOfHands(t *rapid.T) []Outcome {
	return rapid.SliceOfN(rapid.SampledFrom([]Outcome{{}, {}, {Slow: 2}, {Deferred: 1, Slow: 1}, {Infeasible: true}}), 0, 5).Draw(t, "outcomes")
}

// OfHands has users edit sizes and lose pods, and do nothing else.
func OfHands(often map[string]int) map[string]int {
	often = maps.Clone(often)
	maps.DeleteFunc(often, func(do string, _ int) bool { return slices.Contains(ofUsers, do) })
	maps.Copy(often, map[string]int{"edit cpu": 3, "edit memory": 3, "first template": 1, "delete": 1, "time": 2})
	return often
}

// ofUsers is what users do, and what becomes of nodes.
var ofUsers = []string{
	"edit image", "action", "policy", "opt", "release", "abandon", "strategy", "scale", "partition", "undo", "limit", "pause", "resume", "history", "crash",
	"join", "leave", "away", "back", "taint", "cordon", "shrink", "collide", "orphan", "budget", "quota",
}

// Meanwhile is the step that has the controller sync while others do what follows it.
const Meanwhile = "sync meanwhile"

// Edited is the version of a template after the step, if it is one that edits it; the users
// began with the first.
func (s Step) Edited(v, first Version) Version {
	switch s.Do {
	case "edit cpu":
		v.CPU = 1 + s.Arg%3
	case "edit memory":
		v.Memory = s.Arg % 3
	case "edit image":
		v.Image = 1 + s.Arg%2
		if first.Image >= Proxied {
			v.Image = Proxied + s.Arg%2
		}
	case "first template":
		v = first
	}
	return v
}

// Annotate has the annotations of a workload say what the step has its users say.
func (s Step) Annotate(annotations map[string]string) {
	switch s.Do {
	case "action":
		annotations[api.ResizeActionAnnotation] = []string{"", string(policy.Restart), string(policy.LiveResizePreferred)}[s.Arg%3]
	case "policy":
		annotations[api.ResizePolicyAnnotation] = Policies[s.Arg%len(Policies)]
	}
}
