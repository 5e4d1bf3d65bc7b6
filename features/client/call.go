package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/tracing"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// An attempt is the last try of a call: its id, and the server that it was for.
type attempt struct {
	id        int64
	peer      *peer
	raw       json.RawMessage // the result; nil without one
	asked     bool            // the call took more than one round
	fromCache bool            // the result comes from the cache
}

// call makes a request. If there is middleware, the request passes through it on the
// calling goroutine.
func (m *method[P, R, Q]) call(ctx context.Context, s *Session, params *P) (*R, error) {
	result, _, err := m.trace(ctx, s, params)
	return result, err
}

// trace does what call does, and also returns the last attempt, which is zero if
// middleware answered.
func (m *method[P, R, Q]) trace(ctx context.Context, s *Session, params *P) (*R, attempt, error) {
	if s.client.chain == nil {
		return m.send(ctx, s, params, nil)
	}
	one := new(struct { // one allocation, instead of one for the result alone
		request Request
		params  P
		sent    sent
		result  R
	})
	if params != nil {
		one.params = *params
	}
	one.sent.result = &one.result
	one.request = Request{Method: m.Name, Params: &one.params, Session: s, sent: &one.sent}
	result, err := as[R](s.client.chain(ctx, &one.request))
	last := one.sent.last
	one.sent.last.raw = nil // otherwise a result that the program keeps would keep its frame
	return result, last, err
}

// A sent is what becomes of a request with middleware.
type sent struct {
	last   attempt
	result any         // a pointer to memory for the result; nil if there is none
	inUse  atomic.Bool // the first result has this memory
}

// send makes a request, unless the cache holds its result. The result may use the memory of
// into, which may be nil.
func (m *method[P, R, Q]) send(ctx context.Context, s *Session, params *P, into *R) (*R, attempt, error) {
	if m.cached != nil {
		return m.recall(ctx, s, params)
	}
	return m.ask(ctx, s, params, into)
}

// ask makes a request. While the server asks for input, ask makes it again with the
// answers.
func (m *method[P, R, Q]) ask(ctx context.Context, s *Session, params *P, into *R) (*R, attempt, error) {
	result, last, err := m.once(ctx, s, params, into)
	if m.relists && s.mirrors && refusesHeaders(err) && s.relist(ctx) == nil {
		result, last, err = m.once(ctx, s, params, nil)
	}
	if err == nil && m.required != nil && m.required(result) != nil && last.peer.modern() && !s.options.ManualInput {
		result, last, err = m.rounds(ctx, s, params, result, last)
		last.asked, err = true, begun(err)
	}
	if err == nil && m.await != nil {
		result, err = m.await(ctx, s, result)
		err = begun(err)
	}
	return result, last, err
}

// begun changes the error of a call that needed several requests. Even if the last
// request was not sent, the call may have been executed, because the server answered an
// earlier request. For that reason the call itself is not wrong, either.
func begun(err error) error {
	if err == nil {
		return nil
	}
	var failed *conn.CallError
	if !errors.As(err, &failed) {
		return err
	}
	if failed.Delivery == conn.NotSent {
		failed.Delivery = conn.Unknown
	}
	if kind, ok := failed.Err.(*kindError); ok { //nolint:errorlint // explain and invalid make it the outermost
		kind.kinds = slices.DeleteFunc(kind.kinds, func(kind error) bool { return kind == ErrInvalid })
	}
	return err
}

// once makes one request: it encodes, waits and decodes.
func (m *method[P, R, Q]) once(ctx context.Context, s *Session, params *P, into *R) (*R, attempt, error) {
	c := m.newOutgoing(s.client)
	defer m.release(s.client, c)
	c.method, c.session, c.params, c.options = m, s.session, params, s.options
	c.options.Repeatable = c.options.Repeatable || m.repeatable
	if m.adjust != nil && params != nil {
		m.adjust(s.session, params, &c.options)
	}
	c.prepare()
	raw, err := s.conn.Call(ctx, c.request)
	if err != nil {
		return nil, c.attempt, explain(err)
	}
	c.raw = raw
	if into == nil {
		into = new(R)
	}
	result, err := m.read(s.session, raw, into, c.peer, c.asTask || c.peer.modern() && s.client.options.Tasks)
	if err != nil {
		return nil, c.attempt, answered(m.Name, c.id, err)
	}
	return result, c.attempt, nil
}

