package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
)

// A keeper is a server that remembers what it is told, as a process would.
type keeper struct {
	*server.Server
	mu   sync.Mutex
	kept string
	said int // how often it was told something
}

// swap returns what was kept, and keeps what is said, unless that is "".
func (k *keeper) swap(said string) (before string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before = k.kept
	if said != "" {
		k.kept = said
		k.said++
	}
	return before
}

func newKeeper() *keeper {
	k := &keeper{Server: server.New(protocol.Implementation{Name: "keeper", Version: "1"}, server.Options{
		OnSubscribe: func(context.Context, string) error { return nil }, Capabilities: protocol.ServerCapabilities{Logging: &protocol.Capability{}},
	})}
	server.AddTool(k.Server, protocol.Tool{Name: "keep"}, func(_ context.Context, in struct{ What string }) (string, error) { return k.swap(in.What), nil })
	marked := protocol.Tool{Name: "marked", Meta: protocol.Meta{protocol.MetaToolMode: json.RawMessage(`"stateful"`)}}
	server.AddTool(k.Server, marked, func(_ context.Context, in struct{ What string }) (string, error) { return k.swap(in.What), nil })
	server.AddTool(k.Server, protocol.Tool{Name: "read"}, func(_ context.Context, _ struct {
		What string `json:",omitzero"`
	}) (string, error) {
		return k.swap(""), nil
	})
	server.AddTool(k.Server, protocol.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		answer, err := server.Elicit[struct {
			Text string `json:"text"`
		}](ctx, "who")
		return answer.Text, err
	}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
	server.AddTool(k.Server, protocol.Tool{Name: "hold"}, func(ctx context.Context, in struct{ Seconds int }) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(in.Seconds)*time.Second)
		defer cancel()
		<-ctx.Done()
		return k.swap(""), nil
	})
	server.AddResource(k.Server, protocol.Resource{URI: "kept:/it", Name: "it"}, func(context.Context) (string, error) { return k.swap(""), nil })
	return k
}

// isolated starts a gateway over one server, which is another one on each connection, as a process would be.
func isolated(t *testing.T, version, block string, o gateway.Options) *isle {
	t.Helper()
	i := new(isle)
	i.fleet = newFleetFor(t, version, map[string]*server.Server{}, o, load(t, `{"mcpServers":{}}`))
	i.each = func() *server.Server {
		k := newKeeper()
		i.keepers = append(i.keepers, k)
		return k.Server
	}
	i.apply(oneWith(t, block))
	return i
}

func oneWith(t *testing.T, block string) *mcpjson.File {
	return load(t, `{"mcpServers":{"a":{"command":"/bin/a","bowline":`+block+`}}}`)
}

// An isle is a gateway over one server, with all that were started.
type isle struct {
	*fleet
	keepers []*keeper // guarded by the mu of the fleet
}

// of returns the running ones that keep something that begins so.
func (i *isle) of(begin string) (all []*keeper) {
	synctest.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, k := range i.keepers {
		if kept := k.swap(""); kept != "" && strings.HasPrefix(kept, begin) && k.runs() {
			all = append(all, k)
		}
	}
	return all
}

// said returns how often all of them were told something.
func (i *isle) said() (n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, k := range i.keepers {
		k.mu.Lock()
		n += k.said
		k.mu.Unlock()
	}
	return n
}

// runs reports whether a client is connected, of a legacy revision.
func (k *keeper) runs() bool {
	for range k.Sessions() {
		return true
	}
	return false
}

// connections returns how many there are beside that of the gateway.
func (i *isle) connections() (n int) {
	synctest.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, k := range i.keepers {
		if k.runs() {
			n++
		}
	}
	return n - 1
}

// patient is a client that waits for its answers.
var patient = client.Options{Calls: client.CallOptions{Timeout: -1}}

func (f *fleet) clientOf(identity, version string) *client.Session {
	f.t.Helper()
	f.identity = identity
	return f.client(version, patient)
}

