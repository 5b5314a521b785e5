package main

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/controller"
	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/initialresources"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/version"
	"github.com/inplace-rollout/inplace-rollout/test/golden"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// place is a cluster of fakes, as one user sees it.
type place struct {
	silent    bool // the API server does not answer
	installed bool
	account   string        // as whom the policies know the controller; deploy.User, if empty
	asks      bool          // the API server asks what holds edits, which sees a controller
	there     bool          // or not
	reads     bool          // they may read what is installed
	creates   bool          // they may create workloads
	fails     error         // why no edit goes through
	own       string        // the only workload that they may patch, a Deployment, if not empty
	beats     time.Duration // until when the heartbeat counts, from now on; 0 for none
	published bool          // they may read it
	out       string        // namespaces that the webhooks leave out
	nowhere   bool          // there is no namespace default
	stranger  bool          // they may not read it
	robbed    bool          // the controller has lost the right to resize pods
	named     string        // the namespace of the controller, as they say
}

func (p place) client(t *testing.T) *fake.Clientset {
	t.Helper()
	client := fake.NewClientset()
	client.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods/resize"}}},
		{GroupVersion: admissionregistrationv1.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "mutatingadmissionpolicies"}}}}
	if p.installed {
		for _, o := range must.Get(deploy.Objects(deploy.Cluster, cmp.Or(p.account, deploy.User)))(t) {
			must.Do(t, client.Tracker().Add(o))
		}
	}
	if p.beats != 0 {
		must.Do(t, client.Tracker().Add(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "inplace-rollout", Name: api.HeartbeatName, Annotations: map[string]string{
			api.ReadyUntilAnnotation: time.Now().Add(p.beats).UTC().Format(time.RFC3339), api.LeftOutAnnotation: p.out,
		}}}))
	}
	if !p.nowhere {
		must.Do(t, client.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}))
	}
	if p.own != "" {
		must.Do(t, client.Tracker().Add(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: p.own}}))
	}
	forbid := func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "x", errors.New("no"))
	}
	may := map[string]bool{"namespaces": !p.stranger, "selfsubjectreviews": true, "selfsubjectaccessreviews": true, "statefulsets": true, "deployments": true, "daemonsets": true}
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		resource := action.GetResource()
		get, _ := action.(clienttesting.GetAction)
		switch {
		case p.silent:
			return true, nil, errors.New("connection refused")
		case resource.Version == "" || may[resource.Resource] || p.reads && slices.Contains([]string{"get", "list"}, action.GetVerb()): // discovery has no version
			return false, nil, nil
		case p.published && get != nil && resource.Resource == "serviceaccounts" && get.GetName() == api.HeartbeatName:
			return false, nil, nil
		}
		return forbid(action)
	})
	client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()}}, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		review.Status.Allowed = !p.robbed && review.Spec.User == cmp.Or(p.account, deploy.User) && review.Spec.ResourceAttributes.Subresource == "resize"
		return p.reads, review, nil
	})
	client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchActionImpl)
		object, sent := p.workload(action.GetResource().Resource), &metav1.PartialObjectMetadata{}
		must.Do(t, yaml.Unmarshal(patch.Patch, sent))
		switch {
		case len(patch.PatchOptions.DryRun) == 0:
			t.Errorf("it writes %s", patch.Patch)
		case patch.Name != p.own && !p.creates:
			return forbid(action)
		case p.nowhere:
			return true, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "default")
		case p.fails != nil:
			return true, nil, p.fails
		case p.asks:
			delete(sent.Annotations, api.InForceAnnotation)
			sent.Annotations[api.AttendedAnnotation] = strconv.FormatBool(p.there)
			if p.there {
				sent.Annotations[api.HoldAnnotation] = "0"
			}
		}
		object.SetAnnotations(sent.Annotations)
		return true, object.(runtime.Object), nil
	})
	return client
}

// workload is what a dry run returns.
func (p place) workload(resource string) metav1.Object {
	switch resource {
	case "statefulsets":
		set := &appsv1.StatefulSet{}
		if p.there {
			set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To(int32(math.MaxInt32))}
		}
		return set
	case "daemonsets":
		ds := &appsv1.DaemonSet{}
		if p.there {
			ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		}
		return ds
	}
	return &appsv1.Deployment{}
}

