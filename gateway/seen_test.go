package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// sees waits until the report is so, and returns how long that took in virtual time. Who looks asks again only when he is told of a change.
func (f *fleet) sees(is func(admin.Report) bool) time.Duration {
	f.t.Helper()
	began, ctx := time.Now(), timeout(f.t)
	for {
		changed := f.Changed()
		if is(f.Report()) {
			return time.Since(began)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			f.t.Fatalf("it is never seen: %+v", f.Report())
		}
	}
}

// Who looks is told when a call begins and when it ends, at once.
//
// Guarantees: G-0088.10
func TestBothEndsOfACallAreSeen(t *testing.T) {
	clocked(t, func(t *testing.T, f *fleet, session *client.Session) {
		over := make(chan error)
		go func() {
			_, err := client.Call[string](t.Context(), session, "a__takes", map[string]int{"MS": 1000})
			over <- err
		}()
		if took := f.sees(func(r admin.Report) bool { return r.Servers[0].Calls == 1 }); took != 0 {
			t.Errorf("its begin was seen after %v", took)
		}
		if took := f.sees(func(r admin.Report) bool { return r.Servers[0].Calls == 0 }); took != time.Second {
			t.Errorf("its end was seen after %v", took)
		}
		failOn(t, <-over)
	})
}

// The requests of a session that are in flight are counted, also several at one server.
func TestCallsOfASessionAreCounted(t *testing.T) {
	clocked(t, func(t *testing.T, f *fleet, session *client.Session) {
		var over sync.WaitGroup
		for range 3 {
			over.Go(func() {
				if _, err := client.Call[string](t.Context(), session, "a__takes", map[string]int{"MS": 1000}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if clients := f.Report().Clients; len(clients) != 1 || clients[0].Calls != 3 {
			t.Errorf("%+v", clients)
		}
		over.Wait()
	})
}

// A question is seen as soon as a client is asked, with the time of that and the name of the program, and so is the request that it belongs to.
//
// Guarantees: G-0091.14
func TestAQuestionIsSeenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := asker()
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		o := user("me")
		answer := o.Sample
		o.Sample = func(ctx context.Context, s *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			pass(time.Second)
			return answer(ctx, s, p)
		}
		session := f.client(protocol.LatestLegacy, o)
		synctest.Wait()
		pass(time.Minute)
		began, over := time.Now(), make(chan error)
		go func() {
			_, err := client.Call[string](t.Context(), session, "a__sample", nil)
			over <- err
		}()
		if took := f.sees(func(r admin.Report) bool { return len(r.Questions) == 1 && r.Questions[0].Since.Equal(began) }); took != 0 {
			t.Errorf("it was seen after %v", took)
		}
		if running := detailOf(t, f, "a").Running; len(running) != 1 || running[0].Program != "c 1" || !running[0].Began.Equal(began) {
			t.Errorf("the request: %+v", running)
		}
		failOn(t, <-over)
	})
}

// A subscription is seen while its server decides on it, and so is its end.
//
// Guarantees: G-0091.14
func TestASubscriptionIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.New(protocol.Implementation{Name: "a"}, server.Options{OnSubscribe: func(context.Context, string) error { pass(time.Second); return nil }})
		server.AddResource(s, protocol.Resource{URI: "a:/one", Name: "one"}, func(context.Context) (string, error) { return "", nil })
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		session := f.client(protocol.LatestLegacy, client.Options{})
		synctest.Wait()
		over := make(chan error)
		go func() { over <- session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "a:/one"}) }()
		synctest.Wait()
		if running := detailOf(t, f, "a").Running; len(running) != 1 || running[0].Method != protocol.MethodSubscribe || running[0].Program != "c 1" {
			t.Errorf("while it is decided: %+v", running)
		}
		failOn(t, <-over)
		synctest.Wait()
		if running := detailOf(t, f, "a").Running; len(running) != 0 {
			t.Errorf("afterwards: %+v", running)
		}
	})
}

