package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A Handler serves a request or a notification. The result is a pointer to the
// result of the method, such as *protocol.CallToolResult; it is ignored for a
// notification.
type Handler func(ctx context.Context, r *Request) (result any, err error)

// A Middleware wraps the handling of all messages that a server receives and sends:
// requests and notifications from its clients, and its own questions and
// notifications, for which Request.Outgoing is set. Call next at most once, with the
// same Request or a changed copy. The result of next may be shared with other calls,
// so copy it before you change it.
//
// A few messages never reach a middleware, because the connection handles them: ping,
// progress and cancellation from the client, and requests that cannot be decoded.
type Middleware func(next Handler) Handler

// On returns a middleware for the one method whose params are a *P and whose result
// is a *R. It passes on all other messages unchanged.
func On[P, R any](f func(ctx context.Context, params *P, next func(context.Context, *P) (*R, error)) (*R, error)) Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, r *Request) (any, error) {
			params, ok := r.Params.(*P)
			if !ok || r.Notification {
				return next(ctx, r)
			}
			result, err := f(ctx, params, func(ctx context.Context, params *P) (*R, error) {
				changed := *r
				changed.Params = params
				result, err := next(ctx, &changed)
				if err != nil {
					return nil, err
				}
				typed, ok := result.(*R)
				if !ok {
					return nil, fmt.Errorf("server: %s has a result of type %T, want %T", r.Method, result, typed)
				}
				return typed, nil
			})
			if err != nil {
				return nil, err
			}
			return result, nil
		}
	}
}

// A method is one row of the table of methods. It contains everything that is needed to
// serve one method.
type method struct {
	protocol.Method // name, revisions and capability

	// offered reports whether the server offers the method to the client of a call, in
	// addition to the checks of revision and capability. Nil: it does.
	offered func(*call) bool

	newCall func() *call // with room for params and result
	decode  func(raw json.RawMessage, params any) error
	run     func(ctx context.Context, r *Request) (result any, err error)
	encode  func(c *call, dst []byte, result any) ([]byte, error) // appends
}

// table returns the methods of the protocol that a server serves. To add a method, add a
// row.
func (s *Server) table() map[string]*method {
	rows := []*method{
		row(protocol.MethodInitialize, s.sessions.initialize),
		row(protocol.MethodDiscover, s.capabilities.discover),
		row(protocol.MethodListTools, s.tools.list),
		row(protocol.MethodCallTool, s.tools.call),
		row(protocol.MethodListResources, s.resources.list),
		row(protocol.MethodListResourceTemplates, s.resources.listTemplates),
		row(protocol.MethodReadResource, s.resources.read),
		row(protocol.MethodSubscribe, s.subscriptions.subscribe),
		row(protocol.MethodUnsubscribe, s.subscriptions.unsubscribe),
		row(protocol.MethodListPrompts, s.prompts.list),
		row(protocol.MethodGetPrompt, s.prompts.serve),
		row(protocol.MethodComplete, s.completions.complete).when(s.completions.offered),
		row(protocol.MethodSetLogLevel, setLogLevel),
		row(protocol.MethodListen, s.subscriptions.listen),
		row(protocol.MethodListSkills, s.skills.list).when(s.skills.offered),
		row(protocol.MethodGetSkill, s.skills.get).when(s.skills.offered),
		row(protocol.MethodReadDirectory, s.skills.readDirectory).when(s.skills.offered),
		anyRow(protocol.MethodGetTaskResult, s.tasks.result).when(s.tasks.offered),
		anyRow(protocol.MethodListTasks, s.tasks.list),
		anyRow(protocol.MethodGetTask, s.tasks.get).when(s.tasks.offered),
		anyRow(protocol.MethodUpdateTask, s.tasks.update).when(s.tasks.offered),
		anyRow(protocol.MethodCancelTask, s.tasks.cancel).when(s.tasks.offered),
	}
	methods := make(map[string]*method, len(rows))
	for _, m := range rows {
		methods[m.Name] = m
	}
	initialize, called := methods[protocol.MethodInitialize], methods[protocol.MethodCallTool]
	initialize.encode, called.encode = encodeIntroduced(initialize.encode), encodeCalled(called.encode)
	return methods
}

