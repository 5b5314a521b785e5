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
// a rollout in turn, and lets a new one finish. It alone proves that no write needs
// the next one to come from the same process; random worlds hit only some of them.
func TestKilledAtEveryWrite(t *testing.T) {
	t.Run("StatefulSet", killedOfStatefulSets)
	t.Run("Deployment", killedOfDeployments)
	t.Run("DaemonSet", killedOfDaemonSets)
	t.Run("Release", releasedAtEveryWrite)
}

func killedOfStatefulSets(t *testing.T) {
	t.Parallel()
	set := func(infeasible ...string) func(*testing.T, blow) []string {
		return func(t *testing.T, b blow) []string {
			w := newWorkload(t, options{})
			uids := w.uids()
			for _, name := range infeasible {
				w.annotatePod(name, simInfeasible)
			}
			w.setResources("cpu=150m", "")
			writes := kill(t, w.sandbox, b)
			w.waitFor("the end", observed)
			w.assertMoved(0)
			w.assertReplaced(uids, infeasible...)
			return writes
		}
	}
	atEveryWrite(t, "live", 9, true, set())            // three pods twice, the condition twice, the release
	atEveryWrite(t, "restart", 9, false, set("web-1")) // web-1 is not relabelled, but the partition is lowered for it
}

// killedOfDeployments is the same for the ReplicaSet's adoption.
func killedOfDeployments(t *testing.T) {
	t.Parallel()
	atEveryWrite(t, "live", 5, true, func(t *testing.T, b blow) []string { // two pods, history, adoption, release
		d := newDeployment(t, options{Replicas: 2})
		before := d.uids()
		d.setResources("cpu=150m", "")
		writes := kill(t, d.sandbox, b)
		d.assertMoved(before, "150m")
		d.assertReplicaSets(2)
		return writes
	})
	atEveryWrite(t, "back", 5, false, func(t *testing.T, b blow) []string { // the history and the live one change places
		d := newDeployment(t, options{Replicas: 2})
		before, first := d.uids(), d.active().Name
		process := d.ownController(t, controller.Options{})
		d.edit("150m")
		process.Stop()
		d.setResources("cpu=100m", "")
		writes := kill(t, d.sandbox, b)
		d.assertMoved(before, "100m")
		d.assertReplicaSets(2)
		if active := d.active().Name; active != first {
			t.Errorf("ReplicaSet %s has the pods, want %s: %s", active, first, summary(d.replicaSets()))
		}
		return writes
	})
	fallback := func(spec string, ready int) func(*testing.T, blow) []string {
		return func(t *testing.T, b blow) []string {
			d := newDeployment(t, options{Replicas: 2, Spec: spec})
			before, stuck := d.uids(), d.names()[0]
			d.annotatePod(stuck, simInfeasible)
			log := d.logPods()
			d.setResources("cpu=150m", "")
			writes := kill(t, d.sandbox, b)
			d.assertSettled("150m")
			d.assertReplaced(before, stuck)
			d.assertReplicaSets(2)
			log.assertReady(ready)
			log.assertOwned()
			return writes
		}
	}
	atEveryWrite(t, "eviction", 6, false, fallback("strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}", 1))
	atEveryWrite(t, "replacement first", 6, false, fallback(surge, 2))
}

