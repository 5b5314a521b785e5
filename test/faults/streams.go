package faults

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// known is how many versions of one watch are kept.
const known = 16

// resumes reports whether a watch goes on from a version.
func resumes(r *http.Request) bool {
	q := r.URL.Query()
	version := q.Get("resourceVersion")
	return version != "" && version != "0" && q.Get("sendInitialEvents") != "true"
}

// watchKey names what a request watches.
func watchKey(r *http.Request) string {
	q := r.URL.Query()
	return r.URL.Path + "?" + q.Get("labelSelector") + "&" + q.Get("fieldSelector")
}

// remember keeps the version that a watch goes on from.
func (p *Proxy) remember(r *http.Request) {
	if !resumes(r) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key, version := watchKey(r), r.URL.Query().Get("resourceVersion")
	if !slices.Contains(p.versions[key], version) {
		p.versions[key] = append(p.versions[key], version)
	}
	p.versions[key] = p.versions[key][max(0, len(p.versions[key])-known):]
}

// fromCache reports whether a list may be of any age.
func fromCache(r *http.Request) bool {
	q := r.URL.Query()
	return classOf(r) == reads && q.Get("resourceVersion") == "0" && q.Get("resourceVersionMatch") != "Exact"
}

// listKey names what a request lists, and in which form.
func listKey(r *http.Request) string {
	return r.URL.Path + "?" + r.URL.RawQuery + " " + r.Header.Get("Accept") + " " + r.Header.Get("Accept-Encoding")
}

// oldest is how old a list from the cache may be.
const oldest = time.Minute

// keepOld keeps an answer to a list from the cache, until it is too old.
func (p *Proxy) keepOld(r *http.Request, response *http.Response) (*http.Response, error) {
	whole, err := read(response)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if key := listKey(r); p.cachedOld[key] == nil || time.Since(p.cachedOld[key].read) > oldest {
		p.cachedOld[key] = whole
	}
	return whole.response(r), nil
}

// cutAfter lets a stream break off after the fault's time.
func cutAfter(body io.ReadCloser, f fault) io.ReadCloser {
	timer := time.NewTimer(f.wait)
	s := newStream(body, 0, f)
	go func() {
		defer timer.Stop()
		select {
		case <-timer.C:
			_ = s.Close() // its reader sees an error
		case <-f.calm:
		case <-s.done:
		}
	}()
	return s
}

// late brings a stream later by the fault's time, as long as there are faults.
func late(body io.ReadCloser, f fault) io.ReadCloser { return newStream(body, f.wait, f) }

// piece of a stream, and when it is due.
type piece struct {
	data []byte
	due  time.Time
	err  error
}

// stream brings the pieces of a body at their time.
type stream struct {
	body   io.ReadCloser
	calm   chan struct{}
	pieces chan piece
	now    piece // what is left of it is read next
	close  sync.Once
	done   chan struct{}
}

// Close ends the stream.
func (s *stream) Close() error {
	s.close.Do(func() { close(s.done) })
	return s.body.Close()
}

// ahead is how many pieces of a late stream are kept.
const ahead = 1024

func newStream(body io.ReadCloser, delay time.Duration, f fault) *stream {
	s := &stream{body: body, calm: f.calm, pieces: make(chan piece, ahead), done: make(chan struct{})}
	go func() {
		for {
			data := make([]byte, 32<<10)
			n, err := body.Read(data)
			select {
			case s.pieces <- piece{data: data[:n], due: time.Now().Add(delay), err: err}:
			case <-s.done:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return s
}

// Read brings what is due, and breaks off when the stream is closed.
func (s *stream) Read(b []byte) (int, error) {
	if len(s.now.data) == 0 && s.now.err == nil {
		select {
		case s.now = <-s.pieces:
		case <-s.done:
			return 0, io.ErrUnexpectedEOF
		}
		timer := time.NewTimer(time.Until(s.now.due))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.calm:
		case <-s.done:
			return 0, io.ErrUnexpectedEOF
		}
	}
	n := copy(b, s.now.data)
	s.now.data = s.now.data[n:]
	if len(s.now.data) == 0 && s.now.err != nil {
		return n, s.now.err
	}
	return n, nil
}
