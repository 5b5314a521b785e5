package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Sync takes the next step of one workload. It returns after which time to sync the workload
// again at the latest; 0 if only an event can change anything.
func (c *Controller[W, K]) Sync(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	defer c.openNext(name)
	// 1. Get the workload. Is it opted in, and is anything in it ours to do?
	w, s, requeueAfter, err := c.open(ctx, name)
	if err != nil || s == nil {
		c.lookAway(name)
		return requeueAfter, err
	}
	// 2. Gather what is watched, and plan from it.
	o, f, p, err := c.plan(ctx, s, w, false)
	// 3. Would the plan take pods down, or say Complete? That must not rest on a watch that may
	// be behind: a pod that was made a moment ago would be lost. Nor does a watch show yet what a request
	// without an answer has done. Gather and plan from a live read.
	if err == nil && (p.NeedsLiveRead() || s.unanswered) {
		o, f, p, err = c.planLive(ctx, s, w)
	}
	// 4. A restart needs room for the new pod. Plan again without the restarts that have none.
	if err == nil {
		s.answered(o)
		o, f, p, requeueAfter, err = c.decide(ctx, s, w, o, f, p)
	}
	if err != nil {
		c.lookAway(name)
		return 0, err
	}
	// 5. Note what was observed, and apply the plan's writes.
	there, _ := o.Pods()
	if c.note(s, w, there, f, p); requeueAfter > 0 {
		return requeueAfter, nil
	}
	due, err := c.apply(ctx, s, w, p)
	p.RequeueWithin(due)
	p.RequeueWithin(s.lookAgain())
	said, again := c.lasts(name, awaited(w, p, err))
	p.RequeueWithin(again)
	if err != nil && p.Records() { // what it says is not recorded
		p = rollout.Plan{Started: p.Started}
	}
	if p.Condition = stuck(p, said, err); err != nil && p.Condition.Reason == "" {
		return 0, err
	}
	// 6. Write the condition. No pod waits for it, so it comes after the other writes.
	due, failed := c.record(ctx, s, w, p)
	p.RequeueWithin(due)
	// 7. Requeue.
	return p.RequeueAfter, errors.Join(err, failed)
}

// open returns the workload and its session. The session is nil if there is nothing to plan
// now; then the workload's condition is up to date.
func (c *Controller[W, K]) open(ctx context.Context, name cache.ObjectName) (w W, s *Session[W, K], requeueAfter time.Duration, err error) {
	w, exists, err := c.get(name)
	if err != nil {
		return w, nil, 0, err
	}
	if ready := c.options.Ready() == nil; !ready {
		if exists { // it is requeued when we are
			return w, nil, 0, nil
		}
		return w, nil, maxRetryInterval, nil
	}
	if !exists || !policy.Enabled(w) {
		requeueAfter, err = c.leave(ctx, name, exists)
		return w, nil, requeueAfter, err
	}
	if c.options.LeftOut(name.Namespace) {
		return w, nil, 0, c.leaveOut(ctx, w)
	}
	if !c.access.Observed(w) { // its status says nothing about its template yet
		requeueAfter, err = c.prepare(ctx, w)
		return w, nil, requeueAfter, err
	}
	if !policy.Held(w) {
		if err := c.letGo(ctx, name, w); err != nil {
			return w, nil, 0, err
		}
	}
	if p, atRest := c.atRest(w); atRest {
		requeueAfter, err = c.rest(ctx, w, p)
		return w, nil, requeueAfter, err
	}
	if !c.mayOpen(name, policy.Held(w)) {
		return w, nil, 0, nil
	}
	if s, err = c.session(ctx, w); err != nil {
		return w, nil, 0, err
	}
	if !s.hasSynced() {
		return w, nil, 0, s.Pods.Err() // the watches requeue the workload when they have
	}
	s.standing = !policy.Held(w) && c.kind.BuiltInStatus(w).Standing
	s.retry(w)
	return w, s, 0, nil
}

// lookAway has the time not count in which nobody looks at the pods.
func (c *Controller[W, K]) lookAway(name cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.memories[name]; m != nil {
		m.Notes.LookAway(c.clock.Now())
	}
}

