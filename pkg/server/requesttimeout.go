package server

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"
)

// requestTimeout bounds every request to the API server, which itself answers within 60 s
// unless its flags say otherwise.
const requestTimeout = 65 * time.Second

// MaxSilence is how long a sync may go on without a write that ends, before this process is not
// alive. It reads a few things one after the other, and an API server that answers late, or with
// an error after [requestTimeout], is no reason to start anew.
const MaxSilence = 5 * time.Minute

// deadline ends requests that are not answered in full in time. A watch has the time, too,
// that it asks for.
type deadline struct {
	next http.RoundTripper
	in   time.Duration
}

func (d deadline) RoundTrip(r *http.Request) (*http.Response, error) {
	in, query := d.in, r.URL.Query()
	if query.Has("watch") {
		seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
		if err != nil {
			return d.next.RoundTrip(r)
		}
		in += time.Duration(seconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(r.Context(), in)
	response, err := d.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = body{response.Body, cancel}
	return response, nil
}

// body is that of an answer, whose deadline ends with it.
type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
