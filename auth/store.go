package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/bowline-mcp/bowline/auth/guard"
)

// A Key names an [Entry] of a [Store]. The key of a login has the Resource and the
// Principal. The key of a client registration has only the Issuer.
type Key struct {
	Issuer    string `json:"issuer,omitzero"`
	Resource  string `json:"resource,omitzero"`
	Principal string `json:"principal,omitzero"`
}

// A Store keeps logins and registrations. Several programs may share a Store, and then
// share their logins. [NewMemory] and [NewFiles] return a Store.
//
// An Authorizer calls a Store on the goroutines of requests, and of token requests that
// continue after their request has ended.
type Store interface {
	// Locked locks the key for all programs that share the Store, and runs f. The
	// argument of f is the entry, or nil if there is none. Locked replaces the entry
	// by the one that f returns; nil deletes it. If f returns an error, nothing
	// changes. Locked waits for the lock until ctx ends, and returns when the entry
	// is saved, as durably as the Store can.
	Locked(ctx context.Context, k Key, f func(*Entry) (*Entry, error)) error

	// Load returns an entry, or nil if there is none. It does not wait for the lock.
	Load(ctx context.Context, k Key) (*Entry, error)
}

// An Entry is a login or a registration. Treat it as read-only: to change a login, save
// another Entry.
type Entry struct {
	Issuer string // the authorization server that the entry comes from
	Grant  string // how the login was obtained, for instance "authorization_code"

	// The client. If the client has registered itself, the login contains its secret,
	// since another registration may replace it in the Store.
	ClientID      string
	ClientSecret  Secret
	ClientExpires time.Time // when the secret expires; zero: never
	ClientAuth    string    // the method at the token endpoint, for instance "none"
	ClientName    string    // the name that the client is registered with; only in a registration
	RedirectURI   string    // the redirect address that the client is registered with

	Pinned string // the issuer to which a Registered without an Issuer is bound; "" for none

	Access   Secret
	Refresh  Secret // zero: there is none
	Type     string // "Bearer" or "DPoP"
	Issued   time.Time
	Expires  time.Time // zero: unknown
	Scopes   []string  // as granted, or as asked for if the server does not say
	Resource string    // the resource parameter of the token request
	Proof    Secret    // the DPoP key, a JWK; zero: there is none

	TokenEndpoint      string
	RevocationEndpoint string // "": there is none
}

func (e *Entry) clientExpired(now time.Time) bool {
	return !e.ClientExpires.IsZero() && now.After(e.ClientExpires)
}

// An entryDocument is an Entry as it is saved, with its secrets.
type entryDocument struct {
	Version            int       `json:"version"`
	Issuer             string    `json:"issuer"`
	Grant              string    `json:"grant,omitzero"`
	ClientID           string    `json:"client_id,omitzero"`
	ClientSecret       string    `json:"client_secret,omitzero"`
	ClientExpires      time.Time `json:"client_expires,omitzero"`
	ClientAuth         string    `json:"client_auth,omitzero"`
	ClientName         string    `json:"client_name,omitzero"`
	RedirectURI        string    `json:"redirect_uri,omitzero"`
	Pinned             string    `json:"pinned_issuer,omitzero"`
	Access             string    `json:"access_token,omitzero"`
	Refresh            string    `json:"refresh_token,omitzero"`
	Type               string    `json:"token_type,omitzero"`
	Issued             time.Time `json:"issued,omitzero"`
	Expires            time.Time `json:"expires,omitzero"`
	Scopes             []string  `json:"scopes,omitzero"`
	Resource           string    `json:"resource,omitzero"`
	Proof              string    `json:"proof_key,omitzero"`
	TokenEndpoint      string    `json:"token_endpoint,omitzero"`
	RevocationEndpoint string    `json:"revocation_endpoint,omitzero"`
}

// entryVersion is the version of the format of saved entries.
const entryVersion = 1

// MarshalBinary encodes the Entry with all its secrets, for a Store to save. All other
// encodings hide the secrets.
func (e *Entry) MarshalBinary() ([]byte, error) {
	return json.Marshal(entryDocument{
		Version: entryVersion, Issuer: e.Issuer, Grant: e.Grant,
		ClientID: e.ClientID, ClientSecret: e.ClientSecret.Reveal(), ClientExpires: e.ClientExpires, ClientAuth: e.ClientAuth,
		ClientName: e.ClientName, RedirectURI: e.RedirectURI, Pinned: e.Pinned, Access: e.Access.Reveal(), Refresh: e.Refresh.Reveal(), Type: e.Type, Issued: e.Issued, Expires: e.Expires, Scopes: e.Scopes,
		Resource: e.Resource, Proof: e.Proof.Reveal(), TokenEndpoint: e.TokenEndpoint, RevocationEndpoint: e.RevocationEndpoint,
	})
}

// UnmarshalBinary decodes the result of MarshalBinary.
func (e *Entry) UnmarshalBinary(saved []byte) error {
	var d entryDocument
	if err := guard.DecodeJSON(saved, &d); err != nil {
		return err
	}
	if d.Version != entryVersion {
		return errors.New("auth: the entry is of another version")
	}
	*e = Entry{
		Issuer: d.Issuer, Grant: d.Grant,
		ClientID: d.ClientID, ClientSecret: NewSecret(d.ClientSecret), ClientExpires: d.ClientExpires, ClientAuth: d.ClientAuth,
		ClientName: d.ClientName, RedirectURI: d.RedirectURI, Pinned: d.Pinned, Access: NewSecret(d.Access), Refresh: NewSecret(d.Refresh), Type: d.Type, Issued: d.Issued, Expires: d.Expires, Scopes: d.Scopes,
		Resource: d.Resource, Proof: NewSecret(d.Proof), TokenEndpoint: d.TokenEndpoint, RevocationEndpoint: d.RevocationEndpoint,
	}
	return nil
}

