package webhook

import (
	"bytes"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

type content struct{ certificate, key []byte }

func (c content) CurrentCertKeyContent() (certificate, key []byte) { return c.certificate, c.key }

// What is served is what the files have, while it is good.
func TestFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		made  time.Time
		ready bool
	}{"a new one": {time.Now(), true}, "an old one": {time.Now().Add(-life - time.Minute), false}} {
		p := must.Get(pairAt(tt.made))(t)
		f := Files{Content: content{p.encoded, p.encoded}}
		c, err := f.Certificate()
		if err != nil || !bytes.Equal(c.Leaf.Raw, p.serving.Leaf.Raw) {
			t.Errorf("%s: %v", name, err)
		}
		if err := f.Ready(); (err == nil) != tt.ready {
			t.Errorf("%s: %v", name, err)
		}
	}
	if (Files{Content: content{}}).Ready() == nil {
		t.Error("it is ready without a certificate")
	}
}
