package conn

import (
	"encoding/json"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A Dialect says what the protocol above JSON-RPC means by a message. Its
// methods are pure functions and safe for concurrent use.
type Dialect interface {
	// Classify says what a request or notification is to the Conn itself. It
	// runs in the link's reading goroutine.
	Classify(*jsonrpc.Message) Class

	// Cancel returns the notification that tells the peer that our request id was
	// abandoned for the given reason. A Message without a method means that there
	// is no such notification.
	Cancel(id int64, why error) Message

	// Probe returns a request that asks for a sign of life and nothing else. A
	// Message without a method means that there is no such request.
	Probe() Message

	// Batches reports whether the peer may send batches at present.
	Batches() bool
}

// A Class is what a message is to the Conn itself.
type Class struct {
	Kind    ClassKind
	Request jsonrpc.ID      // Progress: our request. Cancellation: the peer's
	Answer  json.RawMessage // Probe: the result to answer with

	// Key tells the notifications that a newer one makes superfluous: of those
	// with the same key only the newest is kept when too many wait. Empty: all
	// are kept.
	Key string

	// Droppable is a notification that may be dropped when too many wait, the
	// oldest first.
	Droppable bool
}

// A ClassKind tells messages apart that the Conn handles by itself.
type ClassKind uint8

const (
	Ordinary     ClassKind = iota // the handler's
	Progress                      // a notification of progress of one of our requests
	Cancellation                  // a notification that the peer has abandoned one of its own
	Probe                         // a request that asks for a sign of life
	Exclusive                     // a request that those behind it wait for
	Streaming                     // a request that stays until either side ends it
	Nested                        // a request that the peer makes in order to answer one of ours
)

// guarded keeps a panic of a Dialect's from whoever asked it: the loop, or the
// goroutine that reads the link, which may even be the peer's.
type guarded struct {
	dialect Dialect
	report  func(where string, err error)
}

// Classify takes what the dialect cannot classify for an ordinary message.
func (g guarded) Classify(m *jsonrpc.Message) (class Class) {
	g.report("Dialect.Classify", guard(func() error { class = g.dialect.Classify(m); return nil }))
	return class
}

func (g guarded) Cancel(id int64, why error) (m Message) {
	g.report("Dialect.Cancel", guard(func() error { m = g.dialect.Cancel(id, why); return nil }))
	return m
}

func (g guarded) Probe() (m Message) {
	g.report("Dialect.Probe", guard(func() error { m = g.dialect.Probe(); return nil }))
	return m
}

func (g guarded) Batches() (may bool) {
	g.report("Dialect.Batches", guard(func() error { may = g.dialect.Batches(); return nil }))
	return may
}

// plain is JSON-RPC with nothing above it.
type plain struct{}

func (plain) Classify(*jsonrpc.Message) Class { return Class{} }
func (plain) Cancel(int64, error) Message     { return Message{} }
func (plain) Probe() Message                  { return Message{} }
func (plain) Batches() bool                   { return false }
