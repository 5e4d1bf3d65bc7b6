package conn

import (
	"encoding/json"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A Dialect tells the Conn what the protocol above JSON-RPC means by a message.
// Its methods must be pure functions and safe for concurrent use.
type Dialect interface {
	// Classify returns the class of a request or notification. It runs in the
	// goroutine that reads from the link. If it panics, the message is Ordinary.
	Classify(jsonrpc.Message) Class

	// Cancel returns the notification that tells the peer that this side ends a request,
	// and why: a request of its own, or a Streaming request of the peer that has just been
	// answered because the Conn drains. A Message without a method: none is sent.
	Cancel(id jsonrpc.ID, why error) Message

	// Probe returns a request that the peer answers without doing anything. A
	// Message without a method: the peer cannot be probed.
	Probe() Message

	// Batches reports whether the peer may send JSON-RPC batches now.
	Batches() bool
}

// Awaiting is an optional interface of a Dialect. It tells the Conn whether the
// program waits for messages that the peer sends on its own, for instance because it
// has subscribed to something. The Conn asks before each probe; see Options.Liveness.
type Awaiting interface {
	// Awaits reports whether the program waits now. It must return immediately, and
	// may be called from any goroutine.
	Awaits() bool
}

// Versioned is an optional interface of a Dialect that knows which revision of its
// protocol is spoken. telemetry.Transition names it when a ready connection ends (ADR-0060).
type Versioned interface {
	// Version returns the revision, or "" if it is not known. It must return immediately,
	// and may be called from any goroutine.
	Version() string
}

// A Class says how the Conn treats a message.
type Class struct {
	Kind    ClassKind
	Request jsonrpc.ID      // for Progress: the id of the request that this side made; for Cancellation: the id of the peer's request
	Answer  json.RawMessage // for Probe: the result of the answer

	// Key marks notifications that replace each other. When too many wait, only
	// the newest with the same key is kept. Empty: the notification replaces none.
	Key string

	// Batches marks a request that permits the peer to send batches. The permission
	// begins when the request arrives, even before it is answered; see
	// Dialect.Batches.
	Batches bool

	// Droppable marks a notification that may be dropped when too many wait. The
	// oldest go first.
	Droppable bool

	// Immediate promises that the Handler serves the message without waiting for
	// anything, and without calling or notifying the peer. The Conn's loop then serves
	// the message itself, which saves a goroutine (ADR-0054). It does not do so if the
	// frame is longer than 4 KiB, if Hooks.ServeStopped is set, or if an earlier
	// notification is still being handled.
	Immediate bool
}

// immediateSize is how long the frame of an Immediate message may be. Other messages
// wait while it is read.
const immediateSize = 4 << 10

// A ClassKind is the kind of a Class.
type ClassKind uint8

const (
	Ordinary     ClassKind = iota // for the Handler
	Progress                      // a notification that reports progress of a request that this side made
	Cancellation                  // a notification that the peer has abandoned one of its requests
	Probe                         // a request that the Conn answers itself, with Class.Answer
	Exclusive                     // a request that must be answered before others are served
	Streaming                     // a request that stays open until either side ends it
	Nested                        // a request that the peer makes in order to answer a request that this side made
)

// A plainDialect is JSON-RPC without a protocol above it.
type plainDialect struct{}

func (plainDialect) Classify(jsonrpc.Message) Class   { return Class{} }
func (plainDialect) Cancel(jsonrpc.ID, error) Message { return Message{} }
func (plainDialect) Probe() Message                   { return Message{} }
func (plainDialect) Batches() bool                    { return false }