// Users who do not share a connection never get what another one has said to the server, whatever they do in whatever order.
//
// Guarantees: G-0095.1
func TestIsolation(t *testing.T) {
	for _, share := range []string{"user", "client"} {
		for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
			t.Run(share+" "+front, func(t *testing.T) {
				f := isolated(t, protocol.LatestLegacy, `{"share":"`+share+`"}`, gateway.Options{})
				sessions := map[string]*client.Session{}
				owners := []string{"ann 1", "ann 2", "bob 1"}
				for _, who := range owners {
					sessions[who] = f.clientOf(who[:3], front)
				}
				ownerOf := func(who string) string {
					if share == "client" && protocol.IsLegacy(front) {
						return who
					}
					return who[:3]
				}
				kept, said := map[string]string{}, 0
				ctx := timeout(t)
				rapid.Check(t, func(t *rapid.T) {
					who := rapid.SampledFrom(owners).Draw(t, "who")
					before, session := kept[ownerOf(who)], sessions[who]
					var got string
					var err error
					switch rapid.SampledFrom([]string{"keep", "read", "resource", "restart"}).Draw(t, "what") {
					case "keep":
						said++
						kept[ownerOf(who)] = fmt.Sprint(who, said)
						got, err = client.Call[string](ctx, session, "a__keep", map[string]string{"What": kept[ownerOf(who)]})
					case "read":
						got, err = client.Call[string](ctx, session, "a__read", struct{}{})
					case "resource":
						var result *protocol.ReadResourceResult
						if result, err = session.ReadResource(ctx, &protocol.ReadResourceParams{URI: "kept:/it"}); err == nil {
							got = *result.Contents[0].Text
						}
					case "restart":
						if rapid.IntRange(0, 4).Draw(t, "really") > 0 {
							return
						}
						err = f.Do(ctx, "a", "restart")
						clear(kept)
						before = ""
					}
					if err != nil || got != before {
						t.Fatalf("%s gets %q, %v; want %q", who, got, err, before)
					}
				})
			})
		}
	}
}

// What a server sends over the connection of one owner comes to the sessions of that owner only: log messages outside of calls, updates of
// resources, and questions, also while other owners have calls in flight.
//
// Guarantees: G-0095.4
func TestOnlyTheOwnerHears(t *testing.T) {
	for _, share := range []string{"user", "client"} {
		synctest.Test(t, func(t *testing.T) {
			i := isolated(t, protocol.LatestLegacy, `{"share":"`+share+`"}`, gateway.Options{})
			var mu sync.Mutex
			heard := map[string][]string{}
			hear := func(who, what string) {
				mu.Lock()
				defer mu.Unlock()
				heard[who] = append(heard[who], what)
			}
			sessions := map[string]*client.Session{}
			owners := []string{"ann 1", "ann 2", "bob 1"}
			both := make(chan bool)
			for _, who := range owners {
				i.identity = who[:3]
				sessions[who] = i.client(protocol.LatestLegacy, client.Options{
					Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
						<-both
						return client.Accept(map[string]string{"text": who})
					},
					OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
						switch e := e.(type) {
						case *client.LogMessage:
							hear(who, string(e.Data))
						case *client.ResourceUpdated:
							hear(who, e.URI)
						}
					},
				})
				synctest.Wait()
				failOn(t, sessions[who].SetLogLevel(t.Context(), protocol.LogInfo))
				_, err := client.Call[string](t.Context(), sessions[who], "a__keep", map[string]string{"What": who})
				failOn(t, err)
				failOn(t, sessions[who].Subscribe(t.Context(), &protocol.SubscribeParams{URI: "kept:/it"}))
			}
			pass(time.Second) // until all are told that they may have missed something before
			synctest.Wait()
			for _, who := range []string{"ann", "bob"} {
				clear(heard)
				of := i.of(who)
				if want := map[string]int{"user ann": 1, "client ann": 2, "user bob": 1, "client bob": 1}[share+" "+who]; len(of) != want {
					t.Fatalf("%s: %d servers are %s's, want %d", share, len(of), who, want)
				}
				for _, k := range of {
					k.ResourceUpdated("kept:/it")
					for s := range k.Sessions() {
						s.Log(t.Context(), &protocol.LogMessageParams{Level: protocol.LogError, Data: json.RawMessage(`"said"`)})
					}
				}
				pass(time.Second)
				synctest.Wait()
				for _, other := range owners {
					want := "[]"
					if strings.HasPrefix(other, who) {
						want = `["said" kept:/it]`
					}
					if slices.Sort(heard[other]); fmt.Sprint(heard[other]) != want {
						t.Errorf("%s: the server of %s speaks, and %s hears %s, want %s", share, who, other, heard[other], want)
					}
				}
			}
			var calls sync.WaitGroup
			for _, who := range []string{"ann 1", "bob 1"} {
				calls.Go(func() {
					if got, err := client.Call[string](t.Context(), sessions[who], "a__ask", nil); err != nil || got != who {
						t.Errorf("%s: %s is asked, and the answer is %q, %v", share, who, got, err)
					}
				})
			}
			synctest.Wait()
			close(both)
			calls.Wait()
		})
	}
}

