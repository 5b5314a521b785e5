//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	rollouts "github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// written is what the controller has written for one workload.
type written struct {
	conditions []string // as the status said after each write of it
	at         []time.Time
	events     int
	pods       int // that were resized
}

// TestTwoStatusWrites: a rollout begins with one write of the condition, and ends with another, many
// at once, and also one that takes longer than ten seconds. It has an event of each pod, and few
// others. None of the controller's writes is refused, but those of ReplicaSets, which the Deployment
// controller writes at the same time.
func TestTwoStatusWrites(t *testing.T) {
	parallel(t)
	namespace := newNamespace(t, nil)
	kinds := map[string]string{}
	var manifests []string
	for name, o := range map[string]options{
		"set":     {Kind: "StatefulSet", Replicas: 10},
		"wide":    {Kind: "StatefulSet", Replicas: 10, Spec: "{podManagementPolicy: Parallel, updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 3}}}"},
		"ready":   {Kind: "StatefulSet", Replicas: 4, Spec: "{minReadySeconds: 1}"},
		"slow":    {Kind: "StatefulSet", Replicas: 6, PodMeta: simDelayed},
		"deploy":  {Kind: "Deployment", Replicas: 10},
		"readier": {Kind: "Deployment", Replicas: 4, Spec: "{minReadySeconds: 1}"},
		"slower":  {Kind: "Deployment", Replicas: 6, PodMeta: simDelayed, Spec: "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"},
	} {
		o.Resources, kinds[name] = "{requests: {cpu: 1m}}", o.Kind
		manifests = append(manifests, strings.ReplaceAll(manifest(t, namespace, o), "web", name))
	}
	apply(t, namespace, strings.Join(manifests, "---\n"))
	waitAllComplete(t, namespace, kinds)
	mark, err := cp.AuditMark()
	if err != nil {
		t.Fatal(err)
	}
	var edits sync.WaitGroup
	for name, kind := range kinds {
		edits.Go(func() {
			patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"2m"}}}]}}}}`)
			var err error
			if kind == "StatefulSet" {
				_, err = client.AppsV1().StatefulSets(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			} else {
				_, err = client.AppsV1().Deployments(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	edits.Wait()
	waitAllComplete(t, namespace, kinds)
	for name, w := range writtenFor(t, namespace, mark, kinds) {
		n := len(w.conditions)
		if n < 2 || !strings.HasPrefix(w.conditions[0], "Progressing ") || !strings.HasPrefix(w.conditions[n-1], "Complete ") {
			t.Errorf("%s: its condition was written as %q, want it written as Progressing and as Complete", name, w.conditions)
		}
		// Where the machine is so busy that nothing is done for as long, what has been done so far is written, too.
		for i := 1; i < n-1; i++ {
			if after := w.at[i].Sub(w.at[i-1]); after < rollouts.ProgressInterval {
				t.Errorf("%s: its condition was written as %q, and %q came %v after the one before", name, w.conditions, w.conditions[i], after)
			}
		}
		// The workload's: RolloutStarted, the first pod, the last one, RolloutComplete.
		if w.pods < 4 || w.events > w.pods+4 {
			t.Errorf("%s: %d events of %d pods, want one of each pod and four more at the most", name, w.events, w.pods)
		}
	}
}

// writtenFor is what the controller has written in the namespace since the mark, by the
// workload. The pods and ReplicaSets of a workload have names that begin with its own. A write may
// come too late for the version that it is about, but only because of somebody else's.
func writtenFor(t *testing.T, namespace string, mark int64, kinds map[string]string) map[string]written {
	t.Helper()
	audited, err := cp.AuditAbout(namespace, mark, controlplane.Writes)
	if err != nil {
		t.Fatal(err)
	}
	all, last := map[string]written{}, map[string]string{} // who has written an object last
	for _, e := range audited {
		object := e.ObjectRef.Resource + " " + e.ObjectRef.Name
		ours, late := e.User.Username == controller.User, e.ResponseStatus.Code == http.StatusConflict && last[object] != controller.User
		what := fmt.Sprintf("%s %s/%s", e.Verb, object, e.ObjectRef.Subresource)
		if succeeded(&e) {
			last[object] = e.User.Username
		} else if ours && !late {
			t.Errorf("the API server refused to %s: %s", what, e.ResponseStatus.Message)
		}
		if !ours {
			continue
		}
		workload, _, _ := strings.Cut(e.ObjectRef.Name, "-")
		workload, _, _ = strings.Cut(workload, ".") // events
		w := all[workload]
		switch {
		case kinds[workload] == "":
			t.Errorf("%s, which belongs to no workload", what)
		case e.ObjectRef.Resource == "events":
			w.events++
		case e.ObjectRef.Subresource == "resize":
			w.pods++
		case e.ObjectRef.Subresource == "status":
			w.conditions = append(w.conditions, conditionIn(t, e, kinds[workload]))
			w.at = append(w.at, e.StageTimestamp.Time)
		}
		all[workload] = w
	}
	return all
}

// conditionIn is the reason and the message of our condition, as the answer to a write shows it.
func conditionIn(t *testing.T, e auditv1.Event, kind string) string {
	t.Helper()
	objects := map[string]runtime.Object{"StatefulSet": &appsv1.StatefulSet{}, "Deployment": &appsv1.Deployment{}}
	if err := json.Unmarshal(e.ResponseObject.Raw, objects[kind]); err != nil {
		t.Fatalf("parsing %s: %v", e.ResponseObject.Raw, err)
	}
	_, reason, message := complete(objects[kind])
	return reason + " " + message
}
