package main

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"
)

// reviewer knows two tokens: reader may get /metrics, and other may not. It counts what it is asked.
func reviewer(asked *int) *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		*asked++
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		switch token := review.Spec.Token; token {
		case "reader", "other":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: token, Groups: []string{"g"}}}
		case "away":
			return true, nil, errors.New("the API server is away")
		}
		return true, review, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		of := review.Spec.NonResourceAttributes
		review.Status.Allowed = review.Spec.User == "reader" && review.Spec.Groups[0] == "g" && of.Path == "/metrics" && of.Verb == "get"
		return true, review, nil
	})
	return client
}

func TestGuard(t *testing.T) {
	asked := 0
	ready := func() error { return errors.New("a policy is missing") }
	alive := func() error { return errors.New("the sync of StatefulSet default/web hangs") }
	handler := func(secure bool) http.Handler {
		return controllerOptions{secureMetrics: secure, profiling: true}.handler(reviewer(&asked), alive, ready, prometheus.NewRegistry())
	}
	open, guarded := handler(false), handler(true)
	for _, tt := range []struct {
		name    string
		handler http.Handler
		path    string
		header  string
		want    int
	}{
		{"metrics are open unless a flag says otherwise", open, "/metrics", "", 200},
		{"without a token", guarded, "/metrics", "", 401},
		{"with a password", guarded, "/metrics", "Basic reader", 401},
		{"with an unknown token", guarded, "/metrics", "Bearer stranger", 401},
		{"with a token that may not", guarded, "/metrics", "Bearer other", 403},
		{"with one that may", guarded, "/metrics", "Bearer reader", 200},
		{"with one that may get other paths only", guarded, "/debug/pprof/heap", "Bearer reader", 403},
		{"nobody can say", guarded, "/metrics", "Bearer away", 503},
		{"what the kubelet asks is open", guarded, "/readyz", "", 503},
		{"what the kubelet asks is open, and tells who hangs", guarded, "/healthz", "", 503},
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
	// Of two pairs of a token and a path that read the same, only one is allowed.
	asked = 0
	client := reviewer(&asked)
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		review.Status.Allowed = true
		return true, review, nil
	})
	one := newGuard(client, http.NotFoundHandler())
	for _, tt := range []struct {
		token, path string
		want        int
	}{{"reader", "/debug/pprof/ /debug/pprof/heap", 404}, {"reader /debug/pprof/", "/debug/pprof/heap", 401}} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.URL.Path = tt.path
		r.Header.Set("Authorization", "Bearer "+tt.token)
		w := httptest.NewRecorder()
		one.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%q with %q: %d, want %d", tt.path, tt.token, w.Code, tt.want)
		}
	}
	before := asked
	for range 3 {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		r.Header.Set("Authorization", "Bearer reader")
		guarded.ServeHTTP(httptest.NewRecorder(), r)
	}
	if asked != before {
		t.Errorf("three more scrapes asked the API server %d times", asked-before)
	}
}

// TestTLS: without files there is a certificate all the same; with them, it may be replaced.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	o := controllerOptions{secureMetrics: true, certFile: filepath.Join(dir, "tls.crt"), keyFile: filepath.Join(dir, "tls.key")}
	if _, err := o.tlsConfig(); err == nil {
		t.Error("there are no files")
	}
	write := func(host string) {
		t.Helper()
		certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		if err := errors.Join(err, os.WriteFile(o.certFile, certificate, 0o600), os.WriteFile(o.keyFile, key, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("first.example")
	name := func(o controllerOptions, replace func()) string {
		t.Helper()
		config, err := o.tlsConfig()
		if err != nil {
			t.Fatal(err)
		}
		replace()
		theirs, ours := net.Pipe()
		defer theirs.Close()
		defer ours.Close()
		served := make(chan error, 1)
		go func() { served <- tls.Server(theirs, config).HandshakeContext(t.Context()) }()
		client := tls.Client(ours, &tls.Config{InsecureSkipVerify: true}) // which one it is, is what this asks
		if err := errors.Join(client.HandshakeContext(t.Context()), <-served); err != nil {
			t.Fatal(err)
		}
		return client.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := name(o, func() { write("second.example") }); !strings.HasPrefix(got, "second.example@") {
		t.Errorf("after the certificate was replaced, %s is served", got)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := name(controllerOptions{secureMetrics: true}, func() {}); !strings.HasPrefix(got, host+"@") {
		t.Errorf("the certificate of its own is of %s", got)
	}
}