func callKeep(t *testing.T, session *client.Session) {
	t.Helper()
	_, err := client.Call[string](t.Context(), session, "a__keep", map[string]string{"What": "x"})
	failOn(t, err)
}

// There are 32 connections at most. Who comes later gets that of a client that does not use his, or is refused without a word to the server.
//
// Guarantees: G-0095.2
func TestMostConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := isolated(t, protocol.LatestLegacy, `{"share":"client"}`, gateway.Options{})
		var calls sync.WaitGroup
		hold := func(seconds int) {
			session := i.client(protocol.LatestLegacy, patient)
			calls.Go(func() {
				if _, err := client.Call[string](t.Context(), session, "a__hold", map[string]int{"Seconds": seconds}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		hold(60)
		for range 31 {
			hold(3600)
		}
		session := i.client(protocol.LatestLegacy, client.Options{})
		result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "a__keep", Arguments: json.RawMessage(`{"What":"late"}`)})
		if err != nil || !result.IsError || !strings.Contains(string(result.Meta[gateway.MetaOutcome]), "not sent") || !strings.Contains(result.Content.Text(), "all of its 32 connections") {
			t.Errorf("the 33rd: %v, %v", result, err)
		}
		if _, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "kept:/it"}); !strings.Contains(fmt.Sprint(err), "all of its 32") {
			t.Errorf("a resource: %v", err)
		}
		if n := i.connections(); n != 32 {
			t.Errorf("%d connections", n)
		}
		pass(time.Minute + time.Second)
		if before, err := client.Call[string](t.Context(), session, "a__keep", map[string]string{"What": "late"}); err != nil || before != "" {
			t.Errorf("after another one has come free: %q, %v", before, err)
		}
		if n := i.connections(); n != 32 {
			t.Errorf("%d connections", n)
		}
		calls.Wait()
	})
}

