package prerequisite

import (
	"cmp"
	"errors"
)

// NotHeld returns why edits are left to the built-in controllers, in a few words; empty if they are not. Those with the action LiveResize
// (liveOnly) wait for a controller.
func (r Report) NotHeld(liveOnly bool) string {
	switch {
	case r.Installed != nil:
		return "nothing holds edits here"
	case r.Controller != nil && !r.Waits(liveOnly):
		return "no controller is ready"
	default:
		return ""
	}
}

// Waits reports whether edits are held though no controller is there, and wait for one.
func (r Report) Waits(liveOnly bool) bool {
	return r.Installed == nil && r.Controller != nil && !IsNotBegun(r.Controller) && (liveOnly || errors.Is(r.Controller, errWaits))
}

// Shown returns the report by what a dry run of an edit has shown, as [Unattended] has it: what holds knows best whether a controller is
// there.
func (r Report) Shown(unattended error) Report {
	switch {
	case unattended == nil:
		r.Controller, r.Attendance = nil, nil
	case errors.Is(unattended, ErrNotAsked):
		r.Installed = cmp.Or(r.Installed, unattended)
	case IsAbsent(unattended):
		r.Controller, r.Attendance = unattended, nil
	}
	return r
}
