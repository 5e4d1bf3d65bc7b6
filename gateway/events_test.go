package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Progress comes to the client that has asked for it, in order, under its own token.
//
// Guarantees: G-0088.6
func TestProgressOfACall(t *testing.T) {
	eras(t, func(t *testing.T, front, back string) {
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
		next := make(chan struct{})
		server.AddTool(s, protocol.Tool{Name: "work"}, func(ctx context.Context, _ struct{}) (string, error) {
			for i := range 3 {
				server.Progress(ctx, i+1, 3, "step")
				<-next // so that none replaces another
			}
			return "done", nil
		})
		session := newFleet(t, back, map[string]*server.Server{"a": s}).client(front, client.Options{})
		var got []float64
		view := session.With(client.CallOptions{OnProgress: func(p *protocol.ProgressParams) {
			got = append(got, p.Progress)
			next <- struct{}{}
		}})
		if text, err := client.Call[string](timeout(t), view, "a__work", nil); err != nil || text != "done" {
			t.Fatalf("%q, %v", text, err)
		}
		if !slices.Equal(got, []float64{1, 2, 3}) {
			t.Errorf("got %v", got)
		}
	})
}

// An error of a server comes to the client as it is.
//
// Guarantees: G-0088.6
func TestErrorsPassUnchanged(t *testing.T) {
	eras(t, func(t *testing.T, front, back string) {
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
		server.AddTool(s, protocol.Tool{Name: "fail"}, func(context.Context, struct{}) (string, error) {
			return "", &jsonrpc.Error{Code: -32099, Message: "own", Data: []byte(`{"a":[1]}`)}
		})
		session := newFleet(t, back, map[string]*server.Server{"a": s}).client(front, client.Options{})
		_, err := client.Call[string](timeout(t), session, "a__fail", nil)
		var fault *jsonrpc.Error
		if !errors.As(err, &fault) || fault.Code != -32099 || fault.Message != "own" || string(fault.Data) != `{"a":[1]}` {
			t.Errorf("got %v", err)
		}
	})
}

// The error for a resource that nobody has names the resource, with the code of the client's revision.
func TestResourcesThatNobodyHas(t *testing.T) {
	const uri = "nowhere:/x"
	eras(t, func(t *testing.T, front, back string) {
		f := newFleet(t, back, two())
		_, err := f.client(front, client.Options{}).ReadResource(timeout(t), &protocol.ReadResourceParams{URI: uri})
		var fault *jsonrpc.Error
		want := int64(protocol.CodeResourceNotFound)
		if protocol.IsModern(front) {
			want = jsonrpc.CodeInvalidParams
		}
		if !errors.As(err, &fault) || fault.Code != want || !strings.Contains(fault.Message, uri) || string(fault.Data) != `{"uri":"`+uri+`"}` {
			t.Errorf("got %v, want the error %d that names %s", err, want, uri)
		}
	})
}

// A change of a server's list is announced once, and the list is the new one then.
//
// Guarantees: G-0088.7
func TestChangedListsAreAnnouncedOnce(t *testing.T) {
	eras(t, func(t *testing.T, front, back string) {
		synctest.Test(t, func(t *testing.T) {
			servers := two()
			f := newFleet(t, back, servers)
			told := 0
			session := f.client(front, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
				if _, ok := e.(*client.ToolsChanged); ok {
					told++
				}
			}})
			toolNames(t, session)
			<-time.After(5 * time.Second)
			synctest.Wait()
			told = 0
			for _, name := range []string{"x", "y", "z"} {
				server.AddTool(servers["a"], protocol.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
				server.AddTool(servers["b"], protocol.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
				<-time.After(50 * time.Millisecond) // less than the quiet that an announcement waits for
			}
			<-time.After(5 * time.Second)
			synctest.Wait()
			if names := strings.Join(toolNames(t, session), " "); told != 1 || names != "a__who a__x a__y a__z b__who b__x b__y b__z" {
				t.Errorf("told %d times of %s", told, names)
			}
		})
	})
}

