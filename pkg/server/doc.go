// Package server has what the long-running commands share beside their work: how the API server is
// reached (client.go, requesttimeout.go), the log (log.go), the leader election (leaderelection.go) and the
// gate that lets only the leader write (leasegate.go), and who may read the metrics (metrics.go,
// authorizemetrics.go).
package server
