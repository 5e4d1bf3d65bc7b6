package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// modernServer returns a server that answers server/discover, and each other method
// with a fixed result.
func modernServer(results map[string]string) *fakeServer {
	return &fakeServer{answer: func(f frame) []string {
		if result, ok := results[f.Method]; ok {
			return []string{f.result(result)}
		}
		if f.Method == protocol.MethodDiscover {
			return []string{f.result(discovered)}
		}
		return nil
	}}
}

// metaOf returns the _meta of a frame.
func metaOf(t *testing.T, f frame) protocol.Meta {
	t.Helper()
	var params protocol.RequestParams
	if f.Params == nil {
		return nil
	}
	if err := json.Unmarshal(f.Params, &params); err != nil {
		t.Fatal(err)
	}
	return params.Meta
}

// Each modern request describes the client in _meta: its revision, its name and its
// capabilities.
//
// Guarantees: G-0020.5
func TestEveryModernRequestDescribesItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modernServer(map[string]string{
			protocol.MethodCallTool: `{"resultType":"complete","content":[]}`,
		})
		inner := s.answer
		s.answer = func(f frame) []string {
			switch {
			case f.Method == protocol.MethodListTools && cursorOf(f) == "none":
				return page(f, "a", "next")
			case f.Method == protocol.MethodListTools:
				return lastPage(f, "b")
			default:
				return inner(f)
			}
		}
		session, err := connect(t, s, client.Options{OnEvent: onToolsChanged(func(context.Context, *client.Session) {})}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		mine := &protocol.CallToolParams{Name: "a"}
		mine.SetMeta("mine", json.RawMessage(`1`))
		view := session.With(client.CallOptions{OnProgress: func(*protocol.ProgressParams) {}})
		if _, err := view.CallTool(t.Context(), mine); err != nil {
			t.Error(err)
		}
		if names, err := toolNames(t, session); err != nil || !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("got %q, %v, want %v", names, err, []string{"a", "b"})
		}
		if err := session.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		sent := s.methods()
		slices.Sort(sent)
		if want := []string{"server/discover", "server/discover", "subscriptions/listen", "tools/call", "tools/list", "tools/list"}; !slices.Equal(sent, want) {
			t.Errorf("sent %q, want %v", sent, want)
		}
		for _, f := range s.frames {
			meta := metaOf(t, f)
			if string(meta[protocol.MetaProtocolVersion]) != `"2026-07-28"` || string(meta[protocol.MetaClientCapabilities]) != `{}` ||
				string(meta[protocol.MetaClientInfo]) != `{"name":"test client","version":"1"}` {
				t.Errorf("%s has the _meta %s", f.Method, meta)
			}
			if f.Method == protocol.MethodCallTool && (string(meta["mine"]) != `1` || meta[protocol.MetaProgressToken] == nil) {
				t.Errorf("%s has the _meta %s", f.Method, meta)
			}
		}
		if len(mine.Meta) != 1 {
			t.Errorf("the caller's params were changed to %v, want them unchanged", mine)
		}
	})
}

