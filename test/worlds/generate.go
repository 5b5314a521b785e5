package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// The names that users write.
const (
	policyAnnotation = api.ResizePolicyAnnotation
	actionAnnotation = api.ResizeActionAnnotation
	enabledLabel     = api.EnabledLabel
)

// generator makes a world from its seed.
type generator struct{ *rand.Rand }

// newWorld is the world of that seed.
func newWorld(seed uint64) World {
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	w := World{Seed: seed}
	names := slices.Sorted(maps.Keys(kinds))
	for i := range 1 + g.IntN(3) {
		w.Workloads = append(w.Workloads, g.workload(fmt.Sprintf("web-%d", i), pick(g, names...)))
	}
	if g.in(8) {
		w.Quota = pick(g, "500m", "1", "2")
	}
	if g.in(8) {
		w.Limits = &Limits{Default: Size{CPU: "50m", CPULimit: "400m", Memory: "64Mi", MemoryLimit: "512Mi"}}
		if g.in(2) {
			w.Limits.MaxCPU = "450m"
		}
	}
	if g.in(8) {
		w.Webhook = pick(g, setsCPU, setsCPU, stamps, setsImage)
	}
	shapes := make([]*shape, len(w.Workloads))
	for i := range shapes {
		shapes[i] = &shape{Workload: w.Workloads[i], sizes: []Size{w.Workloads[i].Size}}
	}
	for range 4 + g.IntN(12) {
		i := g.IntN(len(shapes))
		for _, edit := range g.edits(w, shapes[i]) {
			edit.Workload = i
			w.Edits = append(w.Edits, edit)
		}
	}
	w.addClasses()
	w.addTrouble()
	return w
}

func pick[T any](g generator, of ...T) T { return of[g.IntN(len(of))] }

// in reports true once in n times.
func (g generator) in(n int) bool { return g.IntN(n) == 0 }

func (g generator) workload(name, kind string) Workload {
	w := Workload{
		Kind: kind, Name: name, OptedIn: !g.in(10), Replicas: int32(pick(g, 0, 1, 2, 2, 3, 3, 3, 4, 5)),
		Size: g.size(pick(g, 0, 0, 0, 1, 2)),
	}
	if g.in(3) {
		w.Policy = g.policy()
	}
	if g.in(3) {
		w.Action = g.action()
	}
	if g.in(4) {
		w.MinReady = 1
	}
	if g.in(4) {
		w.Budget = pick(g, "0", "1", "50%")
	}
	if g.in(4) {
		w.Restarts = pick(g, []string{"cpu"}, []string{"memory"}, []string{"cpu", "memory"})
	}
	if g.in(4) {
		size := g.size(0)
		w.Sidecar, w.SidecarInit = &size, g.in(2)
	}
	kinds[kind].generate(g, &w)
	return w
}

// size of a container. A form decides what is said: requests and limits, requests only, or the same for both.
func (g generator) size(form int) Size {
	s := Size{
		CPU:    pick(g, "50m", "100m", "0.1", "150m", "200m", "0.2", "300m"),
		Memory: pick(g, "64Mi", "100Mi", "128Mi", "134217728", "0.125Gi", "200Mi"),
	}
	switch form {
	case 0:
		s.CPULimit, s.MemoryLimit = pick(g, "300m", "400m", "0.4"), pick(g, "256Mi", "300Mi", "0.25Gi")
	case 2:
		s.CPULimit, s.MemoryLimit = s.CPU, s.Memory
	}
	return s
}

func (g generator) policy() string {
	return pick(g, "cpu=LiveResizeable, memory=RestartOnly", "memory=RestartOnly", "cpu=RestartOnly", "memory:decrease=RestartOnly",
		"app/cpu:increase=RestartOnly,cpu=LiveResizeable", "cpu=LiveResizeable", "sidecar/cpu=RestartOnly")
}

func (g generator) action() string {
	return pick(g, "LiveResize", "LiveResize", "LiveResizePreferred", "Restart")
}

// shape is a workload while its edits are made up.
type shape struct {
	Workload
	sizes []Size
	image int
}

