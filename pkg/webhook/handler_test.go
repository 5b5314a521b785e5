package webhook

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestCrowd: whoever announces a body and does not send it takes nothing away from API servers, and what is sent and
// never finished takes a bounded part of the memory, for a moment.
func TestCrowd(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			s := newCrowd(t, protocol)
			var idle []<-chan string
			for range 2 * crowdBodies / crowdBody {
				idle = append(idle, s.begin(t, "", 1))
			}
			s.waitReceived(t, int64(len(idle)))
			if got := s.post(t, strings.NewReader(strings.Repeat(" ", crowdBody-2)+"{}"), crowdBody); !strings.Contains(got, "want an AdmissionReview") {
				t.Errorf("a whole one beside %d that do not come: %s", len(idle), got)
			}
			start := time.Now()
			for _, ended := range idle {
				if got := <-ended; !strings.Contains(got, "400") {
					t.Errorf("one that does not come: %s", got)
				}
			}
			if took := time.Since(start); took > 2*maxPause {
				t.Errorf("those that do not come have lasted %s", took)
			}

			// Now they send all but the last byte. A machine that is too busy for that in the time that they have tries again.
			for try := 1; ; try++ {
				s.received.Store(0)
				var most []<-chan string
				for range crowdBodies / crowdBody / 2 { // neither of them alone may do that
					most = append(most, s.begin(t, "192.0.2.1:1", crowdBody-1), s.begin(t, "192.0.2.2:1", crowdBody-1))
				}
				full := s.hasReceived(int64(len(most)) * (crowdBody - 1))
				if got := s.post(t, strings.NewReader(strings.Repeat(" ", crowdBody-2)+"{}"), crowdBody); full && !strings.Contains(got, "503") && !strings.Contains(got, "connection reset") {
					t.Errorf("one more: %s", got)
				}
				for _, ended := range most {
					<-ended
				}
				if full {
					break
				}
				if try == 5 {
					t.Fatalf("%d bytes have been received of the %d that are to come", s.received.Load(), crowdBodies)
				}
			}
			if got := s.post(t, strings.NewReader(strings.Repeat(" ", crowdBody-2)+"{}"), crowdBody); !strings.Contains(got, "want an AdmissionReview") {
				t.Errorf("a whole one after them: %s", got)
			}
		})
	}
}

// TestOneAddressCrowds: whoever has many connections from one address, or one network of IPv6, crowds out himself.
func TestOneAddressCrowds(t *testing.T) {
	s := newCrowd(t, "HTTP/1.1")
	for try := 1; ; try++ {
		s.received.Store(0)
		var most []<-chan string
		for i := range crowdBodies / crowdBody {
			most = append(most, s.begin(t, fmt.Sprintf("[2001:db8::%d]:1", i), crowdBody-1))
		}
		full := s.hasReceived(int64(len(most)/2) * (crowdBody - 1))
		if got := s.post(t, strings.NewReader(strings.Repeat(" ", crowdBody-2)+"{}"), crowdBody); !strings.Contains(got, "want an AdmissionReview") {
			t.Errorf("one of another address: %s", got)
		}
		refused := 0
		for _, ended := range most {
			if got := <-ended; strings.Contains(got, "503") || strings.Contains(got, "connection reset") {
				refused++
			}
		}
		if full && refused > 0 {
			return
		}
		if try == 5 {
			t.Fatalf("%d bytes have been received, and %d were refused", s.received.Load(), refused)
		}
	}
}

// TestTrickle: a body that comes byte by byte ends before an API server would have given up.
func TestTrickle(t *testing.T) {
	s := newCrowd(t, "HTTP/1.1")
	body, end := io.Pipe()
	go func() {
		for {
			if _, err := end.Write([]byte(" ")); err != nil {
				return
			}
			time.Sleep(maxPause / 4)
		}
	}()
	defer end.Close()
	start := time.Now()
	if got, took := s.post(t, body, crowdBody), time.Since(start); !strings.Contains(got, "400") || took > maxReceive+maxPause {
		t.Errorf("after %s: %s", took, got)
	}
}

