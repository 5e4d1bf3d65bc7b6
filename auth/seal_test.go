package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

// A keySource keeps a key, or fails.
type keySource struct {
	key     []byte
	err     error
	fetches int
}

func (k *keySource) get(context.Context) ([]byte, error) {
	k.fetches++
	return k.key, k.err
}

func keyOf(b byte) *keySource { return &keySource{key: bytes.Repeat([]byte{b}, 32)} }

var sealedKey = Key{Resource: "https://mcp.test", Principal: "ada"}

// wantEntry checks that a Store has an entry, or returns an error that contains problem.
func wantEntry(t *testing.T, s *Files, want *Entry, problem string) {
	t.Helper()
	got, err := s.Load(t.Context(), sealedKey)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Secret{}), cmpopts.EquateApproxTime(0)); diff != "" {
		t.Error(diff)
	}
	if (err != nil) != (problem != "") || err != nil && (!strings.Contains(err.Error(), problem) || !errors.As(err, new(*StoreError))) {
		t.Errorf("%v, want %q", err, problem)
	}
}

// Without its key, a sealed entry cannot be read, and Locked does not replace it.
//
// Guarantees: G-0044.19, G-0044.21
func TestSealedFiles(t *testing.T) {
	dir, key := t.TempDir(), keyOf(1)
	s := NewSealedFiles(dir, key.get, nil)
	wantEntry(t, s, nil, "")
	for range 3 {
		if err := s.Locked(t.Context(), sealedKey, put(&fullEntry)); err != nil {
			t.Fatal(err)
		}
	}
	wantEntry(t, s, &fullEntry, "")
	if key.fetches != 1 {
		t.Errorf("the key was fetched %d times", key.fetches)
	}
	before, err := os.ReadFile(s.path(sealedKey))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"a1", "r1", "s1", "k1", "access_token"} {
		if bytes.Contains(before, []byte(`"`+secret)) {
			t.Errorf("%s is readable in %s", secret, before)
		}
	}
	if keys, err := NewFiles(dir, nil).Keys(); err != nil || len(keys) != 1 || keys[0] != sealedKey {
		t.Errorf("%v, %v", keys, err)
	}
	locked := errors.New("the key ring is locked")
	for problem, other := range map[string]*Files{
		"there is no key":      NewFiles(dir, nil),
		"no key":               NewSealedFiles(dir, (&keySource{err: ErrNoKey}).get, slog.New(slog.DiscardHandler)),
		"another key":          NewSealedFiles(dir, keyOf(2).get, nil),
		"5 bytes, and not 32":  NewSealedFiles(dir, (&keySource{key: []byte("short")}).get, nil),
		"the key ring is lock": NewSealedFiles(dir, (&keySource{err: locked}).get, nil),
	} {
		wantEntry(t, other, nil, problem)
		if err := other.Locked(t.Context(), sealedKey, put(&Entry{Issuer: "new"})); err == nil || strings.Contains(err.Error(), "a1") {
			t.Errorf("%s: %v", problem, err)
		}
	}
	if after, err := os.ReadFile(s.path(sealedKey)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("%v, or the sealed entry was overwritten", err)
	}
}

// A sealed entry cannot be moved to another key.
//
// Guarantees: G-0044.19
func TestASealedEntryIsOfItsKey(t *testing.T) {
	s := NewSealedFiles(t.TempDir(), keyOf(1).get, nil)
	eve := Key{Resource: sealedKey.Resource, Principal: "eve"}
	if err := s.Locked(t.Context(), eve, put(&fullEntry)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(s.path(eve), s.path(sealedKey)), replaceIn(s.path(sealedKey), `"eve"`, `"ada"`)); err != nil {
		t.Fatal(err)
	}
	wantEntry(t, s, nil, "or changed")
}

