package registry

import (
	"context"
	"iter"
	"sync"
)

// A Store decides who has a name, among all that share the Store: within one
// process, or between processes that share etcd, Redis or the like. It knows
// holders, not Conns; a Conn never leaves its process. proptest.StoreContract
// checks an implementation.
//
// Its methods, and the functions it returns, may be called from any goroutine,
// and return soon after their context has ended. A Registry has at most one
// operation under way for each name.
type Store interface {
	// Claim takes a free name. It is atomic: of all concurrent claims of a name,
	// one succeeds. It fails with a *TakenError when somebody has the name, even
	// the same holder, with another error when the Store cannot tell, and when
	// ctx has ended. A failed Claim holds nothing; if the failure came too late
	// to undo the claim, the Store does not renew it. Names are compared byte by
	// byte.
	Claim(ctx context.Context, c Claim) (Release, error)

	// Watch yields who has which name, for all holders, until ctx ends or the
	// loop is left. The first map, possibly empty, contains all names. Each later
	// map contains the names that have changed; a name that became free has the
	// holder "". The loop may keep the maps.
	//
	// The states of one name come in order. A change that was undone before it
	// was yielded may be left out, so that the memory for a slow loop is bounded
	// by the number of names.
	//
	// If Watch may have missed a change that it cannot make up for, it yields an
	// error and ends. Another Watch then begins with all names.
	Watch(ctx context.Context) iter.Seq2[map[string]string, error]
}

// A Claim asks a Store for a name.
type Claim struct {
	Name   string
	Holder string // what other processes see as the holder; not empty

	// Lost must be called when the claim ends without its Release: the lease has
	// expired, or somebody has removed the claim. It may be called before Claim
	// has returned. It is not nil and does not block for long. A second call, or
	// a call after Release was called, has no effect.
	//
	// A Store with leases calls Lost before anybody else can get the name. It
	// decides by its own clock, so it does so even when it cannot reach its
	// server.
	Lost func(error)
}

// A Release gives up the claim that it was returned with, and no later claim of
// the same name. When it returns nil, the name is free. A second call, or a call
// after Lost, has no effect. After the call the Store does not renew the claim.
// So the claim ends with its lease even when Release fails.
type Release func(context.Context) error

// A Local is a Store for one process: a map. The zero value is ready to use. It
// never loses a claim, never waits, and has no goroutine.
type Local struct {
	mu     sync.Mutex
	claims map[string]*localClaim
	feeds  feeds[string]
}

// A localClaim is compared by its address: two claims of one name by one holder
// differ.
type localClaim struct{ holder string }

// Claim implements Store.
func (l *Local) Claim(ctx context.Context, c Claim) (Release, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if by := l.claims[c.Name]; by != nil {
		return nil, &TakenError{Name: c.Name, Holder: by.holder}
	}
	if l.claims == nil {
		l.claims = map[string]*localClaim{}
	}
	claim := &localClaim{c.Holder}
	l.claims[c.Name] = claim
	l.feeds.publish(c.Name, c.Holder, nil)
	return func(context.Context) error { l.release(c.Name, claim); return nil }, nil
}

func (l *Local) release(name string, claim *localClaim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claims[name] == claim {
		delete(l.claims, name)
		l.feeds.publish(name, "", nil)
	}
}

// Watch implements Store. It yields no error.
func (l *Local) Watch(ctx context.Context) iter.Seq2[map[string]string, error] {
	return func(yield func(map[string]string, error) bool) {
		f := l.subscribe()
		defer l.unsubscribe(f)
		for first := true; ctx.Err() == nil; first = false {
			if changed := l.take(f); (first || len(changed) > 0) && !yield(changed, nil) {
				return
			}
			if !f.await(ctx) {
				return
			}
		}
	}
}

func (l *Local) subscribe() *feed[string] {
	f := newFeed[string]()
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, claim := range l.claims {
		f.set(name, claim.holder, nil)
	}
	l.feeds.add(f)
	return f
}

func (l *Local) unsubscribe(f *feed[string]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.feeds, f)
}

// take takes all pending updates.
func (l *Local) take(f *feed[string]) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]string{}
	for u, ok := f.next(); ok; u, ok = f.next() {
		all[u.name] = u.now
	}
	return all
}