// A legacy request has no member of the modern revisions.
//
// Guarantees: G-0020.5
func TestLegacyRequestsHaveNoModernMembers(t *testing.T) {
	for name, connects := range map[string]client.Options{"asked for": {ProtocolVersion: protocol.LatestLegacy}, "found": {}} {
		synctest.Test(t, func(t *testing.T) {
			s := probedServer(withFault(-32601, `null`))
			inner := s.answer
			s.answer = func(f frame) []string {
				switch f.Method {
				case protocol.MethodListTools:
					return lastPage(f, "a")
				case protocol.MethodCallTool:
					return []string{f.result(`{"content":[]}`)}
				case protocol.MethodPing:
					return []string{f.result(`{}`)}
				}
				return inner(f)
			}
			connects.OnEvent = onToolsChanged(func(context.Context, *client.Session) {})
			session, err := connect(t, s, connects, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			for _, method := range []string{protocol.MethodPing, protocol.MethodListTools, protocol.MethodCallTool} {
				if err := callMethod(t, session, method); err != nil || len(s.received(method)) != 1 {
					t.Errorf("%s: %s: got %v, want 1 element", name, method, err)
				}
			}
			synctest.Wait()
			for _, f := range s.frames {
				if meta := metaOf(t, f); len(meta) > 0 && f.Method != protocol.MethodDiscover || f.Method == protocol.MethodListen {
					t.Errorf("%s: %s has the _meta %s", name, f.Method, meta)
				}
			}
		})
	}
}

// A modern result of an unknown type is invalid, and one without a type is complete
// (2026-07-28 basic/index). In the legacy revisions the type is an ordinary member.
//
// Guarantees: G-0020.8
func TestResultsOfUnknownTypesAreRefused(t *testing.T) {
	members := map[string]string{
		protocol.MethodDiscover:  `"supportedVersions":["2026-07-28"],"capabilities":{}`,
		protocol.MethodPing:      `"a":1`,
		protocol.MethodListTools: `"tools":[]`,
		protocol.MethodCallTool:  `"content":[]`,
	}
	methods := []string{protocol.MethodPing, protocol.MethodListTools, protocol.MethodCallTool}
	for resultType, fine := range map[string]bool{
		``:                               true,
		`"resultType":"complete",`:       true,
		`"resultType":"",`:               true,
		`"resultType":"input_required",`: false,
		`"resultType":"task",`:           false,
		`"resultType":"Complete",`:       false,
	} {
		synctest.Test(t, func(t *testing.T) {
			for version, begin := range map[string]func(frame) []string{
				protocol.Version20260728: withResult(discovered),
				protocol.Version20251125: func(f frame) []string { return f.initialized(protocol.LatestLegacy, withTools) },
			} {
				began := false
				s := &fakeServer{answer: func(f frame) []string {
					switch {
					case f.ID == nil:
						return nil
					case !began:
						began = true
						return begin(f)
					default:
						return []string{f.result(`{` + resultType + members[f.Method] + `}`)}
					}
				}}
				session, err := connect(t, s, client.Options{ProtocolVersion: version}, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				for _, method := range methods {
					err := callMethod(t, session, method)
					if ok := fine || version == protocol.Version20251125; (err == nil) != ok || !ok && !errors.As(err, new(*client.ResultError)) {
						t.Errorf("%s: %s with %s got %v", version, method, resultType, err)
					}
				}
			}
		})
	}
}

// Only some methods can be answered with a question, and such a result must contain a
// question or a state.
func TestResultThatMustNotAskForInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modernServer(map[string]string{
			protocol.MethodListTools: `{"resultType":"input_required","requestState":"s"}`,
			protocol.MethodCallTool:  `{"resultType":"input_required"}`,
		})
		session, err := connect(t, s, client.Options{}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{protocol.MethodListTools, protocol.MethodCallTool} {
			if err := callMethod(t, session, method); !errors.As(err, new(*client.ResultError)) || !strings.Contains(err.Error(), "input_required") {
				t.Errorf("%s: got %v, want a *client.ResultError and %q in it", method, err, "input_required")
			}
		}
		s.on(protocol.MethodCallTool, func(f frame, _ func(frame) []string) []string {
			return []string{f.result(`{"resultType":"complete","content":[],"inputRequests":{"r":{"method":"roots/list"}}}`)}
		})
		const both = `it asks for input and is of type "complete"`
		if err := callMethod(t, session, protocol.MethodCallTool); !errors.As(err, new(*client.ResultError)) || !strings.Contains(err.Error(), both) {
			t.Errorf("a result that is complete and asks: got %v, want a *client.ResultError and %q in it", err, both)
		}
	})
}

// A ping that waits for a server is sent in the form of that server's revision.
func TestWaitingPingHasTheFormOfItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := probedServer(nil)
		s.answer = func(f frame) []string {
			switch {
			case f.Method == protocol.MethodDiscover && f.Link == 1:
				return []string{f.result(discovered)}
			case f.Method == protocol.MethodDiscover:
				return []string{f.fault(-32601, `null`)}
			case f.Method == protocol.MethodInitialize:
				return f.initialized(protocol.LatestLegacy, withTools)
			case f.Method == protocol.MethodPing:
				return []string{f.result(`{}`)}
			default:
				return nil
			}
		}
		session, err := connect(t, s, client.Options{}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		s.cut()
		synctest.Wait()
		if err := session.With(client.CallOptions{WaitForReady: true}).Ping(t.Context()); err != nil {
			t.Error(err)
		}
		var failed *conn.CallError
		session.Close(t.Context())
		err = session.With(client.CallOptions{WaitForReady: true}).Ping(t.Context())
		if !errors.As(err, &failed) || failed.Cause != conn.ShutDown || !conn.NotExecuted(err) {
			t.Errorf("closed: got %v", err)
		}
	})
}

