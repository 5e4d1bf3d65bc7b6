package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// outcomeOf calls a tool of a, and returns how long that took in virtual time, and what is said if it was not answered.
func outcomeOf(t *testing.T, session *client.Session, tool string, arguments any) (took time.Duration, away string) {
	t.Helper()
	began := time.Now()
	params := &protocol.CallToolParams{Name: tool}
	if arguments != nil {
		params.Arguments = fmt.Append(nil, arguments)
	}
	result, err := session.CallTool(t.Context(), params)
	failOn(t, err)
	if result.IsError {
		away = result.Content.Text()
	}
	return time.Since(began), away
}

// A call that waits for its server is answered as soon as there is no hope, or no need to wait any more. Where a person has to do something, nobody
// waits, even if the server tries again soon.
//
// Guarantees: G-0088.2
func TestACallWaitsForAsLongAsThereIsHope(t *testing.T) {
	for name, c := range map[string]struct {
		opens opening
		then  func(*fleet) error // after three seconds of a call
		took  time.Duration
		away  string
	}{
		"it is not installed": {opens: fails(exec.ErrNotFound), away: "It was not executed"},
		"it wants a login":    {opens: fails(transport.ErrAuthRequired), away: "It was not executed"},
		"it does not start":   {opens: hangs, took: 10 * time.Second, away: "It was not executed"},
		"it is stopped meanwhile": {opens: hangs, took: 3 * time.Second, away: "It was not executed",
			then: func(f *fleet) error { return f.Do(f.t.Context(), "a", admin.Stop) }},
		"it leaves the file": {opens: hangs, took: 3 * time.Second, away: "It was not executed",
			then: func(f *fleet) error { _, err := f.Apply(f.t.Context(), fileOf(f.t, "b")); return err }},
		"it works again": {opens: fails(errors.New("out of order")), took: 4 * time.Second,
			then: func(f *fleet) error { f.reach(nil); return nil }},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := gateway.Options{Each: triesSoon}
			f := newFleetWith(t, protocol.LatestLegacy, two(), o)
			session := f.client(protocol.LatestLegacy, client.Options{})
			synctest.Wait()
			f.reach(c.opens)
			f.kill("a", true)
			if c.then == nil { // the first attempt after the loss finds out
				pass(2500 * time.Millisecond)
				synctest.Wait()
			}
			var failed error
			var over chan struct{}
			if c.then != nil {
				over = make(chan struct{})
				go func() {
					defer close(over)
					pass(3 * time.Second)
					failed = c.then(f)
				}()
			}
			took, away := outcomeOf(t, session, "a__who", nil)
			if over != nil {
				<-over
			}
			failOn(t, failed)
			if took > c.took || took < c.took-time.Second || !strings.Contains(away, c.away) || (away == "") != (c.away == "") {
				t.Errorf("%s: after %v, %q", name, took, away)
			}
		})
	}
}

// triesSoon has a server that is away tried again after two seconds.
func triesSoon(_ *mcpjson.Server, o *client.Options) {
	o.Conn.BackoffMin, o.Conn.BackoffMax = 2*time.Second, 2*time.Second
}

func fails(err error) opening {
	return func(context.Context) (transport.Link, error) { return nil, err }
}

func hangs(ctx context.Context) (transport.Link, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// reach changes how servers are reached from now on; nil: in this process.
func (f *fleet) reach(how opening) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opens = how
}

// A list waits five seconds for servers that have never said what they offer, once.
//
// Guarantees: G-0088.3
func TestHowLongAListWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, protocol.Latest, map[string]*server.Server{"a": named("a")})
		synctest.Wait() // a has said what it offers
		f.reach(hangs)
		f.apply(fileOf(t, "a", "b"))
		session := f.client(protocol.Latest, client.Options{})
		for _, want := range []time.Duration{5 * time.Second, 0} {
			began := time.Now()
			names := toolNames(t, session)
			if took := time.Since(began); took != want || len(names) != 1 {
				t.Errorf("%q after %v, want %v", names, took, want)
			}
		}
	})
}

// A list that is known from an earlier run comes at once, although no server ever answers its start.
//
// Guarantees: G-0088.3
func TestAListThatIsKnownNeedsNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "catalogue.json")
		f := newFleetWith(t, protocol.Latest, two(), gateway.Options{Catalogue: path})
		want := toolNames(t, f.client(protocol.Latest, client.Options{}))
		failOn(t, f.Close(timeout(t)))
		f.Gateway = gateway.New(gateway.Options{Catalogue: path, Each: func(s *mcpjson.Server, _ *client.Options) { s.Transport = opening(hangs) }})
		f.apply(fileOf(t, "a", "b"))
		for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
			began := time.Now()
			if got, took := toolNames(t, f.client(version, client.Options{})), time.Since(began); took != 0 || !slices.Equal(got, want) || len(got) != 2 {
				t.Errorf("%s: %q after %v, want %q", version, got, took, want)
			}
		}
		f.is("a", admin.Starting, false)
	})
}

