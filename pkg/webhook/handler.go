package webhook

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/klog/v2"
)

// Path is where the webhooks are. Below, each has its name, and a secret.
const Path = "/mutate/"

// maxBody is more than the API server can send: an object and what it was before, each with at
// most 3 MiB.
const maxBody = 8 << 20

// maxBodies is how much may have been received and not be answered yet: what API servers send is a thousandth of it. Of one address
// it may be half of that, so that nobody alone crowds out all others.
const maxBodies = 4 * maxBody

// API servers send a request at once, and wait 5 s for the answer.
const (
	maxPause   = time.Second // in which nothing comes
	maxReceive = 3 * time.Second
)

// What a request can come to.
const (
	unchanged = "unchanged" // the policy has nothing to change, or does not match
	changed   = "changed"
	refused   = "refused" // the policy could not be evaluated, and fails then
	ignored   = "ignored" // it could not be evaluated, and lets the write through then
	malformed = "malformed"
	crowded   = "crowded_out" // too much was being received
	stranger  = "stranger"    // no API server has asked
)

// Metrics of the webhook.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// NewMetrics registers the metrics, which have a label for each policy.
func NewMetrics(registry prometheus.Registerer, policies []string, certificate func() (*tls.Certificate, error)) *Metrics {
	factory := promauto.With(registry)
	m := &Metrics{
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "inplace_rollout_webhook_requests_total", Help: "Requests of API servers, by policy and result.",
		}, []string{"policy", "result"}),
		seconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "inplace_rollout_webhook_request_duration_seconds", Help: "Time to answer a request of an API server.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"policy"}),
	}
	for _, policy := range policies {
		m.seconds.WithLabelValues(policy)
		for _, result := range []string{unchanged, changed, refused, ignored, malformed, crowded, stranger} {
			m.requests.WithLabelValues(policy, result)
		}
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "inplace_rollout_webhook_certificate_expiry_timestamp_seconds", Help: "When the certificate that is served expires; 0 while there is none.",
	}, func() float64 {
		c, err := certificate()
		if err != nil {
			return 0
		}
		return float64(c.Leaf.NotAfter.Unix())
	})
	return m
}

// NewHandler answers the API servers' reviews below [Path], at the paths of webhooks that are known. What is no review gets
// no answer: then the API server does as the failurePolicy says.
func NewHandler(policies *Policies, metrics *Metrics, known func(webhook, path string) bool) http.Handler {
	return newHandler(policies, metrics, known, maxBody, maxBodies)
}

// newHandler is [NewHandler] with other bounds, in bytes, for a body and for all that may have been received and not be answered yet.
func newHandler(policies *Policies, metrics *Metrics, known func(webhook, path string) bool, most, together int64) http.Handler {
	mux, all := http.NewServeMux(), &room{all: together, each: together / 2, taken: map[string]int64{}}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { refuse(w, errStranger, http.StatusForbidden) })
	mux.HandleFunc("POST "+Path+"{webhook}/{secret}", func(w http.ResponseWriter, r *http.Request) {
		webhook := r.PathValue("webhook")
		name, is := policies.of(webhook)
		// Before anything of the body is read.
		if !known(webhook, r.URL.Path) || !is {
			if is {
				metrics.requests.WithLabelValues(name, stranger).Inc()
			}
			refuse(w, errStranger, http.StatusForbidden)
			return
		}
		start := time.Now()
		received := &body{ReadCloser: http.MaxBytesReader(w, r.Body, most), room: all, address: addressOf(r), connection: http.NewResponseController(w), end: start.Add(maxReceive)}
		defer received.release()
		result, err := review(w, r, received, policies, name)
		switch {
		case errors.Is(err, errCrowded):
			result = crowded
			refuse(w, err, http.StatusServiceUnavailable)
		case err != nil:
			klog.FromContext(r.Context()).Error(err, "Could not answer a request", "policy", name)
			refuse(w, err, http.StatusBadRequest)
		}
		metrics.requests.WithLabelValues(name, result).Inc()
		metrics.seconds.WithLabelValues(name).Observe(time.Since(start).Seconds())
	})
	return mux
}

