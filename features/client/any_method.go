package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/tracing"
	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// Request sends a request with any method, in any revision, and returns the result
// undecoded. Params may be any value that encodes to a JSON object; nil means none.
// The client adds what every request of the revision must carry in _meta, and a
// progress token if the CallOptions ask for progress.
//
// Request checks neither the capabilities of the server nor the result. A request
// that the server may have executed is retried only if CallOptions.Repeatable is set.
func (s *Session) Request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	raw, err := marshalParams(method, params)
	if err != nil {
		return nil, err
	}
	if s.client.chain == nil {
		return s.sendRaw(ctx, method, raw)
	}
	result, err := s.client.chain(ctx, &Request{Method: method, Params: raw, Session: s, sent: new(sent)})
	if err != nil {
		return nil, err
	}
	answer, ok := result.(json.RawMessage)
	if !ok {
		return nil, fmt.Errorf("client: %s: middleware returned %T, not a json.RawMessage", method, result)
	}
	return answer, nil
}

// rawParams are an undecoded object. Its members are copied, but for _meta, which is written anew.
type rawParams struct {
	whole        json.RawMessage // all members; nil: none
	meta         json.RawMessage // the _meta to send, beside what the session adds; nil: none
	capabilities json.RawMessage // what a modern server is told in place of the capabilities of the session; nil: those
	subject      string          // what the request is about, for the transport
}

// SetMeta sets a member of _meta.
func (p *rawParams) SetMeta(key string, value json.RawMessage) {
	p.AddMeta(protocol.Meta{key: value})
}

// AddMeta sets several members of _meta. It writes a new one.
func (p *rawParams) AddMeta(members protocol.Meta) {
	written := append(make([]byte, 0, len(p.meta)+512), '{')
	names := make([]string, 0, 8)
	for name, value := range members {
		if len(written) > 1 {
			written = append(written, ',')
		}
		written = append(append(scan.AppendQuote(written, name), ':'), value...)
		names = append(names, name)
	}
	p.meta = append(scan.AppendMembers(written, p.meta, names...), '}')
}

// members returns the decoded _meta.
func (p *rawParams) members() protocol.Meta {
	return protocol.MetaOf(json.RawMessage(new(rawParams).appendTo(nil, p.meta)))
}

// HasMeta reports whether there is a _meta.
func (p *rawParams) HasMeta() bool { return p.meta != nil }

// appendTo appends the params with this _meta; nil: without one.
func (p *rawParams) appendTo(dst []byte, meta json.RawMessage) []byte {
	if dst = append(dst, '{'); meta != nil {
		dst = append(append(dst, `"_meta":`...), meta...)
	}
	return append(scan.AppendMembers(dst, p.whole, "_meta"), '}')
}

// read reads params, whose _meta must be an object. It refuses repeated members at any depth.
func (p *rawParams) read(raw json.RawMessage, unmarshal func([]byte, any) error) error {
	p.whole = raw
	text := scan.Unique(raw)
	for name := range text.Members {
		if value := text.Value(); string(name) == "_meta" {
			p.meta = value
		}
	}
	if text.End() && (p.meta == nil || p.meta[0] == '{') {
		return nil
	}
	var decoded struct { // which says what is wrong
		protocol.RequestParams
		Others map[string]json.RawMessage `json:",unknown"`
	}
	err := unmarshal(raw, &decoded)
	if p.meta = nil; err == nil && decoded.Meta != nil {
		p.meta, err = protocol.Marshal(decoded.Meta)
	}
	return err
}

// A rawCall is an undecoded request on its way.
type rawCall struct {
	outgoing[rawParams, json.RawMessage, *rawParams]
	known *inFlight
}

// MakeMessage implements conn.MessageMaker.
func (c *rawCall) MakeMessage(ctx context.Context, id int64, epoch uint64) (conn.Message, error) {
	c.known.id.Store(id)
	m, err := c.outgoing.MakeMessage(ctx, id, epoch)
	m.Body = c
	if declared := c.params.capabilities; declared != nil && err == nil && c.peer.Modern() {
		if c.meta != nil {
			c.meta = scan.Replace(c.meta, protocol.MetaClientCapabilities, declared)
		} else {
			c.copied.SetMeta(protocol.MetaClientCapabilities, declared)
		}
	}
	return m, err
}

