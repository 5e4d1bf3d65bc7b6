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
	Client client.Options // the options of the client

	// Through wraps the transport of the client, for instance with fault.New, Record
	// or Log. Nil: the transport is not wrapped.
	Through func(transport.Transport) transport.Transport

	// AnyMessage allows messages that do not fit the published schemas. By default,
	// such a message fails the test, whichever side sends it.
	AnyMessage bool
}

// Connect connects a client with s in memory, and returns the session when it is ready.
// If the session does not become ready, the test fails and ends. At the end of the test,
// session and connection are closed, and an error of either fails the test. The server
// stays open, and may serve other clients.
func Connect(t testing.TB, s *server.Server, o Options) *client.Session {
	t.Helper()
	// Through may change frames: each side is checked where its own come from.
	link := o.check(t, Serve(t, s), &specification.Checker{OtherSide: true})
	if o.Through != nil {
		link = o.Through(link)
	}
	link = o.check(t, link, &specification.Checker{ThisSide: true})
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

// Eras runs f twice, in two subtests: first with a client of the newest legacy revision,
// and then with a client of the newest revision. The server must support both.
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

// Serve returns a transport that connects to s in memory. At the end of the test it waits
// until all links have ended, and fails the test if one ended with an error.
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

// Check returns a transport for a client that wraps inner and checks all messages of both
// sides. A message that does not fit the published schema of the negotiated revision
// fails the test.
func Check(t testing.TB, inner transport.Transport) transport.Transport {
	t.Helper()
	return specification.Watch(t, inner, &specification.Checker{ThisSide: true, OtherSide: true})
}

// Log returns a transport that wraps inner and writes every frame to w as readable text;
// see package transcript. Use T.Output to write to the log of the test.
func Log(w io.Writer, inner transport.Transport) transport.Transport {
	return transcript.Tap(inner, transcript.NewWriter(w, transcript.Options{Times: true}).Observe)
}