// Lists that never stop to change are announced all the same.
//
// Guarantees: G-0088.7
func TestListsThatChangeAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := two()
		f := newFleet(t, protocol.Latest, servers)
		var told atomic.Int64
		session := f.client(protocol.Latest, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if _, ok := e.(*client.ToolsChanged); ok {
				told.Add(1)
			}
		}})
		toolNames(t, session)
		<-time.NewTimer(5 * time.Second).C
		synctest.Wait()
		told.Store(0)
		for i := range 100 {
			server.AddTool(servers[[]string{"a", "b"}[i%2]], protocol.Tool{Name: fmt.Sprint("t", i)}, func(context.Context, struct{}) (string, error) { return "", nil })
			<-time.NewTimer(50 * time.Millisecond).C
		}
		if n := told.Load(); n < 3 || n > 6 {
			t.Errorf("told %d times in 5 s", n)
		}
	})
}

// A subscriber is told of updates, also after the connection with the server was lost, until it unsubscribes.
//
// Guarantees: G-0088.7
func TestUpdatesOfResources(t *testing.T) {
	for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, back := range []string{protocol.LatestLegacy, protocol.Latest} {
			t.Run(front+" to "+back, func(t *testing.T) {
				servers := two()
				f := newFleet(t, back, servers)
				updates := make(chan string, 16)
				session := f.client(front, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
					if updated, ok := e.(*client.ResourceUpdated); ok {
						updates <- updated.URI
					}
				}})
				ctx := timeout(t)
				failOn(t, session.Subscribe(ctx, &protocol.SubscribeParams{URI: "a:/one"}))
				await := func(what string) {
					t.Helper()
					select {
					case uri := <-updates:
						if uri != "a:/one" {
							t.Errorf("%s: told of %s", what, uri)
						}
					case <-ctx.Done():
						t.Fatalf("%s: not told", what)
					}
				}
				servers["a"].ResourceUpdated("a:/one")
				await("an update")
				f.kill("a", true)
				if _, err := client.Call[string](ctx, session, "a__who", nil); err != nil {
					t.Fatal(err)
				}
				await("a gap")
				failOn(t, f.Do(ctx, "a", admin.Restart))
				f.await("a", admin.Ready)
				await("a restart")
				for subscribed := false; !subscribed; { // at the new session, in its own time
					servers["a"].ResourceUpdated("a:/one")
					select {
					case <-updates:
						subscribed = true
					case <-time.NewTimer(20 * time.Millisecond).C:
					case <-ctx.Done():
						t.Fatal("an update after a restart: not told")
					}
				}
				if err := session.Subscribe(ctx, &protocol.SubscribeParams{URI: "c:/none"}); err == nil && protocol.IsLegacy(front) {
					t.Error("a resource that nobody has can be subscribed to")
				}
				failOn(t, session.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: "a:/one"}))
			})
		}
	}
}

// Applying a file again leaves the servers alone that have not changed, and stops those that are gone, with their tools.
//
// Guarantees: G-0088.4
func TestApplyTouchesOnlyWhatHasChanged(t *testing.T) {
	f := newFleet(t, protocol.Latest, two())
	session := f.client(protocol.Latest, client.Options{})
	toolNames(t, session)
	before := f.Report().Servers[0]
	_, err := f.Apply(t.Context(), load(t, `{"mcpServers":{"a":{"command":"/bin/a"}},"bowline":{"maxName":1}}`))
	if wrong := (*gateway.ConfigError)(nil); !errors.As(err, &wrong) {
		t.Errorf("a file with a mistake at the top: %v", err)
	}
	if names := toolNames(t, session); !slices.Equal(names, []string{"a__who", "b__who"}) {
		t.Errorf("after a file with a mistake at the top: %q", names)
	}
	f.apply(fileOf(t, "a"))
	if names := toolNames(t, session); !slices.Equal(names, []string{"a__who"}) {
		t.Errorf("after the end of b: %q", names)
	}
	if now := f.Report(); len(now.Servers) != 1 || now.Servers[0].Restarts != before.Restarts || now.Servers[0].Since != before.Since {
		t.Errorf("a was started again: %v", now.Servers)
	}
}

