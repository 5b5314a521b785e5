package initialresources

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
)

// subject is something with containers.
type subject struct {
	object    *unstructured.Unstructured // nil where images are asked about
	namespace string
	pod       corev1.PodTemplateSpec
}

// templates is where the objects of each kind have what their pods are made from.
var templates = map[schema.GroupKind][]string{
	{Kind: "Pod"}:                        {},
	{Group: "apps", Kind: "Deployment"}:  {"spec", "template"},
	{Group: "apps", Kind: "StatefulSet"}: {"spec", "template"},
	{Group: "apps", Kind: "DaemonSet"}:   {"spec", "template"},
	{Group: "apps", Kind: "ReplicaSet"}:  {"spec", "template"},
	{Group: "batch", Kind: "Job"}:        {"spec", "template"},
	{Group: "batch", Kind: "CronJob"}:    {"spec", "jobTemplate", "spec", "template"},
}

// subjectsIn reads what has pods in a file; - is the standard input.
func subjectsIn(file, namespace string) ([]subject, error) {
	infos, err := resource.NewLocalBuilder().Unstructured().ContinueOnError().
		FilenameParam(false, &resource.FilenameOptions{Filenames: []string{file}}).Flatten().Do().Infos()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	var found []subject
	for _, info := range infos {
		u, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		path, ok := templates[u.GroupVersionKind().GroupKind()]
		if !ok {
			continue
		}
		s := subject{object: u, namespace: u.GetNamespace()}
		if s.namespace == "" {
			s.namespace = namespace
		}
		template, _, err := unstructured.NestedMap(u.Object, path...)
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(template, &s.pod)
		}
		if err != nil {
			return nil, fmt.Errorf("decoding the pods of %s: %w", s.name(), err)
		}
		found = append(found, s)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no workload and no pod", file)
	}
	return found, nil
}

// name is how people write it: deployment/web.
func (s subject) name() string {
	return strings.ToLower(s.object.GetKind()) + "/" + cmp.Or(s.object.GetName(), s.object.GetGenerateName())
}

// patchOf is what writes the requests of a report into the subject's manifest; nil if there are none.
func patchOf(s subject, r estimateReport) map[string]any {
	spec := map[string]any{}
	for _, c := range r.Containers {
		requests := map[string]any{}
		for _, e := range c.Resources {
			if e.Set {
				requests[e.Resource] = e.Estimate.Request.String()
			}
		}
		if len(requests) > 0 {
			list := "containers"
			if c.Type != "" {
				list = "initContainers"
			}
			of, _ := spec[list].([]any)
			spec[list] = append(of, map[string]any{"name": c.Name, "resources": map[string]any{"requests": requests}})
		}
	}
	if len(spec) == 0 {
		return nil
	}
	patch := map[string]any{"spec": spec}
	path := templates[s.object.GroupVersionKind().GroupKind()]
	for i := len(path) - 1; i >= 0; i-- {
		patch = map[string]any{path[i]: patch}
	}
	metadata := map[string]any{"name": s.object.GetName()}
	if namespace := s.object.GetNamespace(); namespace != "" {
		metadata["namespace"] = namespace
	}
	patch["apiVersion"], patch["kind"], patch["metadata"] = s.object.GetAPIVersion(), s.object.GetKind(), metadata
	return patch
}

// printPatches prints those of all subjects, and where there is none.
func printPatches(out, warnings io.Writer, format cli.Format, subjects []subject, reports []estimateReport) error {
	printed := false
	for i, s := range subjects {
		patch := patchOf(s, reports[i])
		problem := ""
		switch {
		case patch == nil:
			problem = "nothing to set"
		case s.object.GetName() == "":
			problem = "no patch: the object has no name"
		}
		if problem != "" {
			if _, err := fmt.Fprintf(warnings, "%s: %s\n", s.name(), problem); err != nil {
				return err
			}
			continue
		}
		if printed && format != "json" {
			if _, err := fmt.Fprintln(out, "---"); err != nil {
				return err
			}
		}
		printed = true
		if err := cli.Encode(out, format, patch); err != nil {
			return err
		}
	}
	return nil
}