// Without an encryption key, entries are saved unsealed, and that is logged once. They are
// sealed when they are saved again with a key.
//
// Guarantees: G-0044.19
func TestEntriesBeforeThereWasAKey(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	none := &keySource{err: fmt.Errorf("in this session: %w", ErrNoKey)}
	s := NewSealedFiles(filepath.Join(dir, "auth"), none.get, slog.New(slog.NewTextHandler(&log, nil)))
	for _, p := range []*Entry{{Issuer: "first"}, &fullEntry} {
		if err := s.Locked(t.Context(), sealedKey, put(p)); err != nil {
			t.Fatal(err)
		}
	}
	wantEntry(t, s, &fullEntry, "")
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "not sealed") {
		t.Errorf("log: %s", text)
	}
	later := NewSealedFiles(s.dir, keyOf(1).get, nil)
	wantEntry(t, later, &fullEntry, "")
	renewed := fullEntry
	renewed.Access = NewSecret("a2")
	if err := later.Locked(t.Context(), sealedKey, put(&renewed)); err != nil {
		t.Fatal(err)
	}
	wantEntry(t, later, &renewed, "")
	wantEntry(t, s, nil, "no key")
}

// If there is a key ring but it stays locked, nothing is saved unsealed.
//
// Guarantees: G-0044.19
func TestNothingIsSavedWithoutTheKey(t *testing.T) {
	s := NewSealedFiles(t.TempDir(), (&keySource{err: errors.New("dismissed")}).get, nil)
	if err := s.Locked(t.Context(), sealedKey, put(&fullEntry)); !errors.As(err, new(*StoreError)) || !strings.Contains(err.Error(), "dismissed") {
		t.Errorf("%v", err)
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "*.json")); err != nil || len(left) > 0 {
		t.Errorf("%q, %v", left, err)
	}
}

// If the new login could not be saved, no refresh token is used and no login is started.
//
// Guarantees: G-0044.20
func TestNothingIsObtainedWithoutTheKey(t *testing.T) {
	f, dir := newFixture(t, authtest.Options{}), t.TempDir()
	dismissed := errors.New("the prompt was dismissed")
	ring := &keySource{err: dismissed}
	sealed := f.login(t, Options{Store: NewSealedFiles(dir, ring.get, nil), Interact: consent, Offline: true})
	if err := sealed.Login(t.Context()); !errors.Is(err, dismissed) || !errors.As(err, new(*StoreError)) {
		t.Errorf("Login: %v", err)
	}
	if n := len(f.as.Sink.Requests(authtest.Authorize)); n != 0 {
		t.Errorf("%d logins were started", n)
	}
	plain := f.login(t, Options{Store: NewFiles(dir, nil), Interact: consent, Offline: true})
	wantCall(t, plain, f.url)
	expireBy(t, plain, 55*time.Minute) // of an hour: it is due
	before := ring.fetches
	for range 3 {
		wantCall(t, sealed, f.url)
		sealed.jobs.goroutines.Wait()
	}
	if n := f.grants("refresh_token"); n != 0 || ring.fetches != before+1 {
		t.Errorf("%d refreshes, and the key was fetched %d times", n, ring.fetches-before)
	}
	if e, err := plain.Status(t.Context()); err != nil || e == nil || e.Refresh.IsZero() {
		t.Errorf("the login is %v, %v", e, err)
	}
}

