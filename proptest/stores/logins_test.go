package stores_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
)

// loginsOf opens two stores in one folder.
func loginsOf(open func(dir string) auth.Store) func(t *testing.T) stores.Logins {
	return func(t *testing.T) stores.Logins {
		dir := testenv.Dir(t)
		return stores.Logins{A: open(dir), B: open(dir)}
	}
}

// Guarantees: G-0080.4
func TestLoginStoreContract(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 32)
	keys := func() [][]byte { return [][]byte{key} }
	for name, open := range map[string]func(t *testing.T) stores.Logins{
		"memory": func(*testing.T) stores.Logins {
			m := auth.NewMemory()
			return stores.Logins{A: m, B: m}
		},
		"files": loginsOf(func(dir string) auth.Store { return auth.NewFiles(dir, nil) }),
		"sealed files": loginsOf(func(dir string) auth.Store {
			return auth.NewSealedFiles(dir, func(context.Context) ([]byte, error) { return key, nil }, nil)
		}),
		"sealed, in memory": func(*testing.T) stores.Logins {
			m := auth.NewMemory()
			return stores.Logins{A: auth.Sealed(m, keys), B: auth.Sealed(m, keys)}
		},
		"sealed, in files": loginsOf(func(dir string) auth.Store { return auth.Sealed(auth.NewFiles(dir, nil), keys) }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stores.LoginStoreContract(t, open, proptest.ContractOptions{})
		})
	}
}

// brokenLogins is a Memory that is broken in one way.
type brokenLogins struct {
	*auth.Memory
	flaws loginFlaws
	all   chan struct{} // holds a token while any key is locked
}

// loginFlaws are ways to break a store of logins.
type loginFlaws struct {
	unlocked     bool // changes of one key run at the same time
	keepDeleted  bool
	saveFailed   bool                    // what a change returned with an error is saved
	swallow      bool                    // errors of changes are not returned
	entry        func(*auth.Entry)       // changes what is saved
	key          func(auth.Key) auth.Key // what the store takes for the key
	oneLock      bool                    // all keys have one lock
	loadWaits    bool                    // Load waits for the lock
	waitsForever bool                    // the wait for a lock does not end with its context
}

func (s *brokenLogins) keyOf(k auth.Key) auth.Key {
	if s.flaws.key != nil {
		return s.flaws.key(k)
	}
	return k
}

func (s *brokenLogins) Load(ctx context.Context, k auth.Key) (e *auth.Entry, err error) {
	if s.flaws.loadWaits {
		err = s.Memory.Locked(ctx, s.keyOf(k), func(now *auth.Entry) (*auth.Entry, error) { e = now; return now, nil })
		return e, err
	}
	return s.Memory.Load(ctx, s.keyOf(k))
}

func (s *brokenLogins) Locked(ctx context.Context, k auth.Key, f func(*auth.Entry) (*auth.Entry, error)) error {
	if s.flaws.oneLock {
		select {
		case s.all <- struct{}{}:
			defer func() { <-s.all }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if s.flaws.waitsForever {
		ctx = context.WithoutCancel(ctx)
	}
	var failed error
	change := func(before *auth.Entry) (*auth.Entry, error) {
		after, err := f(before)
		failed = err
		switch {
		case err != nil && !s.flaws.saveFailed:
			return before, err
		case after == nil && s.flaws.keepDeleted:
			return before, nil
		case after != nil && after != before && s.flaws.entry != nil:
			changed := *after
			s.flaws.entry(&changed)
			after = &changed
		}
		return after, nil
	}
	if s.flaws.unlocked {
		before, err := s.Load(ctx, k)
		if err != nil {
			return err
		}
		after, err := change(before)
		if err != nil {
			return err
		}
		change = func(*auth.Entry) (*auth.Entry, error) { return after, nil }
	}
	err := s.Memory.Locked(ctx, s.keyOf(k), change)
	if s.flaws.swallow {
		return nil
	}
	if err == nil {
		err = failed
	}
	return err
}

// The suite fails on a store that breaks the contract.
//
// Guarantees: G-0080.4
func TestLoginStoreContractSeesBreaches(t *testing.T) {
	with := func(flaws loginFlaws) func(*testing.T) {
		return func(t *testing.T) {
			stores.LoginStoreContract(t, func(*testing.T) stores.Logins {
				s := &brokenLogins{Memory: auth.NewMemory(), flaws: flaws, all: make(chan struct{}, 1)}
				return stores.Logins{A: s, B: s}
			}, proptest.ContractOptions{Guard: 2 * time.Second})
		}
	}
	wantCaught(t, []violation{
		{"changes run at the same time", with(loginFlaws{unlocked: true}), "a key was locked, and another change of it was made"},
		{"a deleted entry is kept", with(loginFlaws{keepDeleted: true}), "and the entry of"},
		{"a failed change is saved", with(loginFlaws{saveFailed: true}), "and the entry of"},
		{"an error is not returned", with(loginFlaws{swallow: true}), "and Locked returned <nil>"},
		{"a secret is not saved", with(loginFlaws{entry: func(e *auth.Entry) { e.Proof = auth.Secret{} }}), "and the entry of"},
		{"times are rounded", with(loginFlaws{entry: func(e *auth.Entry) { e.Expires = e.Expires.Truncate(time.Second) }}), "and the entry of"},
		{"principals share a login", with(loginFlaws{key: func(k auth.Key) auth.Key { k.Principal = ""; return k }}), "and the entry of"},
		{"all keys have one lock", with(loginFlaws{oneLock: true}), "a change of a key while another is locked"},
		{"a Load waits", with(loginFlaws{loadWaits: true}), "a Load of a key that is locked"},
		{"a wait does not end with its context", with(loginFlaws{waitsForever: true}), "the wait for a lock did not return"},
		{"two programs do not share", func(t *testing.T) {
			stores.LoginStoreContract(t, func(*testing.T) stores.Logins {
				return stores.Logins{A: auth.NewMemory(), B: auth.NewMemory()}
			}, proptest.ContractOptions{Guard: 2 * time.Second})
		}, "and the entry of"},
	})
}
