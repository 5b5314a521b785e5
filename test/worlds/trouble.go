package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/invariant"
	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// addTrouble gives some workloads nodes with little room, pods that have to be Ready for a while, or
// the strategy Recreate, and adds edits that come at a bad time. These have draws of their own, so that
// a seed makes what else it makes without them.
func (w *World) addTrouble() {
	g := generator{rand.New(rand.NewPCG(w.Seed, 2))}
	for i := range w.Workloads {
		of := &w.Workloads[i]
		if g.in(5) {
			of.MinReady = int32(2 + g.IntN(2))
		}
		if of.Kind == "Deployment" && g.in(4) {
			of.Recreate, of.MaxSurge, of.MaxUnavailable = true, "", ""
			of.Graceful = g.in(2)
		}
		var edits []Edit
		switch n := g.IntN(8); {
		case of.Recreate && n < 5:
			edits = g.refuse(of)
		case of.Kind != "DaemonSet" && n < 2:
			edits = g.squeeze(of)
		case n < 4:
			edits = g.collide(of)
		case n == 4:
			edits = g.forbid(of)
		case n == 5:
			edits = g.sicken(of)
		}
		for j := range edits {
			edits[j].Workload = i
		}
		w.Edits = slices.Insert(w.Edits, g.IntN(len(w.Edits)+1), edits...)
	}
}

// collide is a resize in the middle of a rollout of another image, in which pods are lost.
func (g generator) collide(w *Workload) []Edit {
	w.OptedIn = true
	if w.Kind != "DaemonSet" {
		w.Replicas = max(w.Replicas, 3)
	}
	w.MinReady = max(w.MinReady, int32(g.IntN(3)))
	edits := []Edit{
		{Pause: g.pause(), Do: doPatch, Patch: podSpec(app(map[string]any{"image": pick(g, "app:4", "app:5")}))},
		{Do: doHalf}, {Pause: g.IntN(300), Do: doKubelet, Pods: everyPod, Mode: pick(g, "accepted", "slow", "delayed", "deferred")},
		{Do: doPatch, Patch: podSpec(app(map[string]any{"resources": g.like(w.Size).resources()}))},
	}
	for range 1 + g.IntN(3) { // those that are upgraded first are the last ones
		edits = append(edits, Edit{Pause: 100 + g.IntN(600), Do: doKill, Pods: []int{max(int(w.Replicas)-1-g.IntN(3), 0)}})
	}
	if g.in(3) {
		edits = append(edits, Edit{Pause: g.pause(), Do: doPatch, Patch: podSpec(app(map[string]any{"resources": g.like(w.Size).resources()}))})
	}
	return edits
}

// squeeze gives three pods two nodes that hold them, or even larger ones, and nothing else; has them
// become larger; and sometimes somebody else then takes the room of those that are not larger yet.
func (g generator) squeeze(w *Workload) []Edit {
	w.OptedIn, w.Replicas = true, 3
	cpu, more := resource.MustParse(w.Size.CPU), pick(g, "50m", "100m")
	room := resource.Quantity{}
	for range 2 {
		room.Add(cpu)
		if w.Sidecar != nil {
			room.Add(resource.MustParse(w.Sidecar.CPU))
		}
	}
	crowded := g.in(2)
	switch { // some of the larger pods have room, or all, or none
	case crowded:
		room.Add(resource.MustParse(more))
		fallthrough
	case g.in(3):
		room.Add(resource.MustParse(more))
	}
	w.Room = room.String()
	larger := w.Size
	cpu.Add(resource.MustParse(more))
	if larger.CPU = cpu.String(); larger.CPULimit != "" {
		larger.CPULimit = "500m"
	}
	if w.Size.CPULimit == w.Size.CPU {
		larger.CPULimit = larger.CPU
	}
	patch := podSpec(app(map[string]any{"resources": larger.resources()}))
	switch g.IntN(4) {
	case 0:
		patch = merged(patch, annotate(actionAnnotation, "Restart"))
	case 1: // the node may be too small
	default:
		patch = merged(patch, annotate(policyAnnotation, "cpu=RestartOnly"))
	}
	edits := []Edit{{Pause: g.pause(), Do: doPatch, Patch: patch}}
	if crowded {
		w.MinReady, w.Partition, w.OnDelete = 3, 0, false
		cpu.Add(resource.MustParse(more))
		edits = append(edits, Edit{Do: doHalf}, Edit{Do: doCrowd, Patch: map[string]any{"cpu": cpu.String()}}, Edit{Do: doCrowd, Patch: map[string]any{"cpu": more}})
	}
	return append(edits, Edit{Do: doSettle})
}