// letGo looks after a workload that is not held.
func (c *Controller[W, K]) letGo(ctx context.Context, name cache.ObjectName, w W) error {
	if !c.kind.BuiltInStatus(w).Rolls(false) { // else the restarts that were decided are under way
		c.options.Ledger.Forget(c.account(w))
	}
	return errors.Join(c.findOut(ctx, w), c.cleanUp(ctx, name))
}

// leave leaves a workload that is gone or going, or opted out.
func (c *Controller[W, K]) leave(ctx context.Context, name cache.ObjectName, going bool) (again time.Duration, err error) {
	c.abandon(name)
	if err := c.cleanUp(ctx, name); err != nil || going {
		return 0, err
	}
	return c.withdraw(ctx, name)
}

// rest ends the session of a workload at rest, when nothing is to be asked again, and brings its condition up to date.
func (c *Controller[W, K]) rest(ctx context.Context, w W, p rollout.Plan) (requeueAfter time.Duration, err error) {
	c.lasts(cache.MetaObjectToName(w), "")
	s, err := c.follow(ctx, w)
	switch {
	case err != nil:
		return 0, err
	case s == nil:
	case s.hasSynced():
		p.Condition = p.Condition.Rejecting(s.rejections.First())
	case c.access.Condition(w).Has(judge.ReasonPodRejected): // until it is known whether that is still so
		return 0, s.Pods.Err()
	}
	more, err := c.askAgain(ctx, w)
	if more == 0 && err == nil && s == nil {
		c.endSession(cache.MetaObjectToName(w))
	}
	if p.Condition.Reason == "" {
		return more, err
	}
	due, failed := c.writeCondition(ctx, w, p)
	return soonest(more, due), errors.Join(err, failed)
}

// follow looks at the pods of a rollout that the built-in controller makes, as long as there is room for the session: the
// workload's status does not tell when a kubelet rejects new ones. The session is nil if there is none.
func (c *Controller[W, K]) follow(ctx context.Context, w W) (*Session[W, K], error) {
	if !c.kind.BuiltInStatus(w).Rolls(policy.Held(w)) || !c.mayFollow(cache.MetaObjectToName(w)) {
		c.options.Ledger.Skip(c.account(w))
		return nil, nil
	}
	s, err := c.session(ctx, w)
	if err != nil || !s.hasSynced() {
		return s, err
	}
	s.standing, s.follows = true, true
	s.countWaits(nil)
	o, err := c.kind.Gather(ctx, s, w, s.Pods.List, false)
	if err == nil {
		err = c.countLosses(ctx, s, w, o, s.room, c.clock.Now())
	}
	if err == nil {
		c.see(w, o) // what was promised when the hold ended comes bit by bit
	}
	return s, err
}

// soonest returns the shorter of both times that is one: 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// prepare begins the session of a workload that was edited and is held, while the built-in
// controller looks at the edit: what is watched and read by then need not be waited for.
func (c *Controller[W, K]) prepare(ctx context.Context, w W) (requeueAfter time.Duration, err error) {
	if policy.Held(w) && c.mayOpen(cache.MetaObjectToName(w), true) {
		s, err := c.session(ctx, w)
		if err != nil {
			return 0, err
		}
		if err := c.readLimits(ctx, s, w, false); err != nil {
			return 0, err
		}
	}
	return c.remind(ctx, w)
}

// planLive gathers live from the API server what there is of the workload, and plans the next step. Nobody watches the
// limits of the namespace: where new pods are to come, they are read again, too, and what has changed counts.
func (c *Controller[W, K]) planLive(ctx context.Context, s *Session[W, K], w W) (o rollout.Observation, f rollout.Facts, p rollout.Plan, err error) {
	o, f, p, err = c.plan(ctx, s, w, true)
	if err != nil || !bringsPods(o, p) {
		return o, f, p, err
	}
	before := s.limits
	if err = c.readLimits(ctx, s, w, true); err != nil || equality.Semantic.DeepEqual(s.limits, before) {
		return o, f, p, err
	}
	return c.plan(ctx, s, w, true)
}

// bringsPods reports whether pods of the workload are still to be made, or the plan gives some up for new ones.
func bringsPods(o rollout.Observation, p rollout.Plan) bool {
	_, toCome := o.Pods()
	return len(toCome) > 0 || len(p.Restart) > 0 || len(p.Replaced) > 0
}

