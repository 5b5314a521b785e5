package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// The same Deployment, which states no size, runs in two namespaces; in the first one new pods
// get requests by what others of their image have used.
const (
	sized   = "shop"
	unsized = "plain"
)

//go:embed shop.yaml
var shopManifest []byte

var (
	inSized   = measure.Subject{Namespace: sized, Name: "web"}
	inUnsized = measure.Subject{Namespace: unsized, Name: "web"}
)

// initial is the demo of initial resources.
type initial struct {
	*demo
	checker
	measured

	options options
	known   time.Time // until when the history was made
}

// playInitial plays the demo of initial resources, and ends what it starts.
func (d *demo) playInitial(ctx context.Context, o options, begin time.Time) (err error) {
	if !d.AtLeast("1.36") {
		return fmt.Errorf("the API server of Kubernetes %s has no MutatingAdmissionPolicy, by which pods get requests", d.Version())
	}
	i := &initial{demo: d, options: o}
	defer func() { err = errors.Join(err, i.end()) }()
	for _, act := range []func(context.Context) error{i.prepare, i.estimate, i.birth, i.newVersion, i.evidence, i.refusal, i.stateSize} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	i.checker.act = "estimator"
	i.is("readiness", i.estimator.Ready(ctx), nil)
	i.checker.act = "controller"
	i.is("readiness", i.Ready(ctx), nil)
	return d.conclude(&i.checker, fmt.Sprintf("born with requests, resized while running (%s in all).", seconds(time.Since(begin))))
}

// prepare has pods run that state no size, and a Prometheus that knows for how long, and how much
// they have used.
func (i *initial) prepare(ctx context.Context) error {
	i.out.title("Initial resources")
	i.out.say("Real: etcd, API server, controllers, scheduler and kubectl of Kubernetes %s, Prometheus, and", i.Version())
	i.out.say("inplace-rollout: controller and estimator, as deploy/ and deploy/initial-resources install them,")
	i.out.say("each under its ServiceAccount. Simulated: %d nodes and their kubelets, and what cAdvisor and", nodes)
	i.out.say("kube-state-metrics say of their pods.")
	i.out.say("All goes %d times as fast as usual: a sample is taken each second, and not each minute, so that", lapse)
	i.out.say("the ladder's 7 days are 168 minutes, and its 60 samples of a pod a minute.")
	i.out.line("")
	manifest := filepath.Join(i.Dir(), "shop.yaml")
	if err := os.WriteFile(manifest, shopManifest, 0o600); err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	for _, namespace := range []string{sized, unsized} {
		if _, err := i.Kubectl(ctx, "create", "namespace", namespace); err != nil {
			return err
		}
		if _, err := i.Kubectl(ctx, "apply", "--namespace", namespace, "--filename", manifest); err != nil {
			return err
		}
	}
	if err := i.recorder.Await(ctx, "all pods are Ready", (*measure.State).Settled, inSized, inUnsized); err != nil {
		return err
	}
	i.out.say("test/demo/shop.yaml runs in the namespaces %s and %s: a Deployment that states no size.", sized, unsized)
	i.showPods()
	i.each("before", inSized, i.bestEffort)
	i.each("before", inUnsized, i.bestEffort)
	if err := i.startPrometheus(ctx, i.Cluster, i.now(inSized).PodNames(), sized); err != nil {
		return err
	}
	i.known = time.Now()
	return nil
}

// now is a subject as it is.
func (i *initial) now(of measure.Subject) *measure.State {
	history, _ := i.recorder.From(0)
	return measure.Replay(history, of)
}

// showPods shows the pods, and what they request.
func (i *initial) showPods() {
	i.out.line("")
	row := func(cells ...string) string {
		return pad(cells[0], 12) + pad(cells[1], 24) + cells[2]
	}
	i.out.line(i.out.paint(dim, row("NAMESPACE", "POD", pad("QOS CLASS", 13)+pad("CPU", 10)+"MEMORY")))
	for _, of := range []measure.Subject{inSized, inUnsized} {
		s := i.now(of)
		for _, name := range s.PodNames() {
			class, st := string(s.Pods[name].Status.QOSClass), green
			if s.Pods[name].Status.QOSClass == corev1.PodQOSBestEffort {
				st = red
			}
			requested := []string{none, none}
			for j, resource := range estimate.Resources {
				if q, has := s.Pods[name].Spec.Containers[0].Resources.Requests[resource]; has {
					requested[j] = q.String()
				}
			}
			i.out.line(row(of.Namespace, name, i.out.paint(st, pad(class, 13))+pad(requested[0], 10)+requested[1]))
		}
	}
	i.out.line("")
}

