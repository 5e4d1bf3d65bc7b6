package auth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

var errFull = errors.New("the disk is full")

// A fullStore is a Store that can delete, but not write while it is full.
type fullStore struct {
	*Memory
	full atomic.Bool
}

func (s *fullStore) Locked(ctx context.Context, k Key, f func(*Entry) (*Entry, error)) error {
	return s.Memory.Locked(ctx, k, func(before *Entry) (*Entry, error) {
		after, err := f(before)
		if err == nil && after != nil && after != before && s.full.Load() {
			err = errFull
		}
		return after, err
	})
}

// If the Store cannot write, Login fails before a person is asked, whether there is an
// earlier login or not.
//
// Guarantees: G-0044.20
func TestLoginFailsBeforeItAsksIfNothingCanBeSaved(t *testing.T) {
	for name, before := range map[string]bool{"the first login": false, "another login": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, authtest.Options{})
			s := &fullStore{Memory: NewMemory()}
			a := f.login(t, Options{Store: s, Interact: consent})
			asked := 0
			if before {
				wantCall(t, a, f.url)
				asked++
			}
			s.full.Store(true)
			for range 2 {
				if err := a.Login(t.Context()); !errors.Is(err, errFull) {
					t.Errorf("Login: %v, want %v", err, errFull)
				}
			}
			if n := len(f.as.Sink.Requests(authtest.Authorize)); n != asked {
				t.Errorf("%d logins were started, want %d", n, asked)
			}
			if e, err := s.Load(t.Context(), a.key()); (e != nil) != before || err != nil {
				t.Errorf("the Store has %+v, %v", e, err)
			}
		})
	}
}

// Where nobody is asked for consent, Login logs in although nothing can be saved, and says so.
//
// Guarantees: G-0044.20
func TestAProgramWithoutAPersonLogsInAlthoughNothingCanBeSaved(t *testing.T) {
	f := newOffline(authtest.Options{Clients: []authtest.Client{{ID: "known", Secret: "the-secret", Auth: "client_secret_basic"}}})
	s := &fullStore{Memory: NewMemory()}
	s.full.Store(true)
	a := f.login(t, Options{Store: s, Grant: ClientCredentials{}, Registered: []Registered{{ID: "known", Secret: NewSecret("the-secret")}}})
	if err := a.Login(t.Context()); !errors.Is(err, errFull) || !strings.Contains(errorText(err), "lasts as long as this program") {
		t.Errorf("Login: %v", err)
	}
	f.wantCall(t, a)
	if n := f.tokenRequests("client_credentials"); n != 1 {
		t.Errorf("%d token requests, want one", n)
	}
}

// A login that is refused leaves the Store as it was.
func TestARefusedLoginLeavesNothingInTheStore(t *testing.T) {
	for name, s := range stores(t) {
		f := newFixture(t, authtest.Options{})
		refused := errors.New("no")
		a := f.login(t, Options{Store: s, Interact: func(context.Context, Interaction) (*url.URL, error) { return nil, refused }})
		if err := a.Login(t.Context()); !errors.Is(err, refused) {
			t.Errorf("%s: Login: %v", name, err)
		}
		if e, err := s.Load(t.Context(), a.key()); e != nil || err != nil {
			t.Errorf("%s: the Store has %+v, %v, want nothing", name, e, err)
		}
		if files, ok := s.(*Files); ok {
			if left, err := filepath.Glob(filepath.Join(files.dir, "*.json")); len(left) > 0 || err != nil {
				t.Errorf("%s: the folder has %q, %v", name, left, err)
			}
		}
	}
}

// fillsUp returns an Authorizer whose Store has a login and becomes full while a person
// logs in again. It returns that earlier login, too.
func fillsUp(t *testing.T, f *fixture) (*Authorizer, *fullStore, *Entry) {
	t.Helper()
	s := &fullStore{Memory: NewMemory()}
	earlier := loggedIn(t, f, Options{Store: s})
	before, err := earlier.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a := f.login(t, Options{Store: s, Offline: true, Interact: func(ctx context.Context, i Interaction) (*url.URL, error) {
		redirected, err := consent(ctx, i)
		s.full.Store(true)
		return redirected, err
	}})
	if err := a.Login(t.Context()); !errors.Is(err, errFull) {
		t.Errorf("Login: %v, want %v", err, errFull)
	}
	return a, s, before
}