// plan gathers what there is of the workload, from the watches or live from the API server,
// and plans the next step. It returns what the plan was made from, too.
func (c *Controller[W, K]) plan(ctx context.Context, s *Session[W, K], w W, live bool) (o rollout.Observation, f rollout.Facts, p rollout.Plan, err error) {
	if f, err = c.facts(ctx, s, w, live); err != nil {
		return o, f, p, err
	}
	list := s.Pods.List
	if live {
		list = func() ([]*corev1.Pod, error) {
			return pods.List(ctx, c.client.CoreV1(), w.GetNamespace(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(c.access.Selector(w))})
		}
	}
	if o, err = c.kind.Gather(ctx, s, w, list, live); err != nil {
		return o, f, p, err
	}
	if err = c.countLosses(ctx, s, w, o, f.Places, f.Now); err != nil {
		return o, f, p, err
	}
	c.see(w, o)
	p, err = f.Plan(o, w.GetAnnotations())
	s.verdicts.Keep(p.Found)
	s.unseen = append(s.unseen, p.Found.Fresh()...)
	return o, f, p, err
}

// countLosses counts, and records, the pods that others have deleted soon after their resize, or a kubelet has rejected. Where the
// built-in controller makes the rollout, pods are deleted for that. The watch of pods may be ahead of the workload's: whoever scales in
// deletes pods, too. So nothing is counted by a workload that was edited since.
func (c *Controller[W, K]) countLosses(ctx context.Context, s *Session[W, K], w W, o rollout.Observation, places rollout.Places, now time.Time) error {
	edit, condition := o.Edit()+";"+w.GetAnnotations()[api.RetryAnnotation], c.access.Condition(w)
	if rollout.Stopped(w.GetAnnotations()) { // the way back is another one
		edit += ";stopped"
	}
	builtIn := !policy.Held(w) && c.kind.BuiltInStatus(w).BuiltIn
	s.rejections.Begin(edit)
	if builtIn {
		edit, condition = edit+";built-in", nil
	}
	s.losses.Begin(edit, !askedAgain(w) && condition.DeletesAfterResize())
	there, toCome := o.Pods()
	if !builtIn {
		if s.losses.Misses(there) {
			newest, err := c.access.Get(ctx, cache.MetaObjectToName(w))
			if err == nil && overtakes(newest, w) {
				err = c.conflict(w)
			}
			if err != nil {
				return err
			}
		}
		for _, lost := range s.losses.See(there, o.Unwanted, places.Drained, now) {
			c.recorder.Event(w, corev1.EventTypeWarning, judge.EventDeletedAfterResize, lost.String())
		}
	}
	if rejected := s.rejections.See(there, len(toCome), o.Replicas(), o.MadeOfNewest, builtIn); rejected != nil {
		c.recorder.Event(w, corev1.EventTypeWarning, judge.EventPodRejected, rejected.Pod+" was "+rejected.Why)
	}
	return nil
}

// facts gathers what a plan is made from besides the workload and its pods.
func (c *Controller[W, K]) facts(ctx context.Context, s *Session[W, K], w W, live bool) (rollout.Facts, error) {
	if err := c.readLimits(ctx, s, w, false); err != nil {
		return rollout.Facts{}, err
	}
	if version := w.GetResourceVersion(); s.version != version {
		s.version, s.since = version, c.clock.Now()
	}
	cache := &s.verdicts
	if live { // these pods are whole, and are looked at as if for the first time
		cache = nil
	}
	if nodes := c.nodes.List(); s.room == nil || !slices.Equal(nodes, s.nodes) {
		s.nodes, s.room = nodes, capacity.NewPlaces(nodes, false, s.limits)
	}
	return rollout.Facts{
		Losses: &s.losses, Rejections: &s.rejections, Outcomes: s.outcomes(), Unanswerable: s.unanswerable, Places: s.room,
		Notes: s.Notes, Defaults: c.options.Defaults, Now: c.clock.Now(), VersionSince: s.since, Cache: cache,
	}, nil
}

