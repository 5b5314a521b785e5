package prerequisite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/heartbeat"
)

// HoldPolicy is the name of the policy that holds edits.
const HoldPolicy = "inplace-rollout-hold"

// heldKind is a kind of workloads whose edits are held, and how to ask for one.
type heldKind struct {
	name string
	// patch patches a workload, and returns what would be stored, and whether it would be held by its spec.
	patch func(ctx context.Context, client typedappsv1.AppsV1Interface, namespace, name string, as types.PatchType, patch []byte, o metav1.PatchOptions) (metav1.Object, bool, error)
	list  func(ctx context.Context, client typedappsv1.AppsV1Interface, namespace string, o metav1.ListOptions) (runtime.Object, error)
}

var heldKinds = []heldKind{
	{"StatefulSet", func(ctx context.Context, client typedappsv1.AppsV1Interface, namespace, name string, as types.PatchType, patch []byte, o metav1.PatchOptions) (metav1.Object, bool, error) {
		set, err := client.StatefulSets(namespace).Patch(ctx, name, as, patch, o)
		if err != nil {
			return nil, false, err
		}
		rolling := set.Spec.UpdateStrategy.RollingUpdate
		return set, rolling != nil && rolling.Partition != nil && *rolling.Partition == math.MaxInt32, nil
	}, func(ctx context.Context, client typedappsv1.AppsV1Interface, namespace string, o metav1.ListOptions) (runtime.Object, error) {
		return client.StatefulSets(namespace).List(ctx, o)
	}},
	{"Deployment", func(ctx context.Context, client typedappsv1.AppsV1Interface, namespace, name string, as types.PatchType, patch []byte, o metav1.PatchOptions) (metav1.Object, bool, error) {
		d, err := client.Deployments(namespace).Patch(ctx, name, as, patch, o)
		if err != nil {
			return nil, false, err
		}
		return d, d.Spec.Paused, nil
	}, func(ctx context.Context, client typedappsv1.AppsV1Interface, namespace string, o metav1.ListOptions) (runtime.Object, error) {
		return client.Deployments(namespace).List(ctx, o)
	}},
	{"DaemonSet", func(ctx context.Context, client typedappsv1.AppsV1Interface, namespace, name string, as types.PatchType, patch []byte, o metav1.PatchOptions) (metav1.Object, bool, error) {
		ds, err := client.DaemonSets(namespace).Patch(ctx, name, as, patch, o)
		if err != nil {
			return nil, false, err
		}
		return ds, ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType, nil
	}, func(ctx context.Context, client typedappsv1.AppsV1Interface, namespace string, o metav1.ListOptions) (runtime.Object, error) {
		return client.DaemonSets(namespace).List(ctx, o)
	}},
}

// HeldKinds are the kinds of workloads whose edits are held.
var HeldKinds = kindNames(heldKinds)

func kindNames(kinds []heldKind) (names []string) {
	for _, kind := range kinds {
		names = append(names, kind.name)
	}
	return names
}

// workload is what is applied. It is opted in, and new: the policies hold a new StatefulSet and a new DaemonSet, and a new
// Deployment if the controller asks for it. Its pod would meet the strictest Pod Security Standard.
const workload = `
apiVersion: apps/v1
kind: %[1]s
metadata:
  name: ` + api.DryRunName + `
  labels: %[2]s
  annotations: %[3]s
spec:
  selector: {matchLabels: {app: inplace-rollout-dry-run}}
  template:
    metadata: {labels: %[2]s}
    spec:
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: app
        image: %[4]q
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 10m, memory: 16Mi}}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`

// unasked is a value that no policy leaves as it is: they write all anew that says how an edit was before, also those of other versions.
// So it shows whether they were asked.
const unasked = "?"

// Annotations of the workload. With the action LiveResize it is held whether a controller is there or not: only that shows, before a
// controller has begun to say that it is there, that nobody takes the hold away.
var (
	plainly = map[string]string{api.AllowCriticalAnnotation: "true", api.InForceAnnotation: unasked, api.AttendedAnnotation: unasked}
	always  = map[string]string{api.AllowCriticalAnnotation: "true", api.ResizeActionAnnotation: "LiveResize", api.InForceAnnotation: unasked}
)

// looks are what policies of others may ask for: the image and the labels. They have let in the pod of the controller.
type looks struct {
	image  string
	labels map[string]string
}

// looksOf returns those of a pod, without what its ReplicaSet has set; and something for no pod.
func looksOf(pod *corev1.Pod) looks {
	l := looks{image: "inplace-rollout", labels: map[string]string{}}
	if pod != nil && len(pod.Spec.Containers) > 0 {
		ours := max(0, slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "controller" })) // others may have injected theirs
		l.image = pod.Spec.Containers[ours].Image
		maps.Copy(l.labels, pod.Labels)
		delete(l.labels, appsv1.DefaultDeploymentUniqueLabelKey)
	}
	l.labels["app"], l.labels[api.EnabledLabel] = "inplace-rollout-dry-run", "true"
	return l
}

