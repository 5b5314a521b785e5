package estimator

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// sized is a pod that an estimate has given 100m of cpu and 64Mi, and that has them still.
func sized(t *testing.T, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	p := build.Pod("web", build.Template(t, "containers: [{name: app, image: 'nginx:1.25', resources: {requests: {cpu: 100m, memory: 64Mi}}}]"))
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, api.EstimateAnnotation,
		`{"app":{"cpu":{"request":"100m","from":"image","window":"30d","extra":1},"memory":{"request":"64Mi"}}}`)
	for _, f := range change {
		f(p)
	}
	return p
}

// resizedBy notes that a field manager has set the cpu through the resize subresource.
func resizedBy(manager string, at time.Time, cpu string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		list := p.Spec.Containers[0].Resources.Requests
		list[corev1.ResourceCPU] = *parsedQuantity(cpu)
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "resize", Time: &metav1.Time{Time: at},
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:requests":{"f:cpu":{}}}}}}}`),
		})
	}
}

func annotate(text string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[api.EstimateAnnotation] = text }
}

// estimates are a table that says so of nginx:1.25.
func estimates(cpu, memory string) map[string]string {
	table := map[string]string{}
	for resource, value := range map[string]string{"cpu": cpu, "memory": memory} {
		if value != "" {
			table[nginx+"_-1.25."+resource] = fmt.Sprintf(`%s {"request":%q,"from":"image:tag","window":"7d","percentile":90,"samples":80,"scope":"namespace"}`, value, value)
		}
	}
	return table
}

func TestSize(t *testing.T) {
	template := func(spec string) []*corev1.PodTemplateSpec {
		return []*corev1.PodTemplateSpec{build.Template(t, "containers: [{name: app}]"), build.Template(t, spec)}
	}
	with := func(change func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.Spec.Containers[0]) }
	}
	limit := func(cpu string) func(*corev1.Pod) {
		return with(func(c *corev1.Container) {
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: *parsedQuantity(cpu)}
		})
	}
	roomy := capacity.Load{MilliCPU: 1000, Memory: 1 << 30}
	yesterday, today := now.Add(-25*time.Hour), now.Add(-23*time.Hour)
	const grown = "app: cpu request 100m→150m, app: memory request 64Mi→128Mi"
	for _, tt := range []struct {
		name   string
		pod    *corev1.Pod
		change func(*circumstances)
		want   string // changes
	}{
		{name: "both have grown", pod: sized(t), want: grown},
		{name: "both have shrunk", pod: sized(t), change: func(c *circumstances) { c.table = estimates("50m", "32Mi") }, want: "app: cpu request 100m→50m, app: memory request 64Mi→32Mi"},
		{name: "by just enough", pod: sized(t), change: func(c *circumstances) { c.table = estimates("110m", "64Mi") }, want: "app: cpu request 100m→110m"},
		{name: "by too little", pod: sized(t), change: func(c *circumstances) { c.table = estimates("109m", "70Mi") }},
		{name: "any change is enough", pod: sized(t), change: func(c *circumstances) { c.table, c.Threshold = estimates("101m", "64Mi"), 0 }, want: "app: cpu request 100m→101m"},
		{name: "nothing is known any more", pod: sized(t), change: func(c *circumstances) { c.table = nil }},
		{name: "only the image is known", pod: sized(t), change: func(c *circumstances) {
			c.table = map[string]string{nginx + ".cpu": estimates("150m", "")[nginx+"_-1.25.cpu"]}
		}, want: "app: cpu request 100m→150m"},
		{name: "in another role", pod: sized(t), change: func(c *circumstances) { c.roles = true }},
		{name: "no new pod would get any", pod: sized(t), change: func(c *circumstances) { c.enabled = false }},
		{name: "the template states the cpu", pod: sized(t), change: func(c *circumstances) {
			c.templates = template("containers: [{name: app, resources: {requests: {cpu: 100m}}}]")
		}, want: "app: memory request 64Mi→128Mi"},
		{name: "the template states limits", pod: sized(t), change: func(c *circumstances) {
			c.templates = template("containers: [{name: app, resources: {limits: {cpu: 1, memory: 1Gi}}}]")
		}},
		{name: "it states that of another container", pod: sized(t), change: func(c *circumstances) {
			c.templates = template("containers: [{name: app}, {name: other, resources: {limits: {cpu: 1}}}]")
		}, want: grown},
		{name: "somebody else has resized it", pod: sized(t, resizedBy("vpa", yesterday, "120m")), want: "app: memory request 64Mi→128Mi"},
		{name: "and back again", pod: sized(t, resizedBy("vpa", yesterday, "100m")), want: "app: memory request 64Mi→128Mi"},
		{name: "it was never set", pod: sized(t, annotate(`{"app":{"cpu":{"request":"100m","skipped":"annotate"}}}`))},
		{name: "of a container that is not there", pod: sized(t, annotate(`{"gone":{"cpu":{"request":"100m"}}}`))},
		{name: "it was resized today", pod: sized(t, annotate(`{"app":{"cpu":{"request":"100m","resized":"`+today.Format(time.RFC3339)+`"},"memory":{"request":"64Mi"}}}`))},
		{name: "it was resized yesterday", pod: sized(t, annotate(`{"app":{"cpu":{"request":"100m","resized":"`+yesterday.Format(time.RFC3339)+`"}}}`)), want: "app: cpu request 100m→150m"},
		{name: "within its limit", pod: sized(t, limit("120m")), want: "app: cpu request 100m→120m, app: memory request 64Mi→128Mi"},
		{name: "the node has no cpu left", pod: sized(t), change: func(c *circumstances) { c.left.MilliCPU = 49 }, want: "app: memory request 64Mi→128Mi"},
		{name: "it has just enough", pod: sized(t), change: func(c *circumstances) { c.left = capacity.Load{MilliCPU: 50, Memory: 64 << 20} }, want: grown},
		{name: "what shrinks needs no room", pod: sized(t), change: func(c *circumstances) { c.table, c.left = estimates("50m", ""), capacity.Load{MilliCPU: -5} }, want: "app: cpu request 100m→50m"},
		{name: "a quota has no memory left", pod: sized(t), change: func(c *circumstances) { c.table["quota.memory"] = "63Mi" }, want: "app: cpu request 100m→150m"},
		{name: "other pods were given it", pod: sized(t), change: func(c *circumstances) {
			c.table["quota.cpu"], c.table["quota.memory"], c.given = "100m", "100Mi", capacity.Load{MilliCPU: 50, Memory: 50 << 20}
		}, want: "app: cpu request 100m→150m"},
		{name: "a resize is under way", pod: sized(t, func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue})
		})},
		{name: "it is about to go", pod: sized(t, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} })},
		{name: "it is over", pod: sized(t, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })},
		{name: "it waits for a node", pod: sized(t, func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending })},
		{name: "it would be restarted", pod: sized(t, with(func(c *corev1.Container) {
			c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
		}))},
		{name: "its QoS class would change", pod: sized(t, with(func(c *corev1.Container) {
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: *parsedQuantity("100m"), corev1.ResourceMemory: *parsedQuantity("64Mi")}
		}), func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed }), change: func(c *circumstances) { c.table = estimates("50m", "") }},
		{name: "an init container that ends", pod: sized(t, func(p *corev1.Pod) {
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, []corev1.Container{{Name: "other"}}
		})},
		{name: "the image cannot be read", pod: sized(t, with(func(c *corev1.Container) { c.Image = "?" }))},
	} {
		c := circumstances{
			Afterwards: Afterwards{Interval: 24 * time.Hour, Threshold: 10}, pod: tt.pod, said: readAnnotation(tt.pod), enabled: true,
			table: estimates("150m", "128Mi"), left: roomy, now: now,
		}
		if tt.change != nil {
			tt.change(&c)
		}
		s, err := c.size()
		if got := resize.Describe(s.target.Changes); err != nil || got != tt.want || len(s.done) > 0 {
			t.Errorf("%s: got %q, want %q; %v, %v", tt.name, got, tt.want, s.done, err)
		}
	}
}

