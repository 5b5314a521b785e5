package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// Every workload runs in both namespaces, and only in the first it is opted in.
const (
	inPlace = "demo"
	builtIn = "demo-builtin"
)

// demo is a run of the demo.
type demo struct {
	*measure.Cluster
	screen
	options  options
	begin    time.Time
	recorder *measure.Recorder
	ends     []func() // of what else was started

	checks  int
	wrong   []error // of these
	picture picture
}

// workload is what is shown. Everything that belongs to it has the label app with its name.
type workload struct {
	Kind, Name string
	Replicas   int
	Image      string
	Grace      int

	Requests, Limits string // in YAML
}

// in names the workload in a namespace, as arguments of kubectl.
func (w workload) in(namespace string) string {
	return fmt.Sprintf("%s/%s -n %s", strings.ToLower(w.Kind), w.Name, namespace)
}

// subject is the workload in one of the namespaces.
func (w workload) subject(namespace string) measure.Subject {
	return measure.Subject{Namespace: namespace, Name: w.Name}
}

// introduce says what is real.
func (d *demo) introduce(title string) {
	d.title(title)
	took := time.Since(d.begin).Seconds()
	if d.Node != nil {
		d.say("All of it is real: etcd, API server, controllers, scheduler, kubectl and kubelet of Kubernetes %s, containerd and runc,", d.Version())
		d.say("and inplace-rollout in its image, two replicas, installed from deploy/ (all up in %.1f s).", took)
		return
	}
	d.say("Real: etcd, API server, controllers, scheduler and kubectl of Kubernetes %s, and inplace-rollout, installed from", d.Version())
	d.say("deploy/ and running under its ServiceAccount (all up in %.1f s). Simulated: %d nodes and their kubelets.", took, nodes)
}

// kubectl shows a command as one types it, runs exactly that, and shows what it says.
func (d *demo) kubectl(ctx context.Context, line string) error {
	said, err := d.Kubectl(ctx, strings.Fields(line)...)
	d.say("$ kubectl %s\n%s", line, said)
	return err
}

//go:embed app.yaml
var manifest string

// create makes a workload in some namespaces, and waits until its pods are Ready.
func (d *demo) create(ctx context.Context, w workload, namespaces ...string) error {
	var text bytes.Buffer
	if err := template.Must(template.New("").Parse(manifest)).Execute(&text, w); err != nil {
		return fmt.Errorf("filling in the manifest: %w", err)
	}
	file := filepath.Join(d.Dir(), w.Name+".yaml")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	for _, namespace := range namespaces {
		_, err := d.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			_, err = d.Kubectl(ctx, "create", "namespace", namespace)
		}
		if err == nil {
			_, err = d.Kubectl(ctx, "apply", "--namespace", namespace, "--filename", file)
		}
		if err == nil {
			err = d.recorder.Await(ctx, "all pods are Ready", (*measure.State).Settled, w.subject(namespace))
		}
		if err != nil {
			return err
		}
	}
	d.say("test/demo/app.yaml, a %s, runs in the namespaces %s: %d pods each.", w.Kind, strings.Join(namespaces, " and "), len(d.now(w.subject(namespaces[0])).Pods))
	return nil
}

// optIn opts the one of the two in that is edited in place.
func (d *demo) optIn(ctx context.Context, w workload) error {
	if err := d.kubectl(ctx, fmt.Sprintf("label %s %s=true", w.in(inPlace), api.EnabledLabel)); err != nil {
		return err
	}
	return d.recorder.Await(ctx, "it is opted in", func(s *measure.State) bool { return s.OptedIn() && s.Settled() }, w.subject(inPlace))
}

// now is a subject as it is.
func (d *demo) now(of measure.Subject) *measure.State {
	history, _ := d.recorder.From(0)
	return measure.Replay(history, of)
}

// result is everything that is known of one edit of one subject.
type result struct {
	title string
	measure.Subject
	measure.Measurement
	audit     measure.Trail
	revisions int // that `kubectl rollout history` lists in the end
	lanes     []lane
}

// act edits a workload in some namespaces in the same way, waits until that is over, and tells what came of it.
func (d *demo) act(ctx context.Context, w workload, edit string, over func(context.Context, int, ...measure.Subject) error, namespaces ...string) ([]result, error) {
	mark, err := d.AuditMark()
	if err != nil {
		return nil, err
	}
	from := d.recorder.Now()
	var subjects []measure.Subject
	for _, namespace := range namespaces {
		if err := d.kubectl(ctx, fmt.Sprintf(edit, w.in(namespace))); err != nil {
			return nil, err
		}
		subjects = append(subjects, w.subject(namespace))
	}
	if err := over(ctx, from, subjects...); err != nil {
		return nil, err
	}
	var results []result
	history, _ := d.recorder.From(0)
	for _, of := range subjects {
		r := result{Subject: of, Measurement: measure.Edit(history, from, of), lanes: lanesOf(history, from, of)}
		if r.audit, err = d.AuditLog(mark, of.Namespace, measure.InPlace, nil); err != nil {
			return nil, err
		}
		said, err := d.Kubectl(ctx, strings.Fields("rollout history "+w.in(of.Namespace))...)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(said) {
			if _, err := strconv.Atoi(strings.Split(line, " ")[0]); err == nil {
				r.revisions++
			}
		}
		results = append(results, r)
	}
	return results, nil
}

// events shows what inplace-rollout tells of a workload.
func (d *demo) events(ctx context.Context, w workload) error {
	d.say("\nWhat inplace-rollout tells of it:")
	return d.kubectl(ctx, fmt.Sprintf("get events -n %s --field-selector=involvedObject.kind=%s,source=inplace-rollout --no-headers --output=custom-columns=:.reason,:.message", inPlace, w.Kind))
}

// rolledOut waits until edits since a moment are rolled out everywhere and, on a real node, seen by kernel and programs.
func (d *demo) rolledOut(ctx context.Context, from int, subjects ...measure.Subject) error {
	history, _ := d.recorder.From(0)
	for _, of := range subjects {
		before := size(measure.Replay(history[:from], of))
		done := func(s *measure.State) bool {
			return s.Settled() && size(s) != before && (d.Node == nil || len(otherwise(s)) == 0)
		}
		if err := d.recorder.Await(ctx, "it is rolled out", done, of); err != nil {
			return err
		}
	}
	return nil
}
