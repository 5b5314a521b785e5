// Package deploy gives the programs the files that install what the controller needs in the cluster, as
// they were when it was built.
package deploy

import "embed"

// Cluster has the files of deploy/cluster: admission policies, their bindings, ClusterRoles.
//
//go:embed cluster/*.yaml
var Cluster embed.FS

// InitialResources has the policies of deploy/initial-resources, and their bindings.
//
//go:embed initial-resources/estimate-pods.yaml initial-resources/validate.yaml
var InitialResources embed.FS