// row returns a row for a method of the protocol.
func row[P, R any](name string, run func(ctx context.Context, c *call, params *P) (*R, error)) *method {
	info, ok := protocol.MethodInfo(name)
	if !ok { // a method of the program, which is in every revision
		info = protocol.Method{Name: name, Sender: protocol.ByClient, Since: protocol.Version20241105}
	}
	return &method{
		Method: info,
		newCall: func() *call {
			one := new(struct { // one allocation
				call
				params P
				result R
			})
			one.Params, one.room = &one.params, &one.result
			return &one.call
		},
		decode: func(raw json.RawMessage, params any) error {
			*params.(*P) = *new(P)
			if err := protocol.Unmarshal(raw, params); err != nil {
				return refuse(jsonrpc.CodeInvalidParams, "%s: %s", name, explain(err))
			}
			return nil
		},
		run: func(ctx context.Context, r *Request) (any, error) {
			params, ok := r.Params.(*P)
			if !ok {
				return nil, refuse(jsonrpc.CodeInternalError, "%s: params of type %T, want %T", name, r.Params, params)
			}
			result, err := run(ctx, r.call, params)
			if err != nil {
				return nil, err
			}
			return result, nil
		},
		encode: func(c *call, dst []byte, result any) ([]byte, error) {
			if typed, ok := result.(*R); ok && c.modern && typed != nil {
				copied := c.room.(*R)
				*copied = *typed // results may be shared
				result = copied
			}
			return encode(c, dst, result)
		},
	}
}

// anyRow returns a row for a method whose result has a different type in each era. No
// result is shared.
func anyRow[P any](name string, run func(ctx context.Context, c *call, params *P) (any, error)) *method {
	m := row(name, func(context.Context, *call, *P) (*struct{}, error) { return nil, nil })
	m.run = func(ctx context.Context, r *Request) (any, error) {
		params, ok := r.Params.(*P)
		if !ok {
			return nil, refuse(jsonrpc.CodeInternalError, "%s: params of type %T, want %T", name, r.Params, params)
		}
		return run(ctx, r.call, params)
	}
	m.encode = encode
	return m
}

// when restricts a row to the calls for which offered returns true. It replaces the
// check of the protocol's capability.
func (m *method) when(offered func(*call) bool) *method {
	m.offered, m.ServerCapability = offered, ""
	return m
}

// encode appends a result to dst. It changes a modern result first; see
// protocol.ModernResult.
func encode(c *call, dst []byte, result any) ([]byte, error) {
	modern, stamped := result.(protocol.ModernResult)
	own, ok := result.(interface{ HasMeta() bool })
	start, err := len(dst), error(nil)
	switch {
	case stamped && c.modern && ok && !own.HasMeta():
		modern.Stamp(nil)
		dst, err = protocol.AppendWithMeta(dst, result, c.peer.server.rawMeta)
	case stamped && c.modern:
		modern.Stamp(c.peer.server.rawInfo)
		dst, err = protocol.Append(dst, result)
	default:
		dst, err = protocol.Append(dst, result)
	}
	if err != nil {
		return nil, refuse(jsonrpc.CodeInternalError, "%s: the result cannot be encoded: %s", c.Method, explain(err))
	}
	if c.modern && !stamped {
		dst = append(dst[:start], complete(dst[start:])...)
	}
	return dst, nil
}

// complete adds "resultType": "complete" to the result of a method of the program, as
// 2026-07-28 requires, unless the result has a resultType.
func complete(result json.RawMessage) json.RawMessage {
	var says struct {
		ResultType json.RawMessage `json:"resultType"`
	}
	if len(result) < 2 || result[0] != '{' || protocol.Unmarshal(result, &says) != nil || says.ResultType != nil {
		return result
	}
	const member = `{"resultType":"` + protocol.ResultComplete + `"`
	if string(result) == "{}" {
		return json.RawMessage(member + "}")
	}
	return append(json.RawMessage(member+","), result[1:]...) // a copy
}

// isOffered reports whether the server offers a method to the client of a call. It does
// not if the method was not added, the client's revision does not have it, or the server
// has no such feature.
func (c *call) isOffered(m *method) bool {
	return m != nil && m.In(c.Client.ProtocolVersion) && c.offered.Has(m.ServerCapability) && (m.offered == nil || m.offered(c))
}

// AddMethod adds a method that is not part of MCP, in every revision. In may be a
// struct or map, a pointer to one, json.RawMessage for undecoded params, or struct{}
// for none. Out must encode to a JSON object. For clients of 2026-07-28,
// "resultType": "complete" is added unless the object has a resultType. AddMethod
// replaces a method with the same name. It panics if the name is a method of the
// protocol.
func AddMethod[In, Out any](s *Server, name string, f func(context.Context, In) (Out, error)) {
	if _, known := protocol.MethodInfo(name); known || name == "" || f == nil {
		panic(fmt.Sprintf("server: method %q: a method of one's own needs a name of its own, and a function", name))
	}
	m := row(name, func(ctx context.Context, _ *call, params *In) (*Out, error) {
		out, err := f(ctx, *params)
		if err != nil {
			return nil, err
		}
		return &out, nil
	})
	s.adding.Lock()
	defer s.adding.Unlock()
	methods := maps.Clone(*s.methods.Load())
	methods[name] = m
	s.methods.Store(&methods)
}

