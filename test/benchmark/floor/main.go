// Command floor is the least that could carry an edit of the cpu to pods: what it takes is the floor under what the
// controller takes. It knows the answer, so it plans nothing and checks nothing: not whether anybody edits meanwhile, what a
// kubelet says, or whether pods stay Ready. It has the client of the controller, watches the same pods, keeps to the
// same limits and the same slow start, and makes the requests that there must be: a resize of each pod, its label of the
// revision (not of a Deployment), an event, and the writes that let go of the workload. Whoever edits holds it before that.
//
//	floor --kubeconfig FILE --namespace bench --kind StatefulSet --limit 10
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// byApp is the index of the pods by the workload that they are labelled with.
const byApp = "app"

// floor is everything that is known.
type floor struct {
	client          kubernetes.Interface
	namespace, kind string
	limit           int
	pods            cache.SharedIndexInformer

	mu       sync.Mutex
	cpu      map[string]string // that each workload has had last
	rollouts map[string]*rollout
}

// rollout is that of one workload, from its edit until it is let go.
type rollout struct {
	name, cpu string
	pods      []*corev1.Pod // in their order
	asked     map[types.UID]bool
	next      int // pod to be asked
	resized   int
	written   int // whose label and event are
	counted   bool
	label     func() (string, error)
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	namespace := flag.String("namespace", "default", "of the workloads")
	kind := flag.String("kind", "StatefulSet", "of the workloads")
	limit := flag.Int("limit", 1, "how many pods of a workload may be under way at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	f := &floor{namespace: *namespace, kind: *kind, limit: *limit, cpu: map[string]string{}, rollouts: map[string]*rollout{}}
	must(f.run(ctx, *kubeconfig))
}

// must ends the program if anything fails: then nothing is measured.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func (f *floor) run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.DisableCompression = -1, true // as the controller
	if f.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	all := informers.NewSharedInformerFactoryWithOptions(f.client, 0, informers.WithNamespace(f.namespace), informers.WithTransform(strip))
	f.pods = all.Core().V1().Pods().Informer()
	workloads := map[string]func() cache.SharedIndexInformer{
		"StatefulSet": all.Apps().V1().StatefulSets().Informer, "DaemonSet": all.Apps().V1().DaemonSets().Informer, "Deployment": all.Apps().V1().Deployments().Informer,
	}[f.kind]()
	if err := f.pods.AddIndexers(cache.Indexers{byApp: func(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Labels["app"]}, nil }}); err != nil {
		return err
	}
	for informer, changed := range map[cache.SharedIndexInformer]func(any){f.pods: f.podChanged, workloads: f.workloadChanged} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }}); err != nil {
			return err
		}
	}
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}

// strip leaves of a pod what is read of it.
func strip(obj any) (any, error) {
	pod, is := obj.(*corev1.Pod)
	if !is {
		return obj, nil
	}
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, Labels: pod.Labels, OwnerReferences: pod.OwnerReferences, Generation: pod.Generation,
	}}
	kept.Status.ObservedGeneration = pod.Status.ObservedGeneration
	for _, status := range pod.Status.ContainerStatuses {
		kept.Status.ContainerStatuses = append(kept.Status.ContainerStatuses, corev1.ContainerStatus{Resources: status.Resources})
	}
	return kept, nil
}

// read returns what a workload wants, and whether the built-in controller counts all of its pods as updated.
func read(obj any) (name, cpu string, counted bool) {
	var template *corev1.PodTemplateSpec
	switch w := obj.(type) {
	case *appsv1.StatefulSet:
		name, template, counted = w.Name, &w.Spec.Template, w.Status.ObservedGeneration == w.Generation && w.Status.UpdatedReplicas == *w.Spec.Replicas
	case *appsv1.DaemonSet:
		name, template, counted = w.Name, &w.Spec.Template, w.Status.ObservedGeneration == w.Generation && w.Status.UpdatedNumberScheduled == w.Status.DesiredNumberScheduled
	case *appsv1.Deployment:
		name, template, counted = w.Name, &w.Spec.Template, true
	}
	return name, template.Spec.Containers[0].Resources.Requests.Cpu().String(), counted
}

// workloadChanged begins a rollout when another cpu is wanted than before.
func (f *floor) workloadChanged(obj any) {
	name, cpu, counted := read(obj)
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rollouts[name]
	if before := f.cpu[name]; before != "" && before != cpu {
		r = &rollout{name: name, cpu: cpu, asked: map[types.UID]bool{}}
		r.label = sync.OnceValues(func() (string, error) { return f.revision(r) })
		objects, err := f.pods.GetIndexer().ByIndex(byApp, name)
		must(err)
		for _, pod := range objects {
			r.pods = append(r.pods, pod.(*corev1.Pod))
		}
		// The highest ordinal comes first: it has the longest name, or the last one of these.
		slices.SortFunc(r.pods, func(a, b *corev1.Pod) int { return cmp.Or(len(b.Name)-len(a.Name), strings.Compare(b.Name, a.Name)) })
		f.rollouts[name] = r
		f.ask(r)
	}
	if f.cpu[name] = cpu; r != nil {
		r.counted = counted
		f.letGo(r)
	}
}

