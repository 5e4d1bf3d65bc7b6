package auth

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

// sealedIn returns a Sealed over a Memory. Its keys are made of these bytes.
func sealedIn(m *Memory, keys ...byte) Store {
	return Sealed(m, func() [][]byte {
		var secrets [][]byte
		for _, b := range keys {
			secrets = append(secrets, bytes.Repeat([]byte{b}, 32))
		}
		return secrets
	})
}

func isDecryptError(err error) bool {
	return errors.As(err, new(decryptError)) && errors.As(err, new(*StoreError))
}

// Nothing of an entry can be read in the store below, neither where entries hide their secrets
// nor where a store saves them.
//
// Guarantees: G-0080.12
func TestASealedEntryCannotBeRead(t *testing.T) {
	parts := []string{
		"https://issuer-of-ada", "grant-of-ada", "client-of-ada", "client-secret-of-ada", "name-of-ada", "http://127.0.0.1/of-ada", "access-of-ada",
		"refresh-of-ada", "scope-of-ada", "https://resource-of-ada", "proof-of-ada", "https://token-of-ada", "https://revoke-of-ada", "2031-",
	}
	e := &Entry{
		Issuer: parts[0], Grant: parts[1], ClientID: parts[2], ClientSecret: NewSecret(parts[3]), ClientName: parts[4], RedirectURI: parts[5],
		Access: NewSecret(parts[6]), Refresh: NewSecret(parts[7]), Scopes: []string{parts[8]}, Resource: parts[9], Proof: NewSecret(parts[10]),
		TokenEndpoint: parts[11], RevocationEndpoint: parts[12], Expires: time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC),
	}
	plain, err := e.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	m := NewMemory()
	if err := sealedIn(m, 1).Locked(t.Context(), sealedKey, put(e)); err != nil {
		t.Fatal(err)
	}
	saved, err := m.entries[sealedKey].MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		if !strings.Contains(string(plain), part) || strings.Contains(string(saved), part) {
			t.Errorf("%q can be read in %s, or is not in %s", part, saved, plain)
		}
	}
	if got, err := sealedIn(m, 2, 1).Load(t.Context(), sealedKey); err != nil || got.Refresh != e.Refresh {
		t.Errorf("with the key: %v, %v", got, err)
	}
}

// An entry that does not open is an error that says what to do, whatever the reason, and a
// change that is none of the user does not replace it.
//
// Guarantees: G-0080.12
func TestSealedEntriesThatDoNotOpen(t *testing.T) {
	m := NewMemory()
	saved := sealedIn(m, 1)
	eve := Key{Resource: sealedKey.Resource, Principal: "eve"}
	for _, k := range []Key{sealedKey, eve} {
		if err := saved.Locked(t.Context(), k, put(&fullEntry)); err != nil {
			t.Fatal(err)
		}
	}
	good := m.entries[sealedKey]
	for name, c := range map[string]struct {
		carrier *Entry
		store   Store
		text    string
	}{
		"another key":     {good, sealedIn(m, 2), "log in again"},
		"another's entry": {m.entries[eve], saved, "log in again"},
		"changed":         {&Entry{Type: sealedType, Access: NewSecret("A" + good.Access.Reveal()[1:])}, saved, "log in again"},
		"no base64":       {&Entry{Type: sealedType, Access: NewSecret("?")}, saved, "log in again"},
		"empty":           {&Entry{Type: sealedType}, saved, "log in again"},
		"not sealed":      {&fullEntry, saved, "it is not sealed: log in again"},
	} {
		t.Run(name, func(t *testing.T) {
			m.entries[sealedKey] = c.carrier
			if e, err := c.store.Load(t.Context(), sealedKey); !isDecryptError(err) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), sealedKey.Resource) {
				t.Errorf("Load: %v, %v", e, err)
			}
			ran := false
			err := c.store.Locked(t.Context(), sealedKey, func(*Entry) (*Entry, error) { ran = true; return nil, nil })
			if !isDecryptError(err) || ran || m.entries[sealedKey] != c.carrier {
				t.Errorf("Locked: %v; the change was made: %v", err, ran)
			}
		})
	}
}

// While there is no key, nothing is changed, and no change is asked for that could not be saved.
//
// Guarantees: G-0080.12
func TestSealingWithoutAKey(t *testing.T) {
	m := NewMemory()
	if err := sealedIn(m, 1).Locked(t.Context(), sealedKey, put(&fullEntry)); err != nil {
		t.Fatal(err)
	}
	before := m.entries[sealedKey]
	short := Sealed(m, func() [][]byte { return [][]byte{make([]byte, 31)} })
	for name, s := range map[string]Store{"none": sealedIn(m), "short": short} {
		for _, k := range []Key{sealedKey, {Issuer: "https://as.test"}} {
			err := s.Locked(t.Context(), k, func(*Entry) (*Entry, error) {
				t.Error("a change was asked for")
				return &fullEntry, nil
			})
			if !errors.As(err, new(*StoreError)) || errors.As(err, new(decryptError)) {
				t.Errorf("%s: Locked returned %v", name, err)
			}
		}
	}
	if len(m.entries) != 1 || m.entries[sealedKey] != before {
		t.Errorf("the store was changed: %v", m.entries)
	}
}

// A login that does not open is kept by calls, replaced by Login, and deleted by Logout, which
// says that nothing was revoked.
//
// Guarantees: G-0080.12, G-0044.21
func TestASealedLoginThatDoesNotOpen(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	m := NewMemory()
	owner := f.login(t, Options{Store: sealedIn(m, 1), Interact: consent})
	wantCall(t, owner, f.url)
	sealed := m.entries[owner.key()]
	wantCall(t, f.login(t, Options{Store: sealedIn(m, 2), Interact: consent}), f.url)
	if m.entries[owner.key()] != sealed {
		t.Error("a call has replaced the login")
	}
	a := f.login(t, Options{Store: sealedIn(m, 2), Interact: consent})
	if err := a.Logout(t.Context()); !isDecryptError(err) || !strings.Contains(err.Error(), "not revoked") {
		t.Errorf("Logout: %v", err)
	}
	if m.entries[owner.key()] != nil {
		t.Error("the login is not deleted")
	}
	if err := a.Logout(t.Context()); err != nil {
		t.Errorf("Logout without a login: %v", err)
	}
	m.entries[owner.key()] = sealed
	refused := errors.New("no")
	refusing := f.login(t, Options{Store: sealedIn(m, 2), Interact: func(context.Context, Interaction) (*url.URL, error) { return nil, refused }})
	if err := refusing.Login(t.Context()); !errors.Is(err, refused) || m.entries[owner.key()] != sealed {
		t.Errorf("a Login that was refused has replaced the login: %v, %v", m.entries[owner.key()] != sealed, err)
	}
	if err := a.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := sealedIn(m, 2).Load(t.Context(), owner.key()); err != nil || e == nil {
		t.Errorf("the new login is %v, %v", e, err)
	}
}
