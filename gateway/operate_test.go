package gateway_test

import (
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
	"github.com/bowline-mcp/bowline/transport"
)

// A person stops, starts, restarts and wakes one server. The file does not start one that was stopped, and the other server
// does not notice.
//
// Guarantees: G-0088.9
func TestDoActsOnOneServer(t *testing.T) {
	f := newFleet(t, protocol.Latest, two())
	session := f.client(protocol.Latest, client.Options{})
	said := ""
	isError := func() bool {
		result, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__who"})
		failOn(t, err)
		said = result.Content.Text()
		return result.IsError
	}
	do := func(action admin.Action) {
		t.Helper()
		failOn(t, f.Do(timeout(t), "a", action))
	}
	f.await("a", admin.Ready)
	f.await("b", admin.Ready)
	if isError() { // it waits until the tools of a are known: one that is stopped before that has none
		t.Fatal("a server that is ready has not answered")
	}
	other, _ := f.Report().Server("b")
	do(admin.Stop)
	f.apply(fileOf(t, "a", "b"))
	f.await("a", admin.Stopped)
	if err := f.Do(timeout(t), "a", admin.Wake); err == nil {
		t.Error("a server that is stopped was woken")
	}
	if !isError() || !strings.Contains(said, `is away: it was stopped`) {
		t.Errorf("a server that is stopped has answered %q", said)
	}
	do(admin.Start)
	f.await("a", admin.Ready)
	started, _ := f.Report().Server("a")
	do(admin.Start)
	if now, _ := f.Report().Server("a"); now.Since != started.Since {
		t.Error("to start it twice started it again")
	}
	do(admin.Restart)
	f.await("a", admin.Ready)
	if now, _ := f.Report().Server("a"); now.Since == started.Since || isError() {
		t.Errorf("it was not restarted: %+v", now)
	}
	f.kill("a", true)
	f.await("a", admin.Backoff) // for an hour
	do(admin.Wake)
	f.await("a", admin.Ready)
	if now, _ := f.Report().Server("b"); now.Since != other.Since {
		t.Errorf("the other server: %+v, was %+v", now, other)
	}
	if err := f.Do(timeout(t), "c", admin.Stop); !errors.Is(err, admin.ErrNoServer) {
		t.Errorf("a server that is not there: %v", err)
	}
}

// A node is prepared for a server that is moved to it: it starts the server if that sleeps, and tries again at once if that is away. It says why it cannot run the server, and records where that went.
func TestANodeIsPreparedForAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(recorder)
		o := gateway.Options{Audit: r.write, Exclusive: func(_ string, own transport.Transport) transport.Transport { return own }}
		f := newFleetFor(t, protocol.LatestLegacy, two(), o, load(t, `{"mcpServers":{"a":{"command":"/bin/a","bowline":{"instances":"one","start":"demand","idleStop":"1m"}},"b":{"command":"/bin/b"}}}`))
		prepare := func(name string, want string) {
			t.Helper()
			if err := f.PrepareMove(t.Context(), name); fmt.Sprint(err) != want {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
		}
		prepare("b", `each node runs its own "b": only a server whose entry says "instances": "one" can be moved`)
		prepare("c", `no such server: the file has no "c"`)
		pass(time.Minute)
		f.is("a", admin.Stopped, true)
		prepare("a", "<nil>")
		f.is("a", admin.Ready, false)
		f.kill("a", true)
		synctest.Wait()
		f.is("a", admin.Backoff, false)
		prepare("a", "<nil>")
		f.is("a", admin.Ready, false)
		failOn(t, f.Do(t.Context(), "a", admin.Stop))
		prepare("a", `"a" is stopped at that node: start it there first`)
		changed := f.Changed()
		f.Moved(t.Context(), "a", "node-2", nil)
		<-changed
		f.Moved(t.Context(), "a", "node-3", errors.New("it does not answer"))
		var moves []string
		for _, record := range r.records() {
			if record.Event == "move" {
				moves = append(moves, strings.Join([]string{record.Principal, record.Server, record.Name, record.Outcome, record.Reason}, " "))
			}
		}
		if want := []string{"admin a node-2  ", "admin a node-3 failed it does not answer"}; !slices.Equal(moves, want) {
			t.Errorf("the moves are %q, want %q", moves, want)
		}
	})
	f := newFleetFor(t, protocol.LatestLegacy, two(), gateway.Options{}, load(t, `{"mcpServers":{"a":{"command":"/bin/a","bowline":{"instances":"one"}}}}`))
	if err := f.PrepareMove(t.Context(), "a"); err == nil || !strings.HasPrefix(err.Error(), "each node runs its own") {
		t.Errorf("a gateway that is the only one: %v", err)
	}
}

