package stores

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/proptest"
)

// Logins are the stores that LoginStoreContract checks. They have no entry yet.
type Logins struct {
	// A and B share their entries, as two programs do. They may be the same.
	A, B auth.Store
}

// LoginStoreContract checks the contract of auth.Store.
//
// Guarantees: G-0080.4
func LoginStoreContract(t *testing.T, open func(t *testing.T) Logins, o proptest.ContractOptions) {
	with := func(t *testing.T, tb cleanupTB) *logins { return openLogins(t, tb, open, o) }
	contract(t, with, []clause[*logins]{
		{"an entry comes back whole", (*logins).entriesAreWhole},
		{"an entry is replaced and deleted", (*logins).entriesAreReplaced},
		{"an error changes nothing", (*logins).errorsChangeNothing},
		{"keys are told apart", (*logins).keysAreDistinct},
		{"a key is locked by one program at a time", (*logins).locksExclude},
		{"a lock is for one key, and not for Load", (*logins).locksAreNarrow},
		{"the wait for a lock ends with its context", (*logins).waitsEnd},
	}, "entries agree with a map", (*logins).agreeWithMap)
}

// logins are the Logins under test.
type logins struct {
	Logins
	t   cleanupTB
	ctx context.Context // ends the test if something hangs
}

func openLogins(t *testing.T, tb cleanupTB, open func(*testing.T) Logins, o proptest.ContractOptions) *logins {
	return &logins{open(t), tb, guarded(tb, o)}
}

func (s *logins) stores() []auth.Store { return []auth.Store{s.A, s.B} }

// put replaces an entry; nil deletes it.
func (s *logins) put(to auth.Store, k auth.Key, e *auth.Entry) {
	s.t.Helper()
	if err := to.Locked(s.ctx, k, func(*auth.Entry) (*auth.Entry, error) { return e, nil }); err != nil {
		s.t.Fatalf("saving an entry of %v got %v", k, err)
	}
}

// want checks that both stores have an entry, for Load and for Locked.
func (s *logins) want(k auth.Key, want *auth.Entry) {
	s.t.Helper()
	s.wantLoaded(k, want)
	for _, store := range s.stores() {
		var got *auth.Entry
		err := store.Locked(s.ctx, k, func(e *auth.Entry) (*auth.Entry, error) { got = e; return e, nil })
		if err != nil || !sameEntry(got, want) {
			s.t.Fatalf("Locked got %.500s, %v, and the entry of %v is %.500s", entryText(got), err, k, entryText(want))
		}
	}
}

func (s *logins) wantLoaded(k auth.Key, want *auth.Entry) {
	s.t.Helper()
	for _, store := range s.stores() {
		if got, err := store.Load(s.ctx, k); err != nil || !sameEntry(got, want) {
			s.t.Fatalf("Load returned %.500s, %v, and the entry of %v is %.500s", entryText(got), err, k, entryText(want))
		}
	}
}

func sameEntry(a, b *auth.Entry) bool {
	if a == nil || b == nil {
		return a == b
	}
	return entryText(a) == entryText(b)
}

// entryText returns an entry as text, with its secrets, which are not real.
func entryText(e *auth.Entry) string {
	if e == nil {
		return "none"
	}
	text, err := e.MarshalBinary()
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// entryOf returns entry number n.
func entryOf(n int) *auth.Entry {
	return &auth.Entry{Issuer: "https://as.example", ClientName: strconv.Itoa(n), Access: auth.NewSecret(fmt.Sprint("access ", n))}
}

func keyOf(n int) auth.Key {
	return auth.Key{Resource: fmt.Sprintf("https://mcp.example/%d", n), Principal: "p"}
}

func (s *logins) entriesAreWhole() {
	at := time.Date(2026, 11, 26, 1, 2, 3, 456789000, time.UTC)
	entries := []*auth.Entry{
		{},
		{Issuer: "https://as.example"},
		{
			Issuer: "https://as.example", Grant: "authorization_code", ClientID: "id", ClientSecret: auth.NewSecret("client secret"),
			ClientExpires: at, ClientAuth: "client_secret_basic", ClientName: "näme \" \x01", RedirectURI: "http://127.0.0.1/callback",
			Pinned: "https://other.example", Access: auth.NewSecret("access"), Refresh: auth.NewSecret("refresh"), Type: "DPoP",
			Issued: at.Add(time.Second), Expires: at.Add(time.Hour), Scopes: []string{"a", "b c", ""}, Resource: "https://mcp.example/mcp",
			Proof: auth.NewSecret(`{"kty":"EC"}`), TokenEndpoint: "https://as.example/token", RevocationEndpoint: "https://as.example/revoke",
		},
		{Access: auth.NewSecret(strings.Repeat("x", 64<<10))},
	}
	for n, e := range entries {
		s.put(s.stores()[n%2], keyOf(n), e)
	}
	for n, e := range entries {
		s.want(keyOf(n), e)
	}
}

func (s *logins) entriesAreReplaced() {
	k := keyOf(0)
	s.want(k, nil)
	for n := range 6 {
		s.put(s.stores()[n%2], k, entryOf(n))
		s.want(k, entryOf(n))
	}
	for range 2 { // it may be deleted twice
		s.put(s.B, k, nil)
		s.want(k, nil)
	}
	s.put(s.A, k, entryOf(7))
	s.want(k, entryOf(7))
}

func (s *logins) errorsChangeNothing() {
	refused := errors.New("refused")
	for n, before := range []*auth.Entry{nil, entryOf(1)} {
		k := keyOf(n)
		s.put(s.A, k, before)
		for _, after := range []*auth.Entry{nil, entryOf(2)} {
			for _, store := range s.stores() {
				err := store.Locked(s.ctx, k, func(*auth.Entry) (*auth.Entry, error) { return after, refused })
				if !errors.Is(err, refused) {
					s.t.Fatalf("a change failed with %q, and Locked returned %v", refused, err)
				}
				s.want(k, before)
			}
		}
	}
}

func (s *logins) keysAreDistinct() {
	texts := []string{"", "a", "A", "a ", "a.b", "a/b", "..", "*", ">", "a\x00", "é", "e\u0301", "https://as.example/" + strings.Repeat("x", 2000)}
	var keys []auth.Key
	for _, text := range texts {
		keys = append(keys, auth.Key{Issuer: text}, auth.Key{Resource: text, Principal: "p"}, auth.Key{Resource: "r", Principal: text}, auth.Key{Resource: text})
	}
	all := map[auth.Key]*auth.Entry{}
	for n, k := range keys { // some are equal
		all[k] = entryOf(n)
		s.put(s.stores()[n%2], k, all[k])
	}
	for k, e := range all {
		s.want(k, e)
	}
	for k := range all {
		s.put(s.A, k, nil)
		break
	}
	left := 0
	for k := range all {
		if e, err := s.B.Load(s.ctx, k); err == nil && e != nil {
			left++
		}
	}
	if left != len(all)-1 {
		s.t.Fatalf("one of %d entries was deleted, and %d are left", len(all), left)
	}
}

func (s *logins) locksExclude() {
	const programs, changes = 8, 4
	var inside atomic.Int64
	var group sync.WaitGroup
	for n := range programs {
		group.Go(func() {
			for range changes {
				err := s.stores()[n%2].Locked(s.ctx, keyOf(0), func(e *auth.Entry) (*auth.Entry, error) {
					if inside.Add(1) > 1 {
						s.t.Errorf("two programs have locked one key")
					}
					defer inside.Add(-1)
					for range 10 {
						runtime.Gosched() // others try
					}
					if e == nil {
						return entryOf(1), nil
					}
					before, err := strconv.Atoi(e.ClientName)
					return entryOf(before + 1), err
				})
				if err != nil {
					s.t.Errorf("a change among many got %v", err)
				}
			}
		})
	}
	group.Wait()
	s.want(keyOf(0), entryOf(programs*changes))
}

// mustReturn runs do on another goroutine, and fails if it does not return.
func (s *logins) mustReturn(what string, do func() error) error {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-s.ctx.Done():
		s.t.Fatalf("%s did not return: %v", what, context.Cause(s.ctx))
		return nil
	}
}

