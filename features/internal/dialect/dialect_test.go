package dialect

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// In the modern revisions, each request names its revision, so ping and initialize are
// ordinary requests there. Only subscriptions/listen is special (2026-07-28
// basic/versioning).
//
// Guarantees: G-0020.1
func TestModernRequestsAreOrdinaryButForListen(t *testing.T) {
	for _, meta := range []string{
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`,
		`"io.modelcontextprotocol\/protocolVersion":"2031-01-01"`, // unknown revision, incomplete context
		`"io.modelcontextprotocol/protocolVersion":3`,
	} {
		for method, kind := range map[string]conn.ClassKind{
			protocol.MethodPing:       conn.Ordinary,
			protocol.MethodInitialize: conn.Ordinary,
			protocol.MethodDiscover:   conn.Ordinary,
			protocol.MethodCallTool:   conn.Ordinary,
			protocol.MethodListen:     conn.Streaming,
		} {
			m := &jsonrpc.Message{Kind: jsonrpc.KindRequest, Method: method, Params: []byte(`{"_meta":{` + meta + `}}`)}
			if got := new(Dialect).Classify(*m); got.Kind != kind || got.Answer != nil {
				t.Errorf("%s with %s: got %v, want got.Kind == %v and got.Answer == nil", method, meta, got, kind)
			}
		}
	}
}

// Classify finds the special requests of each revision.
//
// Guarantees: G-0020.1
func TestClassify(t *testing.T) {
	for _, test := range []struct {
		frame   string
		kind    conn.ClassKind
		request jsonrpc.ID
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, conn.Probe, jsonrpc.ID{}},
		{`{"jsonrpc":"2.0","method":"ping"}`, conn.Ordinary, jsonrpc.ID{}},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize"}`, conn.Exclusive, jsonrpc.ID{}},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, conn.Ordinary, jsonrpc.ID{}},
		{`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, conn.Ordinary, jsonrpc.ID{}},
		{`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`, conn.Streaming, jsonrpc.ID{}},
		{`{"jsonrpc":"2.0","method":"subscriptions/listen"}`, conn.Ordinary, jsonrpc.ID{}},
		{`{"jsonrpc":"2.0","id":1,"method":"tasks/result"}`, conn.Streaming, jsonrpc.ID{}},
		{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`, conn.Progress, jsonrpc.IntegerID(7)},
		{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"7","progress":1}}`, conn.Progress, jsonrpc.StringID("7")},
		{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`, conn.Ordinary, jsonrpc.ID{}},
		{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1.5}}`, conn.Ordinary, jsonrpc.ID{}},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`, conn.Cancellation, jsonrpc.StringID("a")},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}`, conn.Ordinary, jsonrpc.ID{}},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled"}`, conn.Ordinary, jsonrpc.ID{}},
		{`{"jsonrpc":"2.0","id":1,"method":"notifications/cancelled","params":{"requestId":"a"}}`, conn.Ordinary, jsonrpc.ID{}},
	} {
		m, err := jsonrpc.Decode([]byte(test.frame), jsonrpc.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		got := new(Dialect).Classify(m)
		if got.Kind != test.kind || got.Request != test.request {
			t.Errorf("%s: got %v %v, want got.Kind == %v and got.Request == %v", test.frame, got.Kind, got.Request, test.kind, test.request)
		}
	}
}

// Requests that a server makes in order to answer another request are recognized as
// nested.
//
// Guarantees: G-0003.15
func TestNestedRequestsOfServers(t *testing.T) {
	for method, kind := range map[string]conn.ClassKind{
		"sampling/createMessage": conn.Nested,
		"elicitation/create":     conn.Nested,
		"roots/list":             conn.Nested,
		"tools/list":             conn.Ordinary,
	} {
		m := &jsonrpc.Message{Kind: jsonrpc.KindRequest, Method: method}
		if got := new(Dialect).Classify(*m).Kind; got != kind {
			t.Errorf("%s: got %v, want %v", method, got, kind)
		}
	}
}

// Log messages and unknown notifications are droppable. Notifications of changes are not,
// but a later one with the same key replaces an earlier one.
//
// Guarantees: G-0006.2
func TestWhichNotificationsAreDroppable(t *testing.T) {
	for _, test := range []struct {
		method, params, key string
		droppable           bool
	}{
		{"notifications/tools/list_changed", ``, "notifications/tools/list_changed", false},
		{"notifications/prompts/list_changed", `{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}`, "notifications/prompts/list_changed  7", false},
		{"notifications/resources/list_changed", `[]`, "notifications/resources/list_changed", false},
		{"notifications/resources/updated", `{"uri":"file:///a"}`, "notifications/resources/updated file:///a ", false},
		{"notifications/resources/updated", `{"uri":"file:///a","_meta":{"io.modelcontextprotocol/subscriptionId":"b"}}`, `notifications/resources/updated file:///a "b"`, false},
		{"notifications/resources/updated", `{"uri":7}`, "notifications/resources/updated", false},
		{"notifications/roots/list_changed", ``, "notifications/roots/list_changed", false},
		{"notifications/message", `{"level":"info","data":1}`, "", true},
		{"notifications/initialized", ``, "", false},
		{"notifications/subscriptions/acknowledged", `{}`, "", false},
		{"notifications/of/another/kind", `{"uri":"file:///a"}`, "", true},
	} {
		m := &jsonrpc.Message{Kind: jsonrpc.KindNotification, Method: test.method, Params: []byte(test.params)}
		if got := new(Dialect).Classify(*m); got.Kind != conn.Ordinary || got.Key != test.key || got.Droppable != test.droppable {
			t.Errorf("%s %s: got %+v, want got.Kind == %v, got.Key == %v and got.Droppable == %v", test.method, test.params, got, conn.Ordinary, test.key, test.droppable)
		}
	}
}

