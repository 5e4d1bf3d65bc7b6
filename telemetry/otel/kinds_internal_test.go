package otel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// Each kind of request that names something is told with that name, whether its params are decoded or not.
func TestWhatAnOperationIsAbout(t *testing.T) {
	for _, test := range []struct {
		method            string
		params            any
		tool, prompt, uri string
	}{
		{protocol.MethodCallTool, &protocol.CallToolParams{Name: "a"}, "a", "", ""},
		{protocol.MethodGetPrompt, &protocol.GetPromptParams{Name: "a"}, "", "a", ""},
		{protocol.MethodReadResource, &protocol.ReadResourceParams{URI: "a:b"}, "", "", "a:b"},
		{protocol.MethodSubscribe, &protocol.SubscribeParams{URI: "a:b"}, "", "", "a:b"},
		{protocol.MethodUnsubscribe, &protocol.UnsubscribeParams{URI: "a:b"}, "", "", "a:b"},
		{protocol.MethodCallTool, json.RawMessage(`{"name":"a"}`), "a", "", ""},
		{protocol.MethodGetPrompt, json.RawMessage(`{"name":"a"}`), "", "a", ""},
		{protocol.MethodReadResource, json.RawMessage(`{"uri":"a:b"}`), "", "", "a:b"},
		{protocol.MethodListTools, &protocol.ListToolsParams{}, "", "", ""},
		{protocol.MethodListTools, json.RawMessage(`{"name":"a"}`), "", "", ""},
	} {
		op := of(test.method, test.params, "v", overPipe)
		if op.tool != test.tool || op.prompt != test.prompt || op.uri != test.uri || op.method != test.method || op.version != "v" || op.network != overPipe {
			t.Errorf("%s %T: got %+v", test.method, test.params, op)
		}
	}
}

// The type of an error says how a call has ended, also if the error is wrapped.
func TestKindsOfFailures(t *testing.T) {
	for kind, err := range map[string]error{
		"timeout":    fmt.Errorf("late: %w", context.DeadlineExceeded),
		"cancelled":  fmt.Errorf("enough: %w", context.Canceled),
		"link_lost":  fmt.Errorf("gone: %w", &conn.CallError{Cause: conn.LinkLost}),
		"refused":    &conn.CallError{Cause: conn.Refused},
		"shut_down":  &conn.CallError{Cause: conn.ShutDown},
		"_OTHER":     errors.New("broken"),
		"-32601":     &conn.CallError{Cause: conn.PeerError, Err: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}},
		"-32050":     fmt.Errorf("later: %w", &jsonrpc.Error{Code: jsonrpc.CodeOverloaded}),
		"tool_error": nil,
	} {
		got := failureOf(&protocol.CallToolResult{IsError: true}, err)
		if got.kind != kind {
			t.Errorf("%v: got %q, want %q", err, got.kind, kind)
		}
	}
	for cause, kind := range map[conn.Cause]string{conn.TimedOut: "timeout", conn.Cancelled: "cancelled"} {
		if got := failureOf(nil, &conn.CallError{Cause: cause}); got.kind != kind {
			t.Errorf("%v: got %q, want %q", cause, got.kind, kind)
		}
	}
	if f := failureServed(t.Context(), nil, fmt.Errorf("wrapped: %w", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams})); f.kind != "" || f.code != "-32602" {
		t.Errorf("served with a wrapped error that blames the caller: %+v", f)
	}
	for _, code := range []int64{
		jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams, jsonrpc.CodeInternalError,
		jsonrpc.CodeOverloaded, jsonrpc.CodeAnswerDropped, protocol.CodeHeaderMismatch, protocol.CodeMissingCapability,
		protocol.CodeUnsupportedVersion, protocol.CodeUserRejected, protocol.CodeResourceNotFound, protocol.CodeURLElicitationRequired,
	} {
		if failureOf(nil, &jsonrpc.Error{Code: code}).invented {
			t.Errorf("the code %d counts as invented", code)
		}
	}
}

// A handler whose context has ended has failed, with the reason for that, unless its connection drains: then its
// answer is sent.
func TestServedUntilTheContextEnds(t *testing.T) {
	for cause, kind := range map[error]string{
		conn.ErrPeerCancelled:                    "cancelled",
		context.Canceled:                         "cancelled",
		context.DeadlineExceeded:                 "timeout",
		errors.New("lost"):                       "link_lost",
		conn.ErrDraining:                         "",
		fmt.Errorf("soon: %w", conn.ErrDraining): "",
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if got := failureServed(ctx, &protocol.CallToolResult{}, nil); got.kind != kind {
			t.Errorf("%v: got %q, want %q", cause, got.kind, kind)
		}
	}
}

// Without a port in the endpoint it is that of its scheme.
func TestServerOfAnEndpoint(t *testing.T) {
	for endpoint, want := range map[string]network{
		"http://a":        {"tcp", "http", "a", "80"},
		"https://a/mcp":   {"tcp", "http", "a", "443"},
		"https://a:8443/": {"tcp", "http", "a", "8443"},
		"http://[::1]:1":  {"tcp", "http", "::1", "1"},
		"wss://a":         {},
		":":               {},
	} {
		if got := networkTo(endpoint); *got != want {
			t.Errorf("%s: got %+v, want %+v", endpoint, *got, want)
		}
	}
	for session, headers := range map[string][]string{"a": {"a"}, "": {"a", "b"}} { // of two ids, none is told
		if got := sessionOf(&transport.Origin{Headers: http.Header{"Mcp-Session-Id": headers}}); got != session {
			t.Errorf("the session of %q is %q, want %q", headers, got, session)
		}
	}
	for http, want := range map[string]string{"": "", "1.0": "1.0", "1.1": "1.1", "2": "2", "3": "3", "4": "_OTHER"} {
		if got := versionOf(http); got != want {
			t.Errorf("version %q: got %q, want %q", http, got, want)
		}
	}
}

// What was refused is not what was denied, and a token that has expired has no time left.
func TestReadingsOfHTTPAndAuth(t *testing.T) {
	read := func(name string, s telemetry.Sample) (got []string) {
		i := slices.IndexFunc(readings, func(r reading) bool { return r.name == name })
		readings[i].of(&s, func(value float64, more labels) {
			set := attribute.NewSet(slices.DeleteFunc(more[:], func(kv attribute.KeyValue) bool { return !kv.Valid() })...)
			got = append(got, fmt.Sprint(value, " ", set.Encoded(attribute.DefaultEncoder())))
		})
		return got
	}
	of := telemetry.HTTPSample{Refused: []telemetry.Refused{{Status: 400, Count: 2}}, Denied: []telemetry.Refused{{Status: 403, Count: 1}}}
	if got := read("bowline.http.refused", telemetry.Sample{HTTP: &of}); !slices.Equal(got, []string{"2 bowline.status=400"}) {
		t.Errorf("refused: %q", got)
	}
	for at, want := range map[time.Time][]string{{}: nil, time.Now().Add(-time.Hour): {"0 "}} {
		if got := read("bowline.auth.expires", telemetry.Sample{Auth: &telemetry.AuthSample{Expires: at}}); !slices.Equal(got, want) {
			t.Errorf("expires at %v: %q, want %q", at, got, want)
		}
	}
}
