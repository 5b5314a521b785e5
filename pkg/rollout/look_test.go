package rollout

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// anywhere has room for everything, and its kubelets do everything.
type anywhere struct{ _ byte } // of a size, so that no two are the same

func (*anywhere) Node(string) *corev1.Node                         { return nil }
func (*anywhere) Kubelet(*corev1.Pod, time.Time) resize.Kubelet    { return resize.Kubelet{} }
func (*anywhere) Lost(*corev1.Pod) string                          { return "" }
func (*anywhere) Drained(*corev1.Pod) bool                         { return false }
func (*anywhere) Unsupported(judge.Place) judge.Refusal            { return judge.Refusal{} }
func (*anywhere) Barred(judge.Place) string                        { return "" }
func (*anywhere) Unplaceable(judge.Place, time.Time) judge.Refusal { return judge.Refusal{} }
func (*anywhere) TooLarge(*corev1.PodTemplateSpec) string          { return "" }
func (*anywhere) Filled(*corev1.PodTemplateSpec) *corev1.PodSpec   { return nil }

// A version of a pod is looked at again when anything changes that the look depends on, and only
// then.
func TestVerdictCache(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(pod *corev1.Pod, f *Facts, b *Basis)
		looks  int // at two pods, of which the change is about one or both
	}{
		{"nothing", func(*corev1.Pod, *Facts, *Basis) {}, 0},
		{"a copy of the same version", func(pod *corev1.Pod, _ *Facts, _ *Basis) { *pod = *pod.DeepCopy() }, 0},
		{"time passes", func(_ *corev1.Pod, f *Facts, _ *Basis) { f.Now = f.Now.Add(time.Second) }, 0},
		{"a deadline passes", func(_ *corev1.Pod, f *Facts, _ *Basis) { f.Now = f.Now.Add(time.Hour) }, 1},
		{"the version", func(pod *corev1.Pod, _ *Facts, _ *Basis) { pod.ResourceVersion = "8" }, 1},
		{"a refusal", func(pod *corev1.Pod, f *Facts, _ *Basis) {
			f.Notes.Note(pod.UID).Size = &judge.Refused{Refusal: judge.Refusal{Reason: "quota"}}
		}, 1},
		{"no room", func(pod *corev1.Pod, f *Facts, _ *Basis) {
			f.Notes.Note(pod.UID).Room = &judge.Refused{Refusal: judge.Refusal{Reason: "full"}}
		}, 1},
		{"a contest", func(pod *corev1.Pod, f *Facts, _ *Basis) { f.Notes.Note(pod.UID).Contests++ }, 1},
		{"another sighting was noted", func(pod *corev1.Pod, f *Facts, _ *Basis) { *f.Notes.Note(pod.UID) = judge.PodNote{} }, 1},
		{"the resize is to be asked again", func(_ *corev1.Pod, f *Facts, _ *Basis) { f.Notes.AskAgain() }, 2},
		{"the generation", func(_ *corev1.Pod, _ *Facts, b *Basis) { b.Generation++ }, 2},
		{"an annotation", func(_ *corev1.Pod, _ *Facts, b *Basis) { b.Annotations = map[string]string{"hold": "1"} }, 2},
		{"what else the kind depends on", func(_ *corev1.Pod, _ *Facts, b *Basis) { b.CacheKey = "c" }, 2},
		{"the nodes or the limits", func(_ *corev1.Pod, f *Facts, _ *Basis) { f.Places = &anywhere{} }, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := Facts{
				Notes: &judge.PodNotes{}, Now: build.Start.Add(time.Minute), Cache: &VerdictCache{}, Places: &anywhere{},
			}
			template := build.Size(t, "")
			web0, web1 := build.Pod("web-0", template), build.Pod("web-1", template, func(pod *corev1.Pod) { pod.Status.Conditions[0].LastTransitionTime.Time = build.Start })
			web0.ResourceVersion, web1.ResourceVersion = "7", "7"
			basis := Basis{Generation: 1, Annotations: map[string]string{"hold": "0"}, CacheKey: "b"}
			looks := 0
			at := func() {
				t.Helper()
				look := f.Look(basis, Options{Terms: judge.Terms{Now: f.Now, MinReadySeconds: 600}}, Revision{Name: "b", Template: template}, func(i int, pod *corev1.Pod) (judge.Place, error) {
					looks++
					return judge.Place{Name: pod.Name, Index: i, Pod: pod, Updated: true, Available: pod.Name == "web-0"}, nil
				})
				for i, pod := range []*corev1.Pod{web0, web1} {
					if v, err := look.At(i, pod); err != nil || v.Member.Name != pod.Name || v.Member.Index != i {
						t.Fatalf("of %s, got %+v: %v", pod.Name, v, err)
					}
				}
				f.Cache.Keep(look.Found())
				f.Notes.See(look.Found().Fresh())
			}
			at()
			at()
			if looks != 2 {
				t.Fatalf("looked %d times at two pods", looks)
			}
			tt.change(web0, &f, &basis)
			if at(); looks != 2+tt.looks {
				t.Errorf("looked %d times again, want %d", looks-2, tt.looks)
			}
		})
	}
}

