package server_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// accept lets the server accept a raw peer, and does not wait.
func accept(t *testing.T, s *server.Server) *rawPeer {
	t.Helper()
	ours, theirs := inmem.Pipe(inmem.Options{})
	w := &rawPeer{t: t, link: ours, frames: make(chan string, 100)}
	ours.Bind(w)
	ours.Grant(transport.Main, cap(w.frames))
	s.Accept(specification.WatchServer(t)(theirs))
	return w
}

// wantClosed checks that the link has ended without another frame.
func (w *rawPeer) wantClosed() {
	w.t.Helper()
	if frame, open := <-w.frames; open {
		w.t.Errorf("got %s", frame)
	}
}

// An idle session has no goroutine.
//
// Guarantees: G-0021.4
func TestIdleSessionsHaveNoGoroutine(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := withTool()
		before := bubbleGoroutines()
		var peers []*rawPeer
		for range 50 {
			legacy, modern := accept(t, s), accept(t, s)
			legacy.initialize(protocol.Version20251125)
			modern.ask(modern1)
			peers = append(peers, legacy, modern)
		}
		addNamed(s, "another")
		for i := range peers {
			if i%2 == 0 {
				peers[i].want(announcement)
			}
		}
		<-time.NewTimer(time.Second).C // a Conn gives up its goroutine after 100 ms
		synctest.Wait()
		if now := bubbleGoroutines(); now > before {
			t.Errorf("%d sessions have %d goroutines, want 0", len(peers), now-before)
		}
		s.Close(t.Context())
		for _, w := range peers {
			w.wantClosed()
		}
	})
}

// bubbleGoroutines returns the number of goroutines in bubbles of testing/synctest. It ignores
// others, of the runtime or of an earlier test, which come and go.
func bubbleGoroutines() int {
	stacks := make([]byte, 16<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte(", synctest bubble "))
}

var modern1 = modern(`1`, "tools/list", ``)

// Close lets calls finish until its context ends, or for DrainGrace.
//
// Guarantees: G-0021.5
func TestCloseLetsWorkInFlightFinish(t *testing.T) {
	for name, connect := range map[string]func(*testing.T, *server.Server) *rawPeer{"served": dial, "accepted": accept} {
		testenv.Bubble(t, func(t *testing.T) {
			s := newServer(server.Options{})
			server.AddTool(s, protocol.Tool{Name: "slow", InputSchema: anyObject}, func(ctx context.Context, _ *protocol.CallToolParams) (*protocol.CallToolResult, error) {
				pass(time.Second)
				return &protocol.CallToolResult{}, context.Cause(ctx)
			})
			busy, idle := connect(t, s), connect(t, s)
			busy.send(modern(`1`, "tools/call", `"name":"slow"`))
			idle.initialize(protocol.Version20251125)
			synctest.Wait()
			began := time.Now()
			if err := s.Close(t.Context()); err != nil {
				t.Errorf("%s: got %v, want no error", name, err)
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("%s: Close took %v, want %v", name, took, time.Second)
			}
			busy.want(`"id":1`, `"content":[]`)
			busy.wantClosed()
			idle.wantClosed()
			if err := s.Close(t.Context()); err != nil {
				t.Errorf("%s: closed again: %v", name, err)
			}
		})
	}
}

// Close cancels calls that do not finish in time, and returns an error.
//
// Guarantees: G-0021.5
func TestCloseStopsWhatDoesNotFinish(t *testing.T) {
	for name, test := range map[string]struct {
		ctx  func() (context.Context, context.CancelFunc)
		took time.Duration
		want error
	}{
		"at the end of its context": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(3*time.Second, cancel)
			return ctx, cancel
		}, 3 * time.Second, context.Canceled},
		"when DrainGrace is over": {func() (context.Context, context.CancelFunc) {
			return context.Background(), func() {}
		}, 7 * time.Second / 100 * 99, context.DeadlineExceeded}, // the rest of the time is for the handler to return
	} {
		testenv.Bubble(t, func(t *testing.T) {
			s := newServer(server.Options{Conn: conn.Tuning{DrainGrace: 7 * time.Second}})
			server.AddTool(s, protocol.Tool{Name: "hang", InputSchema: anyObject}, func(ctx context.Context, _ *protocol.CallToolParams) (*protocol.CallToolResult, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
			w := accept(t, s)
			w.send(modern(`1`, "tools/call", `"name":"hang"`))
			synctest.Wait()
			ctx, cancel := test.ctx()
			defer cancel()
			began := time.Now()
			if err := s.Close(ctx); !errors.Is(err, test.want) {
				t.Errorf("%s: got %v, want %v", name, err, test.want)
			}
			if took := time.Since(began); took != test.took {
				t.Errorf("%s: Close took %v, want %v", name, took, test.took)
			}
			w.wantClosed()
		})
	}
}

// A closed server closes every link that it gets, and sends nothing.
//
// Guarantees: G-0021.5
func TestClosedServerServesNobody(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := withTool()
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		accept(t, s).wantClosed()
		ours, theirs := inmem.Pipe(inmem.Options{})
		w := &rawPeer{t: t, link: ours, frames: make(chan string, 1)}
		ours.Bind(w)
		if err := s.ServeLink(t.Context(), theirs); !errors.Is(err, server.ErrClosed) {
			t.Errorf("got %v, want %v", err, server.ErrClosed)
		}
		w.wantClosed()
		addNamed(s, "another") // sends no notification
	})
}

func TestServeEndsWithItsServer(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := withTool()
		ours, theirs := inmem.Pipe(inmem.Options{})
		w := &rawPeer{t: t, link: ours, frames: make(chan string, 1)}
		ours.Bind(w)
		served := make(chan error, 1)
		go func() { served <- s.ServeLink(t.Context(), theirs) }()
		synctest.Wait()
		s.Close(t.Context())
		if err := <-served; err != nil {
			t.Errorf("got %v, want no error", err)
		}
	})
}
