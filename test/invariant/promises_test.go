package invariant_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const (
	kubelet   = "system:node:node"
	scheduler = "system:kube-scheduler"
)

// after has the last event be so long after the one before it.
func (l *trail) after(d time.Duration) {
	n := len(l.events) - 1
	l.events[n].StageTimestamp.Time = l.events[n-1].StageTimestamp.Add(d)
}

// revised is a set of that size and image, and of that revision. The StatefulSet controller knows it if
// the name is not empty.
func revised(cpu, image, revision string, change ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := set(cpu, change...)
	s.Spec.Template.Spec.Containers[0].Image = image
	if s.Status.UpdateRevision = revision; revision == "" {
		s.Generation = 1
	}
	return s
}

func partitioned(s *appsv1.StatefulSet) {
	s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To(int32(1))}
}

// upgrade logs a set whose pod 1 has got image 2, and an edit of its size.
func (l *trail) upgrade(change ...func(*appsv1.StatefulSet)) {
	l.write(user, "create", "statefulsets", "web", revised("1", "app:1", "web-a", change...))
	for _, name := range []string{"web-0", "web-1"} {
		l.write(statefulSet, "create", "pods", name, pod(name, "1", "web-a", "set", "StatefulSet"))
	}
	l.write(user, "patch", "statefulsets", "web", revised("1", "app:2", "web-b", change...))
	l.write(statefulSet, "delete", "pods", "web-1", nil)
	l.birth("web-b")
	l.write(user, "patch", "statefulsets", "web", revised("2", "app:2", "", append(change, annotated(hold, "0"))...))
}

// birth logs that a pod 1 comes, of a revision.
func (l *trail) birth(revision string) {
	l.write(statefulSet, "create", "pods", "web-1", pod("web-1", "1", revision, "set", "StatefulSet", func(p *corev1.Pod) {
		p.UID = types.UID("web-1 of event " + time.Duration(len(l.events)).String())
	}))
}

// TestTemplate: no pod of a StatefulSet comes back behind an image that its ordinal has had.
func TestTemplate(t *testing.T) {
	seen := func(l *trail, revision string) {
		l.write(statefulSet, "update", "statefulsets/status", "web", revised("2", "app:2", revision, annotated(hold, "0")))
	}
	lost := func(l *trail) { l.write(user, "delete", "pods", "web-1", nil) }
	checkAll(t, []promised{
		{"it comes back with the old image", func(l *trail) {
			l.upgrade()
			seen(l, "web-c")
			lost(l)
			l.birth("web-a")
		}, "template pods/web-1"},
		{"it comes back with the image that it had", func(l *trail) {
			l.upgrade()
			seen(l, "web-c")
			lost(l)
			l.birth("web-b")
		}, ""},
		{"it comes back with the new size", func(l *trail) {
			l.upgrade()
			seen(l, "web-c")
			lost(l)
			l.birth("web-c")
		}, ""},
		{"one that was not upgraded comes back as it was", func(l *trail) {
			l.upgrade()
			seen(l, "web-c")
			l.write(user, "delete", "pods", "web-0", nil)
			l.write(statefulSet, "create", "pods", "web-0", pod("web-0", "1", "web-a", "set", "StatefulSet", func(p *corev1.Pod) { p.UID = "another" }))
		}, ""},
		{"it comes back in the sync that sees the edit", func(l *trail) {
			l.upgrade()
			lost(l)
			l.birth("web-a")
			seen(l, "web-c")
		}, ""},
		{"the user has undone the image", func(l *trail) {
			l.upgrade()
			l.write(user, "patch", "statefulsets", "web", revised("1", "app:1", "web-a", annotated(hold, "0")))
			lost(l)
			l.birth("web-a")
		}, ""},
		{"the user has undone the image, and it comes back with what was undone", func(l *trail) {
			l.upgrade()
			l.write(user, "patch", "statefulsets", "web", revised("1", "app:1", "web-a", annotated(hold, "0")))
			lost(l)
			l.birth("web-a")
			lost(l)
			l.birth("web-b")
		}, "template pods/web-1"},
		{"the user has undone the image while it was away, and it comes back with what was undone", func(l *trail) {
			l.upgrade()
			lost(l)
			l.write(user, "patch", "statefulsets", "web", revised("1", "app:1", "web-a", annotated(hold, "0")))
			l.birth("web-b")
		}, ""},
		{"the user has undone the image before it had it, and it comes back with what was undone", func(l *trail) {
			l.upgrade()
			l.write(user, "patch", "statefulsets", "web", revised("1", "app:1", "web-a", annotated(hold, "0")))
			l.write(user, "delete", "pods", "web-0", nil)
			l.write(statefulSet, "create", "pods", "web-0", pod("web-0", "1", "web-b", "set", "StatefulSet", func(p *corev1.Pod) { p.UID = "another" }))
		}, "template pods/web-0"},
		{"the user has a partition", func(l *trail) {
			l.upgrade(partitioned)
			l.write(statefulSet, "update", "statefulsets/status", "web", revised("2", "app:2", "web-c", partitioned, annotated(hold, "1")))
			lost(l)
			l.birth("web-a")
		}, ""},
		{"the set is opted out", func(l *trail) {
			l.upgrade()
			l.write(user, "patch", "statefulsets", "web", revised("2", "app:2", "web-c", optedOut))
			lost(l)
			l.birth("web-a")
		}, ""},
		{"it belonged to a set of before", func(l *trail) {
			l.upgrade()
			l.write(user, "delete", "statefulsets", "web", nil)
			again := func(s *appsv1.StatefulSet) { s.UID = "again" }
			l.write(user, "create", "statefulsets", "web", revised("1", "app:1", "web-a", again))
			lost(l)
			l.write(statefulSet, "create", "pods", "web-1", pod("web-1", "1", "web-a", "again", "StatefulSet", func(p *corev1.Pod) { p.UID = "another" }))
		}, ""},
	})
}