func (s *logins) locksAreNarrow() {
	s.put(s.A, keyOf(0), entryOf(1))
	for _, store := range s.stores() {
		err := store.Locked(s.ctx, keyOf(0), func(before *auth.Entry) (*auth.Entry, error) {
			for n, other := range s.stores() {
				var e *auth.Entry
				err := s.mustReturn("a Load of a key that is locked", func() (err error) { e, err = other.Load(s.ctx, keyOf(0)); return err })
				if err != nil || !sameEntry(e, entryOf(1)) {
					s.t.Fatalf("a Load of a key that is locked got %s, %v", entryText(e), err)
				}
				err = s.mustReturn("a change of a key while another is locked", func() error {
					return other.Locked(s.ctx, keyOf(1+n), func(*auth.Entry) (*auth.Entry, error) { return entryOf(2), nil })
				})
				if err != nil {
					s.t.Fatalf("a change of a key while another is locked got %v", err)
				}
			}
			return before, nil
		})
		if err != nil {
			s.t.Fatalf("a change got %v", err)
		}
	}
}

func (s *logins) waitsEnd() {
	s.put(s.A, keyOf(0), entryOf(1))
	err := s.A.Locked(s.ctx, keyOf(0), func(*auth.Entry) (*auth.Entry, error) {
		for _, store := range s.stores() {
			ctx, cancel := context.WithTimeout(s.ctx, 20*time.Millisecond)
			err := s.mustReturn("the wait for a lock", func() error {
				return store.Locked(ctx, keyOf(0), func(*auth.Entry) (*auth.Entry, error) { return entryOf(2), nil })
			})
			cancel()
			if err == nil {
				s.t.Fatalf("a key was locked, and another change of it was made")
			}
		}
		return entryOf(3), nil
	})
	if err != nil {
		s.t.Fatalf("a change that others have waited for got %v", err)
	}
	s.want(keyOf(0), entryOf(3))
}

// agreeWithMap changes entries at random.
func (s *logins) agreeWithMap(rt *rapid.T) {
	model, changes := map[auth.Key]*auth.Entry{}, 0
	draw := func(rt *rapid.T) (auth.Store, auth.Key) {
		return s.stores()[rapid.IntRange(0, 1).Draw(rt, "store")], keyOf(rapid.IntRange(0, 2).Draw(rt, "key"))
	}
	rt.Repeat(map[string]func(*rapid.T){
		"put": func(rt *rapid.T) {
			store, k := draw(rt)
			changes++
			model[k] = entryOf(changes)
			s.put(store, k, model[k])
		},
		"delete": func(rt *rapid.T) {
			store, k := draw(rt)
			delete(model, k)
			s.put(store, k, nil)
		},
		"fail": func(rt *rapid.T) {
			store, k := draw(rt)
			err := store.Locked(s.ctx, k, func(*auth.Entry) (*auth.Entry, error) { return nil, errors.New("refused") })
			if err == nil {
				rt.Fatalf("a change failed, and Locked returned nil")
			}
		},
		"": func(*rapid.T) {
			for n := range 3 {
				s.wantLoaded(keyOf(n), model[keyOf(n)])
			}
		},
	})
	for n := range 3 {
		s.want(keyOf(n), model[keyOf(n)])
	}
}
