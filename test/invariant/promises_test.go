package invariant_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// revised is a set of that size and image, and of that revision. The StatefulSet controller knows it if
// the name is not empty.
func revised(cpu, image, revision string, change ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := set(cpu, change...)
	s.Spec.Template.Spec.Containers[0].Image = image
	if s.Generation, s.Status.UpdateRevision = 1, revision; revision != "" {
		s.Status.ObservedGeneration = 1
	}
	return s
}

func partitioned(s *appsv1.StatefulSet) {
	s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To(int32(1))}
}

// upgraded logs a set whose pod 1 has got image 2, and an edit of its size.
func upgraded(change ...func(*appsv1.StatefulSet)) step {
	first := func(name string) step { return created(statefulSet, pod(name, "1", "web-a", "set", "StatefulSet")) }
	return together(
		created(user, revised("1", "app:1", "web-a", change...)), first("web-0"), first("web-1"), wrote(user, revised("1", "app:2", "web-b", change...)),
		deleted(statefulSet, "web-1"), birth("web-1", "1", "web-b"), wrote(user, revised("2", "app:2", "", append(change, annotated(hold, "0"))...)),
	)
}

// birth logs that another pod of a name comes, of a size and a revision.
func birth(name, cpu, revision string) step {
	return func(l *trail) {
		created(statefulSet, pod(name, cpu, revision, "set", "StatefulSet", func(p *corev1.Pod) {
			p.UID = types.UID(fmt.Sprintf("%s of event %d", name, len(l.events)))
		}))(l)
	}
}

// TestTemplate: no pod of a StatefulSet comes back behind an image that its ordinal has had.
func TestTemplate(t *testing.T) {
	seen := wroteStatus(statefulSet, revised("2", "app:2", "web-c", annotated(hold, "0")))
	lost, lower := deleted(user, "web-1"), deleted(user, "web-0")
	undone := wrote(user, revised("1", "app:1", "web-a", annotated(hold, "0")))
	born := func(revision string) step { return birth("web-1", "1", revision) }
	again := func(s *appsv1.StatefulSet) { s.UID = "again" }
	gone := func(l *trail) { l.write(user, "delete", "statefulsets", "web", nil) }
	adopted := pod("web-1", "1", "web-a", "again", "StatefulSet", func(p *corev1.Pod) { p.UID = "another" })
	checkAll(t, []promised{
		{"it comes back with the old image", history{upgraded(), seen, lost, born("web-a")}, "template pods/web-1"},
		{"it comes back with the image that it had", history{upgraded(), seen, lost, born("web-b")}, ""},
		{"it comes back with the new size", history{upgraded(), seen, lost, born("web-c")}, ""},
		{"one that was not upgraded comes back as it was", history{upgraded(), seen, lower, birth("web-0", "1", "web-a")}, ""},
		{"it comes back in the sync that sees the edit", history{upgraded(), lost, born("web-a"), seen}, ""},
		{"the user has undone the image", history{upgraded(), undone, lost, born("web-a")}, ""},
		{"the user has undone the image, and it comes back with what was undone", history{
			upgraded(), undone, lost, born("web-a"), lost, born("web-b"),
		}, "template pods/web-1"},
		{"the user has undone the image while it was away, and it comes back with what was undone", history{upgraded(), lost, undone, born("web-b")}, ""},
		{"the user has undone the image before it had it, and it comes back with what was undone", history{
			upgraded(), undone, lower, birth("web-0", "1", "web-b"),
		}, "template pods/web-0"},
		{"nobody has seen that the user has undone the image, and it comes with that", history{
			upgraded(), wrote(user, revised("2", "app:1", "")), wrote(user, revised("3", "app:1", "")),
			wroteStatus(statefulSet, revised("3", "app:1", "web-d")), lower, birth("web-0", "1", "web-b"),
		}, ""},
		{"the user has a partition", history{
			upgraded(partitioned), wroteStatus(statefulSet, revised("2", "app:2", "web-c", partitioned, annotated(hold, "1"))), lost, born("web-a"),
		}, ""},
		{"the set is opted out", history{upgraded(), wrote(user, revised("2", "app:2", "web-c", optedOut)), lost, born("web-a")}, ""},
		{"it belonged to a set of before", history{
			upgraded(), gone, created(user, revised("1", "app:1", "web-a", again)), lost, created(statefulSet, adopted),
		}, ""},
	})
}

