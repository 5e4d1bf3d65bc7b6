package fault

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// spoiled returns a copy of the frame without its end, or with a zero byte.
func spoiled(kind Kind, frame []byte, chance *rand.Rand) []byte {
	frame = slices.Clone(frame)
	if len(frame) == 0 {
		return frame
	}
	at := chance.IntN(len(frame))
	if kind == Truncate {
		return frame[:at]
	}
	frame[at] = 0
	return frame
}

// noise is a notification that nobody has sent.
func noise(n int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"fault/flood","params":{"n":%d}}`, n)
}

// forged is an answer to a request that nobody has made: its id is too large,
// too small, or no number.
func forged(chance *rand.Rand) []byte {
	id := [...]string{"9007199254740991", "-1", "0", `"1"`, "null"}[chance.IntN(5)]
	if id == "null" {
		return []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"forged"}}`)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":"forged"}`, id)
}
