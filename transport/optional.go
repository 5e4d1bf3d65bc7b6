package transport

import (
	"context"
	"time"
)

// Checked is an optional interface of a Transport that can detect a wrong
// configuration before it is opened, such as a missing command or an invalid URL.
type Checked interface {
	// Check returns the error that Open would return for a wrong configuration, or
	// nil. It does no I/O.
	Check() error
}

// Reserver is an optional interface of an Exchange that limits how much its client leaves unread.
type Reserver interface {
	// Reserve takes room for an answer of about so many bytes, before it is encoded. It reports false if there
	// is none. Then the answer is dropped, and a short error takes its place.
	Reserve(bytes int) bool
}

// Flusher is an optional interface of a Link that can postpone work until its user
// has nothing else to do at the moment (ADR-0048).
type Flusher interface {
	// Flush does the work that Send and Grant have postponed. To use it, call Flush
	// once right after Bind. From then on, call it soon after each Send and Grant, or
	// after a few of them, and before you wait for anything. If nobody calls Flush,
	// the link postpones nothing. Flush never blocks, and may be called from any
	// goroutine, even after the link is lost. The depth is that of the Work that
	// calls Flush, and otherwise 0.
	Flush(depth int)

	// CloseNow closes the link as Close does and returns true, if that is possible without
	// waiting (ADR-0054). Otherwise it does nothing and returns false. It never blocks. A user
	// that calls Flush also calls it soon after CloseNow.
	CloseNow() bool
}

// A Doubter is an optional interface of a Receiver that can find out whether its peer is
// still there (ADR-0025).
type Doubter interface {
	// Doubt says that something between this side and the peer has answered the message
	// with that tag, or that the peer may have forgotten the session. The tag is zero if
	// the message has none. A link calls Doubt before it reports what became of the
	// message. Such an answer is no sign of life; see LinkTraits.
	Doubt(tag Tag, why error)
}

// A Runner is an optional interface of a Receiver that can process frames, and run handlers,
// on the goroutine of the link. This avoids switches to other goroutines (ADR-0048, ADR-0050,
// ADR-0055). The link calls its methods while it holds no lock that Send, Grant or Flush need.
// Any goroutine may call Work and Serve, also concurrently with other methods, when there is no
// work, and after Lost.
type Runner interface {
	// Work processes what earlier calls of Receive and Lost brought with Work set, and what
	// StreamBegun has promised. It does not block, but takes longer than other methods.
	//
	// The depth is 1, or, within Flush, one more than the depth given to Flush. If
	// the depth is more than 2, a Runner leaves the work to its own goroutine.
	// Otherwise two Runners could call each other forever.
	Work(depth int)

	// Serve does what Work(1) does, and may then run the handler of a request that has
	// come in. So it can take as long as a handler. If Serve takes long, or if it calls
	// leave, the link must continue to read on another goroutine. Leave may be called at
	// any time and from any goroutine. More says that the link already has further
	// frames.
	Serve(more bool, leave func())

	// StreamBegun replaces StreamOpened for a stream that the peer began. Like
	// Inbound.Work, it promises that Work is called soon. If it returns true, the frame
	// that began the stream follows immediately: it uses the credit that Work is going
	// to grant. A receiver that is closing returns false, and does nothing: then the
	// link calls StreamOpened, and waits for credit.
	StreamBegun(stream Stream) bool
}

// A Keeper is a Link of a server whose session may outlive the process: another process,
// or another node, continues it with a new Link.
type Keeper interface {
	// Keep stores what the server has to know to continue the session, and replaces what
	// was stored before. The state is JSON of at most 16 KiB, and belongs to the link. Keep
	// may be called from any goroutine, one call at a time, and never blocks. It has no
	// effect if sessions of this listener are not stored.
	Keep(state []byte)

	// Kept reports whether this link continues a session, and returns what was stored
	// last; nil if nothing was. Kept returns the same before and after Bind, whatever Keep
	// stores. The first message of the link is then the initialize of the session, and the
	// second one "notifications/initialized", both with the Origin of the request for which
	// the session is continued. What the server answers to the first, the client does not
	// see. All other messages follow that answer.
	Kept() (state []byte, continues bool)
}

// A Detacher is a Link of a server whose session goes on when the connection ends on which the client gets messages of Main: the client
// comes back with another one. Its methods may be called from any goroutine, and never block.
type Detacher interface {
	// ListensSince returns when the client has opened the connection that it has now; the zero time if it has none.
	ListensSince() time.Time

	// Detach closes that connection, if there is one.
	Detach()
}

// A Forwarder is an Exchange of an endpoint that several nodes serve. With it the server of
// one node gets what only another node has.
type Forwarder interface {
	// Forward sends a request of a revision without sessions to another node, as if the
	// client had sent it there, with the credentials of its present request. It returns the
	// response of that node, which may be an error response. Its own error says that there is
	// no response: the node is not there, or may have executed the request. Forward
	// blocks until then, at most until ctx ends.
	Forward(ctx context.Context, node string, request Outbound) (response []byte, err error)
}