// What a child says of itself is in the report, and its lines are kept.
//
// Guarantees: G-0091.6
func TestAChildIsSeen(t *testing.T) {
	f := newFleetWith(t, protocol.LatestLegacy, two(), gateway.Options{Each: func(s *mcpjson.Server, _ *client.Options) {
		if child := s.Transport.(*stdio.Command); s.Name == "a" {
			child.Started(4711)
			io.WriteString(child.Stderr, "first\nsecond\n")
		}
	}})
	f.await("a", admin.Ready)
	if s, _ := f.Report().Server("a"); s.PID != 4711 || s.Stderr != "second" {
		t.Errorf("a child: %+v", s)
	}
	if log, ok := f.Stderr("a"); !ok {
		t.Error("it has no standard error")
	} else if lines, _, _ := log.Read(0); len(lines) != 2 {
		t.Errorf("it has written %q", lines)
	}
	if s, _ := f.Report().Server("b"); s.PID != 0 || s.Stderr != "" {
		t.Errorf("the other one: %+v", s)
	}
	if _, ok := f.Stderr("c"); ok {
		t.Error("a server that is not there has a standard error")
	}
}

// A gateway says what it is, offers each kind of feature whatever its servers have, and tells of changes. It is not ready before it has a file.
//
// Guarantees: G-0088.1
func TestHowAGatewayIntroducesItself(t *testing.T) {
	f := newFleet(t, protocol.LatestLegacy, two())
	session := f.client(protocol.LatestLegacy, client.Options{})
	about := session.Server()
	if about.Info.Name != "bowline" {
		t.Errorf("it is called %q", about.Info.Name)
	}
	for _, capability := range []string{"tools.listChanged", "prompts.listChanged", "resources.listChanged", "resources.subscribe", "completions", "logging"} {
		if !about.Capabilities.Has(capability) {
			t.Errorf("it does not offer %s", capability)
		}
	}
	_, err := session.Request(timeout(t), protocol.MethodListTools, json.RawMessage(`{"cursor":"x"}`))
	if fault := (*jsonrpc.Error)(nil); !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInvalidParams || fault.Message == "" {
		t.Errorf("a cursor that nobody has given: %v", err)
	}
	none := gateway.New(gateway.Options{})
	defer none.Close(context.Background())
	if none.Report().Ready {
		t.Error("it is ready without a file")
	}
}

// A call with progress lives for as long as that comes, although its client has not asked for any.
//
// Guarantees: G-0088.5
func TestProgressKeepsACallAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := named("a")
		server.AddTool(s, protocol.Tool{Name: "steps"}, func(ctx context.Context, in struct{ Tell bool }) (string, error) {
			for i := range 5 {
				if pass(600 * time.Millisecond); in.Tell {
					server.Progress(ctx, i+1, 5, "")
				}
			}
			return "done", nil
		})
		f := newFleetWith(t, protocol.LatestLegacy, map[string]*server.Server{"a": s}, gateway.Options{Client: client.Options{Calls: client.CallOptions{Timeout: time.Second}}})
		session := f.client(protocol.LatestLegacy, client.Options{Calls: client.CallOptions{Timeout: -1}})
		synctest.Wait()
		if took, away := outcomeOf(t, session, "a__steps", `{"Tell":true}`); took != 3*time.Second || away != "" {
			t.Errorf("after %v: %q", took, away)
		}
		if took, away := outcomeOf(t, session, "a__steps", `{"Tell":false}`); took != time.Second || away == "" {
			t.Errorf("without progress it ended after %v: %q", took, away)
		}
		pass(3 * time.Second) // its handler ends
	})
}

// Calls of the page leave nothing behind.
//
// Guarantees: G-0091.17
func TestCallsOfThePageLeaveNothing(t *testing.T) {
	clocked(t, func(t *testing.T, f *fleet, _ *client.Session) {
		before := 0
		for i := range 20 {
			_, err := f.Call(t.Context(), "a__who", nil)
			failOn(t, err)
			if synctest.Wait(); i == 0 {
				before = runtime.NumGoroutine()
			}
		}
		if now := runtime.NumGoroutine(); now > before+5 {
			t.Errorf("%d goroutines, %d after the first call", now, before)
		}
	})
}
