package controlplane

import (
	"strconv"
	"testing"
)

// TestPortBlocks: whoever claims a block has it alone, and gets ports of it.
func TestPortBlocks(t *testing.T) {
	own, err := ownBlock()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		other, err := claimBlock()
		if err != nil || other.first == own.first {
			t.Errorf("one more claim got %d, and this process has %d: %v", other.first, own.first, err)
			continue
		}
		if err := other.claim.Close(); err != nil {
			t.Error(err)
		}
	}
	seen := map[string]bool{}
	for range 20 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := strconv.Atoi(port); err != nil || n <= own.first || n >= own.first+blockSize || seen[port] {
			t.Errorf("port %s, want another one of the %d after %d", port, blockSize-1, own.first)
		}
		seen[port] = true
	}
}