// TestCheckVerdict: the first line is yes only for somebody who has seen it, by a dry run of their own or by the heartbeat.
func TestCheckVerdict(t *testing.T) {
	const is, not, whether = "Yes: edits in namespace default are rolled out in place\n", "No: edits in namespace default are not rolled out in place: ",
		"Unknown: it is unknown whether edits in namespace default are rolled out in place: "
	const begun = "inplace-rollout is installed, and no controller has begun yet: edits are not held"
	for about, tt := range map[string]struct {
		place place
		begin string // what it prints begins so
		code  int
		says  string // somewhere
		lines int    // how many there are; any number if 0
	}{
		"an editor": {place: place{installed: true, asks: true, there: true, creates: true}, begin: is, says: "✓ Hold: edits are held, as a dry run shows\n✓ Controller: a controller is ready\n"},
		"an administrator": {place: place{installed: true, asks: true, there: true, creates: true, reads: true, published: true, beats: time.Minute}, begin: is,
			says: "✓ Hold: edits are held, by MutatingAdmissionPolicies, as a dry run shows\n"},
		"an administrator, and a controller without its rights": {place: place{installed: true, asks: true, there: true, creates: true, reads: true, published: true, beats: time.Minute, robbed: true},
			begin: not + "system:serviceaccount:inplace-rollout:inplace-rollout has no right to patch pods/resize in namespace default", code: 1},
		"an administrator, and a controller of another name": {place: place{installed: true, account: "system:serviceaccount:inplace-rollout:rollouts", asks: true, there: true, creates: true, reads: true, published: true, beats: time.Minute}, begin: is},
		"an editor, and no controller": {place: place{installed: true, asks: true, creates: true}, begin: not + "no controller is ready: edits are not held", code: 1,
			says: "See the log of the Deployment inplace-rollout. A dry run of an edit has found no controller\n"},
		"an editor, and a heartbeat that an API server has not seen yet": {place: place{installed: true, asks: true, creates: true, published: true, beats: time.Minute}, begin: not + "no controller is ready", code: 1},
		"an editor, whose edits fail":                                    {place: place{installed: true, creates: true, fails: apierrors.NewInternalError(errors.New("failed calling webhook")), published: true, beats: time.Minute}, begin: whether + "you could make no dry run of an edit of StatefulSets, Deployments, DaemonSets: Internal error occurred: failed calling webhook", code: 2},
		"who may only patch a Deployment, and fails":                     {place: place{installed: true, own: "shop", fails: apierrors.NewInternalError(errors.New("failed calling webhook")), published: true, beats: time.Minute}, begin: whether, code: 2},
		"an editor, and nothing is installed":                            {place: place{creates: true}, begin: not + "nothing holds edits, as a dry run shows: inplace-rollout is not installed for this namespace, or no controller has begun yet\n", code: 1, lines: 1},
		"an editor, before a controller has begun":                       {place: place{installed: true, creates: true, published: true}, begin: not + begun, code: 1, lines: 1},
		"an administrator, before a controller has begun":                {place: place{installed: true, creates: true, reads: true}, begin: not + begun, code: 1, lines: 1},
		"a viewer, before a controller has begun":                        {place: place{installed: true, published: true}, begin: not + begun, code: 1},
		"an administrator, and nothing is installed": {place: place{creates: true, reads: true, published: true},
			begin: not + "inplace-rollout is not installed: nothing in the cluster holds edits. Install it with Helm or kubectl, as docs/install.md says\n", code: 1, lines: 1},
		"an administrator, whose dry run a policy refuses":   {place: place{installed: true, asks: true, there: true, creates: true, reads: true, fails: apierrors.NewInvalid(schema.GroupKind{}, "x", nil), published: true, beats: time.Minute}, begin: is, says: "as the controller finds by its own dry runs"},
		"who may only patch a Deployment":                    {place: place{installed: true, asks: true, there: true, own: "shop", published: true, beats: time.Minute}, begin: is, says: "as the controller finds by its own dry runs"},
		"who may only patch a Deployment, and no heartbeat":  {place: place{installed: true, asks: true, there: true, own: "shop"}, begin: whether + "you could make no dry run of an edit of StatefulSets, DaemonSets: ", code: 2},
		"who may only patch a Deployment, which is not held": {place: place{installed: true, asks: true, own: "shop"}, begin: not + "no controller is ready", code: 1, says: "you can opt in and edit: "},
		"a viewer": {place: place{installed: true, asks: true, there: true, published: true, beats: time.Minute}, begin: is},
		"a viewer, and the heartbeat has just ended":           {place: place{installed: true, published: true, beats: -2 * time.Second}, begin: not + "no controller is ready", code: 1},
		"a viewer, and the heartbeat is not published":         {place: place{installed: true, asks: true, there: true, beats: time.Minute}, begin: whether, code: 2},
		"a viewer, of a namespace that the webhook leaves out": {place: place{installed: true, published: true, beats: time.Minute, out: "a,default"}, begin: not + "the namespaceSelector of the webhooks excludes namespace default", code: 1},
		"a viewer, of a namespace that is not there":           {place: place{installed: true, asks: true, there: true, published: true, beats: time.Minute, nowhere: true}, begin: not + "there is no namespace default\n", code: 1, lines: 1},
		"an editor of all, of one that is not there":           {place: place{installed: true, asks: true, there: true, creates: true, nowhere: true, stranger: true}, begin: not + "there is no namespace default\n", code: 1, lines: 1},
		"a stranger": {place: place{installed: true, asks: true, there: true, published: true, beats: time.Minute, stranger: true}, begin: whether + "whether there is such a namespace could not be seen: ", code: 2},
		"an editor who may not read the namespace":             {place: place{installed: true, asks: true, there: true, creates: true, stranger: true}, begin: is},
		"who may read all, and names another namespace":        {place: place{installed: true, reads: true, beats: time.Minute, named: "other"}, begin: whether + "the policies name inplace-rollout as the controller's namespace, not other: use --controller-namespace=inplace-rollout\n", code: 2, lines: 1},
		"a viewer, of another one":                             {place: place{installed: true, published: true, beats: time.Minute, out: "a,b"}, begin: is},
		"nobody, and nothing is installed":                     {place: place{}, begin: whether, code: 2},
		"an administrator, and the API server does not answer": {place: place{silent: true, creates: true, reads: true}, begin: whether + "the API server does not say its version: connection refused\n", code: 2, lines: 1},
	} {
		var out bytes.Buffer
		o := checkOptions{cluster: &cluster{client: tt.place.client(t), namespace: "default"}, controllerNamespace: tt.place.named}
		err := o.run(t.Context(), &out)
		names := map[string]bool{}
		for _, f := range o.look(t.Context()).Findings {
			if names[f.Name] && !strings.HasPrefix(f.Name, "You") { // there are several rights
				t.Errorf("%s: two findings are called %s", about, f.Name)
			}
			names[f.Name] = true
		}
		if exitCode(err) != tt.code || !strings.HasPrefix(out.String(), tt.begin) || !strings.Contains(out.String(), tt.says) {
			t.Errorf("%s: it ended with %v, want %d, %q, %q:\n%s", about, err, tt.code, tt.begin, tt.says, &out)
		}
		if n := strings.Count(out.String(), "\n"); tt.lines != 0 && n != tt.lines {
			t.Errorf("%s: %d lines, want %d:\n%s", about, n, tt.lines, &out)
		}
		if tt.code != 0 && strings.Contains(out.String(), "✓ Hold") && !tt.place.there && tt.place.creates {
			t.Errorf("%s: edits are held, and are not:\n%s", about, &out)
		}
	}
}

