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

// Named is an optional interface of a Transport that can name its peer by its command
// or host, for people and logs. The name reveals no credentials, and need not be
// unique.
type Named interface {
	// Name returns the name, or "" if there is none.
	Name() string
}

// Located is an optional interface of a Transport that knows where its peer is.
// Transports with the same endpoint lose and regain their peer together, so a Client
// can reconnect all of them when one succeeds.
type Located interface {
	// Endpoint returns the location of the peer, for instance
	// "https://mcp.example.com". It returns "" if the location is unknown, or if no
	// other transport can reach the same peer. It reveals no credentials.
	Endpoint() string
}

// ProcessStarter is an optional interface of a Transport whose links start their peer as a
// process. Such a peer may download and install itself before it sends its first message,
// so it gets more time for that (ADR-0001).
type ProcessStarter interface {
	// StartsProcess reports whether Open starts a process.
	StartsProcess() bool
}

// ArgumentMirror is an optional interface of a Transport whose links also send
// Route.Arguments outside of the message, as MCP over HTTP does in headers.
type ArgumentMirror interface {
	// MirrorsArguments reports whether the links use Route.Arguments.
	MirrorsArguments() bool
}

// NonBlockingOpener is an optional interface of a Transport that may open links without
// waiting (ADR-0054).
type NonBlockingOpener interface {
	// OpensAtOnce reports whether Open never waits for anything.
	OpensAtOnce() bool
}

// Reserver is an optional interface of an Exchange that limits how much its client leaves unread.
type Reserver interface {
	// Reserve takes room for an answer of about so many bytes, before it is encoded. It reports false if there
	// is none. Then the answer is dropped, and a short error takes its place.
	Reserve(bytes int) bool
}

// ActivityRecorder is an optional interface of a Link that records when bytes came in.
// So a peer that is sending a large frame slowly is not mistaken for a peer that is
// gone. If a link does not implement it, its peer is probed only if the program asks for
// it (ADR-0025). Heard may be called from any goroutine, at any time.
type ActivityRecorder interface {
	// Heard returns when bytes last came in, on any stream, or the zero time if none
	// have. If ok is false, the link does not know, for instance because it wraps
	// another link.
	Heard() (last time.Time, ok bool)
}

// RequestPerMessage is an optional interface of a Link on which each message is a
// separate request to the server, as over HTTP. By default, its peer is probed every few
// seconds while something waits for it, and otherwise at most once a minute
// (ADR-0025).
type RequestPerMessage interface {
	// Requests reports whether each message is a separate request. The result never
	// changes.
	Requests() bool
}

// Networked is an optional interface of a Link that knows something about the network
// connection to its peer, for telemetry (ADR-0061). A client's link learns it from the
// responses, a server's link from the request that opened it.
type Networked interface {
	// Network returns what is known now. It may be called from any goroutine, at any
	// time, also after the link is lost.
	Network() Network
}

// A Network is what a link knows about the connection to its peer. In the zero Network,
// nothing is known.
type Network struct {
	// HTTP is a version of HTTP, such as "1.1" or "2". On a client's link it is that of the
	// last response, and empty before the first. On a server's link it is that of the
	// request that opened the link. It is empty on links that are not HTTP.
	HTTP string

	// Session is the id of the session, as in the header Mcp-Session-Id. It is empty if
	// there is none. Treat it as a secret: whoever knows it may take part.
	Session string
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
}

// NonBlockingCloser is an optional interface of a Link that may be closed without waiting
// (ADR-0054).
type NonBlockingCloser interface {
	// CloseNow closes the link as Close does and returns true, if that is possible without
	// waiting. Otherwise it does nothing and returns false. It never blocks. A user that
	// calls Flush also calls it soon after CloseNow.
	CloseNow() bool
}

// A Doubter is an optional interface of a Receiver that can find out whether its peer is
// still there (ADR-0025).
type Doubter interface {
	Receiver

	// Doubt says that something between this side and the peer has answered the message
	// with that tag, or that the peer may have forgotten the session. The tag is zero if
	// the message has none. A link calls Doubt before it reports what became of the
	// message. Such an answer is no sign of life; see ActivityRecorder.
	Doubt(tag Tag, why error)
}

// A Worker is a Receiver that can process a frame on the goroutine of the link. This
// avoids a switch to another goroutine (ADR-0048).
type Worker interface {
	Receiver

	// Work processes what earlier calls of Receive and Lost brought with Work set. The
	// link calls it while it holds no lock that Send, Grant or Flush need. Work does not
	// block, but takes longer than other methods. Any goroutine may call Work, also
	// concurrently with other methods, when there is no work, and after Lost.
	//
	// The depth is 1, or, within Flush, one more than the depth given to Flush. If
	// the depth is more than 2, a Worker leaves the work to its own goroutine.
	// Otherwise two Workers could call each other forever.
	Work(depth int)
}

// A ServingWorker is a Worker that can also run handlers on the goroutine of the link.
// So a request needs no separate goroutine (ADR-0055).
type ServingWorker interface {
	Worker

	// Serve does what Work(1) does, and may then run the handler of a request that has
	// come in. So it can take as long as a handler. If Serve takes long, or if it calls
	// leave, the link must continue to read on another goroutine. Leave may be called at
	// any time and from any goroutine. More says that the link already has further
	// frames.
	Serve(more bool, leave func())
}

// A StreamWorker is a Worker that also works on the streams that the peer begins
// (ADR-0050).
type StreamWorker interface {
	Worker

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

// A Forwarder is an Exchange of an endpoint that several nodes serve. With it the server of
// one node gets what only another node has.
type Forwarder interface {
	Exchange

	// Forward sends a request of a revision without sessions to another node, as if the
	// client had sent it there, with the credentials of its present request. It returns the
	// response of that node, which may be an error response. Its own error says that there is
	// no response: the node is not there, or may have executed the request. Forward
	// blocks until then, at most until ctx ends.
	Forward(ctx context.Context, node string, request Outbound) (response []byte, err error)
}
