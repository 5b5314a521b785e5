package build

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// AddSeeds adds inputs for properties of rapid, which draw what they need from a fuzzer's bytes.
func AddSeeds(f *testing.F) {
	f.Helper()
	for seed := range uint64(64) {
		source := rand.NewPCG(seed, 0)
		var input []byte
		for range 256 {
			input = binary.LittleEndian.AppendUint64(input, source.Uint64())
		}
		f.Add(input)
	}
}
