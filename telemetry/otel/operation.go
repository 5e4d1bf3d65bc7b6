package otel

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// maxName is the maximum length of a recorded name, in characters. Peers choose names.
const maxName = 128

// shorten cuts a name after maxName characters, and replaces those that cannot be printed.
func shorten(name string) string {
	plain := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, name[:min(len(name), 4*maxName)])
	if runes := []rune(plain); len(runes) > maxName {
		return string(runes[:maxName])
	}
	return plain
}

// names are the tools and prompts that servers have listed. Metrics contain no other name,
// because a peer can invent any number of them.
type names struct {
	mu      sync.RWMutex
	known   map[string]struct{}
	changes atomic.Uint64 // how often a name was added
}

// knows is has for the tool or prompt of a pattern, which remembers the answer until another
// name is added.
func (n *names) knows(name string, by *pattern) bool {
	if by == nil {
		return n.has(name)
	}
	const isAsked, isKnown = 1, 2
	now := n.changes.Load()<<2 | isAsked
	switch by.named.Load() {
	case now:
		return false
	case now | isKnown:
		return true
	}
	known := n.has(name)
	if known {
		now |= isKnown
	}
	by.named.Store(now)
	return known
}

func (n *names) has(name string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	_, ok := n.known[name]
	return ok
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = make(map[string]struct{})
	}
	if len(n.known) < maxSets && len(name) <= maxName && shorten(name) == name {
		n.known[name] = struct{}{}
		n.changes.Add(1)
	}
}

// learn adds the tools or prompts that a result lists.
func (n *names) learn(result any) {
	switch result := result.(type) {
	case *protocol.ListToolsResult:
		for _, tool := range result.Tools {
			if tool != nil && !n.has(tool.Name) {
				n.add(tool.Name)
			}
		}
	case *protocol.ListPromptsResult:
		for _, prompt := range result.Prompts {
			if prompt != nil && !n.has(prompt.Name) {
				n.add(prompt.Name)
			}
		}
	}
}

// An operation is one request, on either side.
type operation struct {
	method, tool, prompt, uri, version string
	http                               string // network.protocol.version; "" before it is known
	network                            *network
}

// target returns the name of the tool or prompt, or "".
func (op *operation) target() string {
	if op.tool != "" {
		return op.tool
	}
	return op.prompt
}

// of returns the operation of a request.
func of(method string, params any, version string, by *network) operation {
	op := operation{method: method, version: version, network: by}
	raw, isRaw := params.(json.RawMessage)
	switch params := params.(type) {
	case *protocol.CallToolParams:
		op.tool = params.Name
	case *protocol.GetPromptParams:
		op.prompt = params.Name
	case *protocol.ReadResourceParams:
		op.uri = params.URI
	case *protocol.SubscribeParams:
		op.uri = params.URI
	case *protocol.UnsubscribeParams:
		op.uri = params.URI
	}
	if isRaw {
		info, _ := protocol.MethodInfo(method)
		switch name := info.NameOf(raw); method {
		case protocol.MethodCallTool:
			op.tool = name
		case protocol.MethodGetPrompt:
			op.prompt = name
		default:
			op.uri = name
		}
	}
	return op
}

// start starts the span of an operation, with a link if that is valid.
func (t *Telemetry) start(ctx context.Context, begin *pattern, kind trace.SpanKind, link trace.Link) (context.Context, trace.Span) {
	if kind == trace.SpanKindClient && t.options.JoinToolSpans && begin.isTool {
		if span := trace.SpanFromContext(ctx); executesTool(span) {
			span.SetAttributes(begin.attributes...)
			return ctx, joined{span}
		}
	}
	options := begin.options
	if link.SpanContext.IsValid() {
		options = append(slices.Clip(options), trace.WithLinks(link))
	}
	return t.tracer.Start(ctx, begin.name, options...)
}

// A joined is a span of the program, which the program itself ends.
type joined struct{ trace.Span }

func (joined) End(...trace.SpanEndOption) {}

// executesTool reports whether the program traces the execution of a tool with a span.
func executesTool(span trace.Span) bool {
	readable, ok := span.(interface{ Attributes() []attribute.KeyValue })
	return ok && span.IsRecording() && slices.Contains(readable.Attributes(), keyOperation.String(executeTool))
}

// A failure is how an operation failed; zero if it did not. If it has a code and no kind,
// only the caller has failed.
type failure struct {
	kind, code, text string
	invented         bool // the code is none of isDefined
}

var internalError = failure{kind: "-32603", code: "-32603"}

// failureOf returns how a call has failed.
func failureOf(result any, err error) failure {
	if err != nil {
		return failureBy(err)
	}
	if called, ok := result.(*protocol.CallToolResult); ok && called != nil && called.IsError {
		return failure{kind: toolError}
	}
	return failure{}
}

