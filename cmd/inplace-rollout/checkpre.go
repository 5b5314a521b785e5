package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
)

// before checks whether the cluster is ready for the installation.
func (o checkOptions) before(ctx context.Context) checkReport {
	conclude := func(deciding []finding, others ...finding) checkReport {
		return checkReport{Namespace: o.namespace}.concluded("the cluster is ready for the installation",
			"the cluster is not ready for the installation", "the cluster is ready for the installation", deciding, others...)
	}
	server, answers := o.apiServer(ctx)
	if !answers {
		return conclude([]finding{server})
	}
	way, how := o.wayToHold(ctx)
	parts, err := toInstall(way)
	if err != nil {
		return conclude([]finding{server, how, {"Installs", unknown, err.Error()}})
	}
	deciding, present := []finding{server, how, o.mayInstall(ctx, parts)}, o.present(ctx)
	if present.Outcome == failed {
		return conclude(append(deciding, present), finding{"Installs", noted, parts.String()})
	}
	return conclude(deciding, finding{"Installs", noted, parts.String()}, present)
}

// wayToHold says in which way this cluster can hold edits.
func (o checkOptions) wayToHold(ctx context.Context) (prerequisite.Way, finding) {
	switch policies, err := prerequisite.ServesPolicies(ctx, o.client); {
	case err != nil:
		return prerequisite.Policy, finding{nameOfHold, unknown, err.Error()}
	case policies:
		return prerequisite.Policy, finding{nameOfHold, passed, "MutatingAdmissionPolicies can hold edits: Helm, or kubectl apply -k deploy/"}
	}
	return prerequisite.Webhook, finding{nameOfHold, passed, "this API server does not serve MutatingAdmissionPolicy, as Kubernetes 1.36 does, so a webhook is to hold edits: " +
		"Helm, or kubectl apply -k deploy/overlays/webhook"}
}

// present says whether there is an installation already.
func (o checkOptions) present(ctx context.Context) finding {
	const name = "Installed"
	switch r := (&prerequisite.Cluster{Client: o.client}).Report(ctx); {
	case prerequisite.IsNotInstalled(r.Installed):
		return finding{name, noted, "nothing yet"}
	case r.Way == "":
		return finding{name, unknown, "whether something is installed could not be seen: " + r.Unseen[0].Error()}
	case r.Labelled:
		return finding{name, failed, "it is installed for single namespaces, by deploy/overlays/one-namespace. Install it for another one in the same way, or uninstall these first"}
	}
	return finding{name, noted, "there is an installation already, which would be upgraded"}
}

// parts are what would be installed, by what it needs the right to create. Values are the kinds, and how many of each.
type parts map[authorizationv1.ResourceAttributes]part

type part struct {
	kind   string
	number int
}

// toInstall are the objects of deploy/, or deploy/overlays/webhook.
func toInstall(way prerequisite.Way) (parts, error) {
	files := []fs.FS{deploy.Cluster, deploy.Former, deploy.Controller}
	if way == prerequisite.Webhook {
		files = append(files, deploy.Webhook)
	}
	all := parts{}
	for _, folder := range files {
		objects, err := deploy.Objects(folder, deploy.User)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			kind := object.GetObjectKind().GroupVersionKind()
			if way == prerequisite.Webhook && strings.HasPrefix(kind.Kind, "MutatingAdmissionPolicy") {
				continue
			}
			resource, _ := meta.UnsafeGuessKindToResource(kind)
			needs := authorizationv1.ResourceAttributes{Verb: "create", Group: resource.Group, Resource: resource.Resource}
			p := all[needs]
			all[needs] = part{kind.Kind, p.number + 1}
		}
	}
	return all, nil
}

func (p parts) String() string {
	var said []string
	for _, part := range slices.SortedFunc(maps.Values(p), func(a, b part) int { return strings.Compare(a.kind, b.kind) }) {
		kind := part.kind
		if part.number > 1 {
			kind += "s"
			if stem, is := strings.CutSuffix(kind, "ys"); is {
				kind = stem + "ies"
			}
		}
		said = append(said, fmt.Sprintf("%d %s", part.number, kind))
	}
	return strings.Join(said, ", ")
}

// mayInstall says whether the user may create that.
func (o checkOptions) mayInstall(ctx context.Context, p parts) finding {
	const name = "You"
	needs := slices.SortedFunc(maps.Keys(p), func(a, b authorizationv1.ResourceAttributes) int { return strings.Compare(a.Resource, b.Resource) })
	for i := range needs {
		if namespacedKinds[p[needs[i]].kind] {
			needs[i].Namespace = cmp.Or(o.controllerNamespace, "inplace-rollout")
		}
	}
	switch lacks, err := o.lacks(ctx, needs, map[authorizationv1.ResourceAttributes]bool{}); {
	case err != nil:
		return finding{name, unknown, "whether you can install it could not be seen: " + err.Error()}
	case len(lacks) > 0:
		return finding{name, failed, "you cannot install it: you lack " + strings.Join(lacks, ", ")}
	}
	return finding{name, passed, "can create all of it. Whoever creates ClusterRoles must have the rights that they give, as a cluster administrator has"}
}

// namespacedKinds are those whose objects are in the namespace of the controller.
var namespacedKinds = map[string]bool{
	"ServiceAccount": true, "Role": true, "RoleBinding": true, "Deployment": true, "Service": true, "PodDisruptionBudget": true, "ConfigMap": true,
}
