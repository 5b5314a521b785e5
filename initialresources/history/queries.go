package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// source is where series come from: the matchers that all of them have, and the flag that names
// those of it alone.
type source struct {
	matchers []string
	flag     string
	common   []string // the matchers that series of other sources have, too
}

// selector is what a metric's name and matchers select of a source.
func (s source) selector(metric string, matchers ...string) string {
	return metric + "{" + strings.Join(slices.Concat(s.common, s.matchers, matchers), ",") + "}"
}

// elsewhere asks which jobs have a metric, whichever of them is the source.
func (s source) elsewhere(metric string) string {
	return "group by (job) (" + source{common: s.common}.selector(metric) + ")"
}

func duration(d time.Duration) string { return model.Duration(d).String() }

// What is asked for may be there twice: two replicas of Prometheus behind one Thanos, two of
// kube-state-metrics, and for a while a container beside the one that it follows.

// runners asks which containers had which images in the time before.
func (r *reader) runners(before time.Duration, where ...[]string) string {
	var either []string
	for _, matchers := range where {
		for _, metric := range []string{r.Info, r.InitInfo} {
			either = append(either, fmt.Sprintf("max_over_time(%s[%s])", r.states.selector(metric, matchers...), duration(before)))
		}
	}
	return "group by (namespace, pod, container, image_spec, image) (" + strings.Join(either, " or ") + ")"
}

// usage leaves out the pod as a whole, and what holds its network: a third of what cAdvisor has
// is enough.
func (r *reader) usage(what, metric string, where []string) string {
	selector := r.cadvisor.selector(metric, append([]string{`container!=""`, `container!="POD"`}, where...)...)
	return "max by (namespace, pod, container) (" + fmt.Sprintf(what, selector+"["+duration(r.Range)+"]") + ")"
}

// cpu is that of all cores together; some have a series for each.
func (r *reader) cpu(where []string) string {
	return r.usage("sum without (cpu) (rate(%s))", r.CPU, where)
}

// memory is not looked for up to five minutes back, as it would be without a function:
// cAdvisor gives its samples times, and so that of a container that is gone stays for as long.
func (r *reader) memory(where []string) string { return r.usage("last_over_time(%s)", r.Memory, where) }

// settled is how long kube-state-metrics may take to tell of a container's end.
const settled = 2 * time.Minute

// kills has a sample for each time that a container was killed for want of memory.
//
// container_oom_events_total counts something else: cAdvisor keeps it for a cgroup, and when
// a container's first process is killed, or all of them at once, which is the rule on cgroup
// v2, that cgroup is gone before the count is scraped. What stays are kills of children.
//
// kube-state-metrics knows from the pod's status why a container ended last. It goes on
// saying so until it ends again, so what counts is that it was restarted since the step
// before; of several restarts between two steps, one. A container that nobody starts again
// (a Job's) says for good why it ended; it counts in the one step that is so long after the
// end. This way each step stands for itself: pieces can be read in any order, and a gap in
// the series hides a kill, but never counts one that was long ago.
func (r *reader) kills(where []string) string {
	const by, killed = "max by (namespace, pod, container, uid)", `reason="OOMKilled"`
	killedWhere := append([]string{killed}, where...)
	offset := " offset " + duration(r.Resolution)
	restarts, initRestarts := r.states.selector(r.Restarts, where...), r.states.selector(r.InitRestarts, where...)
	return fmt.Sprintf("%s (%s or %s) > %s (%s or %s) and on (namespace, pod, container, uid) %s (%s or %s) == 1",
		by, restarts, initRestarts, by, restarts+offset, initRestarts+offset,
		by, r.states.selector(r.LastTerminated, killedWhere...), r.states.selector(r.InitLastTerminated, killedWhere...)) +
		fmt.Sprintf(" or %s (%s) == 1 and on (namespace, pod, uid) time() - max by (namespace, pod, uid) (%s) >= %d < %d",
			by, r.states.selector(r.Terminated, killedWhere...), r.states.selector(r.Completion, where...),
			int(settled.Seconds()), int((settled+r.Resolution).Seconds()))
}
