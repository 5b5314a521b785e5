package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// releaseForGood releases all in a cluster or its namespace, without a question.
func releaseForGood(t *testing.T, s *stage, allNamespaces bool) (releaseOptions, *dynamicfake.FakeDynamicClient) {
	o := releaseOptions{cluster: s.cluster(t), all: true, allNamespaces: allNamespaces, forGood: true, yes: true}
	o.namespace = "default"
	return o, o.objects.(*dynamicfake.FakeDynamicClient)
}

// What holds is gone before the first hold is let go, and what is held in the second in which an
// API server goes on applying it is let go, too.
func TestReleaseForGood(t *testing.T) {
	for name, resource := range map[string]struct {
		version, resource, kind string
		names                   []string
	}{
		"policy":  {"v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", prerequisite.MutatingPolicies},
		"webhook": {"v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", []string{"inplace-rollout"}},
		"guards":  {"v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", prerequisite.GuardPolicies()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := heldStage(t)
				if name == "guards" { // what has failed goes no further
					s = stoppedStage(t)
				}
				o, objects := releaseForGood(t, s, true)
				group := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: resource.version, Resource: resource.resource}
				for _, name := range resource.names {
					of := &unstructured.Unstructured{}
					of.SetAPIVersion("admissionregistration.k8s.io/" + resource.version)
					of.SetKind(resource.kind)
					of.SetName(name)
					must.Do(t, objects.Tracker().Create(group, of, ""))
				}
				edits := 2
				objects.PrependReactor("patch", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
					for _, name := range resource.names {
						if _, err := objects.Tracker().Get(group, "", name); !apierrors.IsNotFound(err) {
							t.Errorf("a hold is let go while there is %s %s: %v", resource.resource, name, err)
						}
					}
					return false, nil, nil
				})
				objects.PrependReactor("list", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
					live, err := objects.Tracker().Get(statefulSets.gvr(), "default", "web")
					if err == nil && !policy.Held(live.(*unstructured.Unstructured)) && edits > 0 {
						edits--
						return false, nil, objects.Tracker().Update(statefulSets.gvr(), s.live(t), "default")
					}
					return false, nil, nil
				})
				begun := time.Now()
				must.Do(t, o.run(t.Context(), strings.NewReader(""), &bytes.Buffer{}, nil))
				after, err := o.get(t.Context(), s.live(t))
				if err != nil || policy.Held(after) || edits > 0 {
					t.Errorf("held %t after all but %d edits: %v", policy.Held(after), edits, err)
				}
				must.Equal(t, requestOf(after) != requestOf(s.live(t)), name == "guards", "it goes back")
				if took := time.Since(begun); took < quiet || took > insistence {
					t.Errorf("it ended after %s", took)
				}
			})
		})
	}
}

// TestReleaseForGoodTakesConditions: nobody keeps our conditions true any more. Others' stay, and so do all of which the caller may not
// write the status: these are named.
func TestReleaseForGoodTakesConditions(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want []string
		says string
	}{
		"it may":              {want: []string{"Theirs"}},
		"it may not":          {err: apierrors.NewForbidden(schema.GroupResource{Resource: "statefulsets/status"}, "web", nil), want: []string{"Theirs", api.ConditionComplete, api.ConditionObserved}, says: "It is left on statefulset.apps/web (namespace default).\n"},
		"somebody was faster": {err: apierrors.NewConflict(schema.GroupResource{Resource: "statefulsets"}, "web", nil), want: []string{"Theirs"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := heldStage(t)
			o, objects := releaseForGood(t, s, true)
			set := s.live(t)
			conditions := build.Each([]string{"Theirs", api.ConditionComplete, api.ConditionObserved}, func(of string) any {
				return map[string]any{"type": of, "status": "True"}
			})
			must.Do(t, unstructured.SetNestedSlice(set.Object, conditions, "status", "conditions"))
			must.Do(t, objects.Tracker().Update(statefulSets.gvr(), set, "default"))
			objects.PrependReactor("patch", "statefulsets", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if a.GetSubresource() != "status" || tt.err == nil {
					return false, nil, nil
				}
				err := tt.err
				if apierrors.IsConflict(err) {
					tt.err = nil
				}
				return true, nil, err
			})
			var out bytes.Buffer
			must.Do(t, o.run(t.Context(), strings.NewReader(""), &out, nil))
			after := must.Get(o.get(t.Context(), s.live(t)))(t)
			left, _, _ := unstructured.NestedSlice(after.Object, "status", "conditions")
			types := build.Each(left, func(c any) string { return c.(map[string]any)["type"].(string) })
			if !slices.Equal(types, tt.want) || strings.Contains(out.String(), "It is left on") != (tt.says != "") || !strings.Contains(out.String(), tt.says) {
				t.Errorf("%s: %v are left, want %v: %s", name, types, tt.want, out.String())
			}
		})
	}
}