// TestCheckLeftOut: where only namespaces with a label have a controller, the others are left out.
func TestCheckLeftOut(t *testing.T) {
	o := checkOptions{cluster: &cluster{client: place{installed: true, reads: true}.client(t), namespace: "default"}}
	for labelled, want := range map[bool]finding{
		false: {"Namespaces", passed, "none is excluded"},
		true:  {"Namespaces", noted, "edits are held only in those with the label inplace-rollout.io/installed"},
	} {
		must.Equal(t, o.leftOut(t.Context(), labelled), want, "labelled %t", labelled)
	}
}

// TestCheckWait: it looks again until the answer is yes, or the time is over.
func TestCheckWait(t *testing.T) {
	for about, tt := range map[string]struct {
		timeout time.Duration
		comes   time.Duration // when a controller does
		code    int
		took    time.Duration
	}{
		"it comes":                {comes: 5 * time.Minute, took: 5 * time.Minute},
		"it comes before the end": {timeout: time.Minute, comes: 10 * time.Second, took: 10 * time.Second},
		"it comes too late":       {timeout: time.Minute, comes: time.Hour, code: 1, took: time.Minute},
	} {
		t.Run(about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				client := place{installed: true, asks: true, there: true, creates: true}.client(t)
				absent := place{installed: true, asks: true, creates: true}.client(t)
				client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
					if time.Since(began) >= tt.comes {
						return false, nil, nil
					}
					return absent.ReactionChain[0].React(action)
				})
				o := checkOptions{cluster: newCluster(), wait: true}
				o.client, o.namespace = client, "default"
				ctx, cancel := o.within(t.Context(), tt.timeout)
				defer cancel()
				must.Equal(t, exitCode(o.run(ctx, &bytes.Buffer{})), tt.code, "exit code")
				if took := time.Since(began); took < tt.took || took > tt.took+2*checkInterval {
					t.Errorf("it took %s, want %s", took, tt.took)
				}
			})
		})
	}
}

