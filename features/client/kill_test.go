package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A real server is killed during 50 calls. Each caller gets one outcome, the session
// becomes ready again by itself, and neither the process nor its grandchild, which
// holds standard output open, is left.
func TestSessionSurvivesAKilledProcess(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	grandchildren := listen(t)
	pids := make(chan int, 10)
	session := openProcess(ctx, t, grandchildren.Addr().String(), func(pid int) { pids <- pid })
	first := accept(t, grandchildren)

	const callers = 50
	outcomes := make(chan error, callers)
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "hang"})
			outcomes <- err
		})
	}
	if err := session.Ping(ctx); err != nil { // an answer shows that the server runs and reads
		t.Fatal(err)
	}
	awaitPending(ctx, t, session, callers)
	kill(t, <-pids)
	calling.Wait()
	close(outcomes)
	for err := range outcomes {
		var failed *conn.CallError
		var exit *transport.ExitError
		if !errors.As(err, &failed) || failed.Cause != conn.LinkLost || !errors.As(err, &exit) || exit.Signal != "killed" {
			t.Errorf("a caller got %v", err)
		}
	}
	waiting := session.With(client.CallOptions{WaitForReady: true})
	if err := waiting.Ping(ctx); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	second := accept(t, grandchildren)
	awaitEnd(t, first, "the first grandchild")
	if err := session.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	awaitEnd(t, second, "the second grandchild")
	if stats := session.Conn().Stats(); stats.Calls != stats.Ended() {
		t.Errorf("the totals do not add up: got %+v", stats)
	}
}

func openProcess(ctx context.Context, t *testing.T, address string, started func(pid int)) *client.Session {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := &stdio.Command{
		Path:    self,
		Env:     []string{roleVariable + "=server", addressVariable + "=" + address},
		Started: started,
	}
	session, err := client.New(clientInfo, client.Options{}).Connect(ctx, specification.WatchClient(t, command))
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// awaitPending waits until the link has that many open calls.
func awaitPending(ctx context.Context, t *testing.T, s *client.Session, calls uint64) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		if stats := s.Conn().Stats(); stats.Calls-stats.Ended() >= calls && stats.Depths.Pending >= int(calls) && stats.Depths.Queued == 0 {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatal("the calls did not start in time")
		}
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// accept returns the connection of the next grandchild. It fails the test if none comes
// in time.
func accept(t *testing.T, listener net.Listener) net.Conn {
	t.Helper()
	listener.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
	link, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	return link
}

// awaitEnd waits until the process at the other end of a connection has ended.
func awaitEnd(t *testing.T, link net.Conn, who string) {
	t.Helper()
	link.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := link.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s still runs, want it to have ended", who)
	} else if err == nil {
		t.Errorf("%s sent data, want none", who)
	} else if !errors.Is(err, io.EOF) {
		t.Logf("%s: %v", who, err) // a reset also shows the end
	}
}
