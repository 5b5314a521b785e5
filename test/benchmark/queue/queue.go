// Package queue simulates the queue of the controller, event by event: workers, sessions, parallel writes, slow start and
// maxUnavailable, the kubelets, the built-in controllers, and an API server with so many cores. What a step costs comes from
// what was measured. It knows no failures, no chance, and no etcd that is slow.
package queue

import (
	"cmp"
	"math"
	"slices"
)

// Costs are those of the rollouts of a kind of workload, in seconds of a core, or requests.
type Costs struct {
	Request                         float64 // of the API server, etcd and the scheduler, for a write of anybody, and what is read for it
	Own, BuiltIn                    Cost    // of the controller, and of kube-controller-manager
	Kubelet                         float64 // for a pod
	Label                           bool    // a pod is written again when it has its size
	OwnWrites, Events               int     // of a rollout, besides those of its pods
	BuiltInPodWrites, BuiltInWrites int     // for a look at a pod with its size, and of a rollout
	Begin, End                      float64 // what passes before the first request, and after the last pod, where nobody else works
}

// Cost is what a process takes for a pod, for a rollout, and for each pod of a workload that it looks at for the sake of one.
type Cost struct{ Pod, Look, Rollout float64 }

// Workloads are edited together.
type Workloads struct {
	Kind                string
	Number, Pods, Limit int // pods each, and how many may be under way at once
	Namespaces          int // that they are spread over
	Costs               Costs
}

// Cluster is where they are. 0 cores of the controllers means that they share those of the API server, with the kubelets.
type Cluster struct {
	Cores, OwnCores, BuiltInCores int
	Kubelet                       float64 // seconds for a resize
	Answer                        float64 // seconds that a request takes besides the cores
	QPS, BuiltInQPS               float64 // of the controller and of each built-in one; 0 is no limit
	Watches                       int     // of all pods
	Flags                         Flags
}

// Flags are limits of the controller, of its priority level, and of kube-controller-manager.
type Flags struct {
	Workers, Parallel, Sessions, Opening, EventWriters, EventQueue int
	Away                                                           float64 // seconds after which one without a session is looked at again
	Seats, WidestWrite, WatchesPerSeat                             int
	WatchTime                                                      float64 // that a write to what many watch keeps its seats
	Syncs                                                          int     // of each built-in controller
	Edits                                                          int     // at once, of whoever edits
}

// Outcome is what comes of it.
type Outcome struct {
	Wall               float64   // from the first edit until the last rollout is complete
	First              []float64 // from each edit to the first request for a size, sorted
	Requests           int       // of the controller
	Peak               int       // of them in a second
	Server, Own, Seats float64   // the part of the cores, and of the seats, that was used until then
	Dropped            int       // events
	PutAway            int       // sessions
}

// reads are what a session that is opened again asks for: a list and a watch of its pods, quotas and limits.
const reads = 4

// world is one simulation.
type world struct {
	clock
	Cluster
	server, own, builtIn, kubelets, seats, events *places
	limit                                         *rate
	needs                                         func(i, limit int) int
	kinds                                         map[string]*kind
	out                                           Outcome
	perSecond                                     map[int]int
	left                                          int
}

// kind is what the workloads of a kind share.
type kind struct {
	workers, opening, syncs *places
	limit                   *rate
	sessions                []*rollout // the one that has waited longest first
	inNamespace             map[int]int
}

// rollout is that of one workload.
type rollout struct {
	*Workloads
	kind                              *kind
	namespace                         int
	edited, lastDone                  float64
	begun, open, opening, opened      bool
	queued, syncing, again            bool
	counting, countAgain, ending      bool
	next, done, seen, marked, counted int
}

// Simulate edits all workloads as fast as those who edit can. The i-th pod of a workload may be asked when needs(i, limit)
// pods have their size.
func Simulate(c Cluster, all []Workloads, needs func(i, limit int) int) Outcome {
	w := &world{Cluster: c, needs: needs, kinds: map[string]*kind{}, perSecond: map[int]int{}}
	of := func(n int) *places { return &places{clock: &w.clock, all: n} }
	w.server, w.seats, w.events = of(c.Cores), of(c.Flags.Seats), of(c.Flags.EventWriters)
	w.own, w.builtIn, w.kubelets = w.server, w.server, w.server
	if c.OwnCores > 0 {
		w.own, w.builtIn, w.kubelets = of(c.OwnCores), of(c.BuiltInCores), of(0)
	}
	w.limit = newRate(&w.clock, c.QPS, 2*c.QPS)
	edits := of(c.Flags.Edits)
	var rollouts []*rollout
	for i := range all {
		k := w.kinds[all[i].Kind]
		if k == nil {
			k = &kind{of(c.Flags.Workers), of(c.Flags.Opening), of(c.Flags.Syncs), newRate(&w.clock, c.BuiltInQPS, 1.5*c.BuiltInQPS), nil, map[int]int{}}
			w.kinds[all[i].Kind] = k
		}
		for n := range all[i].Number {
			rollouts = append(rollouts, &rollout{Workloads: &all[i], kind: k, namespace: n % max(1, all[i].Namespaces)})
		}
	}
	w.left = len(rollouts)
	for _, r := range rollouts {
		edits.take(1, func() {
			w.request(r, false, func() {
				edits.leave(1)
				w.edited(r)
			})
		})
	}
	w.run()
	return w.out
}

