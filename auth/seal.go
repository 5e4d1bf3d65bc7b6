package auth

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
)

// ErrNoKey says that this machine has no place to keep an encryption key. If the key
// function of [NewSealedFiles] returns it, entries are saved without encryption, as by
// [NewFiles].
var ErrNoKey = errors.New("auth: there is no place to keep a key")

// A decryptError says why a sealed entry cannot be decrypted here. A locked key ring is a
// different error.
type decryptError string

func (u decryptError) Error() string { return string(u) }

const (
	errSealed   = decryptError("it is sealed, and there is no key")
	errOtherKey = decryptError("it was sealed with another key, or changed")
)

// NewSealedFiles returns Files whose entries are sealed, that is encrypted with
// AES-256-GCM. Without the key, nobody can read tokens from the files or a copy of them.
// The names of servers and issuers stay readable.
//
// The function key returns the key, always the same 32 bytes, and creates it at the first
// call; see package auth/keyring. It is called when the first entry is read or saved, and
// again after an error. Of all processes that share the folder, one calls it at a time.
// If key returns [ErrNoKey], entries are read and saved without encryption. After any
// other error, for instance because nobody has unlocked the key ring, no entry is saved.
//
// An entry that is not sealed can be read, and is sealed when it is saved again. A program
// that cannot decrypt a sealed entry does not replace it. It logs in and registers for the
// life of its own process only. The user can change that: Authorizer.Login replaces
// the entry, and Authorizer.Logout deletes it.
func NewSealedFiles(dir string, key func(context.Context) ([]byte, error), log *slog.Logger) *Files {
	s := NewFiles(dir, log)
	s.seal = &sealer{fetchKey: key}
	return s
}

// A sealer seals the entries of a folder. A nil sealer does not.
type sealer struct {
	fetchKey func(context.Context) ([]byte, error)

	lock        keyLocks    // held while the key is fetched; other callers wait for it until their context ends
	cipher      cipher.AEAD // the cipher; nil while there is no key
	noKeyLogged bool        // whether it was logged that there is no key
}

// lockOfKey is the file whose lock a process holds while it fetches or creates the key.
const lockOfKey = "key.lock"

// aead returns the cipher, or nil if entries are not sealed.
func (s *Files) aead(ctx context.Context) (cipher.AEAD, error) {
	if s.seal == nil {
		return nil, nil
	}
	unlock, err := s.seal.lock.lock(ctx, Key{})
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s.seal.cipher != nil {
		return s.seal.cipher, nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	release, err := s.lockFile(ctx, filepath.Join(s.dir, lockOfKey))
	if err != nil {
		return nil, err
	}
	defer release()
	key, err := s.seal.fetchKey(ctx)
	switch {
	case errors.Is(err, ErrNoKey):
		if !s.seal.noKeyLogged {
			s.log.Info("auth: logins are not sealed", "folder", s.dir, "reason", err)
		}
		s.seal.noKeyLogged = true
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the key of logins: %w", err)
	case len(key) != 32:
		return nil, fmt.Errorf("the key of logins has %d bytes, and not 32", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	s.seal.cipher, err = cipher.NewGCMWithRandomNonce(block)
	return s.seal.cipher, err
}

// encrypt returns the document to save for an entry.
func (s *Files) encrypt(ctx context.Context, k Key, entry []byte) (*fileDocument, error) {
	aead, err := s.aead(ctx)
	if err != nil {
		return nil, err
	}
	if aead == nil {
		return &fileDocument{Key: k, Entry: entry}, nil
	}
	about, err := json.Marshal(k) // authenticated, so that an entry cannot be moved to another key
	if err != nil {
		return nil, err
	}
	return &fileDocument{Key: k, Sealed: aead.Seal(nil, nil, entry, about)}, nil
}

// decrypt returns the entry in a saved document.
func (s *Files) decrypt(ctx context.Context, d *fileDocument) ([]byte, error) {
	if len(d.Sealed) == 0 {
		return d.Entry, nil
	}
	aead, err := s.aead(ctx)
	if err != nil {
		return nil, err
	}
	if aead == nil {
		return nil, errSealed
	}
	about, err := json.Marshal(d.Key)
	if err != nil {
		return nil, err
	}
	entry, err := aead.Open(nil, nil, d.Sealed, about)
	if err != nil {
		return nil, errOtherKey
	}
	return entry, nil
}
