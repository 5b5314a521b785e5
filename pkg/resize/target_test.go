package resize_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestFor(t *testing.T) {
	const sized, ourLimits = "requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 200m, memory: 200Mi}", `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:cpu":{},"f:memory":{}}}}}}}`
	inject := func(pod *corev1.Pod) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "injected", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m")},
		}})
		build.Actuate(pod)
	}
	limitRange := func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		build.Actuate(pod)
	}
	tests := []struct {
		name         string
		older, newer string // the template, or the size of its only container
		change       []func(*corev1.Pod)
		changes      string
		obstacles    []string
		patch        string // its spec, if not empty: that a patch makes the changes is proved by TestPatchLeadsToSpec
		absent       []string
	}{
		{name: "what the newer template says is set, and only what differs is sent", older: sized,
			newer: "requests: {cpu: 150m, memory: 100Mi}, limits: {cpu: 200m, memory: 300Mi}", changes: "app: cpu request 100m→150m, app: memory limit 200Mi→300Mi",
			patch: `{"containers":[{"name":"app","resources":{"limits":{"memory":"300Mi"},"requests":{"cpu":"150m"}}}]}`},
		{name: "another way to write the same quantity is no change", older: "requests: {cpu: 1000m, memory: 0.5Gi}", newer: "requests: {cpu: 1, memory: 512Mi}"},
		{name: "limits only: the request follows the limit, and the pod stays Guaranteed", older: "limits: {cpu: 100m, memory: 100Mi}", newer: "limits: {cpu: 200m, memory: 100Mi}",
			changes: "app: cpu request 100m→200m, app: cpu limit 100m→200m"},
		{name: "an injected sidecar keeps its own size", older: sized, newer: "requests: {cpu: 150m, memory: 100Mi}, limits: {cpu: 200m, memory: 200Mi}",
			change: []func(*corev1.Pod){inject}, changes: "app: cpu request 100m→150m"},
		{name: "a limit that a LimitRange filled in stays, because neither template says it", older: "requests: {cpu: 100m}", newer: "requests: {cpu: 150m}",
			change: []func(*corev1.Pod){limitRange}, changes: "app: cpu request 100m→150m"},
		{name: "a limit that only the older template says would have to be removed", older: sized, newer: "requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 200m}",
			obstacles: []string{"app: the memory limit is removed"}},
		{name: "A→C→D: the abandoned C's cpu goes, although A and D have the same", older: sized, newer: "requests: {cpu: 100m, memory: 150Mi}, limits: {cpu: 200m, memory: 200Mi}",
			change: []func(*corev1.Pod){func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("180m")
			}, build.Ours(ourRequests)},
			changes: "app: cpu request 180m→100m, app: memory request 100Mi→150Mi"},
		{name: "A→C→D: a limit that we set for the abandoned C would have to be removed", older: "requests: {cpu: 100m}", newer: "requests: {cpu: 120m}",
			change:  []func(*corev1.Pod){limitRange, build.Ours(`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:memory":{}}}}}}}`)},
			changes: "app: cpu request 100m→120m", obstacles: []string{"app: the memory limit is removed"}},
		{name: "a request that becomes equal to the limit everywhere changes the QoS class", older: sized,
			newer: "requests: {cpu: 200m, memory: 200Mi}, limits: {cpu: 200m, memory: 200Mi}", changes: "app: cpu request 100m→200m, app: memory request 100Mi→200Mi",
			obstacles: []string{"the QoS class would change from Burstable to Guaranteed"}},
		{name: "the first request of a BestEffort pod changes the QoS class", older: "containers: [{name: app}]", newer: "requests: {cpu: 100m}",
			changes: "app: cpu request none→100m", obstacles: []string{"the QoS class would change from BestEffort to Burstable"}},
		{name: "an explicit zero is not absent", older: "requests: {cpu: 100m, memory: 1Mi}", newer: "requests: {cpu: 0, memory: 1Mi}", changes: "app: cpu request 100m→0"},
		{name: "a sidecar (restartable init container) is resized like a container",
			older: "{initContainers: [{name: proxy, restartPolicy: Always, resources: {requests: {cpu: 10m}}}], containers: [{name: app}]}",
			newer: "{initContainers: [{name: proxy, restartPolicy: Always, resources: {requests: {cpu: 20m}}}], containers: [{name: app}]}", changes: "proxy: cpu request 10m→20m"},
		{name: "a plain init container is resized too", older: "{initContainers: [{name: setup, resources: {requests: {cpu: 10m}}}], containers: [{name: app}]}",
			newer: "{initContainers: [{name: setup, resources: {requests: {cpu: 20m}}}], containers: [{name: app}]}", changes: "setup: cpu request 10m→20m",
			patch: `{"initContainers":[{"name":"setup","resources":{"requests":{"cpu":"20m"}}}]}`},
		{name: "a plain init container with RestartContainer cannot be resized",
			older:   "{initContainers: [{name: setup, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}], resources: {requests: {cpu: 10m}}}], containers: [{name: app}]}",
			newer:   "{initContainers: [{name: setup, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}], resources: {requests: {cpu: 20m}}}], containers: [{name: app}]}",
			changes: "setup: cpu request 10m→20m", obstacles: []string{"init container setup with the resize policy RestartContainer cannot be resized"}},
		{name: "the pod's own resources are resized, and a missing request is what the containers request",
			older:   "{resources: {requests: {cpu: 100m}, limits: {cpu: 1}}, containers: [{name: app, resources: {requests: {cpu: 100m}}}]}",
			newer:   "{resources: {limits: {cpu: 2}}, containers: [{name: app, resources: {requests: {cpu: 150m}}}]}",
			changes: "pod: cpu request 100m→150m, pod: cpu limit 1→2, app: cpu request 100m→150m",
			patch:   `{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}],"resources":{"limits":{"cpu":"2"},"requests":{"cpu":"150m"}}}`},
		{name: "a limit of the pod that follows from its containers' grows with them",
			older:   "{resources: {requests: {cpu: 500m}}, containers: [{name: app, resources: {requests: {cpu: 100m}, limits: {cpu: 1}}}]}",
			newer:   "{resources: {requests: {cpu: 500m}}, containers: [{name: app, resources: {requests: {cpu: 100m}, limits: {cpu: 2}}}]}",
			changes: "pod: cpu limit 1→2, app: cpu limit 1→2"},
		{name: "a request of the pod that follows from its containers' shrinks with them",
			older:   "{resources: {requests: {memory: 1Gi}}, containers: [{name: app, resources: {requests: {cpu: 1}}}]}",
			newer:   "{resources: {requests: {memory: 1Gi}}, containers: [{name: app, resources: {requests: {cpu: 500m}}}]}",
			changes: "pod: cpu request 1→500m, app: cpu request 1→500m"},
		{name: "it follows from what was injected, too", older: "{resources: {limits: {cpu: 1}}, containers: [{name: app, resources: {requests: {cpu: 100m}}}]}",
			newer: "{resources: {limits: {cpu: 1}}, containers: [{name: app, resources: {requests: {cpu: 150m}}}]}",
			change: []func(*corev1.Pod){inject, func(pod *corev1.Pod) {
				pod.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("105m")}
			}},
			changes: "pod: cpu request 105m→155m, app: cpu request 100m→150m"},
		{name: "what would follow, but did not in an API server before 1.37, is not added",
			older:  "{resources: {requests: {cpu: 500m}}, containers: [{name: app, resources: {requests: {cpu: 100m}, limits: {cpu: 1}}}]}",
			newer:  "{resources: {requests: {cpu: 500m}}, containers: [{name: app, resources: {requests: {cpu: 100m}, limits: {cpu: 2}}}]}",
			change: []func(*corev1.Pod){func(pod *corev1.Pod) { pod.Spec.Resources.Limits = nil }}, changes: "app: cpu limit 1→2"},
		{name: "the pod's own resources cannot be removed", older: "{resources: {requests: {cpu: 200m}}, containers: [{name: app, resources: {requests: {cpu: 100m}}}]}",
			newer: "{containers: [{name: app, resources: {requests: {cpu: 100m}}}]}", obstacles: []string{"pod: the cpu request is removed"}},
		{name: "A→C→D: nor can those that we set for the abandoned C", older: "requests: {cpu: 100m}", newer: "requests: {cpu: 120m}",
			change: []func(*corev1.Pod){podLimit, build.Ours(ourPodLimit)}, changes: "app: cpu request 100m→120m", obstacles: []string{"pod: the cpu limit is removed"}},
		{name: "those that somebody else set stay", older: "requests: {cpu: 100m}", newer: "requests: {cpu: 120m}", change: []func(*corev1.Pod){podLimit},
			changes: "app: cpu request 100m→120m"},
		{name: "memory of a fraction of a byte would never be applied", older: "requests: {memory: 100Mi}", newer: "requests: {memory: 644245094401m}",
			changes: "app: memory request 100Mi→644245094401m", obstacles: []string{"app: memory request 644245094401m is not a whole number of bytes"}},
		{name: "a pod that no node has room for is resized before it starts", older: sized, newer: "requests: {cpu: 50m, memory: 100Mi}, limits: {cpu: 200m, memory: 200Mi}",
			change: []func(*corev1.Pod){build.Unschedulable}, changes: "app: cpu request 100m→50m"},
		{name: "a container that an injector has made a sidecar is resized where it is", older: "containers: [{name: app}, {name: proxy, resources: {requests: {cpu: 10m}}}]",
			newer: "containers: [{name: app}, {name: proxy, resources: {requests: {cpu: 20m}}}]", change: []func(*corev1.Pod){moveToInit}, changes: "proxy: cpu request 10m→20m"},
		{name: "what we have set there for an abandoned edit goes", older: "containers: [{name: app}, {name: proxy, resources: {requests: {cpu: 10m}}}]",
			newer:   "containers: [{name: app}, {name: proxy, resources: {requests: {cpu: 10m}}}]",
			change:  []func(*corev1.Pod){moveToInit, setCPU("proxy", "30m"), build.Ours(`{"f:spec":{"f:initContainers":{"k:{\"name\":\"proxy\"}":{"f:resources":{"f:requests":{"f:cpu":{}}}}}}}`)},
			changes: "proxy: cpu request 30m→10m"},
		{name: "one that an injector has dropped or renamed is left alone", older: "containers: [{name: app, resources: {requests: {cpu: 10m}}}, {name: proxy, resources: {requests: {cpu: 10m}}}]",
			newer:  "containers: [{name: app, resources: {requests: {cpu: 20m}}}, {name: proxy, resources: {requests: {cpu: 20m}}}]",
			change: []func(*corev1.Pod){func(pod *corev1.Pod) { pod.Spec.Containers[1].Name = "agent"; build.Actuate(pod) }}, changes: "app: cpu request 10m→20m",
			absent: []string{"proxy"}},
		{name: "requests that admission has lowered at birth stay where the edit says nothing of them", older: guaranteed("1", "1Gi"), newer: guaranteed("2", "1Gi"),
			change: []func(*corev1.Pod){lowerRequests}, changes: "app: cpu request 250m→2, app: cpu limit 1→2"},
		{name: "and all of them, where the pod would be of another QoS class than a new one", older: guaranteed("1", "1Gi"), newer: guaranteed("2", "2Gi"),
			change: []func(*corev1.Pod){lowerRequests}, changes: "app: cpu limit 1→2, app: memory limit 1Gi→2Gi"},
		{name: "so also where the older template is of the pod's class, and the newer one would not be in a new pod",
			older: "requests: {cpu: 500m, memory: 512Mi}, limits: {cpu: 1, memory: 1Gi}", newer: guaranteed("1", "1Gi"), change: []func(*corev1.Pod){lowerRequests}},
		{name: "and still, once it has the newer one's limits", older: "requests: {cpu: 500m, memory: 512Mi}, limits: {cpu: 1, memory: 1Gi}", newer: guaranteed("2", "2Gi"),
			change: []func(*corev1.Pod){build.WithSize(build.Size(t, "requests: {cpu: 250m, memory: 256Mi}, limits: {cpu: 2, memory: 2Gi}")), build.Ours(ourLimits)}},
		{name: "but not where admission raises requests: it may leave a new pod in the template's class",
			older: "requests: {cpu: 100m, memory: 128Mi}, limits: {cpu: 1, memory: 1Gi}", newer: guaranteed("2", "2Gi"), change: []func(*corev1.Pod){lowerRequests},
			changes:   "app: cpu request 250m→2, app: cpu limit 1→2, app: memory request 256Mi→2Gi, app: memory limit 1Gi→2Gi",
			obstacles: []string{"the QoS class would change from Burstable to Guaranteed"}},
		{name: "a request that admission has raised at birth does not stay above the limit that is edited",
			older: "requests: {cpu: 20m, memory: 20Mi}, limits: {cpu: 1, memory: 1Gi}", newer: "requests: {cpu: 20m, memory: 20Mi}, limits: {cpu: 200m, memory: 1Gi}",
			change: []func(*corev1.Pod){lowerRequests}, changes: "app: cpu request 250m→20m, app: cpu limit 1→200m"},
		{name: "nor does a limit of admission's stay below the request that is edited", older: guaranteed("1", "1Gi"), newer: guaranteed("2", "2Gi"),
			change:  []func(*corev1.Pod){build.WithSize(build.Size(t, "requests: {cpu: 250m, memory: 1Gi}, limits: {cpu: 1, memory: 1536Mi}")), burstable},
			changes: "app: cpu limit 1→2, app: memory request 1Gi→2Gi, app: memory limit 1536Mi→2Gi"},
		{name: "a limit that admission has removed at birth is not added by an edit of something else", older: guaranteed("500m", "1Gi"), newer: guaranteed("500m", "2Gi"),
			change: []func(*corev1.Pod){removeCPULimit}, changes: "app: memory request 1Gi→2Gi, app: memory limit 1Gi→2Gi"},
		{name: "nor by one of that limit", older: guaranteed("500m", "1Gi"), newer: guaranteed("700m", "1Gi"), change: []func(*corev1.Pod){removeCPULimit},
			changes: "app: cpu request 500m→700m"},
		{name: "what others have set since its birth is the template's again, whatever is edited", older: sized,
			newer:   "requests: {cpu: 100m, memory: 150Mi}, limits: {cpu: 200m, memory: 200Mi}",
			change:  []func(*corev1.Pod){setCPU("app", "180m"), build.ResizedBy("updater", build.Start, ourRequests)},
			changes: "app: cpu request 180m→100m, app: memory request 100Mi→150Mi"},
		{name: "the pod's own value follows from its containers only where these change",
			older:  "{resources: {limits: {cpu: 1, memory: 1Gi}}, containers: [{name: app, resources: {requests: {cpu: 100m, memory: 100Mi}}}]}",
			newer:  "{resources: {limits: {cpu: 1, memory: 1Gi}}, containers: [{name: app, resources: {requests: {cpu: 100m, memory: 200Mi}}}]}",
			change: []func(*corev1.Pod){setCPU("app", "25m")}, changes: "pod: memory request 100Mi→200Mi, app: memory request 100Mi→200Mi"},
		{name: "Windows pods cannot be resized", older: "{os: {name: windows}, containers: [{name: app, resources: {requests: {cpu: 1}}}]}",
			newer: "{os: {name: windows}, containers: [{name: app, resources: {requests: {cpu: 2}}}]}", changes: "app: cpu request 1→2",
			obstacles: []string{"windows pods cannot be resized"}},
		{name: "static pods cannot be resized", older: "requests: {cpu: 1}", newer: "requests: {cpu: 2}",
			change: []func(*corev1.Pod){func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }}, changes: "app: cpu request 1→2",
			obstacles: []string{"static pods cannot be resized"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			template := func(text string) *corev1.PodTemplateSpec {
				if strings.Contains(text, "containers: ") {
					return build.Template(t, text)
				}
				return build.Size(t, text)
			}
			older, newer := template(tt.older), template(tt.newer)
			pod := build.Pod("web-0", older, tt.change...)
			before := pod.DeepCopy()

			target := must.Get(resize.For(pod, older, newer))(t)

			must.Equal(t, resize.Describe(target.Changes), tt.changes, "changes")
			must.EqualLists(t, target.Obstacles, tt.obstacles, "obstacles")
			must.EqualLists(t, target.Absent, tt.absent, "what is absent")
			patch := must.Get(target.Patch())(t)
			if want := `{"metadata":{"resourceVersion":"1","uid":"uid-of-web-0"},"spec":` + tt.patch + `}`; tt.patch != "" && string(patch) != want || (len(patch) > 0) != (tt.changes != "") {
				t.Errorf("patch:\n got %s\nwant %s", patch, want)
			}
			if !equality.Semantic.DeepEqual(before, pod) {
				t.Error("the pod was changed")
			}
		})
	}
}

