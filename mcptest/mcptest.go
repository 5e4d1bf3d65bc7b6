// Package mcptest tests MCP servers and clients. It connects a server with a client in
// memory, in any revision, and closes both at the end of the test. It checks every message
// of both sides against the published schemas. It also records conversations as files, and
// can play a recorded peer.
//
//	func TestOrder(t *testing.T) {
//		mcptest.Eras(t, newServer(), mcptest.Options{}, func(t *testing.T, session *client.Session) {
//			got, err := client.Call[string](t.Context(), session, "order", nil)
//			if err != nil || got != "order 1" {
//				t.Errorf("got %q, %v", got, err)
//			}
//		})
//	}
//
// Eras runs a test twice: with a client of 2025-11-25, and with one of 2026-07-28. No test
// needs a network or a process. Inside testing/synctest time is virtual, so that tests of
// timeouts take no time.
//
// Import this package only in tests. docs/guide/testing.md is a guide to it.
package mcptest

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

// Options configure Connect. The zero value of each field means its default.
type Options struct {
	Client client.Options // of the client

	// Through wraps the transport of the client, for instance with fault.New, Record
	// or Log. Nil: nothing.
	Through func(transport.Transport) transport.Transport

	// AnyMessage allows messages that do not fit the published schemas. Otherwise
	// each of them fails the test, whichever side sends it.
	AnyMessage bool
}

// Connect connects a client with s in memory, and returns its session when it is
// ready. If it cannot be, the test ends. Session and connection are closed when the
// test is over, and what does not end in good order fails the test; s is left open,
// and may serve others.
func Connect(t testing.TB, s *server.Server, o Options) *client.Session {
	t.Helper()
	// Through may change frames: each side is checked where its own come from.
	link := o.check(t, Serve(t, s), &specification.Checker{Theirs: true})
	if o.Through != nil {
		link = o.Through(link)
	}
	link = o.check(t, link, &specification.Checker{Ours: true})
	session, err := client.New(protocol.Implementation{Name: "mcptest", Version: "1"}, o.Client).Connect(t.Context(), link)
	if err != nil {
		t.Fatalf("mcptest: %v", err)
	}
	t.Cleanup(func() {
		if err := session.Close(context.Background()); err != nil {
			t.Errorf("mcptest: the session: %v", err)
		}
	})
	return session
}

func (o *Options) check(t testing.TB, inner transport.Transport, c *specification.Checker) transport.Transport {
	if o.AnyMessage {
		return inner
	}
	return specification.Watch(t, inner, c)
}

// Eras runs f twice, each time in a subtest and with a client of its own: one that
// speaks the newest legacy revision, and one that speaks the newest revision. s has
// to serve both.
func Eras(t *testing.T, s *server.Server, o Options, f func(*testing.T, *client.Session)) {
	t.Helper()
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		t.Run(version, func(t *testing.T) {
			o := o
			o.Client.ProtocolVersion = version
			session := Connect(t, s, o)
			if spoken := session.Server().ProtocolVersion; spoken != version {
				t.Fatalf("mcptest: the server speaks %s", spoken)
			}
			f(t, session)
		})
	}
}

// Serve returns a transport in memory whose links are served by s. At the end of the
// test it waits until all of them are over, and fails the test if one does not end
// in good order.
func Serve(t testing.TB, s *server.Server) transport.Transport {
	t.Helper()
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	return inmem.New(func(link transport.Link) {
		serving.Go(func() {
			if err := s.ServeLink(context.Background(), link); err != nil {
				t.Errorf("mcptest: the server: %v", err)
			}
		})
	}, inmem.Options{})
}

// Check returns a transport for a client that passes everything on to inner. Each
// message, of either side, that does not fit the published schema of the revision in
// force fails the test.
func Check(t testing.TB, inner transport.Transport) transport.Transport {
	t.Helper()
	return specification.Watch(t, inner, &specification.Checker{Ours: true, Theirs: true})
}

// Log returns a transport that passes everything on to inner, and writes every frame
// to w as people read it: see package transcript. T.Output is such a writer.
func Log(w io.Writer, inner transport.Transport) transport.Transport {
	return transcript.Tap(inner, transcript.NewWriter(w, transcript.Options{Times: true}).Observe)
}
