package podchecks

import (
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/promapi"
)

// mostBytes of an answer: what is asked about a hundred pods takes a tenth of it.
const mostBytes = 1_000_000

// Server is the Prometheus that checks are asked of, and the file that says how to reach it, if there is one.
func Server(url, httpConfigFile string) promapi.Server {
	return promapi.Server{
		URL: url, HTTPConfigFile: httpConfigFile, Timeout: 20 * time.Second, MaxBytes: mostBytes,
		Advice: promapi.Advice{
			URL:       "--checks-prometheus",
			Refused:   "if it wants a password, token, certificate or header, set --checks-http-config",
			Untrusted: "set the certificates to trust by tls_config in --checks-http-config",
		},
	}
}
