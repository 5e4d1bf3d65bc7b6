package server

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/internal/reports"
	"github.com/bowline-mcp/bowline/features/internal/tracing"
	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Request is a request or a notification, as handlers and middleware see it.
// Treat it as read-only: a middleware that changes something passes a copy on.
type Request struct {
	Method string

	// Params points to the params of the method, such as *protocol.CallToolParams.
	// It is a json.RawMessage for a method that the server does not offer, and for
	// notifications of clients.
	Params any

	// Client describes the client, as it was for this request. It is never nil.
	Client *Client

	// Session is the legacy session that the request belongs to. It is nil in the
	// modern revisions.
	Session *Session

	// Origin says where the request came from. It is never nil. An outgoing message
	// has the Origin of the request that it belongs to.
	Origin *transport.Origin

	// Outgoing says that the server sends the message: a question or a notification.
	Outgoing bool

	// Notification says that nobody expects an answer.
	Notification bool

	// Answers holds the client's answers, by key, for a handler that returned
	// InputRequired. It is nil in the first round.
	Answers protocol.InputResponses

	call *call  // the call it belongs to; nil for a notification without a request
	peer *peer  // the receiver of an outgoing message; otherwise nil
	sent *int64 // the id of a question; set when it was sent
}

// Target returns the name of the tool or prompt that serves the request. It is known
// after the handler has returned. For any other request, and for a name that the
// server does not know, it returns "".
func (r *Request) Target() string {
	if r.call == nil || r.Outgoing {
		return ""
	}
	return r.call.in.Target()
}

// ID returns the JSON-RPC id of the message. A request from a client has its id from the
// start. A question to a legacy client has one after the next Handler has returned, if the
// question was sent. Other messages have the zero ID.
func (r *Request) ID() jsonrpc.ID {
	switch {
	case r.sent != nil && *r.sent != 0:
		return jsonrpc.IntegerID(*r.sent)
	case r.call == nil || r.Outgoing:
		return jsonrpc.ID{}
	default:
		return r.call.in.ID()
	}
}

// Conn returns the connection that the message came on or goes out on.
func (r *Request) Conn() *conn.Conn { return r.peer.conn }

// A Client describes the client that made a request, as reported by the client
// itself: when it opened its session (legacy), or in the request (modern). It does
// not change.
type Client struct {
	ProtocolVersion string // the revision of this request
	Info            protocol.Implementation
	Capabilities    protocol.ClientCapabilities
}

type requestKey struct{}

// RequestFrom returns the request that is being served. It returns nil if ctx is
// not that of a handler or a middleware.
func RequestFrom(ctx context.Context) *Request {
	r, _ := ctx.Value(requestKey{}).(*Request)
	return r
}

// Poll closes the connection on which the client waits for the answer, and makes the
// client reconnect after the delay. So a long call needs no open connection. What the
// handler sends in the meantime is kept for the client. Poll returns false, and does
// nothing, if that is not possible: it needs Streamable HTTP of 2025-11-25, and a
// client that is connected.
func Poll(ctx context.Context, after time.Duration) bool {
	x := exchangeFrom(ctx)
	return x != nil && x.Poll(after)
}

// Stream starts the response now, as a stream of events. Otherwise the response
// starts with the first message that the handler sends, and is plain JSON if that
// message is the answer. Stream returns false if the transport does not offer this
// choice.
func Stream(ctx context.Context) bool {
	x := exchangeFrom(ctx)
	return x != nil && x.Events()
}

func exchangeFrom(ctx context.Context) transport.Exchange {
	r := RequestFrom(ctx)
	if r == nil || r.Origin == nil {
		return nil
	}
	return r.Origin.Exchange
}

// A Number is any type of number.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Progress reports the progress of the request, if the client asked for it. Done must
// grow from call to call; other values are dropped. Total is 0 if it is unknown.
// Progress never blocks. While the connection is busy, up to 16 reports wait; after
// that the newest replaces the one before it. All reports are sent before the answer.
// In a task, progress becomes the status message. Outside of a request Progress does
// nothing.
func Progress[N Number](ctx context.Context, done, total N, message string) {
	r := RequestFrom(ctx)
	if r == nil {
		return
	}
	c := r.call
	if c.task != nil {
		if c.task.of.Progress(float64(done), float64(total), message) {
			return
		}
		// It is no task yet, so the client waits for the answer to the request, on its stream.
		c = c.task.first
	}
	if !c.token.IsZero() {
		c.progress(ctx, float64(done), float64(total), message)
	}
}

