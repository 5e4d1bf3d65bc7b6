package client_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A logbook contains the text that a log has written.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// logByDefault makes slog.Default write to a logbook for the length of a test.
func logByDefault(t *testing.T) *logbook {
	b, before := new(logbook), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(b, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return b
}

// Without any setup by the program, a panic of a tool and a failed attempt to connect are
// logged.
//
// Guarantees: G-0024.7
func TestFailuresAreLoggedByDefault(t *testing.T) {
	for name, c := range map[string]struct {
		o       conn.Tuning
		entries int
	}{
		"by default": {conn.Tuning{}, 1},
		"silenced":   {conn.Tuning{Log: slog.New(slog.DiscardHandler)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			log := logByDefault(t)
			s := server.New(serverInfo, server.Options{Conn: c.o})
			server.AddTool(s, protocol.Tool{Name: "oops"}, func(context.Context, struct{}) (string, error) { panic("no such table") })
			w := newSite(t, s)
			session := w.open(client.Options{Conn: c.o})
			if _, err := session.CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "oops"}); err == nil || strings.Contains(err.Error(), "no such table") {
				t.Errorf("the call: got %v, want an error without the panic value", err)
			}
			if n := strings.Count(log.String(), `"bowline: panic" where=tools/call panic="no such table"`); n != c.entries {
				t.Errorf("the panic is logged %d times, want %d: %s", n, c.entries, log)
			}
			w.kill()
			c.o.BackoffMin = time.Hour // one attempt
			gone, err := client.New(clientInfo, client.Options{Conn: c.o}).Start(timeoutContext(t), "gone", &streamable.Client{URL: "http://" + w.address})
			if err != nil {
				t.Fatal(err)
			}
			for status := gone.Status(); status.State != conn.Backoff; status = gone.Status() {
				<-status.Changed()
			}
			if err := gone.Close(timeoutContext(t)); err != nil {
				t.Error(err)
			}
			if n := strings.Count(log.String(), `"bowline: connecting failed"`); n != c.entries {
				t.Errorf("the attempt is logged %d times, want %d: %s", n, c.entries, log)
			}
			w.start()
		})
	}
}