// A silent peer is probed with ping, or with server/discover in the revisions without
// ping.
//
// Guarantees: G-0025.1
func TestProbe(t *testing.T) {
	d := new(Dialect)
	for _, test := range []struct{ version, method, params string }{
		{"", "ping", ""},
		{protocol.Version20260728, "server/discover", `{"_meta":{}}`},
		{protocol.Version20250326, "ping", ""},
	} {
		if test.version != "" {
			d.Negotiated(test.version, []byte(test.params))
		}
		if m := d.Probe(); m.Method != test.method || string(m.Params) != test.params {
			t.Errorf("%q: got %+v, want m.Method == %v and string(m.Params) == %v", test.version, m, test.method, test.params)
		}
	}
}

// A server does not probe a client before it knows its revision, nor one of a revision in which clients take no requests.
//
// Guarantees: G-0025.1
func TestAServerProbesOnlyLegacyClients(t *testing.T) {
	d := &Dialect{Serving: true}
	for _, test := range []struct{ version, method string }{{"", ""}, {protocol.Latest, ""}, {protocol.Version20251125, "ping"}} {
		if test.version != "" {
			d.Spoke(test.version)
		}
		if m := d.Probe(); m.Method != test.method {
			t.Errorf("%q: got %+v, want the method %q", test.version, m, test.method)
		}
	}
}

// Only what opens a session is served at once, by a server that needs no code of the program for that, and only an initialize of the revision with
// batches permits batches.
func TestWhatOpensASession(t *testing.T) {
	for _, test := range []struct {
		frame              string
		immediate, batches bool
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-2\u0036"}}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`, true, false},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","a":"2025-03-26"}}`, true, false},
		{`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, true, false},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, true, false},
		{`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}`, false, false},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, false, false},
	} {
		m, err := jsonrpc.Decode([]byte(test.frame), jsonrpc.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if got := (&Dialect{Serving: true, Immediate: true, Batching: true}).Classify(m); got.Immediate != test.immediate || got.Batches != test.batches {
			t.Errorf("%s: got %+v, want immediate: %t, batches: %t", test.frame, got, test.immediate, test.batches)
		}
		if got := (&Dialect{Serving: true}).Classify(m); got.Immediate || got.Batches {
			t.Errorf("%s: got %+v of a server that runs code of the program, and has no batches", test.frame, got)
		}
	}
}

// Each report of other roots counts, before anybody handles it.
//
// Guarantees: G-0106.6
func TestReportsOfOtherRootsCount(t *testing.T) {
	d := new(Dialect)
	for n := range uint32(3) {
		if got := d.RootsChanges(); got != n {
			t.Errorf("got %d reports, want %d", got, n)
		}
		d.Classify(jsonrpc.Message{Kind: jsonrpc.KindNotification, Method: protocol.NotificationRootsListChanged})
	}
}

// The notification of a cancellation names the request, and contains no text of the
// program's error.
func TestCancelNamesTheRequestAndHidesSecrets(t *testing.T) {
	for _, test := range []struct {
		why    error
		reason string
	}{
		{conn.ErrTimedOut, "timed out"},
		{fmt.Errorf("outer: %w", conn.ErrTimedOut), "timed out"},
		{fmt.Errorf("outer: %w", context.DeadlineExceeded), "timed out"},
		{context.Canceled, "cancelled"},
		{conn.ErrDraining, "closing"},
		{errors.New("the password is hunter2"), "cancelled"},
		{errors.New("\xff"), "cancelled"},
	} {
		m := new(Dialect).Cancel(jsonrpc.IntegerID(9007199254740993), test.why)
		var params protocol.CancelledParams
		if err := protocol.Unmarshal(m.Params, &params); err != nil {
			t.Fatal(err)
		}
		if m.Method != protocol.NotificationCancelled || params.RequestID != jsonrpc.IntegerID(9007199254740993) || params.Reason != test.reason {
			t.Errorf("%v: got %+v", test.why, m)
		}
	}
}

// Only 2025-03-26 has batches.
func TestBatchesBelongToOneRevision(t *testing.T) {
	d := new(Dialect)
	for _, version := range append(protocol.Versions(), "") {
		d.Negotiated(version, nil)
		if d.Batches() != (version == protocol.Version20250326) || d.Version() != version {
			t.Errorf("%q: batches %v, version %q", version, d.Batches(), d.Version())
		}
	}
}

func FuzzClassify(f *testing.F) {
	f.Add("notifications/progress", []byte(`{"progressToken":1}`))
	f.Add("notifications/cancelled", []byte(`{"requestId":"a"}`))
	f.Fuzz(func(t *testing.T, method string, params []byte) {
		m := &jsonrpc.Message{Kind: jsonrpc.KindNotification, Method: method, Params: params}
		class := new(Dialect).Classify(*m)
		if class.Kind != conn.Ordinary && class.Kind != conn.Exclusive && class.Request.IsZero() {
			t.Errorf("%v without a request", class.Kind)
		}
	})
}
