package history

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
)

// client asks Prometheus, and says what to do about it when that fails.
type client struct {
	prometheus.API
	timeout time.Duration
	observe func(query string, took time.Duration, err error)
}

func newClient(server Server, observe func(string, time.Duration, error)) (*client, error) {
	address, err := url.Parse(server.URL)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return nil, fmt.Errorf("%q is no URL of Prometheus: want one such as http://prometheus.monitoring:9090", server.URL)
	}
	c, err := server.httpConfig()
	if err != nil {
		return nil, fmt.Errorf("reaching Prometheus: %w", err)
	}
	transport, err := config.NewRoundTripperFromConfig(c, "prometheus", config.WithUserAgent("inplace-rollout"))
	if err != nil {
		return nil, fmt.Errorf("reaching Prometheus: %w", err)
	}
	inner, err := api.NewClient(api.Config{Address: server.URL, RoundTripper: transport})
	if err != nil {
		return nil, fmt.Errorf("reaching Prometheus: %w", err)
	}
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	return &client{API: prometheus.NewAPI(explaining{inner, address.Redacted()}), timeout: server.Timeout, observe: observe}, nil
}

// httpConfig is how the server is reached.
func (s Server) httpConfig() (config.HTTPClientConfig, error) {
	if s.HTTPConfigFile != "" {
		c, _, err := config.LoadHTTPConfigFile(s.HTTPConfigFile)
		if err != nil {
			return config.HTTPClientConfig{}, fmt.Errorf("reading %s: %w", s.HTTPConfigFile, err)
		}
		return *c, nil
	}
	c := config.DefaultHTTPClientConfig
	c.TLSConfig = config.TLSConfig{
		CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile, InsecureSkipVerify: s.InsecureSkipVerify,
	}
	if s.BearerTokenFile != "" {
		c.Authorization = &config.Authorization{Type: "Bearer", CredentialsFile: s.BearerTokenFile}
	}
	return c, c.Validate()
}

// instant evaluates an expression at one time: which images containers run.
func (c *client) instant(ctx context.Context, expression string, at int64) (model.Vector, error) {
	return ask[model.Vector](ctx, c, QueryInfo, func(ctx context.Context) (model.Value, prometheus.Warnings, prometheus.Infos, error) {
		return c.Query(ctx, expression, time.Unix(at, 0), prometheus.WithTimeout(c.timeout))
	})
}

// series evaluates an expression at every step of a time span.
func (c *client) series(ctx context.Context, query, expression string, piece span, step time.Duration) (model.Matrix, error) {
	return ask[model.Matrix](ctx, c, query, func(ctx context.Context) (model.Value, prometheus.Warnings, prometheus.Infos, error) {
		return c.QueryRange(ctx, expression, prometheus.Range{
			Start: time.Unix(piece.from, 0), End: time.Unix(piece.to, 0).Add(-step), Step: step,
		}, prometheus.WithTimeout(c.timeout))
	})
}

// grace is what an answer may take beyond the time that the server has for the query.
const grace = 10 * time.Second

func ask[V model.Value](ctx context.Context, c *client, query string, ask func(context.Context) (model.Value, prometheus.Warnings, prometheus.Infos, error)) (V, error) {
	limited, cancel := context.WithTimeout(ctx, c.timeout+grace)
	defer cancel()
	start := time.Now()
	value, warnings, _, err := ask(limited)
	answer, ok := value.(V)
	switch {
	case err != nil:
	case len(warnings) > 0: // as of a store that did not answer
		err = ofTime{fmt.Errorf("the answer may lack something: %s", strings.Join(warnings, "; "))}
	case !ok:
		err = fmt.Errorf("the answer is a %s", value.Type())
	}
	c.observe(query, time.Since(start), err)
	if err != nil {
		return answer, fmt.Errorf("asking Prometheus for %s: %w", query, err)
	}
	return answer, nil
}

// refused is the error of a query that asks for too much at once.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// tooMuch reports whether the server might answer if less were asked for. What limits it,
// and how it says so, differs; an execution error has no other cause with expressions that
// others than these have passed.
func tooMuch(err error) bool {
	var said *prometheus.Error
	if errors.As(err, &said) {
		return said.Type == prometheus.ErrExec || said.Type == prometheus.ErrTimeout ||
			said.Type == prometheus.ErrBadData && strings.Contains(said.Msg, "maximum resolution")
	}
	return errors.As(err, &refused{})
}

// ofTime is an error that may be one of the time that was asked for, and not of any other.
type ofTime struct{ error }

func (o ofTime) Unwrap() error { return o.error }

// onlyThen reports whether another time may be answered nevertheless: what is not there, or cannot be
// read, may be a store of its own, or a block.
func onlyThen(err error) bool {
	var said *prometheus.Error
	return errors.As(err, &ofTime{}) || tooMuch(err) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &said) && said.Type == prometheus.ErrServer
}

// explaining turns what is no answer of Prometheus into an error that says what to do.
type explaining struct {
	api.Client
	url string
}

func (e explaining) Do(ctx context.Context, request *http.Request) (*http.Response, []byte, error) {
	response, body, err := e.Client.Do(ctx, request)
	if err != nil {
		return response, body, e.unreached(err)
	}
	switch status := response.StatusCode; status {
	case http.StatusUnauthorized, http.StatusForbidden:
		err = fmt.Errorf("%s refuses us (%s: %s): does it want a token (--prometheus-bearer-token-file), a certificate (--prometheus-client-cert), or a password or header (--prometheus-http-config)?", e.url, response.Status, excerpt(body))
	case http.StatusNotFound:
		err = fmt.Errorf("there is no Prometheus at %s (%s): --prometheus-url is what comes before /api/v1", e.url, response.Status)
	case http.StatusRequestEntityTooLarge, http.StatusGatewayTimeout:
		err = refused{fmt.Errorf("%s: %s", e.url, response.Status)}
	case http.StatusServiceUnavailable:
		err = fmt.Errorf("%s: %s: %s", e.url, response.Status, excerpt(body))
		if strings.Contains(string(body), `"errorType":"timeout"`) {
			err = refused{err}
		}
	case http.StatusOK, http.StatusBadRequest, http.StatusUnprocessableEntity:
		if !strings.HasPrefix(strings.TrimSpace(string(body[:min(len(body), 100)])), "{") {
			err = fmt.Errorf("what answers at %s is no Prometheus: %s", e.url, excerpt(body))
		}
	}
	return response, body, err
}

func (e explaining) unreached(err error) error {
	var unknown x509.UnknownAuthorityError
	var other x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: --prometheus-ca-file has the certificates to trust, or tls_config in --prometheus-http-config", err)
	case errors.As(err, &other):
		return fmt.Errorf("%w: --prometheus-url must have a name that its certificate has", err)
	}
	return err
}

// excerpt is the start of what was answered.
func excerpt(body []byte) string {
	return strings.Join(strings.Fields(string(body[:min(len(body), 200)])), " ")
}