// edits are one that somebody makes, and what goes with it.
func (g generator) edits(w World, s *shape) []Edit {
	var what Edit
	total := 0
	all := general
	all = append(slices.Clip(all), kinds[s.Kind].edits...)
	for _, choice := range all {
		total += choice.weight
	}
	n := g.IntN(total)
	for _, choice := range all {
		if n -= choice.weight; n < 0 {
			what = choice.make(g, s)
			break
		}
	}
	what.Pause = g.pause()
	if w.Webhook == setsCPU && what.Do == doPatch && g.in(2) {
		what.Patch = annotate("example.com/cpu", pick(g, "100m", "200m", "250m"))
	}
	if w.Webhook == setsImage && what.Do == doPatch && g.in(2) {
		what.Patch = annotate("example.com/image", pick(g, "app:1", "app:7", "app:8"))
	}
	edits := []Edit{what}
	if what.Do != doPatch {
		return edits
	}
	if g.in(4) { // the kubelets have their say before the edit
		edits = []Edit{kubelets(g, s), what}
	}
	switch g.IntN(6) {
	case 0, 1:
		edits = append(edits, Edit{Do: doSettle})
	case 2, 3: // the size was too small
		edits = append(edits, Edit{Pause: 500 + g.IntN(2000), Do: doOOM, Pods: []int{0, 1, 2, 3, 4}})
	}
	return edits
}

// pause between two edits, in milliseconds.
func (g generator) pause() int {
	switch g.IntN(6) {
	case 0:
		return 0
	case 1:
		return 1000 + g.IntN(1000)
	default:
		return 50 + g.IntN(500)
	}
}

// choice is one kind of edit.
type choice struct {
	weight int
	make   func(g generator, s *shape) Edit
}

// general are the edits of every kind.
var general = []choice{
	{40, func(g generator, s *shape) Edit { return Edit{Do: doPatch, Patch: podSpec(app(g.resources(s)))} }},
	{6, func(g generator, s *shape) Edit {
		return Edit{Do: doPatch, Patch: merged(podSpec(app(g.resources(s))), annotate(actionAnnotation, g.action()))}
	}},
	{4, func(g generator, s *shape) Edit {
		if s.Sidecar == nil {
			return kubelets(g, s)
		}
		sidecar := []any{map[string]any{"name": "sidecar", "resources": g.size(0).resources()}}
		if s.SidecarInit {
			return Edit{Do: doPatch, Patch: podSpec(map[string]any{"initContainers": sidecar})}
		}
		return Edit{Do: doPatch, Patch: podSpec(map[string]any{"containers": sidecar})}
	}},
	{5, func(g generator, s *shape) Edit { return Edit{Do: doPatch, Patch: podSpec(app(g.image(s)))} }},
	{3, func(g generator, s *shape) Edit {
		return Edit{Do: doPatch, Patch: podSpec(app(merged(g.image(s), g.resources(s))))}
	}},
	{8, func(g generator, s *shape) Edit {
		if s.Kind == "DaemonSet" {
			return nodes(g, s)
		}
		return Edit{Do: doPatch, Patch: spec("replicas", pick(g, 0, 1, 2, 3, 3, 4, 5))}
	}},
	{5, func(g generator, _ *shape) Edit {
		return Edit{Do: doPatch, Patch: annotate(policyAnnotation, pick[any](g, g.policy(), nil))}
	}},
	{6, func(g generator, _ *shape) Edit {
		return Edit{Do: doPatch, Patch: annotate(actionAnnotation, pick[any](g, g.action(), nil))}
	}},
	{4, func(g generator, _ *shape) Edit {
		return Edit{Do: doPatch, Patch: annotate(api.RetryAnnotation, fmt.Sprint(g.IntN(1000), pick(g, "", "", ";LiveResizePreferred", ";LiveResize", ";Restart")))}
	}},
	{2, func(g generator, _ *shape) Edit {
		return Edit{Do: doPatch, Patch: annotate(api.DeferredTimeoutAnnotation, pick[any](g, "1s", "10s", nil))}
	}},
	{14, func(g generator, _ *shape) Edit {
		return Edit{Do: doPatch, Patch: annotated(map[string]any{
			api.CanaryAnnotation: pick[any](g, "1", "1", "2", "50%", nil), api.CanaryDurationAnnotation: pick(g, "2s", "5s"),
			api.OnFailureAnnotation: pick[any](g, "Revert", "Revert", "Hold", nil),
		})}
	}},
	{6, func(g generator, _ *shape) Edit { return Edit{Do: doOOM, Pods: []int{0, 1, 2, 3, 4}} }},
	{5, func(g generator, _ *shape) Edit {
		return Edit{Do: doPatch, Patch: map[string]any{"metadata": map[string]any{"labels": map[string]any{enabledLabel: pick(g, "true", "true", "false")}}}}
	}},
	{5, func(generator, *shape) Edit { return Edit{Do: doApply} }},
	{5, func(generator, *shape) Edit { return Edit{Do: doUndo} }},
	{2, func(generator, *shape) Edit { return Edit{Do: doDelete} }},
	{3, func(generator, *shape) Edit { return Edit{Do: doOrphan} }},
	{7, func(g generator, _ *shape) Edit { return Edit{Do: doKill, Pods: g.pods(1)} }},
	{4, func(g generator, s *shape) Edit {
		return Edit{Do: doResize, Pods: g.pods(2), Patch: app(g.resources(s))}
	}},
	{12, kubelets},
	{2, func(g generator, _ *shape) Edit {
		return Edit{Do: doQuota, Patch: map[string]any{"requests.cpu": pick(g, "300m", "700m", "3")}}
	}},
	{2, func(g generator, _ *shape) Edit {
		return Edit{Do: doBudget, Patch: map[string]any{"maxUnavailable": pick[any](g, 0, 1, nil)}}
	}},
	{5, func(generator, *shape) Edit { return Edit{Do: doSettle} }},
}

