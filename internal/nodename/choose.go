package nodename

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"slices"
)

// Choose returns one of several names for a text, but none of except; "" if there is none left. Who
// has the same names chooses the same one, and when one goes, only its texts get others.
func Choose(text string, from iter.Seq[string], except []string) (chosen string) {
	var highest uint64
	for name := range from {
		hash := sha256.Sum256([]byte(name + Mark + text))
		weight := binary.BigEndian.Uint64(hash[:])
		if !slices.Contains(except, name) && (chosen == "" || weight > highest || weight == highest && name > chosen) {
			chosen, highest = name, weight
		}
	}
	return chosen
}