// TestKnowing: a value that the template says no more is no obstacle where a new pod has one, too.
func TestKnowing(t *testing.T) {
	const ours = `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:memory":{}}}}}}}`
	size := func(limits string) *corev1.PodTemplateSpec {
		return build.Size(t, "requests: {cpu: 200m, memory: 100Mi}, limits: {"+limits+"}")
	}
	older, newer := build.Size(t, "requests: {cpu: 100m, memory: 100Mi}, limits: {memory: 200Mi}"), size("")
	same, another, tooLow := size("memory: 200Mi"), size("memory: 300Mi"), size("memory: 50Mi")
	guaranteed, limited := size("cpu: 200m, memory: 100Mi"), size("cpu: 200m")
	made := func(of *corev1.PodTemplateSpec, change ...func(*corev1.Pod)) resize.Witnesses {
		return resize.Witnesses{{Pod: build.Pod("web-1", of, change...)}}
	}
	by := func(said *corev1.PodTemplateSpec, pods resize.Witnesses) resize.Witnesses {
		pods[0].Said = said
		return pods
	}
	later := func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(build.Start) }
	filled := func(as *corev1.PodTemplateSpec) func() *corev1.PodSpec {
		return func() *corev1.PodSpec { return &as.Spec }
	}
	const stays, set = "app: cpu request 100m→200m", "app: cpu request 100m→200m, app: memory limit 200Mi→300Mi"
	for _, tt := range []struct {
		name         string
		admission    resize.Admission
		older, newer *corev1.PodTemplateSpec
		changes      string // without any obstacle; empty if there is one
		unproved     bool
	}{
		{name: "nothing is known", unproved: true},
		{name: "a new pod has it", admission: resize.Admission{Made: made(same)}, changes: stays},
		{name: "a new pod lacks it", admission: resize.Admission{Made: made(newer), Filled: filled(same), Before: by(newer, made(same))}},
		{name: "a new pod has another one", admission: resize.Admission{Made: made(another)}, changes: set},
		{name: "a new pod has one below the request", admission: resize.Admission{Made: made(tooLow)}},
		{name: "a new pod has one that makes it of another class", admission: resize.Admission{Made: made(size("cpu: 200m, memory: 300Mi"))}, older: guaranteed, newer: limited},
		{name: "a resize has set that of the new pod", admission: resize.Admission{Made: made(same, build.Ours(ours))}, unproved: true},
		{name: "nor does a younger one tell, but an older one", admission: resize.Admission{Made: append(made(same, later, build.Ours(ours)), made(another)...)}, changes: set},
		{name: "the youngest of those that tell does", admission: resize.Admission{Made: append(made(another), made(same, later)...)}, changes: stays},
		{name: "a LimitRange fills it in", admission: resize.Admission{Filled: filled(same)}, changes: stays},
		{name: "a LimitRange fills in another one", admission: resize.Admission{Filled: filled(another)}, changes: set},
		{name: "no LimitRange does", admission: resize.Admission{Filled: filled(newer)}, unproved: true},
		{name: "none is known", admission: resize.Admission{Filled: func() *corev1.PodSpec { return nil }}, unproved: true},
		{name: "a pod of the edit before has another one", admission: resize.Admission{Before: by(newer, made(another))}, changes: set},
		{name: "its template says that", admission: resize.Admission{Before: by(another, made(another))}, unproved: true},
		{name: "a resize has set that", admission: resize.Admission{Before: by(newer, made(another, build.Ours(ours)))}, unproved: true},
		{name: "it has none", admission: resize.Admission{Before: by(newer, made(newer))}, unproved: true},
	} {
		from, to := cmp.Or(tt.older, older), cmp.Or(tt.newer, newer)
		target := must.Get(resize.For(build.Pod("web-0", from), from, to))(t)
		target = target.Knowing(tt.admission)
		says := resize.Describe(target.Changes)
		if got := len(target.Obstacles) > 0; got != (tt.changes == "") || target.Unproved != tt.unproved || !got && (says != tt.changes || resize.Describe(target.Effects) != says) {
			t.Errorf("%s: obstacles %q, unproved %t, changes %s, effects %s", tt.name, target.Obstacles, target.Unproved, says, resize.Describe(target.Effects))
		}
		limit := target.Newborn(false).Containers[0].Resources.Limits.Memory().String()
		if want := map[string]string{stays: "200Mi", set: "300Mi", "": "0"}[tt.changes]; tt.older == nil && limit != want {
			t.Errorf("%s: a new pod has %s, want %s", tt.name, limit, want)
		}
	}
}