// readLimits reads the limits of the namespace again if live is set, or the last look at them
// was a while ago.
func (c *Controller[W, K]) readLimits(ctx context.Context, s *Session[W, K], w W, live bool) error {
	now := c.clock.Now()
	if !live && now.Sub(s.limitsRead) < capacity.LookAgain {
		return nil
	}
	options := metav1.ListOptions{ResourceVersion: "0"}
	if live {
		options.ResourceVersion = ""
	}
	limits, err := capacity.ReadLimits(ctx, c.client, w.GetNamespace(), options)
	if err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(limits, s.limits) {
		s.room = nil
	}
	s.limits, s.limitsRead = limits, now
	return nil
}

// account is under which name the ledger has what is promised to the workload.
func (c *Controller[W, K]) account(w metav1.Object) string {
	return c.access.Kind + " " + cache.MetaObjectToName(w).String()
}

// see has the ledger know which pods of the workload are there, and which are to come.
func (c *Controller[W, K]) see(w W, o rollout.Observation) {
	there, toCome := o.Pods()
	c.options.Ledger.See(c.account(w), w.GetNamespace(), there, slices.Concat(toCome, o.LetLoose()), c.clock.Now())
}

const (
	// untilDecided is after which time to look whether the ledger is complete, and whether others still decide about restarts.
	untilDecided = time.Second
	// outdatedAfter is for how long a decision about restarts rests on the pods that were looked at before it.
	outdatedAfter = 2 * time.Second
)

// decide has checkCapacity decide about restarts, and plans anew if that has taken so long that pods may have gone down since.
func (c *Controller[W, K]) decide(ctx context.Context, s *Session[W, K], w W, o rollout.Observation, f rollout.Facts, p rollout.Plan) (rollout.Observation, rollout.Facts, rollout.Plan, time.Duration, error) {
	asked, looked := sets.New[types.UID](), c.clock.Now()
	p, again, err := c.checkCapacity(ctx, s, w, o, f, p, asked)
	if err != nil || again > 0 || c.clock.Since(looked) <= outdatedAfter {
		return o, f, p, again, err
	}
	if o, f, p, err = c.planLive(ctx, s, w); err == nil && len(unasked(p, asked)) > 0 {
		again = untilDecided
	}
	return o, f, p, again, err
}

// checkCapacity looks for room for the new pods that the plan's restarts bring, notes which of them
// have none, and plans again without those, until nobody is replaced who was not asked about: where one is kept, another one may have
// its turn. Nobody else decides about restarts meanwhile. If it cannot decide yet, it returns when to ask again.
//
// A pod whose template differs in more than its size is restarted in any case.
func (c *Controller[W, K]) checkCapacity(ctx context.Context, s *Session[W, K], w W, o rollout.Observation, f rollout.Facts, p rollout.Plan, asked sets.Set[types.UID]) (decided rollout.Plan, again time.Duration, err error) {
	fresh := unasked(p, asked)
	if len(fresh) == 0 {
		return p, 0, nil
	}
	if !c.options.Ledger.Complete(c.clock.Now()) {
		return p, untilDecided, nil
	}
	decides, err := c.options.Ledger.Decide(ctx, func(ctx context.Context) error {
		there, toCome := o.Pods()
		keep := c.options.KeepIfRoomUnknown && !asksForRestart(w)
		room, err := capacity.At(c.client, c.nodes.List(), c.options.Ledger, c.clock.Now()).Room(ctx, c.account(w), w.GetNamespace(), there, toCome, keep)
		for full := true; err == nil && full && len(fresh) > 0; fresh = unasked(p, asked) {
			if full, err = c.ask(ctx, s, room, fresh, p.Revision); err == nil && full {
				p, err = f.Plan(o, w.GetAnnotations())
			}
		}
		return err
	})
	if err == nil && !decides {
		again = untilDecided
	}
	return p, again, err
}

// unasked are the restarts of a plan that need room which nobody was asked for yet; they count as asked about from now on.
func unasked(p rollout.Plan, asked sets.Set[types.UID]) []rollout.Restart {
	var fresh []rollout.Restart
	for _, r := range p.Replaced {
		if pod := r.Member.Pod; p.NeedsLiveRead() && r.Cause != judge.CauseTemplate && pod != nil && pod.Spec.NodeName != "" && !asked.Has(pod.UID) {
			asked.Insert(pod.UID)
			fresh = append(fresh, r)
		}
	}
	return fresh
}

