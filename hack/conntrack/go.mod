// Takes the place of a module that Prometheus' HTTP client imports: see conntrack.go.
module github.com/mwitkow/go-conntrack

go 1.26.0