// TestOnce: a pod goes once for an edit, and not for what its successor has, too.
func TestOnce(t *testing.T) {
	restart := annotated(action, "Restart")
	again := func(l *trail, cpu string) { // pod 1 comes, of that size
		l.write(statefulSet, "create", "pods", "web-1", pod("web-1", cpu, "web-"+cpu, "set", "StatefulSet", func(p *corev1.Pod) {
			p.UID = types.UID("web-1 of event " + time.Duration(len(l.events)).String())
		}))
	}
	goes := func(l *trail) { l.write(statefulSet, "delete", "pods", "web-1", nil) }
	edited := func(l *trail, change ...func(*appsv1.StatefulSet)) {
		l.statefulSets(change...)
		goes(l)
	}
	checkAll(t, []promised{
		{"it goes once", func(l *trail) {
			edited(l, restart)
			again(l, "2")
		}, ""},
		{"its successor goes, too", func(l *trail) {
			edited(l, restart)
			again(l, "2")
			goes(l)
		}, "once pods/web-1"},
		{"its successor goes for another edit", func(l *trail) {
			edited(l, restart)
			again(l, "2")
			l.write(user, "patch", "statefulsets", "web", set("3", restart, annotated(hold, "0")))
			goes(l)
		}, ""},
		{"its successor goes by its user", func(l *trail) {
			edited(l, restart)
			again(l, "2")
			l.write(user, "delete", "pods", "web-1", nil)
		}, ""},
		{"its successor goes, and its user has asked for that", func(l *trail) {
			edited(l, restart)
			again(l, "2")
			l.write(user, "patch", "statefulsets", "web", set("2", restart, annotated("inplace-rollout.io/retry", "1"), annotated(hold, "0")))
			goes(l)
		}, ""},
		{"its successor was made of the former template, and goes", func(l *trail) {
			edited(l, restart)
			again(l, "1")
			goes(l)
		}, "once pods/web-1"},
		{"its user has it go, it is made of the former template, and goes", func(l *trail) {
			l.statefulSets(restart)
			l.write(user, "delete", "pods", "web-1", nil)
			again(l, "1")
			goes(l)
		}, ""},
		{"a Deployment's pods go once each", func(l *trail) {
			l.deployments(func(d *appsv1.Deployment) { d.Annotations[action] = "Restart" })
			for _, name := range []string{"web-a-1", "web-a-0"} {
				l.write(ours, "patch", "replicasets", "web-a", set1("web-a", "2", 2))
				l.write(ours, "create", "pods/eviction", name, nil)
				l.write(replicaSet, "create", "pods", name+"-again", pod(name+"-again", "2", "", "web-a", "ReplicaSet"))
			}
		}, ""},
		{"a Deployment's new pod goes", func(l *trail) {
			l.deployments(func(d *appsv1.Deployment) { d.Annotations[action] = "Restart" })
			l.write(ours, "patch", "replicasets", "web-a", set1("web-a", "2", 2))
			l.write(ours, "create", "pods/eviction", "web-a-1", nil)
			l.write(replicaSet, "create", "pods", "web-a-2", pod("web-a-2", "2", "", "web-a", "ReplicaSet"))
			l.write(ours, "create", "pods/eviction", "web-a-2", nil)
		}, "once pods/web-a-2"},
		{"a container that is not in the pod is no reason", func(l *trail) {
			proxied := func(s *appsv1.StatefulSet) {
				s.Spec.Template.Spec.Containers = append(s.Spec.Template.Spec.Containers, corev1.Container{Name: "proxy", Image: "proxy:1"})
			}
			edited(l, proxied)
		}, "restart pods/web-1"},
	})
}

