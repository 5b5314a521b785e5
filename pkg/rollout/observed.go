package rollout

import (
	"strconv"
	"strings"
)

// Observed is what the condition inplace-rollout.io/Observed says: the generation of a held workload that
// the built-in controller has observed. The CEL of deploy/cluster/status.yaml writes its message.
type Observed int64

const observedGeneration = "observed generation "

// String is the condition's message.
func (o Observed) String() string { return observedGeneration + strconv.FormatInt(int64(o), 10) }

// ParseObserved reads the condition's message. One that says something else is of no generation: 0.
func ParseObserved(message string) Observed {
	number, is := strings.CutPrefix(message, observedGeneration)
	generation, err := strconv.ParseInt(number, 10, 64)
	if !is || err != nil {
		return 0
	}
	return Observed(generation)
}

// ObservedGeneration returns the generation of a workload that its status speaks of. While it is held,
// its field observedGeneration says an older one; said is its condition inplace-rollout.io/Observed, or nil.
func ObservedGeneration(field int64, said *StoredCondition) int64 {
	if said == nil {
		return field
	}
	return max(field, int64(ParseObserved(said.Message)))
}