// ask looks for room for the successors of these pods, and notes for which there is none. It reports whether there are any.
func (c *Controller[W, K]) ask(ctx context.Context, s *Session[W, K], room *capacity.Room, restarts []rollout.Restart, revision rollout.Revision) (full bool, err error) {
	for _, r := range restarts {
		why, err := room.Replace(ctx, r.Member, revision, r.NewFirst)
		if err != nil {
			return false, err
		}
		note := s.Notes.Note(r.Member.Pod.UID)
		if why.Reason == "" {
			note.Room = nil
		} else {
			note.Room, full = note.Room.Again(revision.Size(r.Member.Target.Changes), why, c.clock.Now()), true
		}
	}
	return full, nil
}

// asksForRestart reports whether the workload's user has had the rollout tried again with the action Restart.
func asksForRestart(w metav1.Object) bool {
	action, _ := policy.ActionInForce(w.GetAnnotations())
	return action == string(policy.Restart) && strings.HasSuffix(w.GetAnnotations()[api.RetryAnnotation], ";"+action)
}

// note remembers what a plan has seen of the pods that are there, and records those that have got their size.
func (c *Controller[W, K]) note(s *Session[W, K], w W, there []*corev1.Pod, f rollout.Facts, p rollout.Plan) {
	for _, r := range slices.Concat(p.Restart, p.Replaced) {
		s.losses.Spare(r.Member.Pod)
	}
	for _, v := range p.Verdicts {
		if v.Decision == policy.WaitForDelete { // the user is told to
			s.losses.Spare(v.Member.Pod)
		}
	}
	for i, pod := range there {
		if i >= len(s.shown) || s.shown[i] != pod { // else it was noted before
			s.Notes.Look(f.Now, pod)
		}
	}
	s.shown = there
	if f.Cache == nil {
		s.unseen = append(s.unseen, p.Verdicts...)
	}
	s.Notes.See(s.unseen)
	p.Prove(s.Notes, f.Now)
	s.recordTrusted(w, s.unseen)
	s.unseen = nil
	for _, m := range p.Resized {
		s.RecordResized(m.Pod, "resized in place", "")
	}
	if p.Condition.Complete {
		s.Notes.Over(f.Now.Add(c.options.Defaults.BoosterTimeout))
		s.losses, s.rejections = judge.Losses{}, judge.Rejections{}
	}
	s.Notes.Forget(there)
	s.ask(p)
	s.recordProgress(w, p)
}

// echoTime is after which time a workload is looked at again at the latest whose pods this controller has written. What it
// writes itself is no reason to look: the watch does not tell of it. Where a kubelet was asked for a size, it has the next word.
const echoTime = time.Second

// lookAgain returns after which time to look again because of what was written; 0 if not for that.
func (s *Session[W, K]) lookAgain() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	underWay, marked := s.underWay, s.marked
	if s.underWay, s.marked = false, false; underWay {
		return echoTime
	}
	if marked { // nobody else may have anything to say
		s.Requeue()
	}
	return 0
}

// record writes the condition, and records events and metrics of what pods wait for. It
// returns after which time a message that was put off is due; 0 if none was.
func (c *Controller[W, K]) record(ctx context.Context, s *Session[W, K], w W, p rollout.Plan) (due time.Duration, err error) {
	if p.Condition.Reason != "" {
		c.nameOthers(s, w, p.Verdicts, &p.Condition)
		beside, late, within := c.deadline(s.memory, w, p)
		p.Condition.Late = late
		if due, err = c.writeCondition(ctx, w, p, beside...); err != nil {
			return 0, err
		}
		due = soonest(due, within)
	}
	if c.options.DryRun {
		return due, nil
	}
	c.recordOvertaken(s, w, p)
	if p.Condition.Reason != "" {
		c.recordWaits(s, w, p)
	}
	return due, nil
}