// killedOfDaemonSets is the same where the controller itself restarts a pod.
func killedOfDaemonSets(t *testing.T) {
	t.Parallel()
	rollout := func(spec string, stuck ...int) func(*testing.T, blow) []string {
		return func(t *testing.T, b blow) []string {
			d := newDaemonSet(t, options{Spec: spec})
			before := d.uids()
			var restarted []string
			for _, i := range stuck {
				restarted = append(restarted, d.on(i).Name)
				d.annotatePod(d.on(i).Name, simInfeasible)
			}
			log := d.logPods()
			d.setResources("cpu=150m", "")
			writes := kill(t, d.sandbox, b)
			d.assertSettled("150m")
			d.assertReplaced(before, restarted...)
			log.assertReady(3 - min(len(stuck), 1))
			return writes
		}
	}
	atEveryWrite(t, "classes", 9, false, func(t *testing.T, b blow) []string { // of two nodes; these pods are resized twice
		d := newDaemonSet(t, options{Node: sizeLabels("large", "", "small")})
		before := d.containers()
		d.classes(class("large", ofCPU("180m")), class("small", ofCPU("50m")))
		d.setResources("cpu=150m", "")
		writes := kill(t, d.sandbox, b)
		d.waitSizes("180m", "150m", "50m")
		d.waitSays(ofClasses(d.get(), 2, 3))
		d.assertUntouched(before)
		return writes
	})
	atEveryWrite(t, "live", 9, true, rollout(""))           // three pods twice, the condition twice, the release
	atEveryWrite(t, "restart", 9, false, rollout("", 1))    // the first is not relabelled, but deleted
	atEveryWrite(t, "surge", 7, false, rollout(surging, 1)) // and here not even that
}

// blow says at which write of a rollout the controller is killed, from 1; and
// whether before the write arrives, or when it is done.
type blow struct {
	write  int
	before bool
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
// at the same time, each with a controller for its own namespace. Dying before a write leaves
// what dying after the one before it does: it is tried, too, if so said. rollout returns the
// writes that it has seen.
func atEveryWrite(t *testing.T, name string, least int, before bool, rollout func(*testing.T, blow) (writes []string)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		writes := rollout(t, blow{write: never})
		if len(writes) < least {
			t.Fatalf("a rollout has only %d writes: the test does not see them all", len(writes))
		}
		kill := func(b blow) {
			t.Run(fmt.Sprintf("%s-write-%d", map[bool]string{true: "before", false: "after"}[b.before], b.write), func(t *testing.T) {
				t.Parallel()
				// Another rollout may have fewer writes, and be whole.
				if seen := len(rollout(t, b)); seen < min(b.write, least) {
					t.Errorf("a rollout has only %d writes: the test does not see them all", seen)
				}
			})
		}
		kinds := map[string]bool{}
		for i, write := range writes {
			if kind := kindOf(write); allKills || !kinds[kind] {
				kinds[kind] = true
				kill(blow{write: i + 1})
			}
			if allKills && before {
				kill(blow{write: i + 1, before: true})
			}
		}
	})
}

// releasedAtEveryWrite kills the controller in the same way, and nobody takes its
// place: after `inplace-rollout release` the Deployment controller finishes, and
// nothing is left of what had been begun.
func releasedAtEveryWrite(t *testing.T) {
	t.Parallel()
	atEveryWrite(t, "released", 6, false, func(t *testing.T, b blow) []string {
		d := newDeployment(t, options{Replicas: 2, Spec: surge})
		d.annotatePod(d.names()[0], simInfeasible)
		log := d.logPods()
		d.setResources("cpu=150m", "")
		writes, _ := strike(t, d.sandbox, b)
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

// kill runs a controller until the rollout is complete, and kills it on the way;
// then another one finishes. It returns the writes that the first one has begun.
func kill[W metav1.Object](t *testing.T, s *sandbox[W], b blow) (writes []string) {
	t.Helper()
	writes, complete := strike(t, s, b)
	if len(writes) == b.write {
		second := s.ownController(t, controller.Options{})
		<-complete
		second.Stop()
	}
	return writes
}

// strike runs a controller until the rollout is complete, which closes complete, and
// kills it on the way.
func strike[W metav1.Object](t *testing.T, s *sandbox[W], b blow) (writes []string, complete <-chan struct{}) {
	t.Helper()
	guillotine := newGuillotine(t, b.write, b.before)
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
		t.Logf("killed at %s", guillotine.writes[b.write-1])
	}
	return guillotine.writes, done
}