// What is kept of pods that have gone goes, too.
func TestVerdictsOnGonePods(t *testing.T) {
	f := Facts{Notes: &judge.PodNotes{}, Now: build.Start, Cache: &VerdictCache{}, Places: &anywhere{}}
	template := build.Size(t, "")
	for n := range 100 {
		look := f.Look(Basis{CacheKey: "b"}, Options{Terms: judge.Terms{Now: f.Now}}, Revision{Name: "b", Template: template}, func(i int, pod *corev1.Pod) (judge.Place, error) {
			return judge.Place{Name: pod.Name, Index: i, Pod: pod, Updated: true, Available: true}, nil
		})
		pod := build.Pod("web-0", template)
		pod.UID = types.UID(rune('a' + n))
		must.Get(look.At(0, pod))(t)
		f.Cache.Keep(look.Found())
		if kept := len(f.Cache.looks); kept > 4 {
			t.Fatalf("%d looks are kept of one pod", kept)
		}
	}
}

// How kubelets answer a resize from cpu 100m to 150m, with equal limits.
var (
	oldLimit = func(pod *corev1.Pod) { // without CFS quota, or with cri-dockerd
		pod.Status.ContainerStatuses[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("100m")
	}
	otherLimit = func(pod *corev1.Pod) { // with an NRI plugin
		pod.Status.ContainerStatuses[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("180m")
	}
	otherGeneration = func(pod *corev1.Pod) { // a virtual kubelet reports that of another pod
		pod.Generation, pod.Status.ObservedGeneration = 3, 1
	}
	silent = func(pod *corev1.Pod) { // never does anything
		pod.Status.ContainerStatuses[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("100m")
		pod.Status.ContainerStatuses[0].AllocatedResources[corev1.ResourceCPU] = resource.MustParse("100m")
	}
	resizing = func(pod *corev1.Pod) { // and says no more
		silent(pod)
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(build.Start.Add(2 * time.Minute)),
		})
	}
	silentAltogether = func(pod *corev1.Pod) {
		silent(pod)
		pod.Status.ObservedGeneration--
	}
)

// TestAnswers: a kubelet that has allocated a size and does not show it is believed after the error timeout, one that does
// nothing is given up then, and what is known of a node by its other pods need not be waited for again.
func TestAnswers(t *testing.T) {
	limits := func(cpu string) *corev1.PodTemplateSpec { return build.Size(t, "limits: {cpu: "+cpu+"}") }
	older, newer := limits("100m"), limits("150m")
	type pod struct {
		answers func(*corev1.Pod)
		node    string // the same if empty
		asked   time.Duration
	}
	for _, tt := range []struct {
		name   string
		pods   []pod // the last is looked at
		action policy.Action
		lost   time.Duration // until then
		at     time.Duration
		want   policy.Decision
		says   string
		wakes  time.Duration // when it is looked at again; 0 for never
	}{
		{name: "no answer yet", pods: []pod{{answers: oldLimit}}, at: time.Minute, want: policy.Wait, says: "waiting for the kubelet: app: cpu limit 150m is not applied", wakes: 10 * time.Minute},
		{name: "an old limit", pods: []pod{{answers: oldLimit}}, at: 10 * time.Minute, want: policy.MarkUpdated},
		{name: "another limit", pods: []pod{{answers: otherLimit}}, at: 10 * time.Minute, want: policy.MarkUpdated},
		{name: "another generation", pods: []pod{{answers: otherGeneration}}, at: 9 * time.Minute, want: policy.Wait, says: "waiting for the kubelet: generation 3 is not observed", wakes: 10 * time.Minute},
		{name: "another generation, for long", pods: []pod{{answers: otherGeneration}}, at: 10 * time.Minute, want: policy.MarkUpdated},
		{name: "nothing", pods: []pod{{answers: silent}}, at: 9 * time.Minute, want: policy.Wait, says: "waiting for the kubelet: app: cpu request 150m is not allocated", wakes: 10 * time.Minute},
		{name: "nothing for long", pods: []pod{{answers: silent}}, at: 10 * time.Minute, want: policy.RestartByController, says: "restarting: no answer from the kubelet on node node: app: cpu request 150m is not allocated"},
		{name: "nothing at all for long", pods: []pod{{answers: silentAltogether}}, at: 10 * time.Minute, want: policy.RestartByController, says: "restarting: no answer from the kubelet on node node: generation 2 is not observed"},
		{name: "nothing for long, and only a live resize is wanted", pods: []pod{{answers: silent}}, action: policy.LiveResize, at: 10 * time.Minute, want: policy.Leave, says: "no answer from the kubelet on node node: app: cpu request 150m is not allocated; left as it is"},
		{name: "it is under way", pods: []pod{{answers: resizing}}, at: 11 * time.Minute, want: policy.Wait, says: "the kubelet is resizing it", wakes: 12 * time.Minute},
		{name: "it is under way for long", pods: []pod{{answers: resizing}}, at: 12 * time.Minute, want: policy.Wait, says: "not done on node node: the kubelet is resizing it, for more than 10m0s"},
		{name: "while its node is lost, no answer is waited for", pods: []pod{{answers: silent}}, lost: 8 * time.Minute, at: 17 * time.Minute, want: policy.Wait, says: "waiting for the kubelet: app: cpu request 150m is not allocated", wakes: 18 * time.Minute},

		{name: "one pod of the node does not tell that its kubelet never shows it", pods: []pod{{answers: oldLimit}, {answers: oldLimit, asked: 11 * time.Minute}}, at: 12 * time.Minute, want: policy.Wait, says: "waiting for the kubelet: app: cpu limit 150m is not applied", wakes: 21 * time.Minute},
		{name: "two do", pods: []pod{{answers: oldLimit}, {answers: oldLimit}, {answers: oldLimit, asked: 11 * time.Minute}}, at: 12 * time.Minute, want: policy.MarkUpdated},
		{name: "not of another node", pods: []pod{{answers: oldLimit}, {answers: oldLimit}, {answers: oldLimit, node: "b", asked: 11 * time.Minute}}, at: 12 * time.Minute, want: policy.Wait, says: "waiting for the kubelet: app: cpu limit 150m is not applied", wakes: 21 * time.Minute},
		{name: "one pod of the node tells that its kubelet does nothing", pods: []pod{{answers: silent}, {answers: silent, asked: 11 * time.Minute}}, at: 12 * time.Minute, want: policy.RestartByController, says: "restarting: no answer from the kubelet on node node: app: cpu request 150m is not allocated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := Facts{Notes: &judge.PodNotes{}, Defaults: policy.Standard}
			var v *judge.Verdict
			for minute := time.Duration(0); minute <= tt.at; minute += time.Minute {
				f.Now, f.Places = build.Start.Add(minute), &anywhere{}
				if minute < tt.lost {
					f.Places = lost{&anywhere{}}
				}
				for i, p := range tt.pods {
					if minute < p.asked {
						continue
					}
					pod := build.Pod("web-"+string(rune('a'+i)), older, build.Resized(newer), build.ResizedAt(build.Start), p.answers)
					if p.node != "" {
						pod.Spec.NodeName = p.node
					}
					target := must.Get(f.Target(pod, older, newer))(t)
					options := f.Options()
					options.Action = tt.action
					v = f.member(judge.Place{Name: pod.Name, Pod: pod, Available: true, Target: target}, Revision{Name: "b", Template: newer}, nil).Judge(options.Terms)
					f.Notes.See([]*judge.Verdict{v})
				}
			}
			wakes := time.Duration(0)
			if !v.Until.IsZero() {
				wakes = v.Until.Sub(build.Start)
			}
			if v.Decision != tt.want || v.Message != tt.says || wakes != tt.wakes {
				t.Errorf("got %s, %q, until %s, want %s, %q, %s", v.Decision, v.Message, wakes, tt.want, tt.says, tt.wakes)
			}
		})
	}
}