// each checks each pod of a subject.
func (i *initial) each(when string, of measure.Subject, is func(*corev1.Pod)) {
	pods := i.now(of).Pods
	i.checker.act = fmt.Sprintf("%s: pods of %s", when, of)
	i.is("number", len(pods), 3)
	for _, pod := range pods {
		i.checker.act = fmt.Sprintf("%s: pod %s/%s", when, pod.Namespace, pod.Name)
		is(pod)
	}
}

func (i *initial) bestEffort(pod *corev1.Pod) {
	i.is("QoS class", pod.Status.QOSClass, corev1.PodQOSBestEffort)
	i.is("requests", len(pod.Spec.Containers[0].Resources.Requests), 0)
}

// requests checks that a pod has been given about so much, and why.
func (i *initial) requests(pod *corev1.Pod, from estimate.From, cores, bytes, within float64) {
	has := pod.Spec.Containers[0].Resources.Requests
	near := func(got, want float64) bool { return got > want*(1-within) && got < want*(1+within) }
	i.is("QoS class", pod.Status.QOSClass, corev1.PodQOSBurstable)
	i.is(fmt.Sprintf("request of cpu %s is about %.0fm", has.Cpu(), 1000*cores), near(has.Cpu().AsApproximateFloat64(), cores), true)
	i.is(fmt.Sprintf("request of memory %s is about %.0fMi", has.Memory(), bytes/mib), near(has.Memory().AsApproximateFloat64(), bytes), true)
	i.is("limits", len(pod.Spec.Containers[0].Resources.Limits), 0)
	for _, resource := range estimate.Resources {
		why := whyOf(pod)[resource]
		request := has[resource]
		i.is(fmt.Sprintf("%s of the annotation", resource), why.Request.Cmp(request), 0)
		i.is(fmt.Sprintf("%s is of the samples of the", resource), why.From, from)
		i.is(fmt.Sprintf("%s has 60 samples or more", resource), why.Samples >= 60, true)
	}
}

// whyOf is what a pod's annotation says of its container.
func whyOf(pod *corev1.Pod) map[corev1.ResourceName]estimate.Estimate {
	var all map[string]map[corev1.ResourceName]estimate.Estimate
	_ = json.Unmarshal([]byte(pod.Annotations[api.EstimateAnnotation]), &all) // what it does not say is missing
	return all["web"]
}

// estimate shows what is known of the image, before anything in the cluster goes by it.
func (i *initial) estimate(ctx context.Context) error {
	i.out.title("What is known")
	i.out.say("Those of %s have been running for %.0f minutes, as Prometheus knows (promtool has made its history):", sized, past.Minutes())
	args := append([]string{"estimate", image + ":" + oldVersion, "-n", sized, "-o", "wide", "--prometheus-url=" + i.server.URL()}, timelapse...)
	i.out.command("inplace-rollout " + strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, i.options.controller, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+i.Kubeconfig())
	said, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(said)) {
		i.out.line(i.out.paint(dim, strings.TrimRight(line, " \n")))
	}
	if err != nil {
		return fmt.Errorf("running inplace-rollout estimate: %w", err)
	}
	return nil
}

// birth has pods of the old version born with requests.
func (i *initial) birth(ctx context.Context) error {
	i.out.title("Born with requests")
	i.out.say("The estimator publishes what it knows in each namespace that one label opts in:")
	if err := i.startEstimator(ctx, i.Cluster, i.options); err != nil {
		return err
	}
	if err := i.kubectl(ctx, "label namespace "+sized+" "+api.InitialResourcesLabel+"="+api.InitialResourcesEnabled); err != nil {
		return err
	}
	if err := i.published(ctx); err != nil {
		return err
	}
	if err := i.reborn(ctx, "rollout restart deployment/web"); err != nil {
		return err
	}
	cores, bytes := percentile(i.known)
	i.each("born", inSized, func(pod *corev1.Pod) { i.requests(pod, estimate.FromTag, cores, bytes, 0.05) })
	i.each("born", inUnsized, i.bestEffort)
	i.out.say("Why? So says the pod's event, and its annotation:")
	return i.why(ctx, inSized, "InitialResourcesSet")
}

