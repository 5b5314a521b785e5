package simulated

import "errors"

// ErrBroken is the error of a request that did not arrive, or whose answer did not.
var ErrBroken = errors.New("the connection broke")

// Requests are the writes of a controller in one sync, any of which may be disturbed.
type Requests struct {
	// Dies is after how many writes the controller dies: no other arrives. 0 means never.
	Dies int
	// Loses is the write whose answer gets lost, counted from 1. 0 means none.
	Loses int
	// Meanwhile is what others do before the first write arrives; nil means nothing.
	Meanwhile func()

	made       int
	carriesOut bool // a write of the controller
}

// Dead reports whether the controller has died in the middle of its writes.
func (r *Requests) Dead() bool { return r.Dies > 0 && r.made > r.Dies }

// Any reports whether the controller has written anything in this sync, or tried to.
func (r *Requests) Any() bool { return r.made > 0 }

// Request has one write carried out, after check; nil checks nothing.
func Request[T any](r *Requests, check func(), carryOut func() (T, error)) (written T, err error) {
	var none T
	if r.made++; r.Dead() {
		return none, ErrBroken
	}
	if check != nil {
		check()
	}
	if happens := r.Meanwhile; happens != nil {
		r.Meanwhile = nil
		happens()
	}
	r.carriesOut = true
	written, err = carryOut()
	r.carriesOut = false
	if err == nil && r.made == r.Loses {
		return none, ErrBroken
	}
	return written, err
}