// baking is a set with minReadySeconds, of three pods.
func baking(s *appsv1.StatefulSet) {
	s.Spec.MinReadySeconds, s.Spec.Replicas = 30, ptr.To(int32(3))
}

// TestProof: a pod is asked when those before it have been well with their size for minReadySeconds.
func TestProof(t *testing.T) {
	sized := func(name string, change ...func(*corev1.Pod)) *corev1.Pod {
		return pod(name, "2", "web-1", "set", "StatefulSet", change...)
	}
	unready := func(p *corev1.Pod) { p.Status.Conditions = nil }
	limited := func(cpu string) func(*corev1.Pod) { // by its kubelet
		return func(p *corev1.Pod) {
			was := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: &corev1.ResourceRequirements{Requests: was}}}
		}
	}
	deferred := func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Reason: corev1.PodReasonDeferred})
	}
	asked := func(l *trail, change ...func(*corev1.Pod)) {
		l.write(ours, "patch", "pods/resize", "web-1", sized("web-1", append([]func(*corev1.Pod){limited("1")}, change...)...))
	}
	done := func(l *trail, change ...func(*corev1.Pod)) {
		l.write(kubelet, "patch", "pods/status", "web-1", sized("web-1", append([]func(*corev1.Pod){limited("2")}, change...)...))
	}
	next := func(l *trail, after time.Duration) {
		l.write(ours, "patch", "pods/resize", "web-0", sized("web-0"))
		l.after(after)
	}
	overtaken := func(l *trail, ago time.Duration) { // by another edit, when the first is asked
		l.statefulSets(baking)
		l.write(user, "patch", "statefulsets", "web", set("3", baking, annotated(hold, "0")))
		asked(l)
		l.after(ago)
		done(l)
		l.after(time.Second)
		l.write(ours, "patch", "pods/resize", "web-0", pod("web-0", "3", "web-1", "set", "StatefulSet"))
		l.after(300 * time.Millisecond)
	}
	checkAll(t, []promised{
		{"the next is asked at once", func(l *trail) {
			l.statefulSets(baking)
			asked(l)
			done(l)
			next(l, 300*time.Millisecond)
		}, "proof pods/web-0"},
		{"the next is asked when the resize is not done", func(l *trail) {
			l.statefulSets(baking)
			asked(l)
			next(l, 300*time.Millisecond)
		}, "proof pods/web-0"},
		{"the next is asked, and has become Ready a moment before", func(l *trail) {
			l.statefulSets(baking)
			asked(l)
			done(l)
			l.write(kubelet, "patch", "pods/status", "web-0", pod("web-0", "1", "web-1", "set", "StatefulSet", unready))
			l.write(kubelet, "patch", "pods/status", "web-0", pod("web-0", "1", "web-1", "set", "StatefulSet"))
			l.after(300 * time.Millisecond)
			next(l, 300*time.Millisecond)
		}, ""},
		{"the next is asked in time", func(l *trail) {
			l.statefulSets(baking)
			asked(l)
			done(l)
			next(l, 30*time.Second)
		}, ""},
		{"the next is asked, and the one before has restarted", func(l *trail) {
			l.statefulSets(baking)
			asked(l)
			done(l)
			done(l, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 })
			l.after(20 * time.Second)
			next(l, 12*time.Second)
		}, "proof pods/web-0"},
		{"the next is asked, and the one before is not Ready", func(l *trail) {
			l.statefulSets(baking)
			asked(l)
			done(l)
			done(l, unready)
			l.after(3 * time.Second)
			next(l, time.Minute)
		}, "proof pods/web-0"},
		{"the one before was asked for the size of an edit that another one has just overtaken", func(l *trail) {
			overtaken(l, 600*time.Millisecond)
		}, ""},
		{"the one before was asked for the size of an edit that another one has long overtaken", func(l *trail) {
			overtaken(l, 20*time.Second)
		}, "proof pods/web-0"},
		{"there is no minReadySeconds", func(l *trail) {
			l.statefulSets()
			asked(l)
			done(l)
			next(l, 300*time.Millisecond)
		}, ""},
		{"minReadySeconds has gone a moment ago", func(l *trail) {
			l.statefulSets(baking)
			asked(l)
			done(l)
			l.write(user, "patch", "statefulsets", "web", set("2", annotated(hold, "0")))
			l.after(time.Second)
			next(l, 300*time.Millisecond)
		}, ""},
		{"two may be under way, and the first has not proved the size", func(l *trail) {
			two := func(s *appsv1.StatefulSet) {
				partitioned(s)
				s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(2))
			}
			l.statefulSets(baking, two)
			asked(l)
			done(l)
			next(l, 300*time.Millisecond)
		}, "proof pods/web-0"},
		{"it was a cure", func(l *trail) {
			l.statefulSets(baking)
			l.write(kubelet, "patch", "pods/status", "web-1", pod("web-1", "1", "web-1", "set", "StatefulSet", unready))
			asked(l, unready)
			done(l)
			next(l, 300*time.Millisecond)
		}, ""},
		{"the next is a cure", func(l *trail) {
			l.statefulSets(baking)
			asked(l)
			done(l)
			l.write(kubelet, "patch", "pods/status", "web-0", pod("web-0", "1", "web-1", "set", "StatefulSet", unready))
			next(l, 300*time.Millisecond)
		}, ""},
		{"the next comes back to its size", func(l *trail) {
			l.statefulSets(baking, func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement })
			l.write(ours, "patch", "pods/resize", "web-0", sized("web-0"))
			l.write(user, "patch", "pods/resize", "web-0", pod("web-0", "3", "web-1", "set", "StatefulSet"))
			asked(l)
			done(l)
			next(l, 300*time.Millisecond)
		}, ""},
		{"its kubelet has put it off", func(l *trail) {
			l.statefulSets(baking)
			asked(l)
			l.write(kubelet, "patch", "pods/status", "web-1", sized("web-1", limited("1"), deferred))
			next(l, 300*time.Millisecond)
		}, ""},
		{"its kubelet has put it off, which the log does not show at once", func(l *trail) {
			l.statefulSets(baking)
			asked(l)
			next(l, 300*time.Millisecond)
			l.write(user, "patch", "pods", "web-1", sized("web-1", limited("1"), deferred))
		}, ""},
		{"it was refused", func(l *trail) {
			l.statefulSets(baking)
			l.answered(ours, "patch", "pods/resize", "web-1", 403, nil)
			next(l, 300*time.Millisecond)
		}, ""},
		{"it was asked for an edit before", func(l *trail) {
			l.statefulSets(baking)
			asked(l)
			done(l)
			l.write(user, "patch", "statefulsets", "web", set("3", baking, annotated(hold, "0")))
			l.after(time.Second)
			l.write(ours, "patch", "pods/resize", "web-0", pod("web-0", "3", "web-1", "set", "StatefulSet"))
			l.after(time.Second)
		}, ""},
	})
}

