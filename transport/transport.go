package transport

import (
	"context"
	"time"
)

// A Transport opens links to one peer. Implementations are safe for
// concurrent use and may be opened again after a link is lost.
type Transport interface {
	// Open returns a live link, not yet delivering: delivery starts with
	// Link.Bind. The context bounds the opening only, never the life of the
	// link. A failed Open leaves nothing behind; its error is typed where the
	// cause is known (for instance *StartError).
	Open(ctx context.Context) (Link, error)
}

// A Link is one live connection to a peer: a process, a socket, a pair of
// queues. It carries frames, one JSON-RPC message each, and knows nothing of
// what they mean. Nothing in a link retries or reconnects.
//
// Send and Grant may be called from one goroutine at a time, Close from any.
type Link interface {
	// Bind names who receives, and is called once, before any other method
	// but Close. Nothing is delivered before it.
	Bind(Receiver)

	// Send takes the frame over, in order within its stream, and never
	// blocks. It returns nil once the frame is queued, ErrBusy when the
	// bounded queue is full (Receiver.Writable follows when it is not any
	// more; the frame stays the caller's), *OversizedError for a frame above
	// the limit, and ErrClosed after Close or loss.
	Send(Outbound) error

	// Grant lets a stream deliver that many more frames. A stream without
	// credit does not read beyond its stated read-ahead.
	Grant(stream Stream, frames int)

	// Close ends the link and everything it owns, and returns when all of it
	// is gone. What is queued is flushed first; a peer that has not gone by
	// itself is asked after 30 % of the grace and forced after 70 %. Close is
	// idempotent: later calls wait for the first, and a shorter grace shortens
	// it. It returns an error only when something was left behind.
	Close(grace time.Duration) error
}

// A Receiver is told what happens on a link. Its methods never block and never
// call back into the link. Calls for one stream come one at a time; nothing is
// called after Lost, and Lost is called exactly once, at the latest before
// Close returns.
type Receiver interface {
	// Receive takes one frame over, for one credit of its stream.
	Receive(Inbound)

	// Writable follows a Send that said ErrBusy: there is room again.
	Writable()

	// Failed says that one message did not go out although Send accepted it,
	// and that the link lives on.
	Failed(Failure)

	// Ended says that the peer will send nothing more, while what is sent to
	// it may still arrive: the end of a server's standard input.
	Ended()

	// Lost says that the link is over, and why.
	Lost(Loss)
}

// A Stream is an ordered lane within a link; credit, order and loss are per
// stream. A byte-stream transport has one: Main.
type Stream uint64

// Main is the only stream of a byte-stream transport.
const Main Stream = 0

// A Tag is the sender's name for an outbound message, given back when that
// message fails. Zero is for messages nobody asks after.
type Tag int64

// Outbound is a frame on its way out.
type Outbound struct {
	Stream Stream
	Tag    Tag
	Frame  []byte // one JSON-RPC message without framing; the link's from Send on
}

// Inbound is a frame that has come in. Exactly one of Frame and Err is set.
type Inbound struct {
	Stream Stream
	Frame  []byte // one JSON-RPC message without framing; the receiver's
	Err    error  // why a frame was refused and skipped, for instance *OversizedError
}

// A Failure is one outbound message that did not go out.
type Failure struct {
	Tag    Tag
	Err    error
	Unsent bool // no byte of it was accepted by the operating system
}

// A Loss is the end of a link.
type Loss struct {
	Reason error // typed where the cause is known: *ExitError, *OversizedError, ErrClosed
	Unsent []Tag // accepted by Send, no byte of them accepted by the operating system
}