// prepare makes the request. It is not inlined, so that no second one is on the stack of
// a caller who waits.
//
//go:noinline
func (c *outgoing[P, R, Q]) prepare() {
	c.request = c.options.request(c.method.Name, c)
	if c.method.counts && c.params != nil {
		c.request.Target = c.method.name(c.params)
	}
}

// read decodes the server's answer, which may be a task, and remembers what it says
// about later requests.
func (m *method[P, R, Q]) read(s *session, raw json.RawMessage, result *R, from *peer, tasks bool) (*R, error) {
	result, err := m.decode(raw, result, from.modern(), tasks)
	if err == nil && m.learn != nil {
		m.learn(s, result)
	}
	return result, err
}

// An outgoing is one request on its way.
type outgoing[P, R any, Q requestParams[P]] struct {
	method  *method[P, R, Q]
	session *session
	params  *P // the params of the caller; read-only
	copied  P  // a copy of params for the present attempt
	options CallOptions
	request conn.Request
	meta    json.RawMessage // the _meta for params without their own; nil: none
	memory  []byte          // of meta with a trace context; of earlier calls, too
	asTask  bool            // the last attempt asked a legacy server for a task
	attempt
}

// newOutgoing takes an empty outgoing from the pool of the client.
func (m *method[P, R, Q]) newOutgoing(c *Client) *outgoing[P, R, Q] {
	if pool, ok := c.outgoing.Load(m); ok {
		if o, ok := pool.(*sync.Pool).Get().(*outgoing[P, R, Q]); ok {
			return o
		}
	}
	return new(outgoing[P, R, Q])
}

// maxMemory is the maximum size of outgoing.memory that is kept for another call, in bytes.
const maxMemory = 1 << 10

// release empties the outgoing of a call that has ended, and puts it into the pool.
func (m *method[P, R, Q]) release(c *Client, o *outgoing[P, R, Q]) {
	memory := o.memory
	if cap(memory) > maxMemory {
		memory = nil
	}
	*o = outgoing[P, R, Q]{memory: memory}
	pool, ok := c.outgoing.Load(m)
	if !ok {
		pool, _ = c.outgoing.LoadOrStore(m, new(sync.Pool))
	}
	pool.(*sync.Pool).Put(o)
}

// MakeMessage makes the message of one attempt, for the server that is there now. That
// server may speak another era than the server of the attempt before.
func (c *outgoing[P, R, Q]) MakeMessage(ctx context.Context, id int64, epoch uint64) (conn.Message, error) {
	c.attempt = attempt{id: id, peer: c.session.peer.Load()}
	if c.peer.incarnation.Epoch() != epoch {
		return conn.Message{}, conn.ErrStale // the server was replaced just now
	}
	if err := c.peer.offers(&c.method.Method); err != nil {
		return conn.Message{}, err
	}
	c.copied = *new(P)
	if c.params != nil {
		c.copied = *c.params
	}
	params := Q(&c.copied)
	if c.options.wantsProgress() {
		params.SetMeta(protocol.MetaProgressToken, jsonrpc.IntegerID(id).Append(nil))
	}
	m := conn.Message{Body: c}
	if c.peer.modern() {
		if level := c.session.restore.logLevel(); level != "" {
			params.SetMeta(protocol.MetaLogLevel, json.RawMessage(`"`+level+`"`))
		}
	}
	c.addMeta(ctx, params)
	if c.peer.modern() {
		m.Version = c.peer.server.ProtocolVersion
		if c.method.arguments != nil && c.session.mirrors {
			m.Arguments = c.method.arguments(c.session, params)
		}
	}
	if c.method.asTask != nil && !c.peer.modern() {
		c.asTask = c.method.asTask(c.session, params, c.options.startsTask, c.peer.makesTasks())
	}
	if c.method.name != nil {
		m.Name = c.method.name(params)
	}
	return m, nil
}

