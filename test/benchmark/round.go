package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// way is who carries an edit to the pods.
type way string

const (
	inPlace way = "in place"
	builtIn way = "built in"
	floored way = "floor" // by the program in floor/
)

// carriers are those who carry an edit to the pods.
var carriers = map[way][]string{
	inPlace: measure.InPlace, builtIn: measure.BuiltIn, floored: {"system:serviceaccount:default:" + floorAccount},
}

// result is what was measured of one edit of all workloads of a shape.
type result struct {
	Shape string `json:"shape"`
	Way   way    `json:"way"`

	Wall  seconds `json:"wall"`  // from the answer to the first edit until the last rollout was complete
	First spread  `json:"first"` // from the edit to the first request for a size

	Writes     []measure.Write    `json:"writes"`
	Conflicts  int                `json:"conflicts"`
	Refusals   int                `json:"refusals"`
	CPU        map[string]float64 `json:"cpuSeconds"`
	Policies   float64            `json:"policiesSeconds,omitempty"` // what admission policies took the API server, all requests together
	PeakRSS    uint64             `json:"peakRSS"`                   // of our controller, or the floor program, in bytes
	Replaced   int                `json:"replaced"`
	LeastReady int                `json:"leastReadyPods"`
}

// seconds is a duration as JSON and people want it.
type seconds float64

func inSeconds(d time.Duration) seconds { return seconds(d.Seconds()) }

// spread is what there is of many durations.
type spread struct {
	P50 seconds `json:"p50"`
	P99 seconds `json:"p99"`
}

// rollOut edits all workloads at once, waits until that has been rolled out, and measures it.
func (f *fixture) rollOut(ctx context.Context, w way) (_ result, failed error) {
	r := result{Shape: f.shape.String(), Way: w, CPU: map[string]float64{}}
	if err := f.prepare(ctx, w); err != nil {
		return r, err
	}
	if w == floored {
		var err error
		if ctx, f.floor, err = f.startFloor(ctx); err != nil {
			return r, err
		}
		defer func() { failed = errors.Join(failed, f.floor.stop()); f.floor = nil }()
	}
	before, err := f.pods(ctx)
	if err != nil {
		return r, err
	}
	mark, err := f.AuditMark()
	if err != nil {
		return r, err
	}
	var done map[string]time.Time
	if err := f.weigh(ctx, &r, func() error {
		if done, err = f.edit(ctx, w); err != nil {
			return err
		}
		return f.quiet(ctx)
	}); err != nil {
		return r, err
	}
	after, err := f.pods(ctx)
	if err != nil {
		return r, err
	}
	for name, uid := range before {
		if after[name] != uid {
			r.Replaced++
		}
	}
	return r, f.account(&r, mark, slices.Collect(maps.Keys(before)), done)
}

// weigh adds what the processes take while something is done.
func (f *fixture) weigh(ctx context.Context, r *result, do func() error) error {
	pids := f.pids()
	weighed := pids[ours]
	if f.floor != nil {
		weighed = f.floor.pid
		pids[floorAccount] = weighed
	}
	if err := forgetPeak(weighed); err != nil {
		return err
	}
	policies, err := f.policies(ctx)
	if err != nil {
		return err
	}
	before, err := cpu(pids)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := cpu(pids)
	if err != nil {
		return err
	}
	if r.Policies, err = f.policies(ctx); err != nil {
		return err
	}
	r.Policies -= policies
	for name := range after {
		r.CPU[name] = after[name] - before[name]
	}
	r.PeakRSS, err = peakOf(weighed)
	return err
}

// policies is how many seconds the API server has spent on admission policies, as it says.
func (f *fixture) policies(ctx context.Context) (sum float64, err error) {
	text, err := f.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return 0, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	for _, of := range []string{"mutating", "validating"} {
		for _, m := range families["apiserver_"+of+"_admission_policy_check_duration_seconds"].GetMetric() {
			sum += m.GetHistogram().GetSampleSum()
		}
	}
	return sum, nil
}

// prepare opts the workloads in or out, and waits until all that comes of it is done.
func (f *fixture) prepare(ctx context.Context, w way) error {
	if f.optedIn != (w == inPlace) {
		f.optedIn = w == inPlace
		if err := f.patch(ctx, types.MergePatchType, fmt.Sprintf(`{"metadata": {"labels": {%q: "%t"}}}`, api.EnabledLabel, f.optedIn)); err != nil {
			return err
		}
		if f.optedIn {
			if _, err := f.await(ctx, complete); err != nil {
				return err
			}
		}
	}
	if w == floored {
		if err := f.patch(ctx, types.MergePatchType, holds[f.shape.kind]); err != nil {
			return err
		}
	}
	return f.quiet(ctx)
}

// edit changes the size that all workloads want, and returns when each rollout was complete.
func (f *fixture) edit(ctx context.Context, w way) (map[string]time.Time, error) {
	f.edits++
	if err := f.patch(ctx, types.JSONPatchType, edit(f.edits)); err != nil {
		return nil, err
	}
	return f.await(ctx, map[way]func(*unstructured.Unstructured) bool{inPlace: complete, builtIn: rolledOut, floored: letGo}[w])
}