// look finds them out, until it knows them.
func (c *Cluster) look(ctx context.Context) {
	if c.looked {
		return
	}
	var pod *corev1.Pod
	var err error
	if c.Pod != nil {
		if pod, err = c.Pod(ctx); err != nil {
			klog.FromContext(ctx).V(2).Info("The pod of this controller cannot be read, so dry runs do not look like it", "why", err.Error())
		}
	}
	c.looks, c.looked = looksOf(pod), err == nil
}

// answer is what a dry run has shown.
type answer struct {
	evaluated   string    // the digest of the policies, if a webhook says it
	asked, held bool      // the policy that holds; and by that the workload
	attended    string    // whether the policy sees a controller, if it says so: true or false
	at          time.Time // by the API server's clock; zero if it does not say
}

// answerOf reads what a dry run would store that has sent what is unasked.
func answerOf(would metav1.Object, held bool) answer {
	is := would.GetAnnotations()
	_, said := is[api.HoldAnnotation]
	a := answer{asked: is[api.InForceAnnotation] != unasked, held: held && said, evaluated: is[api.EvaluatedAnnotation]}
	if a.attended = is[api.AttendedAnnotation]; a.attended == unasked {
		a.attended = ""
	}
	return a
}

func (k heldKind) ask(ctx context.Context, client typedappsv1.AppsV1Interface, namespace string, l looks, annotations map[string]string) (answer, error) {
	encoded, err := json.Marshal(annotations)
	if err != nil {
		return answer{}, fmt.Errorf("encoding annotations: %w", err)
	}
	labels, err := json.Marshal(l.labels)
	if err != nil {
		return answer{}, fmt.Errorf("encoding labels: %w", err)
	}
	return k.try(ctx, client, namespace, api.DryRunName, types.ApplyPatchType, fmt.Appendf(nil, workload, k.name, labels, encoded, l.image))
}