// apply makes the plan's writes; if one fails, it makes the others all the same. With
// --dry-run it only logs them. Those on pods that take nothing down come first, and are made in
// parallel: each is about another pod. From the first other one on, it is one after the other. No pod is resized once the workload is edited.
//
// A webhook may change the template in each write that lets the built-in controller loose.
// Each change makes a new revision, so such writes are put off longer and longer. It returns
// after which time the next one is due; 0 if none was put off.
func (c *Controller[W, K]) apply(ctx context.Context, s *Session[W, K], w W, p rollout.Plan) (due time.Duration, err error) {
	if c.options.DryRun {
		logWrites(ctx, p.Writes...)
		return 0, nil
	}
	failed := make([]error, len(p.Writes))
	together := slices.IndexFunc(p.Writes, rollout.NeedsLiveRead)
	if together < 0 {
		together = len(p.Writes)
	}
	workqueue.ParallelizeUntil(ctx, max(c.options.Parallel, 1), together, func(i int) {
		defer recovered(ctx, &failed[i]) // else a panic would end the process: it is another goroutine
		if c.outrun(s, w, p.Writes[i]) {
			failed[i] = c.conflict(w)
			return
		}
		failed[i] = c.applyOne(ctx, s, w, p, p.Writes[i])
	})
	for i, write := range p.Writes[together:] {
		if wait := s.looseAfter.Sub(c.clock.Now()); rollout.NeedsLiveRead(write) && wait > 0 {
			due = wait
			continue
		}
		if c.outrun(s, w, write) {
			failed[together+i] = c.conflict(w)
			break
		}
		if err = c.applyOne(ctx, s, w, p, write); errors.Is(err, ErrEdited) {
			c.edited(s, w, err)
		}
		failed[together+i] = err
	}
	return due, errors.Join(failed...)
}

// conflict is the error of a plan that was made of a w that is edited since.
func (c *Controller[W, K]) conflict(w W) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: c.access.Kind}, w.GetName(), errors.New("it was edited since the plan was made"))
}

// outrun reports whether the write is not to be made any more, as the workload was edited since: a pod's version is all that a write to it
// tells. To mark what has its size harms nobody.
func (c *Controller[W, K]) outrun(s *Session[W, K], w W, write rollout.Write) bool {
	_, resizes := write.(rollout.ResizePod)
	return (resizes || rollout.NeedsLiveRead(write)) && c.overtaken(s.name, w)
}

// overtaken reports whether the watch has brought another edit of w since the plan was made, or another word on its rollout. Of one that is
// opted out, or gone, the watch brings that it is not there.
func (c *Controller[W, K]) overtaken(name cache.ObjectName, w W) bool {
	now, exists, err := c.get(name)
	if err != nil || !exists {
		return err == nil
	}
	return overtakes(now, w)
}

// overtakes reports whether another version of a workload is of another edit, or of another word on its rollout.
func overtakes(now, w metav1.Object) bool {
	return now.GetUID() != w.GetUID() || now.GetGeneration() != w.GetGeneration() || !policy.Enabled(now) || slices.ContainsFunc(
		[]string{api.HoldAnnotation, api.InForceAnnotation, api.RetryAnnotation, api.RolloutAnnotation},
		func(key string) bool { return now.GetAnnotations()[key] != w.GetAnnotations()[key] })
}

func (c *Controller[W, K]) applyOne(ctx context.Context, s *Session[W, K], w W, p rollout.Plan, write rollout.Write) error {
	defer c.options.Watchdog.Progress(c.syncOf(s.name)) // a large rollout takes long, and is alive
	switch write := write.(type) {
	case rollout.ResizePod:
		return s.resize(ctx, w, p, write.Member)
	case rollout.MarkPod:
		return s.mark(ctx, write)
	case rollout.Release:
		return s.release(ctx, w, write)
	case rollout.ShowGeneration:
		return s.showGeneration(ctx, w, write)
	case rollout.Keep:
		return s.keep(ctx, w, write)
	case rollout.DeletePod:
		return s.remove(ctx, w, write.Restart)
	default:
		return c.kind.Apply(ctx, s, w, write)
	}
}

// cleanUp puts in order what a rollout has left behind in a workload that is not held any
// more. The workload may be gone.
func (c *Controller[W, K]) cleanUp(ctx context.Context, name cache.ObjectName) error {
	if c.access.LeftBehind == nil {
		return nil
	}
	write, err := c.access.LeftBehind(name)
	if err != nil || write == nil {
		return err
	}
	if c.options.DryRun {
		logWrites(ctx, write)
		return nil
	}
	var none W
	return c.kind.Apply(ctx, nil, none, write)
}

// logWrites logs, with --dry-run, what would be written.
func logWrites(ctx context.Context, writes ...rollout.Write) {
	for _, write := range writes {
		klog.FromContext(ctx).Info("Would take the next step", "write", write.String())
	}
}