// TestOnce: a pod goes once for an edit, and not for what its successor has, too.
func TestOnce(t *testing.T) {
	restart, retry := annotated(action, "Restart"), annotated("inplace-rollout.io/retry", "1")
	comes := func(cpu string) step { return birth("web-1", cpu, "web-"+cpu) }
	goes, userTakesIt := deleted(statefulSet, "web-1"), deleted(user, "web-1")
	once := together(edited(restart), goes, comes("2"))
	deployed := editedDeployment(func(d *appsv1.Deployment) { d.Annotations[action] = "Restart" })
	replaced := func(name, by string) step {
		return together(wrote(ours, set1("web-a", "2", 2)), evicted(name), created(replicaSet, setPod(by, "2")))
	}
	proxied := func(s *appsv1.StatefulSet) {
		s.Spec.Template.Spec.Containers = append(s.Spec.Template.Spec.Containers, corev1.Container{Name: "proxy", Image: "proxy:1"})
	}
	checkAll(t, []promised{
		{"it goes once", history{once}, ""},
		{"its successor goes, too", history{once, goes}, "once pods/web-1"},
		{"its successor goes for another edit", history{once, wrote(user, set("3", restart, annotated(hold, "0"))), goes}, ""},
		{"its successor goes by its user", history{once, userTakesIt}, ""},
		{"its successor goes, and its user has asked for that", history{once, wrote(user, set("2", restart, retry, annotated(hold, "0"))), goes}, ""},
		{"its successor was made of the former template, and goes", history{edited(restart), goes, comes("1"), goes}, "once pods/web-1"},
		{"its user has it go, it is made of the former template, and goes", history{edited(restart), userTakesIt, comes("1"), goes}, ""},
		{"a Deployment's pods go once each", history{deployed, replaced("web-a-1", "web-a-1-again"), replaced("web-a-0", "web-a-0-again")}, ""},
		{"a Deployment's new pod goes", history{deployed, replaced("web-a-1", "web-a-2"), evicted("web-a-2")}, "once pods/web-a-2"},
		{"a container that is not in the pod is no reason", history{edited(proxied), goes}, "restart pods/web-1"},
	})
}

// baking is a set with minReadySeconds, of three pods.
func baking(s *appsv1.StatefulSet) {
	s.Spec.MinReadySeconds, s.Spec.Replicas = 30, ptr.To(int32(3))
}

// has has the kubelet show so much cpu.
func has(cpu string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		was := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: &corev1.ResourceRequirements{Requests: was}}}
	}
}