// A connHandler serves the messages of one link.
type connHandler struct{ *peer }

// ServeRequest implements conn.Handler. It is the one place where the era of a
// request is decided: by the request itself (2026-07-28 basic/versioning). That
// also holds for a server that speaks no modern revision, since strangers may
// share the link that modern requests come in on and must not share a session.
func (h connHandler) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	m := (*h.server.methods.Load())[in.Method]
	c := h.newCall(ctx, in, m)
	if err := c.identify(); err != nil {
		return nil, err
	}
	if c.isOffered(m) {
		if err := c.decodeParams(m); err != nil {
			return nil, err
		}
		in.Params, c.rest = nil, nil // so that a long call does not keep its frame, unless that is mostly arguments
		c.method = m
	} else {
		c.Params = in.Params
	}
	result, err := h.server.handle(c, &c.Request)
	c.finish()
	if err != nil {
		return nil, c.fault(err)
	}
	c.result = result
	in.SetResult(c)
	return nil, nil
}

// AppendJSON appends the result of a call to the frame of its answer.
func (c *call) AppendJSON(dst []byte) ([]byte, error) {
	if c.method == nil {
		return encode(c, dst, c.result)
	}
	return c.method.encode(c, dst, c.result)
}

// SizeJSON estimates how long that is.
func (c *call) SizeJSON() int {
	if !c.modern {
		return protocol.SizeOf(c.result)
	}
	const stamped = 32 // what Stamp adds
	return protocol.SizeOf(c.result) + len(c.peer.server.rawMeta) + stamped
}

// ServeNotification implements conn.Handler.
func (h connHandler) ServeNotification(ctx context.Context, in *conn.Incoming) {
	c := h.newCall(ctx, in, nil)
	c.Notification = true
	c.Params = in.Params
	if session := h.session.Load(); session != nil {
		c.Session, c.Client = session, &session.client
	} else {
		c.Client = new(Client)
	}
	_, _ = h.server.handle(c, &c.Request) // nobody waits for it
}

// identify finds out who made the request, and what the server offers to that client.
func (c *call) identify() error {
	s := c.peer.server
	known := c.peer.known.Load()
	if c.rest = known.before(c.in.Params); c.rest != nil {
		c.serveKnown(known)
		return nil
	}
	meta, _ := jsonrpc.Member(c.in.Params, "_meta")
	for _, last := range [...]*knownClient{known, s.known.Load()} {
		if last != nil && bytes.Equal(last.meta, meta) {
			if last != known {
				c.peer.spoke(last.client.ProtocolVersion)
			}
			c.peer.known.Store(last)
			c.serveKnown(last)
			return nil
		}
	}
	said, modern, err := protocol.ModernContext(c.in.Params)
	switch {
	case err != nil:
		return err
	case modern:
		return c.identifyModern(said, meta)
	case c.Method == protocol.MethodInitialize:
		c.Client = &Client{ProtocolVersion: protocol.LatestLegacy}
		return nil
	}
	session := c.peer.session.Load()
	if session == nil {
		name := shorten(c.Method, longestName)
		if !slices.ContainsFunc(s.options.ProtocolVersions, protocol.IsLegacy) {
			return refuse(jsonrpc.CodeInvalidParams, "%s: _meta: %s is missing", name, protocol.MetaProtocolVersion)
		}
		return refuse(jsonrpc.CodeInvalidRequest, "%s before initialize", name)
	}
	c.Session, c.Client, c.offered = session, &session.client, session.offered
	return nil
}

