package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Who looks sees what a client waits for: the request, the question that it is asked meanwhile, and in whose name. When it is answered, both are
// gone, and what it took is counted.
//
// Guarantees: G-0091.14
func TestWhatIsWaitedForIsSeen(t *testing.T) {
	questionEras(t, func(t *testing.T, front, back string) {
		s, _ := asker()
		f := newFleet(t, back, map[string]*server.Server{"a": s})
		o := user("me")
		answer, asked, looked := o.Sample, make(chan struct{}), make(chan struct{})
		o.Sample = func(ctx context.Context, s *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			close(asked)
			<-looked
			return answer(ctx, s, p)
		}
		session := f.client(front, o)
		ended := make(chan error)
		go func() {
			_, err := client.Call[string](timeout(t), session, "a__sample", nil)
			ended <- err
		}()
		<-asked
		r, now := f.Report(), detailOf(t, f, "a")
		close(looked)
		failOn(t, <-ended)
		// A modern client has been given the question, and a modern server has given it away: it is with the client.
		if legacy := !protocol.IsModern(back); legacy && (len(r.Questions) != 1 || r.Questions[0].Server != "a" || r.Questions[0].Method != "sampling/createMessage" || r.Questions[0].Program != "c 1" || r.Questions[0].Target != "sample" ||
			len(now.Running) != 1 || now.Running[0].Method != "tools/call" || now.Running[0].Target != "sample" || r.Servers[0].Calls != 1) {
			t.Errorf("while it waits: %+v, %+v", r, now)
		}
		if !protocol.IsModern(front) && !protocol.IsModern(back) && (len(r.Clients) != 1 || r.Clients[0].Calls != 1) {
			t.Errorf("the client: %+v", r.Clients)
		}
		r, now = f.Report(), detailOf(t, f, "a")
		if len(r.Questions) != 0 || len(now.Running) != 0 || r.Servers[0].Calls != 0 || r.Servers[0].P50 <= 0 || r.Servers[0].Answered == 0 || r.Servers[0].Waited <= 0 || r.Servers[0].P99 < r.Servers[0].P50 {
			t.Errorf("afterwards: %+v, %+v", r, now)
		}
	})
}

// The states of a server are kept, the newest first, over its restarts and over files that do not change it. Its tools are listed as clients
// call them.
//
// Guarantees: G-0091.14
func TestThePastOfAServer(t *testing.T) {
	f := newFleet(t, protocol.Latest, two())
	f.await("a", admin.Ready)
	f.kill("a", true)
	f.await("a", admin.Backoff)
	f.apply(fileOf(t, "a", "b"))
	failOn(t, f.Do(timeout(t), "a", admin.Restart))
	f.await("a", admin.Ready)
	for ctx := timeout(t); ; {
		changed := f.Changed()
		d := detailOf(t, f, "a")
		var states []admin.State
		for _, c := range d.Changes {
			states = append(states, c.State)
		}
		if len(states) > 4 && states[0] == admin.Ready && len(d.Tools) == 1 && d.Tools[0].Name == "a__who" {
			if lost := d.Changes[max(slices.Index(states, admin.Backoff), 0)]; lost.State != admin.Backoff || lost.NextAttempt.IsZero() || lost.Reason == "" {
				t.Errorf("the states, the newest first: %+v", d.Changes)
			}
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%+v", d)
		}
	}
	if _, ok := f.Detail("c"); ok {
		t.Error("a server that is not there has details")
	}
}

func detailOf(t *testing.T, f *fleet, name string) admin.Detail {
	t.Helper()
	d, ok := f.Detail(name)
	if !ok {
		t.Fatalf("%s is not there", name)
	}
	return d
}

// A call of the page is one of a client: the server sees it as such, a name that clients do not know is refused, and who looks sees whose call it
// is. A question of the server has nobody to answer it. Answers are counted, and what was not answered.
//
// Guarantees: G-0091.17, G-0091.19
func TestCallOfThePage(t *testing.T) {
	for _, back := range []string{protocol.LatestLegacy, protocol.Latest} {
		s, runs := asker()
		f := newFleet(t, back, map[string]*server.Server{"a": s, "b": two()["a"]})
		f.await("b", admin.Ready)
		if result, err := f.Call(timeout(t), "b__who", nil); err != nil || !strings.Contains(string(result), "content") {
			t.Errorf("%s: %s, %v", back, result, err)
		}
		if result, err := f.Call(timeout(t), "who", nil); err == nil {
			t.Errorf("a name that no client knows: %s", result)
		}
		if before, _ := f.Report().Server("b"); before.Answered != 1 || before.Unanswered != 0 {
			t.Errorf("answers are counted: %+v", before)
		}
		failOn(t, f.Do(timeout(t), "b", admin.Stop))
		if result, err := f.Call(timeout(t), "b__who", nil); err != nil || !strings.Contains(string(result), "isError") {
			t.Errorf("a server that is stopped: %s, %v", result, err)
		}
		if now, _ := f.Report().Server("b"); now.Answered != 1 || now.Unanswered != 1 {
			t.Errorf("what was not answered is counted: %+v", now)
		}
		if result, err := f.Call(timeout(t), "a__form", nil); err == nil && !strings.Contains(string(result), `"isError":true`) || runs() > 1 {
			t.Errorf("a tool that asks: %s, %v, %d runs", result, err, runs())
		}
		if clients := f.Report().Clients; len(clients) != 0 {
			t.Errorf("left: %+v", clients)
		}
	}
}