// TestSizeUnnoted finds what it has done before it died: the pod has another size than its
// annotation says, and we have set it.
func TestSizeUnnoted(t *testing.T) {
	at := now.Add(-48 * time.Hour)
	p := sized(t, resizedBy(api.EstimatorFieldManager, at, "150m"))
	c := circumstances{
		Afterwards: Afterwards{Interval: 24 * time.Hour, Threshold: 10}, pod: p, said: readAnnotation(p), enabled: true,
		table: estimates("300m", "128Mi"), left: capacity.Load{MilliCPU: 1000, Memory: 1 << 30}, now: now,
	}
	s, err := c.size()
	if err != nil || len(s.target.Changes) > 0 || len(s.done) != 1 || !s.at.Equal(at) {
		t.Fatalf("it plans %+v, %v", s, err)
	}
	text := must.Get(annotated(p, s, s.at))(t)
	annotate(text)(p)
	// It says the rest as before.
	var got, want any
	for text, into := range map[string]*any{
		text: &got,
		`{"app":{"cpu":{"request":"150m","was":"100m","resized":"2026-03-29T12:00:00Z","from":"image","window":"30d","extra":1},"memory":{"request":"64Mi"}}}`: &want,
	} {
		must.Do(t, json.Unmarshal([]byte(text), into))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the annotation is %v, want %v", got, want)
	}
	c.said = readAnnotation(p)
	if s, err = c.size(); err != nil || resize.Describe(s.target.Changes) != "app: cpu request 150m→300m, app: memory request 64Mi→128Mi" {
		t.Errorf("then it plans %+v, %v", s, err)
	}
	text = must.Get(annotated(p, s, now))(t)
	annotate(text)(p)
	if said := readAnnotation(p)["app"][corev1.ResourceCPU]; said.Request.String() != "300m" || said.Samples != 80 || !said.Resized.Equal(now) {
		t.Errorf("in the end it says %s", text)
	}
}
