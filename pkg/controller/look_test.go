package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// A version of a pod is looked at again when anything changes that the look depends on, and only
// then.
func TestKept(t *testing.T) {
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
		{"a refusal", func(pod *corev1.Pod, f *Facts, _ *Basis) { f.Refused[pod.UID] = rollout.Refusal{Reason: "quota"} }, 1},
		{"no room", func(pod *corev1.Pod, f *Facts, _ *Basis) { f.Full[pod.UID] = rollout.Refusal{Reason: "full"} }, 1},
		{"a contest", func(pod *corev1.Pod, f *Facts, _ *Basis) { f.Contests[pod.UID]++ }, 1},
		{"the resize is to be asked again", func(_ *corev1.Pod, f *Facts, _ *Basis) { f.Seen.askAgain() }, 2},
		{"the generation", func(_ *corev1.Pod, _ *Facts, b *Basis) { b.Generation++ }, 2},
		{"an annotation", func(_ *corev1.Pod, _ *Facts, b *Basis) { b.Annotations = map[string]string{"hold": "1"} }, 2},
		{"what else the kind depends on", func(_ *corev1.Pod, _ *Facts, b *Basis) { b.Of = "c" }, 2},
		{"the nodes or the limits", func(_ *corev1.Pod, f *Facts, _ *Basis) { f.room = capacity.NewPlaces(nil, true, capacity.Limits{}) }, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := Facts{
				Refused: rollout.Refusals{}, Full: rollout.Refusals{}, Contests: Contests{}, Seen: &Sightings{}, Now: build.Start.Add(time.Minute),
				Kept: &Kept{}, room: capacity.NewPlaces(nil, true, capacity.Limits{}),
			}
			template := build.Size(t, "")
			web0, web1 := build.Pod("web-0", template), build.Pod("web-1", template, func(pod *corev1.Pod) { pod.Status.Conditions[0].LastTransitionTime.Time = build.Start })
			web0.ResourceVersion, web1.ResourceVersion = "7", "7"
			basis := Basis{Generation: 1, Annotations: map[string]string{"hold": "0"}, Of: "b"}
			looks := 0
			at := func() {
				t.Helper()
				look := f.Look(basis, rollout.Options{Now: f.Now, MinReadySeconds: 600}, rollout.Revision{Name: "b", Template: template}, func(i int, pod *corev1.Pod) (rollout.Place, error) {
					looks++
					return rollout.Place{Name: pod.Name, Index: i, Pod: pod, Updated: true, Available: pod.Name == "web-0"}, nil
				})
				for i, pod := range []*corev1.Pod{web0, web1} {
					if v, err := look.At(i, pod); err != nil || v.Member.Name != pod.Name || v.Member.Index != i {
						t.Fatalf("of %s, got %+v: %v", pod.Name, v, err)
					}
				}
				f.Seen.See(f.Kept.takeFresh())
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
func TestKeptOfGonePods(t *testing.T) {
	f := Facts{Seen: &Sightings{}, Now: build.Start, Kept: &Kept{}, room: capacity.NewPlaces(nil, true, capacity.Limits{})}
	template := build.Size(t, "")
	for n := range 100 {
		look := f.Look(Basis{Of: "b"}, rollout.Options{Now: f.Now}, rollout.Revision{Name: "b", Template: template}, func(i int, pod *corev1.Pod) (rollout.Place, error) {
			return rollout.Place{Name: pod.Name, Index: i, Pod: pod, Updated: true, Available: true}, nil
		})
		pod := build.Pod("web-0", template)
		pod.UID = types.UID(rune('a' + n))
		if _, err := look.At(0, pod); err != nil {
			t.Fatal(err)
		}
		if kept := len(f.Kept.looks); kept > 4 {
			t.Fatalf("%d looks are kept of one pod", kept)
		}
	}
}
