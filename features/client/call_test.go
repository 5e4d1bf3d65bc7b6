package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

type weather struct {
	City string  `json:"city"`
	Wind float64 `json:"wind,omitzero"`
}

// toolAnswering returns a server whose only tool has the given output schema and always
// returns the given result.
func toolAnswering(result, schema string) *fakeServer {
	return &fakeServer{answer: func(f frame) []string {
		switch f.Method {
		case protocol.MethodCallTool:
			return []string{f.result(result)}
		case protocol.MethodListTools:
			return []string{f.result(`{"tools":[{"name":"t","inputSchema":{"type":"object"},"outputSchema":` + schema + `}]}`)}
		default:
			return allAnswers(protocol.LatestLegacy)(f)
		}
	}}
}

// called calls the tool of such a server for an Out and returns both values.
func called[Out any](t *testing.T, result string) (any, error) {
	t.Helper()
	return client.Call[Out](t.Context(), openFake(t, toolAnswering(result, `{}`), client.Options{}), "t", nil)
}

// Call decodes results in the form of server.AddTool and in the forms of older servers.
func TestCallReadsResults(t *testing.T) {
	oslo := weather{City: "Oslo", Wind: 1.5}
	for name, test := range map[string]struct {
		call   func(*testing.T, string) (any, error)
		result string
		want   any
	}{
		"text":                   {called[string], `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, "a\nb"},
		"nothing":                {called[struct{}], `{"content":[]}`, struct{}{}},
		"a struct":               {called[weather], `{"content":[],"structuredContent":{"city":"Oslo","wind":1.5}}`, oslo},
		"a pointer to a struct":  {called[*weather], `{"content":[],"structuredContent":{"city":"Oslo","wind":1.5}}`, &oslo},
		"a struct as text":       {called[weather], `{"content":[{"type":"text","text":"{\"city\":\"Oslo\",\"wind\":1.5}"}]}`, oslo},
		"a map":                  {called[map[string]int], `{"content":[],"structuredContent":{"result":1}}`, map[string]int{"result": 1}},
		"a wrapped list":         {called[[]int], `{"content":[],"structuredContent":{"result":[1,2]}}`, []int{1, 2}},
		"a bare list":            {called[[]int], `{"content":[],"structuredContent":[1,2]}`, []int{1, 2}},
		"a wrapped number":       {called[float64], `{"content":[],"structuredContent":{"result":2.5}}`, 2.5},
		"a wrapped bool as text": {called[bool], `{"content":[{"type":"text","text":"{\"result\":true}"}]}`, true},
		"a wrapped time":         {called[time.Time], `{"content":[],"structuredContent":{"result":"2026-11-22T09:00:00Z"}}`, time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)},
		"a struct with one result": {called[struct {
			Result int `json:"result"`
		}], `{"content":[],"structuredContent":{"result":7}}`, struct {
			Result int `json:"result"`
		}{7}},
	} {
		if got, err := test.call(t, test.result); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %#v, %v, want %v", name, got, err, test.want)
		}
	}
	whole, err := called[*protocol.CallToolResult](t, `{"content":[{"type":"text","text":"a"}],"_meta":{"m":1}}`)
	if result, ok := whole.(*protocol.CallToolResult); err != nil || !ok || result.Meta["m"] == nil {
		t.Errorf("the whole: got %#v, %v", whole, err)
	}
}

// Call returns a ToolError if the tool failed, and a CallError if the result cannot be
// decoded.
func TestCallThatFails(t *testing.T) {
	_, err := called[weather](t, `{"content":[{"type":"text","text":"which city?"}],"isError":true}`)
	var failed *client.ToolError
	if !errors.As(err, &failed) || failed.Tool != "t" || !strings.Contains(err.Error(), "which city?") || errors.As(err, new(*client.CallError)) {
		t.Errorf("a tool that failed: %v", err)
	}
	for name, result := range map[string]string{
		"neither":      `{"content":[]}`,
		"another type": `{"content":[],"structuredContent":{"city":7}}`,
		"no JSON":      `{"content":[{"type":"text","text":"rain"}]}`,
	} {
		_, err := called[weather](t, result)
		var unread *client.ResultError
		var call *client.CallError
		if !errors.As(err, &unread) || !errors.As(err, &call) || call.Cause != conn.Answered || client.NotExecuted(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	session := openFake(t, toolAnswering(`{"content":[]}`, `{}`), client.Options{})
	for name, args := range map[string]any{"a list": []int{1}, "no JSON": json.RawMessage(`{`), "a function": func() {}} {
		if _, err := client.Call[string](t.Context(), session, "t", args); !client.NotExecuted(err) || !errors.Is(err, client.ErrInvalid) {
			t.Errorf("arguments that are %s: got %v, want one that is not executed and matches %v", name, err, client.ErrInvalid)
		}
	}
}

// A call that is itself wrong matches ErrInvalid, and one that failed for another reason does
// not, so that a loop does not repeat it unchanged.
//
// Guarantees: G-0023.13
func TestCallsThatAreWrongAreTold(t *testing.T) {
	for answer, wrong := range map[string]bool{
		`{"code":-32602,"message":"unknown tool"}`: true, `{"code":-32603,"message":"broken"}`: false, `{"code":-32601,"message":"no tools"}`: false, `{"code":-32050,"message":"later"}`: false,
		`{"code":-32602,"message":"make it anew","data":{"reason":"invalid_request_state"}}`: false, `{"code":-32602,"message":"no","data":{"reason":"other"}}`: true,
	} {
		s := answeringWith(protocol.MethodCallTool, func(f frame) []string {
			return []string{`{"jsonrpc":"2.0","id":` + string(f.ID) + `,"error":` + answer + `}`}
		})
		if _, err := client.Call[string](t.Context(), openFake(t, s, client.Options{}), "t", nil); err == nil || errors.Is(err, client.ErrInvalid) != wrong {
			t.Errorf("%s: got %v, want one that matches %v: %t", answer, err, client.ErrInvalid, wrong)
		}
	}
	session := openFake(t, toolAnswering(`{"content":[]}`, `{}`), client.Options{})
	if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "t", Arguments: json.RawMessage(`{`)}); !errors.Is(err, client.ErrInvalid) || !client.NotExecuted(err) {
		t.Errorf("params that cannot be encoded: got %v, want one that matches %v", err, client.ErrInvalid)
	}
	if err := session.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Call[string](t.Context(), session, "t", nil); errors.Is(err, client.ErrInvalid) || !client.NotExecuted(err) {
		t.Errorf("a session that is closed: got %v, want one that does not match %v", err, client.ErrInvalid)
	}
}

// A call whose first request was accepted is not itself wrong, whatever a later round is refused for:
// its handler may have run.
//
// Guarantees: G-0023.13
func TestCallsThatAskedAreNotWrong(t *testing.T) {
	for _, data := range []string{`null`, `{"reason":"invalid_request_state"}`} {
		s := askingServer(`{"r":{"method":"roots/list"}}`, withFault(-32602, data))
		o := client.Options{ProtocolVersion: protocol.Latest, Roots: answers(new(atomic.Int64)).Roots}
		_, err := callTool(t, openFake(t, s, o), "x", "")
		if errors.Is(err, client.ErrInvalid) || client.NotExecuted(err) || !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}) {
			t.Errorf("data %s: got %v, want the error %d, which does not match %v and may be executed", data, err, jsonrpc.CodeInvalidParams, client.ErrInvalid)
		}
	}
}

// Call refuses a result that does not fit the output schema with which its tool was
// listed.
func TestCallChecksTheOutputSchema(t *testing.T) {
	schema := `{"type":"object","properties":{"city":{"type":"string","minLength":3}},"required":["city"]}`
	for result, fits := range map[string]bool{
		`{"content":[],"structuredContent":{"city":"Oslo"}}`:                 true,
		`{"content":[],"structuredContent":{"city":"O"}}`:                    false,
		`{"content":[],"structuredContent":{}}`:                              false,
		`{"content":[{"type":"text","text":"{\"city\":\"Oslo\"}"}]}`:         false,
		`{"content":[{"type":"text","text":"no such city"}],"isError":true}`: true,
	} {
		session := openFake(t, toolAnswering(result, schema), client.Options{})
		if _, err := toolNames(t, session); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Call[weather](t.Context(), session, "t", nil); errors.As(err, new(*client.ResultError)) == fits {
			t.Errorf("%s: got %v", result, err)
		}
	}
}

// A result is checked against the schema of the last list.
func TestCallChecksTheNewestOutputSchema(t *testing.T) {
	s := toolAnswering(`{"content":[],"structuredContent":{"city":"Oslo"}}`, "")
	lists := 0
	s.on(protocol.MethodListTools, func(f frame, _ func(frame) []string) []string {
		lists++
		return []string{f.result(fmt.Sprintf(`{"tools":[{"name":"t","inputSchema":{},"outputSchema":{"properties":{"city":{"minLength":%d}}}}]}`, 3+lists))}
	})
	session := openFake(t, s, client.Options{})
	for _, fits := range []bool{true, false} {
		if _, err := toolNames(t, session); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Call[weather](t.Context(), session, "t", nil); errors.As(err, new(*client.ResultError)) == fits {
			t.Errorf("list %d: got %v, want a result that fits: %t", lists, err, fits)
		}
	}
}

// A pinned session makes calls to one server session only, and fails when that is gone.
//
// Guarantees: G-0012.2
func TestPinnedSessionUsesOneServerSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{Calls: client.CallOptions{WaitForReady: true, Retries: 3, Repeatable: true}})
		pinned := session.Pin()
		if _, err := callTool(t, pinned, "x", ""); err != nil {
			t.Error(err)
		}
		s.cut()
		synctest.Wait()
		if _, err := callTool(t, session.Pin(), "x", ""); !client.NotExecuted(err) || !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrStale) {
			t.Errorf("without a server: %v", err)
		}
		if err := session.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := callTool(t, pinned, "x", ""); !errors.Is(err, client.ErrStale) || !client.NotExecuted(err) {
			t.Errorf("after the server was replaced: %v", err)
		}
		if _, err := callTool(t, session, "x", ""); err != nil {
			t.Error(err)
		}
		if err := pinned.Ping(t.Context()); !errors.Is(err, client.ErrStale) {
			t.Errorf("a ping of the server that was replaced: %v", err)
		}
		if calls := session.Calls(); calls.Retries != 3 || pinned.Calls().Epoch != 1 {
			t.Errorf("the options are %+v and %+v", calls, pinned.Calls())
		}
		session.Close(t.Context())
		for name, view := range map[string]*client.Session{"any server": session, "one server": pinned} {
			if err := view.Ping(t.Context()); !errors.Is(err, client.ErrClosed) || errors.Is(err, client.ErrStale) || !client.NotExecuted(err) {
				t.Errorf("a ping of %s after the end: %v", name, err)
			}
		}
	})
}

// A view that was pinned while there was no server has none: its calls fail at once with ErrStale, whatever its options say about
// waiting, and also when a server is there.
//
// Guarantees: G-0012.2
func TestPinWithoutAServer(t *testing.T) {
	calls := map[string]func(context.Context, *client.Session) error{
		"Ping": func(ctx context.Context, s *client.Session) error { return s.Ping(ctx) },
		"CallTool": func(ctx context.Context, s *client.Session) error {
			_, err := s.CallTool(ctx, &protocol.CallToolParams{Name: "x"})
			return err
		},
		"ListTools":   func(ctx context.Context, s *client.Session) error { _, err := s.ListTools(ctx, nil); return err },
		"SetLogLevel": func(ctx context.Context, s *client.Session) error { return s.SetLogLevel(ctx, protocol.LogInfo) },
		"Subscribe": func(ctx context.Context, s *client.Session) error {
			return s.Subscribe(ctx, &protocol.SubscribeParams{URI: "file:///a"})
		},
	}
	for _, before := range []bool{true, false} { // whether the session has had a server before
		synctest.Test(t, func(t *testing.T) {
			p := newFlakyEndpoint("", errors.New("nobody is there"))
			p.answer = allAnswers(protocol.LatestLegacy)
			defer p.close()
			p.out.Store(!before)
			c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy, Calls: client.CallOptions{WaitForReady: true, Retries: 3, Repeatable: true}})
			session, err := c.Start(t.Context(), "s", p)
			if err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			p.out.Store(true)
			p.cut()
			pass(time.Second)
			pinned := session.Pin()
			sent := p.count()
			wantStale := func(when string, view *client.Session) {
				t.Helper()
				for name, call := range calls {
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if err := call(ctx, view); !errors.Is(err, client.ErrStale) || !client.NotExecuted(err) || time.Since(began) > 0 {
						t.Errorf("%s, with a server before: %t: %s: got %v after %v, want %v at once", when, before, name, err, time.Since(began), client.ErrStale)
					}
				}
			}
			wantStale("without a server", pinned)
			p.out.Store(false)
			if err := session.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			wantStale("when there is a server", pinned)
			if got := sentSince(p.fakeServer, sent); slices.Contains(got, protocol.MethodPing) || slices.Contains(got, protocol.MethodCallTool) {
				t.Errorf("the server got %q, want nothing of the pinned view", got)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			for name, call := range calls {
				if err := call(t.Context(), pinned); !errors.Is(err, client.ErrClosed) || errors.Is(err, client.ErrStale) {
					t.Errorf("after the end, with a server before: %t: %s: got %v, want %v", before, name, err, client.ErrClosed)
				}
			}
		})
	}
}

// A client finds its sessions by name, lists and reports them, and closes them all.
func TestSessionsOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		defer s.close()
		c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy, Conn: conn.Tuning{Name: "same"}})
		for _, name := range []string{"b", "a"} {
			if _, err := c.Start(t.Context(), name, specification.WatchClient(t, s)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Start(t.Context(), "a", s); !errors.As(err, new(*supervisor.DuplicateError)) {
			t.Errorf("a second session of the same name: %v, want a *supervisor.DuplicateError", err)
		}
		for range 2 {
			if _, err := c.Connect(t.Context(), specification.WatchClient(t, s)); err != nil {
				t.Fatal(err)
			}
		}
		var names []string
		for session := range c.Sessions() {
			names = append(names, session.Name())
		}
		if !slices.Equal(names, []string{"a", "b", "same", "same-2"}) {
			t.Errorf("the sessions are %q, want %v", names, []string{"a", "b", "same", "same-2"})
		}
		found, ok := c.Session("b")
		if !ok || found.Name() != "b" {
			t.Fatalf("found %v, %t", found, ok)
		}
		began := time.Now()
		if report := c.Report(); len(report.Children) != 4 || !report.Since.Equal(began) ||
			!strings.Contains(report.String(), "same-2") || strings.Contains(report.String(), "restarts") {
			t.Errorf("the report is\n%s", report)
		}
		if err := found.Close(t.Context()); err != nil || found.Wait() != nil {
			t.Errorf("Close: %v, Wait: %v, want found.Wait() == nil", err, found.Wait())
		}
		if _, ok := c.Session("b"); ok {
			t.Error("a closed session is found, want none")
		}
		if again, err := c.Start(t.Context(), "b", s); err != nil || again.Name() != "b" {
			t.Errorf("a new session with the name of a closed one: %v, want %q", err, "b")
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if report := c.Report(); report.State != supervisor.Stopped || !report.Since.Equal(began) {
			t.Errorf("after Close the report is\n%s", report)
		}
		if rest := slices.Collect(maps.Keys(maps.Collect(sessionNames(c)))); len(rest) > 0 {
			t.Errorf("the sessions %q are left, want none", rest)
		}
		if _, err := c.Start(t.Context(), "late", s); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a closed client: %v, want %v", err, client.ErrClosed)
		}
	})
}

// While a client closes, its report says who is left.
func TestReportOfAClientThatCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(nil) // so that a call is in flight for as long as Close waits
		defer s.close()
		c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy, Conn: conn.Tuning{Name: "search", DrainGrace: time.Second}})
		session, err := c.Connect(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		var busy sync.WaitGroup
		busy.Go(func() { _, _ = session.CallTool(context.Background(), &protocol.CallToolParams{Name: "x"}) })
		synctest.Wait()
		busy.Go(func() { _ = c.Close(context.Background()) })
		synctest.Wait()
		if report := c.Report(); report.State != supervisor.Stopping || len(report.Children) != 1 {
			t.Errorf("got the report\n%s\nwant that of a client that is stopping, with its session", report)
		}
		busy.Wait()
		if report := c.Report(); report.State != supervisor.Stopped || len(report.Children) != 0 {
			t.Errorf("got the report\n%s\nwant that of a client that has stopped", report)
		}
	})
}

// A session without a name is in the report, too.
func TestReportOfASessionWithoutAName(t *testing.T) {
	s := server.New(serverInfo, server.Options{})
	defer s.Close(context.Background())
	c := client.New(clientInfo, client.Options{})
	defer c.Close(context.Background())
	if _, err := c.Connect(t.Context(), inmem.New(s.Accept, inmem.Options{})); err != nil {
		t.Fatal(err)
	}
	if report := c.Report(); len(report.Children) != 1 {
		t.Errorf("got the report\n%s\nwant that of a client with one session", report)
	}
}

// Clients that share a supervisor each report their own sessions.
func TestReportsOfClientsThatShareASupervisor(t *testing.T) {
	all := supervisor.New(supervisor.Options{})
	defer all.Stop(context.Background())
	s := server.New(serverInfo, server.Options{})
	defer s.Close(context.Background())
	for _, name := range []string{"a", "b"} {
		c := client.New(clientInfo, client.Options{Supervisor: all, Conn: conn.Tuning{Name: name}})
		defer c.Close(context.Background())
		if _, err := c.Connect(t.Context(), inmem.New(s.Accept, inmem.Options{})); err != nil {
			t.Fatal(err)
		}
		if report := c.Report(); len(report.Children) != 1 || report.Children[0].ID != name {
			t.Errorf("got the report\n%s\nwant that of a client with the session %q", report, name)
		}
	}
}

func sessionNames(c *client.Client) func(func(string, bool) bool) {
	return func(yield func(string, bool) bool) {
		for session := range c.Sessions() {
			if !yield(session.Name(), true) {
				return
			}
		}
	}
}

// Wait returns why a session ended that the program did not close.
func TestWaitReturnsWhyASessionEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: func(f frame) []string {
			if f.Method == protocol.MethodInitialize && f.Link == 2 {
				return []string{f.fault(-32603, `null`)}
			}
			return allAnswers(protocol.LatestLegacy)(f)
		}}
		session := openFake(t, s, client.Options{Conn: conn.Tuning{Final: func(why conn.Reason) bool { return why.Kind == conn.HandshakeFailed }}})
		if session.Status().State != conn.Ready {
			t.Errorf("the status is %v, want %v", session.Status(), conn.Ready)
		}
		s.cut()
		var why client.Reason
		if err := session.Wait(); !errors.As(err, &why) {
			t.Errorf("Wait: %v, want a client.Reason", err)
		}
		if _, err := callTool(t, session, "x", ""); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a call of an ended session: %v, want %v", err, client.ErrClosed)
		}
		session = openFake(t, &fakeServer{answer: allAnswers(protocol.LatestLegacy)}, client.Options{})
		session.Stop()
		if err := session.Wait(); err != nil {
			t.Errorf("Wait after Stop: %v", err)
		}
		_ = session.Close(context.Background())
	})
}
