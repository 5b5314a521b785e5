package build

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// Client is somebody who shows servers a certificate. All of it is PEM.
type Client struct{ CA, Certificate, Key []byte }

// NewClient makes a certificate for this use, and a CA that has signed it. Clients need x509.ExtKeyUsageClientAuth.
func NewClient(usage x509.ExtKeyUsage) (Client, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Client{}, fmt.Errorf("making a key: %w", err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca-of-clients"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Client{}, fmt.Errorf("making a key: %w", err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "client"}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	c := Client{}
	if c.CA, err = signed(authority, authority, &caKey.PublicKey, caKey); err != nil {
		return Client{}, err
	}
	if c.Certificate, err = signed(leaf, authority, &key.PublicKey, caKey); err != nil {
		return Client{}, err
	}
	if c.Key, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return Client{}, fmt.Errorf("encoding a key: %w", err)
	}
	return c, nil
}

func signed(template, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// Pair is what it shows.
func (c Client) Pair() (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(c.Certificate, c.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading a certificate: %w", err)
	}
	return pair, nil
}
