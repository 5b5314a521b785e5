package webhook

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// authorities are the CAs of clients as somebody else keeps them.
type authorities struct{ pem []byte }

func (a *authorities) VerifyOptions() (x509.VerifyOptions, bool) {
	if a.pem == nil {
		return x509.VerifyOptions{}, false
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.pem)
	return x509.VerifyOptions{Roots: roots}, true
}

// TestClients: only those are answered whose certificate is one for clients, signed by the CA that counts now. Without any CA nobody is,
// least of all who has a certificate of a CA of the system.
func TestClients(t *testing.T) {
	p := must.Get(newPair("webhook", life))(t)
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	trusted := &authorities{}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "answered") }),
		TLSConfig: Clients{trusted}.Demand(&tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.serving, nil },
		}),
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	made := func(usage x509.ExtKeyUsage) build.Client {
		t.Helper()
		return must.Get(build.NewClient(usage))(t)
	}
	apiserver, other, ofServers := made(x509.ExtKeyUsageClientAuth), made(x509.ExtKeyUsageClientAuth), made(x509.ExtKeyUsageServerAuth)
	roots := x509.NewCertPool()
	roots.AddCert(p.ca)
	// Between two requests the client may remember the session, and resume it.
	configs := map[*build.Client]*tls.Config{}
	answered := func(c *build.Client) bool {
		t.Helper()
		config := configs[c]
		if config == nil {
			config = &tls.Config{RootCAs: roots, ServerName: "webhook", ClientSessionCache: tls.NewLRUClientSessionCache(1)}
			if c != nil {
				pair := must.Get(c.Pair())(t)
				// Shown whatever CAs the server asks for.
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
			}
			configs[c] = config
		}
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+listener.Addr().String(), nil))(t)
		response, err := transport.RoundTrip(r)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		said, err := io.ReadAll(response.Body)
		if response.ProtoMajor != 2 {
			t.Errorf("it is answered in %s, and API servers like to use one connection", response.Proto)
		}
		return err == nil && string(said) == "answered"
	}
	for _, tt := range []struct {
		about   string
		cas     []byte
		clients map[*build.Client]bool
	}{
		{"no CA", nil, map[*build.Client]bool{nil: false, &apiserver: false}},
		{"the CA of API servers", apiserver.CA, map[*build.Client]bool{nil: false, &apiserver: true, &other: false, &ofServers: false}},
		{"two CAs", bytes.Join([][]byte{apiserver.CA, ofServers.CA}, nil), map[*build.Client]bool{nil: false, &apiserver: true, &other: false, &ofServers: false}},
		{"another CA since", other.CA, map[*build.Client]bool{nil: false, &apiserver: false, &other: true, &ofServers: false}},
	} {
		trusted.pem = tt.cas
		for c, want := range tt.clients {
			if got := answered(c); got != want {
				t.Errorf("%s: answered is %v, want %v", tt.about, got, want)
			}
		}
	}
}
