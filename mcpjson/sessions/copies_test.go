//go:build unix

package sessions

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Copies of a session have a process each. They go on when only the session of their server ends, and end with their server, by an Apply
// that changes it, and by Close.
//
// Guarantees: G-0041.10
func TestCopies(t *testing.T) {
	s := newSet(t, Options{})
	const file, changed = `"a": $SELF{}, "b": $SELF{}`, `"a": $SELF{"env": {"SAID": "two"}}, "b": $SELF{}`
	yes := func() bool { return true }
	start := func(as string) *client.Session {
		t.Helper()
		if err := s.StartCopy(t.Context(), "a", as, yes); err != nil {
			t.Fatal(err)
		}
		session, running := s.Copy("a", as)
		if !running {
			t.Fatalf("%s does not run", as)
		}
		return session
	}
	are := func(want ...bool) {
		t.Helper()
		for i, as := range []string{"a 1", "a 2"} {
			if _, running := s.Copy("a", as); running != want[i] {
				t.Errorf("%s runs: %t", as, running)
			}
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(apply(t, s, parse(t, file), Changes{Started: []string{"a", "b"}}))
	first := start("a 1")
	start("a 2")
	if start("a 1").Conn() != first.Conn() {
		t.Error("one that runs was started again")
	}
	do(s.StopIf(t.Context(), "a", yes))
	do(apply(t, s, parse(t, file), Changes{}))
	are(true, true)
	do(s.Start(t.Context(), "a"))
	are(true, true)
	do(s.StopCopyIf(t.Context(), "a", "a 1", func() bool { return false }))
	are(true, true)
	do(s.StopCopyIf(t.Context(), "a", "a 2", yes))
	are(true, false)
	start("a 2")
	do(s.Restart(t.Context(), "a"))
	are(false, false)
	start("a 1")
	do(s.Stop(t.Context(), "a"))
	are(false, false)
	do(s.StartCopy(t.Context(), "a", "a 1", func() bool { return false }))
	are(false, false)
	do(s.Start(t.Context(), "a"))
	start("a 1")
	do(apply(t, s, parse(t, changed), Changes{Restarted: []string{"a"}}))
	are(false, false)
	start("a 1")
	do(s.StopIf(t.Context(), "a", yes)) // the session ends, and other settings come while only the copy runs
	do(apply(t, s, parse(t, file), Changes{Started: []string{"a"}}))
	are(false, false)
	start("a 1")
	do(apply(t, s, parse(t, `"b": $SELF{}`), Changes{Stopped: []string{"a"}}))
	are(false, false)
	if err := s.StartCopy(t.Context(), "a", "a 1", yes); err == nil {
		t.Error("a copy of no server")
	}
	do(apply(t, s, parse(t, file), Changes{Started: []string{"a"}}))
	start("a 1")
	do(s.StopIf(t.Context(), "a", yes)) // the session ends, and its server goes while only the copy runs
	do(apply(t, s, parse(t, `"b": $SELF{}`), Changes{}))
	are(false, false)
	do(s.StopCopyIf(t.Context(), "a", "a 1", func() bool { t.Error("asked about a copy that does not run"); return true }))
	do(apply(t, s, parse(t, file), Changes{Started: []string{"a"}}))
	start("a 1")
	do(s.Close(t.Context()))
	are(false, false)
	if err := s.StartCopy(t.Context(), "a", "a 1", yes); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A copy has what EachCopy and LoginCopy give it, or what Each and Login do where these are not set. One that has ended by itself is started again, as a session is, also if
// who wants it has given up meanwhile; an Apply only ends what is left of it. The login of each is closed once, when it ends.
//
// Guarantees: G-0041.8, G-0041.10
func TestWhatACopyIsGiven(t *testing.T) {
	for name, c := range map[string]struct {
		each, login bool
		want        []string
	}{
		"as the session":      {false, false, []string{"each", "login"}},
		"options of its own":  {true, false, []string{"options for a 1", "login"}},
		"a login of its own":  {false, true, []string{"each", "login for a 1"}},
		"both are of its own": {true, true, []string{"options for a 1", "login for a 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Bubble(t, func(t *testing.T) {
				var mu sync.Mutex
				var did []string
				note := func(what string) {
					mu.Lock()
					defer mu.Unlock()
					did = append(did, what)
				}
				var given *mcpjson.Server
				refused := error(nil)
				each := func(of *mcpjson.Server, o *client.Options, what string) {
					given, o.Conn.Log = of, slog.New(slog.DiscardHandler)
					of.Transport.(*streamable.Client).HTTP = &http.Client{Transport: nobody{}}
					note(what)
				}
				login := func(of *mcpjson.Server, what string) (Login, error) {
					if of != given {
						t.Error("the login is for another server than the options")
					}
					note(what)
					return recordedLogin{func() { note("close " + what) }}, refused
				}
				o := Options{
					Each:  func(of *mcpjson.Server, o *client.Options) { each(of, o, "each") },
					Login: func(of *mcpjson.Server) (Login, error) { return login(of, "login") },
				}
				if c.each {
					o.EachCopy = func(of *mcpjson.Server, as string, o *client.Options) { each(of, o, "options for "+as) }
				}
				if c.login {
					o.LoginCopy = func(of *mcpjson.Server, as string) (Login, error) { return login(of, "login for "+as) }
				}
				s := New(protocol.Implementation{Name: "test", Version: "1"}, o)
				step := func(what string, err error, want ...string) {
					t.Helper()
					if diff := cmp.Diff(want, did, cmpopts.EquateEmpty()); err != nil || diff != "" {
						t.Errorf("%s (-want +got):\n%s%v", what, diff, err)
					}
					did = nil
				}
				yes := func() bool { return true }
				late, giveUp := context.WithCancel(t.Context())
				giveUp()
				step("apply", apply(t, s, parse(t, `"a": {"url": "http://s/mcp"}`), Changes{Started: []string{"a"}}), "each", "login")
				session, _ := s.Session("a")
				session.Stop()
				_ = session.Wait()
				step("start the session again", s.Start(late, "a"), "close login", "each", "login")
				session, _ = s.Session("a")
				step("start", s.StartCopy(late, "a", "a 1", yes), c.want...)
				if again, _ := s.Session("a"); again.Conn() != session.Conn() {
					t.Error("the session is another one")
				}
				copied, runs := s.Copy("a", "a 1")
				if !runs || copied.Name() != "a 1" || copied.Conn() == session.Conn() {
					t.Fatal("the copy has no session of its own")
				}
				copied.Stop()
				_ = copied.Wait()
				step("start again", s.StartCopy(t.Context(), "a", "a 1", yes), append([]string{"close " + c.want[1]}, c.want...)...)
				copied, _ = s.Copy("a", "a 1")
				copied.Stop()
				_ = copied.Wait()
				step("apply the same file", apply(t, s, parse(t, `"a": {"url": "http://s/mcp"}`), Changes{}), "close "+c.want[1])
				step("start anew", s.StartCopy(t.Context(), "a", "a 1", yes), c.want...)
				step("end", s.StopCopyIf(t.Context(), "a", "a 1", yes), "close "+c.want[1])
				refused = errors.New("no login today")
				if err := s.StartCopy(t.Context(), "a", "a 1", yes); !errors.Is(err, refused) {
					t.Errorf("a copy without its login: %v", err)
				}
				if _, runs := s.Copy("a", "a 1"); runs {
					t.Error("a copy runs without its login")
				}
				step("refuse", nil, c.want...)
				refused = nil
				step("start for the end", s.StartCopy(t.Context(), "a", "a 1", yes), c.want...)
				err := s.Close(t.Context())
				slices.Sort(did) // they are closed at the same time
				step("close", err, "close login", "close "+c.want[1])
				if len(s.copies) > 0 {
					t.Errorf("after Close, there is room for copies: %v", s.copies)
				}
			})
		})
	}
}
