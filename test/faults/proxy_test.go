package faults

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// server plays an API server with one Deployment. Each write makes a new version of it.
type server struct {
	*httptest.Server

	mu       sync.Mutex
	version  int
	newState chan struct{} // closed at the next version
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{version: 100, newState: make(chan struct{})}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func (s *server) deployment(version int) appsv1.Deployment {
	return appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "a", ResourceVersion: strconv.Itoa(version)},
	}
}

// write makes a new version.
func (s *server) write() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	close(s.newState)
	s.newState = make(chan struct{})
}

func (s *server) state() (version int, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, s.newState
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method != http.MethodGet:
		s.write()
	case classOf(r) == watches:
		s.watch(w, r)
		return
	case !strings.HasSuffix(r.URL.Path, "/web"):
		version, _ := s.state()
		_ = json.NewEncoder(w).Encode(appsv1.DeploymentList{
			TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DeploymentList"},
			ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(version)}, Items: []appsv1.Deployment{s.deployment(version)},
		})
		return
	}
	version, _ := s.state()
	_ = json.NewEncoder(w).Encode(s.deployment(version))
}

// watch brings each version after the one asked for.
func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	from := r.URL.Query().Get("resourceVersion")
	seen, _ := strconv.Atoi(from) // none is 0
	for {
		version, next := s.state()
		for seen < version {
			seen = max(seen, 100) + 1
			object := s.deployment(seen)
			_ = json.NewEncoder(w).Encode(metav1.WatchEvent{Type: string(watch.Modified), Object: runtime.RawExtension{Object: &object}})
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
	}
}

// world is a proxy before a server, and a client of it.
type world struct {
	server *server
	proxy  *Proxy
	client kubernetes.Interface
}

func newWorld(t *testing.T, o Options) *world {
	t.Helper()
	s := newServer(t)
	trusted := rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}
	o.Target, o.Certificate = &rest.Config{Host: s.URL, TLSClientConfig: trusted}, s.TLS.Certificates[0]
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{ // typed clients of the controller ask for protobuf
		Host: p.URL(), QPS: -1, TLSClientConfig: trusted,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + ",application/json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &world{server: s, proxy: p, client: client}
}

// seedOf has the first requests of a class meet faults of these kinds.
func seedOf(t *testing.T, c class, kinds ...Kind) uint64 {
	t.Helper()
	for seed := range uint64(1_000_000) {
		drawn := make([]Kind, len(kinds))
		for i := range kinds {
			_, drawn[i], _ = choose(seed, c, uint64(i+1))
		}
		if slices.Equal(drawn, kinds) {
			return seed
		}
	}
	t.Fatalf("no seed draws %q", kinds)
	return 0
}

func (w *world) patch(ctx context.Context) error {
	_, err := w.client.AppsV1().Deployments("a").Patch(ctx, "web", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	return err
}

func (w *world) list(ctx context.Context, version string) (string, error) {
	list, err := w.client.AppsV1().Deployments("a").List(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}

func (w *world) watch(t *testing.T, version string) watch.Interface {
	t.Helper()
	stream, err := w.client.AppsV1().Deployments("a").Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Stop)
	return stream
}

// versions are those that a watch brings, n at most.
func versions(stream watch.Interface, n int) []string {
	var seen []string
	for event := range stream.ResultChan() {
		if d, is := event.Object.(*appsv1.Deployment); is {
			seen = append(seen, d.ResourceVersion)
		}
		if len(seen) == n {
			break
		}
	}
	return seen
}

// TestWrites shows what a client sees of each fault that a write can meet, and whether it was made.
func TestWrites(t *testing.T) {
	noStatus := func(err error) bool { return err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown }
	type test struct {
		kind Kind
		made bool
		want func(error) bool
	}
	tests := []test{
		{kind: Conflict, want: apierrors.IsConflict},
		{kind: InternalError, want: apierrors.IsInternalError},
		{kind: Unavailable, want: apierrors.IsServiceUnavailable},
		{kind: TimeoutBefore, want: noStatus},
		{kind: TimeoutAfter, made: true, want: noStatus},
		{kind: ServerTimeout, made: true, want: apierrors.IsTimeout},
		{kind: CutBefore, want: noStatus},
		{kind: CutAfter, made: true, want: noStatus},
		{kind: LateWrite, made: true, want: func(err error) bool { return err == nil }},
	}
	for _, test := range tests {
		t.Run(string(test.kind), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, Options{Seed: seedOf(t, writes, test.kind), Rate: 1, Patience: 300 * time.Millisecond})
			err := w.patch(t.Context())
			if !test.want(err) {
				t.Errorf("the client sees %v (%T)", err, err)
			}
			if version, _ := w.server.state(); version != 100 != test.made {
				t.Errorf("version %d: was it made? want %t", version, test.made)
			}
			if counts := w.proxy.Counts(); len(counts) != 1 || counts[test.kind] != 1 {
				t.Errorf("counted %v", counts)
			}
		})
	}
	for _, kind := range possible[writes] {
		if kind != TooMany && !slices.ContainsFunc(tests, func(test test) bool { return test.kind == kind }) { // of which clients tell nobody
			t.Errorf("%q is not shown", kind)
		}
	}
}

