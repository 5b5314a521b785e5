package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// demo is a run of the demo.
type demo struct {
	*measure.Cluster
	out      *screen
	recorder *measure.Recorder
	columns  []column // what was measured so far
	visited  bool     // a recorder's visitors come to the pods
}

func (d *demo) introduce(took time.Duration) {
	d.out.title("inplace-rollout beside the built-in rollout")
	if d.Node != nil {
		d.introduceNode(took)
		return
	}
	d.out.say("Real: etcd, API server, controllers, scheduler and kubectl of Kubernetes %s, and", d.Version())
	d.out.say("inplace-rollout, installed from deploy/ and running under its ServiceAccount (all up in %s).", seconds(took))
	d.out.say("Simulated: %d nodes and their kubelets. A resize takes them a moment, as the start of a pod does.", nodes)
}

func (d *demo) introduceNode(took time.Duration) {
	cpu, memory := cgroup.Of("/").Files()
	d.out.say("All of it is real: etcd, API server, controllers, scheduler, kubectl and kubelet of Kubernetes")
	d.out.say("%s, containerd and runc, and inplace-rollout in its image, two replicas, installed from", d.Version())
	d.out.say("deploy/ (all up in %s). The pods run a program that counts its visits in memory: COUNTER.", seconds(took))
	d.out.say("KERNEL is what cgroups grant its container (%s and %s),", cpu, memory)
	d.out.say("PROGRAM READS what the program finds in the same files, from within.")
}

// play is the demo from the first pod to the verdict.
func (d *demo) play(ctx context.Context) error {
	for _, namespace := range []string{inPlace, builtIn} {
		if _, err := d.Kubectl(ctx, "create", "namespace", namespace); err != nil {
			return err
		}
	}
	workloads := counters
	if d.Node == nil {
		workloads = simulated
		if err := d.createVolumes(ctx, 6); err != nil {
			return err
		}
	}
	c := &checker{node: d.Node != nil}
	for _, w := range workloads {
		results, err := d.chapter(ctx, &w)
		if err != nil {
			return err
		}
		c.check(&w, results)
		d.columns = append(d.columns, column{w.kind, results[0].Before.Replicas(), results[0].curve(), results[1].curve()})
	}
	if d.Node == nil {
		if err := d.glance(ctx, c, &agent); err != nil {
			return err
		}
	}
	return d.verdict(ctx, c)
}

// glance shows in a line what an edit does to a workload in place, and built in.
func (d *demo) glance(ctx context.Context, c *checker, w *workload) error {
	d.out.title(fmt.Sprintf("And a %s", w.kind))
	if err := d.create(ctx, w); err != nil {
		return err
	}
	from, subjects := d.recorder.Now(), []measure.Subject{w.subject(inPlace), w.subject(builtIn)}
	for _, of := range subjects {
		if err := d.kubectl(ctx, w.step(of.Namespace, "set resources", w.edit, "").edit); err != nil {
			return err
		}
	}
	history, _ := d.recorder.From(0)
	before := measure.Replay(history[:from], subjects[0]).Template()
	rolled := func(s *measure.State) bool { return s.Settled() && !equality.Semantic.DeepEqual(before, s.Template()) }
	if err := d.recorder.Await(ctx, "both are rolled out", rolled, subjects...); err != nil {
		return err
	}
	history, _ = d.recorder.From(0)
	var told []string
	for i, of := range subjects {
		m := measure.Edit(history, from, of)
		c.act = "edit of " + w.in(of.Namespace)
		n := m.Before.Replicas()
		c.is("pods", len(m.After.Pods), n)
		c.is("pods of another size than the template's", strings.Join(m.After.WrongSize(), ", "), "")
		c.is("hold annotation", m.After.Held(), "none")
		c.is("field that holds", brake(m.After), brake(m.Before))
		want := []int{0, n}[i]
		c.is("pods replaced", m.Replaced, want)
		c.is("containers started anew", m.Started, want)
		c.is("pods not Ready at some time", m.NotReady, want)
		told = append(told, fmt.Sprintf("%d of %d pods replaced, complete after %s", m.Replaced, n, seconds(m.Took)))
	}
	d.out.say("")
	d.out.line(fmt.Sprintf("In place: %s. Built-in: %s.", told[0], told[1]))
	return nil
}

