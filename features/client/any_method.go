package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/tracing"
	"github.com/bowline-mcp/bowline/protocol"
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

// rawParams have arbitrary members beside _meta.
type rawParams struct {
	protocol.RequestParams
	Others map[string]json.RawMessage `json:",unknown"`
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
	if declared, ok := c.params.Meta[protocol.MetaClientCapabilities]; ok && err == nil && c.peer.Modern() {
		c.copied.SetMeta(protocol.MetaClientCapabilities, declared) // in place of those of the session
	}
	return m, err
}

func (s *Session) sendRaw(ctx context.Context, name string, raw json.RawMessage) (json.RawMessage, error) {
	params := new(rawParams)
	if err := protocol.Unmarshal(raw, params); err != nil {
		return nil, refusedUnsent(name, err)
	}
	return s.sendParams(ctx, name, raw, params)
}

// sendParams sends params. What is read of them is read from raw, which may differ in _meta.
func (s *Session) sendParams(ctx context.Context, name string, raw json.RawMessage, params *rawParams) (json.RawMessage, error) {
	info, _ := protocol.MethodInfo(name)
	any := &method[rawParams, json.RawMessage, *rawParams]{Method: protocol.Method{Name: name, Since: protocol.Versions()[0]}}
	subject := info.NameOf(raw)
	if subject != "" {
		any.name = func(*rawParams) string { return subject }
	}
	known, ok := s.client.table.requests[name]
	if ok {
		any.arguments = func(s *session, _ *rawParams) *transport.Arguments { return known.argumentsOf(s, raw) }
	}
	calls := rawCallsIn(&s.raw)
	c := &rawCall{known: calls.begin(ctx)}
	defer calls.end(c.known)
	c.method, c.session, c.params, c.options = any, s.session, params, s.options
	request := c.options.request(name, c)
	if ok && known.countsByName() {
		request.Target = subject
	}
	result, err := s.conn.Call(ctx, request)
	return result, explain(err)
}

// Notify sends a notification with any method. It returns nil once the transport has
// accepted it. The server may still not receive it.
func (s *Session) Notify(ctx context.Context, method string, params any) error {
	raw, err := marshalParams(method, params)
	if err != nil {
		return err
	}
	if s.client.chain == nil {
		return s.notifyRaw(ctx, method, raw)
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
	return s.notifyRaw(ctx, r.Method, raw)
}

func (s *Session) notifyRaw(ctx context.Context, method string, raw json.RawMessage) error {
	if s.client.traces {
		raw = tracing.Inject(ctx, raw)
	}
	return explain(s.conn.Notify(ctx, method, raw))
}
