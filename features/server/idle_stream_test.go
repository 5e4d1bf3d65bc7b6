//go:build !race

package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// An open GET stream of an idle session adds at most this much memory and two goroutines
// of net/http to a server. Most of the memory is that of net/http. The client is half a
// pipe, which counts too. The ceiling leaves about 7 % for differences between runs. The
// race detector adds memory for each stream, so the test does not run with it.
func TestMemoryOfAnOpenStream(t *testing.T) {
	testenv.Crowd(t)
	testenv.Bubble(t, func(t *testing.T) {
		const many, most = 300, 29_200
		h := streamable.NewHandler(newServer(server.Options{}), streamable.HandlerOptions{})
		site := pipeSite{accepted: make(chan net.Conn), closed: make(chan struct{})}
		web := &http.Server{Handler: h}
		go web.Serve(site)
		defer web.Close()
		defer h.Close(0)
		open := func() (bytes, goroutines int) {
			sessions := make([]string, many)
			for i := range sessions {
				sessions[i] = openSession(t, h)
			}
			before, goroutinesBefore := held()
			for _, session := range sessions {
				defer site.openStream(t, session).Close()
			}
			now, goroutinesNow := held()
			return (now - before) / many, goroutinesNow - goroutinesBefore
		}
		open() // allocates what the handler and the runtime keep for all streams
		bytes, goroutines := open()
		if t.Log(bytes); bytes > most || goroutines != 2*many {
			t.Errorf("%d bytes for each, and %d goroutines, want %d bytes at most, and %d", bytes, goroutines, most, 2*many)
		}
	})
}

// held returns what inUse does, with the stacks.
func held() (bytes, goroutines int) {
	_, goroutines = inUse()
	for range 8 { // each collection halves the stacks that are mostly unused
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc + stats.StackInuse), goroutines
}

// A pipeSite is a listener whose connections are pipes, so that time is virtual.
type pipeSite struct {
	accepted chan net.Conn
	closed   chan struct{}
}

// Accept implements net.Listener.
func (s pipeSite) Accept() (net.Conn, error) {
	select {
	case c := <-s.accepted:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s pipeSite) Close() error {
	close(s.closed)
	return nil
}

// Addr implements net.Listener.
func (s pipeSite) Addr() net.Addr { return &net.TCPAddr{} }

// openStream opens the GET stream of a session, and returns when the server has no more to
// say on it.
func (s pipeSite) openStream(t *testing.T, session string) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	s.accepted <- there
	fmt.Fprintf(here, "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\n\r\n", session)
	here.SetReadDeadline(time.Now().Add(time.Millisecond))
	said, err := io.ReadAll(here)
	if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.HasPrefix(string(said), "HTTP/1.1 200 ") {
		t.Fatalf("the stream began with %q, %v", said, err)
	}
	return here
}