// TestOwing: what admission has changed beside a resize is owed to the pod, but where its workload says RestartOnly.
func TestOwing(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m, memory: 1Gi}"), build.Size(t, "requests: {cpu: 150m, memory: 1Gi}")
	pod := build.Pod("web-0", older, build.Resized(build.Size(t, "requests: {cpu: 150m, memory: 2Gi}")))
	asked := must.Get(resize.For(build.Pod("web-0", older), older, newer))(t)
	for says, want := range map[string]string{"": "app: memory request 2Gi→1Gi", "memory=RestartOnly": "", "cpu=RestartOnly": "app: memory request 2Gi→1Gi"} {
		f := Facts{Notes: &judge.PodNotes{}, Defaults: policy.Standard, Places: &anywhere{}, Now: build.Start}
		f.Settings = must.Get(policy.InForce(map[string]string{api.ResizePolicyAnnotation: says}))(t)
		f.Notes.Note(pod.UID).Beside = asked.Beside(pod)
		must.Equal(t, resize.Describe(must.Get(f.Target(pod, older, newer))(t).Changes), want, "what is owed after %q", says)
	}
}

// TestCanaryChangedByAdmission: a canary that lacks its size, because admission has changed what was asked for, is one all the same: no
// other pod takes its place.
func TestCanaryChangedByAdmission(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m, memory: 1Gi}"), build.Size(t, "requests: {cpu: 150m, memory: 1Gi}")
	canary, other := build.Pod("web-1", build.Size(t, "requests: {cpu: 150m, memory: 2Gi}")), build.Pod("web-0", older)
	for _, taken := range []bool{false, true} {
		notes, verdicts := &judge.PodNotes{}, []*judge.Verdict(nil)
		if taken {
			notes.Note(canary.UID).Request = &judge.Request{}
		}
		for _, pod := range []*corev1.Pod{canary, other} {
			target := must.Get(resize.Whole(pod, older, newer))(t)
			verdicts = append(verdicts, &judge.Verdict{Member: judge.Member{Place: judge.Place{Name: pod.Name, Pod: pod, Target: target}}, Decision: policy.Resize})
		}
		g := Options{Guard: &Guard{
			Guard: policy.Guard{Canary: ptr.To(intstr.FromInt32(1))}, notes: notes, Record: Record{Phase: PhaseCanary, Canaries: []Canary{{UID: canary.UID}}},
		}}.guard(verdicts)
		if !g.mayTouch(verdicts[0]) || g.mayTouch(verdicts[1]) == taken || g.forgets(g.record.Canaries[0], verdicts[0]) == taken {
			t.Errorf("taken %t: the canary may be asked: %t, another one: %t", taken, g.mayTouch(verdicts[0]), g.mayTouch(verdicts[1]))
		}
	}
}

