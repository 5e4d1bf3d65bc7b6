package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// A session knows its server, can ask whether its client answers, and says how it has ended.
//
// Guarantees: G-0106.1
func TestSessionPingsAndWaits(t *testing.T) {
	o, sessions := sessionsOf(server.Options{})
	s := newServer(o)
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	session := testenv.Receive(t, sessions, "a session")
	if session.Server() != s {
		t.Error("the session has another server")
	}
	answers := make(chan error, 1)
	for rest, refused := range map[string]bool{`"result":{}`: false, `"error":{"code":-32601,"message":"no"}`: true} {
		go func() { answers <- session.Ping(t.Context()) }()
		var asked struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if w.read(&asked); asked.Method != protocol.MethodPing {
			t.Fatalf("got the question %+v", asked)
		}
		w.send(`{"jsonrpc":"2.0","id":` + string(asked.ID) + `,` + rest + `}`)
		if err := testenv.Receive(t, answers, "the end of a ping"); refused != (err != nil) {
			t.Errorf("%s: got %v", rest, err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	w.link.Close(0)
	if err := testenv.Receive(t, ended, "the end of the session"); err != nil {
		t.Errorf("after the client has ended the session: got %v", err)
	}
	var failed *conn.CallError
	if err := session.Ping(t.Context()); !errors.As(err, &failed) {
		t.Errorf("after the end: got %v, want a *conn.CallError", err)
	}

	closed := dial(t, s)
	closed.initialize(protocol.Version20251125)
	session = testenv.Receive(t, sessions, "a session")
	if err := session.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := session.Wait(); err != nil {
		t.Errorf("after Close: got %v", err)
	}
}

// A handler that several servers share finds the server of a session, and one that several clients share the client.
func ExampleSession_Server() {
	ended := make(chan error, 1)
	o := server.Options{}
	o.SessionContext = func(ctx context.Context, session *server.Session) context.Context {
		go func() { ended <- session.Wait() }()
		return ctx
	}
	s := server.New(protocol.Implementation{Name: "shared", Version: "1.0"}, o)
	server.AddTool(s, protocol.Tool{Name: "mine"}, func(ctx context.Context, _ struct{}) (string, error) {
		session := server.RequestFrom(ctx).Session
		return fmt.Sprint(session.Server() == s, " ", session.Ping(ctx)), nil
	})
	use(s, client.Options{ProtocolVersion: protocol.LatestLegacy}, func(ctx context.Context, session *client.Session) error {
		said, err := client.Call[string](ctx, session, "mine", nil)
		fmt.Println(said, session.Client() != nil)
		return err
	})
	fmt.Println(<-ended)
	// Output:
	// true <nil> true
	// <nil>
}

// What SessionContext returns is for the requests after initialize. A notification that came behind it is served meanwhile, without those values.
func TestSessionContextWhileANotificationIsServed(t *testing.T) {
	type key struct{}
	begun, entered := make(chan struct{}), make(chan struct{})
	s := newServer(server.Options{
		SessionContext: func(ctx context.Context, _ *server.Session) context.Context {
			close(begun)
			<-entered
			return context.WithValue(ctx, key{}, "ours")
		},
		Middleware: []server.Middleware{func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				if r.Notification {
					close(entered)
					ctx.Value(key{})
				}
				return next(ctx, r)
			}
		}},
	})
	server.AddTool(s, protocol.Tool{Name: "value"}, func(ctx context.Context, _ struct{}) (string, error) {
		return ctx.Value(key{}).(string), nil
	})
	w := accept(t, s)
	w.send(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1))
	<-begun
	w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	w.want(`"id":"init"`)
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"value","arguments":{}}}`)
	w.want(`"text":"ours"`)
}

// A SessionContext that returns nil adds no values.
func TestSessionContextThatReturnsNone(t *testing.T) {
	s := newServer(server.Options{SessionContext: func(context.Context, *server.Session) context.Context { return nil }})
	server.AddTool(s, protocol.Tool{Name: "value"}, func(ctx context.Context, _ struct{}) (string, error) {
		return fmt.Sprint(ctx.Value(userKey{})), nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"value","arguments":{}}}`)
	w.want(`"text":"<nil>"`)
}

// Clients begin sessions at the same time, and two of a kind have one description.
func TestSessionsThatBeginAtTheSameTime(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newServer(server.Options{})
		for i := range 400 {
			w := accept(t, s)
			frame := strings.Replace(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1), "raw", fmt.Sprint("raw ", i%4), 1)
			go func() {
				if err := w.link.Send(transport.Outbound{Frame: []byte(frame)}); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		names := make(map[string]int)
		for session := range s.Sessions() {
			names[session.Client().Info.Name]++
		}
		if want := map[string]int{"raw 0": 100, "raw 1": 100, "raw 2": 100, "raw 3": 100}; !maps.Equal(names, want) {
			t.Errorf("the clients are %v, want %v", names, want)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
