package resource

import (
	"container/list"
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// tokenLife is how long a verified token is taken without being verified again, and
	// introspectedLife how long one that its issuer was asked about.
	tokenLife        = time.Minute
	introspectedLife = 30 * time.Second

	// mostTokens is how many are remembered.
	mostTokens = 10_000
)

// tokens remembers who verified tokens speak for, by their hash: the one that was not used for
// longest makes room.
type tokens struct {
	mu    sync.Mutex
	by    map[[sha256.Size]byte]*list.Element // of *known
	order list.List                           // used last, first
}

type known struct {
	hash  [sha256.Size]byte
	who   *Principal
	until time.Time
}

func newTokens() *tokens { return &tokens{by: make(map[[sha256.Size]byte]*list.Element)} }

func (t *tokens) find(hash [sha256.Size]byte) *Principal {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.by[hash]
	if found == nil {
		return nil
	}
	k := found.Value.(*known)
	if !time.Now().Before(k.until) {
		t.forget(found)
		return nil
	}
	t.order.MoveToFront(found)
	return k.who
}

// add remembers a token until a time, and no longer than until it expires.
func (t *tokens) add(hash [sha256.Size]byte, who *Principal, until time.Time) {
	if !who.Expires.IsZero() && who.Expires.Before(until) {
		until = who.Expires
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.by[hash]; old != nil {
		t.forget(old)
	}
	for len(t.by) >= mostTokens {
		t.forget(t.order.Back())
	}
	t.by[hash] = t.order.PushFront(&known{hash, who, until})
}

func (t *tokens) forget(e *list.Element) {
	delete(t.by, e.Value.(*known).hash)
	t.order.Remove(e)
}
