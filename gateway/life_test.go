package gateway_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// lively starts a gateway with virtual time over a and b. The block is that of a. A tool of both takes half an hour.
func lively(t *testing.T, block string, o gateway.Options, test func(*testing.T, *fleet)) {
	synctest.Test(t, func(t *testing.T) {
		servers := two()
		for _, s := range servers {
			server.AddTool(s, protocol.Tool{Name: "slow"}, func(ctx context.Context, _ struct{}) (string, error) {
				ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
				defer cancel()
				<-ctx.Done()
				return "done", nil
			})
		}
		f := newFleetFor(t, protocol.LatestLegacy, servers, o, load(t, `{"mcpServers":{"a":{"command":"/bin/a","bowline":`+block+`},"b":{"command":"/bin/b"}}}`))
		synctest.Wait()
		test(t, f)
	})
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.NewTimer(d).C }

func (f *fleet) starts(name string) int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened[name]
}

func (f *fleet) is(name string, state admin.State, onDemand bool) {
	f.t.Helper()
	synctest.Wait()
	if s, _ := f.Report().Server(name); s.State != state || s.OnDemand != onDemand {
		f.t.Fatalf("%s is %s, on demand: %t; want %s, %t", name, s.State, s.OnDemand, state, onDemand)
	}
}

func callWho(t *testing.T, session *client.Session, name string) {
	t.Helper()
	if result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name + "__who"}); err != nil || result.IsError {
		t.Fatalf("%v, %v", result, err)
	}
}

// A server that starts on demand is started once to learn what it offers, and is stopped when nobody has used it for a while. Its
// tools stay in the list. A call starts it again; a gateway that knows its lists from before starts it for the first call.
//
// Guarantees: G-0088.11
func TestServerThatStartsOnDemand(t *testing.T) {
	o := gateway.Options{Catalogue: filepath.Join(t.TempDir(), "catalogue.json")}
	for run := range 2 {
		lively(t, `{"start":"demand","idleStop":"5m"}`, o, func(t *testing.T, f *fleet) {
			if got, want := f.starts("a"), 1-run; got != want {
				t.Fatalf("run %d: it was started %d times, want %d", run, got, want)
			}
			session := f.client(protocol.LatestLegacy, client.Options{})
			if run == 0 {
				f.is("a", admin.Ready, false)
				pass(5*time.Minute - time.Millisecond)
				f.is("a", admin.Ready, false)
				pass(time.Millisecond)
			}
			f.is("a", admin.Stopped, true)
			if names := toolNames(t, session); !slices.Equal(names, []string{"a__slow", "a__who", "b__slow", "b__who"}) {
				t.Errorf("the list is %q", names)
			}
			callWho(t, session, "a")
			f.is("a", admin.Ready, false)
			pass(4 * time.Minute)
			callWho(t, session, "a")
			pass(4 * time.Minute)
			f.is("a", admin.Ready, false)
			pass(time.Minute)
			f.is("a", admin.Stopped, true)
			f.is("b", admin.Ready, false)
			if f.starts("b") != 1 {
				t.Error("b was started again")
			}
		})
	}
}

// Nothing is stopped that somebody uses: by a call, or by a subscription.
//
// Guarantees: G-0088.11
func TestServerInUseIsNotStopped(t *testing.T) {
	lively(t, `{"idleStop":"1m","maxLife":"2m"}`, gateway.Options{}, func(t *testing.T, f *fleet) {
		session := f.client(protocol.LatestLegacy, client.Options{Calls: client.CallOptions{Timeout: -1}})
		if text, err := client.Call[string](t.Context(), session, "a__slow", nil); err != nil || text != "done" || f.starts("a") != 1 {
			t.Fatalf("a call of half an hour: %q, %v", text, err)
		}
		failOn(t, session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "a:/one"}))
		before := f.starts("a")
		pass(time.Hour)
		f.is("a", admin.Ready, false)
		failOn(t, session.Unsubscribe(t.Context(), &protocol.UnsubscribeParams{URI: "a:/one"}))
		if f.starts("a") != before {
			t.Error("it was stopped, although somebody had subscribed")
		}
		pass(time.Second) // it is too old
		f.is("a", admin.Stopped, true)
	})
}