// AppendJSON appends the params of the attempt to its frame.
func (c *rawCall) AppendJSON(dst []byte) ([]byte, error) {
	meta := c.meta
	if meta == nil {
		meta = c.copied.meta
	}
	return c.copied.appendTo(dst, meta), nil
}

// SizeJSON estimates how long that is.
func (c *rawCall) SizeJSON() int {
	return len(c.copied.whole) + len(c.copied.meta) + len(c.meta) + len(`{"_meta":,}`)
}

func (s *Session) sendRaw(ctx context.Context, name string, raw json.RawMessage) (json.RawMessage, error) {
	params := new(rawParams)
	if err := params.read(raw, protocol.Unmarshal); err != nil {
		return nil, refusedUnsent(name, err)
	}
	params.capabilities, _ = jsonrpc.Member(params.meta, protocol.MetaClientCapabilities)
	return s.sendParams(ctx, name, params)
}

// sendParams sends params that are undecoded.
func (s *Session) sendParams(ctx context.Context, name string, params *rawParams) (json.RawMessage, error) {
	known, ok := s.client.table.requests[name]
	any := rawMethodOf(s.client, name, known)
	if params.subject == "" {
		params.subject = any.NameOf(params.whole)
	}
	calls := rawCallsIn(&s.raw)
	c := &rawCall{known: calls.begin(ctx)}
	defer calls.end(c.known)
	c.method, c.session, c.params, c.options = any, s.session, params, s.options
	request := c.options.request(name, c)
	if ok && known.countsByName() {
		request.Target = params.subject
	}
	result, err := s.conn.Call(ctx, request)
	if s.options.AwaitLogs {
		s.conn.Control().AwaitNotified(ctx)
	}
	return result, explain(err)
}

// A rawMethod is a row for undecoded params.
type rawMethod = method[rawParams, json.RawMessage, *rawParams]

// rawMethodOf returns the row of a method. Known is its row for decoded params; nil: there is none, and the row is not kept, because
// a program may name any number of such methods.
func rawMethodOf(c *Client, name string, known anyMethod) *rawMethod {
	if kept, ok := c.rawMethods.Load(name); ok {
		return kept.(*rawMethod)
	}
	made := newRawMethod(name, known)
	if known != nil {
		c.rawMethods.Store(name, made)
	}
	return made
}

func newRawMethod(name string, known anyMethod) *rawMethod {
	info, _ := protocol.MethodInfo(name)
	any := &rawMethod{
		// The server says what it has: neither its revision nor its capabilities are looked at here.
		Method: protocol.Method{Name: name, Since: protocol.Versions()[0], NameParam: info.NameParam},
		traits: traits[rawParams, json.RawMessage]{name: func(p *rawParams) string { return p.subject }},
	}
	if known != nil {
		any.arguments = func(s *session, p *rawParams) *transport.Arguments { return known.argumentsOf(s, p.whole) }
	}
	return any
}

// Notify sends a notification with any method. It returns nil once the transport has
// accepted it. The server may still not receive it.
func (s *Session) Notify(ctx context.Context, method string, params any) error {
	raw, err := marshalParams(method, params)
	if err != nil {
		return err
	}
	if s.client.chain == nil {
		return s.notifyRaw(ctx, nil, method, raw)
	}
	_, err = s.client.chain(ctx, &Request{Method: method, Params: raw, Session: s, Notification: true})
	return err
}

func (s *Session) notifyThrough(ctx context.Context, r *Request) error {
	if s.client.chain == nil {
		return s.notify(ctx, r)
	}
	_, err := s.client.chain(ctx, r)
	return err
}

func (s *Session) notify(ctx context.Context, r *Request) error {
	raw, err := marshalParams(r.Method, r.Params)
	if err != nil {
		return err
	}
	return s.notifyRaw(ctx, r.asked, r.Method, raw)
}

// notifyRaw sends a notification: within a question, or outside of it if that is nil.
func (s *Session) notifyRaw(ctx context.Context, within *conn.Incoming, method string, raw json.RawMessage) error {
	if s.client.traces {
		raw = tracing.Inject(ctx, raw)
	}
	send := s.conn.Notify
	if within != nil {
		send = within.Notify
	}
	return explain(send(ctx, method, raw))
}