// lost says of every node that it is lost.
type lost struct{ Places }

func (lost) Lost(*corev1.Pod) string { return "its node is lost" }

// TestNothingUnderWay: what a kubelet has reported since the birth of a pod is no resize, and an answer that never comes
// holds up no further edit.
func TestNothingUnderWay(t *testing.T) {
	older, newer := build.Size(t, "limits: {cpu: 150m}"), build.Size(t, "limits: {cpu: 150m, memory: 1Gi}, requests: {memory: 1Gi}")
	kubelet := resize.Kubelet{Now: build.Start.Add(time.Hour), Patience: 10 * time.Minute}
	long, now := build.Start, kubelet.Now.Add(-time.Minute)
	for _, tt := range []struct {
		name    string
		change  []func(*corev1.Pod)
		effects string
		busy    bool
	}{
		{name: "another limit from birth", change: []func(*corev1.Pod){otherLimit}, effects: "app: memory request none→1Gi, app: memory limit none→1Gi"},
		{name: "an old limit, long after it was asked for", change: []func(*corev1.Pod){oldLimit, build.ResizedAt(long)}, effects: "app: memory request none→1Gi, app: memory limit none→1Gi"},
		{name: "an old limit that was asked for just now", change: []func(*corev1.Pod){oldLimit, build.ResizedAt(now)}, effects: "app: memory request none→1Gi, app: memory limit none→1Gi", busy: true},
		{name: "another generation, long after it was asked for", change: []func(*corev1.Pod){otherGeneration, build.ResizedAt(long)}, effects: "app: memory request none→1Gi, app: memory limit none→1Gi"},
		{name: "another generation, just now", change: []func(*corev1.Pod){otherGeneration, build.ResizedAt(now)}, effects: "app: memory request none→1Gi, app: memory limit none→1Gi", busy: true},
	} {
		pod := build.Pod("web-0", older, tt.change...)
		target := must.Get(resize.For(pod, older, newer))(t)
		if got := resize.Describe(target.Effects); got != tt.effects || resize.Busy(pod, kubelet) != tt.busy {
			t.Errorf("%s: changes %q, busy %t, want %q, %t", tt.name, got, resize.Busy(pod, kubelet), tt.effects, tt.busy)
		}
	}
}
