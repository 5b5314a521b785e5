package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// waiting is what the pod agent-INDEX, on the node n-INDEX, waits for; POD and NODE in the
// message are those names.
func waiting(index int, reason, message string) rollout.Wait {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("agent-%d", index)}, Spec: corev1.PodSpec{NodeName: fmt.Sprintf("n-%d", index)}}
	return rollout.Wait{
		Member: judge.Member{Place: judge.Place{Name: pod.Name, Pod: pod}}, Reason: reason,
		Message: strings.NewReplacer("POD", pod.Name, "NODE", pod.Spec.NodeName).Replace(message),
	}
}

const onlyThere = "it can run only on node NODE: infeasible on node NODE: too big"

const tooSmall = `infeasible on node NODE: pods "POD" is forbidden: cpu, requested: 4000, allocatable: 2000; left as it is`

// inUse is a node that has no room, and each has another figure for that.
func inUse(i int) rollout.Wait {
	return waiting(i, judge.ReasonDeferred, fmt.Sprintf("deferred on node NODE: no room, used: %d", 1900+i))
}

func TestWaitsThatAreAlike(t *testing.T) {
	infeasible := func(from, to int) (waits []rollout.Wait) {
		for i := from; i <= to; i++ {
			waits = append(waits, waiting(i, judge.ReasonInfeasible, tooSmall))
		}
		return waits
	}
	const first = `0 of 20 pods resized; agent-1: infeasible on node n-1: pods "agent-1" is forbidden: cpu, requested: 4000, allocatable: 2000; left as it is`
	for name, tt := range map[string]struct {
		waits []rollout.Wait
		want  string
	}{
		"one":  {infeasible(1, 1), first},
		"two":  {infeasible(1, 2), first + "; likewise agent-2 on node n-2"},
		"many": {infeasible(1, 20), first + "; likewise agent-2 on node n-2, agent-3 on node n-3, agent-4 on node n-4, agent-5 on node n-5 and 15 more"},
		"a pod or node whose name begins like another": {append(infeasible(1, 1), infeasible(10, 10)...), first + "; likewise agent-10 on node n-10"},
		"about a node that is named twice": {
			[]rollout.Wait{waiting(1, judge.ReasonNoNodeFits, onlyThere), waiting(2, judge.ReasonNoNodeFits, onlyThere)},
			"0 of 20 pods resized; agent-1: it can run only on node n-1: infeasible on node n-1: too big; likewise agent-2 on node n-2",
		},
		"of another number": {
			append(infeasible(1, 1), waiting(2, judge.ReasonInfeasible, strings.Replace(tooSmall, "2000", "3000", 1))),
			first + `; agent-2: infeasible on node n-2: pods "agent-2" is forbidden: cpu, requested: 4000, allocatable: 3000; left as it is`,
		},
		"of many numbers": {
			[]rollout.Wait{inUse(1), waiting(9, "A", "a"), inUse(2), inUse(3), inUse(4)},
			"0 of 20 pods resized; agent-1: deferred on node n-1: no room, used: 1901; likewise agent-2 on node n-2, agent-3 on node n-3, agent-4 on node n-4; agent-9: a",
		},
		"of a few numbers": {
			[]rollout.Wait{inUse(1), inUse(2), inUse(3)},
			"0 of 20 pods resized; agent-1: deferred on node n-1: no room, used: 1901; agent-2: deferred on node n-2: no room, used: 1902; agent-3: deferred on node n-3: no room, used: 1903",
		},
		"about no node": {
			[]rollout.Wait{waiting(1, judge.ReasonProgressing, "restarting: the image changed"), waiting(2, judge.ReasonProgressing, "restarting: the image changed")},
			"0 of 20 pods resized; agent-1: restarting: the image changed; likewise agent-2",
		},
		"with the same words for another reason": {
			[]rollout.Wait{waiting(1, judge.ReasonNodeLost, "its node NODE is gone"), waiting(2, judge.ReasonProgressing, "its node NODE is gone")},
			"0 of 20 pods resized; agent-1: its node n-1 is gone; agent-2: its node n-2 is gone",
		},
		"more than are spelled out": {
			append([]rollout.Wait{waiting(1, "A", "a"), waiting(2, "B", "b"), waiting(3, "C", "c"), waiting(4, "D", "d"), waiting(5, "A", "a")}, infeasible(6, 8)...),
			"0 of 20 pods resized; agent-1: a; likewise agent-5; agent-2: b; agent-3: c; and 4 more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			must.Equal(t, rollout.Step{Total: 20, Waits: tt.waits}.Condition().Message(), tt.want, "the message")
		})
	}
}

