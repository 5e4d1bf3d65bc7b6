//bowline:pure

package catalogue

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A CursorError means that a cursor was not made by this list of a gateway. A client gets it as -32602.
type CursorError struct{ Kind Kind }

// Error implements error.
func (e *CursorError) Error() string {
	return fmt.Sprintf("the cursor is not one of this gateway's list of %s: ask for the first page", e.Kind)
}

// MaxPage is the size of a page, if it has more than one item. Clients refuse messages above a limit, which is 16 MiB for those of this module: one server
// with long entries must not cost a client the tools of all.
const MaxPage = 4 << 20

// Page returns up to size items, MaxPage bytes together, after those before the cursor, and the cursor of the next page
// if there is one. A cursor names the last item of its page, so it holds when items come and go, on every node, and
// after a restart. It fails with a [*CursorError].
func (s *Snapshot) Page(kind Kind, cursor *string, size int) (page []Item, next *string, err error) {
	items := s.Items(kind)
	if cursor != nil {
		last, ok := decode(kind, *cursor)
		if !ok {
			return nil, nil, &CursorError{kind}
		}
		at, found := slices.BinarySearchFunc(items, last, func(item Item, name string) int { return strings.Compare(item.Name, name) })
		if found {
			at++
		}
		items = items[at:]
	}
	page, more := begin(items, size)
	if more {
		last := encode(kind, page[len(page)-1].Name)
		next = &last
	}
	return page, next, nil
}

// begin returns the items of a page, and whether others follow.
func begin(items []Item, size int) (page []Item, more bool) {
	bytes := 0
	for i, item := range items {
		if bytes += len(item.Raw); i == max(size, 1) || i > 0 && bytes > MaxPage {
			return items[:i], true
		}
	}
	return items, false
}

const checked = 6 // bytes of a digest, which tell our cursors from those of servers and of other lists

func encode(kind Kind, last string) string {
	sum := sha256.Sum256([]byte(string(kind) + "\x00" + last))
	return base64.RawURLEncoding.EncodeToString(append(sum[:checked], last...))
}

func decode(kind Kind, cursor string) (last string, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) <= checked {
		return "", false
	}
	last = string(raw[checked:])
	return last, encode(kind, last) == cursor
}

// WhileAway is how long a list may be cached in which a server that is away takes part: it soon says more.
const WhileAway = 5 * time.Second

// A Hint says for how long, and for whom, a list may be cached.
type Hint struct {
	TTL     time.Duration
	Private bool // only for the client that has asked
}

// Hint returns the least of what those servers say that have entries in a list, or may soon have some. Away reports whether a server cannot be
// reached now.
func (s *Snapshot) Hint(kind Kind, away func(server string) bool) Hint {
	var hint Hint
	several := false
	for _, one := range s.servers {
		list, known := one.lists[kind]
		ttl := list.ttl
		switch {
		case !known:
			ttl = WhileAway
		case away(one.Name):
			ttl = min(ttl, WhileAway)
		case len(list.entries) == 0:
			continue
		}
		if !several || ttl < hint.TTL {
			hint.TTL = ttl
		}
		several, hint.Private = true, hint.Private || list.private
	}
	return hint
}
