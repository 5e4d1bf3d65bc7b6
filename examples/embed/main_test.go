package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/transport/stdio"
)

// The test binary can also run as the MCP server, like the program itself.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-mcp-server") {
		main()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// The test runs the real demo. README.md shows the same lines.
func TestDemo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := play(ctx, &out); err != nil {
		t.Error(err)
	}
	const want = `a caller is answered:
  200 OK: enilwob
the server is killed while three callers wait:
  502 Bad Gateway: the tool may have run
  502 Bad Gateway: the tool may have run
  502 Bad Gateway: the tool may have run
a caller comes while it is away:
  503 Service Unavailable, with Retry-After: the tool did not run: try again
the session is ready again by itself, with process 2:
  200 OK: dneb
the service is closed while a caller waits:
  200 OK: teehs
closed: stopped
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", &out, want)
	}
}

// A signal ends the context, and the service then closes properly.
func TestServeUntilASignal(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	interrupt := func(said []byte) {
		if bytes.Contains(said, []byte("serving")) {
			cancel()
		}
	}
	if err := serve(ctx, "127.0.0.1:0", slog.New(slog.NewTextHandler(listener(interrupt), nil))); err != nil {
		t.Error(err)
	}
	if !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Error("the service did not start to serve")
	}
}

type listener func([]byte)

func (l listener) Write(p []byte) (int, error) { l(p); return len(p), nil }

// If the MCP server cannot be started, start fails and leaves nothing behind.
func TestStartFails(t *testing.T) {
	_, err := start(t.Context(), &stdio.Command{Path: "no-such-command-anywhere"}, "127.0.0.1:0", slog.New(slog.DiscardHandler))
	if !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
