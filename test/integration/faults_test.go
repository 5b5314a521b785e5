//go:build integration

package integration

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// guillotine is a proxy before the API server that stops at one write of the
// controller: either just before it is passed on, or when it is done and its
// answer has not been seen. From then on nothing passes.
type guillotine struct {
	server  *httptest.Server
	proxy   *httputil.ReverseProxy
	fallen  chan struct{} // closed at that write
	stopAt  int           // the number of the write, from 1; none if 0
	before  bool
	mu      sync.Mutex
	writes  []string
	severed bool
}

func newGuillotine(t *testing.T, stopAt int, before bool) *guillotine {
	t.Helper()
	target, err := url.Parse(cp.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: cp.RESTConfig().TLSClientConfig})
	if err != nil {
		t.Fatal(err)
	}
	g := &guillotine{fallen: make(chan struct{}), stopAt: stopAt, before: before}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
	}
	certificate, err := cp.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	g.server = httptest.NewUnstartedServer(g)
	g.server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	g.server.StartTLS()
	t.Cleanup(g.server.CloseClientConnections)
	return g
}

// ServeHTTP passes a request on, unless the time has come.
func (g *guillotine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/events") {
		g.pass(w, r)
		return
	}
	g.mu.Lock() // one write at a time, so that their number says which it is
	defer g.mu.Unlock()
	if g.severed {
		return
	}
	g.writes = append(g.writes, r.Method+" "+r.URL.Path)
	if len(g.writes) != g.stopAt {
		g.proxy.ServeHTTP(w, r)
		return
	}
	g.severed = true
	if !g.before {
		g.proxy.ServeHTTP(httptest.NewRecorder(), r)
	}
	close(g.fallen)
}

func (g *guillotine) pass(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	severed := g.severed
	g.mu.Unlock()
	if !severed {
		g.proxy.ServeHTTP(w, r)
	}
}

// TestKilledAtEveryWrite kills the controller (SIGKILL) at each of its writes of
// a rollout in turn, before the write arrives and after it is done, and lets a
// new one finish. It ends when a rollout gets by without reaching the number.
func TestKilledAtEveryWrite(t *testing.T) {
	for _, rollout := range []struct {
		name       string
		infeasible string // a pod that has to be restarted
		least      int    // writes that a rollout has
	}{
		{"live", "", 9},         // three pods twice, the condition twice, the release
		{"restart", "web-1", 9}, // web-1 is not relabelled, but the partition is lowered for it
	} {
		for _, before := range []bool{true, false} {
			for n := 1; ; n++ {
				reached := false
				name := fmt.Sprintf("%s-%s-write-%d", rollout.name, map[bool]string{true: "before", false: "after"}[before], n)
				if !t.Run(name, func(t *testing.T) { reached = killedAt(t, n, before, rollout.infeasible) }) {
					return
				}
				if !reached {
					if n <= rollout.least {
						t.Errorf("a rollout has only %d writes: the test does not see them all", n-1)
					}
					break
				}
			}
		}
	}
}

func killedAt(t *testing.T, n int, before bool, infeasible string) (reached bool) {
	w := newWorkload(t, options{})
	uids := w.uids()
	var replaced []string
	if infeasible != "" {
		w.annotatePod(infeasible, simInfeasible)
		replaced = append(replaced, infeasible)
	}
	guillotine := newGuillotine(t, n, before)
	defer guillotine.server.Close()
	defer guillotine.server.CloseClientConnections()
	w.setResources("cpu=150m", "")
	first := ownController(t, controller.Options{Server: guillotine.server.URL})

	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = cp.Kubectl(t.Context(), "-n", w.namespace, "wait", "--for=condition=inplace-rollout.io/Complete", "statefulset/web", "--timeout="+patience.String())
	}()
	select {
	case <-guillotine.fallen:
		reached = true
		guillotine.mu.Lock()
		t.Logf("killed at %s", guillotine.writes[n-1])
		guillotine.mu.Unlock()
	case <-done:
	}
	first.Kill()
	if reached {
		second := ownController(t, controller.Options{})
		defer second.Stop()
		<-done
	}
	w.waitFor("the end", func(set *appsv1.StatefulSet) bool { return set.Status.ObservedGeneration == set.Generation })
	w.assertMoved(0)
	w.assertReplaced(uids, replaced...)
	return reached
}