// podChanged goes on when a pod has got its size.
func (f *floor) podChanged(obj any) {
	pod := obj.(*corev1.Pod)
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rollouts[pod.Labels["app"]]
	if r == nil || !r.asked[pod.UID] || pod.Status.ObservedGeneration != pod.Generation || len(pod.Status.ContainerStatuses) == 0 {
		return
	}
	if has := pod.Status.ContainerStatuses[0].Resources; has == nil || has.Requests.Cpu().String() != r.cpu {
		return
	}
	r.asked[pod.UID] = false
	r.resized++
	go f.finish(r, pod)
	f.ask(r)
}

// ask asks as many pods as may be asked now: one is tried first, then two, then four, and as soon as so many as the limit
// have the size, so many are under way.
func (f *floor) ask(r *rollout) {
	most := r.next
	switch {
	case r.resized >= f.limit:
		most = r.resized + f.limit
	case r.resized == r.next:
		most = r.resized + min(f.limit, r.resized+1)
	}
	for ; r.next < min(most, len(r.pods)); r.next++ {
		pod := r.pods[r.next]
		r.asked[pod.UID] = true
		go f.patchPod(pod, fmt.Sprintf(`{"metadata": {"uid": %q}, "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": %q}}}]}}`, pod.UID, r.cpu), "resize")
	}
}

func (f *floor) patchPod(pod *corev1.Pod, patch string, subresources ...string) {
	_, err := f.client.CoreV1().Pods(f.namespace).Patch(context.Background(), pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	must(err)
}

// finish labels a pod that has its size, and tells of it.
func (f *floor) finish(r *rollout, pod *corev1.Pod) {
	if f.kind != "Deployment" {
		label, err := r.label()
		must(err)
		f.patchPod(pod, fmt.Sprintf(`{"metadata": {"uid": %q, "labels": {%q: %q}}}`, pod.UID, appsv1.ControllerRevisionHashLabelKey, label))
	}
	now := metav1.Now()
	_, err := f.client.CoreV1().Events(f.namespace).Create(context.Background(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: pod.Name + ".", Namespace: f.namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: f.namespace, Name: pod.Name, UID: pod.UID},
		Reason:         "Resized", Message: "resized in place", Type: corev1.EventTypeNormal, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	must(err)
	f.mu.Lock()
	defer f.mu.Unlock()
	r.written++
	f.letGo(r)
}

// revision returns the label of the newest revision, which the built-in controller has made meanwhile.
func (f *floor) revision(r *rollout) (string, error) {
	for ; ; time.Sleep(50 * time.Millisecond) {
		list, err := f.client.AppsV1().ControllerRevisions(f.namespace).List(context.Background(), metav1.ListOptions{LabelSelector: "app=" + r.name})
		if err != nil || len(list.Items) == 0 {
			return "", fmt.Errorf("%s has no revision: %w", r.name, err)
		}
		newest := slices.MaxFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
		if strings.Contains(string(newest.Data.Raw), fmt.Sprintf(`"cpu":%q`, r.cpu)) {
			if f.kind == "StatefulSet" {
				return newest.Name, nil
			}
			return newest.Labels[appsv1.ControllerRevisionHashLabelKey], nil
		}
	}
}

// letGo lets go of a workload all of whose pods are written and counted.
func (f *floor) letGo(r *rollout) {
	if f.rollouts[r.name] != r || r.written < len(r.pods) || !r.counted {
		return
	}
	delete(f.rollouts, r.name)
	go func() {
		var err error
		ctx, merge, options := context.Background(), types.StrategicMergePatchType, metav1.PatchOptions{}
		switch apps := f.client.AppsV1(); f.kind {
		case "StatefulSet":
			_, err = apps.StatefulSets(f.namespace).Patch(ctx, r.name, merge, []byte(`{"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}`), options)
		case "DaemonSet":
			_, err = apps.DaemonSets(f.namespace).Patch(ctx, r.name, merge, []byte(`{"spec": {"updateStrategy": {"type": "RollingUpdate"}}}`), options)
		default:
			must(f.adopt(r))
			_, err = apps.Deployments(f.namespace).Patch(ctx, r.name, merge, []byte(`{"spec": {"paused": false}}`), options)
		}
		must(err)
	}()
}

// adopt gives the ReplicaSet of the pods the Deployment's template, and waits until the built-in controllers have seen it.
func (f *floor) adopt(r *rollout) error {
	sets, name := f.client.AppsV1().ReplicaSets(f.namespace), metav1.GetControllerOf(r.pods[0]).Name
	rs, err := sets.Patch(context.Background(), name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": %q}}}]}}}}`, r.cpu), metav1.PatchOptions{})
	for err == nil && rs.Status.ObservedGeneration < rs.Generation {
		time.Sleep(20 * time.Millisecond)
		rs, err = sets.Get(context.Background(), name, metav1.GetOptions{})
	}
	return err
}
