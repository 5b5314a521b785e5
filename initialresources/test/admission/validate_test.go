//go:build around

package admission

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestValues writes labels and annotations, good and bad.
func TestValues(t *testing.T) {
	t.Parallel()
	const (
		refusesLabel      = `label inplace-rollout.io/initial-resources: "on" must be enabled or annotate`
		refusesAnnotation = `annotation inplace-rollout.io/initial-resources: "sometimes" must be always, if-not-set or never`
	)
	for kind, text := range map[string]string{
		"Pod":         `{apiVersion: v1, metadata: {name: a, META}, spec: {containers: [{name: app, image: web}]}}`,
		"Deployment":  `{apiVersion: apps/v1, metadata: {name: a}, spec: {selector: {matchLabels: {app: web}}, template: TEMPLATE}}`,
		"StatefulSet": `{apiVersion: apps/v1, metadata: {name: a}, spec: {selector: {matchLabels: {app: web}}, template: TEMPLATE}}`,
		"DaemonSet":   `{apiVersion: apps/v1, metadata: {name: a}, spec: {selector: {matchLabels: {app: web}}, template: TEMPLATE}}`,
		"ReplicaSet":  `{apiVersion: apps/v1, metadata: {name: a}, spec: {selector: {matchLabels: {app: web}}, template: TEMPLATE}}`,
		"Job":         `{apiVersion: batch/v1, metadata: {name: a}, spec: {template: TEMPLATE}}`,
		"CronJob":     `{apiVersion: batch/v1, metadata: {name: a}, spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: TEMPLATE}}}}`,
		"Namespace":   `{apiVersion: v1, metadata: {name: a, META}}`,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			create := func(label, annotation string) error {
				restart := "Always"
				if strings.HasSuffix(kind, "Job") {
					restart = "Never"
				}
				text := strings.Replace(text, "TEMPLATE", "{metadata: {META}, spec: {restartPolicy: "+restart+", containers: [{name: app, image: web}]}}", 1)
				meta := fmt.Sprintf("labels: {app: web%s}, annotations: {a: b%s}", label, annotation)
				text = strings.Replace(text, "{", "{kind: "+kind+", ", 1)
				return kubectl(t, strings.Replace(text, "META", meta, 1), "create", "--dry-run=server")
			}
			const label, annotation = ", inplace-rollout.io/initial-resources: ", ", inplace-rollout.io/initial-resources: "
			must.Fails(t, "with a bad label", create(label+`"on"`, ""), refusesLabel)
			if err := create("", annotation+"sometimes"); kind == "Namespace" && err != nil {
				t.Errorf("with an annotation that says nothing there: %v", err)
			} else if kind != "Namespace" && (err == nil || !strings.Contains(err.Error(), refusesAnnotation)) {
				t.Errorf("with a bad annotation: %v, want %s", err, refusesAnnotation)
			}
			const room = ", inplace-rollout.io/initial-resources-room: "
			if err := create("", room+"sometimes"); (kind == "Namespace") != (err != nil && strings.Contains(err.Error(), "initial-resources-room: the value must be always or never")) {
				t.Errorf("with a bad annotation about room: %v", err)
			}
			must.Fails(t, "with a good annotation about room", create("", room+"never"), "")
			for _, good := range [][2]string{{"enabled", "always"}, {"annotate", "if-not-set"}, {"enabled", "never"}} {
				must.Fails(t, fmt.Sprint(good), create(label+good[0], annotation+good[1]), "")
			}
			must.Fails(t, "with neither", create("", ""), "")
		})
	}
}

// TestOlderValues edits it: what it says is not judged, but what is new is.
func TestOlderValues(t *testing.T) {
	t.Parallel()
	for edit, bad := range map[[2]string]bool{
		{`version: "1"`, `version: "2"`}:        false,
		{"image: web", "image: other"}:          false,
		{": sometimes", ": always"}:             false,
		{": sometimes", ": rarely"}:             true,
		{`resources: "on"`, `resources: "off"`}: true,
	} {
		err := kubectl(t, strings.Replace(older, edit[0], edit[1], 1), "apply", "--dry-run=server")
		if refused := err != nil && strings.Contains(err.Error(), "must be"); refused != bad || err != nil && !refused {
			t.Errorf("from %s to %s: %v; want it refused: %t", edit[0], edit[1], err, bad)
		}
	}
}

// TestLaterValues labels and annotates a pod that is there.
func TestLaterValues(t *testing.T) {
	t.Parallel()
	pod := must.Get(newPod(`spec: {containers: [{name: app, image: web}]}`))(t)
	pod = must.Get(client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	for _, verb := range []string{"label", "annotate"} {
		for value, bad := range map[string]bool{"on": true, "enabled": verb == "annotate", "never": verb == "label"} {
			_, err := cp.Kubectl(t.Context(), verb, "--dry-run=server", "pod", pod.Name, api.InitialResourcesLabel+"="+value)
			if refused := err != nil && strings.Contains(err.Error(), "must be"); refused != bad || err != nil && !refused {
				t.Errorf("%s %s: %v; want it refused: %t", verb, value, err, bad)
			}
		}
	}
}

// TestLabelOfTables: no ConfigMap but the table has the label by which admission finds that, since each pod would be evaluated with each.
func TestLabelOfTables(t *testing.T) {
	t.Parallel()
	for text, bad := range map[string]bool{
		`metadata: {name: other, labels: {LABEL}}`:                             true,
		`metadata: {generateName: inplace-rollout-initial-, labels: {LABEL}}`:  true,
		`metadata: {name: inplace-rollout-initial-resources, labels: {LABEL}}`: false,
		`metadata: {name: other}`:                                              false,
	} {
		text = "{apiVersion: v1, kind: ConfigMap, " + strings.Replace(text, "LABEL", api.ManagedByLabel+": inplace-rollout", 1) + "}"
		err := kubectl(t, text, "create", "--dry-run=server")
		if refused := err != nil && strings.Contains(err.Error(), "for the ConfigMap inplace-rollout-initial-resources alone"); refused != bad || err != nil && !refused {
			t.Errorf("%s: %v; want it refused: %t", text, err, bad)
		}
	}
}
