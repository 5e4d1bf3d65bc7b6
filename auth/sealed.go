package auth

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"

	"github.com/go-json-experiment/json"

	"github.com/bowline-mcp/bowline/internal/seal"
)

// Sealed returns a Store that keeps its entries in another one, sealed with AES-256-GCM. Use
// it for a store that others can read or change, such as a database. Keys of entries, with
// the names of servers, issuers and principals, stay readable.
//
// The function keys returns secrets of at least 32 random bytes each: the first one seals, and
// any of them opens. It is called whenever an entry is read or saved, perhaps concurrently, so
// keys can be replaced at any time: add a new one at the end in every program, then move it to
// the front, and remove the old one when all entries were saved again.
//
// An entry that does not open, or is not sealed, is a [*StoreError], and is not replaced by a
// refresh. Authorizer.Login replaces it, and Authorizer.Logout deletes it.
//
// In a folder of one user, [NewSealedFiles] does this with the key of the user's key ring.
func Sealed(store Store, keys func() [][]byte) Store {
	return &sealedStore{store: store, sealer: seal.New("logins", keys)}
}

// A sealedStore seals the entries of another Store.
type sealedStore struct {
	store  Store
	sealer *seal.Sealer
}

// sealedType is the Type of an Entry that carries another one, sealed, in Access.
const sealedType = "sealed"

const (
	errUnsealed  = decryptError("it is not sealed: log in again")
	errSealedKey = decryptError("it was sealed with another key, or changed: use the key that it was sealed with, or log in again")
)

// storeErrorOf returns the error for an entry of a Store that has no files.
func storeErrorOf(k Key, err error) error { return &StoreError{cmp.Or(k.Resource, k.Issuer), err} }

// Load implements Store.
func (s *sealedStore) Load(ctx context.Context, k Key) (*Entry, error) {
	carrier, err := s.store.Load(ctx, k)
	if err != nil {
		return nil, err
	}
	return s.open(k, carrier)
}

// Locked implements Store. If there is no key to seal with, it does not run f, because it could
// not save the result.
func (s *sealedStore) Locked(ctx context.Context, k Key, f func(*Entry) (*Entry, error)) error {
	return s.change(ctx, k, readable, f)
}

// change implements changer.
func (s *sealedStore) change(ctx context.Context, k Key, how change, f func(*Entry) (*Entry, error)) error {
	if how != removed {
		if _, err := s.sealer.Seal(nil, nil); err != nil {
			return storeErrorOf(k, err)
		}
	}
	var unread error // why the entry could not be opened
	err := changeIn(ctx, s.store, k, how, func(carrier *Entry) (*Entry, error) {
		before, err := s.open(k, carrier)
		if err != nil && (how == readable || !errors.As(err, new(decryptError))) {
			return nil, err
		}
		unread = err
		after, err := f(before)
		switch {
		case err != nil:
			return nil, err
		case after == nil && (before != nil || how == removed):
			return nil, nil
		case after == before:
			return carrier, nil
		default:
			return s.carry(k, after)
		}
	})
	if err == nil && how == removed {
		return unread
	}
	return err
}

// carry returns an entry that carries another one.
func (s *sealedStore) carry(k Key, e *Entry) (*Entry, error) {
	plain, err := e.MarshalBinary()
	if err != nil {
		return nil, storeErrorOf(k, err)
	}
	about, err := json.Marshal(k) // authenticated, so that an entry cannot be moved to another key
	if err != nil {
		return nil, storeErrorOf(k, err)
	}
	sealed, err := s.sealer.Seal(plain, about)
	if err != nil {
		return nil, storeErrorOf(k, err)
	}
	return &Entry{Type: sealedType, Access: NewSecret(base64.StdEncoding.EncodeToString(sealed))}, nil
}

// open returns the entry that another one carries; nil for nil.
func (s *sealedStore) open(k Key, carrier *Entry) (*Entry, error) {
	if carrier == nil {
		return nil, nil
	}
	e := new(Entry)
	if err := s.unseal(k, carrier, e); err != nil {
		return nil, storeErrorOf(k, err)
	}
	return e, nil
}

// unseal decodes what an entry carries into another one.
func (s *sealedStore) unseal(k Key, carrier, into *Entry) error {
	if carrier.Type != sealedType {
		return errUnsealed
	}
	about, err := json.Marshal(k)
	if err != nil {
		return err
	}
	sealed, err := base64.StdEncoding.DecodeString(carrier.Access.Reveal())
	if err != nil {
		return errSealedKey
	}
	plain, err := s.sealer.Open(sealed, about)
	switch {
	case errors.Is(err, seal.ErrOpen):
		return errSealedKey
	case err != nil:
		return err
	}
	return into.UnmarshalBinary(plain)
}
