package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/version"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestVersion(t *testing.T) {
	lease := func(namespace, of, holder string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: controller.LeaseName}}
		if of != "" {
			l.Labels = map[string]string{version.Label: of}
		}
		if holder != "" {
			l.Spec.HolderIdentity = ptr.To(holder)
		}
		return l
	}
	client := place{beats: time.Minute, reads: true}.client(t)
	dead := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team-c", Name: api.HeartbeatName, Annotations: map[string]string{
		api.ReadyUntilAnnotation: time.Now().Add(-time.Minute).UTC().Format(time.RFC3339),
	}}}
	for _, o := range []runtime.Object{lease("inplace-rollout", "v0.1.0", "a_1"), lease("team-a", "", "b_2"), lease("team-b", "v0.2.0", ""), lease("team-c", "v0.2.0", "c_3"), dead} {
		must.Do(t, client.Tracker().Add(o))
	}
	client.PrependReactor("get", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetNamespace() == "team-a", nil, apierrors.NewForbidden(corev1.Resource("serviceaccounts"), api.HeartbeatName, nil)
	})
	c := newCluster()
	c.client = client
	found := must.Get(c.controllers(t.Context(), ""))(t)
	var out bytes.Buffer
	must.Do(t, printVersions(&out, versions{Client: version.Info{Version: "v0.3.0", GoVersion: "go1.26", Platform: "linux/amd64"}, Controllers: found}))
	want := "Client: v0.3.0 (go1.26, linux/amd64)\nController in inplace-rollout: v0.1.0\nController in team-a: older than v0.1.0\nController in team-b: none leads\n" +
		"Controller in team-c: none is ready; the last one to lead: v0.2.0\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", &out, want)
	}
}

// TestVersionForbidden: an ordinary user is told what they may know, and that is no failure; another error is one.
func TestVersionForbidden(t *testing.T) {
	for about, tt := range map[string]struct {
		err  error
		want int
	}{
		"they may not list Leases":       {apierrors.NewForbidden(coordinationv1.SchemeGroupVersion.WithResource("leases").GroupResource(), "", errors.New("no")), 0},
		"the API server does not answer": {errors.New("connection refused"), 1},
	} {
		client := fake.NewClientset()
		client.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tt.err })
		c, v := newCluster(), versions{}
		c.client = client
		must.Equal(t, exitCode(v.ask(t.Context(), c, "")), tt.want, "%s: exit code", about)
		var out bytes.Buffer
		must.Do(t, printVersions(&out, v))
		said := strings.Contains(out.String(), "\nController: unknown, because you cannot list leases\n")
		must.Equal(t, said, tt.want == 0, "%s: unknown in %s", about, &out)
	}
}

// What this program is, it says without a cluster, too, in every format.
func TestVersionOfClient(t *testing.T) {
	for _, tt := range []struct {
		args string
		want string
		fail bool
	}{
		{"version --client", "Client: " + version.Get().String() + "\n", false},
		{"version --client -o yaml", "apiVersion: inplace-rollout.io/v1alpha1\nclient:\n  ", false},
		{"version --client -o json", "{\n  \"kind\": \"Version\",\n  \"apiVersion\": \"inplace-rollout.io/v1alpha1\",\n  \"client\": {\n", false},
		{"version --server=http://127.0.0.1:1", "Client: " + version.Get().String() + "\n", true},
		{"version --client -o wide", "", true},
	} {
		var out bytes.Buffer
		root := newRoot(append([]string{"inplace-rollout"}, strings.Fields(tt.args)...))
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		if err := root.ExecuteContext(t.Context()); (err != nil) != tt.fail || !strings.HasPrefix(out.String(), tt.want) || tt.want == "" && out.Len() > 0 {
			t.Errorf("%s: %v, and printed\n%s\nwant\n%s", tt.args, err, &out, tt.want)
		}
	}
}