// A connection ends with the session of its client, by the rules of the file, and for a user without a session after ten minutes; not during
// a call, and not while its client has subscribed to something.
//
// Guarantees: G-0095.3
func TestConnectionsEnd(t *testing.T) {
	start := func(t *testing.T, block, version string) (*isle, *client.Session) {
		i := isolated(t, protocol.LatestLegacy, block, gateway.Options{})
		session := i.clientOf("ann", version)
		callKeep(t, session)
		return i, session
	}
	is := func(t *testing.T, i *isle, want int) {
		t.Helper()
		if n := i.connections(); n != want {
			t.Errorf("%d connections, want %d", n, want)
		}
	}
	for name, test := range map[string]func(*testing.T){
		"session": func(t *testing.T) {
			i, session := start(t, `{"share":"client"}`, protocol.LatestLegacy)
			pass(24 * time.Hour)
			for range 40 { // more than there may be at a time
				is(t, i, 1)
				session.Close(t.Context())
				is(t, i, 0)
				session = i.clientOf("ann", protocol.LatestLegacy)
				callKeep(t, session)
			}
		},
		"session during a call": func(t *testing.T) {
			i, session := start(t, `{"share":"client"}`, protocol.LatestLegacy)
			go client.Call[string](t.Context(), session, "a__hold", map[string]int{"Seconds": 3600})
			synctest.Wait()
			session.Stop()
			pass(time.Second)
			is(t, i, 0)
		},
		"user": func(t *testing.T) {
			i, session := start(t, `{"share":"user"}`, protocol.LatestLegacy)
			session.Close(t.Context())
			pass(10*time.Minute - time.Second)
			is(t, i, 1)
			pass(time.Second)
			is(t, i, 0)
		},
		"modern": func(t *testing.T) {
			for _, share := range []string{"user", "client"} {
				i, session := start(t, `{"share":"`+share+`"}`, protocol.Latest)
				go client.Call[string](t.Context(), session, "a__hold", map[string]int{"Seconds": 3600})
				pass(time.Hour - time.Second)
				is(t, i, 1)
				pass(10 * time.Minute)
				is(t, i, 1)
				pass(time.Second)
				is(t, i, 0)
			}
		},
		"idleStop": func(t *testing.T) {
			i, session := start(t, `{"share":"user","idleStop":"1m"}`, protocol.LatestLegacy)
			failOn(t, session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "kept:/it"}))
			pass(time.Hour)
			if len(i.of("x")) != 1 {
				t.Error("it ends during a subscription")
			}
			failOn(t, session.Unsubscribe(t.Context(), &protocol.UnsubscribeParams{URI: "kept:/it"}))
			pass(time.Minute - time.Second)
			if len(i.of("x")) != 1 {
				t.Error("it ends too early")
			}
			pass(time.Second)
			if len(i.of("x")) != 0 {
				t.Error("it does not end")
			}
		},
		"maxLife": func(t *testing.T) {
			i, _ := start(t, `{"share":"user","maxLife":"1h"}`, protocol.LatestLegacy)
			pass(time.Hour - time.Second)
			is(t, i, 1)
			pass(time.Second)
			if len(i.of("x")) != 0 {
				t.Error("it does not end")
			}
		},
		"the file": func(t *testing.T) {
			i, _ := start(t, `{"share":"user"}`, protocol.LatestLegacy)
			i.apply(oneWith(t, `{"share":"user","idleStop":"1h"}`))
			is(t, i, 1)
			i.apply(oneWith(t, `{"share":"all"}`))
			is(t, i, 0)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// Who stops, restarts or changes a server does that to all of its connections; one over which a client waits for changes is started again at once.
//
// Guarantees: G-0095.5, G-0095.6
func TestActionsAreForAllConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := isolated(t, protocol.LatestLegacy, `{"share":"client"}`, gateway.Options{})
		updates := 0
		i.identity = "ann"
		ann := i.client(protocol.LatestLegacy, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if _, is := e.(*client.ResourceUpdated); is {
				updates++
			}
		}})
		bob := i.clientOf("bob", protocol.LatestLegacy)
		for _, session := range []*client.Session{ann, bob} {
			callKeep(t, session)
		}
		synctest.Wait()
		of, _ := i.Report().Server("a")
		detail, _ := i.Detail("a")
		if all := detail.Connections; of.Connections != 2 || len(all) != 2 || all[0].User != "ann" || all[1].User != "bob" || all[0].Program != "c 1" || all[1].State != admin.Ready {
			t.Errorf("%d connections are reported, and these: %+v", of.Connections, all)
		}
		failOn(t, ann.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "kept:/it"}))
		is := func(want int) {
			t.Helper()
			if n := i.connections(); n != want {
				t.Errorf("%d connections, want %d", n, want)
			}
		}
		is(2)
		failOn(t, i.Do(t.Context(), "a", admin.Restart))
		is(1)
		pass(time.Second)
		synctest.Wait()
		if updates == 0 {
			t.Error("nobody says that something may have changed meanwhile")
		}
		failOn(t, i.Do(t.Context(), "a", admin.Stop))
		is(-1)
		result, err := bob.CallTool(t.Context(), &protocol.CallToolParams{Name: "a__read"})
		if err != nil || !result.IsError || !strings.Contains(result.Content.Text(), "stopped") {
			t.Errorf("a call of a server that was stopped: %v, %v", result, err)
		}
		is(-1)
		failOn(t, i.Do(t.Context(), "a", admin.Start))
		is(1)
		_, err = client.Call[string](t.Context(), bob, "a__read", nil)
		failOn(t, err)
		is(2)
		i.apply(load(t, `{"mcpServers":{"a":{"command":"/bin/a","env":{"CHANGED":"1"},"bowline":{"share":"client"}}}}`))
		is(1)
		i.apply(load(t, `{"mcpServers":{}}`))
		is(-1)
	})
}

// A server whose name looks like that of a connection asks under its own name, also over the connection of a client.
func TestAServerThatIsCalledLikeAConnection(t *testing.T) {
	s, _ := asker()
	f := newFleetFor(t, protocol.LatestLegacy, map[string]*server.Server{"a #1": s}, gateway.Options{}, load(t, `{"mcpServers":{"a #1":{"command":"/bin/a","bowline":{"share":"client","prefix":"a"}}}}`))
	var asking []string
	o := user("me")
	sample := o.Sample
	o.Sample = func(ctx context.Context, s *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
		for _, q := range f.Report().Questions {
			asking = append(asking, q.Server)
		}
		return sample(ctx, s, p)
	}
	if got, err := client.Call[string](timeout(t), f.client(protocol.LatestLegacy, o), "a__sample", nil); err != nil || got != "me" {
		t.Errorf("%q, %v", got, err)
	}
	if !slices.Equal(asking, []string{"a #1"}) {
		t.Errorf("who asks is said to be %q", asking)
	}
}
