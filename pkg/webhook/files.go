package webhook

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"
)

// Files serve a certificate that somebody else makes, renews and has the API servers trust.
type Files struct {
	// Content has what the files had when they last belonged together.
	Content interface {
		CurrentCertKeyContent() (certificate, key []byte)
	}
}

// Certificate is the one to serve with.
func (f Files) Certificate() (*tls.Certificate, error) {
	c, err := tls.X509KeyPair(f.Content.CurrentCertKeyContent())
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	return &c, nil
}

// Ready returns nil if the certificate has not expired.
func (f Files) Ready() error {
	c, err := f.Certificate()
	if err == nil && !time.Now().Before(c.Leaf.NotAfter) {
		return errors.New("the certificate has expired")
	}
	return err
}