// The bounds of a crowd's webhook, in bytes: a machine that is slow, or looks for data races, receives so much in the time that there is.
const (
	crowdBody   = maxBody / 32
	crowdBodies = maxBodies / 32
)

// crowd is a webhook that many send to.
type crowd struct {
	*httptest.Server
	url      string
	received atomic.Int64 // bytes of bodies
}

func newCrowd(t *testing.T, protocol string) *crowd {
	t.Helper()
	policies, s := load(t), &crowd{}
	handler := newHandler(policies, NewMetrics(prometheus.NewRegistry(), policies.Names(), (&Keeper{}).Certificate), knows, crowdBody, crowdBodies)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Proto != protocol {
			t.Errorf("the protocol is %s", r.Proto)
		}
		r.Body = metered{r.Body, &s.received}
		if from := r.Header.Get("From"); from != "" {
			r.RemoteAddr = from
		}
		handler.ServeHTTP(w, r)
	}))
	s.EnableHTTP2 = protocol == "HTTP/2.0"
	s.StartTLS()
	t.Cleanup(s.Close)
	s.url = s.URL + Path + policies.Names()[0] + domain + "/secret"
	return s
}

// post sends a body of some length, and returns the answer.
func (s *crowd) post(t *testing.T, body io.Reader, length int64) string {
	t.Helper()
	return s.postFrom(t, "", body, length)
}

func (s *crowd) postFrom(t *testing.T, address string, body io.Reader, length int64) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, body)
	if err != nil {
		t.Error(err)
		return ""
	}
	request.Header.Set("From", address)
	request.ContentLength = length
	answer, err := s.Client().Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return fmt.Sprint(answer.StatusCode, " ", string(text), err)
}

// begin sends from an address as much of a body that is announced as the longest, and no more. It returns where the
// answer comes.
func (s *crowd) begin(t *testing.T, address string, length int) <-chan string {
	t.Helper()
	body, end := io.Pipe()
	t.Cleanup(func() { _ = end.Close() })
	ended := make(chan string, 1)
	go func() { _, _ = io.WriteString(end, strings.Repeat(" ", length)) }()
	go func() { ended <- s.postFrom(t, address, body, crowdBody) }()
	return ended
}

func (s *crowd) waitReceived(t *testing.T, want int64) {
	t.Helper()
	if !s.hasReceived(want) {
		t.Fatalf("%d bytes have been received, and not %d", s.received.Load(), want)
	}
}

// hasReceived reports whether so much is received within ten seconds.
func (s *crowd) hasReceived(want int64) bool {
	for deadline := time.Now().Add(10 * time.Second); s.received.Load() < want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// metered is a body that counts what is read.
type metered struct {
	io.ReadCloser
	received *atomic.Int64
}

func (c metered) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.received.Add(int64(n))
	return n, err
}

// knows is whether a path is that of a webhook.
func knows(_, path string) bool { return strings.HasSuffix(path, "/secret") }

// recorder is a response that never has to wait.
type recorder struct{ *httptest.ResponseRecorder }

func newRecorder() recorder { return recorder{httptest.NewRecorder()} }

func (recorder) SetReadDeadline(time.Time) error { return nil }

// TestStranger: who does not know the path gets no answer, and nothing of what he sends is read.
func TestStranger(t *testing.T) {
	s := newCrowd(t, "HTTP/1.1")
	known := s.url
	for _, url := range []string{strings.TrimSuffix(known, "secret") + "guess", strings.TrimSuffix(known, "/secret"), s.URL + Path + "nothing/secret", s.URL + "/"} {
		s.url = url
		if got := <-s.begin(t, "", 1000); !strings.HasPrefix(got, "403") {
			t.Errorf("%s: %s", url, got)
		}
	}
	if n := s.received.Load(); n > 0 {
		t.Errorf("%d bytes were read", n)
	}
	s.url = known
	if got := s.post(t, strings.NewReader("{}"), 2); !strings.Contains(got, "want an AdmissionReview") {
		t.Errorf("who knows it: %s", got)
	}
}