// A request waits for a list although the server was restarted while it was asked for its lists: what was broken off says nothing of the server.
//
// Guarantees: G-0088.3
func TestARequestWaitsForAListThatWasBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{
			Middleware: []server.Middleware{func(next server.Handler) server.Handler {
				return func(ctx context.Context, r *server.Request) (any, error) {
					if r.Method == protocol.MethodListTools && asked.Add(1) == 1 {
						<-ctx.Done()
					}
					return next(ctx, r)
				}
			}},
		})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { return "", nil })
		server.AddResource(s, protocol.Resource{URI: "x:/it", Name: "it"}, func(context.Context) (string, error) { return "it", nil })
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		session := f.client(protocol.LatestLegacy, client.Options{})
		synctest.Wait()
		restarted := make(chan struct{})
		go func() {
			defer close(restarted)
			_ = f.Do(t.Context(), "a", admin.Restart) // it says that a request was cut short
		}()
		_, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "x:/it"})
		failOn(t, err)
		<-restarted
	})
}

// silent is a gateway whose server a has said what it offers, and whose server b is reached in another way and has said nothing, five and a half seconds after
// both were started: no list waits any more, and the next attempt to reach b is due in half a second. The file has what more says.
func silent(t *testing.T, opens opening, b, more string) *fleet {
	t.Helper()
	return silentWith(t, gateway.Options{}, opens, b, more)
}

func silentWith(t *testing.T, o gateway.Options, opens opening, b, more string) *fleet {
	t.Helper()
	o.Each = triesSoon
	f := newFleetFor(t, protocol.LatestLegacy, two(), o, fileOf(t, "a"))
	synctest.Wait()
	f.reach(opens)
	f.apply(load(t, `{"mcpServers": {"a": {"command": "/bin/a"}, "b": {"command": "/bin/b"`+b+`}}`+more+`}`))
	pass(5500 * time.Millisecond)
	return f
}

