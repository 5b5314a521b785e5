// Package judge says of each pod of a workload, by itself, how it has been seen, what it needs, and whether it is well with its size.
// What may be done to it beside the others is [github.com/inplace-rollout/inplace-rollout/pkg/rollout]'s to say.
package judge