// identifyModern reads a modern request. Earlier requests do not count, on this link or
// another (2026-07-28 basic/index).
func (c *call) identifyModern(said *protocol.RequestContext, meta []byte) error {
	s := c.peer.server
	if !protocol.IsModern(said.ProtocolVersion) || !slices.Contains(s.options.ProtocolVersions, said.ProtocolVersion) {
		return protocol.UnsupportedVersion(said.ProtocolVersion, s.options.ProtocolVersions)
	}
	if said.LogLevel != "" && said.LogLevel.Severity() < 0 {
		return refuse(jsonrpc.CodeInvalidParams, "_meta: %s: unknown level %q", protocol.MetaLogLevel, shorten(string(said.LogLevel), longestName))
	}
	c.peer.spoke(said.ProtocolVersion)
	c.modern, c.level = true, said.LogLevel
	c.offered = s.capabilities.modern()
	c.Client = &Client{ProtocolVersion: said.ProtocolVersion, Capabilities: said.ClientCapabilities}
	if said.ClientInfo != nil {
		c.Client.Info = *said.ClientInfo
	}
	if len(meta) <= maxKnown && !bytes.Contains(meta, []byte(protocol.MetaProgressToken)) {
		members := protocol.Meta{}
		if protocol.Unmarshal(meta, &members) == nil {
			known := &knownClient{bytes.Clone(meta), members, c.Client, c.level}
			c.peer.known.Store(known)
			s.known.Store(known)
		}
	}
	return nil
}

// serveKnown uses what an earlier request with the same _meta said.
func (c *call) serveKnown(known *knownClient) {
	c.known, c.modern, c.level, c.Client, c.offered = known, true, known.level, known.client, c.peer.server.capabilities.modern()
}

// A knownClient is the content of a modern request's _meta. Most clients send the same
// in each of their requests.
type knownClient struct {
	meta    []byte
	members protocol.Meta // of meta; shared, so read-only
	client  *Client
	level   protocol.LogLevel
}

const (
	// maxKnown is the maximum length of a _meta that is stored, in bytes.
	maxKnown = 2 << 10

	// maxRest is how many bytes may follow a _meta that is not decoded again.
	maxRest = 4 << 10
)

// before returns the rest of params that begin with the client's _meta: what follows
// that and a comma. It returns nil if they begin otherwise, or if the rest may contain
// another _meta.
func (k *knownClient) before(params []byte) (rest []byte) {
	const opening = `{"_meta":`
	if k == nil || len(params) <= len(opening)+len(k.meta) || string(params[:len(opening)]) != opening {
		return nil
	}
	rest, found := bytes.CutPrefix(params[len(opening):], k.meta)
	if !found || len(rest) > maxRest || bytes.Contains(rest, []byte("_meta")) || bytes.Contains(rest, []byte(`\u`)) {
		return nil
	}
	return bytes.TrimPrefix(rest, []byte{','})
}

// decodeParams decodes the params. It does not decode the _meta of a known client again.
func (c *call) decodeParams(m *method) error {
	if takes, ok := c.Params.(metaTaker); ok && c.rest != nil {
		from := len(c.in.Params) - len(c.rest) - 1
		behind := c.in.Params[from]
		c.in.Params[from] = '{' // so that the rest is an object
		err := m.decode(c.in.Params[from:], c.Params)
		c.in.Params[from] = behind
		if err == nil {
			takes.AddMeta(c.known.members)
			return nil
		}
	}
	return m.decode(c.in.Params, c.Params)
}

// A metaTaker has params that may have a _meta.
type metaTaker interface{ AddMeta(members protocol.Meta) }

// wrap wraps the innermost handler in the middleware.
func (s *Server) wrap(all []Middleware) Handler {
	var h Handler = s.innermost
	for _, m := range slices.Backward(all) {
		h = m(h)
	}
	return h
}

// innermost is the end of the middleware chain, in both directions.
func (s *Server) innermost(ctx context.Context, r *Request) (any, error) {
	switch {
	case r.Outgoing && r.Notification:
		return nil, r.send(ctx)
	case r.Outgoing:
		return r.put(ctx)
	case r.Notification:
		s.notified(ctx, r)
		return nil, nil
	case r.call.method != nil:
		return r.call.method.run(ctx, r)
	case s.options.Fallback != nil:
		return s.options.Fallback(ctx, r)
	default:
		return nil, refuse(jsonrpc.CodeMethodNotFound, "method not found: %s", shorten(r.Method, longestName))
	}
}

// notified handles a notification from a client. No request waits for "initialized": the
// server also serves a client that calls before it.
func (s *Server) notified(ctx context.Context, r *Request) {
	switch r.Method {
	case protocol.NotificationInitialized:
		r.call.peer.changes.begin()
	case protocol.NotificationRootsListChanged:
		if r.Session != nil && s.options.OnRootsChanged != nil {
			s.options.OnRootsChanged(ctx, r.Session)
		}
	default:
		if s.options.Fallback != nil {
			_, _ = s.options.Fallback(ctx, r) // nobody waits for it
		}
	}
}