// A Memory is a [Store] in memory. It is lost when the process ends.
type Memory struct {
	locks keyLocks

	mu      sync.Mutex
	entries map[Key]*Entry
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{entries: make(map[Key]*Entry)} }

// Load implements Store.
func (m *Memory) Load(_ context.Context, k Key) (*Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[k], nil
}

// Locked implements Store.
func (m *Memory) Locked(ctx context.Context, k Key, f func(*Entry) (*Entry, error)) error {
	unlock, err := m.locks.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	e, err := m.Load(ctx, k)
	if err == nil {
		e, err = f(e)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[k] = e; e == nil {
		delete(m.entries, k)
	}
	return nil
}

// keyLocks contains a lock for each key that is locked or waited for. The zero value is
// ready to use.
type keyLocks struct {
	mu   sync.Mutex
	held map[Key]*keyLock
}

type keyLock struct {
	token chan struct{} // has room for one token; the holder of the lock has put it in
	users int
}

// lock waits for the lock of a key until ctx ends.
func (l *keyLocks) lock(ctx context.Context, k Key) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = make(map[Key]*keyLock)
	}
	lock := l.held[k]
	if lock == nil {
		lock = &keyLock{token: make(chan struct{}, 1)}
		l.held[k] = lock
	}
	lock.users++
	l.mu.Unlock()
	release := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if lock.users--; lock.users == 0 {
			delete(l.held, k)
		}
	}
	select {
	case lock.token <- struct{}{}:
		return func() { <-lock.token; release() }, nil
	case <-ctx.Done():
		release()
		return nil, context.Cause(ctx)
	}
}

// A storage is a Store for one Authorizer. If the Store behind it cannot save an entry,
// the storage keeps the entry in memory.
type storage struct {
	Store
	memory *Memory
	failed atomic.Bool
}

func (s *storage) now() Store {
	if s.failed.Load() {
		return s.memory
	}
	return s.Store
}

func (s *storage) Locked(ctx context.Context, k Key, change func(*Entry) (*Entry, error)) error {
	return s.now().Locked(ctx, k, change)
}

// change does what Locked does, for a change that a person has requested. It may replace
// or remove an entry that a changer cannot decrypt.
func (s *storage) change(ctx context.Context, k Key, how change, do func(*Entry) (*Entry, error)) error {
	return changeIn(ctx, s.now(), k, how, do)
}

// A changer is a Store with entries that it may be unable to decrypt.
type changer interface {
	change(ctx context.Context, k Key, how change, f func(*Entry) (*Entry, error)) error
}

func changeIn(ctx context.Context, store Store, k Key, how change, do func(*Entry) (*Entry, error)) error {
	if store, ok := store.(changer); ok {
		return store.change(ctx, k, how, do)
	}
	return store.Locked(ctx, k, do)
}

func (s *storage) Load(ctx context.Context, k Key) (*Entry, error) { return s.now().Load(ctx, k) }

// keepInMemory keeps an entry in memory that was not saved.
func (s *storage) keepInMemory(ctx context.Context, k Key, e *Entry) error {
	s.failed.Store(true)
	return s.memory.Locked(ctx, k, func(*Entry) (*Entry, error) { return e, nil })
}

// save saves a new login. If a person has requested it, save tries the Store again, even if
// an earlier login could not be saved there.
func (s *storage) save(ctx context.Context, k Key, how change, e *Entry) error {
	put := func(*Entry) (*Entry, error) { return e, nil }
	if how != replaced {
		return s.change(ctx, k, how, put)
	}
	if err := changeIn(ctx, s.Store, k, how, put); err != nil {
		return err
	}
	s.failed.Store(false)
	return s.memory.Locked(ctx, k, func(*Entry) (*Entry, error) { return nil, nil })
}

// remove removes a login from the Store and from memory, after do has got it. There may be
// one in each of them.
func (s *storage) remove(ctx context.Context, k Key, do func(*Entry)) error {
	take := func(e *Entry) (*Entry, error) { do(e); return nil, nil }
	return errors.Join(s.memory.Locked(ctx, k, take), changeIn(ctx, s.Store, k, removed, take))
}

// canSave returns why the Store could not save the login of a person, or nil. To find that
// out, it writes the login that is there again, or an empty entry, which it deletes.
func (s *storage) canSave(ctx context.Context, k Key) error {
	_, unread := s.Store.Load(ctx, k)
	err := changeIn(ctx, s.Store, k, replaced, func(e *Entry) (*Entry, error) {
		switch {
		case e != nil:
			same := *e
			return &same, nil
		case unread != nil:
			return nil, nil // what cannot be decrypted is replaced by a login, and by nothing else
		default:
			return new(Entry), nil
		}
	})
	if err == nil {
		err = changeIn(ctx, s.Store, k, replaced, func(e *Entry) (*Entry, error) {
			if e != nil && e.Issuer == "" {
				return nil, nil
			}
			return e, nil
		})
	}
	if err != nil {
		return fmt.Errorf("auth: the login could not be saved: %w", err)
	}
	return nil
}
