//go:build npm && unix

package peers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
)

// silence is how long a peer must have answered no call. What docs/guide/up.md says was run with -args -silence 38s.
var silence = flag.Duration("silence", 2*time.Second, "how long a proxy has to come back")

// TestSupervisionBesideAProxy kills the server behind `bowline up` and the one behind npm's mcp-proxy. Behind the first, calls are answered
// again and no list becomes shorter; the other answers none for as long as we wait.
//
// Guarantees: G-0088.2, G-0088.3
func TestSupervisionBesideAProxy(t *testing.T) {
	if guide, err := os.ReadFile("../docs/guide/up.md"); err != nil || !strings.Contains(string(guide), mcpProxy.version) || !strings.Contains(string(guide), everything.version) {
		t.Errorf("docs/guide/up.md is of other versions than %s and %s: %v", mcpProxy.title(), everything.title(), err)
	}
	built := programs(t)
	t.Run("bowline up", func(t *testing.T) {
		command, pid := killable(t)
		gateway := gatewayOver(t, built.Bowline, []fronted{{name: "everything", command: command}})
		b := behind{t, Endpoint{URL: gateway.url}, "everything__echo"}
		b.await(hangGuard)
		before := b.tools()
		if err := syscall.Kill(pid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if after := b.tools(); !slices.Equal(before, after) {
			t.Errorf("the tools are %q after the kill, and were %q", after, before)
		}
		took, began := b.await(hangGuard), time.Now()
		direct, err := connectBowline(schemaContext(t), Endpoint{Command: command}, protocol.LatestLegacy)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("answered %v after the kill; a client that starts the server itself needs %v", took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		if err := direct.Close(schemaContext(t)); err != nil {
			t.Error(err)
		}
	})
	t.Run(mcpProxy.title(), func(t *testing.T) {
		command, pid := killable(t)
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		// It says on its standard output that it listens, and serve reads the other.
		words := append([]string{"/bin/sh", "-c", `exec "$@" >&2`, "sh", "node", mcpProxy.path("dist/bin/mcp-proxy.mjs"), "--host", "127.0.0.1", "--port", "$PORT", "--server", "stream", "--endpoint", "/mcp", "--"}, command...)
		ctx, cancel := context.WithTimeout(schemaContext(t), hangGuard)
		defer cancel()
		proxy, err := serve(ctx, words, port)
		if err != nil {
			t.Fatal(err)
		}
		defer proxy.close()
		b := behind{t, Endpoint{URL: proxy.url}, "echo"}
		b.await(hangGuard)
		if err := syscall.Kill(pid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if took := b.await(*silence); took > 0 {
			t.Errorf("it answered %v after the kill: docs/guide/up.md says that it does not", took)
		}
	})
}

// killable returns a command of the everything server, and who it is.
func killable(t *testing.T) (command []string, pid func() int) {
	path := filepath.Join(t.TempDir(), "pid")
	script := fmt.Sprintf("echo $$ > '%s'; exec node '%s' stdio", path, everything.path("dist/index.js"))
	return []string{"/bin/sh", "-c", script}, func() int {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
}

// A behind is a server behind something that listens.
type behind struct {
	t    *testing.T
	at   Endpoint
	echo string
}

// await calls until there is an answer, each time with a session of its own, and returns how long that took; 0: there was none in time.
func (b behind) await(most time.Duration) time.Duration {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(schemaContext(b.t), most)
	defer cancel()
	for began := time.Now(); ctx.Err() == nil; {
		err := b.use(ctx, func(s Session) error {
			result, err := s.CallTool(ctx, Call{Tool: b.echo, Arguments: map[string]any{"message": "ahoy"}})
			if err == nil && (result.IsError || result.Text != "Echo: ahoy") {
				err = errors.New(result.Text)
			}
			return err
		})
		if err == nil {
			return time.Since(began)
		}
		b.t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return 0
}

func (b behind) tools() (names []string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(schemaContext(b.t), hangGuard)
	defer cancel()
	err := b.use(ctx, func(s Session) (err error) {
		names, err = allTools(ctx, s)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return names
}

func (b behind) use(ctx context.Context, do func(Session) error) error {
	session, err := connectBowline(ctx, b.at, protocol.LatestLegacy)
	if err != nil {
		return err
	}
	return errors.Join(do(session), session.Close(ctx))
}
