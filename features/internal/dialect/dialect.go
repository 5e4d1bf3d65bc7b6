// Package dialect tells a Conn what MCP means by a message.
package dialect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Dialect tells a Conn what MCP messages mean, in every revision. It reads the
// era of a message from the message itself. The zero value is ready to use, and
// safe for concurrent use.
type Dialect struct {
	// Batching says that this side is a server that speaks the revision with
	// batches. It is set before use.
	Batching bool

	// Serving says that this side is a server. It is set before use. A client that has not opened a session is not probed: it may be modern, and
	// takes no requests then.
	Serving bool

	// Immediate says that this side is a server that serves what opens a session without
	// code of the program's. It is set before use.
	Immediate bool

	spoken   atomic.Uint32 // 1 and the index in revisions; 0 before one is spoken
	awaits   atomic.Bool
	roots    atomic.Uint32                // what RootsChanges returns
	discover atomic.Pointer[conn.Message] // server/discover; nil where there is a ping
}

// Negotiated says which revision is spoken from here on: one of them has
// batches. The modern ones have no ping: there server/discover, with these
// params, asks for a sign of life.
func (d *Dialect) Negotiated(version string, discover json.RawMessage) {
	d.Spoke(version)
	d.discover.Store(nil)
	if protocol.IsModern(version) {
		d.discover.Store(&conn.Message{Method: protocol.MethodDiscover, Params: discover, Version: version})
	}
}

// revisions are those that there are. An index takes less of a connection than a name.
var revisions = protocol.Versions()

// Spoke says which revision the last message was of, on a link without negotiation.
func (d *Dialect) Spoke(version string) {
	d.spoken.Store(uint32(1 + slices.Index(revisions, version)))
}

// Version implements conn.Versioned.
func (d *Dialect) Version() string {
	if spoken := d.spoken.Load(); spoken > 0 {
		return revisions[spoken-1]
	}
	return ""
}

// Subscribed says whether the program has subscribed to something.
func (d *Dialect) Subscribed(something bool) { d.awaits.Store(something) }

// Awaits implements conn.Awaiting.
func (d *Dialect) Awaits() bool { return d.awaits.Load() }

// RootsChanges returns how often the client has reported other roots. A report counts before the
// messages behind it are delivered.
func (d *Dialect) RootsChanges() uint32 { return d.roots.Load() }

// Probe implements conn.Dialect.
func (d *Dialect) Probe() conn.Message {
	if discover := d.discover.Load(); discover != nil {
		return *discover
	}
	if d.Serving && !protocol.IsLegacy(d.Version()) {
		return conn.Message{}
	}
	return conn.Message{Method: protocol.MethodPing}
}

// Batches implements conn.Dialect.
func (d *Dialect) Batches() bool { return revision.Has(d.Version(), revision.Batches) }

// Classify implements conn.Dialect. A notification that it cannot read is
// ordinary: the handler ignores it, as the specification asks.
func (d *Dialect) Classify(m jsonrpc.Message) conn.Class {
	switch {
	case m.Kind == jsonrpc.KindRequest:
		return d.classifyRequest(&m)
	case m.Method == protocol.NotificationProgress:
		return classifyProgress(m.Params)
	case m.Method == protocol.NotificationCancelled:
		return classifyCancelled(m.Params)
	default:
		return d.classifyNotification(&m)
	}
}

// classifyNotification says what may be done without when too many wait: of
// what only tells that something has changed the newest is enough, and a log,
// and what is unknown here, may have gaps.
func (d *Dialect) classifyNotification(m *jsonrpc.Message) conn.Class {
	switch m.Method {
	case protocol.NotificationInitialized, protocol.NotificationAcknowledged:
		return conn.Class{Immediate: d.Immediate && m.Method == protocol.NotificationInitialized}
	case protocol.NotificationRootsListChanged:
		d.roots.Add(1)
		return conn.Class{Key: m.Method}
	case protocol.NotificationToolsListChanged, protocol.NotificationPromptsListChanged,
		protocol.NotificationResourcesListChanged, protocol.NotificationResourcesUpdated:
		return conn.Class{Key: m.Method + subject(m.Params)}
	default:
		return conn.Class{Droppable: true}
	}
}