// A sealed login that cannot be decrypted is changed only by Login and Logout.
//
// Guarantees: G-0044.21
func TestALoginThatCannotBeOpened(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	for name, open := range map[string]func(dir string) *Files{
		"another key": func(dir string) *Files { return NewSealedFiles(dir, keyOf(2).get, nil) },
		"no key ring": func(dir string) *Files {
			return NewSealedFiles(dir, (&keySource{err: ErrNoKey}).get, slog.New(slog.DiscardHandler))
		},
		"not wanted": func(dir string) *Files { return NewFiles(dir, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			owner := f.login(t, Options{Store: NewSealedFiles(dir, keyOf(1).get, nil), Interact: consent})
			wantCall(t, owner, f.url)
			path := NewFiles(dir, nil).path(owner.key())
			sealed, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			wantCall(t, f.login(t, Options{Store: open(dir), Interact: consent}), f.url)
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, sealed) {
				t.Errorf("a call has replaced the login: %v", err)
			}

			a := f.login(t, Options{Store: open(dir), Interact: consent})
			if err := a.Logout(t.Context()); !errors.As(err, new(decryptError)) || !strings.Contains(err.Error(), "not revoked") {
				t.Errorf("Logout: %v", err)
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the login is not removed: %v", err)
			}
			if err := a.Logout(t.Context()); err != nil {
				t.Errorf("Logout without a login: %v", err)
			}

			if err := os.WriteFile(path, sealed, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := a.Login(t.Context()); err != nil {
				t.Fatal(err)
			}
			if e, err := open(dir).Load(t.Context(), a.key()); err != nil || e == nil {
				t.Errorf("the new login is %v, %v", e, err)
			}
		})
	}
}

// With a sealed registration that cannot be decrypted, a program can still log in. A call
// registers for its process only, and logs a hint. Login saves the new registration.
//
// Guarantees: G-0044.21
func TestARegistrationThatCannotBeOpened(t *testing.T) {
	f, dir := newFixture(t, authtest.Options{}), t.TempDir()
	owner := f.login(t, Options{Store: NewSealedFiles(dir, keyOf(1).get, nil), Interact: consent})
	wantCall(t, owner, f.url)
	if err := owner.store.Locked(t.Context(), owner.key(), put(nil)); err != nil {
		t.Fatal(err)
	}
	registered := func() int { return len(f.as.Sink.Requests(authtest.Register)) }
	path := NewFiles(dir, nil).path(Key{Issuer: f.as.Issuer()})
	sealed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	other := func() *Authorizer {
		return f.login(t, Options{Store: NewSealedFiles(dir, keyOf(2).get, nil), Interact: consent, Log: slog.New(slog.NewTextHandler(&log, nil))})
	}

	caller := other()
	wantCall(t, caller, f.url)
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, sealed) || registered() != 2 {
		t.Errorf("%v, or a call has replaced it, after %d registrations", err, registered())
	}
	if text := log.String(); strings.Count(text, "the registration is not saved") != 1 || !strings.Contains(text, `hint="Login replaces it"`) {
		t.Errorf("log: %s", text)
	}
	log.Reset()
	for range 3 {
		a := other()
		if err := a.Login(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantCall(t, a, f.url)
	}
	if registered() != 3 || log.Len() > 0 {
		t.Errorf("%d registrations; log: %s", registered(), log.String())
	}
}

// While the key ring is locked, Logout keeps a sealed login, because it cannot be read. It
// removes a login that is not sealed.
//
// Guarantees: G-0044.21
func TestLogoutWhileTheKeyRingIsLocked(t *testing.T) {
	dir, dismissed := t.TempDir(), errors.New("the prompt was dismissed")
	for sealed, s := range map[bool]*Files{true: NewSealedFiles(dir, keyOf(1).get, nil), false: NewFiles(dir, nil)} {
		a := New(Options{Resource: "https://mcp.test", Principal: fmt.Sprint(sealed), Store: NewSealedFiles(dir, (&keySource{err: dismissed}).get, nil)})
		defer a.Close()
		if err := s.Locked(t.Context(), a.key(), put(&Entry{Issuer: "https://as.test"})); err != nil {
			t.Fatal(err)
		}
		if err := a.Logout(t.Context()); errors.Is(err, dismissed) != sealed || !sealed && err != nil {
			t.Errorf("sealed %v: %v", sealed, err)
		}
		if _, err := os.Stat(s.path(a.key())); (err == nil) != sealed {
			t.Errorf("sealed %v: %v", sealed, err)
		}
	}
}
