package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind of a fault.
type Kind string

// The kinds of faults. A cut ends the whole connection, with all that is under way there.
const (
	None          Kind = ""
	Conflict      Kind = "conflict"                       // 409; the write was not made
	TooMany       Kind = "too many requests"              // 429 with Retry-After
	InternalError Kind = "internal error"                 // 500
	Unavailable   Kind = "unavailable"                    // 503
	TimeoutBefore Kind = "timeout before the write"       // no answer, and then a cut
	TimeoutAfter  Kind = "timeout after the write"        // the same, but the write was made
	ServerTimeout Kind = "server timeout after the write" // 504 late, as when etcd is slow; the write was made
	CutBefore     Kind = "cut before the write"
	CutAfter      Kind = "cut after the write"
	LateWrite     Kind = "late write"   // it arrives late, even if its sender has gone meanwhile
	ReadTimeout   Kind = "read timeout" // no answer, and then a cut
	ReadCut       Kind = "read cut"
	SlowRead      Kind = "slow read" // what comes was true when it was read
	OldList       Kind = "old list"  // of resourceVersion=0, which may be of any age
	ListExpired   Kind = "list expired"
	WatchExpired  Kind = "watch expired" // 410
	WatchCut      Kind = "watch cut"
	WatchLate     Kind = "watch late"
	WatchReplayed Kind = "watch replayed"
)

// class of requests that meet the same kinds of faults.
type class uint64

const (
	creates class = iota
	writes
	events // apart, because their number depends on time
	reads
	watches
)

// classOf says of which class a request is. An eviction is a creation, but may conflict.
func classOf(r *http.Request) class {
	switch q := r.URL.Query(); {
	case r.Method == http.MethodGet && (q.Get("watch") == "true" || q.Get("watch") == "1"):
		return watches
	case r.Method == http.MethodGet:
		return reads
	case strings.Contains(r.URL.Path+"/", "/events/"):
		return events
	case r.Method == http.MethodPost && !strings.HasSuffix(r.URL.Path, "/eviction"):
		return creates
	}
	return writes
}

// possible are the kinds of faults that requests of a class may meet.
var possible = map[class][]Kind{
	creates: {TooMany, InternalError, Unavailable, TimeoutBefore, TimeoutAfter, ServerTimeout, CutBefore, CutAfter, LateWrite, LateWrite},
	writes:  {Conflict, TooMany, InternalError, Unavailable, TimeoutBefore, TimeoutAfter, ServerTimeout, CutBefore, CutAfter, LateWrite, LateWrite},
	events:  {TooMany, InternalError, Unavailable, CutBefore},
	reads:   {TooMany, InternalError, Unavailable, ReadTimeout, ReadCut, SlowRead, OldList, ListExpired},
	watches: {TooMany, Unavailable, WatchExpired, WatchCut, WatchCut, WatchLate, WatchLate, WatchReplayed, WatchReplayed},
}

// fault is what was decided for one request.
type fault struct {
	kind Kind
	wait time.Duration // for kinds that take time
	calm chan struct{} // closed when faults end
	old  string        // version, for WatchReplayed
}

// choose says, from 0 to 1, how lucky the n-th request of a class is, which fault it meets if that
// is less than the rate, and how much of the time there is the fault takes.
func choose(seed uint64, c class, n uint64) (luck float64, kind Kind, part float64) {
	random := rand.New(rand.NewPCG(seed, n<<8|uint64(c)))
	return random.Float64(), possible[c][random.IntN(len(possible[c]))], 0.1 + 0.9*random.Float64()
}

// draw decides which fault a request meets. The n-th request of a class draws the same with the
// same seed. A kind that cannot be for this very request gives way to one that can.
func (p *Proxy) draw(c class, r *http.Request) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests[c]++
	luck, kind, part := choose(p.options.Seed, c, p.requests[c])
	rate := p.options.Rate
	if c == watches {
		rate = p.options.WatchRate
	}
	select {
	case <-p.calm:
		return fault{}
	default:
	}
	if luck >= rate {
		return fault{}
	}
	f := fault{kind: kind, wait: time.Duration(part * float64(p.options.Patience))}
	q := r.URL.Query()
	switch kind {
	case OldList:
		if !fromCache(r) || p.cachedOld[listKey(r)] == nil {
			f.kind = SlowRead
		}
	case ListExpired:
		if q.Get("continue") == "" {
			f.kind = SlowRead
		}
	case WatchExpired:
		if !resumes(r) {
			f.kind = WatchCut
		}
	case WatchReplayed:
		old := p.versions[watchKey(r)]
		if !resumes(r) || len(old) == 0 || old[0] == q.Get("resourceVersion") {
			f.kind = WatchCut
			break
		}
		f.old = old[0]
	}
	p.counts[f.kind]++
	return f
}

