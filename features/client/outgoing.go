package client

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/tracing"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
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
		if level := c.session.restore.LogLevel(); level != "" {
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
