package gateway_test

import (
	"context"
	"errors"
	"fmt"
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

// limited starts a gateway with virtual time over a and b, with these settings of a and of the gateway.
func limited(t *testing.T, own, top string, test func(*testing.T, *fleet)) {
	synctest.Test(t, func(t *testing.T) {
		servers := two()
		server.AddTool(servers["a"], protocol.Tool{Name: "slow"}, func(ctx context.Context, _ struct{}) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			<-ctx.Done()
			return "done", nil
		})
		test(t, newFleetFor(t, protocol.LatestLegacy, servers, gateway.Options{},
			load(t, `{"mcpServers":{"a":{"command":"/bin/a","bowline":`+own+`},"b":{"command":"/bin/b"}},"bowline":`+top+`}`)))
	})
}

func (f *fleet) user(identity string) *client.Session {
	f.identity = identity
	return f.client(protocol.Latest, client.Options{})
}

// refusal calls a tool, and returns what the gateway says about a limit, or "".
func refusal(t *testing.T, session *client.Session, tool string) string {
	t.Helper()
	result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: tool})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := result.Content[0].(*protocol.TextContent)
	if !result.IsError {
		return ""
	}
	if !strings.Contains(string(result.Meta[gateway.MetaOutcome]), `"delivery":"not sent"`) {
		t.Fatalf("%s: %s", text.Text, result.Meta[gateway.MetaOutcome])
	}
	return text.Text
}

// A client makes so many requests in a minute, over all servers, and no more until time has passed. What others ask does not count for it. It
// is told when to try again, and that nothing was executed.
//
// Guarantees: G-0100.1
func TestRateOfAClient(t *testing.T) {
	limited(t, `{"toolRates":{"slow":1,"*":3}}`, `{"rate":{"perMinute":4}}`, func(t *testing.T, f *fleet) {
		ada, bob := f.user("ada"), f.user("bob")
		if refusal(t, ada, "a__slow") != "" || refusal(t, ada, "b__who") != "" {
			t.Fatal("a request within the limit was refused")
		}
		if got, want := refusal(t, ada, "a__slow"), `the server "a" was not asked: a client may call this tool 1 times in a minute; try again in 59 s. It was not executed`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if refusal(t, ada, "a__who") != "" {
			t.Error("a tool without a rate of its own has that of all others")
		}
		if refusal(t, ada, "b__who") != "" {
			t.Error("the call that was refused because of its tool counts for all servers")
		}
		if got := refusal(t, ada, "b__who"); !strings.Contains(got, `the server "b" was not asked: a client may make 4 requests in a minute; try again in 14 s`) {
			t.Error(got)
		}
		_, err := ada.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "a:/one"})
		var fault *jsonrpc.Error
		if !errors.As(err, &fault) || fault.Code != jsonrpc.CodeOverloaded || !strings.Contains(string(fault.Data), `"retryAfterS":14`) {
			t.Errorf("a resource: %v", err)
		}
		if got := refusal(t, bob, "a__slow"); got != "" {
			t.Errorf("another client: %s", got)
		}
		if pass(14 * time.Second); refusal(t, ada, "b__who") != "" {
			t.Error("a request after the time that the gateway has named was refused")
		}
		a, _ := f.Report().Server("a")
		if b, _ := f.Report().Server("b"); a.Limited != 2 || b.Limited != 1 || a.Answered != 3 || a.Unanswered != 0 {
			t.Errorf("%+v, %+v", a, b)
		}
	})
}

// The rate of a tool is that of calls: prompts and resources, whatever they are called, have none.
//
// Guarantees: G-0100.1
func TestRateOfAToolIsNotThatOfAPrompt(t *testing.T) {
	limited(t, `{"toolRates":{"*":1}}`, `{}`, func(t *testing.T, f *fleet) {
		ada := f.user("ada")
		server.AddPrompt(f.servers["a"], protocol.Prompt{Name: "who"}, func(context.Context, struct{}) (string, error) { return "me", nil })
		synctest.Wait()
		pass(2 * time.Second) // until it is offered
		if got := refusal(t, ada, "a__who"); got != "" {
			t.Fatal(got)
		}
		for range 2 {
			if _, err := ada.GetPrompt(t.Context(), &protocol.GetPromptParams{Name: "a__who"}); err != nil {
				t.Error(err)
			}
			if _, err := ada.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "a:/one"}); err != nil {
				t.Error(err)
			}
		}
		if refusal(t, ada, "a__who") == "" {
			t.Error("the tool has no rate")
		}
	})
}

// calls makes calls at the same time, and tells the time that each took, and what was refused.
func calls(t *testing.T, n int, session *client.Session, tool string) (took chan time.Duration, refused chan string) {
	took, refused = make(chan time.Duration, n), make(chan string, n)
	for range n {
		go func() {
			began := time.Now()
			if why := refusal(t, session, tool); why != "" {
				refused <- why
				return
			}
			took <- time.Since(began)
		}()
	}
	synctest.Wait()
	return took, refused
}

// A client has so many requests under way, and another one has as many.
//
// Guarantees: G-0100.2
func TestRequestsUnderWay(t *testing.T) {
	limited(t, `{}`, `{"rate":{"inFlight":2}}`, func(t *testing.T, f *fleet) {
		ada, bob := f.user("ada"), f.user("bob")
		callWho(t, ada, "a")
		took, refused := calls(t, 3, ada, "a__slow")
		if len(refused) != 1 || !strings.Contains(<-refused, "at most 2 requests of one client may be under way, and as many are") {
			t.Errorf("%d were refused", len(refused))
		}
		callWho(t, bob, "a")
		pass(time.Second + 1)
		if synctest.Wait(); len(took) != 2 || refusal(t, ada, "a__who") != "" {
			t.Errorf("%d were answered", len(took))
		}
	})
}