// account adds what the audit log tells of a rollout.
func (f *fixture) account(r *result, mark int64, pods []string, done map[string]time.Time) error {
	t, err := f.AuditLog(mark, namespace, carriers[r.Way], pods)
	if err != nil {
		return err
	}
	r.Writes, r.Conflicts, r.Refusals = t.Writes, t.Conflicts, t.Refusals
	r.LeastReady = t.LeastReady
	var firsts []time.Duration
	var begin, end time.Time
	for name, s := range t.Steps {
		if begin.IsZero() || s.Edited.Before(begin) {
			begin = s.Edited
		}
		if done[name].After(end) {
			end = done[name]
		}
		if first, ok := s.First(); ok {
			firsts = append(firsts, first)
		}
	}
	if len(t.Steps) != f.shape.workloads {
		return fmt.Errorf("the audit log tells of %d workloads, want %d", len(t.Steps), f.shape.workloads)
	}
	r.Wall = inSeconds(end.Sub(begin))
	r.First = spread{inSeconds(percentile(firsts, 50)), inSeconds(percentile(firsts, 99))}
	return nil
}

// percentile returns the smallest value that is not below p percent of all; 0 if there are none.
func percentile(values []time.Duration, p float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(int(math.Ceil(p/100*float64(len(sorted))))-1, 0)]
}

// written is how many writes there were that count.
func (r result) written(counts func(measure.Write) bool) float64 {
	n := 0
	for _, w := range r.Writes {
		if counts(w) {
			n += w.Count
		}
	}
	return float64(n)
}

// carries reports whether a write is of those who carry the edit to the pods.
func (r result) carries(w measure.Write) bool { return slices.Contains(carriers[r.Way], w.User) }

// carrier is the process that does so.
func (r result) carrier() string {
	return map[way]string{inPlace: ours, builtIn: controllerManager, floored: floorAccount}[r.Way]
}

// floorAccount is the ServiceAccount of the program in floor/, in the namespace default.
const floorAccount = "floor"

// program is the floor program while it runs.
type program struct {
	pid  int
	stop func() error
}

// startFloor builds the floor program, starts it, and waits until it watches. When it ends by itself, so does the context.
func (f *fixture) startFloor(ctx context.Context) (context.Context, *program, error) {
	binary := filepath.Join(f.Dir(), floorAccount)
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./test/benchmark/floor")
	build.Dir = controller.Root()
	if said, err := build.CombinedOutput(); err != nil {
		return ctx, nil, fmt.Errorf("building the floor program: %w\n%s", err, said)
	}
	kubeconfig, err := f.floorKubeconfig(ctx)
	if err != nil {
		return ctx, nil, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	cmd := exec.CommandContext(ctx, binary, "--kubeconfig", kubeconfig, "--namespace", namespace, "--kind", f.shape.kind, "--limit", strconv.Itoa(f.shape.limit))
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fail(err)
		return ctx, nil, fmt.Errorf("starting the floor program: %w", err)
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // before its time, whatever it says
		fail(errors.New("the floor program has ended"))
	}()
	p := &program{cmd.Process.Pid, func() error {
		early := ctx.Err() != nil
		fail(nil)
		if <-ended; early {
			return errors.New("the floor program has ended")
		}
		return nil
	}}
	if err != nil {
		return ctx, nil, errors.Join(fmt.Errorf("waiting for the floor program: %w", err), p.stop())
	}
	return ctx, p, nil
}

// floorKubeconfig is for a ServiceAccount that may do everything.
func (f *fixture) floorKubeconfig(ctx context.Context) (string, error) {
	_, err := f.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: floorAccount}}, metav1.CreateOptions{})
	if err == nil {
		_, err = f.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: floorAccount},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: floorAccount}},
		}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) { // from the round before
		return "", fmt.Errorf("making the floor program's account: %w", err)
	}
	return f.ServiceAccountKubeconfig(ctx, metav1.NamespaceDefault, floorAccount, "")
}

// holds are the patches that hold a workload of a kind, so that the built-in controller touches no pod.
var holds = map[string]string{
	"StatefulSet": `{"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1000000}}}}`,
	"DaemonSet":   `{"spec": {"updateStrategy": {"type": "OnDelete"}}}`,
	"Deployment":  `{"spec": {"paused": true}}`,
}

// letGo reports whether a workload is not held any more, and the built-in controller has nothing left to do.
func letGo(w *unstructured.Unstructured) bool {
	partition, _, _ := unstructured.NestedInt64(w.Object, "spec", "updateStrategy", "rollingUpdate", "partition")
	strategy, _, _ := unstructured.NestedString(w.Object, "spec", "updateStrategy", "type")
	paused, _, _ := unstructured.NestedBool(w.Object, "spec", "paused")
	return partition == 0 && strategy != "OnDelete" && !paused && rolledOut(w)
}
