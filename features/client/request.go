package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/tracing"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A method describes one request that a session makes: its params P and its result R.
// protocol.MethodInfo contains what the protocol says about it: its revisions, and the
// capability that it needs.
type method[P, R any, Q requestParams[P]] struct {
	protocol.Method
	traits[P, R]
}

// traits are what a row of the table adds to protocol.MethodInfo.
type traits[P, R any] struct {
	// repeatable says that the server may execute the request twice without harm.
	repeatable bool

	// name returns what the request is about, for the transport: the tool, the
	// prompt or the resource. Nil: nothing.
	name func(*P) string

	// counts says that metrics may count by this name, because there are few different
	// ones.
	counts bool

	// check refuses a result that lacks a required member. Nil: none is required.
	check func(*R) error

	// input and required give access to the members of a method that a server may
	// answer with input_required (2026-07-28 basic/patterns/mrtr). Nil: it may not.
	input    func(*P) *protocol.InputParams
	required func(*R) *protocol.InputRequired

	// adjust changes the options of one call, by what it is about. Nil: no change.
	adjust func(s *session, name string, o *CallOptions)

	// arguments returns the arguments that the transport mirrors. Nil: none.
	arguments func(*session, *P) *transport.Arguments

	// again reports whether a request that has failed should be made once more, after it has
	// done what makes another outcome possible. Nil: never.
	again func(context.Context, *Session, error) bool

	// task stores the task that a call has become, and reports whether there is one.
	// AsTask makes params ask a legacy server for a task, if the program wants one or
	// the tool requires it, and the server supports tasks. It reports whether params now
	// ask. Await waits for the task. Nil: the method never becomes a task.
	task   func(r *R, raw json.RawMessage, modern bool) (became bool, err error)
	asTask func(s *session, p *P, wanted, makes bool) bool
	await  func(context.Context, *Session, *R) (*R, error)

	// learn stores what later requests need from a result. Nil: nothing.
	learn func(*session, *R)

	// cached says which results may be kept and reused. Nil: none.
	cached *cached[P, R]
}

// An anyMethod is a method whose types are not known.
type anyMethod interface {
	callInside(context.Context, *Request) (any, error)
	countsByName() bool

	// These are for params and results that nobody decodes.
	adjustRaw(s *session, subject string, o *CallOptions)
	argumentsOf(*session, json.RawMessage) *transport.Arguments
	learnRaw(*session, json.RawMessage)
}

// requestParams are params that carry _meta.
type requestParams[P any] interface {
	*P
	SetMeta(key string, value json.RawMessage)
	AddMeta(members protocol.Meta)
	HasMeta() bool
}

func row[P, R any, Q requestParams[P]](name string, t traits[P, R]) *method[P, R, Q] {
	info, _ := protocol.MethodInfo(name)
	return &method[P, R, Q]{Method: info, traits: t}
}

func present(ok bool, member string) error {
	if !ok {
		return errors.New("it has no " + member)
	}
	return nil
}

// These are the requests that a session makes by itself.
var (
	ping = row(protocol.MethodPing, traits[protocol.PingParams, protocol.EmptyResult]{repeatable: true})

	// discover replaces ping in the modern revisions, which have no ping.
	discover = row(protocol.MethodDiscover, traits[protocol.PingParams, protocol.EmptyResult]{repeatable: true})

	subscribe   = row(protocol.MethodSubscribe, traits[protocol.SubscribeParams, protocol.EmptyResult]{repeatable: true})
	unsubscribe = row(protocol.MethodUnsubscribe, traits[protocol.UnsubscribeParams, protocol.EmptyResult]{repeatable: true})
	setLogLevel = row(protocol.MethodSetLogLevel, traits[protocol.SetLogLevelParams, protocol.EmptyResult]{repeatable: true})
)

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
	if c.peer.Epoch() != epoch {
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
	if c.peer.Modern() {
		if level := cmp.Or(c.options.LogLevel, c.session.restore.LogLevel()); level != "" {
			params.SetMeta(protocol.MetaLogLevel, json.RawMessage(`"`+level+`"`))
		}
	}
	c.addMeta(ctx, params)
	if c.peer.Modern() {
		m.Version = c.peer.server.ProtocolVersion
		if c.method.arguments != nil && c.session.mirrors {
			m.Arguments = c.method.arguments(c.session, params)
		}
	}
	if c.method.asTask != nil && !c.peer.Modern() {
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
	modern, traces := c.peer.Modern(), c.session.client.traces
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
		if members := tracing.Members(ctx, metaOf(params)); members != nil {
			params.AddMeta(members)
		}
	}
}

// metaOf returns the _meta of params, decoded or not.
func metaOf(params any) protocol.Meta {
	if undecoded, ok := params.(interface{ members() protocol.Meta }); ok {
		return undecoded.members()
	}
	return protocol.MetaOf(params)
}

// AppendJSON appends the params of the attempt to its frame.
func (c *outgoing[P, R, Q]) AppendJSON(dst []byte) ([]byte, error) {
	dst, err := protocol.Append(dst, Q(&c.copied), c.meta)
	if err != nil {
		return dst, invalid(err)
	}
	return dst, nil
}

// SizeJSON estimates how long that is.
func (c *outgoing[P, R, Q]) SizeJSON() int {
	return protocol.SizeOf(Q(&c.copied)) + len(c.meta) + len(`"_meta":,`)
}

// read decodes the server's answer, which may be a task, and remembers what it says
// about later requests.
func (m *method[P, R, Q]) read(s *session, raw json.RawMessage, result *R, from *peer, tasks bool) (*R, error) {
	result, err := m.decode(raw, result, from.Modern(), tasks)
	if err == nil && m.learn != nil {
		m.learn(s, result)
	}
	return result, err
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

// adjustRaw changes the options of a call whose params are not decoded, as roundTrip does for others.
func (m *method[P, R, Q]) adjustRaw(s *session, subject string, o *CallOptions) {
	if m.adjust != nil {
		m.adjust(s, subject, o)
	}
}

// argumentsOf returns the arguments that the transport mirrors.
func (m *method[P, R, Q]) argumentsOf(s *session, raw json.RawMessage) *transport.Arguments {
	params := new(P)
	if m.arguments == nil || protocol.UnmarshalParams(raw, params) != nil {
		return nil
	}
	return m.arguments(s, params)
}

// learnRaw stores what later requests need from a result that the program gets undecoded.
func (m *method[P, R, Q]) learnRaw(s *session, raw json.RawMessage) {
	if m.learn == nil {
		return
	}
	if result := new(R); unmarshalResult(raw, result) == nil {
		m.learn(s, result)
	}
}