// addMeta adds the members that every request carries in _meta, and the trace context.
// If the params have no _meta, they get an encoded one.
func (c *outgoing[P, R, Q]) addMeta(ctx context.Context, params Q) {
	c.meta = nil
	modern, traces := c.peer.modern(), c.session.client.traces
	if !params.HasMeta() {
		if modern {
			c.meta = c.peer.meta
		}
		if traces {
			c.meta = tracing.AddTo(ctx, &c.memory, c.meta)
		}
		return
	}
	if modern {
		params.AddMeta(c.peer.members)
	}
	if traces {
		if members := tracing.Members(ctx, protocol.MetaOf(params)); members != nil {
			params.AddMeta(members)
		}
	}
}

// AppendJSON appends the params of the attempt to its frame.
func (c *outgoing[P, R, Q]) AppendJSON(dst []byte) ([]byte, error) {
	var err error
	if c.meta != nil {
		dst, err = protocol.AppendWithMeta(dst, Q(&c.copied), c.meta)
	} else {
		dst, err = protocol.Append(dst, Q(&c.copied))
	}
	if err != nil {
		return dst, invalid(err)
	}
	return dst, nil
}

// SizeJSON estimates how long that is.
func (c *outgoing[P, R, Q]) SizeJSON() int {
	return protocol.SizeOf(Q(&c.copied)) + len(c.meta) + len(`"_meta":,`)
}

// decode reads a result, which it returns, and fails with a *ResultError. Tasks says whether
// the result may be a task.
func (m *method[P, R, Q]) decode(raw json.RawMessage, result *R, modern, tasks bool) (*R, error) {
	if err := unmarshalResult(raw, result); err != nil {
		return nil, err
	}
	if tasks && m.task != nil {
		if became, err := m.task(result, raw, modern); err != nil {
			return nil, &ResultError{err}
		} else if became {
			return result, nil
		}
	}
	if modern { // the legacy revisions have no result types
		var asks *protocol.InputRequired
		if m.required != nil {
			asks = m.required(result)
		}
		if err := checkType(result, asks); err != nil {
			return nil, &ResultError{err}
		}
		if asks != nil {
			return result, nil
		}
	}
	if m.check == nil {
		return result, nil
	}
	if err := m.check(result); err != nil {
		return nil, &ResultError{err}
	}
	return result, nil
}

// unmarshalResult decodes a result, which must be an object.
func unmarshalResult(raw json.RawMessage, result any) error {
	if !isObject(raw) {
		return &ResultError{errors.New("it is no object")}
	}
	if err := protocol.Unmarshal(raw, result); err != nil {
		return &ResultError{err}
	}
	return nil
}

// checkType refuses a result whose type this client does not know (2026-07-28
// basic/index).
func checkType(result any, asks *protocol.InputRequired) error {
	typed, ok := result.(interface{ Type() string })
	switch {
	case !ok:
		return nil
	case asks != nil && typed.Type() != protocol.ResultInputRequired:
		return fmt.Errorf("it asks for input and is of type %.100q", typed.Type())
	case asks != nil, typed.Type() == protocol.ResultComplete:
		return nil
	default:
		return fmt.Errorf("it is of type %.100q, and this client takes %q only", typed.Type(), protocol.ResultComplete)
	}
}

// answered returns the error of a call whose answer cannot be used.
func answered(method string, id int64, err error) error {
	return &conn.CallError{Method: method, ID: id, Cause: conn.Answered, Delivery: conn.Sent, Err: err}
}

// copyOf returns a copy that may be changed, or an empty value for nil.
func copyOf[P any](params *P) *P {
	if params == nil {
		return new(P)
	}
	copied := *params
	return &copied
}

// refusedUnsent returns the error of a call that this client refuses to send.
func refusedUnsent(method string, err error) error {
	return &conn.CallError{Method: method, Cause: conn.Refused, Delivery: conn.NotSent, Err: err}
}

// progressTo returns a function that passes progress on. It ignores malformed progress,
// as the specification asks.
func progressTo(tell func(*protocol.ProgressParams)) func(json.RawMessage) {
	return func(params json.RawMessage) {
		var progress struct {
			protocol.ProgressParams
			Progress *float64 `json:"progress"` // a pointer, because the member may be absent
		}
		if protocol.Unmarshal(params, &progress) != nil || progress.Progress == nil {
			return
		}
		progress.ProgressParams.Progress = *progress.Progress
		tell(&progress.ProgressParams)
	}
}