// Login returns the error if its login could not be saved, and uses the token nevertheless.
//
// Guarantees: G-0044.20
func TestLoginSaysThatItIsNotSaved(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a, s, before := fillsUp(t, f)
	wantCall(t, a, f.url)
	if now := a.current.Load(); now == nil || now.access() == before.Access.Reveal() {
		t.Error("the new token is not used")
	}
	s.full.Store(false)
	a.o.Interact = consent
	if err := a.Login(t.Context()); err != nil {
		t.Fatalf("Login when there is room again: %v", err)
	}
	if e, err := s.Load(t.Context(), a.key()); err != nil || e.Access.Reveal() != a.current.Load().access() {
		t.Errorf("the Store has %+v, %v, want the new login", e, err)
	}
	if e, err := a.Status(t.Context()); err != nil || e == nil || e.Access.Reveal() != a.current.Load().access() {
		t.Errorf("the program says that its login is %+v, %v, want the new one", e, err)
	}
	wantCall(t, a, f.url)
}

// A refreshed login that cannot be saved is kept as long as the program runs: it is refreshed again, and nobody
// is asked.
//
// Guarantees: G-0044.20
func TestARefreshedLoginThatCannotBeSavedIsKept(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	s := &fullStore{Memory: NewMemory()}
	a := loggedIn(t, f, Options{Store: s})
	expireBy(t, a, 2*time.Hour)
	s.full.Store(true)
	wantCall(t, a, f.url)
	kept, err := a.Status(t.Context())
	if err != nil || kept.Access.Reveal() != a.current.Load().access() {
		t.Fatalf("the status is %+v, %v, want the refreshed login", kept, err)
	}
	a.attempts.recordRefresh(nil, time.Now()) // as if the delay after what failed were over
	expireBy(t, a, 2*time.Hour)
	wantCall(t, a, f.url)
	if refreshed, asked := f.grants("refresh_token"), len(f.as.Sink.Requests(authtest.Authorize)); refreshed != 2 || asked != 1 {
		t.Errorf("%d refreshes and %d logins, want 2 and 1", refreshed, asked)
	}
}

// Logout removes and revokes a login that could not be saved, and the earlier login that
// is still in the Store.
//
// Guarantees: G-0044.15
func TestLogoutRemovesWhatIsInTheStoreAndInMemory(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a, s, before := fillsUp(t, f)
	after, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Load(t.Context(), a.key()); e != nil || err != nil {
		t.Errorf("the Store has %+v, %v, want nothing", e, err)
	}
	if e, err := a.Status(t.Context()); e != nil || err != nil {
		t.Errorf("the status is %+v, %v, want nothing", e, err)
	}
	for _, secret := range []Secret{before.Refresh, after.Refresh} {
		if !slices.ContainsFunc(f.as.Sink.Requests(authtest.Revoke), func(r *authtest.Request) bool { return r.Form.Get("token") == secret.Reveal() }) {
			t.Error("a refresh token is not revoked")
		}
	}
	if status, err := call(t.Context(), f.login(t, Options{Store: s}), f.url); err == nil || status == http.StatusOK {
		t.Errorf("another program has status %d, %v, although the login is removed", status, err)
	}
}

// A registration that cannot be saved is used all the same, and not made again for the same login.
//
// Guarantees: G-0044.12
func TestARegistrationThatIsNotSavedIsMadeOnce(t *testing.T) {
	f, log := newFixture(t, authtest.Options{}), new(safeBuffer)
	s := &fullStore{Memory: NewMemory()}
	s.full.Store(true)
	a := f.login(t, Options{Store: s, Interact: consent, Log: slog.New(slog.NewTextHandler(log, nil))})
	wantCall(t, a, f.url)
	if n := len(f.as.Sink.Requests(authtest.Register)); n != 1 {
		t.Errorf("the program has registered %d times", n)
	}
	for _, what := range []string{"the registration is not saved", "the login is not saved"} {
		if !strings.Contains(log.String(), what) {
			t.Errorf("it is not logged that %s: %s", what, log)
		}
	}
}

// A registration that was kept in memory is removed like one in the Store, when the server has lost it; and one in the Store also
// while logins are kept in memory.
//
// Guarantees: G-0044.12, G-0044.22
func TestALostRegistrationIsRemovedFromMemory(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := f.login(t, Options{Store: lockedStore{NewMemory()}, Interact: consent, Offline: true})
	wantCall(t, a, f.url)
	f.findLost(t, a)
	if e, err := a.store.Load(t.Context(), Key{Issuer: f.as.Issuer()}); e != nil || err != nil {
		t.Errorf("the registration is kept: %+v, %v", e, err)
	}
	f = newFixture(t, authtest.Options{})
	a, s, _ := fillsUp(t, f)
	f.findLost(t, a)
	if e, err := s.Load(t.Context(), Key{Issuer: f.as.Issuer()}); e != nil || err != nil {
		t.Errorf("the registration in the Store is kept: %+v, %v", e, err)
	}
}