// TestKnowingWhatFollows: what follows for the pod as a whole from what its template says of that, admission does not give: it goes with it.
func TestKnowingWhatFollows(t *testing.T) {
	const pod, followed = "\nresources: {requests: {cpu: 2}, limits: {cpu: 5}}", "\nresources: {requests: {cpu: 2, memory: 1Mi}, limits: {cpu: 5}}"
	container := func(memory string) string {
		return "containers: [{name: app, resources: {requests: {memory: " + memory + "}}}]"
	}
	older, newer := build.Template(t, container("1Mi")+pod), build.Template(t, container("2Mi"))
	made := build.Pod("web-0", build.Template(t, container("1Mi")+followed))
	target := must.Get(resize.For(made, older, newer))(t)
	target = target.Knowing(resize.Admission{Before: resize.Witnesses{{Pod: made, Said: older}}})
	if of := target.Newborn(false).Resources; len(of.Requests)+len(of.Limits) > 0 {
		t.Errorf("a new pod has %v", of)
	}
}

// TestTakenBack: admission lowers the requests of new pods, and a pod was asked for the size of an edit that was given up. What is in
// force in it stays where new pods are known to have the same.
func TestTakenBack(t *testing.T) {
	a, c := build.Size(t, "requests: {cpu: 400m}, limits: {cpu: 400m}"), build.Size(t, "requests: {cpu: 900m}, limits: {cpu: 900m}")
	born := build.Size(t, "requests: {cpu: 100m}, limits: {cpu: 400m}")
	ours := build.Ours(`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:requests":{"f:cpu":{}},"f:limits":{"f:cpu":{}}}}}}}`)
	asked := build.Pod("web-0", born, build.WithSize(c), ours)
	for _, tt := range []struct {
		name             string
		pod              *corev1.Pod
		newer            *corev1.PodTemplateSpec
		made             *corev1.Pod
		changes, effects string
	}{
		{"nothing is known", asked, a, nil, "app: cpu request 900m→400m, app: cpu limit 900m→400m", "app: cpu request 100m→400m"},
		{"new pods have what is in force", asked, a, build.Pod("web-1", born), "app: cpu limit 900m→400m, app: cpu request 900m→100m", ""},
		{"the pod was asked for the template's before", build.Pod("web-0", born, build.WithSize(a), ours), a, build.Pod("web-1", born), "app: cpu request 400m→100m", ""},
		{"new pods have the template's", asked, a, build.Pod("web-1", a), "app: cpu request 900m→400m, app: cpu limit 900m→400m", "app: cpu request 100m→400m"},
		{"a resize has set that of the new pod", asked, a, build.Pod("web-1", born, ours), "app: cpu request 900m→400m, app: cpu limit 900m→400m", "app: cpu request 100m→400m"},
		{"it was carried out", build.Pod("web-0", born, build.Resized(c), ours), a, build.Pod("web-1", born), "app: cpu request 900m→400m, app: cpu limit 900m→400m", "app: cpu request 900m→400m, app: cpu limit 900m→400m"},
		{"it is edited", asked, c, build.Pod("web-1", born), "", "app: cpu request 100m→900m, app: cpu limit 400m→900m"},
	} {
		target, err := resize.For(tt.pod, a, tt.newer)
		if tt.made != nil {
			target = target.Knowing(resize.Admission{Made: resize.Witnesses{{Pod: tt.made}}})
		}
		if changes, effects := resize.Describe(target.Changes), resize.Describe(target.Effects); err != nil || changes != tt.changes || effects != tt.effects {
			t.Errorf("%s: changes %s, want %s; effects %s, want %s; %v", tt.name, changes, tt.changes, effects, tt.effects, err)
		}
	}
}