// request is one to the API server. Those of the controller keep to its limits.
func (w *world) request(r *rollout, own bool, then func()) {
	if !own {
		w.server.work(r.Costs.Request, func() { w.after(w.Answer, then) })
		return
	}
	w.limit.wait(func() {
		width, keep := 1, 0.0
		watches := w.Watches
		for _, k := range w.kinds {
			watches += k.inNamespace[r.namespace]
		}
		if watches >= w.Flags.WatchesPerSeat {
			width = min(w.Flags.WidestWrite, int(math.Ceil(float64(watches)/float64(w.Flags.WatchesPerSeat))))
			keep = w.Flags.WatchTime
		}
		w.seats.take(width, func() {
			w.out.Requests++
			w.perSecond[int(w.now)]++
			w.server.work(r.Costs.Request, func() {
				w.after(w.Answer, func() {
					w.after(keep, func() { w.seats.leave(width) })
					then()
				})
			})
		})
	})
}

// requests are so many, one after the other.
func (w *world) requests(r *rollout, n int, one func(then func()), then func()) {
	if n <= 0 {
		then()
		return
	}
	one(func() { w.requests(r, n-1, one, then) })
}

func (w *world) ownRequests(r *rollout, n int, then func()) {
	w.requests(r, n, func(then func()) { w.request(r, true, then) }, then)
}

func (w *world) builtInRequests(r *rollout, n int, then func()) {
	w.requests(r, n, func(then func()) { r.kind.limit.wait(func() { w.request(r, false, then) }) }, then)
}

// both has then called when it was called twice.
func both(then func()) func() {
	n := 0
	return func() {
		if n++; n == 2 {
			then()
		}
	}
}

// edited begins a rollout: the built-in controller looks at the edit, and makes a revision or writes a status; then it is ours.
func (w *world) edited(r *rollout) {
	r.edited = w.now
	begin := both(func() {
		r.begun = true
		w.enqueue(r)
	})
	w.after(r.Costs.Begin, begin)
	r.kind.syncs.take(1, func() {
		w.builtIn.work(r.Costs.BuiltIn.Rollout/2, func() {
			w.builtInRequests(r, min(2, r.Costs.BuiltInWrites), func() {
				r.kind.syncs.leave(1)
				begin()
			})
		})
	})
}

// enqueue has a workload synced, once.
func (w *world) enqueue(r *rollout) {
	switch {
	case !r.begun || r.ending || r.queued || r.opening:
	case r.syncing:
		r.again = true
	case !r.open:
		r.opening = true
		r.kind.opening.take(1, func() { w.openSession(r) })
	default:
		r.queued = true
		r.kind.workers.take(1, func() {
			if r.queued = false; !r.open { // put away meanwhile
				r.kind.workers.leave(1)
				w.enqueue(r)
				return
			}
			w.sync(r)
		})
	}
}

// openSession opens one, and puts another one away if there is no room: the one that has waited longest.
func (w *world) openSession(r *rollout) {
	k := r.kind
	if len(k.sessions) >= w.Flags.Sessions {
		if i := slices.IndexFunc(k.sessions, func(o *rollout) bool { return !o.syncing && !o.ending && !o.opening }); i >= 0 {
			away := k.sessions[i]
			w.close(away)
			w.out.PutAway++
			w.after(w.Flags.Away, func() { w.enqueue(away) })
		}
	}
	k.sessions = append(k.sessions, r)
	k.inNamespace[r.namespace]++
	n := 0
	if r.opened {
		n = reads // the first time is part of what passes before the first request
	}
	r.opened = true
	w.ownRequests(r, n, func() {
		k.opening.leave(1)
		r.open, r.opening = true, false
		w.enqueue(r)
	})
}

func (w *world) close(r *rollout) {
	r.open = false
	r.kind.inNamespace[r.namespace]--
	r.kind.sessions = slices.DeleteFunc(r.kind.sessions, func(o *rollout) bool { return o == r })
}

