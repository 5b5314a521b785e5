// Package conntrack has what Prometheus' HTTP client (github.com/prometheus/common/config) calls of the module of this name, which
// go.mod replaces by it. It dials, and traces nothing.
//
// The module itself imports golang.org/x/net/trace, whose web pages are templates. As long as a program may execute a template, the
// linker keeps every exported method of every type in it, since a template may call any. Without, the binary is a third
// smaller, and so is what is mapped of it in each of its processes.
package conntrack

import (
	"context"
	"net"
)

// DialContext is the function of [net.Dialer] that connects.
type DialContext = func(ctx context.Context, network, address string) (net.Conn, error)

// DialerOpt is an option of a dialer.
type DialerOpt func(*DialContext)

// DialWithDialContextFunc has the dialer connect by dial.
func DialWithDialContextFunc(dial DialContext) DialerOpt { return func(d *DialContext) { *d = dial } }

// DialWithName is without effect: nothing is counted by a name.
func DialWithName(string) DialerOpt { return func(*DialContext) {} }

// DialWithTracing is without effect.
func DialWithTracing() DialerOpt { return func(*DialContext) {} }

// NewDialContextFunc returns a function that connects.
func NewDialContextFunc(options ...DialerOpt) DialContext {
	dial := (&net.Dialer{}).DialContext
	for _, set := range options {
		set(&dial)
	}
	return dial
}