// refuse has the kubelet of a pod refuse a resize that those of others make.
func (g generator) refuse(w *Workload) []Edit {
	w.OptedIn, w.Replicas = true, max(w.Replicas, 2)
	return []Edit{
		{Pause: g.pause(), Do: doKubelet, Pods: everyPod, Mode: "accepted"},
		{Do: doKubelet, Pods: g.pods(1), Mode: pick(g, "infeasible", "infeasible", "error", "deferred")},
		{Do: doPatch, Patch: podSpec(app(map[string]any{"resources": g.like(w.Size).resources()}))}, {Do: doSettle},
	}
}

// sicken has some pods be Ready no more a while after they are resized, until they are edited back.
func (g generator) sicken(w *Workload) []Edit {
	w.OptedIn, w.Replicas, w.MinReady = true, max(w.Replicas, 2), int32(2+g.IntN(2))
	return []Edit{
		{Pause: g.pause(), Do: doKubelet, Pods: g.pods(5), Mode: "fails"},
		{Do: doPatch, Patch: podSpec(app(map[string]any{"resources": g.like(w.Size).resources()}))}, {Do: doSettle},
		{Do: doKubelet, Pods: everyPod, Mode: "accepted"},
		{Do: doPatch, Patch: podSpec(app(map[string]any{"resources": w.Size.resources()}))},
	}
}

// everyPod of a workload.
var everyPod = []int{0, 1, 2, 3, 4}

// forbid has a LimitRange come in which pods do not fit, be lost some, and be edited to what fits.
func (g generator) forbid(w *Workload) []Edit {
	said := Limits{Default: Size{CPU: "60m", CPULimit: "300m", Memory: "64Mi", MemoryLimit: "512Mi"}}.says()
	limit := func(pause int) Edit {
		return Edit{Pause: pause, Do: doLimit, Patch: pick(g,
			map[string]any{"max": map[string]any{"cpu": "250m"}}, map[string]any{"max": map[string]any{"cpu": "120m"}},
			map[string]any{"min": map[string]any{"cpu": "90m"}}, said,
			merged(said, map[string]any{"max": map[string]any{"cpu": "350m"}, "min": map[string]any{"cpu": "55m"}}), nil)}
	}
	return []Edit{
		limit(g.pause()), {Pause: g.pause(), Do: doKill, Pods: g.pods(2)},
		{Pause: g.pause(), Do: doPatch, Patch: podSpec(app(map[string]any{"resources": g.like(w.Size).resources()}))}, limit(1000 + g.IntN(2000)),
	}
}

// meddlers are the webhooks by their names.
var meddlers = map[string]func(*unstructured.Unstructured){
	setsCPU: func(o *unstructured.Unstructured) {
		if cpu := o.GetAnnotations()["example.com/cpu"]; cpu != "" {
			ofApp(o, cpu, "resources", "requests", "cpu")
		}
	},
	setsImage: func(o *unstructured.Unstructured) {
		if image := o.GetAnnotations()["example.com/image"]; image != "" {
			ofApp(o, image, "image")
		}
	},
	stamps: func(o *unstructured.Unstructured) {
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["example.com/stamp"] = "stamped"
		o.SetAnnotations(annotations)
	},
}