// published waits until the API server knows the estimates: it would give them to a pod.
func (i *initial) published(ctx context.Context) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "probe"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image + ":" + oldVersion}}},
	}
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		born, err := i.Client.CoreV1().Pods(sized).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && len(born.Spec.Containers[0].Resources.Requests) == 2, err
	})
	if err != nil {
		return fmt.Errorf("waiting for estimates: %w", err)
	}
	return nil
}

// reborn has both Deployments replace their pods, as they always do, and shows the new ones.
func (i *initial) reborn(ctx context.Context, edit string) error {
	for _, of := range []measure.Subject{inSized, inUnsized} {
		before := i.now(of)
		if err := i.kubectl(ctx, edit+" -n "+of.Namespace); err != nil {
			return err
		}
		replaced := func(s *measure.State) bool {
			return s.Settled() && !slices.ContainsFunc(s.PodNames(), func(name string) bool { return before.Pods[name] != nil })
		}
		if err := i.recorder.Await(ctx, "the pods are replaced", replaced, of); err != nil {
			return err
		}
	}
	i.showPods()
	return nil
}

// why waits until all pods have an event, shows those of the first one, and what its annotation says.
func (i *initial) why(ctx context.Context, of measure.Subject, reason string) error {
	names := i.now(of).PodNames()
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		events, err := i.Client.CoreV1().Events(of.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(names, func(name string) bool {
			return !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.InvolvedObject.Name == name })
		}), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for events %s: %w", reason, err)
	}
	if err := i.kubectl(ctx, fmt.Sprintf("get events -n %s --field-selector=involvedObject.name=%s,reason=%s --no-headers -o custom-columns=:.reason,:.message", of.Namespace, names[0], reason)); err != nil {
		return err
	}
	i.explain(i.now(of).Pods[names[0]])
	return nil
}

// explain tells what a pod's annotation says, as a person would.
func (i *initial) explain(pod *corev1.Pod) {
	for _, resource := range estimate.Resources {
		e := whyOf(pod)[resource]
		of := "the same image and tag"
		if e.From == estimate.FromImage {
			of = "the same image, in any tag"
		}
		i.out.say("  %s: of %d samples in the last %s of %s, %g %% are %s or less.", resource, e.Samples, e.Window, of, e.Percentile, &e.Request)
	}
}

// newVersion rolls a version out that nobody has seen.
func (i *initial) newVersion(ctx context.Context) error {
	i.out.title("A version that nobody has seen")
	i.out.say("It uses more than the old one, but who knows that? Its pods get what older versions have used:")
	if err := i.reborn(ctx, "set image deployment/web web="+image+":"+newVersion); err != nil {
		return err
	}
	cores, bytes := percentile(i.known)
	i.each("new version", inSized, func(pod *corev1.Pod) { i.requests(pod, estimate.FromImage, cores, bytes, 0.08) })
	i.each("new version", inUnsized, i.bestEffort)
	return i.why(ctx, inSized, "InitialResourcesSet")
}

// evidence waits until enough is known of the new version, and the estimator has resized its pods.
func (i *initial) evidence(ctx context.Context) error {
	i.out.title("Evidence grows, and the pods with it")
	i.out.say("When there are 60 samples of the new version, its own usage counts. The estimator (with")
	i.out.say("--resize-afterwards) then resizes the pods that it has sized, while they run. It takes half a minute.")
	i.out.line("")
	mark, err := i.AuditMark()
	if err != nil {
		return err
	}
	from := i.recorder.Now()
	watching, stop := context.WithCancel(ctx)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		i.show(watching, from, i.view(from, []measure.Subject{inSized}))
	}()
	cores, bytes := 0.465, 192.5*mib
	enough := func(s *measure.State) bool {
		for _, pod := range s.Pods {
			c := pod.Spec.Containers[0]
			why, status := whyOf(pod), measure.ContainerStatus(pod, c.Name)
			if why[corev1.ResourceCPU].From != estimate.FromTag || why[corev1.ResourceMemory].From != estimate.FromTag ||
				c.Resources.Requests.Cpu().MilliValue() < 400 || status.Resources == nil || !equality.Semantic.DeepEqual(*status.Resources, c.Resources) {
				return false
			}
		}
		return s.Settled()
	}
	err = i.recorder.Await(ctx, "all pods are resized", enough, inSized)
	stop()
	<-shown
	i.out.line("")
	if err != nil {
		return err
	}
	history, _ := i.recorder.From(0)
	m := measure.Edit(history, from, inSized)
	i.checker.act = "evidence"
	i.untouched(m)
	i.each("evidence", inSized, func(pod *corev1.Pod) { i.requests(pod, estimate.FromTag, cores, bytes, 0.1) })
	w, err := i.audit(mark, sized)
	if err != nil {
		return err
	}
	resizes, err := i.AuditSince(mark, controlplane.ByUser(controller.EstimatorUser), controlplane.OnResource("pods", "resize"))
	if err != nil {
		return err
	}
	i.checker.act = "evidence, audit log"
	i.is("pods created", w.Created, 0)
	i.is("pods deleted", w.Deleted, 0)
	i.is("resizes by the estimator, one of each pod at least", len(resizes) >= 3, true)
	return i.why(ctx, inSized, "InitialResourcesResized")
}

