package server

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// reviewer is an API server that knows two tokens: reader may get /metrics, and other may not. It counts
// the tokens that it is asked about, and breaks when it is asked about "away".
func reviewer(t *testing.T, asked *atomic.Int32) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch r.URL.Path {
		case "/apis/authentication.k8s.io/v1/tokenreviews":
			asked.Add(1)
			review := &authenticationv1.TokenReview{}
			err := json.NewDecoder(r.Body).Decode(review)
			switch token := review.Spec.Token; {
			case err != nil || token == "away":
				http.Error(w, "away", http.StatusInternalServerError)
				return
			case token == "reader" || token == "other":
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: token, Groups: []string{"g"}}}
			default:
				review.Status.Error = "unknown"
			}
			answer = review
		case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
			review := &authorizationv1.SubjectAccessReview{}
			must.Fails(t, "the review", json.NewDecoder(r.Body).Decode(review), "")
			of := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "reader" && slices.Contains(review.Spec.Groups, "g") && of.Path == "/metrics" && of.Verb == "get"
			if of.Path == "/debug/pprof/broken" {
				http.Error(w, "away", http.StatusInternalServerError)
				return
			}
			answer = review
		}
		w.Header().Set("Content-Type", "application/json")
		must.Fails(t, "the answer", json.NewEncoder(w).Encode(answer), "")
	}))
	t.Cleanup(server.Close)
	return must.Get(kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}))(t)
}

func TestAuthorizeMetrics(t *testing.T) {
	var asked atomic.Int32
	ready := func() error { return errors.New("a policy is missing") }
	alive := func() error { return errors.New("the sync of StatefulSet default/web hangs") }
	handler := func(secure bool) http.Handler {
		return must.Get(Options{secure: secure, profiling: true}.handler(reviewer(t, &asked), alive, ready, prometheus.NewRegistry()))(t)
	}
	open, secured := handler(false), handler(true)
	for _, tt := range []struct {
		name    string
		handler http.Handler
		path    string
		header  string
		want    int
	}{
		{"metrics are open unless a flag says otherwise", open, "/metrics", "", 200},
		{"without a token", secured, "/metrics", "", 401},
		{"with a password", secured, "/metrics", "Basic reader", 401},
		{"with an unknown token", secured, "/metrics", "Bearer stranger", 401},
		{"with a token that may not", secured, "/metrics", "Bearer other", 403},
		{"with one that may", secured, "/metrics", "Bearer reader", 200},
		{"with one that may get other paths only", secured, "/debug/pprof/heap", "Bearer reader", 403},
		{"nobody can say whose token it is", secured, "/metrics", "Bearer away", 503},
		{"nobody can say what its user may", secured, "/debug/pprof/broken", "Bearer reader", 503},
		{"what is not there is not told to everybody", secured, "/secret", "", 401},
		{"what the kubelet asks is open", secured, "/readyz", "", 503},
		{"what the kubelet asks is open, and tells who hangs", secured, "/healthz", "", 503},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tt.path, nil)
		if tt.header != "" {
			r.Header.Set("Authorization", tt.header)
		}
		w := httptest.NewRecorder()
		tt.handler.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s: %d %s, want %d", tt.name, w.Code, w.Body, tt.want)
		}
		if hangs := strings.Contains(w.Body.String(), "default/web hangs"); hangs != (tt.path == "/healthz") {
			t.Errorf("%s: it says %s", tt.name, w.Body)
		}
	}
	// Nothing but reading is allowed.
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/metrics", nil)
	r.Header.Set("Authorization", "Bearer reader")
	w := httptest.NewRecorder()
	secured.ServeHTTP(w, r)
	if want := "forbidden: reader has no right to post /metrics"; w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), want) {
		t.Errorf("%d %s, want 403 %s", w.Code, w.Body, want)
	}
	before := asked.Load()
	for range 3 {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		r.Header.Set("Authorization", "Bearer reader")
		secured.ServeHTTP(httptest.NewRecorder(), r)
	}
	if more := asked.Load() - before; more != 0 {
		t.Errorf("three more scrapes asked the API server %d times", more)
	}
}

// TestTLS: without files there is a certificate all the same; with them, it may be replaced.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	o := Options{secure: true, CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	if _, err := o.tlsConfig(); err == nil {
		t.Error("there are no files")
	}
	write := func(host string) {
		t.Helper()
		certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		must.Do(t, errors.Join(err, os.WriteFile(o.CertFile, certificate, 0o600), os.WriteFile(o.KeyFile, key, 0o600)))
	}
	write("first.example")
	name := func(o Options, replace func()) string {
		t.Helper()
		config := must.Get(o.tlsConfig())(t)
		replace()
		theirs, ours := net.Pipe()
		defer theirs.Close()
		defer ours.Close()
		served := make(chan error, 1)
		go func() { served <- tls.Server(theirs, config).HandshakeContext(t.Context()) }()
		client := tls.Client(ours, &tls.Config{InsecureSkipVerify: true}) // which one it is, is what this asks
		must.Do(t, errors.Join(client.HandshakeContext(t.Context()), <-served))
		return client.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := name(o, func() { write("second.example") }); !strings.HasPrefix(got, "second.example@") {
		t.Errorf("after the certificate was replaced, %s is served", got)
	}
	host := must.Get(os.Hostname())(t)
	if got := name(Options{secure: true}, func() {}); !strings.HasPrefix(got, host+"@") {
		t.Errorf("the certificate of its own is of %s", got)
	}
}
