package server

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/inplace-rollout/inplace-rollout/pkg/version"
)

// DefaultNamespace is the one that deploy/ installs into.
const DefaultNamespace = "inplace-rollout"

// OwnNamespace is the namespace of the pod that this runs in; "" if it runs in none.
func OwnNamespace() string {
	own, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(own))
}

// AddKubeconfigFlag adds the flag --kubeconfig.
func AddKubeconfigFlag(f *pflag.FlagSet, kubeconfig *string) {
	f.StringVar(kubeconfig, "kubeconfig", "", "path to a kubeconfig; empty means $KUBECONFIG, or the pod's own ServiceAccount")
}

// RESTConfig is how what runs in the cluster reaches the API server. Each request has a deadline.
func RESTConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	config.UserAgent = version.Get().UserAgent()
	config.DisableCompression = true // as kube-controller-manager does: each watch would keep 50 KiB for it
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return deadline{next, requestTimeout} })
	return Unlimited(config), nil
}

// At returns config for the API server at an address. It has to have the certificate that config asks of the address that it has.
func At(config *rest.Config, address string) (*rest.Config, error) {
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	config = rest.CopyConfig(config)
	if config.ServerName == "" && url.Scheme == "https" {
		config.ServerName = url.Hostname()
	}
	url.Host = address
	config.Host = url.String()
	return config, nil
}

// Apart returns config for requests each of which has a connection of its own. With HTTP/2 all share one, and none is answered while
// nobody has noticed that an API server has gone without a word.
func Apart(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return closing{next} })
	return config
}

// closing has no connection used again.
type closing struct{ next http.RoundTripper }

func (c closing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Close = true
	return c.next.RoundTrip(r)
}

// Unlimited returns config without a limit on the rate of requests.
func Unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil // 0 would be client-go's default
	return config
}
