package faults

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
)

// Held is a write that is on its way.
type Held struct {
	// Reached is closed when the proxy has the write.
	Reached <-chan struct{}

	match   func(r *http.Request, body []byte) bool
	reached chan struct{}
	freed   chan struct{}
	code    chan int // of the answer
}

// Hold keeps the first write that matches until it is released, whether or not its sender is
// still there then.
func (p *Proxy) Hold(match func(r *http.Request, body []byte) bool) *Held {
	h := &Held{match: match, reached: make(chan struct{}), freed: make(chan struct{}), code: make(chan int, 1)}
	h.Reached = h.reached
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, h)
	return h
}

// Release lets the write arrive, and returns with which code the API server answers; 0 if it does
// not. The write must have been reached. It is called once.
func (h *Held) Release() int {
	close(h.freed)
	return <-h.code
}

// holds returns who waits for a write; nil if nobody does.
func (p *Proxy) holds(c class, r *http.Request) (*Held, error) {
	p.mu.Lock()
	waits := len(p.held) > 0
	p.mu.Unlock()
	if !waits || c == reads || c == watches || r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.held, func(h *Held) bool { return h.match(r, body) })
	if i < 0 {
		return nil, nil
	}
	h := p.held[i]
	p.held = slices.Delete(p.held, i, i+1)
	close(h.reached)
	return h, nil
}

// pass passes a held write on when it is released.
func (h *Held) pass(p *Proxy, r *http.Request) (*http.Response, error) {
	select {
	case <-h.freed:
	case <-p.closed:
		return nil, errCut
	}
	response, err := p.target.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
	if err != nil {
		h.code <- 0
		return nil, err
	}
	h.code <- response.StatusCode
	return response, nil
}
