package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// The same database runs in both namespaces; only the first is opted in.
const (
	inPlace = "demo"
	builtIn = "demo-builtin"
)

//go:embed database.yaml
var database []byte

// demo is a run of the demo.
type demo struct {
	*cluster
	out      *screen
	recorder *recorder
}

func (d *demo) introduce(took time.Duration) {
	d.out.title("inplace-rollout beside the built-in rollout")
	d.out.say("Real: etcd, API server, controllers, scheduler and kubectl of Kubernetes %s, and inplace-rollout,", d.Version())
	d.out.say("installed from deploy/ and running under its ServiceAccount (all of it up in %s).", seconds(took))
	d.out.say("Simulated: %d nodes and their kubelets. They take a moment for a resize, and for the start of a pod.", len(nodes))
}

// play is the demo from the first pod to the verdict.
func (d *demo) play(ctx context.Context) error {
	d.out.title("One database, twice")
	if err := d.create(ctx); err != nil {
		return err
	}
	d.out.title("The same edit of both: more cpu and memory")
	edits, err := d.edit(ctx)
	if err != nil {
		return err
	}
	d.out.title("And back again, in place")
	undo, err := d.undo(ctx)
	if err != nil {
		return err
	}
	d.out.title("What was measured")
	history, _ := d.recorder.from(0)
	results := []result{
		{name: "edit", namespace: inPlace, measurement: measure(history[:undo.from], edits.from, inPlace), audit: edits.audit[inPlace]},
		{name: "same edit", namespace: builtIn, measurement: measure(history, edits.from, builtIn), audit: edits.audit[builtIn]},
		{name: "undo", namespace: inPlace, measurement: measure(history, undo.from, inPlace), audit: undo.audit[inPlace]},
	}
	d.summarise(results)
	return d.verify(ctx, results)
}

// create makes the volumes and both databases, waits until they are Ready, and opts
// one of them in.
func (d *demo) create(ctx context.Context) error {
	const replicas = 3
	if err := d.createVolumes(ctx, 2*replicas); err != nil {
		return err
	}
	manifest := filepath.Join(d.Dir(), "database.yaml")
	if err := os.WriteFile(manifest, database, 0o600); err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	for _, namespace := range []string{inPlace, builtIn} {
		if _, err := d.Kubectl(ctx, "create", "namespace", namespace); err != nil {
			return err
		}
		if _, err := d.Kubectl(ctx, "apply", "--namespace", namespace, "--filename", manifest); err != nil {
			return err
		}
	}
	if err := d.recorder.await(ctx, "both databases are Ready", (*state).settled, inPlace, builtIn); err != nil {
		return err
	}
	d.out.say("test/demo/database.yaml runs in the namespaces %s and %s: %d pods each, two containers,", inPlace, builtIn, replicas)
	d.out.say("probes, a volume claim each, a PodDisruptionBudget. In %s one label opts it in:", inPlace)
	if err := d.kubectl(ctx, "label statefulset/db -n "+inPlace+" inplace-rollout.io/enabled=true"); err != nil {
		return err
	}
	optedIn := func(s *state) bool { return s.optedIn() && s.settled() }
	if err := d.recorder.await(ctx, "the database is opted in", optedIn, inPlace); err != nil {
		return err
	}
	return d.told(ctx, 1)
}

// told waits for the nth event that tells of a complete rollout. Events come a little
// after what they tell of; without waiting they would count for the next edit.
func (d *demo) told(ctx context.Context, n int) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		events, err := d.client.CoreV1().Events(inPlace).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=db,reason=" + rollout.EventComplete,
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
		if _, err := d.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating volume %s: %w", name, err)
		}
	}
	_, err := d.Kubectl(ctx, "wait", "pv", "--all", "--for=jsonpath={.status.phase}=Available", "--timeout=30s")
	return err
}

// act is a finished edit.
type act struct {
	from  int               // its first moment
	audit map[string]writes // by namespace
}

// edit changes the resources of both databases and shows what comes of it.
func (d *demo) edit(ctx context.Context) (act, error) {
	edit := func(namespace string) string {
		return "set resources statefulset/db -n " + namespace + " -c database --requests=cpu=1,memory=1Gi --limits=memory=1Gi"
	}
	a, err := d.act(ctx,
		2, []string{edit(inPlace), edit(builtIn)},
		[]string{waitComplete, "rollout status statefulset/db -n " + builtIn + " --timeout=1m"},
		inPlace, builtIn)
	if err != nil {
		return act{}, err
	}
	d.out.say("")
	d.out.say("What inplace-rollout tells of it:")
	return a, d.kubectl(ctx, "get events -n "+inPlace+" --field-selector=involvedObject.kind=StatefulSet,source=inplace-rollout"+
		" --no-headers --output=custom-columns=:.reason,:.message")
}

// undo takes the edit of the opted-in database back.
func (d *demo) undo(ctx context.Context) (act, error) {
	return d.act(ctx, 3, []string{"rollout undo statefulset/db -n " + inPlace}, []string{waitComplete}, inPlace)
}

const waitComplete = "wait --for=condition=inplace-rollout.io/Complete statefulset/db -n " + inPlace + " --timeout=1m"

// act runs kubectl's edits, and then its waiters, while it shows the pods of the
// namespaces. It ends when all waiters have ended, the sets are settled, and the nth
// complete rollout was told of.
func (d *demo) act(ctx context.Context, nth int, edits, waiters []string, namespaces ...string) (act, error) {
	mark, err := d.AuditMark()
	if err != nil {
		return act{}, err
	}
	a := act{from: d.recorder.now()}
	for _, line := range edits {
		if err := d.kubectl(ctx, line); err != nil {
			return act{}, err
		}
	}
	said, err := d.follow(ctx, a.from, waiters, namespaces)
	if err != nil {
		return act{}, err
	}
	for i := range waiters {
		d.out.quote(fmt.Sprintf("[%d] %s", i+1, lastLine(said[i])))
	}
	if err := d.told(ctx, nth); err != nil {
		return act{}, err
	}
	a.audit, err = d.audit(mark, namespaces)
	return a, err
}

// kubectl shows a command as one types it, runs exactly that, and shows what it says.
func (d *demo) kubectl(ctx context.Context, line string) error {
	d.out.command("kubectl " + line)
	said, err := d.Kubectl(ctx, strings.Fields(line)...)
	d.out.quote(said)
	return err
}
