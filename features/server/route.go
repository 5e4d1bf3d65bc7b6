package server

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// kept are the methods about what the server keeps of its clients: sessions, log levels and subscriptions. A Route cannot have them.
func kept() []string {
	return []string{
		protocol.MethodInitialize, protocol.MethodDiscover, protocol.MethodSetLogLevel,
		protocol.MethodSubscribe, protocol.MethodUnsubscribe, protocol.MethodListen,
	}
}

// routed returns the row of a method that the program serves from undecoded params.
func routed(name string, serve RawHandler, check func(*settings)) *method {
	var of settings
	if slices.Contains([]string{protocol.MethodCallTool, protocol.MethodGetPrompt, protocol.MethodReadResource}, name) {
		// Only these three may have questions in 2026-07-28. The handler passes on those of another server, so it
		// waits; what a client must be able to do, nobody knows before.
		of.asking = &askingOption{how: Waits}
		check(&of)
	}
	m := anyRow(name, func(ctx context.Context, c *call, params *json.RawMessage) (any, error) {
		return c.route(ctx, &of, *params, serve)
	})
	m.decode = func(raw []byte, params any, _ func([]byte, any) error) error {
		*params.(*json.RawMessage) = raw // call.route checks it
		return nil
	}
	m.encode = encodeRouted
	if m.Extension == "" {
		return m
	}
	// In the modern revisions the methods of an extension need that in place of the capability. When takes the capability out of the row.
	inLegacy := m.ServerCapability
	return m.when(func(c *call) bool {
		if c.modern {
			return c.offered.Has("extensions." + m.Extension)
		}
		return c.offered.Has(inLegacy)
	})
}

// rawParams are params of which the server reads only what is its own.
type rawParams struct {
	protocol.RequestParams
	protocol.InputParams
	Others map[string]json.RawMessage `json:",unknown"`
}

// withoutAnswers returns the params without what belongs to the rounds of a call.
// The state is sealed by this server and means nothing to anybody else, and the answers reach the program by
// Request.Answers, or as those to its questions.
func (p *rawParams) withoutAnswers(raw json.RawMessage) (json.RawMessage, error) {
	switch {
	case len(raw) == 0:
		return json.RawMessage("{}"), nil
	case p.InputResponses == nil && p.RequestState == nil:
		return raw, nil
	}
	without := *p
	without.InputParams = protocol.InputParams{}
	return protocol.Marshal(&without)
}

// route serves a call by a RawHandler.
func (c *call) route(ctx context.Context, of *settings, raw json.RawMessage, serve RawHandler) (any, error) {
	var params rawParams
	if err := protocol.UnmarshalParams(raw, &params); err != nil {
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "%s: %s", c.Method, refusal.Explain(err))
	}
	raw, err := params.withoutAnswers(raw)
	if err = cmp.Or(c.readProgressToken(&params.RequestParams), err); err != nil {
		return nil, err
	}
	// All other methods end with one answer.
	if of.asking == nil {
		return serve(ctx, raw)
	}
	about := asking.Subject{Method: c.Method, Name: c.method.NameOf(raw), Arguments: params.Others["arguments"], Identity: c.Origin.Identity}
	call := invocation[json.RawMessage]{of, &params.InputParams, about, func(ctx context.Context) (json.RawMessage, error) { return serve(ctx, raw) }}
	result, required, err := converse(ctx, c, call)
	if required != nil {
		return &protocol.CallToolResult{InputRequired: required}, nil // such a result is the same for every method
	}
	return result, err
}

// encodeRouted appends the result of a RawHandler to dst.
func encodeRouted(c *call, dst []byte, result any) ([]byte, error) {
	raw, ok := result.(json.RawMessage)
	switch {
	case !ok:
		return encode(c, dst, result)
	case len(raw) < len("{}") || raw[0] != '{':
		return nil, refusal.New(jsonrpc.CodeInternalError, "%s: the result is no object", c.Method)
	case !c.modern:
		return appendLegacy(dst, raw)
	}
	return c.appendModern(dst, raw), nil
}

// appendModern appends a result with the members that a modern one must have. What is missing goes to the front, so the text
// of the program is copied once. It is looked through for each of these members, but not decoded.
func (c *call) appendModern(dst []byte, raw json.RawMessage) []byte {
	const whole = `"` + protocol.ResultComplete + `"`
	kind, _ := jsonrpc.Member(raw, "resultType")
	dst = append(dst, '{')
	start := len(dst)
	if lacks(raw, "_meta") {
		dst = append(append(append(dst, `"_meta":`...), c.peer.server.rawMeta...), ',')
	}
	if kind == nil {
		dst = append(dst, `"resultType":`+whole+`,`...)
	}
	isWhole := kind == nil || string(kind) == whole
	if isWhole && isCacheable(c.Method) && lacks(raw, "cacheScope") {
		dst = append(dst, `"cacheScope":"`+protocol.CachePrivate+`",`...)
	}
	if isWhole && isCacheable(c.Method) && lacks(raw, "ttlMs") {
		dst = append(dst, `"ttlMs":0,`...)
	}
	return appendRest(dst, start, raw)
}

// isCacheable reports whether the results of a method say how long they may be cached.
func isCacheable(method string) bool {
	switch method {
	case protocol.MethodListTools, protocol.MethodListPrompts, protocol.MethodListResources, protocol.MethodListResourceTemplates, protocol.MethodReadResource:
		return true
	default:
		return false
	}
}

// appendLegacy appends a result without the members that only modern results have.
// What has no resultType is taken as it is: it comes from a server of such a revision, or from a program that has
// thought of it.
func appendLegacy(dst []byte, raw json.RawMessage) ([]byte, error) {
	if kind, _ := jsonrpc.Member(raw, "resultType"); kind == nil {
		return append(dst, raw...), nil
	}
	members, err := membersOf(raw)
	if err != nil {
		return nil, err
	}
	for i, m := range members {
		if m.name != "_meta" {
			continue
		}
		meta, err := membersOf(m.value)
		if err != nil {
			return nil, err
		}
		members[i].value = objectOf(without(meta, protocol.MetaServerInfo))
	}
	return append(dst, objectOf(without(members, "resultType", "ttlMs", "cacheScope"))...), nil
}

// without drops members.
func without(members []member, names ...string) []member {
	return slices.DeleteFunc(members, func(m member) bool { return slices.Contains(names, m.name) })
}
