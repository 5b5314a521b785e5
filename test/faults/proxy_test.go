package faults

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// seedOf has the first request of a class meet a fault of this kind.
func seedOf(t *testing.T, c class, kind Kind) uint64 {
	t.Helper()
	for seed := range uint64(1_000_000) {
		if _, drawn, _ := choose(seed, c, 1); drawn == kind {
			return seed
		}
	}
	t.Fatalf("no seed draws %q", kind)
	return 0
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
			var made atomic.Int32
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				made.Add(1)
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}})
			}))
			t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
			trusted := rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
			proxy := must.Get(New(Options{
				Seed: seedOf(t, writes, test.kind), Rate: 1, Patience: 300 * time.Millisecond,
				Target: &rest.Config{Host: server.URL, TLSClientConfig: trusted}, Certificate: server.TLS.Certificates[0],
			}))(t)
			t.Cleanup(proxy.Close)
			client := must.Get(kubernetes.NewForConfig(&rest.Config{ // typed clients of the controller ask for protobuf
				Host: proxy.URL(), QPS: -1, TLSClientConfig: trusted,
				ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + ",application/json"},
			}))(t)
			_, err := client.AppsV1().Deployments("a").Patch(t.Context(), "web", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			if !test.want(err) {
				t.Errorf("the client sees %v (%T)", err, err)
			}
			if n := made.Load(); n > 0 != test.made {
				t.Errorf("it was made %d times: want that it was: %t", n, test.made)
			}
			if counts := proxy.Counts(); len(counts) != 1 || counts[test.kind] != 1 {
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