// faults are what is done about a request.
var faults = map[Kind]func(*Proxy, *http.Request, fault) (*http.Response, error){
	Conflict: func(_ *Proxy, r *http.Request, _ fault) (*http.Response, error) {
		return status(r, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified; please apply your changes to the latest version and try again"), nil
	},
	TooMany: func(_ *Proxy, r *http.Request, _ fault) (*http.Response, error) {
		return status(r, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests, please try again later"), nil
	},
	InternalError: func(_ *Proxy, r *http.Request, _ fault) (*http.Response, error) {
		return status(r, http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error occurred: etcdserver: no leader"), nil
	},
	Unavailable: func(_ *Proxy, r *http.Request, _ fault) (*http.Response, error) {
		return status(r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "apiserver not ready"), nil
	},
	ListExpired:   expired,
	WatchExpired:  expired,
	TimeoutBefore: hang,
	ReadTimeout:   hang,
	TimeoutAfter: func(p *Proxy, r *http.Request, f fault) (*http.Response, error) {
		if err := p.finish(r); err != nil {
			return nil, err
		}
		return hang(p, r, f)
	},
	ServerTimeout: func(p *Proxy, r *http.Request, f fault) (*http.Response, error) {
		if err := p.finish(r); err != nil {
			return nil, err
		}
		if !sleep(r, f) {
			return nil, errCut
		}
		return status(r, http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Timeout: request did not complete within requested timeout - context deadline exceeded"), nil
	},
	CutBefore: func(p *Proxy, r *http.Request, _ fault) (*http.Response, error) { return nil, p.cut(r) },
	ReadCut:   func(p *Proxy, r *http.Request, _ fault) (*http.Response, error) { return nil, p.cut(r) },
	CutAfter: func(p *Proxy, r *http.Request, _ fault) (*http.Response, error) {
		if err := p.finish(r); err != nil {
			return nil, err
		}
		return nil, p.cut(r)
	},
	LateWrite: func(p *Proxy, r *http.Request, f fault) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r = r.WithContext(context.WithoutCancel(r.Context()))
		r.Body = io.NopCloser(bytes.NewReader(body))
		sleep(r, f)
		return p.target.RoundTrip(r)
	},
	SlowRead: func(p *Proxy, r *http.Request, f fault) (*http.Response, error) {
		response, err := p.pass(r)
		if err != nil {
			return nil, err
		}
		whole, err := read(response)
		if err != nil {
			return nil, err
		}
		if !sleep(r, f) {
			return nil, errCut
		}
		return whole.response(r), nil
	},
	OldList: func(p *Proxy, r *http.Request, _ fault) (*http.Response, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.cachedOld[listKey(r)].response(r), nil
	},
	WatchCut: func(p *Proxy, r *http.Request, f fault) (*http.Response, error) {
		response, err := p.target.RoundTrip(r)
		if err == nil {
			response.Body = cutAfter(response.Body, f)
		}
		return response, err
	},
	WatchLate: func(p *Proxy, r *http.Request, f fault) (*http.Response, error) {
		response, err := p.target.RoundTrip(r)
		if err == nil {
			response.Body = late(response.Body, f)
		}
		return response, err
	},
	WatchReplayed: func(p *Proxy, r *http.Request, f fault) (*http.Response, error) {
		r = r.Clone(r.Context())
		q := r.URL.Query()
		q.Set("resourceVersion", f.old)
		r.URL.RawQuery = q.Encode()
		return p.target.RoundTrip(r)
	},
}

func expired(_ *Proxy, r *http.Request, _ fault) (*http.Response, error) {
	return status(r, http.StatusGone, metav1.StatusReasonExpired, "The resourceVersion for the provided request is too old."), nil
}

// hang gives no answer until the client gives up or the time is over, and cuts the connection.
func hang(p *Proxy, r *http.Request, f fault) (*http.Response, error) {
	if !sleep(r, f) {
		return nil, errCut
	}
	return nil, p.cut(r)
}

// sleep waits for the fault's time, or until faults end. It returns false if the client gave up.
func sleep(r *http.Request, f fault) bool {
	timer := time.NewTimer(f.wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.calm:
	case <-r.Context().Done():
		return false
	}
	return true
}

// answer is a whole answer.
type answer struct {
	code   int
	header http.Header
	body   []byte
	read   time.Time
}

func read(response *http.Response) (*answer, error) {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return &answer{code: response.StatusCode, header: response.Header, body: body, read: time.Now()}, err
}

func (a *answer) response(r *http.Request) *http.Response {
	return &http.Response{
		StatusCode: a.code, Status: strconv.Itoa(a.code) + " " + http.StatusText(a.code),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.header.Clone(),
		Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: r,
	}
}

// status answers with an error as the API server does: a Status in JSON, which every client takes.
func status(r *http.Request, code int, reason metav1.StatusReason, message string) *http.Response {
	s := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Message: message + " (a fault of the test)", Reason: reason, Code: int32(code), Details: details(r.URL.Path),
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if code == http.StatusTooManyRequests {
		header.Set("Retry-After", "1")
		s.Details.RetryAfterSeconds = 1
	}
	body, err := json.Marshal(s)
	if err != nil {
		panic(err) // a Status can always be written
	}
	return (&answer{code: code, header: header, body: body}).response(r)
}

// details name the object of a path such as /apis/apps/v1/namespaces/a/deployments/web/status.
func details(path string) *metav1.StatusDetails {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if i := slices.Index(parts, "namespaces"); i >= 0 && len(parts) > i+3 {
		return &metav1.StatusDetails{Kind: parts[i+2], Name: parts[i+3]}
	}
	return &metav1.StatusDetails{}
}
