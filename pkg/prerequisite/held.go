package prerequisite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// heldKind is a kind of workloads whose edits are held, and how to ask for one.
type heldKind struct {
	name, policy string
	// apply applies a workload in a dry run, and returns what would be stored, and whether it would be held by its spec.
	apply func(ctx context.Context, client typedappsv1.AppsV1Interface, namespace string, workload []byte, o metav1.PatchOptions) (metav1.Object, bool, error)
}

var heldKinds = []heldKind{
	{"StatefulSet", "inplace-rollout-hold-statefulsets", func(ctx context.Context, client typedappsv1.AppsV1Interface, namespace string, workload []byte, o metav1.PatchOptions) (metav1.Object, bool, error) {
		set, err := client.StatefulSets(namespace).Patch(ctx, api.DryRunName, types.ApplyPatchType, workload, o)
		if err != nil {
			return nil, false, err
		}
		rolling := set.Spec.UpdateStrategy.RollingUpdate
		return set, rolling != nil && rolling.Partition != nil && *rolling.Partition == math.MaxInt32, nil
	}},
	{"Deployment", "inplace-rollout-hold-deployments", func(ctx context.Context, client typedappsv1.AppsV1Interface, namespace string, workload []byte, o metav1.PatchOptions) (metav1.Object, bool, error) {
		d, err := client.Deployments(namespace).Patch(ctx, api.DryRunName, types.ApplyPatchType, workload, o)
		if err != nil {
			return nil, false, err
		}
		return d, d.Spec.Paused, nil
	}},
	{"DaemonSet", "inplace-rollout-hold-daemonsets", func(ctx context.Context, client typedappsv1.AppsV1Interface, namespace string, workload []byte, o metav1.PatchOptions) (metav1.Object, bool, error) {
		ds, err := client.DaemonSets(namespace).Patch(ctx, api.DryRunName, types.ApplyPatchType, workload, o)
		if err != nil {
			return nil, false, err
		}
		return ds, ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType, nil
	}},
}

// HeldKinds are the kinds of workloads whose edits are held.
var HeldKinds = []string{heldKinds[0].name, heldKinds[1].name, heldKinds[2].name}

// workload is what is applied. It is opted in, and new: the policies hold a new StatefulSet and a new DaemonSet, and a new
// Deployment if the controller asks for it. Its pod would meet the strictest Pod Security Standard.
const workload = `
apiVersion: apps/v1
kind: %s
metadata:
  name: ` + api.DryRunName + `
  labels: {inplace-rollout.io/enabled: "true"}
  annotations: %s
spec:
  selector: {matchLabels: {app: inplace-rollout-dry-run}}
  template:
    metadata: {labels: {app: inplace-rollout-dry-run}}
    spec:
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: app
        image: inplace-rollout
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 10m, memory: 16Mi}}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`

// Annotations of the workload. What is there already, the policies change: so it shows whether they were asked. With the
// action LiveResize it is held whether a controller is there or not.
var (
	plainly = map[string]string{api.AllowCriticalAnnotation: "true", api.ResizePolicyAnnotation: "cpu=LiveResizeable"}
	always  = map[string]string{
		api.AllowCriticalAnnotation: "true", api.ResizePolicyAnnotation: "cpu=LiveResizeable",
		api.ResizeActionAnnotation: "LiveResize", api.InForceAnnotation: "LiveResize;",
	}
)

// answer is what a dry run has shown.
type answer struct {
	evaluated   string    // the digest of the policies, if a webhook says it
	asked, held bool      // the policy that holds; and by that the workload
	at          time.Time // by the API server's clock; zero if it does not say
}