// TestEffects: the effects begin with what the kubelet says is in force, not with what the
// spec asks for and the kubelet has not carried out.
func TestEffects(t *testing.T) {
	a := build.Size(t, "requests: {cpu: 105m, memory: 100Mi}, limits: {cpu: 105m}")
	b := build.Size(t, "requests: {cpu: 105m, memory: 200Mi}, limits: {cpu: 105m}")
	limited := build.Size(t, "requests: {cpu: 200m, memory: 100Mi}, limits: {cpu: 200m, memory: 1Gi}")
	rounded := func(pod *corev1.Pod) { // by the systemd cgroup driver
		pod.Status.ContainerStatuses[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("110m")
	}
	for _, tt := range []struct {
		name    string
		pod     *corev1.Pod
		to      *corev1.PodTemplateSpec
		changes string
		effects string
	}{
		{"a size that is in force changes", build.Pod("web-0", a), b, "app: memory request 100Mi→200Mi", "app: memory request 100Mi→200Mi"},
		{"one that was asked for changes what is in force", build.Pod("web-0", a, build.WithSize(b)), b, "", "app: memory request 100Mi→200Mi"},
		{"one that is taken back before it is in force changes nothing", build.Pod("web-0", a, build.WithSize(b), build.Ours(ourRequests)), a, "app: memory request 200Mi→100Mi", ""},
		{"one that was added and asked for is not in force", build.Pod("web-0", a, build.WithSize(limited)), limited, "",
			"app: cpu request 105m→200m, app: cpu limit 105m→200m, app: memory limit none→1Gi"},
		{"one that is in force changes nothing", build.Pod("web-0", a, build.Resized(b)), b, "", ""},
		{"nor does what the kubelet has rounded", build.Pod("web-0", a, rounded), a, "", ""},
		{"a pod that has not started has what its spec says", build.Pod("web-0", a, func(pod *corev1.Pod) { pod.Status.ContainerStatuses = nil }), b,
			"app: memory request 100Mi→200Mi", "app: memory request 100Mi→200Mi"},
		{"what would have to be removed counts", build.Pod("web-0", a), build.Size(t, "requests: {memory: 100Mi}"), "", "app: cpu request 105m→none, app: cpu limit 105m→none"},
	} {
		target := must.Get(resize.For(tt.pod, a, tt.to))(t)
		must.Equal(t, resize.Describe(target.Changes), tt.changes, "%s: changes", tt.name)
		must.Equal(t, resize.Describe(target.Effects), tt.effects, "%s: effects", tt.name)
	}
	others := build.Pod("web-0", a, build.WithSize(b))
	if left, err := resize.Leftover(others, a); err != nil || len(left.Effects) > 0 {
		t.Errorf("what somebody else has asked for is taken for ours: %s, error %v", resize.Describe(left.Effects), err)
	}
}

// TestWaiting: a pod was asked for a size that its kubelet has not taken yet.
func TestWaiting(t *testing.T) {
	a, more := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 200m}")
	for _, tt := range []struct {
		name               string
		size               *corev1.PodTemplateSpec
		takes, asksForMore bool
		back               string
	}{
		{"for more", more, false, true, "app: cpu request 200m→100m"},
		{"for less", build.Size(t, "requests: {cpu: 50m}"), true, false, "app: cpu request 50m→100m"},
		{"for a limit that it lacks", build.Size(t, "requests: {cpu: 100m}, limits: {cpu: 200m}"), true, true, ""},
		{"for a request that it lacks", build.Size(t, "requests: {cpu: 100m, memory: 100Mi}"), false, true, ""},
		{"for more, and for a limit that it lacks", build.Size(t, "requests: {cpu: 200m}, limits: {memory: 1Gi}"), true, true, "app: cpu request 200m→100m"},
	} {
		target := must.Get(resize.For(build.Pod("web-0", a, build.WithSize(tt.size)), a, tt.size))(t)
		must.Equal(t, target.Takes(), tt.takes, "%s: it takes something", tt.name)
		must.Equal(t, target.AsksForMore(), tt.asksForMore, "%s: it asks for more", tt.name)
		must.Equal(t, resize.Describe(target.Back().Changes), tt.back, "%s: what goes back", tt.name)
	}
}