// graceful pods take a while to go.
func graceful(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(30)) }

// TestRecreate: no hold has a pod come while others go.
func TestRecreate(t *testing.T) {
	begin := func(l *trail, change ...func(*corev1.Pod)) {
		l.write(user, "create", "deployments", "web", deployment("1", recreate))
		l.write(replicaSet, "create", "replicasets", "web-a", set1("web-a", "1", 2))
		for _, name := range []string{"web-a-0", "web-a-1"} {
			l.write(replicaSet, "create", "pods", name, pod(name, "1", "", "web-a", "ReplicaSet", change...))
		}
		l.write(user, "patch", "deployments", "web", deployment("2", recreate))
	}
	come := func(l *trail) {
		l.write(replicaSet, "create", "pods", "web-a-2", pod("web-a-2", "2", "", "web-a", "ReplicaSet"))
	}
	goes := func(l *trail) {
		l.write(replicaSet, "delete", "pods", "web-a-1", pod("web-a-1", "1", "", "web-a", "ReplicaSet", graceful, func(p *corev1.Pod) {
			p.Kind, p.DeletionGracePeriodSeconds = "Pod", ptr.To(int64(30))
		}))
	}
	image2 := func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
		rs.Spec.Template.Spec.Containers[0].Image = "app:2"
		return rs
	}
	upgrade := func(l *trail, change ...func(*appsv1.Deployment)) {
		begin(l, graceful)
		l.write(replicaSet, "patch", "replicasets", "web-a", set1("web-a", "1", 0))
		l.write(user, "patch", "deployments", "web", deployment("2", append(change, recreate, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })...))
		l.write(replicaSet, "create", "replicasets", "web-b", image2(set1("web-b", "2", 2)))
		l.write(replicaSet, "create", "pods", "web-b-0", pod("web-b-0", "2", "", "web-b", "ReplicaSet"))
	}
	checkAll(t, []promised{
		{"one comes beside those of another image, and the Deployment is held", func(l *trail) { upgrade(l) }, "apart pods/web-b-0"},
		{"one comes again while those of a rollout go, and the Deployment is held", func(l *trail) {
			begin(l, graceful)
			l.write(user, "patch", "deployments", "web", deployment("2", recreate, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" }))
			l.write(replicaSet, "patch", "replicasets", "web-a", set1("web-a", "1", 0))
			goes(l)
			l.write(replicaSet, "patch", "replicasets", "web-a", set1("web-a", "1", 2))
			come(l)
		}, "apart pods/web-a-2"},
		{"one comes again while those go that its user has scaled down", func(l *trail) {
			begin(l, graceful)
			l.write(user, "patch", "deployments", "web", deployment("2", recreate, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(1)) }))
			l.after(time.Second)
			goes(l)
			l.after(time.Second)
			l.write(user, "patch", "deployments", "web", deployment("2", recreate))
			l.after(time.Second)
			come(l)
		}, ""},
		{"one comes beside those of another image, and the Deployment is not held", func(l *trail) {
			upgrade(l, func(d *appsv1.Deployment) { d.Annotations = nil })
		}, ""},
	})
}