// TestOldLists: lists of resourceVersion=0 may be old, and no others.
func TestOldLists(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{Seed: seedOf(t, reads, SlowRead, OldList, OldList), Rate: 1, Patience: 10 * time.Millisecond})
	for i, want := range []struct{ ask, get string }{{"0", "100"}, {"0", "100"}, {"", "102"}} {
		if got, err := w.list(t.Context(), want.ask); err != nil || got != want.get {
			t.Errorf("list %d for %q: version %q, %v, want %s", i, want.ask, got, err, want.get)
		}
		w.server.write()
	}
	if counts := w.proxy.Counts(); counts[OldList] != 1 || counts[SlowRead] != 2 {
		t.Errorf("counted %v", counts)
	}
}

// TestReplayed: a watch that goes on brings again what an earlier one has brought.
func TestReplayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{Seed: seedOf(t, watches, WatchCut, WatchReplayed), WatchRate: 1, Patience: 100 * time.Millisecond})
	w.server.write()
	w.server.write()
	if seen := versions(w.watch(t, "101"), 2); !slices.Equal(seen, []string{"102"}) {
		t.Errorf("the first brings %v", seen)
	}
	if seen := versions(w.watch(t, "102"), 1); !slices.Equal(seen, []string{"102"}) {
		t.Errorf("the second brings %v, want what the first has brought", seen)
	}
	if counts := w.proxy.Counts(); counts[WatchReplayed] != 1 {
		t.Errorf("counted %v", counts)
	}
}

// TestSeed shows that the same seed gives the same faults, whatever passes at the same time.
func TestSeed(t *testing.T) {
	t.Parallel()
	run := func(seed uint64, between int) string {
		p := &Proxy{options: Options{Seed: seed, Rate: 0.3}, calm: make(chan struct{}), requests: map[class]uint64{}, counts: map[Kind]int{}}
		patch := httptest.NewRequest(http.MethodPatch, "/apis/apps/v1/namespaces/a/deployments/web", nil)
		event := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/a/events", nil)
		var kinds []string
		for range 200 {
			kinds = append(kinds, string(p.draw(classOf(patch), patch).kind))
			for range between {
				p.draw(classOf(event), event)
			}
		}
		return fmt.Sprint(kinds)
	}
	if run(7, 0) != run(7, 2) {
		t.Error("the same seed gives other faults")
	}
	if run(7, 0) == run(8, 0) {
		t.Error("another seed gives the same faults")
	}
	for _, kind := range possible[writes] {
		if !strings.Contains(run(7, 0), string(kind)) {
			t.Errorf("200 writes never meet %q", kind)
		}
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	stream := w.watch(t, "100")
	w.proxy.Freeze(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/deployments") })
	if err := w.patch(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case event := <-stream.ResultChan():
		t.Errorf("a frozen watch brings %v", event)
	case <-time.After(100 * time.Millisecond):
	}
	w.proxy.Thaw()
	if seen := versions(stream, 1); !slices.Equal(seen, []string{"101"}) {
		t.Errorf("a thawed watch brings %v", seen)
	}
}