// pods are up to n numbers of pods.
func (g generator) pods(n int) []int {
	var pods []int
	for range 1 + g.IntN(n) {
		pods = append(pods, g.IntN(5))
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

func kubelets(g generator, _ *shape) Edit {
	return Edit{Pause: g.pause(), Do: doKubelet, Pods: g.pods(3), Mode: pick(g,
		"accepted", "accepted", "delayed", "delayed", "deferred", "deferred", "infeasible", "error", "never", "slow", "unready", "until-resized")}
}

func nodes(g generator, _ *shape) Edit {
	return Edit{Pause: g.pause(), Do: doNode, Pods: g.pods(2), Mode: pick(g,
		"cordon", "uncordon", "taint", "drain", "untaint", "leave", "join", "join", "remove", "add", "add")}
}

// resources of an edit: mostly a new size, sometimes one of before, one that fits nowhere, another
// QoS class, or a limit that is gone.
func (g generator) resources(s *shape) map[string]any {
	var size Size
	switch n := g.IntN(24); {
	case n < 4:
		size = pick(g, s.sizes...)
	case n == 4: // fits on no node
		size = g.like(s.Size)
		size.CPU = "100"
		if size.CPULimit != "" {
			size.CPULimit = "100"
		}
	case n == 5: // perhaps another QoS class
		return map[string]any{"resources": g.size(g.IntN(3)).resources()}
	case n == 6:
		return map[string]any{"resources": map[string]any{"limits": map[string]any{"cpu": nil}}}
	case n < 14: // cpu only
		size = s.Size
		size.CPU = g.like(s.Size).CPU
		if s.Size.CPU == s.Size.CPULimit {
			size.CPULimit = size.CPU
		}
	default:
		size = g.like(s.Size)
	}
	s.sizes = append(s.sizes, size)
	return map[string]any{"resources": size.resources()}
}

// like is a size that says as much as another.
func (g generator) like(other Size) Size {
	switch other.CPULimit {
	case "":
		return g.size(1)
	case other.CPU:
		return g.size(2)
	default:
		return g.size(0)
	}
}

func (g generator) image(s *shape) map[string]any {
	s.image++
	return map[string]any{"image": fmt.Sprintf("app:%d", 1+(s.image+g.IntN(2))%3)}
}

// app is a patch of the container app.
func app(patch map[string]any) map[string]any {
	return map[string]any{"containers": []any{merged(map[string]any{"name": "app"}, patch)}}
}

// podSpec is a patch of the template's spec.
func podSpec(patch map[string]any) map[string]any {
	return spec("template", map[string]any{"spec": patch})
}

// spec is a patch of one field of a workload's spec.
func spec(field string, value any) map[string]any {
	return map[string]any{"spec": map[string]any{field: value}}
}

// annotate is a patch of one annotation.
func annotate(key string, value any) map[string]any {
	return annotated(map[string]any{key: value})
}

func annotated(annotations map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": annotations}}
}

// merged is one map with the keys of both, which have none in common, or b's counts.
func merged(a, b map[string]any) map[string]any {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}
