package client_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// What another client says of itself stays on its own link. Everything else that it sends goes on.
//
// Guarantees: G-0089.4
func TestRelayKeepsTheOtherClientToItself(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		var got map[string]json.RawMessage
		s := server.New(serverInfo, server.Options{
			Capabilities: protocol.ServerCapabilities{Tools: &protocol.ListCapability{}},
			Route: map[string]server.RawHandler{protocol.MethodCallTool: func(_ context.Context, params json.RawMessage) (json.RawMessage, error) {
				got = nil
				return json.RawMessage(`{"content":[],"own":[1]}`), json.Unmarshal(params, &got)
			}},
		})
		session := connectTo(t, s, client.Options{ProtocolVersion: version})
		result, err := session.Relay(t.Context(), protocol.MethodCallTool, json.RawMessage(`{"name":"any","new":{"b":[1,2]},"_meta":{"mine":1,"progressToken":"theirs",
			"io.modelcontextprotocol/protocolVersion":"1999-01-01","io.modelcontextprotocol/clientInfo":{"name":"them","version":"0"},
			"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/logLevel":"debug"}}`))
		meta := string(got["_meta"])
		switch {
		case err != nil:
			t.Fatal(err)
		case !strings.Contains(string(result), `"own":[1]`):
			t.Errorf("%s: the result is %s", version, result)
		case string(got["new"]) != `{"b":[1,2]}` || string(got["name"]) != `"any"` || !strings.Contains(meta, `"mine":1`):
			t.Errorf("%s: the server got %s", version, got)
		case strings.Contains(meta, "theirs") || strings.Contains(meta, "1999") || strings.Contains(meta, "them") || strings.Contains(meta, "roots") || strings.Contains(meta, "debug"):
			t.Errorf("%s: what the other client says of itself is in %s", version, meta)
		case protocol.IsModern(version) != strings.Contains(meta, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`):
			t.Errorf("%s: the revision of this session is not in %s", version, meta)
		}
	}
}

func connectTo(t *testing.T, s *server.Server, o client.Options) *client.Session {
	t.Helper()
	session, err := client.New(clientInfo, o).Connect(timeoutContext(t), specification.WatchClient(t, inmem.New(s.Accept, inmem.Options{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close(context.Background()) })
	return session
}

// A relayed request that fails says whether the server may have executed it, and has the server's own error.
//
// Guarantees: G-0089.4
func TestRelayKeepsErrorAndDelivery(t *testing.T) {
	session := connectTo(t, server.New(serverInfo, server.Options{}), client.Options{})
	_, err := session.Relay(t.Context(), "no/such", nil)
	if !client.NotExecuted(err) && err == nil {
		t.Errorf("got %v", err)
	}
	if _, err = session.Relay(t.Context(), protocol.MethodCallTool, json.RawMessage(`{"name":"a","name":"b"}`)); !client.NotExecuted(err) {
		t.Errorf("a call that cannot be read: %v", err)
	}
	session.Close(t.Context())
	if _, err = session.Relay(t.Context(), protocol.MethodListTools, nil); !client.NotExecuted(err) {
		t.Errorf("a call after the end: %v", err)
	}
}

// A tool that was listed through Relay is called as CallTool calls it, for instance with the headers that its schema demands.
//
// Guarantees: G-0089.4
func TestRelayMirrorsArguments(t *testing.T) {
	s := server.New(serverInfo, server.Options{})
	schema := json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)
	server.AddTool(s, protocol.Tool{Name: "t", InputSchema: schema}, func(context.Context, *protocol.CallToolParams) (string, error) { return "done", nil })
	session := newSite(t, s).open(client.Options{})
	call := json.RawMessage(`{"name":"t","arguments":{"region":"eu"}}`)
	if _, err := session.Relay(t.Context(), protocol.MethodCallTool, call); err == nil {
		t.Error("the call has succeeded before the list is known: the test proves nothing")
	}
	if _, err := session.Relay(t.Context(), protocol.MethodListTools, nil); err != nil {
		t.Fatal(err)
	}
	if result, err := session.Relay(t.Context(), protocol.MethodCallTool, call); err != nil || !strings.Contains(string(result), "done") {
		t.Errorf("got %s, %v", result, err)
	}
}

// A relayed call that is lost is made again if the server has said, in a list that was relayed, that this does no harm.
//
// Guarantees: G-0089.4
func TestRelayRepeatsWhatDoesNoHarm(t *testing.T) {
	for hints, repeated := range map[string]bool{`{"readOnlyHint":true}`: true, `{}`: false} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
			s.on(protocol.MethodListTools, func(f frame, _ func(frame) []string) []string {
				return []string{f.result(`{"tools":[{"name":"t","inputSchema":{"type":"object"},"annotations":` + hints + `}]}`)}
			})
			s.on(protocol.MethodCallTool, func(f frame, before func(frame) []string) []string {
				if f.Link == 1 {
					go s.cut()
					return nil
				}
				return before(f)
			})
			session := openFake(t, s, client.Options{TrustAnnotations: true, Calls: client.CallOptions{WaitForReady: true, Retries: 1}})
			if _, err := session.Relay(t.Context(), protocol.MethodListTools, nil); err != nil {
				t.Fatal(err)
			}
			_, err := session.Relay(t.Context(), protocol.MethodCallTool, json.RawMessage(`{"name":"t"}`))
			if n := len(s.received(protocol.MethodCallTool)); (err == nil) != repeated || (n == 2) != repeated {
				t.Errorf("with the hints %s: got %v after %d calls, want it repeated: %t", hints, err, n, repeated)
			}
		})
	}
}

// A question of a legacy server leads to the call on whose stream it came. Over pipes it may belong to any call in flight.
//
// Guarantees: G-0089.5
func TestAskingFindsTheCallOfAQuestion(t *testing.T) {
	type name struct{}
	for _, over := range []string{"http", "pipes"} {
		for _, version := range []string{protocol.Version20250618, protocol.LatestLegacy, protocol.Latest} {
			t.Run(over+" "+version, func(t *testing.T) {
				var mu sync.Mutex
				found := make(map[string][]string) // the calls that a question may belong to, by the one that it is for
				var both, seen sync.WaitGroup
				both.Add(2)
				seen.Add(2)
				o := client.Options{ProtocolVersion: version, Elicit: func(ctx context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
					both.Done()
					both.Wait() // so that both calls are in flight
					for _, of := range client.Asking(ctx) {
						mu.Lock()
						found[p.Message] = append(found[p.Message], of.Value(name{}).(string))
						mu.Unlock()
					}
					seen.Done()
					seen.Wait() // no call may end before
					return client.Accept(struct{}{})
				}}
				s := server.New(serverInfo, server.Options{})
				server.AddTool(s, protocol.Tool{Name: "ask"}, func(ctx context.Context, in struct{ Who string }) (string, error) {
					return in.Who, server.Confirm(ctx, in.Who)
				}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
				session := connectTo(t, s, o)
				if over == "http" {
					session = newSite(t, s).open(o)
				}
				var calls sync.WaitGroup
				for _, who := range []string{"a", "b"} {
					ctx := context.WithValue(t.Context(), name{}, who)
					calls.Go(func() {
						var err error
						if protocol.IsModern(version) {
							_, err = client.Call[string](ctx, session, "ask", map[string]string{"Who": who})
						} else {
							_, err = session.Relay(ctx, protocol.MethodCallTool, json.RawMessage(`{"name":"ask","arguments":{"Who":"`+who+`"}}`))
						}
						if err != nil {
							t.Error(err)
						}
					})
				}
				calls.Wait()
				for _, who := range []string{"a", "b"} {
					want := []string{who}
					if over == "pipes" && !protocol.IsModern(version) {
						want = []string{"a", "b"}
					}
					slices.Sort(found[who])
					if !slices.Equal(found[who], want) {
						t.Errorf("the question of %s may belong to %q, want %q", who, found[who], want)
					}
				}
			})
		}
	}
}

// A log message that came on the stream of a call leads to that call, before the call returns; over pipes it leads to all in flight. One on
// the stream of another call is an event.
//
// Guarantees: G-0089.7
func TestLogMessagesLeadToTheirCall(t *testing.T) {
	type key struct{}
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, pipes := range []bool{false, true} {
			held, leave := make(chan struct{}), make(chan struct{})
			s := newServer(server.Options{})
			server.AddTool(s, protocol.Tool{Name: "hold"}, func(context.Context, struct{}) (string, error) {
				close(held)
				<-leave
				return "", nil
			})
			server.AddTool(s, protocol.Tool{Name: "talk"}, func(ctx context.Context, _ struct{}) (string, error) {
				server.Logger(ctx).Warn("said")
				return "", nil
			})
			over := inmem.New(s.Accept, inmem.Options{})
			var to transport.Transport = over
			if !pipes {
				web := httptest.NewServer(streamable.NewHandler(s, streamable.HandlerOptions{}))
				defer web.Close()
				to = &streamable.Client{URL: web.URL}
			}
			var mu sync.Mutex
			var of []string
			events := make(chan client.Event, 9)
			session, err := client.New(clientInfo, client.Options{
				ProtocolVersion: version,
				OnLog: func(ctx context.Context, _ *client.Session, m *client.LogMessage) {
					mu.Lock()
					defer mu.Unlock()
					for _, call := range client.Asking(ctx) {
						of = append(of, call.Value(key{}).(string)+" "+string(m.Data))
					}
				},
				OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
					if _, ok := e.(*client.LogMessage); ok {
						events <- e
					}
				},
			}).Connect(t.Context(), to)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
			if err := session.SetLogLevel(t.Context(), protocol.LogInfo); err != nil {
				t.Fatal(err)
			}
			relay := func(tool string) {
				view := session.With(client.CallOptions{AwaitLogs: true})
				if _, err := view.Relay(context.WithValue(t.Context(), key{}, tool), protocol.MethodCallTool, json.RawMessage(`{"name":"`+tool+`"}`)); err != nil {
					t.Error(err)
				}
			}
			var holding sync.WaitGroup
			holding.Go(func() { relay("hold") })
			<-held
			relay("talk")
			mu.Lock()
			slices.Sort(of)
			want := []string{`talk "said"`}
			if pipes {
				want = []string{`hold "said"`, `talk "said"`}
			}
			if !slices.Equal(of, want) {
				t.Errorf("%s, pipes %v: got %q, want %q", version, pipes, of, want)
			}
			mu.Unlock()
			if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "talk"}); err != nil {
				t.Error(err)
			}
			if !pipes {
				<-events // of a call that Asking does not know
			}
			close(leave)
			holding.Wait()
		}
	}
}

// A call that fails has its log messages as well before it does.
//
// Guarantees: G-0089.7
func TestLogsOfACallThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answeringWith(protocol.MethodCallTool, func(f frame) []string {
			return []string{`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"said"}}`, f.fault(-32603, `null`)}
		})
		logged := 0
		session := openFake(t, s, client.Options{OnLog: func(ctx context.Context, _ *client.Session, _ *client.LogMessage) {
			pass(time.Second) // the failure has come by then
			logged += len(client.Asking(ctx))
		}})
		view := session.With(client.CallOptions{AwaitLogs: true})
		if _, err := view.Request(t.Context(), protocol.MethodCallTool, json.RawMessage(`{"name":"x"}`)); err == nil || logged != 1 {
			t.Errorf("got %v after %d messages of the call, want its error after one", err, logged)
		}
	})
}

// A modern server is asked for the log level of the call, whatever that of the session is.
//
// Guarantees: G-0089.7
func TestRelayHasALogLevelOfItsOwn(t *testing.T) {
	var got protocol.LogLevel
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "level"}, func(ctx context.Context, _ struct{}) (string, error) {
		got = server.LogLevel(ctx)
		return "", nil
	})
	session := connectTo(t, s, client.Options{LogLevel: protocol.LogError, ProtocolVersion: protocol.Latest})
	for _, want := range []protocol.LogLevel{protocol.LogDebug, protocol.LogError} {
		o := client.CallOptions{}
		if want != protocol.LogError {
			o.LogLevel = want
		}
		if _, err := session.With(o).Relay(t.Context(), protocol.MethodCallTool, json.RawMessage(`{"name":"level"}`)); err != nil || got != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
}

// A log message that belongs to no call is one for OnLog, and leads to none.
//
// Guarantees: G-0089.7
func TestLogMessagesOfNoCall(t *testing.T) {
	for _, middleware := range []bool{false, true} {
		s := newServer(server.Options{})
		logged, events := make(chan int, 9), make(chan client.Event, 9)
		o := client.Options{
			ProtocolVersion: protocol.LatestLegacy,
			OnLog:           func(ctx context.Context, _ *client.Session, _ *client.LogMessage) { logged <- len(client.Asking(ctx)) },
			OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
				if _, ok := e.(*client.LogMessage); ok {
					events <- e
				}
			},
		}
		if middleware {
			o.Middleware = []client.Middleware{func(next client.Handler) client.Handler { return next }}
		}
		ours := connectTo(t, s, o)
		if err := ours.SetLogLevel(t.Context(), protocol.LogInfo); err != nil {
			t.Fatal(err)
		}
		if _, err := ours.Request(t.Context(), protocol.MethodPing, nil); err != nil { // a call that is over is none
			t.Fatal(err)
		}
		for session := range s.Sessions() {
			session.Logger().Warn("by itself")
		}
		if calls := testenv.Receive(t, logged, "a message"); calls != 0 || len(events) > 0 {
			t.Errorf("middleware %t: the message leads to %d calls, and is %d events", middleware, calls, len(events))
		}
	}
}
