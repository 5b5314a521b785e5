package policy_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// template parses the fields of a pod's spec in YAML flow style.
func template(t *testing.T, fields string) *corev1.PodTemplateSpec {
	t.Helper()
	return build.Template(t, "{"+fields+"}")
}

func TestResolve(t *testing.T) {
	const (
		app      = "containers: [{name: app, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 2Gi}}}]"
		cpuUp    = "containers: [{name: app, resources: {requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 2Gi}}}]"
		memUp    = "containers: [{name: app, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 3Gi}}}]"
		memDown  = "containers: [{name: app, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}}]"
		memBoth  = "containers: [{name: app, resources: {requests: {cpu: 1, memory: 1536Mi}, limits: {cpu: 2, memory: 1536Mi}}}]"
		bothUp   = "containers: [{name: app, resources: {requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 3Gi}}}]"
		none     = "containers: [{name: app}]"
		request  = "containers: [{name: app, resources: {requests: {memory: 1Gi}}}]"
		limit    = "containers: [{name: app, resources: {limits: {memory: 1Gi}}}]"
		pod      = "resources: {requests: {memory: 1Gi}}, " + app
		podUp    = "resources: {requests: {memory: 2Gi}}, " + app
		two      = "initContainers: [{name: sidecar, resources: {requests: {cpu: 1}}}], containers: [{name: app, resources: {requests: {cpu: 1}}}]"
		twoUp    = "initContainers: [{name: sidecar, resources: {requests: {cpu: 2}}}], containers: [{name: app, resources: {requests: {cpu: 2}}}]"
		stays    = "containers: [{name: app, resizePolicy: [{resourceName: memory, restartPolicy: NotRequired}], resources: {requests: {memory: 1Gi}}}]"
		staysUp  = "containers: [{name: app, resizePolicy: [{resourceName: memory, restartPolicy: NotRequired}], resources: {requests: {memory: 2Gi}}}]"
		again    = "containers: [{name: app, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}], resources: {requests: {memory: 1Gi}}}]"
		againUp  = "containers: [{name: app, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}], resources: {requests: {memory: 2Gi}}}]"
		other    = "containers: [{name: app, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}], resources: {requests: {memory: 1Gi}}}]"
		otherUp  = "containers: [{name: app, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}], resources: {requests: {memory: 2Gi}}}]"
		sideInit = "initContainers: [{name: side, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}], resources: {requests: {cpu: 1}}}]"
		sideUp   = "initContainers: [{name: side, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}], resources: {requests: {cpu: 2}}}]"
		mixed    = sideInit + ", containers: [{name: app, resources: {requests: {cpu: 1}}}]"
		mixedUp  = sideUp + ", containers: [{name: app, resources: {requests: {cpu: 2}}}]"
	)
	for _, test := range []struct {
		name       string
		annotation string
		from, to   string
		byDefault  policy.Policy // LiveResizeable if empty
		want       string        // what decided for RestartOnly; empty for LiveResizeable
	}{
		// The proposal's first example.
		{name: "only changed resources count", annotation: "cpu=LiveResizeable, memory=RestartOnly", from: app, to: cpuUp},
		{name: "RestartOnly dominates", annotation: "cpu=LiveResizeable, memory=RestartOnly", from: app, to: bothUp, want: "memory of app: RestartOnly (annotation memory)"},
		{name: "all that say RestartOnly are named", annotation: "cpu=RestartOnly, memory=RestartOnly", from: app, to: bothUp,
			want: "cpu of app: RestartOnly (annotation cpu), memory of app: RestartOnly (annotation memory)"},
		{name: "request and limit are named once", annotation: "memory=RestartOnly", from: app, to: memBoth, want: "memory of app: RestartOnly (annotation memory)"},
		{name: "no change", annotation: "cpu=RestartOnly", from: app, to: app},

		// Every pair of precedence, both ways round.
		{name: "container and direction before container: restart", annotation: "app/memory:increase=RestartOnly, app/memory=LiveResizeable", from: app, to: memUp, want: "memory of app: RestartOnly (annotation app/memory:increase)"},
		{name: "container and direction before container: live", annotation: "app/memory:increase=LiveResizeable, app/memory=RestartOnly", from: app, to: memUp},
		{name: "container and direction before direction: restart", annotation: "app/memory:increase=RestartOnly, memory:increase=LiveResizeable", from: app, to: memUp, want: "memory of app: RestartOnly (annotation app/memory:increase)"},
		{name: "container and direction before direction: live", annotation: "app/memory:increase=LiveResizeable, memory:increase=RestartOnly", from: app, to: memUp},
		{name: "container and direction before resource: restart", annotation: "app/memory:increase=RestartOnly, memory=LiveResizeable", from: app, to: memUp, want: "memory of app: RestartOnly (annotation app/memory:increase)"},
		{name: "container and direction before resource: live", annotation: "app/memory:increase=LiveResizeable, memory=RestartOnly", from: app, to: memUp},
		{name: "container before direction: restart", annotation: "app/memory=RestartOnly, memory:increase=LiveResizeable", from: app, to: memUp, want: "memory of app: RestartOnly (annotation app/memory)"},
		{name: "container before direction: live", annotation: "app/memory=LiveResizeable, memory:increase=RestartOnly", from: app, to: memUp},
		{name: "container before resource: restart", annotation: "app/memory=RestartOnly, memory=LiveResizeable", from: app, to: memUp, want: "memory of app: RestartOnly (annotation app/memory)"},
		{name: "container before resource: live", annotation: "app/memory=LiveResizeable, memory=RestartOnly", from: app, to: memUp},
		{name: "direction before resource: restart", annotation: "memory:increase=RestartOnly, memory=LiveResizeable", from: app, to: memUp, want: "memory of app: RestartOnly (annotation memory:increase)"},
		{name: "direction before resource: live", annotation: "memory:increase=LiveResizeable, memory=RestartOnly", from: app, to: memUp},
		{name: "the order of the entries does not count", annotation: "memory=LiveResizeable, app/memory=RestartOnly", from: app, to: memUp, want: "memory of app: RestartOnly (annotation app/memory)"},
		{name: "another container's entry says nothing", annotation: "side/memory=RestartOnly", from: app, to: memUp},
		{name: "another resource's entry says nothing", annotation: "app/cpu=RestartOnly", from: app, to: memUp},

		// Directions.
		{name: "an increase is no decrease", annotation: "memory:decrease=RestartOnly", from: app, to: memUp},
		{name: "a decrease is no increase", annotation: "memory:increase=RestartOnly", from: app, to: memDown},
		{name: "a decrease", annotation: "app/memory:decrease=RestartOnly", from: app, to: memDown, want: "memory of app: RestartOnly (annotation app/memory:decrease)"},
		{name: "both directions: the decrease of the limit counts", annotation: "memory:decrease=RestartOnly, memory:increase=LiveResizeable", from: app, to: memBoth, want: "memory of app: RestartOnly (annotation memory:decrease)"},
		{name: "both directions: the increase of the request counts", annotation: "memory:increase=RestartOnly, memory:decrease=LiveResizeable", from: app, to: memBoth, want: "memory of app: RestartOnly (annotation memory:increase)"},
		{name: "both directions, both live", annotation: "memory:increase=LiveResizeable, memory:decrease=LiveResizeable, memory=RestartOnly", from: app, to: memBoth},
		{name: "a request that appears is an increase", annotation: "memory:increase=RestartOnly", from: none, to: request, want: "memory of app: RestartOnly (annotation memory:increase)"},
		{name: "a request that goes is a decrease", annotation: "memory:decrease=RestartOnly", from: request, to: none, want: "memory of app: RestartOnly (annotation memory:decrease)"},
		{name: "a limit that appears is a decrease", annotation: "memory:decrease=RestartOnly", from: none, to: limit, want: "memory of app: RestartOnly (annotation memory:decrease)"},
		{name: "a limit that goes is an increase", annotation: "memory:increase=RestartOnly", from: limit, to: none, want: "memory of app: RestartOnly (annotation memory:increase)"},
		{name: "a request that appears is no decrease", annotation: "memory:decrease=RestartOnly", from: none, to: request},
		{name: "a request that goes is no increase", annotation: "memory:increase=RestartOnly", from: request, to: none},
		{name: "a limit that appears is no increase", annotation: "memory:increase=RestartOnly", from: none, to: limit},
		{name: "a limit that goes is no decrease", annotation: "memory:decrease=RestartOnly", from: limit, to: none},

		// Where the annotation says nothing.
		{name: "the default", from: app, to: memUp, byDefault: policy.RestartOnly, want: "memory of app: RestartOnly (default)"},
		{name: "the default, live", from: app, to: memUp},
		{name: "the annotation before the default", annotation: "memory=LiveResizeable", from: app, to: memUp, byDefault: policy.RestartOnly},
		{name: "the annotation says it of one direction only", annotation: "memory:decrease=LiveResizeable", from: app, to: memBoth, byDefault: policy.RestartOnly, want: "memory of app: RestartOnly (default)"},
		{name: "NotRequired before the default", from: stays, to: staysUp, byDefault: policy.RestartOnly},
		{name: "RestartContainer before the default: the kubelet restarts that container, in place", from: again, to: againUp, byDefault: policy.RestartOnly},
		{name: "the resizePolicy of another resource says nothing", from: other, to: otherUp, byDefault: policy.RestartOnly, want: "memory of app: RestartOnly (default)"},
		{name: "the resizePolicy of another container says nothing", from: mixed, to: mixedUp, byDefault: policy.RestartOnly, want: "cpu of app: RestartOnly (default)"},
		{name: "the resizePolicy of an init container", from: sideInit, to: sideUp, byDefault: policy.RestartOnly},
		{name: "the annotation before NotRequired", annotation: "memory=RestartOnly", from: stays, to: staysUp, want: "memory of app: RestartOnly (annotation memory)"},
		{name: "the annotation before RestartContainer", annotation: "memory=RestartOnly", from: again, to: againUp, want: "memory of app: RestartOnly (annotation memory)"},

		// Several containers, and the pod's own resources.
		{name: "one container that must restart is enough", annotation: "sidecar/cpu=RestartOnly", from: two, to: twoUp, want: "cpu of sidecar: RestartOnly (annotation sidecar/cpu)"},
		{name: "an exception for one container does not help the other", annotation: "cpu=RestartOnly, sidecar/cpu=LiveResizeable", from: two, to: twoUp, want: "cpu of app: RestartOnly (annotation cpu)"},
		{name: "an entry without a container is for the pod's own resources too", annotation: "memory:increase=RestartOnly", from: pod, to: podUp, want: "memory of the pod: RestartOnly (annotation memory:increase)"},
		{name: "a container's entry is not for the pod's own resources", annotation: "app/memory=RestartOnly", from: pod, to: podUp},
		{name: "the default for the pod's own resources", from: pod, to: podUp, byDefault: policy.RestartOnly, want: "memory of the pod: RestartOnly (default)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			settings := must.Get(policy.Parse(test.annotation, ""))(t)
			from, to := template(t, test.from), template(t, test.to)
			if test.byDefault == "" {
				test.byDefault = policy.LiveResizeable
			}
			got, why := settings.Resolve(resize.Between(from, to), to, test.byDefault)
			want := policy.RestartOnly
			if test.want == "" {
				want = policy.LiveResizeable
			}
			if got != want || why != test.want {
				t.Errorf("%s: %q, want %s: %q", got, why, want, test.want)
			}
		})
	}
}