// try makes a dry run.
func (k heldKind) try(ctx context.Context, client typedappsv1.AppsV1Interface, namespace, name string, as types.PatchType, patch []byte) (answer, error) {
	would, held, err := k.patch(ctx, client, namespace, name, as, patch, metav1.PatchOptions{FieldManager: api.FieldManager, DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return answer{}, err
	}
	a := answerOf(would, held)
	for _, entry := range would.GetManagedFields() {
		if entry.Manager == api.FieldManager && entry.Time != nil {
			a.at = entry.Time.Time
		}
	}
	return a, nil
}

// LeftOut are the namespaces in which the webhook is not asked because others have narrowed its namespaceSelector.
func (c *Cluster) LeftOut(ctx context.Context) ([]string, error) {
	_, hook, err := c.way(ctx)
	if err != nil || hook == nil {
		return nil, err
	}
	return c.leaveOut(ctx, hook)
}

// Holding says for each kind of workloads why its edits are not held; nothing of those that are.
type Holding struct {
	// Broken has the kinds that the policy does not hold, whether a controller is there or not.
	Broken map[string]error
	// Unattended has those that it does not hold because no controller seems to be there.
	Unattended map[string]error
	// Unasked says of which API servers that is unknown, and why. It is nil if all that are known have been asked.
	Unasked error
}

// Holding finds out by dry runs whether edits are held now, in this way: what is installed may not be in force. Each API server is
// asked that can be: one may apply policies, or see the heartbeat, later than another.
func (c *Cluster) Holding(ctx context.Context, way Way) Holding {
	parts := strings.Split(c.whoAmI(ctx), ":")
	var err error
	switch {
	case len(parts) != 4:
		err = unsure{errors.New("the API server does not say which ServiceAccount this is")}
	case slices.Contains(c.leftOut, parts[2]):
		err = mine(parts[2])
	default:
		c.look(ctx)
		h := c.holding(ctx, way, c.Client, parts[2])
		c.askEach(ctx, way, parts[2], &h)
		return h
	}
	h := Holding{Broken: map[string]error{}}
	for _, kind := range HeldKinds {
		h.Broken[kind] = err
	}
	return h
}

// holding finds it out by a client.
func (c *Cluster) holding(ctx context.Context, way Way, client kubernetes.Interface, namespace string) Holding {
	h := Holding{Broken: map[string]error{}, Unattended: map[string]error{}}
	for _, k := range heldKinds {
		broken, unattended := c.holds(ctx, way, client, k, namespace)
		if broken != nil {
			h.Broken[k.name] = broken
		}
		if unattended != nil {
			h.Unattended[k.name] = unattended
		}
	}
	return h
}

// holds returns what keeps the edits of one kind from being held.
func (c *Cluster) holds(ctx context.Context, way Way, client kubernetes.Interface, k heldKind, namespace string) (broken, unattended error) {
	now, err := k.ask(ctx, client.AppsV1(), namespace, c.looks, plainly)
	if err == nil && now.asked && way == Webhook && now.evaluated != Digest {
		return otherVersion(now.evaluated), nil
	}
	if err == nil && now.held {
		return nil, nil
	}
	anyway := answer{}
	if err == nil {
		anyway, err = k.ask(ctx, client.AppsV1(), namespace, c.looks, always)
	}
	policy := mutating + " " + HoldPolicy
	if way == Webhook {
		policy = fmt.Sprintf("webhook %s.inplace-rollout.io of MutatingWebhookConfiguration %s", HoldPolicy, WebhookConfiguration)
	}
	switch {
	case err != nil:
		return c.unknown(policy, namespace, err), nil
	case anyway.held:
		return nil, c.unattended(ctx, way, now.at, namespace)
	case c.neverBeaten(ctx, namespace):
		return fmt.Errorf("ServiceAccount %s/%s is missing, and without it policies do nothing. The leader creates it: see its log", namespace, api.HeartbeatName), nil
	case anyway.asked:
		return fmt.Errorf("another policy or a mutating webhook removes the hold that %s sets", policy), nil
	case way == Webhook:
		return fmt.Errorf("the API server does not ask %s, though it is installed. A selector might leave namespace %s out, "+
			"or the admission plugin MutatingAdmissionWebhook be off", policy, namespace), nil
	}
	return fmt.Errorf("the API server does not apply %s, though it is installed. The admission plugin MutatingAdmissionPolicy might be off, "+
		"or "+standingStill, policy), nil
}

// secretPath is in the error of an API server that reaches no webhook. Anybody may read why a controller is not ready.
var secretPath = regexp.MustCompile(`(/mutate/[^/\s"]+/)[^?\s"]+`)

// unsure is why it is not known whether edits are held.
type unsure struct{ error }

func (u unsure) Unwrap() error { return u.error }

// unknown is why a dry run does not show whether edits are held.
func (c *Cluster) unknown(policy, namespace string, err error) error {
	said := secretPath.ReplaceAllString(err.Error(), "$1…")
	if strings.Contains(said, "x509: ") {
		return fmt.Errorf("the API server does not trust the certificate of %s. As for its caBundle, %s. %s", policy, c.ca, said)
	}
	return unsure{fmt.Errorf("a dry run of one in namespace %s fails: %s", namespace, said)}
}

// otherVersion is why an old image of the webhook is not to be trusted under a new configuration, nor a new one by an old controller.
func otherVersion(digest string) error {
	of := "policies with the digest " + digest
	if digest == "" {
		of = "policies without a digest"
	}
	return unsure{fmt.Errorf("webhook %s.inplace-rollout.io evaluates %s, and this controller is made for %s. "+
		"An upgrade might be under way; otherwise give the Deployments inplace-rollout and inplace-rollout-webhook the same image", HoldPolicy, of, Digest)}
}

// standingStill is an error of Kubernetes, and its cure.
const standingStill = "the API server's cache of the policies' parameters is stale (kubernetes/kubernetes#130887): restart the API server"

// neverBeaten reports whether the object is missing that has the heartbeat.
func (c *Cluster) neverBeaten(ctx context.Context, namespace string) bool {
	_, err := c.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, api.HeartbeatName, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// unattended says why policies that are in force see no controller.
func (c *Cluster) unattended(ctx context.Context, way Way, now time.Time, namespace string) error {
	name := api.HeartbeatName
	account, err := c.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the policies see no controller, and it is unknown why: reading ServiceAccount %s/%s: %w", namespace, name, err)
	}
	switch {
	case !heartbeat.There(account.Annotations, now):
		return fmt.Errorf("the annotation %s of ServiceAccount %s/%s does not say that a controller is there. The leader writes it every 10 s: "+
			"check that one runs, and that nobody removes the annotation", api.ReadyUntilAnnotation, namespace, name)
	case way == Webhook:
		return fmt.Errorf("ServiceAccount %s/%s says that a controller is there, but the webhook does not see it: see the log of the webhook", namespace, name)
	}
	return fmt.Errorf("ServiceAccount %s/%s says that a controller is there, but the policies do not see it: "+standingStill, namespace, name)
}

// join returns what is said of the kinds, and once what is the same of several.
func join(said map[string]error) error {
	kinds := map[string][]string{}
	var errs []error
	for _, kind := range HeldKinds {
		if err := said[kind]; err != nil {
			if kinds[err.Error()] == nil {
				errs = append(errs, err)
			}
			kinds[err.Error()] = append(kinds[err.Error()], kind+"s")
		}
	}
	for i, err := range errs {
		format := "edits of %s are not held: %w"
		if errors.As(err, &unsure{}) {
			format = "it is unknown whether edits of %s are held: %w"
		}
		errs[i] = fmt.Errorf(format, strings.Join(kinds[err.Error()], ", "), err)
	}
	return errors.Join(errs...)
}
