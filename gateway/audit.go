package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// Admin is the program that the person at the page is for servers, for the report and for whatever records calls.
const Admin = "admin"

// A passage is what a gateway knows of a request that it has passed on, for its record.
type passage struct {
	server, own      string
	rule             string // that decided; "": no policy does
	denied           bool   // by the rule, so no server knows of it
	away             bool   // the server has not answered, or was not asked
	delivery, reason string
	failed           bool   // the tool says so
	bytes            int    // of the params
	out              int    // bytes of the result
	arguments        string // a digest of them
	trace            string // the traceparent of a span of this program; "": it has none
	shown            json.RawMessage
}

// passageOf returns what is known of a request whatever becomes of it. Digest may be nil.
func passageOf(name, method string, params json.RawMessage, digest func([]byte) string) passage {
	p := passage{server: name, own: targetOf(method, params), bytes: len(params)}
	if digest != nil {
		p.arguments = digest(argumentsOf(method, params))
	}
	return p
}

// isToolError reports whether the result of a tool says that it has failed.
func isToolError(result json.RawMessage) bool {
	failed, _ := jsonrpc.Member(result, "isError")
	return string(failed) == "true"
}

// auditing returns what calls the program's own Audit, which may be nil, and then writes a record to the trail.
func auditing(given func(context.Context, server.Record), trail func(context.Context, audit.Record), named func(*transport.Origin) string) func(context.Context, server.Record) {
	return func(ctx context.Context, r server.Record) {
		if given != nil {
			given(ctx, r)
		}
		record := recordOf(r)
		record.User = named(r.Origin)
		record.Trace, record.Span = traceOf(ctx, r.Note)
		trail(ctx, record)
	}
}

// recordOf leaves out whatever a server or a client may have put a secret into: results, headers, and the texts of errors. Of these it has two, neither of which is a server's: why a
// requestState was refused here, and why a request was denied over HTTP, as its sender was told.
func recordOf(r server.Record) audit.Record {
	record := audit.Record{
		Time: r.Time, Millis: float64(r.Duration.Microseconds()) / 1000, Principal: r.Origin.Identity, Address: r.Origin.Address(), ID: r.ID.String(),
		Method: r.Method, Name: r.Name, Outcome: string(r.Outcome), Code: r.Code, Status: r.Status,
	}
	if r.Client != nil {
		record.Client, record.Revision = programOf(r.Client), r.Client.ProtocolVersion
	}
	record.Reason = stateRefused(r.Err)
	// Its text is that of a Denial of Check, or one of the transport's own: of an origin, a host, or a session of another identity. All are for people.
	if r.Outcome == server.OutcomeDenied && r.Status != 0 && r.Err != nil {
		record.Reason = r.Err.Error()
	}
	if _, isPerson := r.Origin.Principal.(atPage); isPerson {
		record.Principal = Admin
	}
	if p, passed := r.Note.(passage); passed {
		p.addTo(&record, r.Outcome)
	}
	return record
}

// stateRefused returns why this gateway has refused the requestState of a request; "": it has not. What a server answers has the same code and the same reason, but is no error of this type.
func stateRefused(err error) string {
	if err == nil {
		return "" // before the variable, which is an allocation
	}
	var refusal interface{ StateRefused() string }
	if !errors.As(err, &refusal) {
		return ""
	}
	return refusal.StateRefused()
}

// traceOf returns the ids of the trace and the span of a request: of the one in which this program serves it, or else of the one that its client names. Clients may name anything.
func traceOf(ctx context.Context, note any) (trace, span string) {
	if p, _ := note.(passage); p.trace != "" {
		return idsOf(p.trace)
	}
	request := server.RequestFrom(ctx)
	if request == nil {
		return "", "" // it was refused before its params were read
	}
	var named json.RawMessage
	if raw, routed := request.Params.(*json.RawMessage); routed {
		meta, _ := jsonrpc.Member(*raw, "_meta")
		named, _ = jsonrpc.Member(meta, protocol.MetaTraceparent)
	} else {
		named = protocol.MetaOf(request.Params)[protocol.MetaTraceparent]
	}
	if len(named) != len(`""`)+lengthOfParent {
		return "", ""
	}
	return idsOf(string(named[1 : len(named)-1]))
}

const lengthOfParent = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

// idsOf reads a traceparent of version 00 (W3C Trace Context). What is no such text has no ids.
func idsOf(parent string) (trace, span string) {
	if len(parent) != lengthOfParent || parent[:3] != "00-" || parent[35] != '-' || parent[52] != '-' {
		return "", ""
	}
	trace, span = parent[3:35], parent[36:52]
	for _, part := range []string{trace, span, parent[53:]} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return "", ""
		}
	}
	if strings.Trim(trace, "0") == "" || strings.Trim(span, "0") == "" {
		return "", ""
	}
	return trace, span
}

// addTo adds what became of a request at its server, or why it did not get there.
func (p *passage) addTo(record *audit.Record, answered server.Outcome) {
	record.Server, record.Own, record.Rule, record.Bytes, record.Arguments = p.server, p.own, p.rule, p.bytes, p.arguments
	record.Shown, record.Out = p.shown, p.out
	switch {
	case p.denied:
		record.Outcome = string(server.OutcomeDenied)
	case p.away:
		if record.Delivery, record.Reason = p.delivery, p.reason; answered != server.OutcomeCancelled {
			record.Outcome = outcomeAway
		}
	case p.failed && answered == server.OutcomeAnswered:
		record.Outcome = string(server.OutcomeToolError)
	}
}

// outcomeAway is the outcome of a request whose server has not answered, or was not asked. The others are those of package server.
const outcomeAway = "not answered"

// argumentsOf returns what of the params is the client's own choice: equal calls have equal arguments, whatever their progress token.
func argumentsOf(method string, params json.RawMessage) json.RawMessage {
	if method != protocol.MethodCallTool && method != protocol.MethodGetPrompt {
		return params
	}
	arguments, _ := jsonrpc.Member(params, "arguments")
	return arguments
}

// eventOf returns the record of what a person has done to the gateway.
func eventOf(who, event, name string, err error) audit.Record {
	record := audit.Record{Time: time.Now(), Event: event, Server: name, Principal: who}
	if err != nil {
		record.Outcome, record.Reason = string(server.OutcomeFailed), err.Error()
	}
	return record
}

// loginsTo returns what records how the login of a user at a server has ended. Why it has failed may be a text of the authorization server, and is not in the trail.
func loginsTo(trail func(context.Context, audit.Record)) func(ctx context.Context, name, user string, err error) {
	return func(ctx context.Context, name, user string, err error) {
		if trail == nil {
			return
		}
		record := eventOf(user, "login", name, nil)
		if err != nil {
			record.Outcome = string(server.OutcomeFailed)
		}
		trail(ctx, record)
	}
}