// chapter shows one workload.
func (d *demo) chapter(ctx context.Context, w *workload) ([]result, error) {
	d.out.title(fmt.Sprintf("One %s, twice", w.kind))
	if err := d.create(ctx, w); err != nil {
		return nil, err
	}
	d.out.title("The same edit of both: more " + w.more)
	edits, err := d.edit(ctx, w)
	if err != nil {
		return nil, err
	}
	d.out.title("And back again, in place")
	undo, err := d.undo(ctx, w)
	if err != nil {
		return nil, err
	}
	d.out.title(fmt.Sprintf("What was measured of the %ss", w.kind))
	history, _ := d.recorder.From(0)
	results := []result{
		edits.result("edit", w.subject(inPlace), history[:undo.from]),
		edits.result("same edit", w.subject(builtIn), history),
		undo.result("undo", w.subject(inPlace), history),
	}
	d.summarise(results)
	return results, nil
}

// create makes the workload in both namespaces, waits until its pods are Ready, and
// opts one of the two in.
func (d *demo) create(ctx context.Context, w *workload) error {
	manifest := filepath.Join(d.Dir(), w.file)
	if err := os.WriteFile(manifest, w.manifest, 0o600); err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	for _, namespace := range []string{inPlace, builtIn} {
		if _, err := d.Kubectl(ctx, "apply", "--namespace", namespace, "--filename", manifest); err != nil {
			return err
		}
	}
	if err := d.await(ctx, "all pods are Ready", w.subject(inPlace), w.subject(builtIn)); err != nil {
		return err
	}
	history, _ := d.recorder.From(0)
	d.out.say("test/demo/%s runs in the namespaces %s and %s: %d pods each,", w.file, inPlace, builtIn, measure.Replay(history, w.subject(inPlace)).Replicas())
	d.out.say("%s. In %s one label opts it in:", w.about, inPlace)
	if err := d.kubectl(ctx, "label "+w.in(inPlace)+" inplace-rollout.io/enabled=true"); err != nil {
		return err
	}
	optedIn := func(s *measure.State) bool { return s.OptedIn() && s.Settled() }
	if err := d.recorder.Await(ctx, "it is opted in", optedIn, w.subject(inPlace)); err != nil {
		return err
	}
	return d.told(ctx, w, 1)
}

// await waits until workloads are settled and, where visitors come, until one has
// seen that all containers have their size.
func (d *demo) await(ctx context.Context, what string, subjects ...measure.Subject) error {
	if err := d.recorder.Await(ctx, what, (*measure.State).Settled, subjects...); err != nil || !d.visited {
		return err
	}
	granted := func(s *measure.State) bool { return len(otherwise(s)) == 0 }
	return d.recorder.Await(ctx, "kernel and programs have the sizes", granted, subjects...)
}

// told waits for the nth event that tells of a complete rollout. Events come a little
// after what they tell of; without waiting they would count for the next edit.
func (d *demo) told(ctx context.Context, w *workload, n int) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		events, err := d.Client.CoreV1().Events(inPlace).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + w.name + ",reason=" + rollout.EventComplete,
		})
		if err != nil {
			return false, err
		}
		count := 0
		for _, event := range events.Items {
			count += int(event.Count)
		}
		return count >= n, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for event %d of reason %s: %w", n, rollout.EventComplete, err)
	}
	return nil
}

// createVolumes makes volumes for the claims and waits until they can be claimed.
func (d *demo) createVolumes(ctx context.Context, n int) error {
	for i := range n {
		name := fmt.Sprintf("disk-%d", i+1)
		volume := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName:              "manual",
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
				AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: "simulated.example.com", VolumeHandle: name},
				},
			},
		}
		if _, err := d.Client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating volume %s: %w", name, err)
		}
	}
	_, err := d.Kubectl(ctx, "wait", "pv", "--all", "--for=jsonpath={.status.phase}=Available", "--timeout=30s")
	return err
}

