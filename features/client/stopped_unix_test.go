//go:build unix

package client_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A real server that is stopped by a signal, and so neither ends nor answers, is
// detected without a call, and another one is started.
//
// Guarantees: G-0025.1, G-0025.5
func TestSessionSurvivesAStoppedProcess(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	grandchildren, pids := listen(t), make(chan int, 10)
	command := &stdio.Command{
		Path:    self,
		Env:     []string{roleVariable + "=server", addressVariable + "=" + grandchildren.Addr().String()},
		Started: func(pid int) { pids <- pid },
	}
	impatient := client.Options{Conn: conn.Tuning{Liveness: 250 * time.Millisecond, BackoffMin: time.Millisecond}}
	session, err := client.New(clientInfo, impatient).Connect(ctx, specification.WatchClient(t, command))
	if err != nil {
		t.Fatal(err)
	}
	grandchild := accept(t, grandchildren)
	if err := syscall.Kill(<-pids, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for status := session.Conn().Status(); status.Epoch < 2; status = session.Conn().Status() {
		select {
		case <-status.Changed():
		case <-ctx.Done():
			t.Fatalf("got the state %s (%v)", status.State, status.Reason)
		}
	}
	if why := session.Conn().Status().LastFailure; why.Kind != conn.LivenessLost {
		t.Errorf("got the reason %v, want %v", why, conn.LivenessLost)
	}
	awaitEnd(t, grandchild, "the first grandchild")
	waiting := session.With(client.CallOptions{WaitForReady: true})
	if err := waiting.Ping(ctx); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	if err := session.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// Stop ends a session: its child process has ended, and nothing of it is left.
func TestStopEndsTheChildProcess(t *testing.T) {
	command := role(t, "features")
	pids := make(chan int, 10)
	command.Started = func(pid int) { pids <- pid }
	session, err := client.New(clientInfo, client.Options{}).Connect(timeoutContext(t), command)
	if err != nil {
		t.Fatal(err)
	}
	session.Stop()
	if err := session.Wait(); err != nil {
		t.Error(err)
	}
	if pid := <-pids; syscall.Kill(pid, 0) == nil {
		t.Errorf("process %d still runs, want it to have ended", pid)
	}
	if _, err := callTool(t, session, "x", ""); !errors.Is(err, client.ErrClosed) || !client.NotExecuted(err) {
		t.Errorf("a call after Stop: %v", err)
	}
}
