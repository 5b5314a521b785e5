package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
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
	secret  []byte // the key, encoded
}

func (p pair) valid(now time.Time) bool {
	return !now.Before(p.serving.Leaf.NotBefore) && now.Before(p.serving.Leaf.NotAfter)
}

// path is where an API server asks, so that nobody else can: only those know it who may read the configuration. A user
// whose write is refused because no webhook has answered is told it, too, so it is another one for each webhook:
// those with estimates are none of them.
func (p pair) path(webhook string) string {
	hash := hmac.New(sha256.New, p.secret)
	hash.Write([]byte(webhook))
	return Path + webhook + "/" + hex.EncodeToString(hash.Sum(nil))
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
	secret, err := x509.MarshalPKCS8PrivateKey(serving.PrivateKey)
	if err != nil {
		return pair{}, fmt.Errorf("encoding a key: %w", err)
	}
	ca, err := x509.ParseCertificate(serving.Certificate[1])
	if err != nil {
		return pair{}, fmt.Errorf("reading a CA: %w", err)
	}
	return pair{encoded: slices.Concat(certificates, key), ca: ca, serving: &serving, secret: secret}, nil
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
