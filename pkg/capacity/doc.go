// Package capacity answers whether there is room for the pod that a restart would bring, so that a running pod is not given up for
// one that is refused or stays pending. It asks what the scheduler and the API server ask, in their order:
//
//   - Does the API server let it in? The LimitRanges and the validation of sizes (limits.go), what it refers to, its namespace and
//     PodSecurity (admission.go), the quotas (quota.go).
//   - Which nodes could hold it if they were empty (candidates.go), and which beside the pods that are there (taken.go), those that wait
//     for a node (waiting.go), and those that other rollouts were promised room for (ledger.go)?
//   - Where may it be by its volumes (volumes.go), by pod affinity and topology spread (topology.go)?
//
// [Places] answers for each pod by itself, and [Room] for those that take the places of others one after the other, at the time when
// a pod is about to go. Both ask about the pod that comes (newborn.go), and [Cluster] reads what they need.
package capacity
