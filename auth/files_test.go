package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

var fullEntry = Entry{
	Issuer: "https://as.test", Grant: "authorization_code", ClientID: "c", ClientSecret: NewSecret("s1"), ClientExpires: time.Unix(2e9, 0).UTC(),
	ClientAuth: "client_secret_basic", ClientName: "n", RedirectURI: testRedirect, Pinned: "https://as.test", Access: NewSecret("a1"), Refresh: NewSecret("r1"), Type: "DPoP",
	Issued: time.Unix(1e9, 0).UTC(), Expires: time.Unix(1e9+3600, 0).UTC(), Scopes: []string{"read"}, Resource: "https://mcp.test", Proof: NewSecret("k1"),
	TokenEndpoint: "https://as.test/token", RevocationEndpoint: "https://as.test/revoke",
}

func put(e *Entry) func(*Entry) (*Entry, error) {
	return func(*Entry) (*Entry, error) { return e, nil }
}

// stores returns one Store of each kind.
func stores(t *testing.T) map[string]Store {
	t.Helper()
	files := NewFiles(filepath.Join(t.TempDir(), "new", "folder"), nil)
	sealed := NewSealedFiles(filepath.Join(t.TempDir(), "sealed"), keyOf(1).get, nil)
	return map[string]Store{"memory": NewMemory(), "files": files, "sealed files": sealed, "sealed memory": sealedIn(NewMemory(), 1)}
}

// Guarantees: G-0044.12
func TestStores(t *testing.T) {
	k := Key{Resource: "https://mcp.test", Principal: "ada"}
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			if e, err := s.Load(t.Context(), k); e != nil || err != nil {
				t.Fatalf("%v, %v", e, err)
			}
			if err := s.Locked(t.Context(), k, put(&fullEntry)); err != nil {
				t.Fatal(err)
			}
			got, err := s.Load(t.Context(), k)
			if diff := cmp.Diff(&fullEntry, got, cmp.AllowUnexported(Secret{}), cmpopts.EquateApproxTime(0)); diff != "" || err != nil {
				t.Errorf("%v %s", err, diff)
			}
			for _, other := range []Key{{Resource: k.Resource}, {Issuer: k.Resource, Principal: "ada"}, {Resource: k.Resource, Principal: "eve"}} {
				if e, err := s.Load(t.Context(), other); e != nil || err != nil {
					t.Errorf("%+v: %v, %v", other, e, err)
				}
			}
			boom := errors.New("boom")
			if err := s.Locked(t.Context(), k, func(*Entry) (*Entry, error) { return nil, boom }); !errors.Is(err, boom) {
				t.Errorf("%v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err = s.Locked(t.Context(), k, func(e *Entry) (*Entry, error) { // another waits for as long as it likes
				if err := s.Locked(ctx, k, put(nil)); !errors.Is(err, context.Canceled) {
					t.Errorf("a second holder of the lock: %v", err)
				}
				return e, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Locked(t.Context(), k, put(nil)); err != nil {
				t.Fatal(err)
			}
			if e, err := s.Load(t.Context(), k); e != nil || err != nil {
				t.Errorf("deleted: %v, %v", e, err)
			}
		})
	}
}

