// Package faults has a proxy between a controller and the API server that lets requests fail in
// all the ways in which they fail between real ones, from a seed.
//
// It does what an API server, its load balancer and the network may do: it answers with an
// error, or not at all, before or after a write took effect; it is late; what it reads from a
// cache (resourceVersion=0) is old. It never does what they may not: a quorum read is true.
// There is one exception: a watch may begin at an older version than it was asked for, as after
// a bug or a restored backup, and then brings everything since.
package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Options of a Proxy.
type Options struct {
	// Target is where the requests go, with the certificate authority that is to be trusted.
	Target *rest.Config
	// Certificate that the proxy shows: the API server's own.
	Certificate tls.Certificate
	// Seed decides which request of its class meets which fault.
	Seed uint64
	// Rate is the share of reads and writes that meet a fault, from 0 to 1.
	Rate float64
	// WatchRate is that share of the watches.
	WatchRate float64
	// Patience bounds how long a request is kept waiting; 3 seconds if 0.
	Patience time.Duration
	// UserAgent, if not empty, takes the place of that of all requests. So the audit log tells
	// one controller from another.
	UserAgent string
}

// Proxy is a running proxy. It can serve several controllers.
type Proxy struct {
	options Options
	server  *http.Server
	url     string
	target  http.RoundTripper
	close   sync.Once
	closed  chan struct{}

	mu        sync.Mutex
	calm      chan struct{} // closed while there are no faults
	held      []*Held
	conns     map[net.Conn]bool
	requests  map[class]uint64
	counts    map[Kind]int
	versions  map[string][]string // from which watches went on, by what they watch
	cachedOld map[string]*answer  // to lists from the cache
}

// connKey is the context's key of the connection that a request came by.
type connKey struct{}

// New starts a proxy. Its faults begin at once.
func New(o Options) (*Proxy, error) {
	if o.Patience == 0 {
		o.Patience = 3 * time.Second
	}
	target, err := url.Parse(o.Target.Host)
	if err != nil {
		return nil, fmt.Errorf("parsing the address of the API server: %w", err)
	}
	// Without credentials: those of the clients are passed on.
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: o.Target.CAData, CAFile: o.Target.CAFile}})
	if err != nil {
		return nil, fmt.Errorf("making a transport to the API server: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	p := &Proxy{
		options: o, target: transport, url: "https://" + listener.Addr().String(),
		closed: make(chan struct{}), calm: make(chan struct{}), conns: map[net.Conn]bool{}, requests: map[class]uint64{}, counts: map[Kind]int{},
		versions: map[string][]string{}, cachedOld: map[string]*answer{},
	}
	quiet := log.New(io.Discard, "", 0) // it would tell of each cut
	p.server = &http.Server{
		Handler: &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport:     p,
			FlushInterval: -1, // watches
			ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
			ErrorLog:      quiet,
		},
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{o.Certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          quiet,
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ConnState:         p.noteConn,
	}
	go func() { _ = p.server.ServeTLS(listener, "", "") }() // ends with Close
	return p, nil
}

// noteConn keeps the connections that are open.
func (p *Proxy) noteConn(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(p.conns, c)
		return
	}
	p.conns[c] = true
}

// URL is where controllers find the proxy.
func (p *Proxy) URL() string { return p.url }

// Close ends the proxy, and cuts what is under way.
func (p *Proxy) Close() {
	p.Calm()
	p.close.Do(func() { close(p.closed) })
	_ = p.server.Close() // its listener closes once
}

// Calm ends all faults, those under way too. What waits for its time goes on at once; what was
// never to be answered is cut.
func (p *Proxy) Calm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.calm:
	default:
		close(p.calm)
	}
}

// Storm begins the faults again after Calm.
func (p *Proxy) Storm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.calm:
		p.calm = make(chan struct{})
	default:
	}
}

// Counts says how many faults of each kind there were.
func (p *Proxy) Counts() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// errCut is the error of a request that gets no answer.
var errCut = errors.New("cut by the proxy")

// RoundTrip passes a request on, or lets it meet a fault.
func (p *Proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.options.UserAgent != "" {
		r.Header.Set("User-Agent", p.options.UserAgent)
	}
	p.mu.Lock()
	calm := p.calm
	p.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/apis/coordination.k8s.io/") {
		return p.target.RoundTrip(r) // no fault ever meets a Lease
	}
	c := classOf(r)
	if c == watches {
		defer p.remember(r) // after the fault is chosen: an older one is wanted
	}
	h, err := p.holds(c, r)
	if err != nil {
		return nil, err
	}
	if h != nil {
		return h.pass(p, r)
	}
	f := p.draw(c, r)
	if f.kind == None {
		return p.pass(r)
	}
	f.calm = calm
	return faults[f.kind](p, r, f)
}

// pass passes a request on, and keeps what a later fault needs of the answer.
func (p *Proxy) pass(r *http.Request) (*http.Response, error) {
	response, err := p.target.RoundTrip(r)
	if err != nil || !fromCache(r) || response.StatusCode != http.StatusOK {
		return response, err
	}
	return p.keepOld(r, response)
}

// finish lets a write take effect, whether or not the client waits for it, and drops the answer.
func (p *Proxy) finish(r *http.Request) error {
	response, err := p.target.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// cut closes the connection that a request came by, with all that is under way there.
func (p *Proxy) cut(r *http.Request) error {
	if c, is := r.Context().Value(connKey{}).(net.Conn); is {
		_ = c.Close() // may be closed already
	}
	return errCut
}

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