// OnProgress returns a context for questions: the client is asked to report how far each answer is, and f gets what it reports before
// the question returns, one report at a time. If f is slower than the client, it gets the newest. It serves Session.Roots, too.
//
// The client reports nothing in 2026-07-28, where questions are no requests, and f is not called either for a handler that
// Reruns, for one that returns InputRequired, and in a task: there the asker does not wait for the answer itself.
func OnProgress(ctx context.Context, f func(*protocol.ProgressParams)) context.Context {
	var one sync.Mutex
	return context.WithValue(ctx, onProgressKey{}, reports.To(func(p *protocol.ProgressParams) {
		one.Lock()
		defer one.Unlock()
		f(p)
	}))
}

type onProgressKey struct{}

// tell sends a notification that belongs to no request.
// Only a legacy client gets such notifications, and only after initialize: before that it has no session, which this
// needs.
func (p *peer) tell(ctx context.Context, method string, params any) error {
	session := p.session.Load()
	_, err := p.server.handle(ctx, &Request{
		Method: method, Params: params, Client: session.client, Session: session, Origin: &p.server.noOrigin,
		Outgoing: true, Notification: true, peer: p,
	})
	return err
}

// notify is the innermost handler of an outgoing notification.
func (r *Request) notify(ctx context.Context) error {
	var raw json.RawMessage
	if r.Params != nil {
		var err error
		if raw, err = protocol.Marshal(r.Params); err != nil {
			return err
		}
	}
	if len(r.peer.server.options.Middleware) > 0 {
		raw = tracing.Inject(ctx, raw)
	}
	isLog := r.Method == protocol.NotificationMessage // which must not block the program
	switch {
	case r.call != nil && isLog:
		return r.call.in.TryNotify(ctx, r.Method, raw)
	case r.call != nil:
		return r.call.in.Notify(ctx, r.Method, raw)
	case isLog:
		return r.peer.conn.TryNotify(ctx, r.Method, raw)
	default:
		return r.peer.conn.Notify(ctx, r.Method, raw)
	}
}

// withProgressToken returns the params of a question with this token, or with none if it is zero. What the program itself has set there
// would be the token of another request of the connection.
func withProgressToken(params json.RawMessage, token jsonrpc.ID) json.RawMessage {
	meta, _ := jsonrpc.Member(params, "_meta")
	if own, _ := jsonrpc.Member(meta, protocol.MetaProgressToken); own == nil && token.IsZero() {
		return params
	}
	members := scan.AppendMembers([]byte{'{'}, meta, protocol.MetaProgressToken)
	if !token.IsZero() {
		if len(members) > len("{") {
			members = append(members, ',')
		}
		members = token.Append(append(members, `"`+protocol.MetaProgressToken+`":`...))
	}
	changed := scan.AppendMembers([]byte{'{'}, params, "_meta")
	if len(changed) > len("{") {
		changed = append(changed, ',')
	}
	return append(append(append(changed, `"_meta":`...), members...), '}', '}')
}

// ask is the innermost handler of a question.
func (r *Request) ask(ctx context.Context) (any, error) {
	raw, err := protocol.Marshal(r.Params)
	if err != nil {
		return nil, err
	}
	raw = tracing.Inject(ctx, raw)
	send := r.peer.conn.Call
	if r.call != nil { // on the stream of the call
		send = r.call.in.Call
	}
	// No timeout of its own: ctx has the time for all questions that are asked together; see Rounds.Bound.
	var token jsonrpc.ID // that of the question is its id
	onProgress, _ := ctx.Value(onProgressKey{}).(func(json.RawMessage))
	reply, err := send(ctx, conn.Request{Method: r.Method, Timeout: -1, OnProgress: onProgress, MessageFor: conn.MessageFunc(func(_ context.Context, id int64, _ uint64) (conn.Message, error) {
		*r.sent = id
		if onProgress != nil {
			token = jsonrpc.IntegerID(id)
		}
		return conn.Message{Params: withProgressToken(raw, token)}, nil
	})})
	if err != nil {
		return nil, err
	}
	// By the kind of the question: what the client sends must not choose how it is read.
	var answer protocol.InputResponse
	switch r.Params.(type) {
	case *protocol.ElicitParams:
		answer = new(protocol.ElicitResult)
	case *protocol.CreateMessageParams:
		answer = new(protocol.CreateMessageResult)
	default:
		answer = new(protocol.ListRootsResult)
	}
	if err := protocol.Unmarshal(reply, answer); err != nil {
		return nil, &AnswerError{Key: r.Method, Err: errors.New(refusal.Explain(err))}
	}
	return answer, nil
}
