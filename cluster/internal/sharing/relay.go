package sharing

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A relay passes one request on.
type relay struct {
	in     *conn.Incoming
	to     *conn.Conn
	down   bool            // to is the connection to the server
	params json.RawMessage // in place of those that came in; nil: they pass unchanged
	sent   func(id int64)  // is told the id of the request that is passed on; may be nil

	// Where the progress token is in the params; none if end is 0.
	begin, end int
	token      []byte
}

// pass passes a request on, and returns its answer. If a request to the server cannot be answered
// because its connection has ended, pass waits for the end of ctx: the client's connection ends,
// too, and so it learns that nobody knows whether the request was executed.
func (r *relay) pass(ctx context.Context) (json.RawMessage, error) {
	if r.params == nil {
		r.params = r.in.Params
	}
	if err := r.findToken(); err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	result, err := r.to.Call(ctx, conn.Request{
		MessageFor: r, Timeout: -1, Streaming: kindOf(r.in.Method) == conn.Streaming,
		Method: r.in.Method, Silent: r.in.Method == protocol.MethodInitialize,
		OnProgress: func(params json.RawMessage) { r.progress(ctx, params) },
	})
	var fault *jsonrpc.Error
	switch {
	case err == nil:
		return result, nil
	case errors.As(err, &fault):
		return nil, fault
	case conn.NotExecuted(err):
		return nil, errOverloaded(err)
	case r.down && linkIsLost(err):
		<-ctx.Done()
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
}

// linkIsLost reports whether a call failed because the whole connection has ended.
func linkIsLost(err error) bool {
	var call *conn.CallError
	var why conn.Reason
	return errors.As(err, &call) && (call.Cause == conn.LinkLost || call.Cause == conn.ShutDown) &&
		!(errors.As(err, &why) && why.Kind == conn.StreamLost)
}

func (r *relay) findToken() (err error) {
	if !mayHave(r.params, protocol.MetaProgressToken) {
		return nil
	}
	begin, end, found, err := member(r.params, "_meta", protocol.MetaProgressToken)
	if found {
		r.begin, r.end, r.token = begin, end, r.params[begin:end]
	}
	return err
}

// MakeMessage implements conn.MessageMaker. The id of the request is its progress token.
func (r *relay) MakeMessage(_ context.Context, id int64, _ uint64) (conn.Message, error) {
	if r.sent != nil {
		r.sent(id)
	}
	about, _ := protocol.MethodInfo(r.in.Method)
	m := conn.Message{Method: r.in.Method, Params: r.params, Name: about.NameOf(r.params)}
	if r.end > 0 {
		m.Params = replaced(r.params, r.begin, r.end, strconv.AppendInt(nil, id, 10))
	}
	if said, modern, err := protocol.ModernContext(r.params); modern && err == nil {
		m.Version = said.ProtocolVersion
	}
	return m, nil
}

// progress passes progress back, if the sender has asked for it.
func (r *relay) progress(ctx context.Context, params json.RawMessage) {
	begin, end, found, err := member(params, "progressToken")
	if r.end == 0 || !found || err != nil {
		return
	}
	_ = r.in.Notify(ctx, protocol.NotificationProgress, replaced(params, begin, end, r.token)) // it fails if the request has ended
}

// errOverloaded refuses a request that was not executed, in a way that clients know.
func errOverloaded(why error) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "not executed: " + why.Error()}
}

// A dialect is what a connection has to know of MCP to pass messages on. A ping is a request like
// any other: only the server itself can say that it is alive.
type dialect struct{}

// Classify implements conn.Dialect.
func (dialect) Classify(m jsonrpc.Message) conn.Class {
	if m.Kind == jsonrpc.KindRequest {
		return conn.Class{Kind: kindOf(m.Method)}
	}
	var about struct {
		Token     jsonrpc.ID `json:"progressToken"`
		RequestID jsonrpc.ID `json:"requestId"`
	}
	switch m.Method {
	case protocol.NotificationProgress:
		if protocol.Unmarshal(m.Params, &about) == nil && !about.Token.IsZero() {
			return conn.Class{Kind: conn.Progress, Request: about.Token}
		}
	case protocol.NotificationCancelled:
		if protocol.Unmarshal(m.Params, &about) == nil && !about.RequestID.IsZero() {
			return conn.Class{Kind: conn.Cancellation, Request: about.RequestID}
		}
	}
	return conn.Class{}
}

func kindOf(method string) conn.ClassKind {
	switch method {
	case protocol.MethodInitialize:
		return conn.Exclusive
	case protocol.MethodListen, protocol.MethodGetTaskResult:
		return conn.Streaming
	case protocol.MethodCreateMessage, protocol.MethodElicit, protocol.MethodListRoots:
		return conn.Nested
	default:
		return conn.Ordinary
	}
}

// Cancel implements conn.Dialect.
func (dialect) Cancel(id jsonrpc.ID, why error) conn.Message {
	reason := "cancelled"
	switch {
	case errors.Is(why, context.DeadlineExceeded):
		reason = "timed out"
	case errors.Is(why, conn.ErrDraining):
		reason = "closing"
	}
	params := append(id.Append([]byte(`{"requestId":`)), `,"reason":"`+reason+`"}`...)
	return conn.Message{Method: protocol.NotificationCancelled, Params: json.RawMessage(params)}
}

// Probe implements conn.Dialect: the clients probe the server.
func (dialect) Probe() conn.Message { return conn.Message{} }

// Batches implements conn.Dialect. A server of the revision with batches may send them.
func (dialect) Batches() bool { return true }