// TestProof: a pod is asked when those before it have been well with their size for minReadySeconds.
func TestProof(t *testing.T) {
	restarted := func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 }
	deferred := webPod("web-1", "2", has("1"), func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Reason: corev1.PodReasonDeferred})
	})
	asks := asked(webPod("web-1", "2", has("1")))
	done := func(change ...func(*corev1.Pod)) step {
		return reported(webPod("web-1", "2", append([]func(*corev1.Pod){has("2")}, change...)...))
	}
	begun := together(edited(baking), asks, done())
	justThen := atOnce(1)
	next := func(d time.Duration) step { return together(asked(webPod("web-0", "2")), after(d)) }
	atOnce := next(300 * time.Millisecond)
	editAgain, asksAgain := wrote(user, set("3", baking, annotated(hold, "0"))), asked(webPod("web-0", "3"))
	overtaken := func(ago time.Duration) history { // by another edit, when the first is asked
		return history{edited(baking), editAgain, asks, after(ago), done(), after(time.Second), asksAgain, after(300 * time.Millisecond)}
	}
	ill, well := reported(webPod("web-0", "1", unready)), reported(webPod("web-0", "1"))
	refuses := func(l *trail) { l.answered(ours, "patch", "pods/resize", "web-1", 403, nil) }
	reverts := annotated("inplace-rollout.io/on-failure", "Revert")
	two := func(s *appsv1.StatefulSet) {
		partitioned(s)
		s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(2))
	}
	parallel := func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }
	checkAll(t, []promised{
		{"the next is asked at once", history{begun, atOnce}, "proof pods/web-0"},
		{"the next is asked when the resize is not done", history{edited(baking), asks, atOnce}, "proof pods/web-0"},
		{"the next is asked, and has become Ready a moment before", history{begun, ill, well, after(300 * time.Millisecond), atOnce}, ""},
		{"the next is asked in time", history{begun, next(30 * time.Second)}, ""},
		{"the next is asked, and the one before has restarted", history{
			begun, done(restarted), after(20 * time.Second), next(12 * time.Second),
		}, "proof pods/web-0"},
		{"the next is asked, and the one before is not Ready", history{
			begun, done(unready), after(3 * time.Second), next(time.Minute),
		}, "proof pods/web-0"},
		{"the one before was asked for the size of an edit that another one has just overtaken", overtaken(600 * time.Millisecond), ""},
		{"the one before was asked for the size of an edit that another one has long overtaken", overtaken(20 * time.Second), "proof pods/web-0"},
		{"there is no minReadySeconds", history{edited(), asks, done(), atOnce}, ""},
		{"minReadySeconds has gone a moment ago", history{begun, wrote(user, set("2", annotated(hold, "0"))), after(time.Second), atOnce}, ""},
		{"two may be under way, and the first has not proved the size", history{edited(baking, two), asks, done(), atOnce}, "proof pods/web-0"},
		{"it was a cure", history{
			edited(baking), reported(webPod("web-1", "1", unready)), asked(webPod("web-1", "2", has("1"), unready)), done(), atOnce,
		}, ""},
		{"the next is a cure", history{begun, ill, atOnce}, ""},
		{"the next comes back to its size", history{
			edited(baking, parallel), asked(webPod("web-0", "2")), resized(user, webPod("web-0", "3")), asks, done(), atOnce,
		}, ""},
		{"its kubelet has put it off", history{edited(baking), asks, reported(deferred), atOnce}, ""},
		{"its kubelet has put it off, which the log does not show at once", history{edited(baking), asks, atOnce, wrote(user, deferred)}, ""},
		{"it was refused", history{edited(baking), refuses, atOnce}, ""},
		{"it has got its size from before again", history{edited(baking, reverts), asks, done(), asked(webPod("web-1", "1")), atOnce}, ""},
		{"another one is down that has yet to get another image", history{
			upgraded(), wroteStatus(statefulSet, revised("2", "app:2", "web-c", annotated(hold, "0"))), reported(pod("web-0", "1", "web-a", "set", "StatefulSet", unready)),
			asked(pod("web-1", "2", "web-b", "set", "StatefulSet")),
		}, ""},
		{"another one is down", history{edited(), reported(webPod("web-0", "1", unready)), after(5 * time.Second), asked(webPod("web-1", "2"))}, "proof pods/web-1"},
		{"another one is down with the size that was complete, to which those go back that were made of a later one", history{
			created(user, set("1")), created(statefulSet, webPod("web-0", "1")), wroteStatus(ours, set("1", complete)), wrote(user, set("2", annotated(hold, "0"))),
			created(statefulSet, webPod("web-1", "2")), wrote(user, set("1", annotated(hold, "0"))), reported(webPod("web-0", "1", unready)), after(5 * time.Second), asked(webPod("web-1", "1")),
		}, ""},
		{"another one is down, whose node has just come back", history{
			edited(), reported(webPod("web-0", "1", unready, func(p *corev1.Pod) { p.Spec.NodeName = "node-b" })), changed(user, "node-b"), asked(webPod("web-1", "2")), justThen,
		}, ""},
		{"another one is down, until its restart", history{
			edited(annotated("inplace-rollout.io/resource-resize-policy", "cpu:decrease=RestartOnly")), reported(webPod("web-0", "1", unready)), after(5 * time.Second), asked(webPod("web-1", "2")),
		}, ""},
		{"it was asked for an edit before", history{begun, editAgain, after(time.Second), asksAgain, after(time.Second)}, ""},
	})
}