// Whoever looks is told of calls, of clients and of a file. States are in other tests, which wait for them in the same way.
//
// Guarantees: G-0088.10
func TestChangesAreSeen(t *testing.T) {
	f := newFleet(t, protocol.Latest, two())
	seen := func(what string, is func(admin.Report) bool) {
		t.Helper()
		for ctx := timeout(t); ; {
			changed := f.Changed()
			if is(f.Report()) {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("%s is not seen: %+v", what, f.Report())
			}
		}
	}
	f.await("a", admin.Ready)
	f.await("b", admin.Ready)
	seen("a list", func(r admin.Report) bool { return r.Servers[0].Tools == 1 && r.Servers[1].Resources > 0 })
	before := f.Changed()
	session := f.client(protocol.LatestLegacy, client.Options{})
	seen("a client", func(r admin.Report) bool {
		return len(r.Clients) == 1 && r.Clients[0] == admin.ClientReport{Program: "c 1", Revision: protocol.LatestLegacy}
	})
	<-before
	before = f.Changed()
	_, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__who"})
	failOn(t, err)
	<-before
	failOn(t, session.Close(timeout(t)))
	seen("the end of a client", func(r admin.Report) bool { return len(r.Clients) == 0 })
	f.apply(fileOf(t, "b"))
	seen("a file", func(r admin.Report) bool { return len(r.Servers) == 1 && r.Ready && r.File != "" })
	before = f.Changed()
	f.NotApplied(errors.New("line 1: no\nline 2: no"))
	<-before
	if got := f.Report().Mistakes; !slices.Equal(got, []string{"line 1: no", "line 2: no"}) {
		t.Errorf("the mistakes are %q", got)
	}
}

// Of each client with a session it is said who has logged in, from the first request on: the name, if the login has one, and who it is.
//
// Guarantees: G-0097.10
func TestTheReportSaysWhoseASessionIs(t *testing.T) {
	f := newFleetFor(t, protocol.Latest, two(), gateway.Options{}, load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},
		"bowline":{"auth":{"issuers":[{"url":"https://a.example"}],"name":"email"}}}`))
	for _, c := range []struct {
		identity string
		claims   claims
	}{
		{"iss 1", claims{"email": {"ada@a.example", "another@a.example"}}}, {"iss 2", claims{"groups": {"dev"}}}, {},
		{"iss 3", claims{"email": {strings.Repeat("b", 128)}}}, {"iss 4", claims{"email": {strings.Repeat("c", 127) + "éé"}}},
	} {
		f.identity, f.principal = c.identity, c.claims
		toolNames(t, f.client(protocol.LatestLegacy, client.Options{}))
	}
	var users []string
	for _, c := range f.Report().Clients {
		users = append(users, c.User)
	}
	slices.Sort(users)
	if want := []string{"", "ada@a.example (iss 1)", strings.Repeat("b", 128) + " (iss 3)", strings.Repeat("c", 127) + "… (iss 4)", "iss 2"}; !slices.Equal(users, want) {
		t.Errorf("the users are %q, want %q", users, want)
	}
}

// A user's connection keeps the name that one login of the user had, although another login has none.
func TestALoginWithoutANameHidesNone(t *testing.T) {
	f := newFleetFor(t, protocol.Latest, map[string]*server.Server{"a": named("a")}, gateway.Options{}, load(t, `{"mcpServers":{"a":{"command":"/bin/a","bowline":{"share":"user"}}},
		"bowline":{"auth":{"issuers":[{"url":"https://a.example"}],"name":"email"}}}`))
	f.identity = "iss 1"
	for _, c := range []claims{{"email": {"ada@a.example"}}, {"groups": {"dev"}}} {
		f.principal = c
		callWho(t, f.client(protocol.LatestLegacy, patient), "a")
	}
	of, _ := f.Detail("a")
	if len(of.Connections) != 1 || of.Connections[0].Name != "ada@a.example" {
		t.Errorf("the connections are %+v", of.Connections)
	}
}
