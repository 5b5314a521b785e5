package promapi

import (
	"fmt"
	"io"
	"net/http"
)

// limited gives up an answer that is too long.
type limited struct {
	http.RoundTripper
	most int64
}

// TooLong is the error of an answer that has more than that many bytes.
type TooLong struct{ Most int64 }

func (t TooLong) Error() string { return fmt.Sprintf("the answer has more than %d bytes", t.Most) }

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = &limitedBody{response.Body, l.most, l.most}
	}
	return response, err
}

type limitedBody struct {
	io.ReadCloser
	left, most int64
}

// Read reads one byte more than may be read, to see whether there is one.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return n, TooLong{b.most}
	}
	return n, err
}
