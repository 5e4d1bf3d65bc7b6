package streamable

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

// An occupied server has one place for the requests of each client, which the first one keeps until the test
// releases it.
type occupied struct {
	*Handler
	began   chan context.Context // of the handlers that have begun
	release chan struct{}

	mu    sync.Mutex
	conns []*conn.Conn
}

func newOccupied(patience time.Duration) *occupied {
	o := &occupied{began: make(chan context.Context, 10), release: make(chan struct{})}
	o.Handler = NewHandler(accepting(func(link transport.Link) {
		c := conn.Accept(link, conn.Options{Handler: o, Dialect: cancelling{}, Tuning: conn.Tuning{MaxServing: 1, Patience: patience}})
		o.mu.Lock()
		o.conns = append(o.conns, c)
		o.mu.Unlock()
		c.Start(context.Background(), func(error) {})
	}), HandlerOptions{})
	return o
}

// ServeRequest implements conn.Handler.
func (o *occupied) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Method == "initialize" {
		return in.Params, nil
	}
	o.began <- ctx
	<-o.release
	return json.RawMessage(`{}`), nil
}

// ServeNotification implements conn.Handler.
func (*occupied) ServeNotification(context.Context, *conn.Incoming) {}

// waiting returns how many requests wait.
func (o *occupied) waiting() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.conns {
		n += c.Stats().Depths.Waiting
	}
	return n
}

// callBody is a request of an era with this id. Lines are the headers that it needs.
func (o *occupied) callBody(version string, id int, session string) (body string, lines []string) {
	if version == "2026-07-28" {
		return strings.Replace(modernBody("tools/list", ""), `"id":7`, fmt.Sprintf(`"id":%d`, id), 1), modernHeader("tools/list")
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, id), []string{headerSession + ": " + session}
}

// begin begins a session, unless the revision has none.
func (o *occupied) begin(version string) (session string) {
	if version == "2026-07-28" {
		return ""
	}
	w := httptest.NewRecorder()
	o.ServeHTTP(w, newRequest("POST", initializeBody(version)))
	return w.Header().Get(headerSession)
}

// A request that has waited for too long is refused with 503 and Retry-After in both eras. In 2025-11-25 the stream of events
// has begun by then, so its client gets the error as an event.
//
// Guarantees: G-0084.4
func TestRequestThatHasWaitedTooLongGets503(t *testing.T) {
	for version, status := range map[string]int{"2026-07-28": 503, "2025-06-18": 503, "2025-03-26": 503, "2025-11-25": 200} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOccupied(0)
				session := o.begin(version)
				serve := func(id int) *httptest.ResponseRecorder {
					w := httptest.NewRecorder()
					body, lines := o.callBody(version, id, session)
					o.ServeHTTP(w, newRequest("POST", body, lines...))
					return w
				}
				first := make(chan *httptest.ResponseRecorder, 1)
				go func() { first <- serve(5) }()
				<-o.began
				since := time.Now()
				w := serve(6)
				if waited := time.Since(since); w.Code != status || waited != 10*time.Second || !strings.Contains(w.Body.String(), "-32050") {
					t.Errorf("got status %d and %q after %v, want %d and the error -32050 after 10s", w.Code, w.Body, waited, status)
				}
				if again := w.Header().Get("Retry-After"); (again == soon) != (status == 503) {
					t.Errorf("Retry-After is %q with status %d", again, status)
				}
				close(o.release)
				if w := <-first; w.Code != 200 || len(o.began) != 0 {
					t.Errorf("the first request got %d, and %d others have begun; want 200 and none", w.Code, len(o.began))
				}
				o.Close(time.Second)
			})
		})
	}
}

// A body waits for its turn for at most as long as a request waits for its handler, and that time counts.
//
// Guarantees: G-0084.2, G-0084.5
func TestBodyThatWaitsForItsTurn(t *testing.T) {
	large := modernBody("echo", `"pad":"`+strings.Repeat("x", turn.Small)+`",`)
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		end := b.takeTurns(t)
		since := time.Now()
		w, done := b.serve(t.Context(), "POST", large, modernHeader("echo")...)
		<-done
		if waited := time.Since(since); said(w) != saysBusy("", "overloaded: it was not the turn of the client") || waited != requestPatience {
			t.Errorf("got status %d and %s after %v, want 503 after %v", w.Code, w.Body, waited, requestPatience)
		}
		w, done = b.serve(t.Context(), "POST", large, modernHeader("echo")...)
		pass(4 * time.Second)
		end()
		if <-done; w.Code != 200 {
			t.Errorf("a body whose turn came: got status %d and %s, want 200", w.Code, w.Body)
		}
		p := b.peer(t, 0)
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := len(p.received); n != 1 || p.received[0].Held != 4*time.Second {
			t.Errorf("%d messages were delivered, held for %v; want one, held for 4s", n, p.received[0].Held)
		}
	})
}