// TestAction: no pod is resized where its policy says that it restarts.
func TestAction(t *testing.T) {
	has1 := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: &webPod("web-1", "1").Spec.Containers[0].Resources}}
	}
	only := annotated("inplace-rollout.io/resource-resize-policy", "cpu=RestartOnly")
	begun := together(edited(only), reported(webPod("web-1", "1", has1)))
	checkAll(t, []promised{
		{"it is asked", history{begun, asked(webPod("web-1", "2", has1))}, "action pods/web-1"},
		{"somebody else has asked for that before", history{begun, resized(user, webPod("web-1", "2", has1)), asked(webPod("web-1", "2", has1))}, ""},
	})
}

// graceful pods take a while to go.
func graceful(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(30)) }

// TestRecreate: no hold has a pod come while others go.
func TestRecreate(t *testing.T) {
	begun := func(change ...func(*corev1.Pod)) step {
		return together(deployed(deployment("1", recreate), set1("web-a", "1", 2), change...), wrote(user, deployment("2", recreate)))
	}
	comes := created(replicaSet, setPod("web-a-2", "2"))
	leaving := setPod("web-a-1", "1", graceful, func(p *corev1.Pod) { p.Kind, p.DeletionGracePeriodSeconds = "Pod", ptr.To(int64(30)) })
	goes := logged(replicaSet, "delete", leaving, "")
	image := func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" }
	scaled := func(n int32) step { return wrote(replicaSet, set1("web-a", "1", n)) }
	upgraded := func(change ...func(*appsv1.Deployment)) history {
		other := set1("web-b", "2", 2)
		other.Spec.Template.Spec.Containers[0].Image = "app:2"
		return history{
			begun(graceful), scaled(0), wrote(user, deployment("2", append(change, recreate, image)...)),
			created(replicaSet, other), created(replicaSet, pod("web-b-0", "2", "", "web-b", "ReplicaSet")),
		}
	}
	one := func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(1)) }
	checkAll(t, []promised{
		{"one comes beside those of another image, and the Deployment is held", upgraded(), "apart pods/web-b-0"},
		{"one comes again while those of a rollout go, and the Deployment is held", history{
			begun(graceful), wrote(user, deployment("2", recreate, image)), scaled(0), goes, scaled(2), comes,
		}, "apart pods/web-a-2"},
		{"one comes again while those go that its user has scaled down", history{
			begun(graceful), wrote(user, deployment("2", recreate, one)), after(time.Second), goes, after(time.Second),
			wrote(user, deployment("2", recreate)), after(time.Second), comes,
		}, ""},
		{"one comes beside those of another image, and the Deployment is not held", upgraded(func(d *appsv1.Deployment) { d.Annotations = nil }), ""},
	})
}

// TestRoom: no pod is restarted for one that no node can hold, where that can be known.
func TestRoom(t *testing.T) {
	restart := annotated(action, "Restart")
	unbound := func(p *corev1.Pod) { p.Spec.NodeName = "" }
	goes, letGo := deleted(statefulSet, "web-1"), wrote(ours, set("2", restart))
	again := func(name string, change ...func(*corev1.Pod)) *corev1.Pod {
		return pod(name, "2", "web-2", "set", "StatefulSet", append(change, func(p *corev1.Pod) { p.UID = types.UID(name + " again") })...)
	}
	pending := func(name string) step { // soon
		return func(l *trail) {
			unschedulable(statefulSet, again(name, unbound))(l)
			for i := len(l.events) - 2; i < len(l.events); i++ {
				l.events[i].StageTimestamp.Time = l.events[i-1].StageTimestamp.Add(100 * time.Millisecond)
			}
		}
	}
	// second logs that the second pod is restarted after the first one.
	second := together(goes, created(statefulSet, again("web-1")), deleted(statefulSet, "web-0"), pending("web-0"))
	large := func(name string) step { return created(statefulSet, pod(name, "3", "web-3", "set", "StatefulSet")) }
	checkAll(t, []promised{
		{"the first pod finds no node", history{edited(restart), letGo, goes, pending("web-1")}, "room pods/web-1"},
		{"the first pod finds no node, and the one before it had none", history{
			edited(restart), wroteStatus(scheduler, webPod("web-1", "1", unbound)), letGo, goes, pending("web-1"),
		}, ""},
		{"the second finds none, and the set is held", history{edited(restart), second}, "room pods/web-0"},
		{"the second finds none, and it asks for more", history{edited(restart), letGo, second}, "room pods/web-0"},
		{"the second finds none, it asks for no more, and the rollout is the StatefulSet controller's", history{
			created(user, set("3", restart)), large("web-0"), large("web-1"), wrote(user, set("2", restart)), second,
		}, ""},
		{"a pod of somebody else came a moment before", history{
			edited(restart), goes, created(user, pod("other", "1", "", "", "")), after(100 * time.Millisecond), pending("web-1"),
		}, ""},
		{"the image has changed, too", history{edited(restart), wrote(user, set("2", restart, image2)), goes, pending("web-1")}, ""},
	})
}

