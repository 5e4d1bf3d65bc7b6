// Package keyring keeps the encryption key of stored logins in the user's key ring: the
// Keychain of macOS, the Credential Manager of Windows, or the Secret Service of a Linux
// desktop (GNOME Keyring, KWallet and others, over D-Bus).
//
//	store := auth.NewSealedFiles(dir, keyring.Key("my-program"), nil)
//
// A server, a container or a session without a desktop has no key ring. The key is then
// missing (auth.ErrNoKey), and logins are stored without encryption. The package does not
// start a session bus. If there is one, the bus may start an installed Secret Service,
// which may ask the user for a password.
//
// While the key is asked for, one goroutine waits for the key ring, for all callers; it ends when
// the user has answered.
//
// The package is a separate module because it requires github.com/zalando/go-keyring.
package keyring

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"github.com/zalando/go-keyring"

	"github.com/bowline-mcp/bowline/auth"
)

// keySize is the length of a key, in bytes.
const keySize = 32

// userName is the name of the key in the key ring, beside that of the program.
const userName = "seal of logins"

// Key returns a function for [auth.NewSealedFiles]. The function returns the program's key
// from the user's key ring. If there is none yet, it creates a random key and stores it. If
// the key ring is locked, the system asks the user for the password, and the function waits
// until its context ends. Further calls in the meantime do not ask the user again. The error
// is auth.ErrNoKey if the machine has no key ring.
//
// To create a key, the function holds a lock in the bowline/keyring folder of
// os.UserConfigDir. So all programs with the same name share one key, whatever folders their
// logins are in. It creates no key after its context has ended.
//
// If you remove the key from the key ring, the stored logins are lost.
func Key(program string) func(context.Context) ([]byte, error) {
	return (&keyLoader{program: program, ring: system{}}).key
}

// A ring is the part of a key ring that this package uses.
type ring interface {
	Get(service, user string) (string, error)
	Set(service, user, password string) error
}

// system is the user's key ring.
type system struct{}

func (system) Get(service, user string) (string, error) { return keyring.Get(service, user) }
func (system) Set(service, user, password string) error { return keyring.Set(service, user, password) }

// A keyLoader gets the key of a program.
type keyLoader struct {
	program string
	ring    ring

	mu      sync.Mutex
	current *keyRequest // the request that the key ring has not answered; nil: none
}

// A keyRequest is a request to the key ring. It cannot be withdrawn, so it stays open until
// the user answers. Later callers wait for the same answer.
type keyRequest struct {
	done    chan struct{}
	key     []byte // key and err are set when done is closed
	err     error
	waiting int
	cancel  context.CancelFunc
}

// errAbandoned says that no key was created, because no caller waited for it. A caller that
// has arrived since tries again.
var errAbandoned = errors.New("no caller waits for the key")

func (k *keyLoader) key(ctx context.Context) ([]byte, error) {
	if reason := missing(); reason != "" {
		return nil, fmt.Errorf("%w: %s", auth.ErrNoKey, reason)
	}
	for {
		q := k.join()
		select {
		case <-q.done:
			if !errors.Is(q.err, errAbandoned) {
				return slices.Clone(q.key), q.err
			}
		case <-ctx.Done():
			k.leave(q)
			return nil, fmt.Errorf("keyring: %w", context.Cause(ctx))
		}
	}
}

// join returns the current request. If there is none, it starts one.
func (k *keyLoader) join() *keyRequest {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		ctx, cancel := context.WithCancel(context.Background())
		q := &keyRequest{done: make(chan struct{}), cancel: cancel}
		k.current = q
		go func() { // ends with the user's answer
			key, err := k.get(ctx)
			cancel()
			k.mu.Lock()
			defer k.mu.Unlock()
			k.current, q.key, q.err = nil, key, err
			close(q.done)
		}()
	}
	k.current.waiting++
	return k.current
}

func (k *keyLoader) leave(q *keyRequest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if q.waiting--; q.waiting == 0 {
		q.cancel()
	}
}

// get returns the key of the program. If there is none, it creates one, unless ctx has ended.
func (k *keyLoader) get(ctx context.Context) ([]byte, error) {
	text, err := k.ring.Get(k.program, userName)
	if errors.Is(err, keyring.ErrNotFound) {
		text, err = k.create(ctx)
	}
	switch {
	case err != nil && isMissing(err):
		return nil, fmt.Errorf("%w: %w", auth.ErrNoKey, err)
	case err != nil:
		return nil, fmt.Errorf("keyring: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("keyring: what the key ring has for %q as %q is no key", k.program, userName)
	}
	return key, nil
}

// create creates a key in the key ring, unless another program has just done so, and returns
// the key that is stored.
func (k *keyLoader) create(ctx context.Context) (text string, err error) {
	config, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the lock of the key: %w", err)
	}
	lock := auth.NewFiles(filepath.Join(config, "bowline", "keyring"), nil)
	err = lock.Locked(ctx, auth.Key{Principal: k.program}, func(e *auth.Entry) (*auth.Entry, error) {
		text, err = k.ring.Get(k.program, userName)
		if errors.Is(err, keyring.ErrNotFound) && ctx.Err() == nil {
			made := make([]byte, keySize)
			_, _ = rand.Read(made) // which never fails
			if err = k.ring.Set(k.program, userName, base64.StdEncoding.EncodeToString(made)); err == nil {
				text, err = k.ring.Get(k.program, userName)
			}
		}
		return e, err // nothing is saved
	})
	if err != nil && ctx.Err() != nil {
		err = errAbandoned
	}
	return text, err
}

// isMissing reports whether an error says that there is no key ring at all.
func isMissing(err error) bool {
	if errors.Is(err, keyring.ErrUnsupportedPlatform) || errors.Is(err, exec.ErrNotFound) {
		return true
	}
	return isMissingService(err)
}