func failureBy(err error) failure {
	var fault *jsonrpc.Error
	var call *conn.CallError
	switch {
	case errors.As(err, &fault):
		code := strconv.FormatInt(fault.Code, 10)
		return failure{kind: code, code: code, text: shorten(fault.Message), invented: !isDefined(fault.Code)}
	case errors.As(err, &call):
		return failure{kind: causes[call.Cause]}
	case errors.Is(err, context.DeadlineExceeded):
		return failure{kind: "timeout"}
	case errors.Is(err, context.Canceled):
		return failure{kind: "cancelled"}
	default:
		return failure{kind: other}
	}
}

// failureServed returns how a served request has failed. Ctx is the context of its handler.
func failureServed(ctx context.Context, result any, err error) failure {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), conn.ErrDraining) {
		return failure{kind: endOf(ctx)} // there is no answer
	}
	f := failureOf(result, err)
	if f.kind == other { // any other error of a handler is sent with this code
		return internalError
	}
	if fault := (*jsonrpc.Error)(nil); errors.As(err, &fault) && blamesCaller(fault.Code) {
		f.kind = ""
	}
	return f
}

// isDefined reports whether JSON-RPC, MCP or Bowline defines an error code. Metrics contain no
// other code, because a peer can invent any number of them.
func isDefined(code int64) bool {
	switch code {
	case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams,
		jsonrpc.CodeInternalError, jsonrpc.CodeOverloaded, jsonrpc.CodeAnswerDropped,
		protocol.CodeHeaderMismatch, protocol.CodeMissingCapability, protocol.CodeUnsupportedVersion,
		protocol.CodeUserRejected, protocol.CodeResourceNotFound, protocol.CodeURLElicitationRequired:
		return true
	default:
		return false
	}
}

// blamesCaller reports whether an error code says that the caller has sent what cannot be
// served. The conventions do not count that as a failure of who serves.
func blamesCaller(code int64) bool {
	switch code {
	case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams, protocol.CodeResourceNotFound:
		return true
	default:
		return false
	}
}

// endOf returns why the context of a handler has ended, as a value of error.type.
func endOf(ctx context.Context) string {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, conn.ErrPeerCancelled), errors.Is(cause, context.Canceled):
		return "cancelled"
	case errors.Is(cause, context.DeadlineExceeded):
		return "timeout"
	default:
		return "link_lost"
	}
}

// causes are the values of error.type for calls that the peer has not answered.
var causes = map[conn.Cause]string{
	conn.Answered: other, conn.PeerError: other,
	conn.TimedOut: "timeout", conn.Cancelled: "cancelled", conn.LinkLost: "link_lost", conn.Refused: "refused", conn.ShutDown: "shut_down",
}

// end ends the span of an operation.
func (f failure) end(span trace.Span) {
	if f.code != "" {
		span.SetAttributes(keyStatusCode.String(f.code))
	}
	if f.kind != "" {
		span.SetAttributes(keyErrorType.String(f.kind))
		span.SetStatus(codes.Error, f.text)
	}
	span.End()
}

// record measures an operation. If its tool or prompt is not known, the name is _OTHER.
func (m *metrics) record(ctx context.Context, to metric.Float64Histogram, op *operation, by *pattern, f failure, known bool, took time.Duration) {
	var found *set
	if f == (failure{}) && by != nil {
		found = m.answered(op, by, known)
	} else {
		found = m.setOf(op, f, known)
	}
	to.Record(ctx, took.Seconds(), found.record...)
}

// answered is setOf for an operation without a failure. Its pattern keeps the set.
func (m *metrics) answered(op *operation, by *pattern, known bool) *set {
	sets := &by.unnamed
	if known {
		sets = &by.answered
	}
	kept := &sets[1+slices.Index(httpVersions[:], op.http)]
	if found := kept.Load(); found != nil {
		return found.counted()
	}
	found := m.setOf(op, failure{}, known)
	kept.Store(found)
	return found
}

// setOf returns the attributes of an operation that has ended.
func (m *metrics) setOf(op *operation, f failure, known bool) *set {
	v := [12]string{listed(op.method), op.tool, op.prompt, "", f.kind, f.code, op.version,
		op.network.transport, op.network.protocol, op.http, op.network.address, op.network.port}
	if op.tool != "" {
		v[3] = executeTool
	}
	if !known {
		hide(v[1:3])
	}
	if f.invented {
		hide(v[4:6])
	}
	return m.operations.of(v)
}

// hide replaces the values that are present.
func hide(values []string) {
	for i, value := range values {
		if value != "" {
			values[i] = other
		}
	}
}
