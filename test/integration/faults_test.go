//go:build integration

package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// guillotine is a proxy before the API server that stops at one write of the
// controller, when it is done and its answer has not been seen. From then on nothing passes.
type guillotine struct {
	server  *httptest.Server
	proxy   *httputil.ReverseProxy
	fallen  chan struct{} // closed at that write
	stopAt  int           // the number of the write, from 1; none if 0
	mu      sync.Mutex
	writes  []string
	severed bool
}

func newGuillotine(t *testing.T, stopAt int) *guillotine {
	t.Helper()
	target, err := url.Parse(cp.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: cp.RESTConfig().TLSClientConfig})
	if err != nil {
		t.Fatal(err)
	}
	g := &guillotine{fallen: make(chan struct{}), stopAt: stopAt}
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
	// What asks by POST who one is, or by a dry run whether edits are held, stores nothing, and comes before the controller is ready.
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") || r.URL.Query().Has("dryRun") {
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
	g.proxy.ServeHTTP(httptest.NewRecorder(), r)
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

// TestKilledAtEveryWrite kills the controller (SIGKILL) at one write of each kind of a rollout in turn, and lets a new one finish,
// or nobody. That no other write needs the next one to come from the same process is for the simulations (EachWriteFails) and for
// random worlds; with KILLS=all it is killed at each.
func TestKilledAtEveryWrite(t *testing.T) {
	atEveryWrite(t, "StatefulSet", 9, func(t *testing.T, write int) []string { // three pods, the condition, the partition, the release
		w := newWorkload(t, options{})
		uids := w.uids()
		w.annotatePod("web-1", simInfeasible)
		w.setResources("cpu=150m", "")
		writes := kill(t, w.sandbox, write)
		w.waitFor("the end", observed)
		w.assertMoved(0)
		w.assertReplaced(uids, "web-1")
		return writes
	})
	atEveryWrite(t, "Deployment", 6, func(t *testing.T, write int) []string { // the replacement comes first
		d := newDeployment(t, options{Replicas: 2, Spec: surge})
		before, stuck := d.uids(), d.names()[0]
		d.annotatePod(stuck, simInfeasible)
		log := d.logPods()
		d.setResources("cpu=150m", "")
		writes := kill(t, d.sandbox, write)
		d.assertSettled("150m")
		d.assertReplaced(before, stuck)
		d.assertReplicaSets(2)
		log.assertReady(2)
		log.assertOwned()
		return writes
	})
	atEveryWrite(t, "DaemonSet", 9, func(t *testing.T, write int) []string { // the controller itself restarts a pod
		d := newDaemonSet(t, options{})
		before, stuck := d.uids(), d.on(1).Name
		d.annotatePod(stuck, simInfeasible)
		log := d.logPods()
		d.setResources("cpu=150m", "")
		writes := kill(t, d.sandbox, write)
		d.assertSettled("150m")
		d.assertReplaced(before, stuck)
		log.assertReady(2)
		return writes
	})
	// Nobody takes its place: after `inplace-rollout release` the Deployment controller finishes, and nothing is left of what had
	// been begun.
	atEveryWrite(t, "Release", 6, func(t *testing.T, write int) []string {
		d := newDeployment(t, options{Replicas: 2, Spec: surge})
		d.annotatePod(d.names()[0], simInfeasible)
		log := d.logPods()
		d.setResources("cpu=150m", "")
		writes, _ := strike(t, d.sandbox, write)
		if got := d.run("release", d.ref, "--yes"); got.code != 0 {
			t.Errorf("release ended with %d: %s", got.code, got.stderr)
		}
		d.waitRolledOut()
		if got := d.get(); held(got) || got.Spec.Paused {
			t.Errorf("still held: %s", describe(got))
		}
		active := d.active()
		for name, pod := range d.pods() {
			if !metav1.IsControlledBy(&pod, &active) || pod.Labels[api.DetachedLabel] != "" {
				t.Errorf("%s has the owners %+v and the labels %v", name, pod.OwnerReferences, pod.Labels)
			}
		}
		log.assertReady(2)
		return writes
	})
}

// never is a write that no rollout gets to.
const never = 1000

// allKills has the controller killed at each of its writes, and not only at the first of each kind.
var allKills = os.Getenv("KILLS") == "all"

// kindOf is what a write does to which resource, whatever the object, as in PATCH pods/resize.
func kindOf(write string) string {
	method, path, _ := strings.Cut(write, " ")
	_, object, _ := strings.Cut(path, "/namespaces/") // namespace/resource/name/subresource
	parts := append(strings.Split(object, "/"), "", "", "")
	return method + " " + parts[1] + "/" + parts[3]
}

// atEveryWrite runs a rollout whose controller nobody kills, to see its writes, which must
// be at least as many as said; and then once for each of them, or for one of each kind. All run
// at the same time, each with a controller for its own namespace. rollout has its controller
// killed at that write, counted from 1, and returns the writes that it has seen.
func atEveryWrite(t *testing.T, name string, least int, rollout func(t *testing.T, write int) (writes []string)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		writes := rollout(t, never)
		if len(writes) < least {
			t.Fatalf("a rollout has only %d writes: the test does not see them all", len(writes))
		}
		kinds := map[string]bool{}
		for i, write := range writes {
			kind := kindOf(write)
			if kinds[kind] && !allKills {
				continue
			}
			kinds[kind] = true
			t.Run(fmt.Sprintf("write-%d", i+1), func(t *testing.T) {
				t.Parallel()
				// Another rollout may have fewer writes, and be whole.
				if seen := len(rollout(t, i+1)); seen < min(i+1, least) {
					t.Errorf("a rollout has only %d writes: the test does not see them all", seen)
				}
			})
		}
	})
}

// kill runs a controller until the rollout is complete, and kills it on the way;
// then another one finishes. It returns the writes that the first one has begun.
func kill[W metav1.Object](t *testing.T, s *sandbox[W], write int) (writes []string) {
	t.Helper()
	writes, complete := strike(t, s, write)
	if len(writes) == write {
		second := s.ownController(t, controller.Options{})
		<-complete
		second.Stop()
	}
	return writes
}

// strike runs a controller until the rollout is complete, which closes complete, and
// kills it on the way.
func strike[W metav1.Object](t *testing.T, s *sandbox[W], write int) (writes []string, complete <-chan struct{}) {
	t.Helper()
	guillotine := newGuillotine(t, write)
	defer guillotine.server.Close()
	defer guillotine.server.CloseClientConnections()
	// It may write, and die, before anybody has seen it ready.
	first, err := launch(controller.Options{Server: guillotine.server.URL, Args: []string{"--namespace=" + s.namespace}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(first.Stop)

	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
			workload, err := s.workloads.Get(ctx, "web", metav1.GetOptions{})
			return err == nil && isComplete(workload), nil
		})
	}()
	select {
	case <-guillotine.fallen:
	case <-done:
	}
	first.Kill()
	guillotine.mu.Lock()
	defer guillotine.mu.Unlock()
	if guillotine.severed {
		t.Logf("killed at %s", guillotine.writes[write-1])
	}
	return guillotine.writes, done
}
