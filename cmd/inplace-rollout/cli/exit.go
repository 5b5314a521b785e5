package cli

import "fmt"

// ExitCode ends a command that has printed all that it has to say. Every other error ends one with [Failed], and check with [Unknown].
type ExitCode int

func (e ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// The exit codes, beside 0. [ExitCodes] says what they mean.
const (
	Failed     ExitCode = 1 // of every command but check
	No         ExitCode = 1 // of check
	Unknown    ExitCode = 2
	Incomplete ExitCode = 2 // of status
	Stopped    ExitCode = 3
	Foreseen   ExitCode = 3 // of plan
)

// Meaning is what an exit code of a command means.
type Meaning struct {
	Command string // empty for all others
	Code    ExitCode
	Means   string
}

// ExitCodes are all that commands end with; docs/commands.md has them as a table.
var ExitCodes = []Meaning{
	{"check", 0, "yes: edits are rolled out in place; with `--pre`, the cluster is ready for the installation"},
	{"check", No, "no"},
	{"check", Unknown, "unknown: you cannot see enough, the cluster does not answer, or a flag is wrong"},
	{"status", 0, "every rollout is complete"},
	{"status", Incomplete, "one is not complete yet"},
	{"status", Stopped, "none goes on until a person acts"},
	{"plan", 0, "nothing that `--fail-on` names would happen"},
	{"plan", Foreseen, "something that it names would happen"},
	{"", 0, "it is done"},
	{"", Failed, "it could not be done; so, too, of `status` and `plan`"},
}
