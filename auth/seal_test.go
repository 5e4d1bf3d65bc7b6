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

// A keeper keeps a key, or fails.
type keeper struct {
	key   []byte
	err   error
	asked int
}

func (k *keeper) get(context.Context) ([]byte, error) {
	k.asked++
	return k.key, k.err
}

func keyOf(b byte) *keeper { return &keeper{key: bytes.Repeat([]byte{b}, 32)} }

var sealedKey = Key{Resource: "https://mcp.test", Principal: "ada"}

// wantEntry wants an entry in a Store, or an error that says something.
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

// Nobody reads a sealed entry without its key, and Locked does not replace it.
//
// Guarantees: G-0044.19, G-0044.21
func TestSealedFiles(t *testing.T) {
	dir, key := t.TempDir(), keyOf(1)
	s := NewSealedFiles(dir, key.get, nil)
	wantEntry(t, s, nil, "")
	for range 3 {
		if err := s.Locked(t.Context(), sealedKey, put(&whole)); err != nil {
			t.Fatal(err)
		}
	}
	wantEntry(t, s, &whole, "")
	if key.asked != 1 {
		t.Errorf("the key was asked for %d times", key.asked)
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
		"no key":               NewSealedFiles(dir, (&keeper{err: ErrNoKey}).get, slog.New(slog.DiscardHandler)),
		"another key":          NewSealedFiles(dir, keyOf(2).get, nil),
		"5 bytes, and not 32":  NewSealedFiles(dir, (&keeper{key: []byte("short")}).get, nil),
		"the key ring is lock": NewSealedFiles(dir, (&keeper{err: locked}).get, nil),
	} {
		wantEntry(t, other, nil, problem)
		if err := other.Locked(t.Context(), sealedKey, put(&Entry{Issuer: "new"})); err == nil || strings.Contains(err.Error(), "a1") {
			t.Errorf("%s: %v", problem, err)
		}
	}
	if after, err := os.ReadFile(s.path(sealedKey)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("%v, or what cannot be read was overwritten", err)
	}
}

// A sealed entry is of its key: it cannot be given to another.
//
// Guarantees: G-0044.19
func TestASealedEntryIsOfItsKey(t *testing.T) {
	s := NewSealedFiles(t.TempDir(), keyOf(1).get, nil)
	eve := Key{Resource: sealedKey.Resource, Principal: "eve"}
	if err := s.Locked(t.Context(), eve, put(&whole)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(s.path(eve), s.path(sealedKey)), replaceIn(s.path(sealedKey), `"eve"`, `"ada"`)); err != nil {
		t.Fatal(err)
	}
	wantEntry(t, s, nil, "or changed")
}

// Entries of a machine without a key are saved as they are, which is said once, and
// sealed when they are saved again with a key.
//
// Guarantees: G-0044.19
func TestEntriesBeforeThereWasAKey(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	none := &keeper{err: ErrNoKey}
	s := NewSealedFiles(filepath.Join(dir, "auth"), none.get, slog.New(slog.NewTextHandler(&log, nil)))
	for _, p := range []*Entry{{Issuer: "first"}, &whole} {
		if err := s.Locked(t.Context(), sealedKey, put(p)); err != nil {
			t.Fatal(err)
		}
	}
	wantEntry(t, s, &whole, "")
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "not sealed") {
		t.Errorf("log: %s", text)
	}
	later := NewSealedFiles(s.dir, keyOf(1).get, nil)
	wantEntry(t, later, &whole, "")
	renewed := whole
	renewed.Access = NewSecret("a2")
	if err := later.Locked(t.Context(), sealedKey, put(&renewed)); err != nil {
		t.Fatal(err)
	}
	wantEntry(t, later, &renewed, "")
	wantEntry(t, s, nil, "no key")
}

// Where there is a key but nobody unlocks it, nothing is saved in the clear.
//
// Guarantees: G-0044.19
func TestNothingIsSavedWithoutTheKey(t *testing.T) {
	s := NewSealedFiles(t.TempDir(), (&keeper{err: errors.New("dismissed")}).get, nil)
	if err := s.Locked(t.Context(), sealedKey, put(&whole)); !errors.As(err, new(*StoreError)) || !strings.Contains(err.Error(), "dismissed") {
		t.Errorf("%v", err)
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "*.json")); err != nil || len(left) > 0 {
		t.Errorf("%q, %v", left, err)
	}
}