// TestBackToRounded: what the kernel or a runtime makes of a limit is not asked for. It would no longer be the request, and the pod of another
// QoS class.
func TestBackToRounded(t *testing.T) {
	const size = "{resources: {requests: {cpu: 1, memory: %[1]s}, limits: {cpu: 1, memory: %[1]s}}, containers: [{name: app, resources: {requests: {cpu: %[2]s}, limits: {cpu: %[2]s}}}]}"
	older, newer := build.Template(t, fmt.Sprintf(size, "1G", "125m")), build.Template(t, fmt.Sprintf(size, "2G", "250m"))
	pod := build.Pod("web-0", older, build.ResizedAt(build.Start))
	pod.Status.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("999997440")
	pod.Status.ContainerStatuses[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("130m")
	pod.Spec = build.Pod("web-0", newer).Spec
	pod.Generation++
	want := "pod: memory request 2G→1G, pod: memory limit 2G→1G, app: cpu request 250m→125m, app: cpu limit 250m→125m"
	must.Equal(t, resize.Describe(target(t, pod, older, newer).Back().Changes), want, "what goes back")
}

// ourRequests are what we have set.
const ourRequests = `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:requests":{"f:cpu":{},"f:memory":{}}}}}}}`

const ourPodLimit = `{"f:spec":{"f:resources":{"f:limits":{"f:cpu":{}}}}}`

// guaranteed is a template whose pods are, where admission lets them.
func guaranteed(cpu, memory string) string {
	size := "{cpu: " + cpu + ", memory: " + memory + "}"
	return "containers: [{name: app, resources: {requests: " + size + ", limits: " + size + "}}]"
}

// moveToInit makes the container proxy a sidecar, as Istio's injector does.
func moveToInit(pod *corev1.Pod) {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "proxy" })
	proxy := pod.Spec.Containers[i]
	proxy.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	pod.Spec.Containers = slices.Delete(pod.Spec.Containers, i, i+1)
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, proxy)
	build.Actuate(pod)
}