// TestFaultsAreGrouped: pods whose resizes may meet the same fault of their kubelets share a note.
func TestFaultsAreGrouped(t *testing.T) {
	older := build.Size(t, "requests: {memory: 1Mi}, limits: {memory: 2Gi}")
	newer := build.Size(t, "requests: {memory: 1Mi}, limits: {memory: 1Gi}")
	judged := func(pods int, p policy.Policy) rollout.Step {
		var members []judge.Member
		for i := range pods {
			pod := build.Pod(fmt.Sprintf("agent-%d", i), older)
			pod.Spec.NodeName = fmt.Sprintf("n-%d", i)
			target := must.Get(resize.For(pod, older, newer))(t)
			kubelet := resize.Kubelet{Version: "v1.36.4"}
			members = append(members, judge.Member{
				Place:  judge.Place{Name: pod.Name, Pod: pod, Available: true, Target: target.By(kubelet)},
				Policy: p, Kubelet: kubelet,
			})
		}
		o := rollout.Options{Limit: 1, Terms: judge.Terms{Unavailable: 1, Strategy: policy.RollingUpdate}}
		return rollout.Next(judge.Pods(members, o.Terms), o)
	}
	const note = "; kubernetes#141100 might affect agent-0 on node n-0 (kubelet v1.36.4), agent-1 on node n-1 (kubelet v1.36.4)"
	for pods, want := range map[int]string{2: note + ": ", 7: ", agent-4 on node n-4 (kubelet v1.36.4) and 2 more: "} {
		if got := judged(pods, policy.LiveResizeable).Condition(); strings.Count(got.Message(), "kubernetes#") != 1 || !strings.Contains(got.Message(), want) || got.Reason != judge.ReasonProgressing {
			t.Errorf("%d pods: %s: %s", pods, got.Reason, got.Message())
		}
	}
	if got := judged(2, policy.RestartOnly).Condition().Message(); strings.Contains(got, "kubernetes#") {
		t.Errorf("pods that are restarted: %s", got)
	}
}

// The first event names what of the pods does not follow the new size.
func TestOldUntilRestart(t *testing.T) {
	const volumes = "volumes: [{name: shm, emptyDir: {medium: Memory}}, {name: bounded, emptyDir: {medium: Memory, sizeLimit: 1Mi}}, {name: disk, emptyDir: {}}]"
	of := func(cpu, memory string) *corev1.PodTemplateSpec {
		return build.Template(t, fmt.Sprintf("{containers: [{name: app, image: a, env: [{name: CPUS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}], "+
			"resources: {limits: {cpu: %q, memory: %q}}}], %s}", cpu, memory, volumes))
	}
	const shown, kept = "; environment variables that show the old size until a restart: app: CPUS", "; volumes in memory that keep their size until a restart: shm"
	older := of("1", "1Gi")
	for want, newer := range map[string]*corev1.PodTemplateSpec{"": older, shown: of("2", "1Gi"), kept: of("1", "2Gi"), shown + kept: of("2", "2Gi")} {
		target := must.Get(resize.For(build.Pod("web-0", older), older, newer))(t)
		v := &judge.Verdict{Member: judge.Member{Place: judge.Place{Target: target}}, OldEnvironment: target.OldEnvironment()}
		must.Equal(t, rollout.OldUntilRestart([]*judge.Verdict{v, v}, newer), want, "what is said of old pods")
	}
}