// A call of a tool that a server may have which has never answered waits for that server, and says that it is away. A name that no such server may have is unknown,
// as it always is.
//
// Guarantees: G-0088.24
func TestACallToAServerThatHasSaidNothing(t *testing.T) {
	for name, c := range map[string]struct {
		opens   opening
		b, tool string // its entry in the file, and what is called
		later   bool   // it can be reached after three seconds
		took    time.Duration
		away    string
	}{
		"it does not start":      {opens: hangs, tool: "b__who", took: 10 * time.Second, away: `the server "b" is away`},
		"it is not installed":    {opens: fails(exec.ErrNotFound), tool: "b__who", away: `the server "b" is away (backoff): executable missing`},
		"it comes":               {opens: fails(errors.New("out of order")), tool: "b__who", later: true, took: 4 * time.Second},
		"it comes without it":    {opens: fails(errors.New("out of order")), tool: "b__why", later: true, took: 4 * time.Second, away: `unknown tool "b__why"`},
		"another prefix":         {opens: hangs, b: `, "bowline": {"prefix": "x"}`, tool: "x__who", took: 10 * time.Second, away: `the server "b" is away`},
		"bare names":             {opens: hangs, b: `, "bowline": {"prefix": ""}`, tool: "who", took: 10 * time.Second, away: `the server "b" is away`},
		"not its prefix":         {opens: hangs, tool: "c__who", away: `unknown tool "c__who"`},
		"of a server that is up": {opens: hangs, b: `, "bowline": {"prefix": ""}`, tool: "a__why", away: `unknown tool "a__why"`},
		"not offered":            {opens: hangs, b: `, "bowline": {"tools": {"deny": ["who"]}}`, tool: "b__who", away: `unknown tool "b__who"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := silent(t, c.opens, c.b, "")
			session := f.client(protocol.LatestLegacy, client.Options{})
			over := make(chan struct{})
			go func() {
				defer close(over)
				if c.later {
					pass(3 * time.Second)
					f.reach(nil)
				}
			}()
			began := time.Now()
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: c.tool})
			said := fmt.Sprint(err)
			if err == nil && result.IsError {
				said = result.Content.Text() + string(result.Meta[gateway.MetaOutcome])
			}
			if took := time.Since(began); took > c.took || took < c.took-time.Second || c.away != "" && !strings.Contains(said, c.away) || c.away == "" && (err != nil || result.IsError) {
				t.Errorf("%s: after %v, %s", name, took, said)
			}
			if strings.Contains(c.away, "away") && !strings.Contains(said, "It was not executed") {
				t.Errorf("%s: %s", name, said)
			}
			<-over
		})
	}
}

// A prompt is waited for, too. Whoever may use nothing of a server does not learn that it is there.
//
// Guarantees: G-0088.24, G-0098.1
func TestWhoLearnsThatAServerHasSaidNothing(t *testing.T) {
	for more, want := range map[string]string{"": `the server "b" is away`, `, "bowline": {"policy": [{"allow": ["a/*"]}]}`: "unknown"} {
		synctest.Test(t, func(t *testing.T) {
			f := silent(t, hangs, "", more)
			session := f.client(protocol.LatestLegacy, client.Options{})
			_, err := session.GetPrompt(t.Context(), &protocol.GetPromptParams{Name: "b__greet"})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("with %q: %v", more, err)
			}
			began, said := time.Now(), [2]string{}
			for i, name := range []string{"b__who", "c__who"} { // the second server does not exist
				result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
				said[i] = strings.ReplaceAll(fmt.Sprint(result, err), name, "NAME")
			}
			if took := time.Since(began); more != "" && (said[0] != said[1] || took > 0) || more == "" && said[0] == said[1] {
				t.Errorf("with %q, after %v: %q", more, took, said)
			}
		})
	}
}

// At the endpoint for search a call says the same. If the server comes meanwhile, it is to be made again.
//
// Guarantees: G-0088.24
func TestSearchForAToolOfAServerThatHasSaidNothing(t *testing.T) {
	for later, want := range map[bool]string{false: `the server "b" is away`, true: `"b__who" is known only now: try again`} {
		synctest.Test(t, func(t *testing.T) {
			searching := func(ctx context.Context, _ *server.Session) context.Context { return gateway.WithSearch(ctx) }
			f := silentWith(t, gateway.Options{Server: server.Options{SessionContext: searching}}, fails(errors.New("out of order")), "", "")
			session := f.client(protocol.LatestLegacy, client.Options{})
			if later {
				f.reach(nil)
			}
			for _, name := range []string{"b__who", "c__who"} {
				params := &protocol.CallToolParams{Name: "call_tool", Arguments: json.RawMessage(`{"name":"` + name + `"}`)}
				result, err := session.CallTool(t.Context(), params)
				failOn(t, err)
				if said := result.Content.Text(); !result.IsError || strings.Contains(said, want) != (name == "b__who") || strings.Contains(said, "unknown tool") != (name == "c__who") {
					t.Errorf("%s: %s", name, said)
				}
			}
		})
	}
}

// A call waits for ten seconds in all, also while the first lists still wait; and Await for one server makes no call to another one wait longer.
//
// Guarantees: G-0088.24, G-0088.25
func TestHowLongACallWaitsForAServerThatHasSaidNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := gateway.Options{Each: triesSoon}
		f := newFleetFor(t, protocol.LatestLegacy, two(), o, fileOf(t, "a"))
		session := f.client(protocol.LatestLegacy, client.Options{})
		synctest.Wait()
		f.reach(fails(errors.New("out of order")))
		f.apply(fileOf(t, "a", "b"))
		if took, away := outcomeOf(t, session, "b__who", nil); took != 10*time.Second || !strings.Contains(away, "It was not executed") {
			t.Errorf("right after the file was read: %v, %q", took, away)
		}
		_, err := f.Await(t.Context(), "a")
		failOn(t, err)
		began := time.Now()
		if _, err = session.CallTool(t.Context(), &protocol.CallToolParams{Name: "zz__who"}); time.Since(began) != 0 || err == nil || !strings.Contains(err.Error(), "unknown tool") {
			t.Errorf("a tool that no server may have, after an Await: %v, %v", time.Since(began), err)
		}
	})
}

// What a server could not say is forgotten with its process: the next one is asked, and a call waits for what it says.
//
// Guarantees: G-0088.24
func TestWhatAnEarlierProcessCouldNotSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		s := server.New(protocol.Implementation{Name: "a", Version: "1"}, server.Options{
			Middleware: []server.Middleware{func(next server.Handler) server.Handler {
				return func(ctx context.Context, r *server.Request) (any, error) {
					if r.Method == protocol.MethodListTools {
						if asked.Add(1) == 1 {
							return nil, errors.New("the disk is full")
						}
						pass(time.Second)
					}
					return next(ctx, r)
				}
			}},
		})
		server.AddTool(s, protocol.Tool{Name: "who"}, func(context.Context, struct{}) (string, error) { return "me", nil })
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		session := f.client(protocol.LatestLegacy, client.Options{})
		if _, away := outcomeOf(t, session, "a__who", nil); !strings.Contains(away, "the disk is full") {
			t.Errorf("of the first process: %q", away)
		}
		f.apply(fileOf(t, "a")) // nothing has changed for it
		if took, away := outcomeOf(t, session, "a__who", nil); took != 0 || !strings.Contains(away, "the disk is full") {
			t.Errorf("after the file was read once more: %v, %q", took, away)
		}
		f.kill("a", true)
		synctest.Wait()
		if _, away := outcomeOf(t, session, "a__who", nil); away != "" {
			t.Errorf("of the second process: %q", away)
		}
	})
}

// A server that refuses to say what it offers is not waited for, and a call says why.
//
// Guarantees: G-0088.24
func TestAServerThatRefusesToSayWhatItOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.New(protocol.Implementation{Name: "a", Version: "1"}, server.Options{
			Capabilities: protocol.ServerCapabilities{Tools: &protocol.ListCapability{}},
			Route: map[string]server.RawHandler{protocol.MethodListTools: func(context.Context, json.RawMessage) (json.RawMessage, error) {
				return nil, errors.New("the disk is full")
			}},
		})
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		session := f.client(protocol.LatestLegacy, client.Options{})
		took, away := outcomeOf(t, session, "a__who", nil)
		if took != 0 || !strings.Contains(away, "the disk is full. It was not executed") {
			t.Errorf("after %v, %q", took, away)
		}
		if _, err := f.Await(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("Await returned %v", err)
		}
	})
}

// Await waits for a server as Connect of a client does. What it returns is what the server says of itself, and its tools are known then.
//
// Guarantees: G-0088.25
func TestAwaitWaitsForTheToolsOfAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := silent(t, fails(errors.New("out of order")), "", "")
		go func() {
			pass(3 * time.Second)
			f.reach(nil)
		}()
		began := time.Now()
		said, err := f.Await(t.Context(), "b")
		if took := time.Since(began); err != nil || said.Info.Name != "b" || took != 4500*time.Millisecond {
			t.Errorf("after %v: %+v, %v", took, said, err)
		}
		if names := toolNames(t, f.client(protocol.LatestLegacy, client.Options{})); strings.Join(names, " ") != "a__who b__who" {
			t.Errorf("the tools are %q", names)
		}
		f.reach(fails(exec.ErrNotFound))
		f.kill("b", true)
		pass(3 * time.Second)
		if _, err := f.Await(t.Context(), "b"); err != nil {
			t.Errorf("of a server that was there: %v", err)
		}
		if _, err := f.Await(t.Context(), "c"); !errors.Is(err, admin.ErrNoServer) {
			t.Errorf("of no server: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := silent(t, fails(exec.ErrNotFound), "", "")
		var failed *client.ConnectError
		if _, err := f.Await(t.Context(), "b"); !errors.As(err, &failed) || !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("of a server that is not installed: %v", err)
		}
		f.reach(hangs)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f.apply(fileOf(t, "a", "c"))
		if _, err := f.Await(ctx, "c"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("until its context ends: %v", err)
		}
	})
}

// clocked starts a gateway with virtual time over a, a tool of which takes as many milliseconds as it is told.
func clocked(t *testing.T, test func(*testing.T, *fleet, *client.Session)) {
	synctest.Test(t, func(t *testing.T) {
		s := named("a")
		server.AddTool(s, protocol.Tool{Name: "takes"}, func(ctx context.Context, in struct{ MS int }) (string, error) {
			select {
			case <-time.NewTimer(time.Duration(in.MS) * time.Millisecond).C:
			case <-ctx.Done():
			}
			return "done", nil
		})
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		session := f.client(protocol.LatestLegacy, client.Options{Calls: client.CallOptions{Timeout: -1}})
		synctest.Wait()
		test(t, f, session)
	})
}

// The durations in a report are those of the last 256 answers, the sum and the count those of all.
//
// Guarantees: G-0091.14, G-0091.19
func TestDurationsAreOfTheLastAnswers(t *testing.T) {
	clocked(t, func(t *testing.T, f *fleet, session *client.Session) {
		total := 0
		for _, c := range []struct {
			calls, ms int
			p50, p99  float64
		}{{256, 100, 100, 100}, {3, 300, 100, 100}, {1, 300, 100, 300}, {130, 300, 300, 300}, {256, 200, 200, 200}} {
			waited := time.Duration(0)
			for range c.calls {
				took, away := outcomeOf(t, session, "a__takes", fmt.Sprintf(`{"MS":%d}`, c.ms))
				if waited += took; away != "" {
					t.Fatal(away)
				}
			}
			total += c.calls
			if s, _ := f.Report().Server("a"); s.P50 != c.p50 || s.P99 != c.p99 || s.Answered != uint64(total) || waited != time.Duration(c.calls*c.ms)*time.Millisecond {
				t.Errorf("after %d calls of %d ms: %+v", c.calls, c.ms, s)
			}
		}
		if s, _ := f.Report().Server("a"); s.Waited != 117 {
			t.Errorf("clients have waited %v s", s.Waited)
		}
	})
}

// A call that runs when a person stops its server has five seconds.
//
// Guarantees: G-0088.9
func TestWhatRunsHasFiveSeconds(t *testing.T) {
	for _, action := range []admin.Action{admin.Stop, admin.Restart} {
		for ms, ended := range map[int]bool{4900: true, 5100: false} {
			clocked(t, func(t *testing.T, f *fleet, session *client.Session) {
				acted := make(chan error)
				go func() {
					pass(time.Millisecond) // the call runs
					acted <- f.Do(t.Context(), "a", action)
				}()
				took, away := outcomeOf(t, session, "a__takes", fmt.Sprintf(`{"MS":%d}`, ms))
				if (away == "") != ended || took > 5001*time.Millisecond || took < 4900*time.Millisecond || !ended && !strings.Contains(away, "It may have been executed") {
					t.Errorf("%s: a call of %d ms ended after %v: %q", action, ms, took, away)
				}
				<-acted
				synctest.Wait()
				if s, _ := f.Report().Server("a"); (s.State == admin.Stopped) != (action == admin.Stop) {
					t.Errorf("%s: it is %s", action, s.State)
				}
			})
		}
	}
}

// Subscriptions are requests, and counted as those that a server has answered or not.
//
// Guarantees: G-0091.19
func TestSubscriptionsAreCounted(t *testing.T) {
	clocked(t, func(t *testing.T, f *fleet, session *client.Session) {
		count := func(answered, unanswered uint64) {
			t.Helper()
			if s, _ := f.Report().Server("a"); s.Answered != answered || s.Unanswered != unanswered || s.Calls != 0 {
				t.Errorf("%+v, want %d answered and %d not", s, answered, unanswered)
			}
		}
		failOn(t, session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "a:/one"}))
		count(1, 0)
		failOn(t, session.Unsubscribe(t.Context(), &protocol.UnsubscribeParams{URI: "a:/one"}))
		count(2, 0)
		failOn(t, f.Do(t.Context(), "a", admin.Stop))
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "a:/one"}); err == nil {
			t.Error("subscribed at a server that is stopped")
		}
		count(2, 1)
	})
}

// Of the states of a server the last 128 are kept.
//
// Guarantees: G-0091.14
func TestThePastIsBounded(t *testing.T) {
	clocked(t, func(t *testing.T, f *fleet, session *client.Session) {
		for range 60 {
			f.kill("a", true)
			synctest.Wait()
			if _, away := outcomeOf(t, session, "a__who", nil); away != "" {
				t.Fatal(away)
			}
			pass(time.Second)
		}
		d, _ := f.Detail("a")
		if len(d.Changes) != 128 || d.Changes[0].State != admin.Ready || time.Since(d.Changes[0].At) > 2*time.Second {
			t.Fatalf("%d changes, the newest is %+v", len(d.Changes), d.Changes[0])
		}
		for i := range d.Changes[1:] {
			if d.Changes[i].At.Before(d.Changes[i+1].At) {
				t.Fatalf("change %d is older than the next", i)
			}
		}
	})
}

// Who looks at a gateway that ends is told, and sees that it is not ready.
//
// Guarantees: G-0088.10
func TestTheEndIsSeen(t *testing.T) {
	f := newFleet(t, protocol.Latest, two())
	f.await("a", admin.Ready)
	changed, others := f.Changed(), f.Report().Ready
	failOn(t, f.Close(timeout(t)))
	<-changed
	<-f.Changed()
	if !others || f.Report().Ready {
		t.Error("a gateway that has ended is ready")
	}
}
