package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestPlanOfASizeSpelledOtherwise: the StatefulSet and the DaemonSet controller make a new revision of it, as hold.yaml knows. So where
// nothing is held, they replace every pod, and where it is, it is an edit, which brings its own settings.
func TestPlanOfASizeSpelledOtherwise(t *testing.T) {
	spelled := strings.ReplaceAll(size, "memory: 1Gi", "memory: 1073741824")
	notOptedIn := func(s *stage) { s.meta().Labels = nil }
	nobody := func(s *stage) { s.says = "none" }
	for what, tt := range map[string]struct {
		stage begin
		kind  string
	}{
		"a StatefulSet that is not opted in":      {setOf(3, notOptedIn), "StatefulSet"},
		"a StatefulSet, and no controller":        {setOf(3, nobody), "StatefulSet"},
		"a DaemonSet that is not opted in":        {daemonSetOf(3, notOptedIn), "DaemonSet"},
		"a DaemonSet, and no controller is there": {daemonSetOf(3, nobody), "DaemonSet"},
	} {
		t.Run(what, func(t *testing.T) {
			out, code := planned(t, tt.stage(t), manifest(t, tt.kind, "", spelled), planOptions{failOn: []string{failRestart}})
			must.Equal(t, code, 3, "the exit code with --fail-on=restart")
			must.Contain(t, string(out), "3 restart", "what is printed")
		})
	}
	t.Run("settings", func(t *testing.T) {
		live := heldSetOf(1, func(s *stage) {
			s.set.Annotations[api.InForceAnnotation], s.set.Annotations[api.ResizeActionAnnotation] = "LiveResize;;;;;", "Restart"
		})(t).live(t)
		e := must.Get(newEdit(t.Context(), live, manifest(t, "StatefulSet", "", strings.ReplaceAll(larger, "memory: 1Gi", "memory: 1073741824"))))(t)
		admitted := must.Get(policy.InForce(e.after.GetAnnotations()))(t)
		foreseen := must.Get(e.settings())(t)
		must.Equal(t, foreseen.Action, admitted.Action, "the action by which plan foresees, and the one that the policy puts in force")
	})
}

// TestPlanDeniedByAWebhook: the answer of a webhook that names no code has 400, as Kyverno's. It is no less refused than with 403.
func TestPlanDeniedByAWebhook(t *testing.T) {
	s := newSetStage(t, 1)
	o := planOptions{cluster: s.cluster(t)}
	o.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("update", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, webhookerrors.ToStatusErr("validate.kyverno.svc-fail", &metav1.Status{Status: metav1.StatusFailure, Message: "limits are too high"})
	})
	e := must.Get(newEdit(t.Context(), s.live(t), manifest(t, "StatefulSet", "", larger)))(t)
	var out bytes.Buffer
	err := o.runEdits(t.Context(), &out, []edit{e})
	must.Fails(t, "the plan of an edit that a webhook denies", err, "the API server refuses the edit")
	if out.Len() > 0 {
		t.Errorf("it prints a plan all the same:\n%s", &out)
	}
}

// TestPlanOfWhatAWebhookMakesOfTheEdit: a mutating webhook writes images of templates anew, such as with a mirror's name or a digest. The
// dry run shows that the image stays as it is.
func TestPlanOfWhatAWebhookMakesOfTheEdit(t *testing.T) {
	for _, kind := range []string{"StatefulSet", "Deployment"} {
		s := setOf(3)(t)
		if kind == "Deployment" {
			s = deploymentOf(3)(t)
		}
		m := manifest(t, kind, "", larger)
		image := func(u *unstructured.Unstructured, to string) {
			containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
			containers[0].(map[string]any)["image"] = to
			must.Do(t, unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers"))
		}
		image(m, "docker.io/app:1")
		o := planOptions{cluster: s.cluster(t)}
		o.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("update", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			update := a.(clienttesting.UpdateActionImpl)
			u := update.Object.(*unstructured.Unstructured).DeepCopy()
			image(u, "app:1")
			return s.answer(clienttesting.NewUpdateActionWithOptions(a.GetResource(), u.GetNamespace(), u, update.UpdateOptions))
		})
		e := must.Get(newEdit(t.Context(), s.live(t), m))(t)
		var out bytes.Buffer
		must.Do(t, o.runEdits(t.Context(), &out, []edit{e}))
		must.Contain(t, out.String(), "3 live, 0 restart", "the plan of a %s whose image a webhook keeps", kind)
	}
}

// TestCheckWaitsNoLonger: --timeout is how long to wait at most, also for an API server that takes connections, and does not answer.
func TestCheckWaitsNoLonger(t *testing.T) {
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(end) })
	root := newRoot([]string{"inplace-rollout", "check", "--wait", "--timeout=2s", "--server=" + server.URL})
	root.SetOut(&bytes.Buffer{})
	root.SetErr(&bytes.Buffer{})
	began := time.Now()
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(t.Context()) }()
	select {
	case err := <-done:
		must.Equal(t, exitCode(err), 2, "the exit code")
	case <-time.After(15 * time.Second):
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("with --timeout=2s it ended after %s", took)
	}
}

// TestReleaseOfWhatWasOptedOut: where the policies are missing, opting out ends no hold, so release is to be used (docs/operations.md). What is
// held is that, with the label or without.
func TestReleaseOfWhatWasOptedOut(t *testing.T) {
	s := changed(heldStage, func(s *stage) { s.set.Labels = nil })(t)
	for what, args := range map[string]releaseOptions{"--all": {all: true, yes: true}, "--all --for-good --dry-run": {all: true, allNamespaces: true, forGood: true, dryRun: true}} {
		o, out := args, &bytes.Buffer{}
		o.cluster = s.cluster(t)
		must.Do(t, o.run(t.Context(), strings.NewReader(""), out, nil))
		if strings.Contains(out.String(), "Nothing is held.") {
			t.Errorf("%s: of a set that is held at partition %d, it says\n%s", what, partitionOf(s.live(t)), out)
		}
	}
}

// TestCheckOfAnotherServiceAccount: the chart's serviceAccount.name says what the controller's is called, and the policies know it by that.
func TestCheckOfAnotherServiceAccount(t *testing.T) {
	const account = "system:serviceaccount:inplace-rollout:rollouts"
	client := place{asks: true, there: true, creates: true, reads: true, published: true, beats: time.Minute}.client(t)
	for _, o := range must.Get(deploy.Objects(deploy.Cluster, account))(t) {
		must.Do(t, client.Tracker().Add(o))
	}
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		review.Status.Allowed = review.Spec.User == account
		return true, review, nil
	})
	var out bytes.Buffer
	err := checkOptions{cluster: &cluster{client: client, namespace: "default"}}.run(t.Context(), &out)
	if exitCode(err) != 0 || !strings.HasPrefix(out.String(), "Yes: ") {
		t.Errorf("the controller %s can resize pods, and check ends with %v:\n%s", account, err, &out)
	}
}