// TestCheckPre: what an installation needs, before there is one.
func TestCheckPre(t *testing.T) {
	const is, not = "Yes: the cluster is ready for the installation\n", "No: the cluster is not ready for the installation: "
	for about, tt := range map[string]struct {
		place   place
		without string // an API that is not served
		lacks   string // the verb that they have not
		begin   string
		code    int
		says    []string
	}{
		"an administrator": {place: place{reads: true}, begin: is, says: []string{
			"✓ Hold: MutatingAdmissionPolicies can hold edits", "✓ You: can create all of it", "- Installed: nothing yet", "1 Namespace", " ClusterRoles, ", ", 9 MutatingAdmissionPolicies, ", ", 15 ValidatingAdmissionPolicies, ",
		}},
		"where only a webhook can hold": {place: place{reads: true}, without: "mutatingadmissionpolicies", begin: is, says: []string{
			"✓ Hold: this API server does not serve MutatingAdmissionPolicy", "deploy/overlays/webhook", "1 MutatingWebhookConfiguration, ",
		}},
		"an old cluster":                 {place: place{reads: true}, without: "pods/resize", begin: not + "the API server does not serve pods/resize: Kubernetes 1.34 or later is needed", code: 1},
		"who may not":                    {place: place{}, lacks: "create", begin: not + "you cannot install it: you lack create ", code: 1},
		"who may not see what there is":  {place: place{}, begin: is, says: []string{"? Installed: whether something is installed could not be seen"}},
		"where it is installed":          {place: place{installed: true, reads: true}, begin: is, says: []string{"- Installed: there is an installation already"}},
		"the API server does not answer": {place: place{silent: true}, begin: "Unknown: it is unknown whether the cluster is ready for the installation: ", code: 2},
	} {
		client := tt.place.client(t)
		for _, list := range client.Resources {
			list.APIResources = slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == tt.without })
		}
		if !tt.place.silent {
			allow(client, func(a *authorizationv1.ResourceAttributes) bool { return a.Verb != tt.lacks })
		}
		var out bytes.Buffer
		err := checkOptions{cluster: &cluster{client: client, namespace: "default"}, pre: true}.run(t.Context(), &out)
		if exitCode(err) != tt.code || !strings.HasPrefix(out.String(), tt.begin) {
			t.Errorf("%s: it ended with %v, want %d, %q:\n%s", about, err, tt.code, tt.begin, &out)
		}
		for _, want := range tt.says {
			must.Contain(t, out.String(), want, "%s", about)
		}
	}
}

