package server_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

func TestSessionKnowsItsPeer(t *testing.T) {
	s := newServer(server.Options{Instructions: "ask nicely"})
	server.AddTool(s, protocol.Tool{Name: "t", InputSchema: anyObject}, func(ctx context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
		text := server.RequestFrom(ctx).Client.Info.Name + " " + server.RequestFrom(ctx).Client.ProtocolVersion
		return &protocol.CallToolResult{Content: protocol.Contents{&protocol.TextContent{Text: text}}}, nil
	})
	w := dial(t, s)
	w.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2031-01-01","capabilities":{},"clientInfo":{"name":"raw","version":"0"}}}`)
	w.want(`"instructions":"ask nicely"`, `"tools":{"listChanged":true}`, `"protocolVersion":"2025-11-25"`)
	if got := w.call("t", `{}`).Result.Content.Text(); got != "raw 2025-11-25" {
		t.Errorf("got %q, want %q", got, "raw 2025-11-25")
	}
}

func TestInitializeNamesARevision(t *testing.T) {
	w := dial(t, newServer(server.Options{}))
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize"}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":""}}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":null}}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`,
	} {
		w.send(frame)
		w.want(`"id":1`, `-32602`, `protocolVersion`)
	}
	w.initialize(protocol.Version20241105) // the refused requests have not begun a session
	s := newServer(server.Options{})
	w = dial(t, s)
	w.send(strings.Replace(initializeFrame, "VERSION", "2099-01-01", 1))
	w.want(`"protocolVersion":"` + protocol.LatestLegacy + `"`)
	if got := sessionOf(s).Client().ProtocolVersion; got != protocol.LatestLegacy {
		t.Errorf("the client of the session speaks %s, want what was negotiated", got)
	}
}

// A second initialize is refused, and the session continues unchanged.
func TestSecondInitializeIsRefused(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t", InputSchema: anyObject}, func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error) {
		return &protocol.CallToolResult{}, nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20250618)
	first := sessionOf(s)
	w.send(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1))
	w.want(`-32600`, `initialized already`)
	if got := sessionOf(s); got != first || got.Client().ProtocolVersion != protocol.Version20250618 {
		t.Errorf("the session is another one, of %s", got.Client().ProtocolVersion)
	}
	w.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	w.want(`"id":2`, `"result":`)
}

func TestNewRefusesRevisionsItDoesNotKnow(t *testing.T) {
	for _, version := range []string{"2026-07-29", "1999-01-01", ""} {
		wantPanic(t, version, "ProtocolVersions", func() {
			newServer(server.Options{ProtocolVersions: []string{protocol.Version20250618, version}})
		})
	}
}

func TestRevisionsAreTheProgramsChoice(t *testing.T) {
	versions := []string{protocol.Version20250326}
	s := newServer(server.Options{ProtocolVersions: versions})
	versions[0] = "changed later"
	w := dial(t, s)
	w.send(initializeFrame)
	w.want(`"protocolVersion":"2025-03-26"`)
}

// failingTransport is a transport that cannot be opened.
type failingTransport struct {
	transport.Transport
	err error
}

func (u failingTransport) Open(context.Context) (transport.Link, error) { return nil, u.err }

func TestServeReturnsTheErrorOfOpen(t *testing.T) {
	busy := errors.New("busy")
	if err := newServer(server.Options{}).Serve(t.Context(), failingTransport{err: busy}); !errors.Is(err, busy) {
		t.Errorf("got %v, want %v", err, busy)
	}
}