// edit changes the resources in both namespaces and shows what comes of it.
func (d *demo) edit(ctx context.Context, w *workload) (act, error) {
	a, err := d.act(ctx, w, 2,
		w.step(inPlace, "set resources", w.edit, w.waiter),
		w.step(builtIn, "set resources", w.edit, rolloutStatus))
	if err != nil {
		return act{}, err
	}
	d.out.say("")
	d.out.say("What inplace-rollout tells of it:")
	return a, d.kubectl(ctx, ourEvents(w.kind))
}

// ourEvents is the kubectl command that shows them.
func ourEvents(kind string) string {
	return "get events -n " + inPlace + " --field-selector=involvedObject.kind=" + kind + ",source=inplace-rollout" +
		" --no-headers --output=custom-columns=:.reason,:.message"
}

// undo takes the edit of the opted-in workload back.
func (d *demo) undo(ctx context.Context, w *workload) (act, error) {
	if err := d.kubectl(ctx, "rollout history "+w.in(inPlace)); err != nil {
		return act{}, err
	}
	return d.act(ctx, w, 3, w.step(inPlace, "rollout undo", "", w.waiter))
}

// step is an edit in one namespace, and the command that waits for what comes of it.
type step struct {
	namespace    string
	edit, waiter string // commands of kubectl
}

func (w *workload) step(namespace, edit, flags, waiter string) step {
	name := " " + w.in(namespace) + " "
	return step{namespace, strings.TrimSpace(edit + name + flags), waiter + name + "--timeout=1m"}
}

// act is one edit of a workload in some namespaces.
type act struct {
	from     int // its first moment
	outcomes map[string]*outcome
}

// outcome is what is known besides the watches of an act in one namespace.
type outcome struct {
	said      string                 // by kubectl's waiter, at last
	returned  time.Time              // when that has ended
	pods      map[string]*corev1.Pod // right after that
	audit     measure.Trail
	revisions []string // that `kubectl rollout history` lists in the end
}

// act runs kubectl's edits, and then its waiters, while it shows the pods. It ends
// when all waiters have ended, the workloads are settled, and the nth complete
// rollout was told of.
func (d *demo) act(ctx context.Context, w *workload, nth int, steps ...step) (act, error) {
	mark, err := d.AuditMark()
	if err != nil {
		return act{}, err
	}
	a := act{from: d.recorder.Now(), outcomes: map[string]*outcome{}}
	for _, s := range steps {
		if err := d.kubectl(ctx, s.edit); err != nil {
			return act{}, err
		}
		a.outcomes[s.namespace] = &outcome{}
	}
	if err := d.follow(ctx, w, a, steps); err != nil {
		return act{}, err
	}
	for i, s := range steps {
		d.out.quote(fmt.Sprintf("[%d] %s", i+1, a.outcomes[s.namespace].said))
	}
	if err := d.told(ctx, w, nth); err != nil {
		return act{}, err
	}
	for namespace, o := range a.outcomes {
		if o.revisions, err = d.revisions(ctx, w, namespace); err != nil {
			return act{}, err
		}
		if o.audit, err = d.audit(mark, namespace); err != nil {
			return act{}, err
		}
	}
	return a, nil
}

// wait runs kubectl's waiter, and looks at once whether it has waited for all pods.
func (d *demo) wait(ctx context.Context, w *workload, s step, o *outcome) error {
	said, err := d.Kubectl(ctx, strings.Fields(s.waiter)...)
	if err != nil {
		return err
	}
	o.said, o.returned, o.pods = lastLine(said), time.Now(), map[string]*corev1.Pod{}
	pods, err := d.Client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + w.name})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			o.pods[pod.Name] = &pod
		}
	}
	return nil
}

// revisions are those that `kubectl rollout history` lists.
func (d *demo) revisions(ctx context.Context, w *workload, namespace string) ([]string, error) {
	said, err := d.Kubectl(ctx, strings.Fields("rollout history "+w.in(namespace))...)
	if err != nil {
		return nil, err
	}
	var revisions []string
	for line := range strings.Lines(said) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] != "REVISION" {
			revisions = append(revisions, fields[0])
		}
	}
	return revisions, nil
}

// kubectl shows a command as one types it, runs exactly that, and shows what it says.
func (d *demo) kubectl(ctx context.Context, line string) error {
	d.out.command("kubectl " + line)
	said, err := d.Kubectl(ctx, strings.Fields(line)...)
	d.out.quote(strings.TrimSpace(said))
	return err
}