// A server gets so many requests at once. Others wait, and a client whose only request waits does not wait for all those of another.
//
// Guarantees: G-0100.3
func TestConcurrencyOfAServer(t *testing.T) {
	limited(t, `{"concurrency":2}`, `{}`, func(t *testing.T, f *fleet) {
		ada, bob := f.user("ada"), f.user("bob")
		callWho(t, ada, "a")
		many, refused := calls(t, 10, ada, "a__slow")
		one, _ := calls(t, 1, bob, "a__slow")
		callWho(t, bob, "b")
		if a, _ := f.Report().Server("a"); a.Calls != 2 || a.Queued != 9 {
			t.Errorf("%d are under way, and %d wait", a.Calls, a.Queued)
		}
		if waited := <-one; waited != 2*time.Second {
			t.Errorf("the only request of a client took %s", waited)
		}
		for range 10 {
			<-many
		}
		if len(refused) != 0 {
			t.Error(<-refused)
		}
		if a, _ := f.Report().Server("a"); a.Calls != 0 || a.Queued != 0 {
			t.Errorf("%d are under way, and %d wait", a.Calls, a.Queued)
		}
	})
}

// A new file changes the limits of what comes next, and calls under way are not disturbed.
//
// Guarantees: G-0100.5
func TestLimitsOfANewFile(t *testing.T) {
	limited(t, `{"concurrency":1}`, `{}`, func(t *testing.T, f *fleet) {
		ada := f.user("ada")
		callWho(t, ada, "a")
		took, _ := calls(t, 3, ada, "a__slow")
		f.apply(load(t, `{"mcpServers":{"a":{"command":"/bin/a","bowline":{"concurrency":4}},"b":{"command":"/bin/b"}}}`))
		if callWho(t, ada, "a"); len(took) != 0 {
			t.Error("slow calls were answered at once")
		}
		if pass(time.Second + 1); len(took) != 3 {
			t.Errorf("%d of those that waited were answered with the first", len(took))
		}
		f.apply(load(t, `{"mcpServers":{"a":{"command":"/bin/a","bowline":{"toolRates":{"*":1}}},"b":{"command":"/bin/b"}}}`))
		if callWho(t, ada, "a"); refusal(t, ada, "a__who") == "" {
			t.Error("a limit of the new file does not hold")
		}
	})
}

// A persona gives its users limits of their own. Who has several has the most generous of each number, and where none of them says anything, everybody's counts. A new
// file counts for the next request.
//
// Guarantees: G-0100.6
func TestLimitsOfPersonas(t *testing.T) {
	const servers, personas = `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":`, `{"rate":{"perMinute":2},"personas":{
		"contractor":{"who":["token con","token both","group:far"],"rate":{"perMinute":3,"inFlight":1}},
		"team":{"who":["token tom","token both"],"rate":{"perMinute":5}},
		"guest":{"who":["token guest","token both"]}}}`
	limited(t, `{}`, personas, func(t *testing.T, f *fleet) {
		for user, most := range map[string]int{"token con": 3, "token tom": 5, "token both": 5, "token guest": 2, "token far": 3} {
			if f.principal = nil; user == "token far" {
				f.principal = claims{"groups": {"far"}}
			}
			session := f.user(user)
			for i := range most {
				if got := refusal(t, session, []string{"a__who", "b__who"}[i%2]); got != "" {
					t.Errorf("%s, call %d: %s", user, i, got)
				}
			}
			if got := refusal(t, session, "b__who"); !strings.Contains(got, fmt.Sprintf("a client may make %d requests in a minute", most)) {
				t.Errorf("%s: %q", user, got)
			}
		}
		f.principal = nil
		pass(time.Minute)
		for user, most := range map[string]int{"token con": 1, "token both": 1, "token tom": 2} {
			took, refused := calls(t, 2, f.user(user), "a__slow")
			if len(refused) != 2-most {
				t.Errorf("%s: of two requests at once, %d are refused", user, len(refused))
			}
			pass(time.Second + 1)
			if synctest.Wait(); len(took) != most {
				t.Errorf("%s: of two requests at once, %d are answered", user, len(took))
			}
		}
		con := f.user("token con")
		f.apply(load(t, servers+strings.ReplaceAll(personas, `"perMinute":3,`, `"perMinute":1,`)+`}`))
		if got := refusal(t, con, "a__who"); !strings.Contains(got, "a client may make 1 requests in a minute") {
			t.Errorf("the limit of a new file: %q", got)
		}
		f.apply(load(t, servers+`{"personas":{"all":{"who":"*"}}}}`))
		if got := refusal(t, con, "a__who"); got != "" {
			t.Errorf("the new file has no limit: %s", got)
		}
	})
}

// A refusal says in which state the connection with its server is, which was not asked.
//
// Guarantees: G-0100.1
func TestARefusalTellsHowItsServerIs(t *testing.T) {
	limited(t, `{"toolRates":{"*":1}}`, `{}`, func(t *testing.T, f *fleet) {
		ada := f.user("ada")
		callWho(t, ada, "a")
		for _, c := range []struct {
			state  string
			before func()
		}{
			{"ready", func() {}},
			{"backoff", func() { f.kill("a", false) }},
			{"closing", func() { failOn(t, f.Do(t.Context(), "a", admin.Stop)) }},
		} {
			c.before()
			synctest.Wait()
			result, err := ada.CallTool(t.Context(), &protocol.CallToolParams{Name: "a__who"})
			failOn(t, err)
			if said := string(result.Meta[gateway.MetaOutcome]); !strings.Contains(said, `"server":"a","state":"`+c.state+`"`) || !strings.Contains(said, `"retryAfterS":`) {
				t.Errorf("%s: %s", c.state, said)
			}
		}
	})
}