// What waits for a server is listed the oldest first, each with what it is about and whose it is, and counted for each client.
//
// Guarantees: G-0091.14
func TestWhatRunsIsListedTheOldestFirst(t *testing.T) {
	lively(t, `{}`, gateway.Options{}, func(t *testing.T, f *fleet) {
		began := time.Now()
		for i, version := range []string{protocol.Latest, protocol.LatestLegacy, protocol.LatestLegacy} {
			session := f.client(version, client.Options{Calls: client.CallOptions{Timeout: -1}})
			toolNames(t, session)
			for range i + 1 {
				go session.CallTool(t.Context(), &protocol.CallToolParams{Name: "a__slow"})
				pass(time.Second)
			}
		}
		synctest.Wait()
		d, r := detailOf(t, f, "a"), f.Report()
		for i, running := range d.Running {
			if want := (admin.Request{Method: "tools/call", Target: "slow", Program: "c 1", Began: began.Add(time.Duration(i) * time.Second)}); running != want {
				t.Errorf("request %d is %+v, want %+v", i, running, want)
			}
		}
		var calls []int
		for _, c := range r.Clients {
			calls = append(calls, c.Calls)
		}
		if slices.Sort(calls); !slices.Equal(calls, []int{2, 3}) || len(d.Running) != 6 || r.Servers[0].Calls != 6 || r.Servers[1].Calls != 0 {
			t.Errorf("%d run at a, the clients with sessions have %d; the report is %+v", len(d.Running), calls, r)
		}
	})
}

// Each call of a tool is counted by how it has ended. The tools have the names that their server has given them; a client cannot invent any.
//
// Guarantees: G-0091.23
func TestCallsAreCountedByTool(t *testing.T) {
	servers, begun := two(), make(chan struct{}, 1)
	server.AddTool(servers["a"], protocol.Tool{Name: "fails"}, func(context.Context, struct{}) (string, error) { return "", errors.New("no") })
	server.AddTool(servers["a"], protocol.Tool{Name: "errs"}, func(context.Context, struct{}) (string, error) {
		return "", &jsonrpc.Error{Code: -32099, Message: "no"}
	})
	server.AddTool(servers["a"], protocol.Tool{Name: "waits"}, func(ctx context.Context, _ struct{}) (string, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	})
	f := newFleetFor(t, protocol.LatestLegacy, servers, gateway.Options{}, load(t, `{"mcpServers":{"a":{"command":"/bin/a","bowline":{"prefix":"x"}},"b":{"command":"/bin/b","bowline":{"toolRates":{"who":1}}}}}`))
	session := f.client(protocol.Latest, client.Options{})
	ctx := timeout(t)
	call := func(ctx context.Context, tool string) {
		_, _ = session.CallTool(ctx, &protocol.CallToolParams{Name: tool})
	}
	for _, tool := range []string{"x__who", "x__who", "x__fails", "x__errs", "x__none", "none", "b__who", "b__who"} {
		call(ctx, tool)
	}
	short, cancel := context.WithCancel(ctx)
	go func() {
		<-begun
		cancel()
	}()
	call(short, "x__waits")
	for { // the client does not wait for the gateway
		changed := f.Changed()
		if s, _ := f.Report().Server("a"); s.Calls == 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("the call that was cancelled is in flight")
		}
	}
	f.kill("a", false)
	f.await("a", admin.Backoff)
	call(ctx, "x__who")
	want := []admin.ToolCalls{
		{Server: "a", Tool: "errs", Outcome: "failed", Delivery: "sent", Count: 1},
		{Server: "a", Tool: "fails", Outcome: "tool error", Delivery: "sent", Count: 1},
		{Server: "a", Tool: "waits", Outcome: "cancelled", Delivery: "unknown", Count: 1},
		{Server: "a", Tool: "who", Outcome: "answered", Delivery: "sent", Count: 2},
		{Server: "a", Tool: "who", Outcome: "not answered", Delivery: "not sent", Count: 1},
		{Server: "b", Tool: "who", Outcome: "answered", Delivery: "sent", Count: 1},
		{Server: "b", Tool: "who", Outcome: "not answered", Delivery: "not sent", Count: 1},
	}
	r := f.Report()
	if a, b := r.Servers[0], r.Servers[1]; a.Answered != 4 || a.Unanswered != 2 || b.Answered != 1 || b.Unanswered != 0 || b.Limited != 1 {
		t.Errorf("a: %d answered, %d not; b: %d answered, %d not, %d refused", a.Answered, a.Unanswered, b.Answered, b.Unanswered, b.Limited)
	}
	if !slices.Equal(r.Called, want) {
		t.Errorf("%+v, want\n%+v", r.Called, want)
	}
	if r.NotOffered != 2 {
		t.Errorf("%d calls of what is not offered, want 2", r.NotOffered)
	}
}

// However many tools a server has, 128 are counted each for itself.
//
// Guarantees: G-0091.23
func TestCountedToolsAreBounded(t *testing.T) {
	const tools = 140
	s := server.New(protocol.Implementation{Name: "a", Version: "1"}, server.Options{})
	for i := range tools {
		server.AddTool(s, protocol.Tool{Name: fmt.Sprint("t", i)}, func(context.Context, struct{}) (string, error) { return "", nil })
	}
	f := newFleet(t, protocol.Latest, map[string]*server.Server{"a": s})
	session := f.client(protocol.Latest, client.Options{})
	for range 2 {
		for i := range tools {
			if _, err := client.Call[string](timeout(t), session, fmt.Sprint("a__t", i), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := f.Report().Called
	if other := (admin.ToolCalls{Server: "a", Tool: admin.OtherTools, Outcome: "answered", Delivery: "sent", Count: 2 * (tools - 128)}); len(all) != 129 || all[0] != other || all[1].Count != 2 {
		t.Errorf("%d tools, the first %+v", len(all), all[:min(len(all), 2)])
	}
}