// A replacingStore is a Store in which another program registers just before this one changes its registration, and that fails as
// long as it is told to.
type replacingStore struct {
	*Memory
	by    *Entry
	fails bool
}

func (s *replacingStore) Load(ctx context.Context, k Key) (*Entry, error) {
	if s.fails {
		return nil, errFull
	}
	return s.Memory.Load(ctx, k)
}

func (s *replacingStore) Locked(ctx context.Context, k Key, f func(*Entry) (*Entry, error)) error {
	if s.fails {
		return errFull
	}
	if k.Resource == "" && s.by != nil {
		if err := s.Memory.Locked(ctx, k, put(s.by)); err != nil {
			return err
		}
	}
	return s.Memory.Locked(ctx, k, f)
}

// Logout does not remove the registration that another program has made meanwhile, and ends the login in this process even if the
// Store fails.
//
// Guarantees: G-0044.15
func TestLogoutWhileTheStoreChanges(t *testing.T) {
	f, s := newFixture(t, authtest.Options{}), &replacingStore{Memory: NewMemory()}
	a := loggedIn(t, f, Options{Store: s})
	s.by = &Entry{Issuer: f.as.Issuer(), ClientID: "another"}
	if err := a.Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Load(t.Context(), Key{Issuer: f.as.Issuer()}); e != s.by || err != nil {
		t.Errorf("the registration is %+v, %v, want that of the other program", e, err)
	}
	s.by = nil
	wantCall(t, a, f.url)
	s.fails = true
	if err := a.Logout(t.Context()); !errors.Is(err, errFull) {
		t.Errorf("Logout: %v, want %v", err, errFull)
	}
	wantNoToken(t, a)
	s.fails = false
}

// A registration that the server has lost, and that the Store does not remove, is logged.
//
// Guarantees: G-0044.22
func TestALostRegistrationThatIsNotRemovedIsLogged(t *testing.T) {
	f, log, s := newOffline(authtest.Options{}), new(safeBuffer), &keepingStore{Memory: NewMemory()}
	a := f.login(t, Options{Store: s, Interact: f.consent, Offline: true, Log: slog.New(slog.NewTextHandler(log, nil))})
	f.wantCall(t, a)
	if strings.Contains(log.String(), "level=WARN") {
		t.Errorf("a login is logged: %s", log)
	}
	s.keeps.Store(true)
	f.as.Lie(authtest.Token, answerWith(http.StatusUnauthorized, `{"error":"invalid_client"}`))
	expireBy(t, a, 2*time.Hour)
	if _, err := f.call(t.Context(), a); err == nil {
		t.Error("a client that is lost has refreshed its login")
	}
	if !strings.Contains(log.String(), "the registration is not removed") || !strings.Contains(log.String(), errFull.Error()) {
		t.Errorf("it is logged: %s", log)
	}
}

// A keepingStore is a Store that can be told not to change registrations.
type keepingStore struct {
	*Memory
	keeps atomic.Bool
}

func (s *keepingStore) Locked(ctx context.Context, k Key, f func(*Entry) (*Entry, error)) error {
	if k.Resource == "" && s.keeps.Load() {
		return errFull
	}
	return s.Memory.Locked(ctx, k, f)
}

// A lockedStore is a Store that another program never unlocks.
type lockedStore struct{ *Memory }

func (lockedStore) Locked(context.Context, Key, func(*Entry) (*Entry, error)) error { return errFull }

// A Store that cannot be read is logged once, and requests go without a token: the server may need none.
//
// Guarantees: G-0044.12
func TestAStoreThatCannotBeReadIsLoggedOnce(t *testing.T) {
	f, log := newOffline(authtest.Options{}), new(safeBuffer)
	f.server = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	a := f.login(t, Options{Store: unreadableStore{NewMemory()}, Log: slog.New(slog.NewTextHandler(log, nil))})
	f.wantCall(t, a)
	f.wantCall(t, a)
	if n := strings.Count(log.String(), "the store cannot be read"); n != 1 || !strings.Contains(log.String(), errFull.Error()) {
		t.Errorf("it is logged %d times: %s", n, log)
	}
	f, log = newOffline(authtest.Options{}), new(safeBuffer)
	a = f.login(t, Options{Store: unreadableStore{NewMemory()}, Interact: f.consent, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err := a.Login(t.Context()); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "the store cannot be read"); n != 1 {
		t.Errorf("Login logs it %d times: %s", n, log)
	}
}

type unreadableStore struct{ *Memory }

func (unreadableStore) Load(context.Context, Key) (*Entry, error) { return nil, errFull }