// A refresh token is not spent, and a person not asked, if what comes of it cannot be
// saved.
//
// Guarantees: G-0044.20
func TestNothingIsObtainedWithoutTheKey(t *testing.T) {
	w, dir := newWorld(t, authtest.Options{}), t.TempDir()
	dismissed := errors.New("the prompt was dismissed")
	ring := &keeper{err: dismissed}
	sealed := w.login(t, Options{Store: NewSealedFiles(dir, ring.get, nil), Interact: consent, Offline: true})
	if err := sealed.Login(t.Context()); !errors.Is(err, dismissed) || !errors.As(err, new(*StoreError)) {
		t.Errorf("Login: %v", err)
	}
	if n := len(w.as.Sink.Requests(authtest.Authorize)); n != 0 {
		t.Errorf("the person was asked %d times", n)
	}
	plain := w.login(t, Options{Store: NewFiles(dir, nil), Interact: consent, Offline: true})
	wantCall(t, plain, w.url)
	aged(t, plain, 55*time.Minute) // of an hour: it is due
	before := ring.asked
	for range 3 {
		wantCall(t, sealed, w.url)
		sealed.flights.ended.Wait()
	}
	if n := w.grants("refresh_token"); n != 0 || ring.asked != before+1 {
		t.Errorf("%d refreshes, and the key was asked for %d times", n, ring.asked-before)
	}
	if e, err := plain.Status(t.Context()); err != nil || e == nil || e.Refresh.IsZero() {
		t.Errorf("the login is %v, %v", e, err)
	}
}

// Who cannot open a sealed login can log in again or log out, and nothing else changes it.
//
// Guarantees: G-0044.21
func TestALoginThatCannotBeOpened(t *testing.T) {
	w := newWorld(t, authtest.Options{})
	for name, open := range map[string]func(dir string) *Files{
		"another key": func(dir string) *Files { return NewSealedFiles(dir, keyOf(2).get, nil) },
		"no key ring": func(dir string) *Files {
			return NewSealedFiles(dir, (&keeper{err: ErrNoKey}).get, slog.New(slog.DiscardHandler))
		},
		"not wanted": func(dir string) *Files { return NewFiles(dir, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			owner := w.login(t, Options{Store: NewSealedFiles(dir, keyOf(1).get, nil), Interact: consent})
			wantCall(t, owner, w.url)
			path := NewFiles(dir, nil).path(owner.key())
			sealed, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			wantCall(t, w.login(t, Options{Store: open(dir), Interact: consent}), w.url)
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, sealed) {
				t.Errorf("a call has replaced it: %v", err)
			}

			a := w.login(t, Options{Store: open(dir), Interact: consent})
			if err := a.Logout(t.Context()); !errors.As(err, new(unopened)) || !strings.Contains(err.Error(), "not revoked") {
				t.Errorf("Logout: %v", err)
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it is not removed: %v", err)
			}
			if err := a.Logout(t.Context()); err != nil {
				t.Errorf("Logout of none: %v", err)
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

// A sealed registration that cannot be opened keeps nobody from logging in. A call registers for
// itself, and says what to do; Login saves the new registration, for all logins to come.
//
// Guarantees: G-0044.21
func TestARegistrationThatCannotBeOpened(t *testing.T) {
	w, dir := newWorld(t, authtest.Options{}), t.TempDir()
	owner := w.login(t, Options{Store: NewSealedFiles(dir, keyOf(1).get, nil), Interact: consent})
	wantCall(t, owner, w.url)
	if err := owner.Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	registered := func() int { return len(w.as.Sink.Requests(authtest.Register)) }
	path := NewFiles(dir, nil).path(Key{Issuer: w.as.Issuer()})
	sealed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	other := func() *Authorizer {
		return w.login(t, Options{Store: NewSealedFiles(dir, keyOf(2).get, nil), Interact: consent, Log: slog.New(slog.NewTextHandler(&log, nil))})
	}

	caller := other()
	wantCall(t, caller, w.url)
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
		wantCall(t, a, w.url)
	}
	if registered() != 3 || log.Len() > 0 {
		t.Errorf("%d registrations; log: %s", registered(), log.String())
	}
}

// While the key ring is locked nothing can be said about a sealed login: it stays. One that
// is not sealed needs no key to be removed.
//
// Guarantees: G-0044.21
func TestLogoutWhileTheKeyRingIsLocked(t *testing.T) {
	dir, dismissed := t.TempDir(), errors.New("the prompt was dismissed")
	for sealed, s := range map[bool]*Files{true: NewSealedFiles(dir, keyOf(1).get, nil), false: NewFiles(dir, nil)} {
		a := New(Options{Resource: "https://mcp.test", Principal: fmt.Sprint(sealed), Store: NewSealedFiles(dir, (&keeper{err: dismissed}).get, nil)})
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
