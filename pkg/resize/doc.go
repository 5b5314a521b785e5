// Package resize answers, for one pod, the three questions of an in-place
// resize: what must its resources become ([For]), which request carries that to
// the API server ([Target.Patch]), and has the kubelet done it ([Target.Observe])?
//
// It looks at cpu and memory only, of the pod as a whole and of the containers that the
// workload's template names. An injected sidecar, an extended resource or a value that a
// LimitRange has filled in belongs to somebody else. Everything here is pure.
//
// What follows from a resize that is deferred, infeasible or failing is decided in pkg/policy (the table) and
// pkg/rollout (when it has been so for too long).
package resize
