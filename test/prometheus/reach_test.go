//go:build around

package prometheus_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/inplace-rollout/inplace-rollout/pkg/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/initialresources/history"
	"github.com/inplace-rollout/inplace-rollout/test/prometheus"
)

// guarded is a proxy before Prometheus that wants TLS, and a certificate and a token, or a password and a tenant.
func guarded(t *testing.T, server *prometheus.Server, pair tls.Certificate, token *atomic.Value) string {
	t.Helper()
	target, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	forward := http.StripPrefix("/prometheus", httputil.NewSingleHostReverseProxy(target))
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, basic := r.BasicAuth()
		switch {
		case basic && (user != "us" || password != "secret" || r.Header.Get("X-Scope-OrgID") != "team"):
			http.Error(w, "no org id", http.StatusUnauthorized)
		case !basic && r.Header.Get("Authorization") != "Bearer "+token.Load().(string):
			w.WriteHeader(http.StatusUnauthorized)
		case !basic && (len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.String() != pair.Leaf.Subject.String()):
			w.WriteHeader(http.StatusForbidden)
		default:
			forward.ServeHTTP(w, r)
		}
	}))
	proxy.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	proxy.StartTLS()
	t.Cleanup(proxy.Close)
	return proxy.URL + "/prometheus/"
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestReach goes through a proxy that checks who we are. What is wrong is said, and the token may change. What a Prometheus of many
// tenants wants is said in one file, as for Prometheus' own tools; without a part of it the error says where it belongs.
func TestReach(t *testing.T) {
	t.Parallel()
	h := hours()
	server := start(t, h)
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		t.Fatal(err)
	}
	var token atomic.Value
	token.Store("first")
	good := options(server, h)
	good.Window = time.Hour
	good.URL = guarded(t, server, pair, &token)
	good.CAFile, good.CertFile, good.KeyFile = write(t, "ca.crt", crt), write(t, "tls.crt", crt), write(t, "tls.key", key)
	good.BearerTokenFile = write(t, "token", []byte("first\n"))

	for want, change := range map[string]func(*history.Options){
		"--prometheus-ca-file":                    func(o *history.Options) { o.CAFile = "" },
		"401 Unauthorized":                        func(o *history.Options) { o.BearerTokenFile = "" },
		"no such file":                            func(o *history.Options) { o.BearerTokenFile = "gone" },
		"403 Forbidden":                           func(o *history.Options) { o.CertFile, o.KeyFile = "", "" },
		"--prometheus-url must have a host name":  func(o *history.Options) { o.URL = strings.Replace(o.URL, "127.0.0.1", "localhost", 1) },
		"server gave HTTP response to HTTPS":      func(o *history.Options) { o.URL = strings.Replace(server.URL(), "http:", "https:", 1) },
		"Client sent an HTTP request to an HTTPS": func(o *history.Options) { o.URL = strings.Replace(o.URL, "https:", "http:", 1) },
	} {
		o := good
		change(&o)
		if err := newStore(t, o).Refresh(t.Context(), now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want …%s…", err, want)
		}
	}
	trusting := good
	trusting.CAFile, trusting.InsecureSkipVerify = "", true
	refreshed(t, trusting, now)

	store := refreshed(t, good, ago(time.Hour))
	token.Store("second")
	if err := store.Refresh(t.Context(), now); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("with the old token: %v", err)
	}
	if err := os.WriteFile(good.BearerTokenFile, []byte("second\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := store.Refresh(t.Context(), now); err != nil || !store.Complete() {
		t.Errorf("with the new token: %v", err)
	}

	const header = "http_headers: {X-Scope-OrgID: {values: [team]}}\n"
	auth := "basic_auth: {username: us, password_file: " + write(t, "password", []byte("secret")) + "}\n"
	trust := "tls_config: {ca_file: " + good.CAFile + "}\n"
	hosted := options(server, h)
	hosted.Window, hosted.URL = time.Hour, good.URL
	for _, tt := range []struct{ config, want, refused string }{
		{config: auth + header + trust},
		{config: auth + trust, want: "no org id"},
		{config: header + trust, want: "for a password or header --prometheus-http-config"},
		{config: auth + header, want: "or by tls_config in --prometheus-http-config"},
		{config: "unknown_key: 1", refused: "unknown_key"},
		{config: auth + "bearer_token: x", refused: "at most one of"},
	} {
		hosted.HTTPConfigFile = write(t, "http.yaml", []byte(tt.config))
		store, err := history.New(hosted)
		if tt.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tt.refused) || !strings.Contains(err.Error(), hosted.HTTPConfigFile) {
				t.Errorf("with %q: %v, want …%s…", tt.config, err, tt.refused)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Refresh(t.Context(), now); (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("with %q the error is %v, want …%s…", tt.config, err, tt.want)
		}
	}
}