// ofApp sets a field of the template's first container.
func ofApp(o *unstructured.Unstructured, value string, field ...string) {
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) == 0 {
		return
	}
	if container, is := containers[0].(map[string]any); is && unstructured.SetNestedField(container, value, field...) == nil {
		_ = unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers") // it is there
	}
}

// meddle registers the world's webhook.
func (p *player) meddle(ctx context.Context) error {
	mutate := meddlers[p.Webhook]
	stop, err := webhook.Start(ctx, p.admin, webhook.Options{
		Namespace: p.namespace, Again: p.Seed%2 == 0,
		Mutate: func(_ *admissionv1.AdmissionRequest, o *unstructured.Unstructured) { mutate(o) },
	})
	if err != nil {
		return err
	}
	p.cleanUp = append(p.cleanUp, stop)
	return nil
}

// absent has no controller be there for a while, or no policy, while people edit.
func (s *storm) absent(ctx context.Context) error {
	switch s.random.IntN(3) {
	case 0:
		return s.lose(ctx)
	case 1:
		return s.upgrade(ctx)
	default:
		return s.reinstall(ctx)
	}
}

// lose kills all controllers, as the loss of their nodes does, and has them come back later. Their heartbeat counts for up to 45 s.
// Nobody has so much time: it becomes as old as it would be.
func (s *storm) lose(ctx context.Context) error {
	s.tally["absences: lost"]++
	for _, process := range s.controllers {
		process.Kill()
	}
	if err := controller.Beat(context.WithoutCancel(ctx), s.cp, time.Duration(1+s.random.IntN(3))*time.Second); err != nil {
		return err
	}
	sleep(ctx, time.Duration(1000+s.random.IntN(5000))*time.Millisecond)
	if s.restarts && s.random.IntN(3) == 0 {
		if err := s.restart(ctx, "kube-apiserver"); err != nil {
			return err
		}
		sleep(ctx, time.Duration(s.random.IntN(2000))*time.Millisecond)
	}
	return s.startAll(ctx)
}

// upgrade has all controllers end by themselves, and others start later.
func (s *storm) upgrade(ctx context.Context) error {
	s.tally["absences: upgraded"]++
	var wait sync.WaitGroup
	for _, process := range s.controllers {
		wait.Go(process.Stop)
	}
	wait.Wait()
	sleep(ctx, time.Duration(s.random.IntN(5000))*time.Millisecond)
	return s.startAll(ctx)
}

// reinstall deletes the policies, and applies them again later.
func (s *storm) reinstall(ctx context.Context) error {
	s.tally["absences: reinstalled"]++
	defer s.gaps.begin()()
	if err := s.policies.Delete(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	sleep(ctx, time.Duration(s.random.IntN(3000))*time.Millisecond)
	if err := s.policies.Apply(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	time.Sleep(time.Second) // those that nobody has tried
	return nil
}

// startAll starts all controllers.
func (s *storm) startAll(ctx context.Context) error {
	for i := range s.controllers {
		if err := s.start(context.WithoutCancel(ctx), i); err != nil {
			return err
		}
	}
	return nil
}

// restart kills the API server or etcd, and starts it again.
func (s *storm) restart(ctx context.Context, name string) error {
	s.tally["restarts of "+name]++
	defer s.doubts.begin()()
	return s.cp.Restart(context.WithoutCancel(ctx), name)
}

// spans are stretches of time. The last one may not have ended.
type spans struct {
	mu  sync.Mutex
	all []invariant.Span
}

// begin begins one, and returns what ends it.
func (s *spans) begin() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.all)
	s.all = append(s.all, invariant.Span{From: time.Now()})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all[n].To = time.Now()
	}
}

// since reports whether there was one at a moment or later.
func (s *spans) since(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.all, func(one invariant.Span) bool { return one.To.IsZero() || one.To.After(t) })
}

// list returns all, each longer by so much.
func (s *spans) list(before, after time.Duration) []invariant.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []invariant.Span
	for _, one := range s.all {
		all = append(all, invariant.Span{From: one.From.Add(-before), To: one.To.Add(after)})
	}
	return all
}
