package webhook

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestCrowd: what is sent and never finished takes a bounded part of the memory, and leaves room
// for requests as API servers send them.
func TestCrowd(t *testing.T) {
	policies := load(t)
	handler := NewHandler(policies, NewMetrics(prometheus.NewRegistry(), policies.Names(), (&Keeper{}).Certificate))
	path := Path + policies.Names()[0]
	received := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == maxBody-1 {
			r.Body = announced{r.Body, received}
		}
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	post := func(body io.Reader) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, body)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	for range maxBodies / maxBody {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = connection.Close() }()
		if _, err := fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: webhook\r\nContent-Length: %d\r\n\r\n{", path, maxBody-1); err != nil {
			t.Fatal(err)
		}
		<-received
	}
	if code, text := post(strings.NewReader(strings.Repeat(" ", maxBody))); code != http.StatusServiceUnavailable {
		t.Errorf("one more: %d %s", code, text)
	}
	if code, text := post(io.MultiReader(strings.NewReader("{}"))); code != http.StatusServiceUnavailable {
		t.Errorf("one more of unknown length: %d %s", code, text)
	}
	// The four have left it one byte each.
	if code, text := post(strings.NewReader("{}")); code != http.StatusBadRequest || !strings.Contains(text, "want an AdmissionReview") {
		t.Errorf("a small one: %d %s", code, text)
	}
}

// announced is a body that tells when it is first read.
type announced struct {
	io.ReadCloser
	read chan struct{}
}

func (a announced) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if n > 0 {
		a.read <- struct{}{}
	}
	return n, err
}