// A server that is too old is started anew as soon as nobody uses it.
//
// Guarantees: G-0088.11
func TestServerThatIsTooOld(t *testing.T) {
	lively(t, `{"maxLife":"24h"}`, gateway.Options{}, func(t *testing.T, f *fleet) {
		session := f.client(protocol.LatestLegacy, client.Options{Calls: client.CallOptions{Timeout: -1}})
		pass(24*time.Hour - 15*time.Minute + time.Second/2) // a look is a whole number of seconds after the start
		callWho(t, session, "a")
		if text, err := client.Call[string](t.Context(), session, "a__slow", nil); err != nil || text != "done" || f.starts("a") != 1 {
			t.Fatalf("a call of half an hour: %q, %v", text, err)
		}
		pass(time.Second)
		f.is("a", admin.Ready, false)
		if n := f.starts("a"); n != 2 {
			t.Errorf("it was started %d times, want twice", n)
		}
		if f.starts("b") != 1 {
			t.Error("b was started again")
		}
		callWho(t, session, "a")
	})
}

// A call that comes while its server is being stopped is answered by the next one.
//
// Guarantees: G-0088.11
func TestCallsWhileAServerFallsAsleep(t *testing.T) {
	lively(t, `{"idleStop":"1s"}`, gateway.Options{}, func(t *testing.T, f *fleet) {
		session := f.client(protocol.LatestLegacy, client.Options{})
		for i := range 200 {
			callWho(t, session, "a")
			pass(time.Second + time.Duration(i%3-1)*time.Nanosecond)
		}
		if f.starts("a") < 60 {
			t.Errorf("it was started %d times: nothing is tested", f.starts("a"))
		}
	})
}

// What a person stops does not start on demand. What starts on demand can be started and woken by a person.
//
// Guarantees: G-0088.9, G-0088.11
func TestPersonAndDemand(t *testing.T) {
	lively(t, `{"start":"demand"}`, gateway.Options{}, func(t *testing.T, f *fleet) {
		do := func(action admin.Action) { failOn(t, f.Do(t.Context(), "a", action)) }
		session := f.client(protocol.LatestLegacy, client.Options{})
		pass(5 * time.Minute) // the default
		f.is("a", admin.Stopped, true)
		do(admin.Stop)
		f.is("a", admin.Stopped, false)
		if result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "a__who"}); err != nil || !result.IsError {
			t.Errorf("one that a person has stopped: %v, %v", result, err)
		}
		do(admin.Start)
		f.is("a", admin.Ready, false)
		pass(5 * time.Minute)
		f.is("a", admin.Stopped, true)
		do(admin.Wake)
		f.is("a", admin.Ready, false)
		f.kill("a", false)
		pass(5 * time.Minute)
		f.is("a", admin.Stopped, true)
		if s, _ := f.Report().Server("a"); s.LastFailure == "" || s.Reason != "starts on demand" {
			t.Errorf("nothing says that it was out of order: %+v", s)
		}
		f.kill("a", true)
		callWho(t, session, "a")
		pass(5 * time.Minute)
		f.is("a", admin.Stopped, true)
		f.kill("a", true)
		callWho(t, session, "a")
		if s, _ := f.Report().Server("a"); s.State != admin.Ready || s.Reason == "starts on demand" || s.OnDemand {
			t.Errorf("it was started for a call: %+v", s)
		}
		f.kill("a", true)
		pass(time.Second) // it is tried again, and is ready
		callWho(t, session, "a")
		pass(5 * time.Minute)
		f.is("a", admin.Stopped, true)
		if s, _ := f.Report().Server("a"); s.LastFailure != "" {
			t.Errorf("it was ready when it fell asleep: %+v", s)
		}
	})
}

