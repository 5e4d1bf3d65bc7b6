package server

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

const knownMeta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// What may follow the known members of a _meta, and what may follow the _meta.
var (
	rests = []string{
		`}`, `,"name":"a"}`, ` , "name" : "a" }`, `,"name":"a","arguments":{"a":[1,"\ud83d"]}}`, `,"name":"a","arguments":{"_meta":1}}`,
		`,"_meta":{},"name":"a"}`, `,"\u005fmeta":{},"name":"a"}`, `,"name":"a","_meta":null}`, `,"name":"a","name":"b"}`,
		`,"name":1}`, `,"Name":"a"}`, `,"unknown":{"a":1},"name":"a"}`,
	}
	traces = []string{
		"", `,"traceparent":"00-1-2-01"`, `,"traceparent":"a","tracestate":"b=1","baggage":"c=d"`, `,"tracestate":"b","traceparent":""`, `,"tracestate":"b","tracestate":"c"`,
		`,"traceparent":"a","traceparent":"b"`, `,"traceparent":7`, `,"traceparent":"\u0061"`, `,"traceparent":"a\""`, `, "traceparent":"a"`,
		`,"traceparent":"a","other":1`, `,"traceparent":{"a":"b"}`, `,"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `,"baggage":"_meta"`,
		`,"traceparent":null`, `,"progressToken":7`, `,"traceparent":"` + "\x01" + `"`,
	}
)

// begun returns params with a _meta and what follows it, which are those of the request or are in an argument of it.
func begun(t *rapid.T, meta, rest string) string {
	before := rapid.SampledFrom([]string{"", ` `, `{"name":"b","x":`, `{"arguments":`, `{"name":"b","_meta":` + knownMeta + `,"arguments":`}).Draw(t, "before")
	params := before + `{"_meta":` + meta + rest
	if strings.HasPrefix(before, "{") {
		params += "}"
	}
	return params
}

// Guarantees: G-0049.1
func TestKnownMetaChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		params := begun(t, withTraceMembers(rapid.SampledFrom(traces).Draw(t, "trace")), rapid.SampledFrom(rests).Draw(t, "rest"))
		method := rapid.SampledFrom([]string{protocol.MethodCallTool, protocol.MethodListTools, protocol.MethodReadResource}).Draw(t, "method")
		before := withTraceMembers(rapid.SampledFrom(traces[:4]).Draw(t, "trace before"))
		whole, known := decoded(t, method, params, ""), decoded(t, method, params, before)
		if whole != known {
			t.Fatalf("%s of %s: %s when _meta is known, else %s", method, params, known, whole)
		}
	})
}

// decoded returns what the server reads from params, and what is left. known is the
// _meta of an earlier request, or empty.
func decoded(t *rapid.T, method, params, known string) string {
	s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{})
	row := (*s.methods.Load())[method]
	c := (&peer{server: &s.host}).newCall(t.Context(), &conn.Incoming{Method: method, Params: json.RawMessage(params)}, row)
	if known != "" {
		first := (&peer{server: &s.host}).newCall(t.Context(), &conn.Incoming{Method: method, Params: json.RawMessage(`{"_meta":` + known + `}`)}, row)
		if err := first.identify(); err != nil {
			t.Fatal(err)
		}
		c.peer = first.peer
	}
	if err := c.identify(); err != nil {
		return err.Error()
	}
	if err := c.decodeParams(row); err != nil {
		return err.Error()
	}
	return shown(t, c, params)
}

// shown returns what the program sees of a call whose params were decoded.
func shown(t *rapid.T, c *call, params string) string {
	if string(c.in.Params) != params {
		t.Fatalf("the params became %s, want %v", c.in.Params, params)
	}
	raw, err := json.Marshal(RequestFrom(c).Params)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(c.modern, *c.Client, reflect.TypeOf(c.Params), string(raw))
}

// A trace context alone in the _meta of a legacy request is not decoded in full.
//
// Guarantees: G-0049.1
func TestTracedLegacyMetaChangesNothing(t *testing.T) {
	s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{})
	from := &peer{server: &s.host}
	from.session.Store(&Session{client: &Client{ProtocolVersion: protocol.LatestLegacy}, offered: s.capabilities.of(s.capabilities.has(), false)})
	rapid.Check(t, func(t *rapid.T) {
		members := strings.TrimPrefix(rapid.SampledFrom(traces).Draw(t, "trace"), ",")
		params := begun(t, `{`+members+`}`, rapid.SampledFrom(rests).Draw(t, "rest"))
		method := rapid.SampledFrom([]string{protocol.MethodCallTool, protocol.MethodListTools, protocol.MethodReadResource}).Draw(t, "method")
		row := (*s.methods.Load())[method]
		decoded := func(inFull bool) string {
			params := params
			if inFull { // an escape behind the _meta
				params = strings.TrimSuffix(params, "}") + `,"more":"\u0061"}`
			}
			c := from.newCall(t.Context(), &conn.Incoming{Method: method, Params: json.RawMessage(params)}, row)
			if err := c.identify(); err != nil {
				return err.Error()
			}
			if inFull && c.cut.Rest != nil {
				t.Fatalf("%s is not read in full", params)
			}
			if err := c.decodeParams(row); err != nil {
				return err.Error()
			}
			return shown(t, c, params)
		}
		if fast, full := decoded(false), decoded(true); fast != full {
			t.Fatalf("%s of %s: %s, but in full %s", method, params, fast, full)
		}
	})
	c := from.newCall(t.Context(), &conn.Incoming{Method: protocol.MethodCallTool, Params: json.RawMessage(`{"_meta":{"traceparent":"a"},"name":"a"}`)}, nil)
	if err := c.identify(); err != nil || string(c.cut.Rest) != `"name":"a"}` || c.Session == nil {
		t.Errorf("a traced request is decoded in full: what follows is %q (%v)", c.cut.Rest, err)
	}
	modern := `{"name":"a","_meta":` + knownMeta + `,"arguments":{"_meta":{"traceparent":"a"}}}`
	c = from.newCall(t.Context(), &conn.Incoming{Method: protocol.MethodCallTool, Params: json.RawMessage(modern)}, nil)
	if err := c.identify(); err != nil || !c.modern {
		t.Errorf("a modern request with an argument _meta is taken for a legacy one (%v)", err)
	}
}

// The _meta of a call to a tool is made only if the program may look at it, and once.
func TestKnownMetaIsMadeWhenItIsAskedFor(t *testing.T) {
	through := func(next Handler) Handler { return next }
	for name, all := range map[string][]Middleware{"alone": nil, "with middleware": {through}} {
		s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{Middleware: all})
		row := (*s.methods.Load())[protocol.MethodCallTool]
		from := &peer{server: &s.host}
		var c *call
		for range 2 {
			c = from.newCall(t.Context(), &conn.Incoming{Method: protocol.MethodCallTool, Params: json.RawMessage(`{"_meta":` + knownMeta + `,"name":"a"}`)}, row)
			if err := c.identify(); err != nil {
				t.Fatal(err)
			}
			if err := c.decodeParams(row); err != nil {
				t.Fatal(err)
			}
		}
		if made := protocol.MetaOf(c.Params) != nil; made != (all != nil) {
			t.Errorf("%s: the _meta is made when the request is decoded: %t", name, made)
		}
		var asking sync.WaitGroup
		for range 2 {
			asking.Go(func() {
				if meta := protocol.MetaOf(RequestFrom(c).Params); len(meta) != 2 {
					t.Errorf("%s: the program sees %v", name, meta)
				}
			})
		}
		asking.Wait()
	}
}

// withTraceMembers returns knownMeta with more members at its end.
func withTraceMembers(members string) string {
	return strings.TrimSuffix(knownMeta, "}") + members + "}"
}

// A request that differs from an earlier one only in its trace members has a known
// _meta.
func TestTracedMetaIsKnown(t *testing.T) {
	s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{})
	row := (*s.methods.Load())[protocol.MethodCallTool]
	from := &peer{server: &s.host}
	var first *knownClient
	for _, trace := range []string{`,"traceparent":"a"`, `,"traceparent":"b","tracestate":"c=1"`, "", `,"traceparent":"d"`} {
		c := from.newCall(t.Context(), &conn.Incoming{Method: protocol.MethodCallTool, Params: json.RawMessage(`{"_meta":` + withTraceMembers(trace) + `,"name":"a"}`)}, row)
		if err := c.identify(); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = from.known.Load()
		} else if c.cut.Rest == nil || from.known.Load() != first {
			t.Errorf("the _meta with %q is decoded again, want it to be known", trace)
		}
		if other := (&peer{server: &s.host}).newCall(t.Context(), c.in, row); other.identify() != nil || other.Client != first.client {
			t.Errorf("the _meta with %q is decoded again for another peer, want it to be known", trace)
		}
	}
}

// A handler that changes the _meta of its request changes it for no other request.
func TestKnownMetaIsNotShared(t *testing.T) {
	s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{})
	row := (*s.methods.Load())[protocol.MethodCallTool]
	from := &peer{server: &s.host}
	for n := range 3 {
		c := from.newCall(t.Context(), &conn.Incoming{Method: protocol.MethodCallTool, Params: json.RawMessage(`{"_meta":` + knownMeta + `,"name":"a"}`)}, row)
		if err := c.identify(); err != nil {
			t.Fatal(err)
		}
		if err := c.decodeParams(row); err != nil {
			t.Fatal(err)
		}
		meta := protocol.MetaOf(RequestFrom(c).Params)
		if _, found := meta["mine"]; found || len(meta) != 2 {
			t.Errorf("request %d has %v", n, meta)
		}
		meta["mine"] = json.RawMessage(`1`)
	}
}

// The capabilities for modern clients are computed once, and again after a feature is
// added.
func TestModernCapabilitiesAreComputedOnce(t *testing.T) {
	s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{})
	offered := s.capabilities.modern()
	if again := s.capabilities.modern(); again != offered || again.Tools != nil {
		t.Errorf("before: %p and %p, tools %v", offered, again, again.Tools)
	}
	AddTool(s, protocol.Tool{Name: "a"}, func(context.Context, struct{}) (string, error) { return "", nil })
	if now, all := s.capabilities.modern(), s.capabilities.of(s.capabilities.has(), true); now.Tools == nil || !reflect.DeepEqual(now, all) {
		t.Errorf("after: got %+v, want %+v", now, all)
	}
}

// The result of initialize is encoded once for each revision, and again after a feature
// is added. A result that a middleware has changed is encoded separately.
func TestInitializeResultIsEncodedOnce(t *testing.T) {
	s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{Instructions: "ask"})
	encode := (*s.methods.Load())[protocol.MethodInitialize].encode
	c := (&peer{server: &s.host}).newCall(t.Context(), &conn.Incoming{Method: protocol.MethodInitialize}, nil)
	says := func(result *protocol.InitializeResult) string {
		t.Helper()
		got, err := encode(c, []byte("before"), result)
		if err != nil {
			t.Fatal(err)
		}
		want, err := protocol.Marshal(*result)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != "before"+string(want) {
			t.Errorf("got %s, want %s", got, want)
		}
		return string(want)
	}
	first := s.capabilities.introduction(protocol.LatestLegacy)
	says(&first.result)
	if again := s.capabilities.introduction(protocol.LatestLegacy); again != first {
		t.Error("an equal result was encoded again, want the kept one")
	}
	changed := first.result
	changed.Instructions = "do not ask"
	says(&changed)
	if older := s.capabilities.introduction(protocol.Version20241105); older.result.ProtocolVersion != protocol.Version20241105 {
		t.Errorf("another revision: %s, want %v", says(&older.result), protocol.Version20241105)
	}
	says(&first.result) // kept for a client that began before
	AddTool(s, protocol.Tool{Name: "a"}, func(context.Context, struct{}) (string, error) { return "", nil })
	if more := s.capabilities.introduction(protocol.LatestLegacy); more.result.Capabilities.Tools == nil || first.result.Capabilities.Tools != nil {
		t.Errorf("after a tool was added: %s, before: %s", says(&more.result), says(&first.result))
	}
}

// A modern request for a handler without questions allocates nothing for questions.
func TestHandlerWithoutQuestionsAllocatesNothingForThem(t *testing.T) {
	s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{})
	c := (&peer{server: &s.host}).newCall(t.Context(), &conn.Incoming{Method: protocol.MethodReadResource}, nil)
	c.modern, c.asked = true, new(asked)
	once := invocation[bool]{
		of: new(settings), given: new(protocol.InputParams), run: func(context.Context) (bool, error) { return true, nil },
	}
	allocated := testing.AllocsPerRun(100, func() {
		if ran, _, err := converse(t.Context(), c, once); !ran || err != nil {
			t.Fatal(ran, err)
		}
	})
	if t.Logf("%v allocations", allocated); allocated > 3 {
		t.Errorf("%v allocations, want 3 at most", allocated)
	}
}