// TestCheckFormer: bindings of the version before are named, and nothing that this version installs.
func TestCheckFormer(t *testing.T) {
	client := fake.NewClientset()
	for _, o := range slices.Concat(must.Get(deploy.Objects(deploy.Cluster, deploy.User))(t), must.Get(deploy.Objects(deploy.Former, deploy.User))(t)) {
		must.Do(t, client.Tracker().Add(o))
	}
	o := checkOptions{cluster: &cluster{client: client, namespace: "default"}}
	must.EqualLists(t, o.former(t.Context()), nil, "after the first installation")
	for _, name := range []string{"inplace-rollout-hold-daemonsets", "inplace-rollout-guard-deployments"} {
		m, v := &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		m.Name, v.Name, m.Spec.PolicyName, v.Spec.PolicyName = name, name, name, name
		must.Do(t, errors.Join(client.Tracker().Add(m), client.Tracker().Add(v)))
	}
	const want = "kubectl delete mutatingadmissionpolicybinding/inplace-rollout-hold-daemonsets validatingadmissionpolicybinding/inplace-rollout-guard-deployments"
	if found := o.former(t.Context()); len(found) != 1 || found[0].Outcome != noted || !strings.HasSuffix(found[0].Message, want) {
		t.Errorf("found %v, want %s", found, want)
	}
}

// TestCheckRights: what a user can do is said of the kinds of which that is so, and nothing is said that a command needs more for.
func TestCheckRights(t *testing.T) {
	for may, want := range map[string][]string{
		"get list patch statefulsets deployments daemonsets pods": {
			"You cannot: see the progress of rollouts, with status: you lack list controllerrevisions, list replicasets",
			"You cannot: preview rollouts, with plan: you lack list controllerrevisions, list replicasets", "You cannot: preview whether",
			"You can: opt in, edit and retry, unless a policy forbids it", "You cannot: undo: you lack list controllerrevisions, list replicasets",
			"You cannot: release: you lack list controllerrevisions, list replicasets",
		},
		"get list patch statefulsets controllerrevisions pods": {
			"You can: see the progress of rollouts, with status, of StatefulSets",
			"You cannot: see the progress of rollouts, with status, of Deployments and DaemonSets: you lack list deployments, list replicasets, list daemonsets",
			"You can: preview rollouts, with plan, of StatefulSets", "You cannot: preview rollouts, with plan, of Deployments and DaemonSets", "You cannot: preview whether",
			"You can: opt in, edit and retry, of StatefulSets, unless a policy forbids it", "You cannot: opt in, edit and retry, of Deployments and DaemonSets: you lack patch deployments, patch daemonsets",
			"You can: undo, of StatefulSets, unless a policy forbids it", "You cannot: undo, of Deployments and DaemonSets",
			"You can: release, of StatefulSets, unless a policy forbids it", "You cannot: release, of Deployments and DaemonSets",
		},
		"get list patch statefulsets deployments daemonsets controllerrevisions replicasets pods": {
			"You can: see", "You can: preview rollouts", "You cannot: preview whether", "You can: opt in", "You can: undo, unless", "You can: release, unless",
		},
	} {
		client := fake.NewClientset()
		rights := strings.Fields(may)
		allow(client, func(a *authorizationv1.ResourceAttributes) bool {
			return a.Namespace == "default" && slices.Contains(rights, a.Verb) && slices.Contains(rights, a.Resource)
		})
		found := checkOptions{cluster: &cluster{client: client, namespace: "default"}}.rights(t.Context(), true)
		for i, f := range found {
			if i >= len(want) || !strings.HasPrefix(f.Name+": "+f.Message, want[i]) {
				t.Errorf("who may %s: %s: %s", may, f.Name, f.Message)
			}
		}
		must.Equal(t, len(found), len(want), "lines on who may %s", may)
	}
}

// allow has the API server answer whoever asks what they may.
func allow(client *fake.Clientset, may func(*authorizationv1.ResourceAttributes) bool) {
	client.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
		review.Status.Allowed = may(review.Spec.ResourceAttributes)
		return true, review, nil
	})
}

// checked runs the check in a cluster of fakes in which nothing is installed, for a user who may only list.
func checked(t *testing.T, format cli.Format) (string, error) {
	t.Helper()
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	allow(client, func(a *authorizationv1.ResourceAttributes) bool { return a.Verb == "list" && a.Namespace == "default" })
	o := checkOptions{cluster: &cluster{client: client, namespace: "default"}, output: format}
	var out bytes.Buffer
	err := o.run(t.Context(), &out)
	return out.String(), err
}

