package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// Clients are those who get an answer, where API servers are configured to show webhooks a certificate.
type Clients struct {
	// Content has the CAs that the file had when it could last be read.
	Content interface {
		VerifyOptions() (x509.VerifyOptions, bool)
	}
}

// Demand lets a server end the handshake of everybody whose certificate none of the CAs has signed for clients. A connection that is
// there stays when the CAs change, but none is resumed.
func (c Clients) Demand(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.ClientAuth, config.SessionTicketsDisabled = tls.RequireAndVerifyClientCert, true
	config.NextProtos = []string{"h2", "http/1.1"} // what http.Server adds, it adds to this one only
	perClient := config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		options, known := c.Content.VerifyOptions()
		if !known || options.Roots == nil { // no CAs would be those of the system
			return nil, errors.New("no CA of clients is known")
		}
		now := perClient.Clone()
		now.ClientCAs = options.Roots
		return now, nil
	}
	return config
}
