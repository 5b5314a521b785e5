package events

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
)

// TestOnce: an event that is told once has one name, whoever records it, and another one of that
// name is no failure.
func TestOnce(t *testing.T) {
	long := pod(0)
	long.Name = strings.Repeat("a", 199) + "-." + strings.Repeat("b", 50)
	first, s := newRecorder(t), &sink{}
	for _, p := range []*corev1.Pod{pod(0), pod(1), long} {
		first.Once(p, corev1.EventTypeNormal, "Born", "hello")
	}
	if dropped := first.settle(t, s, 3); len(dropped) > 0 {
		t.Errorf("dropped %v", dropped)
	}
	names := map[string]string{}
	for _, e := range s.created {
		names[e.Name] = e.InvolvedObject.Name
		if problems := validation.IsDNS1123Subdomain(e.Name); len(problems) > 0 {
			t.Errorf("%s: %v", e.Name, problems)
		}
	}
	if len(names) != 3 {
		t.Errorf("the names are %v", names)
	}

	again, s := newRecorder(t), &sink{}
	again.Once(pod(0), corev1.EventTypeNormal, "Born", "hello again")
	again.Once(pod(0), corev1.EventTypeNormal, "Born", "hello again")
	if dropped := again.settle(t, s, 2); len(dropped) > 0 || len(s.patched) > 0 {
		t.Errorf("dropped %v, counted %v", dropped, s.patched)
	}
	for _, e := range s.created {
		if names[e.Name] != "web-0" {
			t.Errorf("another recorder calls it %s", e.Name)
		}
	}

	there := &sink{err: apierrors.NewAlreadyExists(corev1.Resource("events"), "a"), fails: 1}
	last := newRecorder(t)
	last.Once(pod(0), corev1.EventTypeNormal, "Born", "hello")
	last.Event(pod(1), corev1.EventTypeNormal, "Grown", "hello") // so that there is something to wait for
	if dropped := last.settle(t, there, 1); len(dropped) > 0 {
		t.Errorf("one that is there already is dropped: %v", dropped)
	}
}