// An edit is RestartOnly exactly if one of its changes alone is, in whatever order they come.
func TestRestartOnlyDominates(t *testing.T) {
	from := template(t, "containers: [{name: a, resources: {requests: {cpu: 2, memory: 2Gi}, limits: {cpu: 3}}}, {name: b, resources: {requests: {cpu: 2}}}]")
	to := template(t, "containers: [{name: a, resources: {requests: {cpu: 1, memory: 3Gi}, limits: {cpu: 4, memory: 4Gi}}}, {name: b, resources: {limits: {cpu: 2}}}]")
	changes := resize.Between(from, to)
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.StringMatching(`((a/|b/)?(cpu|memory)(:increase|:decrease)?=(LiveResizeable|RestartOnly),){0,4}a/cpu=LiveResizeable`).Draw(t, "list")
		byDefault := rapid.SampledFrom([]policy.Policy{policy.LiveResizeable, policy.RestartOnly}).Draw(t, "default")
		settings, err := policy.Parse(list, "")
		if err != nil {
			t.Skip(err) // contradicts itself
		}
		want := policy.LiveResizeable
		for _, c := range changes {
			if alone, _ := settings.Resolve([]resize.Change{c}, to, byDefault); alone == policy.RestartOnly {
				want = policy.RestartOnly
			}
		}
		shuffled := slices.Clone(changes)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)).Shuffle(len(shuffled), func(i, j int) {
			shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
		})
		if got, why := settings.Resolve(shuffled, to, byDefault); got != want || (why == "") != (got == policy.LiveResizeable) {
			t.Errorf("%q: %s (%s), want %s", list, got, why, want)
		}
	})
}

