package server_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/pkg/server"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestApart: no request goes by the connection of another one.
func TestApart(t *testing.T) {
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.EnableHTTP2, s.Config.ConnState = true, func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.StartTLS()
	defer s.Close()
	client := must.Get(kubernetes.NewForConfig(server.Apart(&rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})))(t)
	for n := range int32(3) {
		if _, err := client.ServerVersion(); err == nil || connections.Load() != n+1 {
			t.Errorf("request %d: %d connections, %v", n+1, connections.Load(), err)
		}
	}
}

// TestAt: an API server that is reached by its own address shows the certificate of the Service, which each of them has.
func TestAt(t *testing.T) {
	for of, want := range map[*rest.Config]rest.Config{
		{Host: "https://10.96.0.1:443"}: {Host: "https://192.0.2.2:6443", TLSClientConfig: rest.TLSClientConfig{ServerName: "10.96.0.1"}},
		{Host: "https://api.example.com/k8s", TLSClientConfig: rest.TLSClientConfig{ServerName: "cluster-7"}}: {
			Host: "https://192.0.2.2:6443/k8s", TLSClientConfig: rest.TLSClientConfig{ServerName: "cluster-7"},
		},
		{Host: "http://127.0.0.1:8080"}: {Host: "http://192.0.2.2:6443"},
	} {
		before := of.Host
		got := must.Get(server.At(of, "192.0.2.2:6443"))(t)
		if got.Host != want.Host || got.ServerName != want.ServerName || of.Host != before {
			t.Errorf("%s: at %s, by the name %q, want %s, %q", before, got.Host, got.ServerName, want.Host, want.ServerName)
		}
	}
}