// Guarantees: G-0044.12
func TestFilesThatAreNotRight(t *testing.T) {
	k := Key{Resource: "https://mcp.test"}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	for name, c := range map[string]struct {
		spoil   func(path string) error
		refused bool
	}{
		"half written":    {func(path string) error { return os.Truncate(path, 40) }, true},
		"empty":           {func(path string) error { return os.Truncate(path, 0) }, true},
		"endless":         {func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte(" "), 2<<20), 0o600) }, true},
		"a later version": {func(path string) error { return replaceIn(path, `"version":1`, `"version":2`) }, true},
		"of another key": {func(path string) error {
			return replaceIn(path, `"resource":"https://mcp.test"}`, `"resource":"https://other.test"}`)
		}, true},
		"a folder":              {func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, true},
		"a link":                {func(path string) error { return errors.Join(os.Rename(path, elsewhere), os.Symlink(elsewhere, path)) }, true},
		"for others to read":    {func(path string) error { return os.Chmod(path, 0o644) }, false},
		"for others to replace": {func(path string) error { return os.Chmod(path, 0o666) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s := NewFiles(t.TempDir(), slog.New(slog.NewTextHandler(&log, nil)))
			if err := s.Locked(t.Context(), k, put(&fullEntry)); err != nil {
				t.Fatal(err)
			}
			if err := c.spoil(s.path(k)); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(s.path(k))
			_, err := s.Load(t.Context(), k)
			var refused *StoreError
			if errors.As(err, &refused) != c.refused || err != nil && strings.Contains(err.Error(), "a1") {
				t.Fatalf("%v", err)
			}
			err = s.Locked(t.Context(), k, put(&Entry{Issuer: "new"}))
			if errors.As(err, &refused) != c.refused {
				t.Errorf("%v", err)
			}
			info, err := os.Stat(s.path(k))
			switch after, _ := os.ReadFile(s.path(k)); {
			case err != nil:
				t.Fatal(err)
			case c.refused && !bytes.Equal(before, after):
				t.Error("an unreadable file was overwritten")
			case !c.refused && info.Mode().Perm() != 0o600:
				t.Errorf("mode %v", info.Mode())
			case !c.refused && !strings.Contains(log.String(), "others could read"):
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

func replaceIn(path, old, with string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Contains(text, []byte(old)) {
		return fmt.Errorf("%s is not in %s", old, text)
	}
	return os.WriteFile(path, bytes.ReplaceAll(text, []byte(old), []byte(with)), 0o600)
}

// Guarantees: G-0044.12
func TestFilesArePrivate(t *testing.T) {
	s := NewFiles(filepath.Join(t.TempDir(), "auth"), nil)
	if err := s.Locked(t.Context(), Key{Issuer: "i"}, put(&fullEntry)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := s.Keys(); err != nil || len(keys) != 1 || keys[0].Issuer != "i" {
		t.Errorf("%v, %v", keys, err)
	}
}

// Keys says that it cannot read the folder, and not that there is no entry. The name of a folder is no
// pattern.
//
// Guarantees: G-0044.12
func TestKeysOfFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[a-b]*")
	s, k := NewFiles(dir, nil), Key{Issuer: "i"}
	if keys, err := s.Keys(); err != nil || keys == nil || len(keys) != 0 {
		t.Errorf("without a folder: %#v, %v; want an empty list", keys, err)
	}
	if err := s.Locked(t.Context(), k, put(&fullEntry)); err != nil {
		t.Fatal(err)
	}
	if keys, err := s.Keys(); err != nil || len(keys) != 1 || keys[0] != k {
		t.Errorf("%v, %v; want the key of the entry", keys, err)
	}
	other := Key{Issuer: "other"}
	if err := errors.Join(
		s.Locked(t.Context(), other, put(&fullEntry)), copyFile(s.path(k), s.path(k)+".copy"), os.WriteFile(filepath.Join(dir, "0.json"), []byte("{"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	keys, err := s.Keys()
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.Issuer, b.Issuer) })
	if want := []Key{k, other}; err != nil || !slices.Equal(keys, want) {
		t.Errorf("%v, %v; want %v, and no other file", keys, err, want)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if keys, err := NewFiles(file, nil).Keys(); !errors.As(err, new(*StoreError)) {
		t.Errorf("of a file: %v, %v; want a *StoreError", keys, err)
	}
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// A file of a megabyte can be read, and a longer one cannot.
//
// Guarantees: G-0044.12
func TestTheSizeOfFiles(t *testing.T) {
	s, k := NewFiles(t.TempDir(), nil), Key{Issuer: "i"}
	if err := s.Locked(t.Context(), k, put(&fullEntry)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(s.path(k))
	if err != nil {
		t.Fatal(err)
	}
	for size, readable := range map[int]bool{1 << 20: true, 1<<20 + 1: false} {
		if err := os.WriteFile(s.path(k), append(text[:len(text):len(text)], bytes.Repeat([]byte(" "), size-len(text))...), 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := s.Load(t.Context(), k)
		if (err == nil) != readable || (e != nil) != readable || err != nil && !strings.HasSuffix(err.Error(), "it is too long") {
			t.Errorf("a file of %d bytes: %v", size, err)
		}
	}
}

// A lock is kept as long as somebody has it or waits for it, and then forgotten.
//
// Guarantees: G-0044.12
func TestLocksOfKeysAreForgotten(t *testing.T) {
	var l keyLocks
	k := Key{Issuer: "i"}
	for range 3 {
		first, err := l.lock(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancelCause(t.Context())
		left := errors.New("left")
		cancel(left)
		if _, err := l.lock(gone, k); !errors.Is(err, left) {
			t.Errorf("a second holder: %v, want %v", err, left)
		}
		other, err := l.lock(t.Context(), Key{Issuer: "j"})
		if err != nil {
			t.Fatal(err)
		}
		if len(l.held) != 2 {
			t.Errorf("%d locks are kept, want two", len(l.held))
		}
		first()
		other()
		if len(l.held) != 0 {
			t.Errorf("%d locks are kept that nobody has", len(l.held))
		}
	}
}

// Guarantees: G-0044.12
func TestAStoreThatDoesNotSave(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	var log bytes.Buffer
	s := NewFiles(t.TempDir(), nil)
	a := f.login(t, Options{Store: s, Interact: consent, Offline: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := os.WriteFile(s.path(a.key()), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCall(t, a, f.url)
	expireBy(t, a, 2*time.Hour)
	wantCall(t, a, f.url)
	if n := len(f.as.Sink.Requests(authtest.Authorize)); n != 1 {
		t.Errorf("%d logins were started", n)
	}
	if text := log.String(); !strings.Contains(text, "lasts as long as this program") || strings.Count(text, "\n") != 2 {
		t.Errorf("log: %s", text)
	}
	if text, _ := os.ReadFile(s.path(a.key())); string(text) != "{" {
		t.Errorf("overwritten with %s", text)
	}
}

// Guarantees: G-0044.13
func TestSecretsAreNotPrinted(t *testing.T) {
	whole := fullEntry // with secrets that are in no time and no address by chance
	whole.ClientSecret, whole.Access = NewSecret("the client's secret"), NewSecret("the access token")
	whole.Refresh, whole.Proof = NewSecret("the refresh token"), NewSecret("the key of proofs")
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	for _, logger := range []*slog.Logger{slog.New(slog.NewTextHandler(&log, nil)), slog.New(slog.NewJSONHandler(&log, nil))} {
		logger.Info("x", "entry", whole, "secret", whole.Access, "pointer", &whole)
	}
	printed := string(text) + log.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%08b", "%e"} {
		if got := fmt.Sprintf(verb, whole.Access); got != "•••" {
			t.Errorf("%s prints %q, want •••", verb, got)
		}
		printed += fmt.Sprintf(verb, whole) + fmt.Sprintf(verb, &whole)
	}
	if want := "secret=••• "; !strings.Contains(log.String(), want) || !strings.Contains(string(text), `"•••"`) {
		t.Errorf("the log is %s, and the text %s: want ••• in both", &log, text)
	}
	for _, secret := range []Secret{whole.Access, whole.Refresh, whole.ClientSecret, whole.Proof} {
		if plain := secret.Reveal(); strings.Contains(printed, plain) || strings.Contains(printed, fmt.Sprintf("%x", plain)) {
			t.Errorf("%s is printed", plain)
		}
	}
}

// A logout removes temporary files of killed writers, and none that is being written.
//
// Guarantees: G-0044.15
func TestALogoutRemovesHalfWrittenEntries(t *testing.T) {
	s := NewFiles(t.TempDir(), nil)
	k := Key{Resource: "https://mcp.test"}
	if err := s.Locked(t.Context(), k, put(&fullEntry)); err != nil {
		t.Fatal(err)
	}
	stale, young := filepath.Join(s.dir, ".new-1"), filepath.Join(s.dir, ".new-2")
	long, short := time.Now().Add(-time.Minute-time.Second), time.Now().Add(-30*time.Second)
	if err := errors.Join(os.WriteFile(stale, []byte("a1"), 0o600), os.WriteFile(young, nil, 0o600), os.Chtimes(stale, long, long), os.Chtimes(young, short, short)); err != nil {
		t.Fatal(err)
	}
	if err := s.Locked(t.Context(), k, put(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(stale); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of a killed writer is left: %v", err)
	}
	if _, err := os.Lstat(young); err != nil {
		t.Errorf("a file that is being written was removed: %v", err)
	}
}

// A file may be 1 MiB long. A longer one is nothing that was saved here, and is refused.
//
// Guarantees: G-0044.12
func TestHowLongAFileOfLoginsMayBe(t *testing.T) {
	s := NewFiles(t.TempDir(), nil)
	if err := s.Locked(t.Context(), Key{Issuer: "x"}, put(&Entry{Issuer: "x"})); err != nil {
		t.Fatal(err)
	}
	path := s.path(Key{Issuer: "x"})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for length, refused := range map[int]bool{1 << 20: false, 1<<20 + 1: true} {
		if err := os.WriteFile(path, append(text, bytes.Repeat([]byte(" "), length-len(text))...), 0o600); err != nil {
			t.Fatal(err)
		}
		if e, err := s.Load(t.Context(), Key{Issuer: "x"}); errors.As(err, new(*StoreError)) != refused || (e == nil) != refused {
			t.Errorf("%d bytes: %v, %v; want it refused: %t", length, e, err, refused)
		}
	}
}

// The usual folder is in that of the user's configuration.
func TestTheUsualFolder(t *testing.T) {
	config, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := DefaultDir(); err != nil || dir != filepath.Join(config, "bowline", "auth") {
		t.Errorf("the folder is %s, %v", dir, err)
	}
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "AppData"} {
		t.Setenv(name, "")
	}
	if dir, err := DefaultDir(); dir != "" || !strings.HasPrefix(errorText(err), "auth: no folder for logins: ") {
		t.Errorf("without a user, the folder is %q, %v", dir, err)
	}
}
