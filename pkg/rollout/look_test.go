package rollout

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
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
