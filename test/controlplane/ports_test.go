package controlplane

import (
	"strconv"
	"testing"
)

// TestPortBlocks: whoever claims a block has it alone, and gets ports of it.
func TestPortBlocks(t *testing.T) {
	first, err := ownBlock()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if other, err := claimBlock(); err != nil || other == first {
			t.Errorf("one more claim got %d, and this process has %d: %v", other, first, err)
		}
	}
	seen := map[string]bool{}
	for range 20 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := strconv.Atoi(port); err != nil || n < first || n >= first+blockSize || seen[port] {
			t.Errorf("port %s, want another one of the %d from %d", port, blockSize, first)
		}
		seen[port] = true
	}
}
