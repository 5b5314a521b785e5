// Package deploy gives the programs the files that install what the controller needs in the cluster, as
// they were when it was built.
package deploy

import "embed"

// Cluster has the files of deploy/cluster: admission policies, their bindings, ClusterRoles.
//
//go:embed cluster/*.yaml
var Cluster embed.FS
