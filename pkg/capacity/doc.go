// Package capacity answers whether there is room for the pod that a restart would bring, so
// that a running pod is not given up for one that is refused or stays pending. Could a node
// hold it (candidates.go), beside the pods that are there (beside.go), where pod affinity and
// topology spread let it be (topology.go)? Do the LimitRanges and the validation of sizes
// let it in (limits.go), and the quotas (quota.go)? It asks what the scheduler and the API
// server ask of most pods, not all that they could ask.
//
// [Places] answers for each pod by itself, and [Room] for those that take the places of
// others one after the other, at the time when a pod is about to go. [Cluster] is what
// forecasts are made from, which have nothing but what was read once.
package capacity
