package prerequisite

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Digest is that of the policies that hold, as this program was built with them. A webhook evaluates those that it was built with:
// they are in no object of the cluster that could be compared.
var Digest = digest(policies)

func digest(of []policy) string {
	specs := map[string]any{}
	for _, p := range of {
		if p.kind == mutating {
			specs[p.name] = p.spec
		}
	}
	encoded, err := json.Marshal(specs) // with sorted keys
	if err != nil {
		panic(err) // it comes from JSON
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:8])
}