// subject returns the resource and the subscription that a change notification names.
func subject(params json.RawMessage) string {
	var changed struct {
		URI  string `json:"uri"`
		Meta struct {
			Subscription json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
		} `json:"_meta"`
	}
	if len(params) == 0 || protocol.Unmarshal(params, &changed) != nil {
		return ""
	}
	return " " + changed.URI + " " + string(changed.Meta.Subscription)
}

func (d *Dialect) classifyRequest(m *jsonrpc.Message) conn.Class {
	switch m.Method {
	case protocol.MethodPing:
		if !modern(m) {
			return conn.Class{Kind: conn.Probe, Answer: json.RawMessage("{}")}
		}
	case protocol.MethodInitialize:
		if !modern(m) { // what a client sends right behind it belongs to the session it opens
			return conn.Class{Kind: conn.Exclusive, Batches: d.Batching && asksForBatches(m), Immediate: d.Immediate}
		}
	case protocol.MethodDiscover:
		return conn.Class{Immediate: d.Immediate}
	case protocol.MethodListen, protocol.MethodGetTaskResult: // the latter is answered when a task has ended
		return conn.Class{Kind: conn.Streaming}
	case protocol.MethodCreateMessage, protocol.MethodElicit, protocol.MethodListRoots:
		return conn.Class{Kind: conn.Nested} // a server asks these only in order to answer (ADR-0003)
	}
	return conn.Class{}
}

// asksForBatches reports whether an initialize asks for the revision with batches. A
// server that speaks this revision agrees.
func asksForBatches(m *jsonrpc.Message) bool {
	if !bytes.Contains(m.Params, []byte(revision.Since(revision.Batches))) && !bytes.Contains(m.Params, []byte{'\\'}) {
		return false // as nearly always; it is not decoded twice for that
	}
	var params struct {
		Version string `json:"protocolVersion"`
	}
	return protocol.Unmarshal(m.Params, &params) == nil && revision.Has(params.Version, revision.Batches)
}

// modern reports whether a request says by itself which revision it speaks.
// There is no ping and no initialize in those that do.
func modern(m *jsonrpc.Message) bool {
	_, modern, _ := protocol.ModernContext(m.Params)
	return modern
}

func classifyProgress(params json.RawMessage) conn.Class {
	var progress struct {
		Token jsonrpc.ID `json:"progressToken"`
	}
	if protocol.Unmarshal(params, &progress) != nil || progress.Token.IsZero() {
		return conn.Class{}
	}
	return conn.Class{Kind: conn.Progress, Request: progress.Token}
}

func classifyCancelled(params json.RawMessage) conn.Class {
	var cancelled protocol.CancelledParams
	if protocol.Unmarshal(params, &cancelled) != nil || cancelled.RequestID.IsZero() {
		return conn.Class{}
	}
	return conn.Class{Kind: conn.Cancellation, Request: cancelled.RequestID}
}

// Cancel implements conn.Dialect. The peer learns whether time ran out or this side
// closes, and nothing else of why: a context's cause is the program's own.
func (d *Dialect) Cancel(id jsonrpc.ID, why error) conn.Message {
	reason := "cancelled"
	switch {
	case errors.Is(why, conn.ErrTimedOut), errors.Is(why, context.DeadlineExceeded):
		reason = "timed out"
	case errors.Is(why, conn.ErrDraining):
		reason = "closing"
	}
	params := id.Append([]byte(`{"requestId":`))
	params = append(params, `,"reason":"`+reason+`"}`...)
	return conn.Message{Method: protocol.NotificationCancelled, Params: params}
}
