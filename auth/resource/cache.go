package resource

import (
	"container/list"
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// tokenLife is how long a verified token is accepted without another verification.
	// introspectedLife is the same for a token that its issuer has confirmed.
	tokenLife        = time.Minute
	introspectedLife = 30 * time.Second

	// introspectedStream is how long a stream may continue after its token was
	// introspected. A shorter time would end every stream as often as the issuer is
	// asked.
	introspectedStream = 5 * time.Minute

	// refusedLife is how long the issuer is not asked again about a token that it has
	// not confirmed, because anybody can invent tokens.
	refusedLife = 5 * time.Second

	// maxTokens is how many accepted tokens are remembered, and maxRefused how many
	// refused ones.
	maxTokens  = 10_000
	maxRefused = 10_000
)

// tokens remembers the results for tokens, by their hash. If it is full, it forgets the
// one that was not used for longest.
type tokens struct {
	most int

	mu    sync.Mutex
	by    map[[sha256.Size]byte]*list.Element // elements are *known
	order list.List                           // the most recently used comes first
}

// A cachedToken is the result for a token: its principal, or why it is refused.
type cachedToken struct {
	hash    [sha256.Size]byte
	who     *Principal
	refused error // the fault of a refused token; nil if the token is accepted
	until   time.Time
}

func newTokens(most int) *tokens {
	return &tokens{most: most, by: make(map[[sha256.Size]byte]*list.Element)}
}

// find returns the result for a token, or nil if there is none.
func (t *tokens) find(hash [sha256.Size]byte) *cachedToken {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.by[hash]
	if found == nil {
		return nil
	}
	k := found.Value.(*cachedToken)
	if !time.Now().Before(k.until) {
		t.remove(found)
		return nil
	}
	t.order.MoveToFront(found)
	return k
}

// add remembers a result, but not after the token has expired.
func (t *tokens) add(k *cachedToken) {
	if k.who != nil && !k.who.Expires.IsZero() && k.who.Expires.Before(k.until) {
		k.until = k.who.Expires
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.by[k.hash]; old != nil {
		t.remove(old)
	}
	for len(t.by) >= t.most {
		t.remove(t.order.Back())
	}
	t.by[k.hash] = t.order.PushFront(k)
}

func (t *tokens) remove(e *list.Element) {
	delete(t.by, e.Value.(*cachedToken).hash)
	t.order.Remove(e)
}
