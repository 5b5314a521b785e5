package webhook_test

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/webhook"
	"github.com/inplace-rollout/inplace-rollout/test/golden"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const (
	stands = "2026-11-24T03:00:00Z" // when what there is was written
	comes  = "2026-11-24T03:00:10Z" // and when the write comes
)

// sized has containers of this memory and cpu, which can be "null".
func sized(cpu, memory, image string) string {
	return fmt.Sprintf(`{spec: {template: {spec: {containers: [{name: web, image: %s, resources: {requests: {cpu: %s, memory: %s}}}, {name: sidecar, resources: {limits: {cpu: 50m}}}]}}}}`,
		cmp.Or(image, "web"), cpu, memory)
}

// patched is an object with a merge patch.
func patched(t *testing.T, object *unstructured.Unstructured, patch string) *unstructured.Unstructured {
	t.Helper()
	before := must.Get(object.MarshalJSON())(t)
	merge := must.Get(yaml.YAMLToJSON([]byte(patch)))(t)
	after := &unstructured.Unstructured{}
	must.Do(t, after.UnmarshalJSON(must.Get(jsonpatch.MergePatch(before, merge))(t)))
	return after
}

// TestWarnings: what people are told of each write is in testdata/warnings.txt. Where all is well, that is nothing.
func TestWarnings(t *testing.T) {
	const nobody, unbound, restarts, resume = "nobody is there", "what holds is gone, and ", "2026-11-24T02:00:00Z", "kubectl-rollout"
	says := func(name, value string) string { return fmt.Sprintf(", inplace-rollout.io/%s: %q", name, value) }
	up, down, image := sized("200m", "128Mi", ""), sized("100m", "32Mi", ""), sized("100m", "64Mi", "web:2")
	const onDelete, paused, none = "{spec: {updateStrategy: {type: OnDelete, rollingUpdate: null}}}", "{spec: {paused: true}}", "{spec: {replicas: 0}}"
	const partition = "{spec: {updateStrategy: {rollingUpdate: {partition: 5}}}}"
	restarted := "{spec: {template: {metadata: {annotations: {restartedAt: now}}}}}"
	stopped := says("rollout", (&rollout.Record{Phase: rollout.PhaseStopped, Schema: rollout.RecordSchema}).String())
	guide := says("rollout", (&rollout.Record{Phase: rollout.PhaseCanary, Schema: rollout.RecordSchema}).String())
	absent := map[string]string{api.ReadyUntilAnnotation: restarts}
	beating := map[string]string{api.ReadyUntilAnnotation: "2026-11-24T03:00:40Z", api.LeftOutAnnotation: "team-b,team-c"}
	policies := map[bool]*webhook.Policies{
		false: following(t, deploy.User, map[string]map[string]string{"inplace-rollout": beating}),
		true:  following(t, deploy.User, map[string]map[string]string{"inplace-rollout": absent}),
	}
	const sets, deployments, daemons = "StatefulSet", "Deployment", "DaemonSet"
	var out bytes.Buffer
	for _, tt := range []struct {
		what, kind  string
		annotations string // of what there is; HELD stands for that of a hold
		there       string // a merge patch of it
		write       string // a merge patch of that
		manager     string
		isNew       bool
		namespace   string
	}{
		{what: "an edit of sizes", kind: sets, write: up},
		{what: "another one during the hold", kind: sets, annotations: "HELD", write: up},
		{what: "a new image", kind: sets, write: image},
		{what: "rollout restart", kind: sets, write: restarted},
		{what: "an annotation", kind: sets, annotations: "HELD", write: "{metadata: {annotations: {c: d}}}"},
		{what: "opting in", kind: sets, there: "{metadata: {labels: {inplace-rollout.io/enabled: null}}}", write: "{metadata: {labels: {inplace-rollout.io/enabled: 'true'}}}"},
		{what: "opting out", kind: sets, write: "{metadata: {labels: {inplace-rollout.io/enabled: null}}}"},
		{what: "opting out during the hold", kind: sets, annotations: "HELD", write: "{metadata: {labels: {inplace-rollout.io/enabled: null}}}"},
		{what: "opting out by the value false during the hold", kind: deployments, annotations: "HELD", write: "{metadata: {labels: {inplace-rollout.io/enabled: 'false'}}}"},
		{what: "opting out during the hold, paused by its user", kind: deployments, annotations: says("hold", "true"), write: "{metadata: {labels: {inplace-rollout.io/enabled: null}}}"},
		{what: "opting out during the hold, and its user pauses", kind: deployments, annotations: "HELD", write: "{metadata: {annotations: {inplace-rollout.io/hold: 'true'}, labels: {inplace-rollout.io/enabled: null}}}"},
		{what: "opting out during the hold, all are kept back", kind: sets, annotations: says("hold", "5"), write: "{metadata: {labels: {inplace-rollout.io/enabled: null}}}"},
		{what: "deleting it during the hold", kind: sets, annotations: "HELD", write: "{metadata: {deletionTimestamp: '2026-11-24T03:00:10Z', finalizers: [a.b/c]}}"},
		{what: "an edit of sizes under OnDelete", kind: sets, there: onDelete, write: up},
		{what: "a new one", kind: sets, isNew: true},
		{what: "an edit of sizes", kind: deployments, write: up},
		{what: "an edit of sizes while its user has it paused", kind: deployments, there: paused, write: up},
		{what: "an edit of sizes", kind: daemons, write: up},
		{what: "an edit of sizes under OnDelete", kind: daemons, there: onDelete, write: up},
		{what: "a new one", kind: daemons, isNew: true},

		{what: "an edit of sizes, " + nobody, kind: sets, write: up},
		{what: "an edit of sizes, " + nobody, kind: deployments, write: up},
		{what: "an edit of sizes, " + nobody, kind: daemons, write: up},
		{what: "an edit of sizes under OnDelete, " + nobody, kind: sets, there: onDelete, write: up},
		{what: "an edit of sizes with the action LiveResize, " + nobody, kind: sets, annotations: says("resource-resize-action", "LiveResize"), write: up},
		{what: "an edit of sizes without replicas, " + nobody, kind: sets, there: none, write: up},
		{what: "an edit of sizes while its user has it paused, " + nobody, kind: deployments, there: paused, write: up},
		{what: "an annotation during the hold, paused by its user, " + nobody, kind: deployments, annotations: says("hold", "true"), write: "{metadata: {annotations: {c: d}}}"},
		{what: "its user pauses during the hold, " + nobody, kind: deployments, annotations: "HELD", write: "{metadata: {annotations: {inplace-rollout.io/hold: 'true'}}}"},
		{what: "an edit of sizes, all are kept back, " + nobody, kind: sets, there: partition, write: up},
		{what: "an annotation during the hold, all are kept back, " + nobody, kind: sets, annotations: says("hold", "5"), write: "{metadata: {annotations: {c: d}}}"},
		{what: "a new image, " + nobody, kind: sets, write: image},
		{what: "an annotation during the hold, " + nobody, kind: sets, annotations: "HELD", write: "{metadata: {annotations: {c: d}}}"},
		{what: "a new one, " + nobody, kind: daemons, isNew: true},
		{what: "an edit of sizes, " + unbound + nobody, kind: deployments, write: up},
		{what: "an undo during a canary, " + nobody, kind: sets, annotations: "HELD" + guide, write: down},
		{what: "an undo after a size that failed, " + nobody, kind: deployments, annotations: "HELD" + stopped, write: down},
		{what: "an annotation during a canary, " + nobody, kind: sets, annotations: "HELD" + guide, write: "{metadata: {annotations: {c: d}}}"},

		{what: "the action Restart, with an edit of sizes", kind: sets, annotations: says("resource-resize-action", "Restart"), write: up},
		{what: "the action Restart, with a new image", kind: sets, annotations: says("resource-resize-action", "Restart"), write: image},
		{what: "the action Restart under OnDelete", kind: daemons, there: onDelete, annotations: says("resource-resize-action", "Restart"), write: up},
		{what: "RestartOnly for what changes", kind: sets, annotations: says("resource-resize-policy", "memory=RestartOnly"), write: up},
		{what: "RestartOnly for what does not change", kind: sets, annotations: says("resource-resize-policy", "cpu=RestartOnly"), write: down},
		{what: "RestartOnly for the other direction", kind: sets, annotations: says("resource-resize-policy", "memory:decrease=RestartOnly"), write: up},
		{what: "RestartOnly for this direction", kind: deployments, annotations: says("resource-resize-policy", "memory:decrease=RestartOnly"), write: down},
		{what: "RestartOnly for another container", kind: sets, annotations: says("resource-resize-policy", "sidecar/memory=RestartOnly"), write: up},
		{what: "RestartOnly, but not for this container", kind: sets, annotations: says("resource-resize-policy", "memory=RestartOnly,web/memory=LiveResizeable"), write: up},
		{what: "RestartOnly for this container alone", kind: sets, annotations: says("resource-resize-policy", "memory=LiveResizeable, web/memory=RestartOnly"), write: up},
		{what: "RestartOnly, and a quantity is spelled otherwise", kind: deployments, annotations: says("resource-resize-policy", "memory=RestartOnly,cpu=RestartOnly"), write: sized("0.1", "65536Ki", "")},
		{what: "RestartOnly for a decrease, and a request goes", kind: sets, annotations: says("resource-resize-policy", "memory:decrease=RestartOnly"), write: sized("100m", "null", "")},

		{what: "rollout resume during the hold", kind: deployments, annotations: "HELD", write: "{spec: {paused: null}}", manager: resume},
		{what: "rollout resume of one that was stopped", kind: deployments, annotations: "HELD" + stopped, write: "{spec: {paused: null}}", manager: resume},
		{what: "rollout resume during the hold, paused by its user", kind: deployments, annotations: says("hold", "true"), write: "{spec: {paused: null}}", manager: resume},
		{what: "rollout resume of one that its user has paused", kind: deployments, there: paused, write: "{spec: {paused: null}}", manager: resume},
		{what: "server-side apply of paused: false during the hold", kind: deployments, annotations: "HELD", write: "{spec: {paused: false}}", manager: "argocd-controller"},

		{what: "rollout restart with a size that failed", kind: sets, annotations: "HELD" + stopped, write: restarted},
		{what: "another size after one that failed", kind: sets, annotations: "HELD" + stopped, write: down},
		{what: "a retry that names no rollout", kind: deployments, annotations: "HELD" + stopped, write: "{metadata: {annotations: {inplace-rollout.io/retry: now}}}"},
		{what: "a retry that names one", kind: deployments, annotations: "HELD" + stopped, write: "{metadata: {annotations: {inplace-rollout.io/retry: a@b}}}"},
		{what: "rollout restart during a canary", kind: sets, annotations: "HELD" + guide, write: restarted},

		{what: "a duration without a canary", kind: sets, write: "{metadata: {annotations: {inplace-rollout.io/canary-duration: 10m}}}"},
		{what: "opting in with it", kind: deployments, annotations: says("canary-duration", "10m"), there: "{metadata: {labels: {inplace-rollout.io/enabled: null}}}", write: "{metadata: {labels: {inplace-rollout.io/enabled: 'true'}}}"},
		{what: "it was there", kind: sets, annotations: says("canary-duration", "10m"), write: "{metadata: {annotations: {c: d}}}"},
		{what: "then a canary", kind: sets, annotations: says("canary-duration", "10m"), write: "{metadata: {annotations: {inplace-rollout.io/canary: '1'}}}"},
		{what: "a duration with checks alone", kind: sets, annotations: says("checks", "a"), write: "{metadata: {annotations: {inplace-rollout.io/canary-duration: 10m}}}"},
		{what: "an edit of sizes in the middle of a rollout with maxSurge", kind: daemons,
			there: "{spec: {updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}}, status: {currentNumberScheduled: 3, updatedNumberScheduled: 1}}", write: up},
		{what: "an edit of sizes in the middle of one, and OnDelete", kind: daemons,
			there: "{spec: {updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}}, status: {currentNumberScheduled: 3, updatedNumberScheduled: 1}}",
			write: strings.TrimSuffix(up, "}}") + ", updateStrategy: {type: OnDelete, rollingUpdate: null}}}"},
		{what: "opting in, in a namespace that is left out", kind: sets, there: "{metadata: {labels: {inplace-rollout.io/enabled: null}}}", write: "{metadata: {labels: {inplace-rollout.io/enabled: 'true'}}}", namespace: "team-b"},
		{what: "an edit of sizes there", kind: sets, write: up, namespace: "team-b"},
		{what: "a new image there", kind: sets, write: image, namespace: "team-b"},
	} {
		annotations := strings.Replace(tt.annotations, "HELD", heldBy(tt.kind), 1)
		old := patched(t, workload(t, tt.kind, "", annotations, stands), sized("100m", "64Mi", ""))
		if tt.there != "" {
			old = patched(t, old, tt.there)
		}
		if tt.namespace != "" {
			old.SetNamespace(tt.namespace)
		}
		w := webhook.Write{Object: old, Old: old, User: "user", FieldManager: tt.manager}
		if tt.isNew {
			w.Old = nil
		} else {
			w.Object = patched(t, old, tt.write)
		}
		at := must.Get(yaml.YAMLToJSON([]byte(`"` + comes + `"`)))(t)
		var time metav1.Time
		must.Do(t, time.UnmarshalJSON(at))
		w.Object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: cmp.Or(tt.manager, "kubectl"), Operation: metav1.ManagedFieldsOperationUpdate, Time: &time}})
		p := policies[strings.HasSuffix(tt.what, nobody)]
		if tt.namespace != "team-b" && !strings.Contains(tt.what, unbound) { // there the webhook is not asked
			w.Object = admit(t, p, w)
		}
		warnings, err := p.Warnings(t.Context(), w)
		fmt.Fprintf(&out, "%s: %s\n", tt.kind, tt.what)
		for _, said := range warnings {
			fmt.Fprintf(&out, "    %s\n", said)
		}
		must.Fails(t, tt.kind+": "+tt.what, err, "")
	}
	golden.Assert(t, "warnings.txt", out.Bytes())
}
