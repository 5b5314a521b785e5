package capacity

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// refused is the answer that a pod is not let in, has no node, or that this cannot be known. Any other error means that it
// could not be read just now.
type refused struct{ judge.Refusal }

func (r refused) Error() string { return r.Reason }

func invalid(format string, args ...any) error {
	return refused{judge.Refusal{Kind: judge.ReasonInvalid, Reason: fmt.Sprintf(format, args...)}}
}

func noNode(format string, args ...any) error {
	return refused{judge.Refusal{Kind: judge.ReasonNoNodeFits, Reason: fmt.Sprintf(format, args...)}}
}

func unknown(format string, args ...any) error {
	return refused{judge.Refusal{Kind: judge.ReasonRoomUnknown, Reason: fmt.Sprintf(format, args...)}}
}

// hidden returns the error of a read, or that the room is unknown if this, such as "list nodes", is not allowed.
func hidden(err error, what string) error {
	if apierrors.IsForbidden(err) {
		return unknown("not allowed to %s", what)
	}
	return fmt.Errorf("reading what decides whether there is room: %w", err)
}

// refusal splits an answer into why not, and the error of a read.
func refusal(err error) (judge.Refusal, error) {
	var why refused
	if errors.As(err, &why) {
		return why.Refusal, nil
	}
	return judge.Refusal{}, err
}

// isUnknown reports whether the answer is that it cannot be known.
func isUnknown(err error) bool {
	why, _ := refusal(err)
	return why.Kind == judge.ReasonRoomUnknown
}

// isNo reports whether the answer is no.
func isNo(err error) bool {
	why, _ := refusal(err)
	return why.Reason != "" && why.Kind != judge.ReasonRoomUnknown
}