// TestCanary: no more pods are asked than the canary is, until it has been well.
func TestCanary(t *testing.T) {
	two := func(canary string, d time.Duration) history {
		return history{
			edited(annotated("inplace-rollout.io/canary", canary), annotated("inplace-rollout.io/canary-duration", "10s")),
			asked(webPod("web-1", "2", has("1"))), reported(webPod("web-1", "2", has("2"))), asked(webPod("web-0", "2", has("1"))), after(d),
		}
	}
	canary, complete := annotated("inplace-rollout.io/canary", "1"), func(s *appsv1.StatefulSet) {
		s.Annotations["inplace-rollout.io/canary-duration"] = "10s"
		s.Status.Conditions = []appsv1.StatefulSetCondition{{Type: "inplace-rollout.io/Complete", Status: corev1.ConditionTrue}}
	}
	proved := annotated("inplace-rollout.io/canary-duration", "10s")
	back := func(to string) history {
		born := func(name string) step {
			return created(statefulSet, pod(name, "2", "web-2", "set", "StatefulSet", has("2")))
		}
		return history{
			created(user, set("1", canary)), wroteStatus(ours, set("1", canary, complete)), wrote(user, set("2", canary, complete, annotated(hold, "0"))),
			born("web-0"), born("web-1"), wrote(user, set(to, canary, complete, annotated(hold, "0"))),
			asked(webPod("web-1", to, has("2"))), reported(webPod("web-1", to, has(to))), asked(webPod("web-0", to, has("2"))), after(300 * time.Millisecond),
		}
	}
	checkAll(t, []promised{
		{"all go back", back("1"), ""},
		{"they go on", back("3"), "canary pods/web-0"},
		{"the next is asked at once", two("1", 300*time.Millisecond), "canary pods/web-0"},
		{"the next is asked when the first has been well", two("1", 12*time.Second), ""},
		{"the first is scaled in", history{
			edited(canary, proved), asked(webPod("web-1", "2", has("1"))), reported(webPod("web-1", "2", has("2"))),
			wrote(user, set("2", canary, proved, annotated(hold, "0"), func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To(int32(1)) })),
			asked(webPod("web-0", "2", has("1"))), atOnce(2),
		}, ""},
		{"two are first", two("2", 300*time.Millisecond), ""},
		{"none is", two("", 300*time.Millisecond), ""},
	})
}

// TestRevert: a size is taken back only where its user wants that, for one that was there before.
func TestRevert(t *testing.T) {
	taken := func(action, back string) history {
		return history{edited(annotated("inplace-rollout.io/on-failure", action)), asked(webPod("web-1", "2")), asked(webPod("web-1", back))}
	}
	checkAll(t, []promised{
		{"its user wants it", taken("Revert", "1"), ""},
		{"its user does not", taken("Hold", "1"), "revert pods/web-1"},
		{"for less than before", taken("Revert", "500m"), "revert pods/web-1"},
	})
}

