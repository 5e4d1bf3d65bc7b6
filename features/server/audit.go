package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// A Record says how one request from a client has ended; see Options.Audit. It is read-only.
type Record struct {
	Time     time.Time     // when the request came in
	Duration time.Duration // from then until its end
	Method   string        // as the client sent it; "" if the message could not be read
	Name     string        // the tool, prompt, resource or task that the request named; "" if none
	ID       jsonrpc.ID    // zero for a notification, and if the id could not be read

	// Origin says who sent the request: address, headers, Identity and Principal. It is never
	// nil. Identity and Principal are zero if nobody was authenticated.
	Origin *transport.Origin

	Client  *Client  // as in Request; nil if the request ended before that was known
	Session *Session // as in Request; nil if there is none, or the request ended before that was known

	Outcome Outcome
	Code    int64 // the code of the JSON-RPC error in the answer; 0: there is none
	Status  int   // the HTTP status with which the request was refused; 0 if it reached the server
	Err     error // why the request was not answered with a result; nil for OutcomeAnswered and OutcomeToolError
	Note    any   // what the handler has added last; see Note
}

// An Outcome says how a request from a client has ended.
type Outcome string

// These are the outcomes. After OutcomeInvalid, OutcomeDenied and OutcomeRefused, certainly no
// feature of the program has run for the request.
const (
	OutcomeAnswered  Outcome = "answered"   // with a result
	OutcomeToolError Outcome = "tool error" // with the result of a tool that says that it has failed (IsError)
	OutcomeFailed    Outcome = "failed"     // with an error, by a feature or a middleware
	OutcomePanicked  Outcome = "panicked"   // code of the program panicked
	OutcomeCancelled Outcome = "cancelled"  // the client has cancelled it or left, or the connection has ended
	OutcomeInvalid   Outcome = "invalid"    // it is no message, names no known method or revision, or its headers or params are malformed
	OutcomeDenied    Outcome = "denied"     // its sender may not do that: Check, Caller.Allow, Identify, origin or host
	OutcomeRefused   Outcome = "refused"    // too much is going on, it is too large, its session has ended, or the server is closing
)

// audited is the handler of a link of a server with Options.Audit.
type audited struct {
	connHandler
	calls sync.Map // the calls of requests whose client is known, by *conn.Incoming
}

// ServeRequest implements conn.Handler.
func (a *audited) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	return a.serve(ctx, in, a)
}

// know remembers a call until its end.
// What the record needs is copied now, because the handler may change the call, and a record may be made while it
// runs. It may be called for a link without an audit.
func (a *audited) know(c *call) {
	if a != nil {
		method, _ := protocol.MethodInfo(c.Method)
		a.calls.Store(c.in, &knownCall{c, method.NameOf(c.in.Params), c.Client, c.Session})
	}
}

// A knownCall is a call, and what its record contains even while its handler runs.
type knownCall struct {
	*call
	about   string
	client  *Client
	session *Session
}

// RequestEnded implements conn.Auditor.
func (a *audited) RequestEnded(ctx context.Context, in *conn.Incoming, e telemetry.ServeStopped) {
	r := Record{
		Duration: e.Queued + e.Duration, Method: in.Method, ID: in.ID(), Origin: cmp.Or(in.Origin, &a.server.noOrigin),
		Code: e.Code, Err: e.Err,
	}
	r.Time = time.Now().Add(-r.Duration)
	// The Conn calls this once for each request, so nothing stays in the map, whichever way the request has ended.
	known, found := a.calls.LoadAndDelete(in)
	if found {
		c := known.(*knownCall)
		ctx, r.Name, r.Client, r.Session = c.call, c.about, c.client, c.session
		r.Outcome = c.outcome(e.Outcome)
		r.Note = c.noted()
	} else {
		if e.Method != "" {
			method, _ := protocol.MethodInfo(e.Method)
			r.Name = method.NameOf(in.Params)
		}
		r.Outcome = outcomeOf(&e)
	}
	// An initialize has begun the session only after its client was looked for; and a request that was never served
	// belongs to the session of its link.
	if session := a.session.Load(); session != nil && (r.Client == nil || r.Method == protocol.MethodInitialize) {
		r.Session, r.Client = session, session.client
	}
	a.server.options.Audit(ctx, r)
}

// Note adds something to the Record of the request that is being served: what only its handler knows, and who reads records wants to know. It replaces what was
// added before. Nothing happens if ctx is not that of a handler.
func Note(ctx context.Context, note any) {
	if r := RequestFrom(ctx); r != nil {
		r.call.mu.Lock()
		defer r.call.mu.Unlock()
		r.call.note = note
	}
}

func (c *call) noted() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.note
}

// outcome returns the outcome of a call whose client is known. What the handler has written may
// be read only if it has returned.
func (c *call) outcome(how telemetry.Outcome) Outcome {
	switch how {
	case telemetry.ServeAnswered:
		if result, ok := c.result.(*protocol.CallToolResult); ok && result != nil && result.IsError {
			return OutcomeToolError
		}
		return OutcomeAnswered
	case telemetry.ServePanicked:
		return OutcomePanicked
	case telemetry.ServeFailed:
		if c.noPlace {
			return OutcomeRefused
		}
		if !c.entered || c.method == nil && c.peer.server.options.Fallback == nil {
			return OutcomeInvalid
		}
		return OutcomeFailed
	// The handler may still run, so nothing of the call is read here.
	default:
		return OutcomeCancelled
	}
}

// outcomeOf returns the outcome of a request whose client was not found out.
func outcomeOf(e *telemetry.ServeStopped) Outcome {
	switch e.Outcome {
	case telemetry.ServeAnswered: // a probe
		return OutcomeAnswered
	case telemetry.ServePanicked:
		return OutcomePanicked
	case telemetry.ServeRefused:
		if e.Code == jsonrpc.CodeInvalidRequest { // its id is in use
			return OutcomeInvalid
		}
		return OutcomeRefused
	case telemetry.ServeCancelled:
		return OutcomeCancelled
	default:
		if errors.As(e.Err, new(*transport.OversizedError)) {
			return OutcomeRefused
		}
		return OutcomeInvalid
	}
}
