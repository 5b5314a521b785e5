package webhook

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/klog/v2"
)

// Path is where the policies are: each has its name below.
const Path = "/mutate/"

// maxBody is more than the API server can send: an object and what it was before, each with at
// most 3 MiB.
const maxBody = 8 << 20

// maxBodies is how much may be received at once. Anybody in the cluster can send something, and
// never finish; what API servers send is a thousandth of it.
const maxBodies = 4 * maxBody

// What a request can come to.
const (
	unchanged = "unchanged" // the policy has nothing to change, or does not match
	changed   = "changed"
	refused   = "refused" // the policy could not be evaluated, and fails then
	ignored   = "ignored" // it could not be evaluated, and lets the write through then
	malformed = "malformed"
	crowded   = "crowded_out" // too much was being received
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
			Name: "inplace_rollout_webhook_requests_total", Help: "Requests of API servers, by policy and what came of it.",
		}, []string{"policy", "result"}),
		seconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "inplace_rollout_webhook_request_seconds", Help: "How long it took to answer a request of an API server.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"policy"}),
	}
	for _, policy := range policies {
		m.seconds.WithLabelValues(policy)
		for _, result := range []string{unchanged, changed, refused, ignored, malformed, crowded} {
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

// NewHandler answers the API servers' reviews below [Path]. What is no review gets no answer: then
// the API server does as the failurePolicy says.
func NewHandler(policies *Policies, metrics *Metrics) http.Handler {
	mux, room := http.NewServeMux(), semaphore.NewWeighted(maxBodies)
	for _, name := range policies.Names() {
		mux.HandleFunc("POST "+Path+name, func(w http.ResponseWriter, r *http.Request) {
			size := int64(maxBody)
			if r.ContentLength >= 0 {
				size = min(r.ContentLength, maxBody)
			}
			if !room.TryAcquire(size) {
				metrics.requests.WithLabelValues(name, crowded).Inc()
				http.Error(w, "too much is being received", http.StatusServiceUnavailable)
				return
			}
			defer room.Release(size)
			start := time.Now()
			result, err := review(w, r, policies, name)
			if err != nil {
				klog.FromContext(r.Context()).Error(err, "Could not answer a request", "policy", name)
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
			metrics.requests.WithLabelValues(name, result).Inc()
			metrics.seconds.WithLabelValues(name).Observe(time.Since(start).Seconds())
		})
	}
	return mux
}

func review(w http.ResponseWriter, r *http.Request, policies *Policies, name string) (result string, err error) {
	asked := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(asked); err != nil {
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
