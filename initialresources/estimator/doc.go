// Package estimator publishes what initialresources/estimate makes of initialresources/history, so that admission finds
// it: in each namespace that is opted in, a ConfigMap with the estimates for its pods
// (table.go, publish.go), within what LimitRanges and nodes allow, and beside them what room
// nodes and quotas have (room.go). It tells what has become of new pods (events.go), and
// may resize those that an estimate has sized, as evidence grows (afterwards.go).
//
// It is in nobody's way: pods are created with the last estimates while it is gone.
package estimator
