package server

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/internal/scan"
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
	defer prefix("Route", name)
	var quiet, of settings
	if slices.Contains([]string{protocol.MethodCallTool, protocol.MethodGetPrompt, protocol.MethodReadResource, protocol.MethodGetTaskResult}, name) {
		// Only the first three may have questions in 2026-07-28, and in 2025-11-25 a task has some for who waits for its result. The handler
		// passes on those of another server, so it waits; what a client must be able to do, nobody knows before.
		of.asking = &askingOption{how: Waits}
		check(&of)
	}
	var m *method
	m = anyRow(name, func(ctx context.Context, c *call, params *json.RawMessage) (any, error) {
		if m.Extension != "" {
			if err := declared(c, m.Extension); err != nil {
				return nil, err
			}
		}
		return c.route(ctx, &of, &quiet, *params, serve)
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

// rawParams are what the server reads of params itself. All other members stay as they are.
type rawParams struct {
	protocol.RequestParams
	protocol.InputParams
	Others map[string]json.RawMessage `json:",unknown"` // so that repeated ones are refused
}

// readRouted reads params, and returns them without what belongs to the rounds of a call, if that has rounds.
// The state is sealed by this server and means nothing to anybody else, and the answers reach the program by
// Request.Answers, or as those to its questions.
func (c *call) readRouted(raw json.RawMessage, rounds bool) (own json.RawMessage, given protocol.InputParams, err error) {
	var params rawParams
	switch {
	case len(raw) == 0:
		return json.RawMessage("{}"), given, nil
	case !params.readPlain(raw):
		if err := protocol.UnmarshalParams(raw, &params); err != nil {
			return nil, given, refusal.New(jsonrpc.CodeInvalidParams, "%s: %s", c.Method, refusal.Explain(err))
		}
	}
	if rounds && (params.InputResponses != nil || params.RequestState != nil) {
		raw = append(scan.AppendMembers([]byte{'{'}, raw, "inputResponses", "requestState"), '}')
	}
	return raw, params.InputParams, c.readProgressToken(&params.RequestParams)
}

// readPlain reads params that have nothing to decode but a progress token. It reports false if there may be more. Most
// calls are of that kind, and to see that no member is repeated is much faster than to decode them.
func (p *rawParams) readPlain(raw json.RawMessage) bool {
	var meta json.RawMessage
	// One pass does it all, because the arguments of a call may be large: the text of a file that a model writes, with an
	// escape for each line and each quote.
	text := scan.Unique(raw)
	for name := range text.Members {
		switch value := text.Value(); string(name) {
		case "_meta":
			meta = value
		// These belong to the rounds of a call: they are decoded.
		case "inputResponses", "requestState":
			return false
		}
	}
	if !text.End() || meta != nil && meta[0] != '{' {
		return false
	}
	if token, _ := jsonrpc.Member(meta, protocol.MetaProgressToken); token != nil {
		p.Meta = protocol.Meta{protocol.MetaProgressToken: token}
	}
	return true
}

// route serves a call by a RawHandler. Of are the settings of a call that may ask, and quiet those of one that does not.
func (c *call) route(ctx context.Context, of, quiet *settings, raw json.RawMessage, serve RawHandler) (any, error) {
	raw, given, err := c.readRouted(raw, of.asking != nil)
	if err != nil {
		return nil, err
	}
	// All other methods end with one answer.
	if of.asking == nil {
		return serve(ctx, raw)
	}
	// A state may be that of a call which waits.
	if asks := c.peer.server.options.RouteAsks; asks != nil && given.RequestState == nil && !asks(ctx, c.Method, raw) {
		of = quiet
	}
	call := invocation[json.RawMessage]{of: of, given: &given, run: func(ctx context.Context) (json.RawMessage, error) { return serve(ctx, raw) }}
	if c.modern { // only its states are about something
		arguments, _ := jsonrpc.Member(raw, "arguments")
		call.about = asking.Subject{Method: c.Method, Name: c.method.NameOf(raw), Arguments: arguments, Identity: c.Origin.Identity}
	}
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
		return appendLegacy(dst, raw), nil
	}
	return c.appendModern(dst, raw), nil
}

// appendModern appends a result with the members that a modern one must have. What is missing goes to the front, so the text
// of the program is copied once. It is looked through once for these members, but not decoded.
func (c *call) appendModern(dst []byte, raw json.RawMessage) []byte {
	const whole = `"` + protocol.ResultComplete + `"`
	var kind json.RawMessage
	var hasMeta, hasScope, hasTTL bool
	for w := scan.Over(raw); w.Next(); {
		switch {
		case w.Is("resultType") && kind == nil:
			kind = w.Value()
		case w.Is("_meta"):
			hasMeta = true
		case w.Is("cacheScope"):
			hasScope = true
		case w.Is("ttlMs"):
			hasTTL = true
		}
	}
	dst = append(dst, '{')
	if !hasMeta {
		dst = append(append(append(dst, `"_meta":`...), c.peer.server.rawMeta...), ',')
	}
	if kind == nil {
		dst = append(dst, `"resultType":`+whole+`,`...)
	}
	isWhole := kind == nil || string(kind) == whole
	if isWhole && isCacheable(c.Method) && !hasScope {
		dst = append(dst, `"cacheScope":"`+protocol.CachePrivate+`",`...)
	}
	if isWhole && isCacheable(c.Method) && !hasTTL {
		dst = append(dst, `"ttlMs":0,`...)
	}
	return appendRest(dst, raw)
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
func appendLegacy(dst []byte, raw json.RawMessage) []byte {
	if kind, _ := jsonrpc.Member(raw, "resultType"); kind == nil {
		return append(dst, raw...)
	}
	dst = append(dst, '{')
	if meta, _ := jsonrpc.Member(raw, "_meta"); meta != nil {
		dst = append(scan.AppendMembers(append(dst, `"_meta":{`...), meta, protocol.MetaServerInfo), '}')
	}
	return append(scan.AppendMembers(dst, raw, "_meta", "resultType", "ttlMs", "cacheScope"), '}')
}