// TestNothingThere: what nobody scrapes is missed at once, and not taken for unused.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	h := hours()
	// As they are where the labels of the target win over those of kube-state-metrics.
	for t := ago(time.Hour).Truncate(time.Minute); t.Before(now); t = t.Add(time.Minute) {
		h.Extra += fmt.Sprintf("dishonoured{job=\"kube-state-metrics\",namespace=\"monitoring\",pod=\"kube-state-metrics\",container=\"kube-state-metrics\",exported_namespace=\"data\",image=\"nginx\"} 1 %d\n", t.Unix())
	}
	server := start(t, h)
	good := options(server, h)
	good.Window = time.Hour
	for want, change := range map[string]func(*history.Options){
		`no_cpu{job="kubelet"} now: check that cAdvisor is scraped, and at least twice in 2m`: func(o *history.Options) { o.CPU = "no_cpu" },
		`container_cpu_usage_seconds_total{job="kubelet"} now: check that cAdvisor`:           func(o *history.Options) { o.Range, o.Resolution = 50*time.Second, 50*time.Second },
		`no_memory{job="kubelet"} now: check that cAdvisor is scraped`:                        func(o *history.Options) { o.Memory = "no_memory" },
		`no_info{job="kube-state-metrics"} now: check that kube-state-metrics is scraped`:     func(o *history.Options) { o.Info, o.InitInfo = "no_info", "no_info_either" },
		`kube_pod_container_info{cluster="eu",job="kube-state-metrics"} now`:                  func(o *history.Options) { o.Matchers = []string{"cluster=eu"} },
		"honor_labels": func(o *history.Options) { o.Info, o.InitInfo = "dishonoured", "no_info_either" },
		// The job has another name: the error has it, and the flag.
		`now: check that kube-state-metrics is scraped. There are some with job="kube-state-metrics": if you trust them, name them by --kube-state-metrics-matcher`: func(o *history.Options) {
			o.StateMetrics = []string{"job=ksm"}
		},
		`job="kubelet": if you trust them, name them by --cadvisor-matcher`: func(o *history.Options) {
			o.CAdvisor = []string{`job="cadvisor"`}
		},
		// Also where only a part of the cluster is asked about.
		`--cadvisor-matcher`: func(o *history.Options) {
			o.CAdvisor, o.Namespaces = []string{`job="cadvisor"`}, []string{"data"}
		},
		"} now: check that kube-state-metrics is scraped": func(o *history.Options) {
			o.Info, o.InitInfo, o.Namespaces = "no_info", "no_info_either", []string{"data"}
		},
	} {
		o := good
		change(&o)
		store := newStore(t, o)
		if err := store.Refresh(t.Context(), now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want …%s…", err, want)
		}
		if !store.Until().IsZero() {
			t.Errorf("%s: read until %s", want, store.Until())
		}
	}
	// Nobody scrapes any more; what was read before that stays.
	store := refreshed(t, good, now)
	if err := store.Refresh(t.Context(), now.Add(3*time.Hour)); err == nil || len(store.Keys()) == 0 {
		t.Errorf("error: %v, keys: %v", err, store.Keys())
	}
}

// TestForged: what others expose under the names of the metrics is not believed, nor what one of the
// two sources says in place of the other. Without the matchers it would be.
func TestForged(t *testing.T) {
	t.Parallel()
	h := hours()
	for t := ago(4 * time.Hour).Truncate(time.Minute); t.Before(now); t = t.Add(time.Minute) {
		for _, job := range []string{"evil", "kubelet"} {
			h.Extra += fmt.Sprintf("kube_pod_container_info{job=%q,namespace=\"data\",pod=\"db-1\",container=\"db\",image_spec=\"forged:1\"} 1 %d\n", job, t.Unix())
		}
		for _, job := range []string{"evil", "kube-state-metrics"} {
			h.Extra += fmt.Sprintf("container_memory_working_set_bytes{job=%q,namespace=\"data\",pod=\"db-1\",container=\"db\"} 1e12 %d\n", job, t.Unix())
		}
	}
	server := start(t, h)
	o := options(server, h)
	o.Window = time.Hour
	most := func(s *history.Store) float64 {
		samples := s.Samples(time.Time{}, estimate.Key{Namespace: "data", Image: image(t, "mysql:9")}, "memory")
		if samples == nil {
			return 0
		}
		return samples.Quantile(1)
	}
	known := func(s *history.Store) bool {
		return s.Samples(time.Time{}, estimate.Key{Namespace: "data", Image: image(t, "mysql:9")}, "memory") != nil
	}
	store := refreshed(t, o, now)
	if got := most(store); got < 100*mib || got > 112*mib {
		t.Errorf("with the matchers mysql uses up to %g bytes", got)
	}
	all := o
	all.CAdvisor = []string{""}
	if got := most(refreshed(t, all, now)); got < 0.9e12 {
		t.Errorf("without that of cAdvisor mysql uses up to %g bytes: the forgery is none", got)
	}
	all = o
	all.StateMetrics = nil
	if known(refreshed(t, all, now)) {
		t.Error("without that of kube-state-metrics it is still sure which image it is: the forgery is none")
	}
}
