// Package deploy gives the programs the files that install what the controller needs in the cluster, as
// they were when it was built.
package deploy

import (
	"embed"
	"io/fs"
)

// Cluster has the files of deploy/cluster: admission policies, their bindings, ClusterRoles.
//
//go:embed cluster/*.yaml
var Cluster embed.FS

// Former has the policies of the version before under their old names, which do nothing any more.
//
//go:embed former/policies.yaml
var Former embed.FS

// InitialResources has the policies of deploy/initial-resources, and their bindings.
//
//go:embed initial-resources/estimate-pods.yaml initial-resources/validate.yaml
var InitialResources embed.FS

// Controller has what deploy/ installs beside deploy/cluster, and Webhook what deploy/overlays/webhook adds.
var (
	//go:embed common/*.yaml controller/*.yaml
	Controller embed.FS
	//go:embed overlays/webhook/*.yaml
	overlays embed.FS
	Webhook  = mustSub(overlays, "overlays")
)

func mustSub(files embed.FS, folder string) fs.FS {
	sub, err := fs.Sub(files, folder)
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}
