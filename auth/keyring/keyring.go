// Package keyring keeps the key of sealed logins in the user's key ring: the Keychain of
// macOS, the Credential Manager of Windows, and the Secret Service of a Linux desktop
// (GNOME Keyring, KWallet and others, over D-Bus).
//
//	store := auth.NewSealedFiles(dir, keyring.Key("my-program"), nil)
//
// A server, a container or a session without a desktop has no key ring: the key is then
// missing (auth.ErrNoKey), and logins are saved without being sealed. The package starts no
// session bus. Where there is one, the bus may start the Secret Service that is installed,
// which may then ask the user for a password.
//
// It is a module of its own, for what it requires: github.com/zalando/go-keyring.
package keyring

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os/exec"

	"github.com/zalando/go-keyring"

	"github.com/bowline-mcp/bowline/auth"
)

// keySize is the length of a key, in bytes.
const keySize = 32

// userName is what the key is for, in the key ring's words.
const userName = "seal of logins"

// Key returns a function for [auth.NewSealedFiles] that returns the key which the user's key
// ring has for a program, and puts a random one there at the first time. A key ring that is
// locked asks the user; the function then waits until its context ends. Its error is
// auth.ErrNoKey if the machine has no key ring.
//
// Whoever removes the key from the key ring loses the logins.
func Key(program string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		if reason := missing(); reason != "" {
			return nil, fmt.Errorf("%w: %s", auth.ErrNoKey, reason)
		}
		type answer struct {
			key []byte
			err error
		}
		answered := make(chan answer, 1)
		go func() { // ends with the user's answer: nothing can withdraw the question
			key, err := get(program)
			answered <- answer{key, err}
		}()
		select {
		case a := <-answered:
			return a.key, a.err
		case <-ctx.Done():
			return nil, fmt.Errorf("keyring: %w", context.Cause(ctx))
		}
	}
}

// get returns the key of a program, and makes it if there is none.
func get(program string) ([]byte, error) {
	text, err := keyring.Get(program, userName)
	if errors.Is(err, keyring.ErrNotFound) {
		key := make([]byte, keySize)
		_, _ = rand.Read(key) // which never fails
		if err = keyring.Set(program, userName, base64.StdEncoding.EncodeToString(key)); err == nil {
			text, err = keyring.Get(program, userName)
		}
	}
	switch {
	case err != nil && isMissing(err):
		return nil, fmt.Errorf("%w: %w", auth.ErrNoKey, err)
	case err != nil:
		return nil, fmt.Errorf("keyring: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("keyring: what the key ring has for %q as %q is no key", program, userName)
	}
	return key, nil
}

// isMissing reports whether an error says that there is no key ring at all.
func isMissing(err error) bool {
	if errors.Is(err, keyring.ErrUnsupportedPlatform) || errors.Is(err, exec.ErrNotFound) {
		return true
	}
	return isMissingService(err)
}