// domain ends the names of webhooks. They begin with that of their policy.
const domain = ".inplace-rollout.io"

// of is the policy of a webhook.
func (p *Policies) of(webhook string) (policy string, is bool) {
	for _, name := range p.Names() {
		if rest, begins := strings.CutPrefix(webhook, name); begins && strings.HasSuffix(rest, domain) && (rest == domain || rest[0] == '-') {
			policy, is = name, true // the later one is longer
		}
	}
	return policy, is
}

// refuse ends the connection, too: the server would wait for the rest of the body.
func refuse(w http.ResponseWriter, err error, code int) {
	w.Header().Set("Connection", "close")
	http.Error(w, err.Error(), code)
}

var (
	errCrowded  = errors.New("too much is being received")
	errStranger = errors.New("only API servers are answered, at the paths of the MutatingWebhookConfiguration")
)

// body is one that takes memory only for what has arrived, and that does not wait long for the rest.
type body struct {
	io.ReadCloser
	room       *room
	address    string
	taken      int64
	connection *http.ResponseController
	end        time.Time
}

func (b *body) Read(p []byte) (int, error) {
	deadline := time.Now().Add(maxPause)
	if b.end.Before(deadline) {
		deadline = b.end
	}
	if err := b.connection.SetReadDeadline(deadline); err != nil {
		return 0, fmt.Errorf("limiting the time: %w", err)
	}
	n, err := b.ReadCloser.Read(p)
	if !b.room.take(b.address, int64(n)) {
		return 0, errCrowded
	}
	b.taken += int64(n)
	return n, err
}

// whole says that the rest of the time is ours.
func (b *body) whole() error { return b.connection.SetReadDeadline(time.Time{}) }

func (b *body) release() { b.room.give(b.address, b.taken) }

// room is what may be taken: by all together, and by each address.
type room struct {
	mu        sync.Mutex
	all, each int64 // all is what is left
	taken     map[string]int64
}

// take takes so many bytes for an address, if there is room for them.
func (r *room) take(address string, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > r.all || r.taken[address]+n > r.each {
		return false
	}
	r.all -= n
	r.taken[address] += n
	return true
}

// give gives them back.
func (r *room) give(address string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all += n
	if r.taken[address] -= n; r.taken[address] == 0 {
		delete(r.taken, address)
	}
}

// addressOf is who has sent the request, as far as others cannot be told from it: an IPv6 network is often one machine's.
func addressOf(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	address := from.Addr().Unmap().WithZone("")
	if network, err := address.Prefix(64); address.Is6() && err == nil {
		return network.String()
	}
	return address.String()
}

func review(w http.ResponseWriter, r *http.Request, received *body, policies *Policies, name string) (result string, err error) {
	asked := &admissionv1.AdmissionReview{}
	err = json.NewDecoder(received).Decode(asked)
	if err := cmp.Or(err, received.whole()); err != nil {
		return malformed, fmt.Errorf("reading the AdmissionReview: %w", err)
	}
	if gvk := asked.GroupVersionKind(); gvk != admissionv1.SchemeGroupVersion.WithKind("AdmissionReview") || asked.Request == nil {
		return malformed, fmt.Errorf("want an AdmissionReview of %s with a request", admissionv1.SchemeGroupVersion)
	}
	response, err := policies.Evaluate(r.Context(), name, asked.Request)
	if err != nil {
		return malformed, err
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: asked.TypeMeta, Response: response}) // the API server may have gone
	switch {
	case !response.Allowed:
		klog.FromContext(r.Context()).Info("Refused a write", "policy", name, "object", klog.KRef(asked.Request.Namespace, asked.Request.Name), "reason", response.Result.Message)
		return refused, nil
	case response.Result != nil:
		klog.FromContext(r.Context()).Info("Let a write through as it is", "policy", name, "object", klog.KRef(asked.Request.Namespace, asked.Request.Name), "reason", response.Result.Message)
		return ignored, nil
	case response.Patch != nil:
		return changed, nil
	}
	return unchanged, nil
}