// A request waits for its turn and for room until its time is over, and not for that time each.
//
// Guarantees: G-0084.5
func TestRequestThatWaitsForItsTurnAndForRoom(t *testing.T) {
	large := modernBody("echo", `"pad":"`+strings.Repeat("x", turn.Small)+`",`)
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		pool, filled := b.handler.served.medium, 0
		for pool.Take(share.Client{Identity: fmt.Sprint(filled)}, smallSize) {
			filled++
		}
		end, since := b.takeTurns(t), time.Now()
		w, done := b.serve(t.Context(), "POST", large, modernHeader("echo")...)
		pass(4 * time.Second)
		end()
		<-done
		if waited := time.Since(since); said(w) != saysBusy(`"id":7,`, "overloaded: too much is being served") || waited != requestPatience {
			t.Errorf("got status %d and %s after %v, want 503 after %v", w.Code, w.Body, waited, requestPatience)
		}
		for n := range filled {
			pool.Give(share.Client{Identity: fmt.Sprint(n)}, smallSize)
		}
	})
}

// takeTurns does as many pieces of work as possible, until the test calls end.
func (b *bench) takeTurns(t *testing.T) (end func()) {
	over := make(chan struct{})
	var doing sync.WaitGroup
	for n := range max(1, runtime.GOMAXPROCS(0)-1) {
		doing.Go(func() {
			_ = b.handler.bodies.turns.Do(t.Context(), share.Client{Identity: fmt.Sprint(n)}, turn.Small+1, nil, func() { <-over })
		})
	}
	synctest.Wait()
	return func() {
		close(over)
		doing.Wait()
	}
}

// A client that disconnects while its request is being served cancels it only since 2026-07-28.
//
// Guarantees: G-0022.10
func TestServedRequestOfAClientThatLeaves(t *testing.T) {
	for _, version := range []string{"2026-07-28", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOccupied(0)
				body, lines := o.callBody(version, 5, o.begin(version))
				client, leave := context.WithCancel(t.Context())
				left := make(chan struct{})
				go func() {
					defer close(left)
					o.ServeHTTP(httptest.NewRecorder(), newRequest("POST", body, lines...).WithContext(client))
				}()
				ctx := <-o.began
				leave()
				<-left
				synctest.Wait()
				if cancelled := ctx.Err() != nil; cancelled != (version == "2026-07-28") {
					t.Errorf("the handler is cancelled: %v", cancelled)
				}
				close(o.release)
				o.Close(time.Second)
			})
		})
	}
}

// A client that disconnects while its request waits takes it out of the queue at once, in both
// eras.
//
// Guarantees: G-0084.3
func TestClientThatLeavesTheQueue(t *testing.T) {
	for _, version := range []string{"2026-07-28", "2025-06-18"} {
		t.Run(version, func(t *testing.T) {
			o := newOccupied(-1)
			server := httptest.NewServer(o)
			defer server.Close()
			defer o.Close(time.Second)
			limit, cancel := context.WithTimeout(t.Context(), hangLimit)
			defer cancel()
			session := o.begin(version)
			call := func(ctx context.Context, id int) <-chan error {
				ended := make(chan error, 1)
				body, lines := o.callBody(version, id, session)
				r := newRequest("POST", body, lines...).Clone(ctx)
				r.URL.Host, r.Host, r.RequestURI = strings.TrimPrefix(server.URL, "http://"), "", ""
				go func() {
					response, err := server.Client().Do(r)
					if err == nil {
						response.Body.Close()
					}
					ended <- err
				}()
				return ended
			}
			first := call(limit, 5)
			select {
			case <-o.began:
			case <-limit.Done():
				t.Fatal("the first request was not served")
			}
			ctx, leave := context.WithCancel(limit)
			second := call(ctx, 6)
			await := func(n int) {
				for o.waiting() != n {
					if err := wait.Sleep(limit, time.Millisecond); err != nil {
						t.Fatalf("%d requests wait, want %d", o.waiting(), n)
					}
				}
			}
			await(1)
			leave()
			<-second
			await(0)
			close(o.release)
			if err := <-first; err != nil || len(o.began) != 0 {
				t.Errorf("the first request got %v, and %d others have begun; want none", err, len(o.began))
			}
		})
	}
}