// TestInForce: deploy/cluster/hold.yaml writes down what is in force.
func TestInForce(t *testing.T) {
	type says = map[string]string
	const in = api.InForceAnnotation
	for _, tt := range []struct {
		annotations                     says
		action, list, canary, onFailure string
	}{
		{},
		{annotations: says{api.ResizeActionAnnotation: "LiveResize", api.ResizePolicyAnnotation: "cpu=RestartOnly", api.CanaryAnnotation: "1"}, action: "LiveResize", list: "cpu=RestartOnly", canary: "1"},
		{annotations: says{api.ResizeActionAnnotation: "LiveResize", api.CanaryAnnotation: "1", in: ";;;;;"}},
		{annotations: says{in: "Restart;memory=RestartOnly;2;10m;Revert;a, b"}, action: "Restart", list: "memory=RestartOnly", canary: "2", onFailure: "Revert"},
		{annotations: says{api.CanaryAnnotation: "1", in: "Restart;memory=RestartOnly"}, action: "Restart", list: "memory=RestartOnly", canary: "1"}, // a former version
		{annotations: says{api.ResizeActionAnnotation: "LiveResize", in: "Restart;;1"}, action: "LiveResize"},
	} {
		edited := policy.AnnotationsInForce(tt.annotations)
		if action, list := policy.ActionInForce(tt.annotations); action != tt.action || list != tt.list || edited[api.CanaryAnnotation] != tt.canary || edited[api.OnFailureAnnotation] != tt.onFailure {
			t.Errorf("of %v, %v is in force, want %+v", tt.annotations, edited, tt)
		}
		settings, err := policy.InForce(tt.annotations)
		if is := settings.Guard != nil && settings.Guard.Revert; err != nil || string(settings.Action) != tt.action || (settings.Guard != nil) != (tt.canary != "") || is != (tt.onFailure == "Revert") {
			t.Errorf("of %v, %+v is in force, want %+v: %v", tt.annotations, settings, tt, err)
		}
	}
	if settings, err := policy.InForce(says{api.CanaryAnnotation: "2", in: ";;none;;;"}); err != nil || settings.Guard.Canaries(3) != 2 {
		t.Errorf("a value that cannot be read, and so what is said now: %+v, %v", settings.Guard, err)
	}
}
