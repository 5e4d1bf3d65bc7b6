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

// silentAfter returns a server that answers until the session is open, and nothing from
// then on.
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

// probingOptions returns options with which a session probes its server after a silence of a
// second.
func probingOptions(o client.Options) client.Options {
	o.Conn.Liveness = time.Second
	return o
}

// legacyUntilReady returns a server that is silent as soon as a legacy session is open.
func legacyUntilReady() *fakeServer {
	return silentAfter(protocol.MethodInitialize, func(f frame) []string { return f.initialized(protocol.LatestLegacy, withTools) })
}

// A silent modern server is probed with server/discover, because it has no ping. The
// request has the same _meta as the first one.
//
// Guarantees: G-0020.5, G-0025.1
func TestSilentModernServerIsProbedWithDiscover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := silentAfter(protocol.MethodDiscover, func(f frame) []string { return []string{f.result(discovered)} })
		if _, err := connect(t, s, probingOptions(client.Options{}), time.Second); err != nil {
			t.Fatal(err)
		}
		pass(1500 * time.Millisecond)
		asked := s.received(protocol.MethodDiscover)
		if len(asked) != 2 || len(s.methods()) != 2 {
			t.Fatalf("the server got %q, want len(asked) == 2 and len(s.methods()) == 2", s.methods())
		}
		first, probe := asked[0], asked[1]
		if metaOf(t, probe)[protocol.MetaProtocolVersion] == nil || !bytes.Equal(probe.Params, first.Params) {
			t.Errorf("got the probe %s, want the params of the first request, %s", probe.Params, first.Params)
		}
	})
}

// A silent legacy server is probed with ping.
//
// Guarantees: G-0025.1
func TestSilentLegacyServerIsProbedWithPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := legacyUntilReady()
		openFake(t, s, probingOptions(client.Options{}))
		pass(1500 * time.Millisecond)
		if asked := s.received(protocol.MethodPing); len(asked) != 1 || asked[0].Params != nil {
			t.Errorf("the server got %q, want len(asked) == 1 and asked[0].Params == nil", s.methods())
		}
	})
}

// Sessions that share a Wheel are checked at its ticks, so those that were opened
// within one tick are probed at the same time.
//
// Guarantees: G-0025.6
func TestSessionsOfAClientShareAWheel(t *testing.T) {
	for name, wheel := range map[string]*conn.Wheel{"its own": nil, "one that it was given": new(conn.Wheel)} {
		synctest.Test(t, func(t *testing.T) {
			o := probingOptions(client.Options{ProtocolVersion: protocol.LatestLegacy})
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
			pass(940 * time.Millisecond) // 1.24 s after the first one
			for n, want := range []int{1, 0, 0} {
				if got := len(servers[n].received(protocol.MethodPing)); got != want {
					t.Errorf("%s: session %d got %d probes before the tick, want %d", name, n, got, want)
				}
			}
			pass(20 * time.Millisecond)
			for n, s := range servers {
				if got := len(s.received(protocol.MethodPing)); got != 1 {
					t.Errorf("%s: session %d got %d probes after the tick, want 1", name, n, got)
				}
			}
		})
	}
}