// TestReleaseForGoodInANamespace: with a controller of its own, the label goes with which the policies hold there. An installation for all
// namespaces goes on holding, so nothing is done.
func TestReleaseForGoodInANamespace(t *testing.T) {
	const ends = "After this, no edit is held in the namespace default"
	for about, tt := range map[string]struct {
		of     *admissionregistrationv1.ParamRef // of the guard, which may be read if there is one
		says   string
		failed string
	}{
		"its own":            {of: &admissionregistrationv1.ParamRef{}, says: ends + ".\n"},
		"for all namespaces": {of: &admissionregistrationv1.ParamRef{Namespace: "inplace-rollout"}, failed: "inplace-rollout is installed for all namespaces"},
		"nobody knows":       {says: ends + ", unless inplace-rollout is installed for all namespaces.\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := heldStage(t)
			o, _ := releaseForGood(t, s, false)
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{api.InstalledLabel: "true", "mine": "too"}}}
			must.Get(o.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}))(t)
			if tt.of != nil {
				guard := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: prerequisite.GuardPolicy}}
				guard.Spec.ParamRef = tt.of
				must.Get(o.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), guard, metav1.CreateOptions{}))(t)
			}
			var out bytes.Buffer
			err := o.run(t.Context(), strings.NewReader(""), &out, nil)
			if tt.failed == "" && err != nil || tt.failed != "" && (err == nil || !strings.Contains(err.Error(), tt.failed)) || !strings.Contains(out.String(), tt.says) {
				t.Errorf("%s: %v, want %q; it says %q, want %q", about, err, tt.failed, out.String(), tt.says)
			}
			after := must.Get(o.client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}))(t)
			want := 1
			if tt.failed != "" {
				want = 2
			}
			if len(after.Labels) != want || after.Labels["mine"] != "too" {
				t.Errorf("%s: the namespace has the labels %v", about, after.Labels)
			}
			must.Equal(t, policy.Held(must.Get(o.get(t.Context(), s.live(t)))(t)), tt.failed != "", "%s: held afterwards", about)
		})
	}
}

// Where what holds cannot be taken away, nothing is let go, and the uninstallation fails.
func TestReleaseForGoodFails(t *testing.T) {
	for name, tt := range map[string]struct {
		verb, resource string
		err            error
		insists        bool
		stage          begin // heldStage, if nil
	}{
		"its template from before is lost": {verb: "delete", resource: "*", stage: changed(stoppedStage, func(s *stage) { s.others = s.others[1:] })},
		"the guards stay":                  {verb: "delete", resource: "validatingadmissionpolicybindings", err: errors.New("the API server is tired")},
		"the bindings stay":                {verb: "delete", resource: "mutatingadmissionpolicybindings", err: errors.New("the API server is tired")},
		"a hold stays":                     {verb: "patch", resource: "statefulsets", err: errors.New("the API server is tired"), insists: true},
		"nobody may let go":                {verb: "patch", resource: "statefulsets", err: apierrors.NewForbidden(schema.GroupResource{Resource: "statefulsets"}, "web", nil)},
		"the webhook remains":              {verb: "delete", resource: "mutatingwebhookconfigurations", err: errors.New("the API server is tired")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tt.stage == nil {
					tt.stage = heldStage
				}
				s := tt.stage(t)
				o, objects := releaseForGood(t, s, true)
				objects.PrependReactor(tt.verb, tt.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					if tt.err == nil {
						t.Error("what holds is taken away")
					}
					return true, nil, tt.err
				})
				begun := time.Now()
				err := o.run(t.Context(), strings.NewReader(""), &bytes.Buffer{}, nil)
				if err == nil || tt.err != nil && !errors.Is(err, tt.err) {
					t.Errorf("error %v", err)
				}
				if insisted := time.Since(begun) >= insistence; insisted != tt.insists {
					t.Errorf("it ended after %s", time.Since(begun))
				}
				after, err := o.get(t.Context(), s.live(t))
				if err != nil || !policy.Held(after) {
					t.Errorf("held %t: %v", policy.Held(after), err)
				}
			})
		})
	}
}