// untouched checks that all pods are those of before, and have noticed nothing.
func (i *initial) untouched(m measure.Measurement) {
	i.is("pods replaced", m.Replaced, 0)
	i.is("containers started anew", m.Started, 0)
	i.is("container restarts", m.Restarts, 0)
	i.is("pods not Ready at some time", m.NotReady, 0)
}

// refusal tries to give a request to a pod that was born without any.
func (i *initial) refusal(ctx context.Context) error {
	i.out.title("Born BestEffort, for life")
	i.out.say("The same Deployment in %s uses as much. Can a pod there be given a request while it runs?", unsized)
	name := i.now(inUnsized).PodNames()[0]
	const patch = `{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"465m"}}}]}}`
	line := "patch pod " + name + " -n " + unsized + " --subresource=resize --patch "
	i.out.command("kubectl " + line + "'" + patch + "'")
	_, err := i.Kubectl(ctx, append(strings.Fields(line), patch)...)
	i.checker.act = "BestEffort"
	i.is("the resize was refused", err != nil, true)
	if err != nil {
		_, said, _ := strings.Cut(err.Error(), "exit status 1: ")
		i.out.quote(said)
		i.is("the API server's reason is the QoS class", strings.Contains(strings.ToLower(said), "qos"), true)
	}
	i.each("BestEffort", inUnsized, i.bestEffort)
	return nil
}

// stateSize states a size in both templates.
func (i *initial) stateSize(ctx context.Context) error {
	i.out.title("And when somebody states a size")
	i.out.say("What a template states always wins. Both Deployments are opted in for rollouts in place:")
	for _, of := range []measure.Subject{inSized, inUnsized} {
		if err := i.kubectl(ctx, "label deployment/web -n "+of.Namespace+" "+api.EnabledLabel+"=true"); err != nil {
			return err
		}
	}
	both := []measure.Subject{inSized, inUnsized}
	if err := i.recorder.Await(ctx, "both are opted in", func(s *measure.State) bool { return s.OptedIn() && s.Settled() }, both...); err != nil {
		return err
	}
	from := i.recorder.Now()
	for _, of := range both {
		if err := i.kubectl(ctx, "set resources deployment/web -n "+of.Namespace+" --requests=cpu=600m,memory=256Mi"); err != nil {
			return err
		}
	}
	rolled := func(s *measure.State) bool {
		return s.Settled() && len(s.Template().Spec.Containers[0].Resources.Requests) == 2
	}
	if err := i.recorder.Await(ctx, "both are rolled out", rolled, both...); err != nil {
		return err
	}
	history, _ := i.recorder.From(0)
	replaced := map[string]int{}
	for _, of := range both {
		m := measure.Edit(history, from, of)
		i.checker.act = "edit of " + of.String()
		i.is("pods of another size than the template's", strings.Join(m.After.WrongSize(), ", "), "")
		replaced[of.Namespace] = m.Replaced
		if of == inSized {
			i.untouched(m)
		} else {
			i.is("pods replaced", m.Replaced, 3)
		}
	}
	i.out.say("")
	i.out.say("In %s %d of 3 pods were replaced, in %s %d of 3.", sized, replaced[sized], unsized, replaced[unsized])
	i.showPods()
	return nil
}
