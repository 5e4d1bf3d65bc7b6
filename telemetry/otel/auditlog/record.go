package auditlog

import (
	"context"
	"math"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/protocol"
)

// The names of events.
const (
	eventRequest = "bowline.audit.request"
	eventOther   = "bowline.audit.event" // what has happened to the trail, or what a person has done
)

// prefix begins the names of what the semantic conventions have no name for. The rest is the name in the file.
const prefix = "bowline.audit."

// recordOf returns the log record of a record. What a record does not say has no attribute.
func recordOf(r *audit.Record) (to log.Record) {
	to.SetTimestamp(r.Time)
	to.SetSeverity(log.SeverityInfo)
	if isUnusual(r) {
		to.SetSeverity(log.SeverityWarn)
	}
	to.SetSeverityText(to.Severity().String())
	event, said := eventRequest, []string{r.Method, r.Name, r.Outcome}
	if r.Event != "" {
		event, said = eventOther, []string{r.Event, r.Server, r.Outcome}
	}
	to.SetEventName(event)
	to.SetBody(attribute.StringValue(strings.Join(strings.Fields(strings.Join(said, " ")), " ")))
	to.AddAttributes(attributesOf(r)...)
	return to
}

// withSpan returns a context with the span of a record, if it has one: the ids are members of a log record, by which collectors find it from its trace.
func withSpan(ctx context.Context, r *audit.Record) context.Context {
	about, err := trace.TraceIDFromHex(r.Trace)
	span, wrong := trace.SpanIDFromHex(r.Span)
	if err != nil || wrong != nil {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: about, SpanID: span, Remote: true}))
}

// isUnusual reports whether somebody should look at a record: a request that was not answered with a result, or records that are missing.
func isUnusual(r *audit.Record) bool {
	switch r.Event {
	case audit.EventLost, audit.EventDenied, audit.EventTorn, audit.EventMoved, audit.EventCut:
		return true
	}
	return r.Outcome != "" && r.Outcome != string(server.OutcomeAnswered)
}

func attributesOf(r *audit.Record) (all []attribute.KeyValue) {
	text := func(key, value string) {
		if value != "" {
			all = append(all, attribute.String(key, value))
		}
	}
	number := func(key string, value int64) { all = appendNumber(all, key, value) }
	number(prefix+"n", count(r.Number))
	text(prefix+"node", r.Node)
	text(prefix+"event", r.Event)
	number(prefix+"count", count(r.Count))
	text("user.id", r.Principal)
	text("user.name", r.User)
	text("client.address", r.Address)
	text(prefix+"client", r.Client)
	text("mcp.protocol.version", r.Revision)
	text("jsonrpc.request.id", r.ID)
	text("mcp.method.name", r.Method)
	text(nameKey(r.Method), r.Name)
	text(prefix+"server", r.Server)
	text(prefix+"own", r.Own)
	text(prefix+"rule", r.Rule)
	text(prefix+"outcome", r.Outcome)
	number("rpc.response.status_code", r.Code)
	number("http.response.status_code", int64(r.Status))
	text(prefix+"delivery", r.Delivery)
	text(prefix+"reason", r.Reason)
	number(prefix+"bytes", int64(r.Bytes))
	number(prefix+"out", int64(r.Out))
	text(prefix+"shown", string(r.Shown))
	text(prefix+"args", r.Arguments)
	text(prefix+"prev", r.Previous)
	if r.Millis != 0 {
		all = append(all, attribute.Float64(prefix+"ms", r.Millis))
	}
	return all
}

// appendNumber leaves out 0, as the file does.
func appendNumber(all []attribute.KeyValue, key string, value int64) []attribute.KeyValue {
	if value == 0 {
		return all
	}
	return append(all, attribute.Int64(key, value))
}

// nameKey returns what the conventions call that which a request is about.
func nameKey(method string) string {
	switch method {
	case protocol.MethodCallTool:
		return "gen_ai.tool.name"
	case protocol.MethodGetPrompt:
		return "gen_ai.prompt.name"
	case protocol.MethodReadResource, protocol.MethodSubscribe, protocol.MethodUnsubscribe:
		return "mcp.resource.uri"
	}
	return prefix + "name"
}

// count returns a number of records, of which logs have signed ones.
func count(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