// lowerRequests has requests of a quarter of the limits, as OpenShift's ClusterResourceOverride gives them to pods.
func lowerRequests(pod *corev1.Pod) {
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("256Mi")}
	pod.Status.QOSClass = corev1.PodQOSBurstable
	build.Actuate(pod)
}

func burstable(pod *corev1.Pod) { pod.Status.QOSClass = corev1.PodQOSBurstable }

func removeCPULimit(pod *corev1.Pod) {
	delete(pod.Spec.Containers[0].Resources.Limits, corev1.ResourceCPU)
	pod.Status.QOSClass = corev1.PodQOSBurstable
	build.Actuate(pod)
}

// setCPU gives a container another request of cpu.
func setCPU(container, cpu string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if list[i].Name == container {
					list[i].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpu)
				}
			}
		}
		build.Actuate(pod)
	}
}

// podLimit gives the pod a limit of its own.
func podLimit(pod *corev1.Pod) {
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	build.Actuate(pod)
}

// TestLeftover is A→C→A: the pod has been one of A all the time.
func TestLeftover(t *testing.T) {
	const size = `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:requests":{"f:cpu":{}}}}}}}`
	const limit = `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:memory":{}}}}}}}`
	a := build.Size(t, "requests: {cpu: 100m, memory: 100Mi}")
	c := build.Size(t, "requests: {cpu: 150m, memory: 100Mi}")
	limited := build.Size(t, "requests: {cpu: 100m, memory: 100Mi}, limits: {memory: 1Gi}")
	tests := []struct {
		name      string
		change    []func(*corev1.Pod)
		changes   string
		obstacles []string
	}{
		{name: "a pod that was never resized has nothing left"},
		{name: "a value that we set for C goes back", change: []func(*corev1.Pod){build.Resized(c), build.Ours(size)}, changes: "app: cpu request 150m→100m"},
		{name: "a value that somebody else set stays", change: []func(*corev1.Pod){build.Resized(c)}},
		{name: "a value that we set and A says is no leftover", change: []func(*corev1.Pod){build.Ours(size)}},
		{name: "a limit that we set for C cannot be removed", change: []func(*corev1.Pod){build.Resized(limited), build.Ours(limit)}, obstacles: []string{"app: the memory limit is removed"}},
		{name: "nor can a limit of the pod's own", change: []func(*corev1.Pod){podLimit, build.Ours(ourPodLimit)}, obstacles: []string{"pod: the cpu limit is removed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			left := must.Get(resize.Leftover(build.Pod("web-0", a, tt.change...), a))(t)
			if got := resize.Describe(left.Changes); got != tt.changes || !slices.Equal(left.Obstacles, tt.obstacles) {
				t.Errorf("got %q %q, want %q %q", got, left.Obstacles, tt.changes, tt.obstacles)
			}
		})
	}
	broken := build.Pod("web-0", a, build.Ours("not JSON"))
	if _, err := resize.Leftover(broken, a); err == nil {
		t.Error("broken managedFields give no error")
	}
}

