package sharing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/go-json-experiment/json/jsontext"
)

// A sharer is one client of a Server: the handler of its messages.
type sharer struct {
	server *Server
	conn   *conn.Conn

	// The server's mu protects:
	calls int               // requests that the server executes for it
	level protocol.LogLevel // that it has asked for; "" if it has not
}

// ServeNotification implements conn.Handler.
func (c *sharer) ServeNotification(ctx context.Context, in *conn.Incoming) {
	if in.Method == protocol.NotificationInitialized {
		return // the server was told when the first client opened the session
	}
	_ = c.server.conn.Notify(ctx, in.Method, in.Params) // it fails with the link to the server, and then this one ends
}

// ServeRequest implements conn.Handler.
func (c *sharer) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if may := c.server.options.May; may != nil {
		if err := may(); err != nil {
			return nil, errOverloaded(err)
		}
	}
	switch in.Method {
	case protocol.MethodInitialize:
		return c.initialize(ctx, in)
	case protocol.MethodDiscover:
		return c.discover(ctx, in)
	case protocol.MethodSubscribe, protocol.MethodUnsubscribe:
		return c.subscribe(ctx, in)
	case protocol.MethodSetLogLevel:
		return c.setLevel(ctx, in)
	case protocol.MethodListen:
		return c.listen(ctx, in)
	case protocol.MethodPing: // the server asks nothing because of it
		return c.relay(in).pass(ctx)
	default:
		return c.pass(ctx, in)
	}
}

// pass passes a request to the server, which may ask the client something meanwhile.
func (c *sharer) pass(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	return c.passWith(ctx, in, nil)
}

func (c *sharer) relay(in *conn.Incoming) *relay {
	return &relay{in: in, to: c.server.conn, down: true}
}

func (c *sharer) count(change int) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.calls += change
}

// initialize opens the session, or joins the one that another client has opened.
func (c *sharer) initialize(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	s := c.server
	capabilities, err := canonicalCapabilities(in.Params)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	s.mu.Lock()
	opened := s.opened
	s.mu.Unlock()
	if opened != nil {
		if opened.capabilities != capabilities {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the server is shared, and was opened by a client with the capabilities " + opened.capabilities + ": all nodes must have the same"}
		}
		return opened.result, nil
	}
	result, err := c.pass(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := s.conn.Notify(ctx, protocol.NotificationInitialized, nil); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.opened = &session{capabilities, result}
	s.mu.Unlock()
	s.opens()
	return result, nil
}

// canonicalCapabilities returns the capabilities in the params of an initialize, equal for equal
// ones.
func canonicalCapabilities(params json.RawMessage) (string, error) {
	begin, end, found, err := member(params, "capabilities")
	if err != nil || !found {
		return "{}", err
	}
	capabilities := jsontext.Value(slices.Clone(params[begin:end]))
	err = capabilities.Canonicalize()
	return string(capabilities), err
}

// discover asks the server which modern revisions it speaks. A server with a legacy session is not
// asked.
func (c *sharer) discover(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	c.server.mu.Lock()
	legacy := c.server.opened != nil
	c.server.mu.Unlock()
	if legacy {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + in.Method}
	}
	result, err := c.pass(ctx, in)
	if err == nil {
		c.server.opens()
	}
	return result, err
}

// subscribe passes the first subscription to a resource on, and the last end of one.
func (c *sharer) subscribe(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	var params protocol.SubscribeParams
	if err := protocol.Unmarshal(in.Params, &params); err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	s := c.server
	if err := s.changing.lock(ctx); err != nil {
		return nil, err
	}
	defer s.changing.unlock()
	if s.hasSubscribers(params.URI, c) {
		s.setSubscribed(params.URI, c, in.Method == protocol.MethodSubscribe)
		return json.RawMessage("{}"), nil
	}
	result, err := c.pass(ctx, in)
	if err == nil {
		s.setSubscribed(params.URI, c, in.Method == protocol.MethodSubscribe)
	}
	return result, err
}

// setLevel tells the server the most verbose level that a client has asked for, if it is another
// one than before.
func (c *sharer) setLevel(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	var params protocol.SetLogLevelParams
	begin, end, found, err := member(in.Params, "level")
	if err == nil {
		err = protocol.Unmarshal(in.Params, &params)
	}
	if err != nil || !found {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("the params have no level: %v", err)}
	}
	if params.Level.Severity() < 0 { // the server says what it thinks of it
		return c.pass(ctx, in)
	}
	s := c.server
	if err := s.changing.lock(ctx); err != nil {
		return nil, err
	}
	defer s.changing.unlock()
	wanted, told := s.levelWith(c, params.Level)
	result := json.RawMessage("{}")
	if wanted != told {
		if result, err = c.passWith(ctx, in, replaced(in.Params, begin, end, []byte(`"`+wanted+`"`))); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.level, s.level = params.Level, wanted
	return result, nil
}

// passWith passes a request on with other params; nil: with its own.
func (c *sharer) passWith(ctx context.Context, in *conn.Incoming, params json.RawMessage) (json.RawMessage, error) {
	c.count(1)
	defer c.count(-1)
	r := c.relay(in)
	r.params = params
	return r.pass(ctx)
}

// listen passes a subscriptions/listen on. What the server sends for it carries the id under which
// it was passed on.
func (c *sharer) listen(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	s := c.server
	var passed int64
	r := c.relay(in)
	r.sent = func(id int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		passed = id
		s.listenings[id] = &listening{c, in.ID()}
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listenings, passed)
	}()
	return r.pass(ctx)
}

// tell sends a notification to a client, and ends its connection if that takes no more.
func (c *sharer) tell(ctx context.Context, method string, params json.RawMessage) {
	if err := c.conn.TryNotify(ctx, method, params); errors.Is(err, transport.ErrBusy) {
		c.conn.Stop()
	}
}

// A turn is a mutex that a context can stop waiting for.
type turn chan struct{}

func (t turn) lock(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) unlock() { <-t }
