// Package seal encrypts values that are stored or carried where others can read or change
// them, with keys that can be replaced while the program runs.
//
// A sealed value is the id of its key (4 bytes), a nonce (12), the value encrypted with
// AES-256-GCM, and its tag (16). The keys are derived from secrets by HKDF, for one purpose
// each. So one secret may serve several purposes, and a value cannot be moved between them.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
)

const (
	// MinSecret is the minimum length of a secret, in bytes.
	MinSecret = 32

	// Overhead is how much longer a sealed value is, in bytes.
	Overhead = idSize + 12 + 16

	idSize = 4
)

// ErrOpen says that a value does not open.
var ErrOpen = errors.New("it was sealed with another key, or changed")

// errNoSecret says that nothing can be sealed.
var errNoSecret = errors.New("there is no key to seal with")

// A Sealer seals with its first secret, and opens with all. It is safe for concurrent use.
type Sealer struct {
	purpose string
	secrets func() [][]byte

	mu      sync.Mutex
	derived [][]byte // copies of the secrets that the keys were derived from
	keys    []key
}

// A key is derived from a secret.
type key struct {
	id   [idSize]byte
	aead cipher.AEAD
}

// New returns a Sealer for one purpose. It calls secrets whenever it seals or opens, perhaps
// concurrently, and does not keep or change the result. A secret has at least MinSecret bytes.
func New(purpose string, secrets func() [][]byte) *Sealer {
	return &Sealer{purpose: purpose, secrets: secrets}
}

// Seal encrypts a value with the first key. The value opens only together with the same
// about, which is not stored.
func (s *Sealer) Seal(value, about []byte) ([]byte, error) {
	keys, err := s.current()
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errNoSecret
	}
	sealed := append(make([]byte, 0, Overhead+len(value)), keys[0].id[:]...)
	return keys[0].aead.Seal(sealed, nil, value, about), nil
}

// Open returns the value that was sealed together with about. If it was sealed with a key
// that is not among the present ones, or if anything has changed, the error is ErrOpen.
func (s *Sealer) Open(sealed, about []byte) ([]byte, error) {
	keys, err := s.current()
	if err != nil {
		return nil, err
	}
	if len(sealed) < idSize {
		return nil, ErrOpen
	}
	for _, k := range keys { // several may have the same id by chance
		if !bytes.Equal(k.id[:], sealed[:idSize]) {
			continue
		}
		if value, err := k.aead.Open(nil, nil, sealed[idSize:], about); err == nil {
			return value, nil
		}
	}
	return nil, ErrOpen
}

// current returns the keys of the present secrets.
func (s *Sealer) current() ([]key, error) {
	secrets := s.secrets()
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.EqualFunc(secrets, s.derived, bytes.Equal) {
		return s.keys, nil
	}
	var derived [][]byte
	var keys []key
	for _, secret := range secrets {
		k, err := derive(s.purpose, secret)
		if err != nil {
			return nil, err
		}
		derived, keys = append(derived, bytes.Clone(secret)), append(keys, k)
	}
	s.derived, s.keys = derived, keys
	return keys, nil
}

func derive(purpose string, secret []byte) (key, error) {
	if len(secret) < MinSecret {
		return key{}, fmt.Errorf("a key has %d bytes, fewer than %d", len(secret), MinSecret)
	}
	derived, err := hkdf.Key(sha256.New, secret, nil, "bowline "+purpose, 32+idSize)
	if err != nil {
		return key{}, err
	}
	block, err := aes.NewCipher(derived[:32])
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return key{[idSize]byte(derived[32:]), aead}, err
}