// TestRoom: no pod is restarted for one that no node can hold, where that can be known.
func TestRoom(t *testing.T) {
	restart := annotated(action, "Restart")
	pending := func(l *trail, name string) {
		p := pod(name, "2", "web-2", "set", "StatefulSet", func(p *corev1.Pod) { p.Spec.NodeName, p.UID = "", types.UID(name+" again") })
		l.write(statefulSet, "create", "pods", name, p)
		l.after(100 * time.Millisecond)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		l.write(scheduler, "patch", "pods/status", name, p)
		l.after(100 * time.Millisecond)
	}
	// second logs that the second pod is restarted after the first one.
	second := func(l *trail) {
		l.write(statefulSet, "delete", "pods", "web-1", nil)
		l.write(statefulSet, "create", "pods", "web-1", pod("web-1", "2", "web-2", "set", "StatefulSet", func(p *corev1.Pod) { p.UID = "web-1 again" }))
		l.write(statefulSet, "delete", "pods", "web-0", nil)
	}
	checkAll(t, []promised{
		{"the first pod finds no node", func(l *trail) {
			l.statefulSets(restart)
			l.write(ours, "patch", "statefulsets", "web", set("2", restart))
			l.write(statefulSet, "delete", "pods", "web-1", nil)
			pending(l, "web-1")
		}, "room pods/web-1"},
		{"the first pod finds no node, and the one before it had none", func(l *trail) {
			l.statefulSets(restart)
			l.write(scheduler, "patch", "pods/status", "web-1", pod("web-1", "1", "web-1", "set", "StatefulSet", func(p *corev1.Pod) { p.Spec.NodeName = "" }))
			l.write(ours, "patch", "statefulsets", "web", set("2", restart))
			l.write(statefulSet, "delete", "pods", "web-1", nil)
			pending(l, "web-1")
		}, ""},
		{"the second finds none, and the set is held", func(l *trail) {
			l.statefulSets(restart)
			second(l)
			pending(l, "web-0")
		}, "room pods/web-0"},
		{"the second finds none, and it asks for more", func(l *trail) {
			l.statefulSets(restart)
			l.write(ours, "patch", "statefulsets", "web", set("2", restart))
			second(l)
			pending(l, "web-0")
		}, "room pods/web-0"},
		{"the second finds none, it asks for no more, and the rollout is the StatefulSet controller's", func(l *trail) {
			l.write(user, "create", "statefulsets", "web", set("3", restart))
			for _, name := range []string{"web-0", "web-1"} {
				l.write(statefulSet, "create", "pods", name, pod(name, "3", "web-3", "set", "StatefulSet"))
			}
			l.write(user, "patch", "statefulsets", "web", set("2", restart))
			second(l)
			pending(l, "web-0")
		}, ""},
		{"a pod of somebody else came a moment before", func(l *trail) {
			l.statefulSets(restart)
			l.write(statefulSet, "delete", "pods", "web-1", nil)
			l.write(user, "create", "pods", "other", pod("other", "1", "", "", ""))
			l.after(100 * time.Millisecond)
			pending(l, "web-1")
		}, ""},
		{"the image has changed, too", func(l *trail) {
			l.statefulSets(restart)
			l.write(user, "patch", "statefulsets", "web", set("2", restart, image2))
			l.write(statefulSet, "delete", "pods", "web-1", nil)
			pending(l, "web-1")
		}, ""},
	})
}

