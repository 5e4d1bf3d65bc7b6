package audit

import (
	"crypto/hmac"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/bowline-mcp/bowline/internal/private"
)

const (
	headEnd = ".head" // of the name of the file beside a trail
	keySize = 32
)

// A head is what is known of the newest record, so that a trail that was cut is noticed.
type head struct {
	Number uint64 `json:"n"`
	Hash   string `json:"hash"`
	MAC    string `json:"mac"`
}

func (h *head) mac(key []byte) []byte { return mac(key, fmt.Appendf(nil, "%d %s", h.Number, h.Hash)) }

// newHead returns what is noted of a record.
func newHead(number uint64, hash string, key []byte) head {
	h := head{Number: number, Hash: hash}
	h.MAC = hex.EncodeToString(h.mac(key))
	return h
}

// save notes it beside a trail. A process that is killed leaves this head or the one before, and never half of one.
func (h *head) save(path string) error {
	text, err := json.Marshal(h)
	if err == nil {
		err = os.WriteFile(path+headEnd+".new", append(text, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(path+headEnd+".new", path+headEnd)
	}
	return err
}

// readHead reads what is known of the newest record.
func readHead(path string, key []byte) (h head, err error) {
	text, err := os.ReadFile(path + headEnd)
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, fmt.Errorf("%s: %w", path+headEnd, err)
	}
	if said, err := hex.DecodeString(h.MAC); err != nil || !hmac.Equal(said, h.mac(key)) {
		return h, fmt.Errorf("%s was changed, or written by somebody without the key", path+headEnd)
	}
	return h, nil
}

// ReadKey reads a key from a file of this user, with 64 hexadecimal digits. If there is none, it makes one; of several processes that do so at once, all get the same.
func ReadKey(path string) ([]byte, error) { return private.Key(path, keySize) }