func (k heldKind) ask(ctx context.Context, client typedappsv1.AppsV1Interface, namespace string, annotations map[string]string) (answer, error) {
	encoded, err := json.Marshal(annotations)
	if err != nil {
		return answer{}, fmt.Errorf("encoding annotations: %w", err)
	}
	would, held, err := k.apply(ctx, client, namespace, fmt.Appendf(nil, workload, k.name, encoded), metav1.PatchOptions{FieldManager: api.FieldManager, DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return answer{}, err
	}
	_, said := would.GetAnnotations()[api.HoldAnnotation]
	a := answer{held: held && said, evaluated: would.GetAnnotations()[api.EvaluatedAnnotation]}
	for key, value := range would.GetAnnotations() {
		if sent, was := annotations[key]; strings.HasPrefix(key, "inplace-rollout.io/") && (!was || sent != value) {
			a.asked = true
		}
	}
	for _, entry := range would.GetManagedFields() {
		if entry.Manager == api.FieldManager && entry.Time != nil {
			a.at = entry.Time.Time
		}
	}
	return a, nil
}

// Holding says for each kind of workloads why its edits are not held; nothing of those that are.
type Holding struct {
	// Broken has the kinds that the policy does not hold, whether a controller is there or not.
	Broken map[string]error
	// Unattended has those that it does not hold because no controller seems to be there.
	Unattended map[string]error
}

// Holding finds out by dry runs whether edits are held now, in this way: what is installed may not be in force.
func (c *Cluster) Holding(ctx context.Context, way Way) Holding {
	h := Holding{Broken: map[string]error{}, Unattended: map[string]error{}}
	parts := strings.Split(c.whoAmI(ctx), ":")
	for _, k := range heldKinds {
		if len(parts) != 4 {
			h.Broken[k.name] = errors.New("at least nobody can know, because the API server does not say which ServiceAccount this is")
			continue
		}
		if slices.Contains(c.leftOut, parts[2]) {
			h.Broken[k.name] = mine(parts[2])
			continue
		}
		broken, unattended := c.holds(ctx, way, k, parts[2], parts[3])
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
func (c *Cluster) holds(ctx context.Context, way Way, k heldKind, namespace, account string) (broken, unattended error) {
	now, err := k.ask(ctx, c.Client.AppsV1(), namespace, plainly)
	if err == nil && now.asked && way == Webhook && now.evaluated != Digest {
		return otherVersion(k, now.evaluated), nil
	}
	if err == nil && now.held {
		return nil, nil
	}
	anyway := answer{}
	if err == nil {
		anyway, err = k.ask(ctx, c.Client.AppsV1(), namespace, always)
	}
	policy := mutating + " " + k.policy
	if way == Webhook {
		policy = fmt.Sprintf("webhook %s.inplace-rollout.io of MutatingWebhookConfiguration %s", k.policy, WebhookConfiguration)
	}
	switch {
	case err != nil:
		return fmt.Errorf("at least it is not known, because a dry run of one in namespace %s fails: %w", namespace, err), nil
	case anyway.held:
		return nil, c.unattended(ctx, way, now.at, namespace, account)
	case anyway.asked:
		return fmt.Errorf("after %s another policy or a mutating webhook takes the hold away", policy), nil
	case way == Webhook:
		return fmt.Errorf("the API server does not ask %s, though it is installed. A selector may leave namespace %s out, "+
			"or the admission plugin MutatingAdmissionWebhook be off", policy, namespace), nil
	}
	return fmt.Errorf("the API server does not apply %s, though it is installed. The admission plugin MutatingAdmissionPolicy may be off, "+
		"or "+standingStill, policy), nil
}

// otherVersion is why an old image of the webhook is not to be trusted under a new configuration, nor a new one by an old controller.
func otherVersion(k heldKind, digest string) error {
	of := "policies with the digest " + digest
	if digest == "" {
		of = "policies of before there was a digest"
	}
	return fmt.Errorf("at least it is not known how, because webhook %s.inplace-rollout.io evaluates %s, and this controller is made for %s. "+
		"An upgrade may be under way; otherwise give the Deployments inplace-rollout and inplace-rollout-webhook the same image", k.policy, of, Digest)
}

// standingStill is an error of Kubernetes, and its cure.
const standingStill = "the API server's cache of the policies' parameters stands still (kubernetes/kubernetes#130887), which ends when it is restarted"

// unattended says why policies that are in force see no controller.
func (c *Cluster) unattended(ctx context.Context, way Way, now time.Time, namespace, name string) error {
	account, err := c.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("no policy sees that a controller is there, and why is not known: reading ServiceAccount %s/%s: %w", namespace, name, err)
	}
	until, malformed := time.Parse(time.RFC3339, account.Annotations[api.ReadyUntilAnnotation])
	switch {
	case malformed != nil || until.Before(now):
		return fmt.Errorf("the annotation %s of ServiceAccount %s/%s does not say that a controller is there. The leader writes it every 10 s: "+
			"there is none, or somebody takes it away", api.ReadyUntilAnnotation, namespace, name)
	case way == Webhook:
		return fmt.Errorf("ServiceAccount %s/%s says that a controller is there, and the webhook does not see it: its log may say why", namespace, name)
	}
	return fmt.Errorf("ServiceAccount %s/%s says that a controller is there, and the policies do not see it: "+standingStill, namespace, name)
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
		errs[i] = fmt.Errorf("edits of %s are not held: %w", strings.Join(kinds[err.Error()], ", "), err)
	}
	return errors.Join(errs...)
}
