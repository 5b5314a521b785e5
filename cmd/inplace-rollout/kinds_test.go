package main

import (
	"slices"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
)

// TestEveryKindHasCommands: the commands know each kind whose edits are held, and no other.
func TestEveryKindHasCommands(t *testing.T) {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	if !slices.Equal(names, prerequisite.HeldKinds) {
		t.Errorf("the commands know %v, and edits of %v are held", names, prerequisite.HeldKinds)
	}
}