// TestOthers: a target names who else has resized the pod, and reports whether it takes that
// back.
func TestOthers(t *testing.T) {
	const size = `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:requests":{"f:cpu":{}}}}}}}`
	a, c := build.Size(t, "requests: {cpu: 100m, memory: 100Mi}"), build.Size(t, "requests: {cpu: 150m, memory: 100Mi}")
	vpa := build.ResizedBy("updater", build.Start, size)
	resized := build.Pod("web-0", a, build.Resized(c), vpa)
	for _, tt := range []struct {
		name      string
		target    resize.Target
		changes   string
		others    []string
		overrules bool
	}{
		{"on an edit the template wins", must.Get(resize.For(resized, a, a))(t), "app: cpu request 150m→100m", []string{"updater"}, true},
		{"but for who sets it again and again", must.Get(resize.ForBut(resized, a, a))(t), "", []string{"updater"}, false},
		{"between edits it stays", must.Get(resize.Leftover(resized, a))(t), "", []string{"updater"}, false},
		{"not in the rollout that was under way", must.Get(resize.SizedSince(resized, a, a, build.Start))(t), "app: cpu request 150m→100m", []string{"updater"}, true},
		{"what was set before that stays", must.Get(resize.SizedSince(resized, a, a, build.Start.Add(time.Second)))(t), "", []string{"updater"}, false},
		{"what the pod was given at its birth stays", must.Get(resize.SizedSince(build.Pod("web-0", c), a, a, build.Start))(t), "", nil, false},
		{"another value that we set is ours", must.Get(resize.Leftover(build.Pod("web-0", a, build.Resized(c), vpa, build.Ours(size)), a))(t), "app: cpu request 150m→100m", nil, false},
		{"who sets what the template says is named", must.Get(resize.For(build.Pod("web-0", a, vpa), a, a))(t), "", []string{"updater"}, false},
	} {
		if got := resize.Describe(tt.target.Changes); got != tt.changes || !slices.Equal(tt.target.Others, tt.others) || tt.target.Overrules != tt.overrules {
			t.Errorf("%s: got %q, others %q, overrules %t; want %q, %q, %t", tt.name, got, tt.target.Others, tt.target.Overrules, tt.changes, tt.others, tt.overrules)
		}
	}
}

// TestSized: a pod is of template a, and its node's class has another cpu and a limit.
func TestSized(t *testing.T) {
	const request = `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:requests":{"f:cpu":{}}}}}}}`
	const memory = `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:requests":{"f:memory":{}}}}}}}`
	a := build.Size(t, "requests: {cpu: 100m, memory: 100Mi}")
	class := build.Size(t, "requests: {cpu: 500m, memory: 100Mi}, limits: {cpu: 1}")
	other := build.Size(t, "requests: {cpu: 200m, memory: 200Mi}")
	vpa := func(fields string) func(*corev1.Pod) { return build.ResizedBy("updater", build.Start, fields) }
	for _, tt := range []struct {
		name         string
		change       []func(*corev1.Pod)
		sized, since string
	}{
		{"a pod as it was born", nil, "app: cpu request 100m→500m, app: cpu limit none→1", ""},
		{"it has the size", []func(*corev1.Pod){build.Resized(class), build.Ours(request)}, "", ""},
		{"it has the size of another class", []func(*corev1.Pod){build.Resized(other), build.Ours(request)}, "app: cpu request 200m→500m, app: cpu limit none→1", ""},
		{"an autoscaler has set what the class says", []func(*corev1.Pod){build.Resized(other), vpa(request)}, "app: cpu limit none→1", "app: cpu request 200m→500m, app: cpu limit none→1"},
		{"an autoscaler has set something else", []func(*corev1.Pod){build.Resized(other), vpa(memory)}, "app: cpu request 200m→500m, app: cpu limit none→1",
			"app: cpu request 200m→500m, app: cpu limit none→1, app: memory request 200Mi→100Mi"},
		{"a webhook has set what only the template says", []func(*corev1.Pod){build.WithSize(build.Size(t, "requests: {cpu: 500m, memory: 200Mi}, limits: {cpu: 1}"))}, "", ""},
	} {
		pod := build.Pod("web-0", a, tt.change...)
		target := must.Get(resize.Sized(pod, a, class))(t)
		must.Equal(t, resize.Describe(target.Changes), tt.sized, "%s", tt.name)
		target = must.Get(resize.SizedSince(pod, a, class, build.Start))(t)
		must.Equal(t, resize.Describe(target.Changes), cmp.Or(tt.since, tt.sized), "%s, since the edit", tt.name)
	}
	guaranteed := build.Size(t, "requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}")
	for _, tt := range []struct{ name, born, class, want string }{
		{"admission decides about the QoS class: its requests stay", "{cpu: 250m, memory: 256Mi}", "{cpu: 2, memory: 2Gi}", "app: cpu limit 1→2, app: memory limit 1Gi→2Gi"},
		{"one of them would change it", "{cpu: 250m, memory: 1Gi}", "{cpu: 2, memory: 1Gi}", "app: cpu limit 1→2"},
		{"one would be above the limit", "{cpu: 250m, memory: 256Mi}", "{cpu: 200m, memory: 1Gi}", "app: cpu request 250m→200m, app: cpu limit 1→200m"},
	} {
		born := build.WithSize(build.Size(t, "requests: "+tt.born+", limits: {cpu: 1, memory: 1Gi}"))
		target, err := resize.Sized(build.Pod("web-0", guaranteed, born, burstable), guaranteed, build.Size(t, "requests: "+tt.class+", limits: "+tt.class))
		must.Do(t, err)
		must.Equal(t, resize.Describe(target.Changes), tt.want, "%s", tt.name)
		must.EqualLists(t, target.Obstacles, nil, "%s: obstacles", tt.name)
	}
	pods := build.Template(t, "{resources: {requests: {cpu: 100m}}, containers: [{name: app, resources: {requests: {cpu: 100m, memory: 1Gi}}}, {name: log}]}")
	sized := pods.DeepCopy()
	sized.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("2Gi")
	target := must.Get(resize.Sized(build.Pod("web-0", pods), pods, sized))(t)
	must.Equal(t, resize.Describe(target.Changes), "pod: memory request 1Gi→2Gi, app: memory request 1Gi→2Gi", "what the pod as a whole has follows")
}

