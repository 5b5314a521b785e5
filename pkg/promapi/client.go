package promapi

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

// Server says where Prometheus is, or what answers its queries, and how to reach it. The
// files are read anew as they change.
type Server struct {
	// URL is what comes before /api/v1.
	URL string
	// HTTPConfigFile says all of the following, and more, as Prometheus' own tools read it:
	// basic auth, OAuth 2, headers, proxies. It goes with none of them.
	HTTPConfigFile string
	// CAFile has the certificates to trust; without it, those of the system are.
	CAFile string
	// CertFile and KeyFile are what we show.
	CertFile, KeyFile string
	// BearerTokenFile has the token that is sent with each query.
	BearerTokenFile string
	// InsecureSkipVerify trusts any certificate.
	InsecureSkipVerify bool
	// Timeout of a query.
	Timeout time.Duration
	// MaxBytes bounds an answer; 0 leaves it open.
	MaxBytes int64
	// Advice is what errors say to do.
	Advice Advice
}

// Advice names the flags with which whoever reads an error can mend it.
type Advice struct {
	URL       string // the flag that has it
	Refused   string // what to show whom it refuses
	Untrusted string // where the certificates to trust are
}

// Client asks Prometheus, and says what to do about it when that fails.
type Client struct {
	// Grace is what an answer may take beyond the time that the server has for the query.
	Grace   time.Duration
	api     prometheus.API
	timeout time.Duration
	observe func(query string, took time.Duration, err error)
}

// New makes a client. It is told by observe, if that is not nil, of each query: what it asked for, how long it took, and whether it
// failed.
func New(server Server, observe func(string, time.Duration, error)) (*Client, error) {
	address, err := url.Parse(server.URL)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return nil, fmt.Errorf("%q is not a URL of Prometheus: want one such as http://prometheus.monitoring:9090", server.URL)
	}
	c, err := server.httpConfig()
	if err != nil {
		return nil, fmt.Errorf("reaching Prometheus: %w", err)
	}
	client, err := config.NewClientFromConfig(c, "prometheus", config.WithUserAgent("inplace-rollout"))
	if err != nil {
		return nil, fmt.Errorf("reaching Prometheus: %w", err)
	}
	if server.MaxBytes > 0 {
		client.Transport = limited{client.Transport, server.MaxBytes}
	}
	inner, err := api.NewClient(api.Config{Address: server.URL, Client: client})
	if err != nil {
		return nil, fmt.Errorf("reaching Prometheus: %w", err)
	}
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	return &Client{Grace: 10 * time.Second, api: prometheus.NewAPI(explaining{inner, address.Redacted(), server.Advice}), timeout: server.Timeout, observe: observe}, nil
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

// Instant evaluates an expression at one time; or now, by the server's clock, if that is zero. What is asked for is named in errors.
func (c *Client) Instant(ctx context.Context, what, expression string, at time.Time) (model.Vector, error) {
	return ask[model.Vector](ctx, c, what, func(ctx context.Context) (model.Value, prometheus.Warnings, prometheus.Infos, error) {
		return c.api.Query(ctx, expression, at, prometheus.WithTimeout(c.timeout))
	})
}

// Range evaluates an expression at every step of a time.
func (c *Client) Range(ctx context.Context, what, expression string, over prometheus.Range) (model.Matrix, error) {
	return ask[model.Matrix](ctx, c, what, func(ctx context.Context) (model.Value, prometheus.Warnings, prometheus.Infos, error) {
		return c.api.QueryRange(ctx, expression, over, prometheus.WithTimeout(c.timeout))
	})
}

func ask[V model.Value](ctx context.Context, c *Client, what string, ask func(context.Context) (model.Value, prometheus.Warnings, prometheus.Infos, error)) (V, error) {
	limited, cancel := context.WithTimeout(ctx, c.timeout+c.Grace)
	defer cancel()
	start := time.Now()
	value, warnings, _, err := ask(limited)
	answer, ok := value.(V)
	switch {
	case err != nil:
	case len(warnings) > 0: // as of a store that did not answer
		err = ofTime{fmt.Errorf("the answer might be incomplete: %s", strings.Join(warnings, "; "))}
	case !ok:
		err = fmt.Errorf("the answer is a %s", value.Type())
	}
	c.observe(what, time.Since(start), err)
	if err != nil {
		return answer, fmt.Errorf("asking Prometheus for %s: %w", what, err)
	}
	return answer, nil
}

// OfSeries reports whether the query failed by what it met, such as series that do not match one to one: about others it may be answered.
func OfSeries(err error) bool {
	var said *prometheus.Error
	return errors.As(err, &said) && said.Type == prometheus.ErrExec
}

// BadQuery reports whether the server does not understand the query.
func BadQuery(err error) bool {
	var said *prometheus.Error
	return errors.As(err, &said) && said.Type == prometheus.ErrBadData
}

// refused is the error of a query that asks for too much at once.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// TooMuch reports whether the server might answer if less were asked for. What limits it,
// and how it says so, differs; an execution error has no other cause with expressions that
// others than these have passed.
func TooMuch(err error) bool {
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

// OnlyThen reports whether another time may be answered nevertheless: what is not there, or cannot be
// read, may be a store of its own, or a block.
func OnlyThen(err error) bool {
	var said *prometheus.Error
	return errors.As(err, &ofTime{}) || TooMuch(err) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &said) && said.Type == prometheus.ErrServer
}

// explaining turns what is no answer of Prometheus into an error that says what to do.
type explaining struct {
	api.Client
	url    string
	advice Advice
}

func (e explaining) Do(ctx context.Context, request *http.Request) (*http.Response, []byte, error) {
	response, body, err := e.Client.Do(ctx, request)
	if err != nil {
		return response, body, e.unreached(err)
	}
	switch status := response.StatusCode; status {
	case http.StatusUnauthorized, http.StatusForbidden:
		err = fmt.Errorf("%s refuses the request (%s: %s): %s", e.url, response.Status, excerpt(body), e.advice.Refused)
	case http.StatusNotFound:
		err = fmt.Errorf("there is no Prometheus at %s (%s): %s must be the URL without /api/v1", e.url, response.Status, e.advice.URL)
	case http.StatusRequestEntityTooLarge, http.StatusGatewayTimeout:
		err = refused{fmt.Errorf("%s: %s", e.url, response.Status)}
	case http.StatusServiceUnavailable:
		err = fmt.Errorf("%s: %s: %s", e.url, response.Status, excerpt(body))
		if strings.Contains(string(body), `"errorType":"timeout"`) {
			err = refused{err}
		}
	case http.StatusOK, http.StatusBadRequest, http.StatusUnprocessableEntity:
		if !strings.HasPrefix(strings.TrimSpace(string(body[:min(len(body), 100)])), "{") {
			err = fmt.Errorf("the server at %s is no Prometheus: %s", e.url, excerpt(body))
		}
	}
	return response, body, err
}

func (e explaining) unreached(err error) error {
	var unknown x509.UnknownAuthorityError
	var other x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: %s", err, e.advice.Untrusted)
	case errors.As(err, &other):
		return fmt.Errorf("%w: %s must have a host name of the certificate", err, e.advice.URL)
	}
	return err
}

// excerpt is the start of what was answered.
func excerpt(body []byte) string {
	return strings.Join(strings.Fields(string(body[:min(len(body), 200)])), " ")
}