// A server with a mistake does not keep the others from being served. If it was served before, it goes on as it was.
//
// Guarantees: G-0088.4
func TestMistakesOfServers(t *testing.T) {
	f := newFleet(t, protocol.Latest, two())
	session := f.client(protocol.Latest, client.Options{})
	toolNames(t, session)
	for _, c := range []struct {
		file     string
		want     []string // tools
		mistakes map[string]string
	}{
		{ // a new one
			`{"mcpServers":{"a":{"command":"/bin/a"},"c":{"command":"${NOT_SET_AT_ALL}"}}}`,
			[]string{"a__who"}, map[string]string{"c": ":1:"},
		},
		{ // one that runs
			`{"mcpServers":{"a":{"command":"${NOT_SET_AT_ALL}"},"b":{"command":"/bin/b"}}}`,
			[]string{"a__who", "b__who"}, map[string]string{"a": "NOT_SET_AT_ALL"},
		},
		{ // what only a gateway finds wrong
			`{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b","bowline":{"prefix":"a"}},"c__d":{"command":"/bin/c"}}}`,
			[]string{"a__who", "b__who"}, map[string]string{"b": "same names", "c__d": "__"},
		},
		{
			`{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b","bowline":{"idleStop":"5ms"}}}}`,
			[]string{"a__who", "b__who"}, map[string]string{"b": "below 1s"},
		},
		{`{"mcpServers":{"b":{"command":"/bin/b"}}}`, []string{"b__who"}, nil},
	} {
		file := load(t, c.file)
		_, err := f.Apply(t.Context(), file)
		for _, s := range f.Report().Servers {
			if want := c.mistakes[s.Name]; !strings.Contains(s.Mistake, want) || (s.Mistake == "") != (want == "") || want != "" && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s has the mistake %q, want %q; Apply returned %v", c.file, s.Name, s.Mistake, want, err)
			}
		}
		if want := c.mistakes["c"]; want != "" {
			for range 2 { // a person who asks again hears the same
				if err := f.Do(timeout(t), "c", admin.Start); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: to start c: %v", c.file, err)
				}
			}
		}
		if (f.Check(file) == nil) != (len(c.mistakes) == 0) || (err == nil) != (len(c.mistakes) == 0) {
			t.Errorf("%s: Check: %v, Apply: %v", c.file, f.Check(file), err)
		}
		if got := toolNames(t, session); !slices.Equal(got, c.want) {
			t.Errorf("%s\noffers %q, want %q", c.file, got, c.want)
		}
	}
}

// The error of a file has each of its mistakes, in a line of its own, and as an error that can be looked for.
//
// Guarantees: G-0088.8
func TestTheErrorOfAFileHasAllMistakes(t *testing.T) {
	g := gateway.New(gateway.Options{})
	defer g.Close(t.Context())
	for _, text := range []string{
		`{"mcpServers":{"a":{"command":"${NOT_SET_AT_ALL}"},"b":{"command":"/bin/b"},"c":{"command":"${NOR_THIS}"}}}`,
		`{"mcpServers":{"a":{"command":"${NOT_SET_AT_ALL}"},"b":{"command":"/bin/b"},"c":{"command":"${NOR_THIS}"}},"bowline":{"maxName":1}}`,
	} {
		err := g.Check(load(t, text))
		var all *gateway.ConfigError
		if !errors.As(err, &all) || !strings.HasSuffix(all.Path, "mcp.json") || !slices.Equal(all.Unwrap(), all.Mistakes) || err.Error() != errors.Join(all.Mistakes...).Error() {
			t.Fatalf("%s: %v", text, err)
		}
		for _, want := range []string{"NOT_SET_AT_ALL", "NOR_THIS", "maxName"} {
			if strings.Contains(err.Error(), want) != strings.Contains(text, want) {
				t.Errorf("%s: %v", text, err)
			}
		}
		if n := strings.Count(err.Error(), "\n") + 1; n != 2 && !strings.Contains(text, "maxName") || n != 3 && strings.Contains(text, "maxName") {
			t.Errorf("%d lines: %v", n, err)
		}
	}
}

// The file says what is offered, under which names, and which roots a server gets outside of calls.
//
// Guarantees: G-0088.8
func TestWhatTheFileSaysOfServers(t *testing.T) {
	servers := two()
	server.AddTool(servers["a"], protocol.Tool{Name: "secret"}, func(context.Context, struct{}) (string, error) { return "", nil })
	f := newFleet(t, protocol.LatestLegacy, servers)
	f.apply(load(t, `{"mcpServers":{
		"a":{"command":"/bin/a","bowline":{"prefix":"first","tools":{"deny":["sec*"]},"prompts":{"allow":[]},"roots":["file:///own"]}},
		"b":{"command":"/bin/b","bowline":{"prefix":""}}},
		"bowline":{"roots":["file:///all"]}}`))
	session := f.client(protocol.Latest, client.Options{})
	if names := toolNames(t, session); !slices.Equal(names, []string{"first__who", "who"}) {
		t.Errorf("got %q", names)
	}
	var prompts []string
	for prompt, err := range session.Prompts(timeout(t)) {
		failOn(t, err)
		prompts = append(prompts, prompt.Name)
	}
	if !slices.Equal(prompts, []string{"greet"}) {
		t.Errorf("got the prompts %q", prompts)
	}
	_, err := client.Call[string](timeout(t), session, "first__secret", nil)
	if fault := (*jsonrpc.Error)(nil); !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInvalidParams {
		t.Errorf("a tool that is not offered: %v", err)
	}
}

