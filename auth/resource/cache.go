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

	// introspectedStream is how long a stream may outlive what its issuer has said of its token.
	// Shorter, and every stream would be cut as often as the issuer is asked.
	introspectedStream = 5 * time.Minute

	// refusedLife is how long a token that its issuer does not confirm is not asked about
	// again: anybody can invent one.
	refusedLife = 5 * time.Second

	// mostTokens is how many tokens are remembered, and mostRefused how many refused ones.
	mostTokens  = 10_000
	mostRefused = 10_000
)

// tokens remembers what is known of tokens, by their hash: the one that was not used for longest
// makes room.
type tokens struct {
	most int

	mu    sync.Mutex
	by    map[[sha256.Size]byte]*list.Element // of *known
	order list.List                           // used last, first
}

// known is what is known of a token: whom it speaks for, or why it is refused.
type known struct {
	hash    [sha256.Size]byte
	who     *Principal
	refused error // a fault
	until   time.Time
}

func newTokens(most int) *tokens {
	return &tokens{most: most, by: make(map[[sha256.Size]byte]*list.Element)}
}

// find returns what is known of a token; nil: nothing.
func (t *tokens) find(hash [sha256.Size]byte) *known {
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
	return k
}

// add remembers a token, but no longer than until it expires.
func (t *tokens) add(k *known) {
	if k.who != nil && !k.who.Expires.IsZero() && k.who.Expires.Before(k.until) {
		k.until = k.who.Expires
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.by[k.hash]; old != nil {
		t.forget(old)
	}
	for len(t.by) >= t.most {
		t.forget(t.order.Back())
	}
	t.by[k.hash] = t.order.PushFront(k)
}

func (t *tokens) forget(e *list.Element) {
	delete(t.by, e.Value.(*known).hash)
	t.order.Remove(e)
}
