package webhook

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
)

// A pair is a serving certificate with its key, and the CA that has signed it and nothing else.
type pair struct {
	encoded []byte // the certificate, the CA and the key in PEM
	ca      *x509.Certificate
	serving *tls.Certificate
}

func (p pair) valid(now time.Time) bool {
	return !now.Before(p.serving.Leaf.NotBefore) && now.Before(p.serving.Leaf.NotAfter)
}

func (p pair) same(other pair) bool { return p.ca.Equal(other.ca) }

// newPair makes one for the host that is good for lifetime from now on, and for an hour before,
// for clocks that are late. It is for the loopback address, too, where a port may be forwarded.
func newPair(host string, lifetime time.Duration) (pair, error) {
	certificates, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{
		Host: host, AlternateIPs: []net.IP{net.IPv4(127, 0, 0, 1)}, MaxAge: lifetime + time.Hour,
	})
	if err != nil {
		return pair{}, fmt.Errorf("making a certificate: %w", err)
	}
	return newPairFrom(certificates, key)
}

func newPairFrom(certificates, key []byte) (pair, error) {
	serving, err := tls.X509KeyPair(certificates, key)
	if err != nil {
		return pair{}, fmt.Errorf("reading a certificate: %w", err)
	}
	if len(serving.Certificate) != 2 {
		return pair{}, errors.New("reading a certificate: its CA is not with it")
	}
	ca, err := x509.ParseCertificate(serving.Certificate[1])
	if err != nil {
		return pair{}, fmt.Errorf("reading a CA: %w", err)
	}
	return pair{encoded: slices.Concat(certificates, key), ca: ca, serving: &serving}, nil
}

// parsePairs reads pairs that were written one after the other, up to what cannot be read.
func parsePairs(encoded []byte) ([]pair, error) {
	var pairs []pair
	var certificates []byte
	for {
		var block *pem.Block
		if block, encoded = pem.Decode(encoded); block == nil {
			if len(bytes.TrimSpace(encoded)) > 0 || certificates != nil {
				return pairs, errors.New("there is more than pairs")
			}
			return pairs, nil
		}
		if block.Type == cert.CertificateBlockType {
			certificates = append(certificates, pem.EncodeToMemory(block)...)
			continue
		}
		p, err := newPairFrom(certificates, pem.EncodeToMemory(block))
		if err != nil {
			return pairs, err
		}
		pairs, certificates = append(pairs, p), nil
	}
}

func encodePairs(pairs []pair) []byte {
	var encoded []byte
	for _, p := range pairs {
		encoded = append(encoded, p.encoded...)
	}
	return encoded
}

// bundle is the PEM of the pairs' CAs, each once.
func bundle(pairs []pair) []byte {
	var encoded []byte
	var done []*x509.Certificate
	for _, p := range pairs {
		if !slices.ContainsFunc(done, p.ca.Equal) {
			done = append(done, p.ca)
			encoded = append(encoded, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: p.ca.Raw})...)
		}
	}
	return encoded
}

// trusts reports whether the CA is in the bundle.
func trusts(bundle []byte, ca *x509.Certificate) bool {
	certificates, err := cert.ParseCertsPEM(bundle)
	return err == nil && slices.ContainsFunc(certificates, ca.Equal)
}