// Outside of calls a server gets the roots that the file has for it, or else those for all servers.
//
// Guarantees: G-0088.8
func TestRootsOfTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := two()
		servers["c"] = named("c")
		f := newFleet(t, protocol.LatestLegacy, servers)
		f.apply(load(t, `{"mcpServers":{
			"a":{"command":"/bin/a","bowline":{"roots":["file:///own"]}},
			"c":{"command":"/bin/c","bowline":{"roots":[]}},
			"b":{"command":"/bin/b"}},
			"bowline":{"roots":["file:///all"]}}`))
		synctest.Wait()
		for name, want := range map[string]string{"a": "[{file:///own ", "b": "[{file:///all ", "c": "[]"} {
			sessions := 0
			for session := range servers[name].Sessions() {
				roots, err := session.Roots(timeout(t))
				if sessions++; err != nil || len(roots) > 1 || !strings.HasPrefix(fmt.Sprint(roots), want) {
					t.Errorf("%s has the roots %v, %v, want %s", name, roots, err, want)
				}
			}
			if sessions != 1 {
				t.Errorf("%s has %d sessions, want one", name, sessions)
			}
		}
	})
}

// The file may call a tool something else, and describe it. The server gets its own name.
//
// Guarantees: G-0088.8
func TestRenamedTools(t *testing.T) {
	eras(t, func(t *testing.T, front, back string) {
		servers := two()
		server.AddTool(servers["b"], protocol.Tool{Name: "described", Description: "by itself"}, func(context.Context, struct{}) (string, error) { return "here", nil })
		f := newFleet(t, back, servers)
		f.apply(load(t, `{"mcpServers":{
			"a":{"command":"/bin/a","bowline":{"tools":{"rename":{"who":"whoami"},"describe":{"who":"says \"who\""}}}},
			"b":{"command":"/bin/b","bowline":{"tools":{"rename":{"who":"described"},"describe":{"described":"by the file","none":"x"}}}}}}`))
		session := f.client(front, client.Options{})
		got := map[string]string{}
		for tool, err := range session.Tools(timeout(t)) {
			failOn(t, err)
			got[tool.Name] = tool.Description
		}
		if want := map[string]string{"a__whoami": `says "who"`, "b__described": "by the file"}; !maps.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		for name, want := range map[string]string{"a__whoami": "a and me", "b__described": ""} {
			text, err := client.Call[string](timeout(t), session, name, map[string]string{"you": "me"})
			if want != "" && (err != nil || text != want) {
				t.Errorf("%s: got %q, %v", name, text, err)
			}
		}
		if _, err := client.Call[string](timeout(t), session, "a__who", nil); err == nil {
			t.Error("the tool can be called by its own name, too")
		}
	})
}

// The session of a client hears of the resources that its user may see as the login has said at the last subscription.
//
// Guarantees: G-0098.19
func TestASubscriberWhoseLoginChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := two()
		f := newFleetFor(t, protocol.Latest, all, gateway.Options{}, load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},
			"bowline":{"policy":[{"who":"group:first","allow":["a/*"]},{"who":"group:then","allow":["b/*"]}]}}`))
		var told []string
		f.identity, f.principal = "token ada", claims{"groups": {"first"}}
		session := f.client(protocol.LatestLegacy, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if e, is := e.(*client.ResourceUpdated); is {
				told = append(told, e.URI)
			}
		}})
		for i, group := range []string{"first", "then"} {
			synctest.Wait()
			f.who.Principal = claims{"groups": {group}}
			own := []string{"a:/one", "b:/one"}[i]
			failOn(t, session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: own}))
			told = nil
			for _, name := range []string{"a", "b"} {
				all[name].ResourceUpdated(name + ":/one")
				pass(time.Second)
				synctest.Wait()
			}
			if !slices.Equal(told, []string{own}) {
				t.Errorf("in the group %s it is told of %q", group, told)
			}
		}
	})
}