// sync takes the next step of a workload: it asks the pods whose turn it is, and labels those that have their size. The worker
// waits for all answers.
func (w *world) sync(r *rollout) {
	r.syncing, r.again = true, false
	fresh := r.done - r.seen
	r.seen = r.done
	ask := 0
	for r.next < r.Pods && w.needs(r.next, r.Limit) <= r.done {
		r.next++
		ask++
	}
	cpu := r.Costs.Own.Pod/2*float64(ask+fresh) + r.Costs.Own.Look/2*float64(r.Pods)
	if r.next == ask && ask > 0 {
		cpu += r.Costs.Own.Rollout / 2
		w.out.First = append(w.out.First, w.now-r.edited)
	}
	labels := fresh
	if !r.Costs.Label {
		labels = 0
		w.marked(r, fresh)
	}
	w.own.work(cpu, func() {
		parallel := &places{clock: &w.clock, all: w.Flags.Parallel}
		left := ask + labels
		end := func() {
			i := slices.Index(r.kind.sessions, r) // it has waited least now
			copy(r.kind.sessions[i:], r.kind.sessions[i+1:])
			r.kind.sessions[len(r.kind.sessions)-1] = r
			r.syncing = false
			defer r.kind.workers.leave(1)
			switch {
			case r.counted == r.Pods:
				w.end(r)
			case r.again:
				w.enqueue(r)
			}
		}
		if left == 0 {
			end()
			return
		}
		write := func(then func()) {
			parallel.take(1, func() {
				w.request(r, true, func() {
					parallel.leave(1)
					then()
					if left--; left == 0 {
						end()
					}
				})
			})
		}
		for range labels {
			write(func() { w.marked(r, 1) })
		}
		for range ask {
			write(func() { w.kubelet(r) })
		}
	})
}

// kubelet resizes a pod, and says so.
func (w *world) kubelet(r *rollout) {
	w.after(w.Kubelet, func() {
		w.kubelets.work(r.Costs.Kubelet, func() {
			w.request(r, false, func() {
				r.done++
				r.lastDone = w.now
				if r.open { // else nobody watches
					w.enqueue(r)
				}
			})
		})
	})
}

// marked tells of pods that have all that they get, and has the built-in controller count them.
func (w *world) marked(r *rollout, pods int) {
	if pods == 0 {
		return
	}
	r.marked += pods
	if r.Costs.BuiltInPodWrites == 0 { // nobody counts them
		r.counted = r.marked
	}
	w.tell(r, pods)
	w.count(r)
}

// tell writes so many events, in the background.
func (w *world) tell(r *rollout, events int) {
	for range events {
		if len(w.events.line) >= w.Flags.EventQueue*w.Flags.EventWriters {
			w.out.Dropped++
			continue
		}
		w.events.take(1, func() { w.request(r, true, func() { w.events.leave(1) }) })
	}
}

// count has the built-in controller look at the workload, once for all that has changed.
func (w *world) count(r *rollout) {
	if r.counting {
		r.countAgain = true
		return
	}
	r.counting = true
	r.kind.syncs.take(1, func() {
		sees := r.marked
		r.countAgain = false
		w.builtIn.work(r.Costs.BuiltIn.Pod+r.Costs.BuiltIn.Look*float64(r.Pods), func() {
			w.builtInRequests(r, r.Costs.BuiltInPodWrites, func() {
				r.kind.syncs.leave(1)
				if r.counting = false; r.countAgain {
					w.count(r)
				}
				if r.Costs.BuiltInPodWrites > 0 {
					r.counted = sees
					w.enqueue(r)
				}
			})
		})
	})
}

// end lets go of a workload.
func (w *world) end(r *rollout) {
	r.ending = true
	w.close(r)
	end := both(func() {
		w.out.Wall = max(w.out.Wall, w.now)
		if w.left--; w.left == 0 {
			w.sum()
		}
	})
	w.after(max(0, r.lastDone+r.Costs.End-w.now), end)
	w.tell(r, r.Costs.Events)
	w.own.work(r.Costs.Own.Rollout/2, func() {
		w.ownRequests(r, r.Costs.OwnWrites, func() {
			w.builtIn.work(r.Costs.BuiltIn.Rollout/2, func() { w.builtInRequests(r, max(0, r.Costs.BuiltInWrites-2), end) })
		})
	})
}

// sum counts what was used until the last rollout was complete.
func (w *world) sum() {
	part := func(p *places) float64 {
		p.count()
		return p.used / float64(max(1, p.all)) / w.now
	}
	w.out.Server, w.out.Own, w.out.Seats = part(w.server), part(w.own), part(w.seats)
	for _, n := range w.perSecond {
		w.out.Peak = max(w.out.Peak, n)
	}
	slices.SortFunc(w.out.First, cmp.Compare[float64])
}