// The version of a controller is compared with this program's.
func TestCheckVersions(t *testing.T) {
	mine := version.Get().LabelValue()
	for _, tt := range []struct {
		of    string
		beats time.Duration
		want  finding
	}{
		{mine, time.Minute, finding{"Version", passed, "the controller in inplace-rollout: " + mine}},
		{mine, -time.Minute, finding{"Version", noted, "the controller in inplace-rollout: none is ready; the last one to lead: " + mine}},
		{"v0.0.1", time.Minute, finding{"Version", noted, "the controller in inplace-rollout: v0.0.1; this program: " + mine}},
		{"", 0, finding{"Version", noted, "this program is " + mine + "; that of the controller is unknown: none has a Lease"}},
	} {
		client := place{beats: tt.beats, reads: true}.client(t)
		if tt.of != "" {
			must.Do(t, client.Tracker().Add(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: "inplace-rollout", Name: controller.LeaseName, Labels: map[string]string{version.Label: tt.of}},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a")},
			}))
		}
		o := checkOptions{cluster: &cluster{client: client, namespace: "default"}}
		if got := o.versions(t.Context()); len(got) != 1 || got[0] != tt.want {
			t.Errorf("a controller of version %q: %v, want %v", tt.of, got, tt.want)
		}
	}
}

// Where initial resources are installed, one line says whether the estimator is there; elsewhere there is none.
func TestCheckEstimates(t *testing.T) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "inplace-rollout-validate-initial-resources"}}
	table := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: api.EstimatesName}}
	theirs := time.Now().Add(-time.Hour).Truncate(time.Second) // by the API server's clock
	lease := func(holder string, ago time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "inplace-rollout", Name: initialresources.EstimatorLease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: ptr.To(metav1.NewMicroTime(theirs.Add(-ago)))},
		}
	}
	there := []finding{{"Initial resources", passed, "an estimator is running"}}
	none := []finding{{"Initial resources", noted, "no estimator is running: new pods get the last estimates"}}
	for _, tt := range []struct {
		what      string
		objects   []runtime.Object
		forbidden string // what may not be read
		want      []finding
	}{
		{"not installed", nil, "", nil},
		{"only of the controller", []runtime.Object{lease("a", 0)}, "", nil},
		{"a leader", []runtime.Object{policy, lease("a", 0)}, "", there},
		{"no leader", []runtime.Object{policy}, "", none},
		{"it has ended", []runtime.Object{policy, lease("", 0)}, "", none},
		{"it was killed", []runtime.Object{policy, lease("a", time.Hour)}, "", none},
		{"policies may not be read", []runtime.Object{policy, table, lease("a", 0)}, "validatingadmissionpolicies", there},
		{"policies may not be read, and nothing is estimated here", []runtime.Object{policy, lease("a", 0)}, "validatingadmissionpolicies", nil},
		{"Leases may not be read", []runtime.Object{policy, lease("a", 0)}, "leases", []finding{{
			"Initial resources", unknown, `it is unknown whether an estimator is running: leases.x "x" is forbidden: no`,
		}}},
	} {
		client := fake.NewClientset(tt.objects...)
		client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &authenticationv1.SelfSubjectReview{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(theirs)}}, nil
		})
		client.PrependReactor("*", tt.forbidden, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "x", Resource: tt.forbidden}, "x", errors.New("no"))
		})
		o := checkOptions{cluster: &cluster{client: client, namespace: "default"}}
		must.EqualLists(t, o.estimates(t.Context()), tt.want, "%s", tt.what)
	}
}

func TestCheckOfNothing(t *testing.T) {
	out, err := checked(t, "")
	must.Equal(t, exitCode(err), 1, "exit code of %v", err)
	golden.Assert(t, "check-nothing.txt", []byte(out))
}

// What was found is shown with marks, and what has several reasons below each other.
func TestCheckPrinted(t *testing.T) {
	var out bytes.Buffer
	r := checkReport{Namespace: "shop"}.concluded("fine", "it is not so", "it is so", []finding{
		{"API server", passed, "v1.37.1 serves pods/resize"}, {"Hold", failed, "one is missing\nand another one, which is said in a text that is longer than the line is"},
		{"Controller", failed, "none"},
	}, finding{"Version", unknown, "who knows"}, finding{"You cannot", noted, "edit"})
	must.Do(t, r.print(cli.Page{Writer: &out, Width: 60}, ""))
	golden.Assert(t, "check-marks.txt", out.Bytes())
}