// TestCanary: no more pods are asked than the canary is, until it has been well.
func TestCanary(t *testing.T) {
	guarded := func(canary string) func(*appsv1.StatefulSet) {
		return func(set *appsv1.StatefulSet) {
			annotated("inplace-rollout.io/canary", canary)(set)
			annotated("inplace-rollout.io/canary-duration", "10s")(set)
		}
	}
	sized := func(name string, cpu string) *corev1.Pod {
		return pod(name, "2", "web-1", "set", "StatefulSet", func(p *corev1.Pod) {
			was := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: &corev1.ResourceRequirements{Requests: was}}}
		})
	}
	two := func(canary string, after time.Duration) func(l *trail) {
		return func(l *trail) {
			l.statefulSets(guarded(canary))
			l.write(ours, "patch", "pods/resize", "web-1", sized("web-1", "1"))
			l.write(kubelet, "patch", "pods/status", "web-1", sized("web-1", "2"))
			l.write(ours, "patch", "pods/resize", "web-0", sized("web-0", "1"))
			l.after(after)
		}
	}
	checkAll(t, []promised{
		{"the next is asked at once", two("1", 300*time.Millisecond), "canary pods/web-0"},
		{"the next is asked when the first has been well", two("1", 12*time.Second), ""},
		{"two are first", two("2", 300*time.Millisecond), ""},
		{"none is", two("", 300*time.Millisecond), ""},
	})
}

// TestRevert: a size is taken back only where its user wants that, for one that was there before, and once.
func TestRevert(t *testing.T) {
	sized := func(cpu string) *corev1.Pod { return pod("web-1", cpu, "web-1", "set", "StatefulSet") }
	taken := func(onFailure, back string, then func(l *trail)) func(l *trail) {
		return func(l *trail) {
			l.statefulSets(annotated("inplace-rollout.io/on-failure", onFailure))
			l.write(ours, "patch", "pods/resize", "web-1", sized("2"))
			l.write(ours, "patch", "pods/resize", "web-1", sized(back))
			then(l)
		}
	}
	nothing := func(*trail) {}
	again := func(l *trail) {
		l.after(12 * time.Second)
		l.write(ours, "patch", "pods/resize", "web-1", sized("2"))
	}
	checkAll(t, []promised{
		{"its user wants it", taken("Revert", "1", nothing), ""},
		{"its user does not", taken("Hold", "1", nothing), "revert pods/web-1"},
		{"for less than before", taken("Revert", "500m", nothing), "revert pods/web-1"},
		{"it comes again", taken("Revert", "1", again), "revert pods/web-1"},
		{"it comes again by a retry", taken("Revert", "1", func(l *trail) {
			l.write(user, "patch", "statefulsets", "web", set("2", annotated(hold, "0"), annotated("inplace-rollout.io/on-failure", "Revert"), annotated("inplace-rollout.io/retry", "now")))
			again(l)
		}), ""},
	})
}
