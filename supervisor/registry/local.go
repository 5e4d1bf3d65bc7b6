package registry

import (
	"context"
	"iter"
	"sync"
)

// A Local is a Store for one process: a map. The zero value is ready. It loses
// no claim, answers at once, and has no goroutine.
type Local struct {
	mu     sync.Mutex
	claims map[string]*localClaim
	feeds  feeds[string]
}

// A localClaim is one claim: the same name by the same holder is another, later.
type localClaim struct{ holder string }

// Claim takes a name that is free.
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
	l.feeds.tell(c.Name, c.Holder, nil)
	return func(context.Context) error { l.release(c.Name, claim); return nil }, nil
}

func (l *Local) release(name string, claim *localClaim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claims[name] == claim {
		delete(l.claims, name)
		l.feeds.tell(name, "", nil)
	}
}

// Watch tells who has which name. It yields no error.
func (l *Local) Watch(ctx context.Context) iter.Seq2[map[string]string, error] {
	return func(yield func(map[string]string, error) bool) {
		f := l.follow()
		defer l.leave(f)
		for first := true; ctx.Err() == nil; first = false {
			if news := l.news(f); (first || len(news) > 0) && !yield(news, nil) {
				return
			}
			if !f.await(ctx) {
				return
			}
		}
	}
}

func (l *Local) follow() *feed[string] {
	f := newFeed[string]()
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, claim := range l.claims {
		f.set(name, claim.holder, nil)
	}
	l.feeds.join(f)
	return f
}

func (l *Local) leave(f *feed[string]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.feeds.leave(f)
}

// news takes all that is due.
func (l *Local) news(f *feed[string]) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]string{}
	for n, ok := f.next(); ok; n, ok = f.next() {
		all[n.name] = n.now
	}
	return all
}
