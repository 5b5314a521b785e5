package history

import (
	"time"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/promapi"
)

// Metrics are the names of what is asked for. CPU and Memory are cAdvisor's, the others
// kube-state-metrics'.
type Metrics struct {
	CPU, Memory                        string
	Info, InitInfo                     string // which image a container runs
	Restarts, InitRestarts             string
	LastTerminated, InitLastTerminated string // why it ended before it was started again
	Terminated, Completion             string // why it has ended for good, and when its pod did
}

// Options say what is read.
type Options struct {
	promapi.Server
	Metrics
	// Matchers that all series must have, such as cluster="eu-1".
	Matchers []string
	// CAdvisor and StateMetrics are those that series must have, too, which come from there: what
	// other targets expose under the same names is not believed. An empty one matches all.
	CAdvisor, StateMetrics []string
	// Window is how far back it is read.
	Window time.Duration
	// Resolution is the time between two samples.
	Resolution time.Duration
	// Range is the time that a rate of cpu is taken over, and that a container's memory is
	// good for. It must be twice the interval of the scrapes, at least.
	Range time.Duration
	// Lag is how long it takes until what is scraped can be asked for.
	Lag time.Duration
	// ByContainer keeps containers of different names apart that run the same image: the name
	// is the Role of their Key.
	ByContainer bool
	// Images are the only ones that are read, in any version; all are if there are none.
	Images []estimate.Image
	// Namespaces are the only ones that are read; all are if there are none.
	Namespaces []string
	// Observe, if there is one, is told of each query: what it asks for (one of Queries), how
	// long it took, and whether it failed.
	Observe func(query string, took time.Duration, err error)
}

// What queries ask for.
const (
	QueryInfo   = "info"
	QueryCPU    = "cpu"
	QueryMemory = "memory"
	QueryKills  = "kills"
)

// Queries are all of them.
var Queries = []string{QueryInfo, QueryCPU, QueryMemory, QueryKills}

// Defaults are those of an installation that nobody has changed, without a URL. The jobs are
// called as kube-prometheus calls them.
func Defaults() Options {
	return Options{
		Server: promapi.Server{Timeout: 2 * time.Minute, Advice: promapi.Advice{
			URL:       "--prometheus-url",
			Refused:   "if it wants a token, set --prometheus-bearer-token-file; for a certificate --prometheus-client-cert, for a password or header --prometheus-http-config",
			Untrusted: "set the certificates to trust by --prometheus-ca-file, or by tls_config in --prometheus-http-config",
		}},
		Metrics: Metrics{
			CPU:                "container_cpu_usage_seconds_total",
			Memory:             "container_memory_working_set_bytes",
			Info:               "kube_pod_container_info",
			InitInfo:           "kube_pod_init_container_info",
			Restarts:           "kube_pod_container_status_restarts_total",
			InitRestarts:       "kube_pod_init_container_status_restarts_total",
			LastTerminated:     "kube_pod_container_status_last_terminated_reason",
			InitLastTerminated: "kube_pod_init_container_status_last_terminated_reason",
			Terminated:         "kube_pod_container_status_terminated_reason",
			Completion:         "kube_pod_completion_time",
		},
		CAdvisor:     []string{`job="kubelet"`},
		StateMetrics: []string{`job="kube-state-metrics"`},
		Window:       30 * 24 * time.Hour,
		Resolution:   time.Minute,
		Range:        2 * time.Minute,
		Lag:          2 * time.Minute,
	}
}