// TestFailed: nobody gets a size that has failed before a person asks for it.
func TestFailed(t *testing.T) {
	stopped, retry := annotated("inplace-rollout.io/rollout", `{"phase":"Stopped","of":"revision b","since":"now"}`), func(value string) func(*appsv1.StatefulSet) {
		return annotated("inplace-rollout.io/retry", value)
	}
	edit := func(cpu string, change ...func(*appsv1.StatefulSet)) step {
		return wrote(user, set(cpu, append(change, annotated(hold, "0"))...))
	}
	failed := func(then ...step) history { return append(history{edited(), edit("2", stopped)}, then...) }
	gets, born := asked(webPod("web-1", "2")), birth("web-1", "2", "web-2")
	reverts := annotated("inplace-rollout.io/on-failure", "Revert")
	of2 := func(cpu string) *corev1.Pod { return pod("web-1", cpu, "web-2", "set", "StatefulSet") }
	checkAll(t, []promised{
		{"it is asked", failed(gets), "failed pods/web-1"},
		{"it is asked a moment later", failed(gets, after(time.Second)), ""},
		{"somebody resizes it", failed(resized(user, webPod("web-1", "2"))), ""},
		{"it is born so", failed(born), "failed pods/web-1"},
		{"it is born as before", failed(birth("web-1", "1", "web-1")), ""},
		{"the record is lost", failed(edit("2"), gets), "failed pods/web-1"},
		{"it is tried again", failed(edit("2", stopped, retry("revision b@now;Restart")), gets), ""},
		{"another one was tried again", failed(edit("2", stopped, retry("revision b@then")), gets), "failed pods/web-1"},
		{"it is opted out", failed(edit("2", optedOut), born), ""},
		{"it is deleted under OnDelete", failed(edit("2", stopped, onDelete), born), ""},
		{"after another edit", failed(edit("3", stopped), born), "failed pods/web-1"},
		{"after an edit that is not held, above a partition", failed(wrote(user, set("3", partitioned)), born), "failed pods/web-1"},
		{"below it", failed(wrote(user, set("3", partitioned)), birth("web-0", "2", "web-2")), ""},
		{"it goes back", history{edited(), hasSize("web-1"), edit("2", stopped), edit("3", stopped, reverts), asked(of2("3")), asked(of2("2"))}, ""},
		{"it goes back to what it is not of", failed(edit("3", stopped, reverts), gets), "failed pods/web-1"},
		{"after an edit there and back", failed(edit("3", stopped), edit("2"), born), ""},
	})
}

// TestHandOver: an operator deletes no pod that may still be resized.
func TestHandOver(t *testing.T) {
	marked := annotated(hold, "OnDelete")
	deletes := func(d time.Duration) step { return together(deleted("operator:web", "web-1"), after(d)) }
	soon := deletes(10 * time.Second)
	// begun logs a set with two pods that is edited, while a controller is there for so long.
	begun := func(there time.Duration, change ...func(*appsv1.StatefulSet)) step {
		edited := set("2", append([]func(*appsv1.StatefulSet){onDelete, marked}, change...)...)
		return together(beat(there), created(user, set("1", onDelete)), webPods, wrote(user, edited))
	}
	reports := func(p *corev1.Pod) step { return together(reported(p), after(time.Second)) }
	retried := wrote(user, set("2", onDelete, marked, annotated("inplace-rollout.io/retry", "again")))
	unmarked := func(s *appsv1.StatefulSet) { delete(s.Annotations, hold) }
	pending := func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
	checkAll(t, []promised{
		{"at once", history{begun(time.Hour), soon}, "hand-over pods/web-1"},
		{"it may not have seen the edit", history{begun(time.Hour), deletes(100 * time.Millisecond)}, ""},
		{"after the deadlines", history{begun(time.Hour), deletes(10 * time.Minute)}, ""},
		{"before the deadlines, by an edit that was tried again", history{
			begun(time.Hour), retried, after(9 * time.Minute), deletes(9 * time.Minute),
		}, "hand-over pods/web-1"},
		{"no controller is there", history{begun(0, unmarked), soon}, ""},
		{"the heartbeat is out of date", history{begun(4 * time.Minute), soon}, ""},
		{"the policies were not there", history{begun(time.Hour), soon, gap(2)}, ""},
		{"one that is infeasible", history{begun(time.Hour), reports(webPod("web-1", "2", infeasible)), soon}, ""},
		{"another one is infeasible", history{begun(time.Hour), reports(webPod("web-0", "2", infeasible)), soon}, "hand-over pods/web-1"},
		{"the policy says that it restarts", history{begun(time.Hour, annotated("inplace-rollout.io/in-force", ";cpu=RestartOnly")), soon}, ""},
		{"another image", history{begun(time.Hour, image2), soon}, ""},
		{"not opted in", history{begun(time.Hour, optedOut), soon}, ""},
		{"one that does not run", history{begun(time.Hour), reports(webPod("web-1", "1", pending)), soon}, ""},
		{"its user deletes it", history{begun(time.Hour), deleted(user, "web-1")}, ""},
	})
}