// A server that has not said all that it offers does not wait for its first use: nobody could find what is not known.
//
// Guarantees: G-0088.11
func TestAServerThatHasNotSaidAllDoesNotWait(t *testing.T) {
	o := gateway.Options{Catalogue: filepath.Join(t.TempDir(), "catalogue.json")}
	for run, starts := range []int{1, 1, 0} { // it says the rest in the second run
		synctest.Test(t, func(t *testing.T) {
			s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Middleware: []server.Middleware{func(next server.Handler) server.Handler {
				return func(ctx context.Context, r *server.Request) (any, error) {
					if run == 0 && r.Method == protocol.MethodListPrompts {
						return nil, errors.New("not now")
					}
					return next(ctx, r)
				}
			}}})
			server.AddTool(s, protocol.Tool{Name: "who"}, func(context.Context, struct{}) (string, error) { return "", nil })
			server.AddPrompt(s, protocol.Prompt{Name: "greet"}, func(context.Context, struct{}) (string, error) { return "", nil })
			f := newFleetFor(t, protocol.LatestLegacy, map[string]*server.Server{"a": s}, o, load(t, `{"mcpServers":{"a":{"command":"/bin/a","bowline":{"start":"demand"}}}}`))
			if got := f.starts("a"); got != starts {
				t.Errorf("in run %d it was started %d times, want %d", run, got, starts)
			}
		})
	}
}

// What a person has stopped is left alone, however long nobody uses it.
//
// Guarantees: G-0088.9, G-0088.11
func TestStoppedServerIsLeftAlone(t *testing.T) {
	for _, rule := range []string{`{"idleStop":"1m"}`, `{"maxLife":"1m"}`} {
		lively(t, rule, gateway.Options{}, func(t *testing.T, f *fleet) {
			failOn(t, f.Do(t.Context(), "a", admin.Stop))
			synctest.Wait()
			changed := f.Changed()
			pass(time.Hour) // never comes if the gateway is busy with it
			f.is("a", admin.Stopped, false)
			failOn(t, f.Do(t.Context(), "a", admin.Start))
			<-changed
			pass(time.Minute)
			if rule == `{"maxLife":"1m"}` {
				f.is("a", admin.Ready, false) // the next one
			} else {
				f.is("a", admin.Stopped, true)
			}
		})
	}
}

// The file changes how a server lives without starting it again, and says it for all that do not say otherwise.
//
// Guarantees: G-0088.4, G-0088.11
func TestLifeOfTheFile(t *testing.T) {
	lively(t, `{}`, gateway.Options{}, func(t *testing.T, f *fleet) {
		pass(time.Hour)
		f.is("a", admin.Ready, false)
		f.apply(load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b","bowline":{"idleStop":"off"}}},"bowline":{"idleStop":"2h"}}`))
		pass(2 * time.Hour)
		f.is("a", admin.Stopped, true)
		f.is("b", admin.Ready, false)
		if f.starts("a") != 1 || f.starts("b") != 1 {
			t.Error("they were started again")
		}
	})
}

// A gateway that is closed while a server is being replaced that was too old starts no other one.
//
// Guarantees: G-0088.11
func TestCloseWhileAServerIsReplaced(t *testing.T) {
	lively(t, `{"maxLife":"1m"}`, gateway.Options{}, func(t *testing.T, f *fleet) {
		var started atomic.Int64
		f.reach(func(context.Context) (transport.Link, error) {
			started.Add(1)
			ours, theirs := inmem.Pipe(inmem.Options{})
			f.servers["a"].Accept(theirs)
			return &lingering{ours}, nil
		})
		failOn(t, f.Do(t.Context(), "a", admin.Restart))
		pass(time.Minute + time.Second) // now it ends, which takes three seconds
		if n := started.Load(); n != 1 {
			t.Fatalf("%d are started", n)
		}
		failOn(t, f.Close(t.Context()))
		if n := started.Load(); n != 1 {
			t.Errorf("%d are started in the end", n)
		}
	})
}

// A lingering link takes three seconds to end.
type lingering struct{ transport.Link }

// Close implements transport.Link.
func (l *lingering) Close(grace time.Duration) error {
	pass(3 * time.Second)
	return l.Link.Close(grace)
}
