package server

import (
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
	// Before when, which takes it out of the row.
	inLegacy := m.ServerCapability
	return m.when(func(c *call) bool {
		if c.modern && m.Extension != "" {
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
	return protocol.Marshal(struct {
		protocol.RequestParams
		Others map[string]json.RawMessage `json:",unknown"`
	}{p.RequestParams, p.Others})
}

// route serves a call by a RawHandler.
func (c *call) route(ctx context.Context, of *settings, raw json.RawMessage, serve RawHandler) (any, error) {
	var params rawParams
	if err := protocol.UnmarshalParams(raw, &params); err != nil {
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "%s: %s", c.Method, refusal.Explain(err))
	}
	if err := c.readProgressToken(&params.RequestParams); err != nil {
		return nil, err
	}
	raw, err := params.withoutAnswers(raw)
	if err != nil {
		return nil, err
	}
	// All other methods end with one answer.
	if of.asking == nil {
		return serve(ctx, raw)
	}
	about := asking.Subject{Method: c.Method, Name: c.method.NameOf(raw), Arguments: params.Others["arguments"], Identity: c.Origin.Identity}
	run := func(ctx context.Context) (json.RawMessage, error) { return serve(ctx, raw) }
	result, required, err := converse(ctx, c, invocation[json.RawMessage]{of, &params.InputParams, about, run})
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
	// What is missing goes to the front, so the text of the program is copied once, and not decoded. A large result
	// costs no more than that.
	dst = append(dst, '{')
	start := len(dst)
	for _, one := range c.required(raw) {
		if value, _ := jsonrpc.Member(raw, one.name); value == nil {
			dst = append(append(dst, `"`+one.name+`":`...), append(one.value, ',')...)
		}
	}
	if empty := len(raw) == len("{}"); empty && len(dst) > start {
		dst = dst[:len(dst)-1] // the last comma
	}
	return append(dst, raw[1:]...), nil
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

// A stamp is a member that the server adds to a result.
type stamp struct {
	name  string
	value []byte // its own
}

// required returns the members that a modern result must have, with the values for a result without them.
func (c *call) required(result json.RawMessage) []stamp {
	all := []stamp{
		{"_meta", slices.Clone(c.peer.server.rawMeta)},
		{"resultType", []byte(`"` + protocol.ResultComplete + `"`)},
	}
	if kind, _ := jsonrpc.Member(result, "resultType"); kind != nil && string(kind) != `"`+protocol.ResultComplete+`"` {
		return all
	}
	switch c.Method {
	case protocol.MethodListTools, protocol.MethodListPrompts, protocol.MethodListResources, protocol.MethodListResourceTemplates, protocol.MethodReadResource:
		return append(all, stamp{"cacheScope", []byte(`"` + protocol.CachePrivate + `"`)}, stamp{"ttlMs", []byte("0")})
	default:
		return all
	}
}
