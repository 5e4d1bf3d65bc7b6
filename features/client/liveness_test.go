package client_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
)

// silentAfter is a server that answers what opens a session, and is silent
// from then on.
func silentAfter(method string, answer func(frame) []string) *fakeServer {
	s := &fakeServer{}
	s.answer = func(f frame) []string {
		if f.Method == method && len(s.received(method)) == 1 {
			return answer(f)
		}
		return nil
	}
	return s
}

// watching has a session ask after a silence of a second.
func watching(o client.Options) client.Options {
	o.Conn.Liveness = time.Second
	return o
}

// legacyUntilReady is silent as soon as a legacy session is open.
func legacyUntilReady() *fakeServer {
	return silentAfter(protocol.MethodInitialize, func(f frame) []string { return f.initialized(protocol.LatestLegacy, withTools) })
}

// A modern server has no ping. It is asked by server/discover, as it was asked
// first: with all that a modern request has to say of its client.
//
// Guarantees: G-0020.5, G-0025.1
func TestSilentModernServerIsAskedByDiscover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := silentAfter(protocol.MethodDiscover, func(f frame) []string { return []string{f.result(discovered)} })
		if _, err := connect(t, s, watching(client.Options{}), time.Second); err != nil {
			t.Fatal(err)
		}
		pass(1500 * time.Millisecond)
		asked := s.received(protocol.MethodDiscover)
		if len(asked) != 2 || len(s.methods()) != 2 {
			t.Fatalf("it was sent %q", s.methods())
		}
		first, probe := asked[0], asked[1]
		if metaOf(t, probe)[protocol.MetaProtocolVersion] == nil || !bytes.Equal(probe.Params, first.Params) {
			t.Errorf("it was asked with %s, and first with %s", probe.Params, first.Params)
		}
	})
}

// Guarantees: G-0025.1
func TestSilentLegacyServerIsAskedByPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := legacyUntilReady()
		openFake(t, s, watching(client.Options{}))
		pass(1500 * time.Millisecond)
		if asked := s.received(protocol.MethodPing); len(asked) != 1 || asked[0].Params != nil {
			t.Errorf("it was sent %q", s.methods())
		}
	})
}

// Sessions that share a Wheel are looked at in its turns, and not each at a
// time of its own: those that are opened within one turn of it are asked at
// once.
//
// Guarantees: G-0025.6
func TestSessionsOfAClientShareAWheel(t *testing.T) {
	for name, wheel := range map[string]*conn.Wheel{"its own": nil, "one that it was given": new(conn.Wheel)} {
		synctest.Test(t, func(t *testing.T) {
			o := watching(client.Options{ProtocolVersion: protocol.LatestLegacy})
			o.Conn.Wheel = wheel
			c := client.New(clientInfo, o)
			var servers []*fakeServer
			for range 3 {
				s := legacyUntilReady()
				servers = append(servers, s)
				t.Cleanup(s.close)
				session, err := c.Connect(t.Context(), specification.WatchClient(t, s))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { session.Close(context.Background()) })
				pass(100 * time.Millisecond)
			}
			pass(940 * time.Millisecond) // 1.24 s after the first
			for n, want := range []int{1, 0, 0} {
				if got := len(servers[n].received(protocol.MethodPing)); got != want {
					t.Errorf("%s: session %d was asked %d times before the turn", name, n, got)
				}
			}
			pass(20 * time.Millisecond)
			for n, s := range servers {
				if got := len(s.received(protocol.MethodPing)); got != 1 {
					t.Errorf("%s: session %d was asked %d times after it", name, n, got)
				}
			}
		})
	}
}