// Each pair of client and server works unless they have no era in common.
//
// Guarantees: G-0020.2
func TestErasOfClientAndServer(t *testing.T) {
	both, modern, legacy := protocol.Versions(), protocol.ModernVersions(), protocol.LegacyVersions()
	for _, test := range []struct {
		asked  string
		speaks []string
		want   string // empty if they are incompatible
	}{
		{"", both, protocol.Latest}, {"", modern, protocol.Latest}, {"", legacy, protocol.LatestLegacy},
		{protocol.Latest, both, protocol.Latest}, {protocol.Latest, modern, protocol.Latest}, {protocol.Latest, legacy, ""},
		{protocol.LatestLegacy, both, protocol.LatestLegacy}, {protocol.LatestLegacy, legacy, protocol.LatestLegacy},
		{protocol.LatestLegacy, modern, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &network{t: t, server: newServer(server.Options{ProtocolVersions: test.speaks})}
			defer n.close()
			session, err := connect(t, n.transport(), client.Options{ProtocolVersion: test.asked, FailFast: true}, time.Minute)
			if test.want == "" {
				if err == nil {
					t.Errorf("%+v: got %s, want an error", test, session.Server().ProtocolVersion)
				}
				return
			}
			if err != nil || session.Server().ProtocolVersion != test.want {
				t.Fatalf("%+v: got %v, want %v", test, err, test.want)
			}
			result, err := callTool(t, session, "add", `{"a":1,"b":2}`)
			if err != nil || string(result.StructuredContent) != `{"sum":3}` {
				t.Errorf("%+v: got %v, %v, want %q", test, result, err, `{"sum":3}`)
			}
			session.Close(t.Context())
		})
	}
}

// A server that refuses a revision that it names as supported is probed once more, and
// never gets initialize (2026-07-28 basic/versioning).
func TestServerThatRefusesItsOwnRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := probedServer(func(f frame) []string {
			if n++; n == 1 {
				return []string{f.fault(protocol.CodeUnsupportedVersion, `{"supported":["2026-07-28"],"requested":"2026-07-28"}`)}
			}
			return []string{f.result(discovered)}
		})
		session, err := connect(t, s, client.Options{FailFast: true}, time.Second)
		wantEra(t, "refusing once", session, err, s, []string{"server/discover", "server/discover"})
	})
}

// In the first revision, completion needs no capability.
func TestCompletionOfTheFirstRevision(t *testing.T) {
	s := &fakeServer{answer: func(f frame) []string {
		if f.Method == protocol.MethodInitialize {
			return f.initialized(protocol.Version20241105, `{}`)
		}
		return allAnswers(protocol.Version20241105)(f)
	}}
	if _, err := openFake(t, s, client.Options{}).Complete(t.Context(), &protocol.CompleteParams{Ref: protocol.CompleteReference{Name: "p"}}); err != nil {
		t.Error(err)
	}
}

// All modern requests of a session begin with the same bytes of params, and the
// caller's _meta comes after them.
//
// Guarantees: G-0049.2
func TestModernRequestsBeginWithTheSameBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modernServer(map[string]string{
			protocol.MethodCallTool: `{"resultType":"complete","content":[]}`,
			"tools/own":             `{"resultType":"complete"}`,
		})
		session := openFake(t, s, client.Options{ProtocolVersion: protocol.Latest})
		for range 20 {
			if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "a"}); err != nil {
				t.Fatal(err)
			}
			if _, err := session.Request(t.Context(), "tools/own", map[string]any{}); err != nil {
				t.Fatal(err)
			}
		}
		discover := strings.TrimSuffix(string(s.received(protocol.MethodDiscover)[0].Params), "}")
		for _, f := range append(s.received(protocol.MethodCallTool), s.received("tools/own")...) {
			if params := string(f.Params); !strings.HasPrefix(params, discover) || !json.Valid(f.Params) {
				t.Errorf("got the params %s of %s, want the prefix %s", params, f.Method, discover)
			}
		}
		mine := &protocol.CallToolParams{Name: "a"}
		mine.Meta = protocol.Meta{"mine": json.RawMessage("1")}
		if _, err := session.CallTool(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		calls := s.received(protocol.MethodCallTool)
		if meta := metaOf(t, calls[len(calls)-1]); string(meta["mine"]) != "1" || len(meta) != 1+len(metaOf(t, calls[0])) {
			t.Errorf("got the caller's members %v", meta)
		}
	})
}
