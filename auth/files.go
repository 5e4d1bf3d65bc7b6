package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/bowline-mcp/bowline/auth/guard"
	"github.com/bowline-mcp/bowline/internal/private"
)

const (
	maxEntry     = 1 << 20 // the maximum size of a file, in bytes
	shortestPoll = 5 * time.Millisecond
	longestPoll  = 100 * time.Millisecond
	staleAge     = time.Minute // a temporary file that is older than this was abandoned
)

// Files is a [Store] in a folder, which all programs of one user can share. Each entry
// is a file that only the user can read, and is replaced as a whole. To change an entry,
// a program locks a file beside it with a lock of the operating system.
//
// Tokens are encrypted only if the Files come from [NewSealedFiles]. Otherwise everybody
// who can read the user's files can read the tokens.
type Files struct {
	dir   string
	log   *slog.Logger
	seal  *sealer // seals entries; nil: entries are not sealed
	locks keyLocks
}

// A StoreError says that an entry cannot be read or saved. The entry is not overwritten.
type StoreError struct {
	Path string // its file; for a Store without files, the Resource of its Key, or else the Issuer
	Err  error
}

func (e *StoreError) Error() string { return fmt.Sprintf("auth: %s: %v", e.Path, e.Err) }

func (e *StoreError) Unwrap() error { return e.Err }

// DefaultDir returns the usual directory for the logins of one user: bowline/auth in
// os.UserConfigDir.
func DefaultDir() (string, error) {
	config, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("auth: no folder for logins: %w", err)
	}
	return filepath.Join(config, "bowline", "auth"), nil
}

// NewFiles returns Files in a folder. The folder is created with the first entry. Every
// method fails with a [*StoreError] while others can write to the folder, or it belongs to
// another user; not on Windows. The log receives a warning about files that others can read; nil means slog.Default.
func NewFiles(dir string, log *slog.Logger) *Files {
	if log == nil {
		log = slog.Default()
	}
	return &Files{dir: dir, log: log}
}

// A fileDocument is the content of a file.
type fileDocument struct {
	Key    Key            `json:"key"`
	Entry  jsontext.Value `json:"entry,omitzero"`
	Sealed []byte         `json:"sealed,omitzero"` // the sealed entry, in place of Entry
}

func (s *Files) path(k Key) string {
	hash := sha256.Sum256([]byte(strings.Join([]string{k.Issuer, k.Resource, k.Principal}, "\x00")))
	return filepath.Join(s.dir, hex.EncodeToString(hash[:16])+".json")
}

// Load implements Store. Its error is a [*StoreError].
func (s *Files) Load(ctx context.Context, k Key) (*Entry, error) {
	path := s.path(k)
	document, err := s.read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case document.Key != k:
		return nil, &StoreError{path, errors.New("it is the entry of another key")}
	}
	saved, err := s.decrypt(ctx, document)
	e := new(Entry)
	if err == nil {
		err = e.UnmarshalBinary(saved)
	}
	if err != nil {
		return nil, &StoreError{path, err}
	}
	return e, nil
}

// read reads a file that belongs to the user, and makes it private if it is not.
func (s *Files) read(path string) (*fileDocument, error) {
	if err := s.checkDir(); err != nil {
		return nil, err
	}
	file, err := private.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, &StoreError{path, err}
	}
	defer file.Close()
	repaired, err := private.Restrict(file)
	if err != nil {
		return nil, &StoreError{path, err}
	}
	if repaired {
		s.log.Warn("auth: others could read a file of logins, and cannot any more", "path", path)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxEntry+1))
	if err == nil && len(text) > maxEntry {
		err = errors.New("it is too long")
	}
	document := new(fileDocument)
	if err == nil {
		err = guard.DecodeJSON(text, document)
	}
	if err != nil {
		return nil, &StoreError{path, err}
	}
	return document, nil
}

// Locked implements Store. It fails with a [*StoreError], the error of f, or the error of
// ctx. It does not replace an entry that it cannot read. If entries are sealed and there
// is no key, Locked does not run f, because it could not save the result.
func (s *Files) Locked(ctx context.Context, k Key, f func(*Entry) (*Entry, error)) error {
	return s.change(ctx, k, readable, f)
}

// A change says what to do with a sealed entry that cannot be decrypted.
type change int

const (
	readable change = iota // fail with that error
	replaced               // treat the entry as absent
	removed                // pass nil to f, remove the entry, and fail with that error
)

// change implements Locked. Removing an entry needs no key.
func (s *Files) change(ctx context.Context, k Key, how change, f func(*Entry) (*Entry, error)) error {
	unlock, err := s.locks.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	path := s.path(k)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return &StoreError{path, err}
	}
	if err := s.checkDir(); err != nil {
		return err
	}
	release, err := s.lockFile(ctx, path+".lock")
	if err != nil {
		return &StoreError{path, err}
	}
	defer release()
	before, loadErr := s.Load(ctx, k)
	if loadErr != nil && (how == readable || !errors.As(loadErr, new(decryptError))) {
		return loadErr
	}
	if how != removed {
		if _, err := s.aead(ctx); err != nil {
			return &StoreError{path, err}
		}
	}
	after, err := f(before)
	switch {
	case err != nil:
		return err
	case loadErr != nil && how == removed:
		if err = os.Remove(path); err == nil {
			return loadErr
		}
	case after == before:
		return nil
	case after == nil:
		err = errors.Join(os.Remove(path), s.sweep(time.Now()))
	default:
		err = s.write(ctx, path, k, after)
	}
	if err != nil {
		return &StoreError{path, err}
	}
	return nil
}

// lockFile takes the lock of a file, among all processes. It polls, because a blocking
// wait for a lock could not be interrupted.
func (s *Files) lockFile(ctx context.Context, path string) (release func(), err error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for poll := shortestPoll; ; poll = min(2*poll, longestPoll) {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		file, err := private.Lock(path)
		if err == nil {
			return func() { _ = private.Unlock(file) }, nil
		}
		if !errors.Is(err, private.ErrLocked) {
			return nil, err
		}
		timer.Reset(poll)
	}
}

// checkDir fails if others can replace what is in the folder. There may be no folder yet.
func (s *Files) checkDir() error {
	if err := private.CheckFolder(s.dir); err != nil {
		return &StoreError{s.dir, err}
	}
	return nil
}

// write replaces a whole file.
func (s *Files) write(ctx context.Context, path string, k Key, e *Entry) error {
	entry, err := e.MarshalBinary()
	if err != nil {
		return err
	}
	document, err := s.encrypt(ctx, k, entry)
	if err != nil {
		return err
	}
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return private.Replace(path, text)
}

// sweep removes files that killed writers have left, because they contain secrets. Files
// that are being written are younger than staleAge.
func (s *Files) sweep(now time.Time) error {
	left, err := filepath.Glob(filepath.Join(s.dir, private.Unfinished))
	for _, path := range left {
		info, failed := os.Lstat(path)
		if failed == nil && now.Sub(info.ModTime()) > staleAge {
			failed = os.Remove(path)
		}
		if failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// Keys returns the keys of all entries, in no particular order. It leaves out files that it cannot
// read. If that is the folder, it fails with a [*StoreError].
func (s *Files) Keys() ([]Key, error) {
	keys := []Key{}
	if err := s.checkDir(); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(s.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return keys, nil
	case err != nil:
		return nil, &StoreError{s.dir, err}
	}
	for _, file := range files {
		if filepath.Ext(file.Name()) != ".json" {
			continue
		}
		if document, err := s.read(filepath.Join(s.dir, file.Name())); err == nil {
			keys = append(keys, document.Key)
		}
	}
	return keys, nil
}
