package streamable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// A SessionStore keeps what is needed to go on with a session after the process of its
// server has ended, or on another node. Implementations must be safe for concurrent use.
// Give each Handler a separate store.
//
// One node at a time owns a session: the one that called Save first, and then whoever Take
// gave it to.
type SessionStore interface {
	// Bind tells the store which function to call when another node has taken a session
	// that this node owned. NewHandler calls Bind once, before anything else. The store
	// does not call lost from within another of its methods, nor while it holds a lock that
	// they need. Lost ends the session's requests on this node, and waits until they have
	// ended: mostly not at all, and at most 5 s.
	Bind(lost func(session string))

	// Save stores the record of a session, and replaces an earlier one. The first Save of
	// a session makes this node its owner. Save must not block; it may leave out a record
	// if a newer one follows. It does nothing for a session that another node has taken.
	// The Handler calls Save when the session has begun or was taken, when its record has
	// changed, and otherwise after every quarter of SessionIdle, so that the store can tell
	// which sessions still exist. With many sessions it may take twice as long.
	Save(session string, r SessionRecord)

	// Take makes this node the owner of a session that has no living owner, and returns its
	// newest record. It returns ErrNoSession if there is no such session, or if it belongs
	// to another identity; the store does not change then. It returns an *OwnedError if
	// another node owns the session, or this node already does. Any other error means that
	// the store cannot tell now; a later Take at this node may succeed. Of several calls at
	// the same time, on any nodes, at most one returns a record. The Handler gives Take 5 s,
	// and calls it for at most 64 sessions at a time.
	Take(ctx context.Context, session, identity string) (SessionRecord, error)

	// Free gives up a session of this node, after its last Save, so that anyone may take it.
	// The Handler does so when it shuts down, and when it has taken a session and cannot
	// serve it. Free must not block.
	Free(session string)

	// Forget deletes a session of this node, which has ended. Forget must not block.
	Forget(session string)
}

// A SessionRecord is what a SessionStore keeps of a session. Nobody changes the bytes that it
// refers to.
type SessionRecord struct {
	Identity   string          // who opened the session; "" if anonymous
	Initialize json.RawMessage // the initialize request as the client sent it, at most MaxStoredInitialize bytes
	Version    string          // the revision that was negotiated
	State      json.RawMessage // the state of the server; see transport.Keeper
	Streams    uint64          // the numbers of streams, and of events of the GET stream, up to this one may be used up
}

// MaxStoredInitialize is the size of the longest initialize request that is stored, in
// bytes. A session that began with a longer one ends with its process.
const MaxStoredInitialize = 16 << 10

// ErrNoSession is returned by a SessionStore for a session that it does not know, or that
// belongs to another identity.
var ErrNoSession = errors.New("streamable: there is no such session")

// An OwnedError says that a session has an owner.
type OwnedError struct {
	Node string // the name of the owner, as Router.Node returns it there; "" for a store that only one node uses
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("streamable: the session is served by node %q", e.Node)
}