// TestForKeeping: an edit from a to b, of a pod whose node's class has another cpu and a limit.
func TestForKeeping(t *testing.T) {
	const size = `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:requests":{"f:cpu":{}},"f:limits":{"f:cpu":{}}}}}}}`
	a, b := build.Size(t, "requests: {cpu: 100m, memory: 100Mi}"), build.Size(t, "requests: {cpu: 150m, memory: 100Mi}")
	more := build.Size(t, "requests: {cpu: 150m, memory: 200Mi}")
	class := func(template *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
		template = template.DeepCopy()
		template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("500m")
		template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		return template
	}
	has := func(template *corev1.PodTemplateSpec) []func(*corev1.Pod) {
		return []func(*corev1.Pod){build.Resized(template), build.Ours(size)}
	}
	for _, tt := range []struct {
		name    string
		change  []func(*corev1.Pod)
		to      *corev1.PodTemplateSpec
		left    bool // by a class that its node had before
		changes string
	}{
		{"a pod with the size of the class is only to be relabelled", has(class(a)), b, false, ""},
		{"but for what the class does not name", has(class(a)), more, false, "app: memory request 100Mi→200Mi"},
		{"a pod that lacks the size of the class gets the template's", nil, b, false, "app: cpu request 100m→150m"},
		{"one that was resized to the older template does, too", has(a), b, false, "app: cpu request 100m→150m"},
		{"what somebody else has set is the template's again", []func(*corev1.Pod){build.Resized(class(a)), build.ResizedBy("updater", build.Start, size)}, b, false, "app: cpu request 500m→150m"},
		{"what a former class has left stays", has(class(a)), more, true, "app: memory request 100Mi→200Mi"},
		{"what we have set to the older template's does not", has(a), more, true, "app: cpu request 100m→150m, app: memory request 100Mi→200Mi"},
		{"nor does what somebody else has set", []func(*corev1.Pod){build.Resized(class(a)), build.ResizedBy("updater", build.Start, size)}, b, true, "app: cpu request 500m→150m"},
	} {
		sized := class(tt.to)
		if tt.left {
			sized = tt.to
		}
		target, err := resize.ForKeeping(build.Pod("web-0", a, tt.change...), a, tt.to, sized, func(_ resize.Change, otherwise bool) bool { return otherwise || tt.left })
		if got := resize.Describe(target.Changes); got != tt.changes || len(target.Obstacles) > 0 || err != nil {
			t.Errorf("%s: got %s, %q, error %v, want %s", tt.name, got, target.Obstacles, err, tt.changes)
		}
	}
}

// TestMissed: admission has changed, on its way, what was asked for.
func TestMissed(t *testing.T) {
	a, b := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m, memory: 1Gi}")
	target := must.Get(resize.For(build.Pod("web-0", a), a, b))(t)
	must.Equal(t, resize.Describe(target.Missed(build.Pod("web-0", b))), "", "missed in a pod that has the size")
	pod := build.Pod("web-0", build.Size(t, "requests: {cpu: 200m, memory: 1Gi}"))
	must.Equal(t, resize.Describe(target.Missed(pod)), "app: cpu request 200m→150m", "what it missed")
}

// TestBeside: admission has changed what was not asked for. That is owed to the pod until it is asked for, or has it, or the template says
// another value.
func TestBeside(t *testing.T) {
	size := func(cpu, memory string) *corev1.PodTemplateSpec {
		return build.Template(t, "{resources: {limits: {memory: "+memory+"}}, containers: [{name: app, resources: {requests: {cpu: "+cpu+", memory: "+memory+"}}}, {name: log}]}")
	}
	a, b := size("100m", "1Gi"), size("150m", "1Gi")
	target := must.Get(resize.For(build.Pod("web-0", a), a, b))(t)
	changed := size("150m", "2Gi")
	changed.Spec.Containers[1].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")} // which nobody says
	beside := target.Beside(build.Pod("web-0", changed))
	const want = "pod: memory limit 2Gi→1Gi, app: memory request 2Gi→1Gi"
	must.Equal(t, resize.Describe(beside), want, "what has changed beside it")
	for _, tt := range []struct {
		name      string
		has, says *corev1.PodTemplateSpec
		want      string
	}{
		{"it is so still", changed, b, want},
		{"somebody has put it right", b, b, ""},
		{"another edit", changed, size("150m", "3Gi"), "pod: memory request 2Gi→3Gi, pod: memory limit 2Gi→3Gi, app: memory request 2Gi→3Gi"},
		{"an edit to what it has", changed, size("150m", "2Gi"), ""},
	} {
		pod := build.Pod("web-0", tt.has)
		owed := must.Get(resize.For(pod, b, tt.says))(t).Owing(beside)
		must.Equal(t, resize.Describe(owed.Changes), tt.want, "%s: what it owes", tt.name)
	}
	pod := build.Pod("web-0", changed)
	pod.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	must.Equal(t, resize.Describe(must.Get(resize.For(pod, b, b))(t).Owing(beside).Changes), "pod: memory limit 2Gi→1Gi", "owed beside a restart")
}

// TestMissedPodLevel: before 1.36 the API server leaves the pod's own resources out of a resize.
func TestMissedPodLevel(t *testing.T) {
	a := build.Template(t, "containers: [{name: app, resources: {requests: {cpu: 100m}}}]")
	b := build.Template(t, "{resources: {limits: {cpu: 1}}, containers: [{name: app, resources: {requests: {cpu: 150m}}}]}")
	target := must.Get(resize.For(build.Pod("web-0", a), a, b))(t)
	left := build.Template(t, "containers: [{name: app, resources: {requests: {cpu: 150m}}}]")
	must.Equal(t, resize.Describe(target.Missed(build.Pod("web-0", left))), "pod: cpu limit none→1", "what it missed")
}

func TestBetween(t *testing.T) {
	a := build.Template(t, "containers: [{name: app, resources: {requests: {cpu: 100m}}}, {name: log}]")
	b := build.Template(t, "containers: [{name: app, resources: {requests: {cpu: 150m}, limits: {memory: 1Gi}}}, {name: log}]")
	must.Equal(t, resize.Describe(resize.Between(a, b)), "app: cpu request 100m→150m, app: memory limit none→1Gi", "there")
	must.Equal(t, resize.Describe(resize.Between(b, a)), "app: cpu request 150m→100m, app: memory limit 1Gi→none", "and back")
	if got := resize.Between(a, a); got != nil {
		t.Errorf("a template differs from itself: %s", resize.Describe(got))
	}
}
