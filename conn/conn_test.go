package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A handler serves requests by method, and refuses a method that it does not know.
type handler map[string]func(context.Context, *conn.Incoming) (json.RawMessage, error)

func (h handler) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	serve, ok := h[in.Method]
	if !ok {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + in.Method}
	}
	return serve(ctx, in)
}

func (h handler) ServeNotification(ctx context.Context, in *conn.Incoming) {
	if serve, ok := h[in.Method]; ok {
		serve(ctx, in)
	}
}

func echo(_ context.Context, in *conn.Incoming) (json.RawMessage, error) { return in.Params, nil }

// hang serves a request until its context ends.
func hang(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A pair is an initiator and the acceptors that its transport connects it to.
type pair struct {
	t       *testing.T
	client  *conn.Conn
	mu      sync.Mutex
	servers []*conn.Conn // one per incarnation
	running sync.WaitGroup
}

// connect runs an initiator against acceptors that serve with h.
func connect(t *testing.T, h handler, o conn.Options) *pair {
	t.Helper()
	p := &pair{t: t}
	p.client = conn.New(inmem.New(func(link transport.Link) {
		server := conn.Accept(link, conn.Options{Handler: h})
		p.mu.Lock()
		p.servers = append(p.servers, server)
		p.mu.Unlock()
		p.run(server)
	}, inmem.Options{}), o)
	p.run(p.client)
	t.Cleanup(p.stop)
	return p
}

func (p *pair) run(c *conn.Conn) {
	p.running.Go(func() { c.Run(context.Background()) })
}

// server returns the acceptor of the present incarnation. The client must have been ready.
func (p *pair) server() *conn.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.servers[len(p.servers)-1]
}

func (p *pair) stop() {
	p.client.Stop()
	p.mu.Lock()
	for _, server := range p.servers {
		server.Stop()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *pair) ready() {
	p.t.Helper()
	if err := p.client.AwaitReady(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// A call returns the result of the peer's handler.
func TestCallIsAnswered(t *testing.T) {
	p := connect(t, handler{"echo": echo}, conn.Options{})
	p.ready()
	got, err := p.client.Call(t.Context(), conn.Request{Method: "echo", Params: json.RawMessage(`{"n":1}`)})
	if err != nil || string(got) != `{"n":1}` {
		t.Fatalf("got %s, %v", got, err)
	}
}

// Every one of many concurrent calls gets its own answer, and is counted once.
//
// Guarantees: G-0003.1
func TestConcurrentCallsGetTheirOwnAnswers(t *testing.T) {
	p := connect(t, handler{"echo": echo}, conn.Options{})
	p.ready()
	var callers sync.WaitGroup
	for i := range 500 {
		callers.Go(func() {
			params := fmt.Sprintf(`{"n":%d}`, i)
			got, err := p.client.Call(t.Context(), conn.Request{Method: "echo", Params: json.RawMessage(params)})
			if err != nil || string(got) != params {
				t.Errorf("call %d got %s, %v", i, got, err)
			}
		})
	}
	testenv.Within(t, "each call gets its answer", callers.Wait)
	stats := p.client.Stats()
	if stats.Calls != 500 || stats.Settled[conn.Answered][conn.Sent] != 500 {
		t.Fatalf("got %d calls, settled %v; want 500, all answered", stats.Calls, stats.Settled)
	}
}

// An error that the peer answers with is in the chain of the CallError.
func TestPeerErrorReachesTheCaller(t *testing.T) {
	p := connect(t, handler{}, conn.Options{})
	p.ready()
	_, err := p.client.Call(t.Context(), conn.Request{Method: "nope"})
	var failed *conn.CallError
	if !errors.As(err, &failed) || failed.Cause != conn.PeerError || failed.Delivery != conn.Sent {
		t.Fatalf("got %v, want a PeerError", err)
	}
	if !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}) {
		t.Fatalf("the peer's error is not in the chain of %v", err)
	}
}

// A loss of the link ends all pending calls with LinkLost. The Conn then reconnects, and serves
// calls again.
//
// Guarantees: G-0003.3
func TestLossSettlesEveryCallAndReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, handler{"hang": hang, "echo": echo}, conn.Options{})
		p.ready()
		results := make(chan error, 50)
		for range 50 {
			go func() {
				_, err := p.client.Call(t.Context(), conn.Request{Method: "hang"})
				results <- err
			}()
		}
		synctest.Wait()
		p.server().Stop()
		synctest.Wait()
		for range 50 {
			var failed *conn.CallError
			if err := <-results; !errors.As(err, &failed) || failed.Cause != conn.LinkLost || failed.Delivery != conn.Unknown {
				t.Errorf("got %v, want LinkLost, Unknown", err)
			}
		}
		if state := p.client.State(); state != conn.Backoff {
			t.Fatalf("the state is %s, want backoff", state)
		}
		if _, err := p.client.Call(t.Context(), conn.Request{Method: "echo", Params: json.RawMessage("{}")}); !conn.NotExecuted(err) {
			t.Fatalf("a call in backoff got %v, want an error that says it was not executed", err)
		}
		_, err := p.client.Call(t.Context(), conn.Request{Method: "echo", Params: json.RawMessage("{}"), WaitForReady: true})
		if err != nil {
			t.Fatal(err)
		}
		if epoch := p.client.Status().Epoch; epoch != 2 {
			t.Fatalf("the epoch is %d, want 2", epoch)
		}
		p.stop()
	})
}

// A call ends when its timeout has passed or its context is cancelled.
//
// Guarantees: G-0003.2
func TestTimeoutAndCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, handler{"hang": hang}, conn.Options{})
		p.ready()
		began := time.Now()
		_, err := p.client.Call(t.Context(), conn.Request{Method: "hang", Timeout: 3 * time.Second})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("after %v got %v, want DeadlineExceeded after 3s", time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-time.After(time.Second)
			cancel()
		}()
		_, err = p.client.Call(ctx, conn.Request{Method: "hang"})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want Canceled", err)
		}
		p.stop()
	})
}

// Stop ends all pending calls with ShutDown, and later calls are refused. A second Stop does nothing.
//
// Guarantees: G-0009.2
func TestStopSettlesEveryCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, handler{"hang": hang}, conn.Options{})
		p.ready()
		results := make(chan error, 10)
		for range 10 {
			go func() {
				_, err := p.client.Call(t.Context(), conn.Request{Method: "hang"})
				results <- err
			}()
		}
		synctest.Wait()
		p.client.Stop()
		p.client.Stop()
		for range 10 {
			var failed *conn.CallError
			if err := <-results; !errors.As(err, &failed) || failed.Cause != conn.ShutDown || failed.Delivery != conn.Unknown {
				t.Errorf("got %v, want ShutDown, Unknown", err)
			}
		}
		<-p.client.Done()
		if _, err := p.client.Call(t.Context(), conn.Request{Method: "hang"}); !conn.NotExecuted(err) {
			t.Errorf("a call after Stop got %v", err)
		}
		p.stop()
	})
}

// Close waits for a call in flight, which gets its answer.
//
// Guarantees: G-0009.6
func TestCloseLetsWorkFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
			<-time.After(2 * time.Second)
			return json.RawMessage(`"done"`), nil
		}
		p := connect(t, handler{"slow": slow}, conn.Options{})
		p.ready()
		result := make(chan error, 1)
		go func() {
			_, err := p.client.Call(t.Context(), conn.Request{Method: "slow"})
			result <- err
		}()
		synctest.Wait()
		if err := p.client.Close(t.Context()); err != nil {
			t.Errorf("Close: %v, want no error", err)
		}
		if err := <-result; err != nil {
			t.Errorf("the call in flight got %v", err)
		}
		p.stop()
	})
}

// A call or notification whose context has already ended is refused and not sent.
//
// Guarantees: G-0003.12
func TestCallWithAnEndedContextIsNotSent(t *testing.T) {
	served := 0
	p := connect(t, handler{"buy": func(context.Context, *conn.Incoming) (json.RawMessage, error) { served++; return nil, nil }}, conn.Options{})
	p.ready()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if _, err := p.client.Call(ended, conn.Request{Method: "buy"}); !conn.NotExecuted(err) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want Canceled and not executed", err)
		}
		if err := p.client.Notify(ended, "buy", nil); !conn.NotExecuted(err) {
			t.Errorf("the notification got %v", err)
		}
	}
	p.stop()
	if served != 0 {
		t.Errorf("%d requests were executed, want none", served)
	}
}

// New panics without a Transport, and Accept without a Link.
func TestConnWithoutTransportOrLinkPanics(t *testing.T) {
	for want, make := range map[string]func(){
		"conn: New needs a Transport": func() { conn.New(nil, conn.Options{}) },
		"conn: Accept needs a Link":   func() { conn.Accept(nil, conn.Options{}) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("got the panic %v, want %v", got, want)
				}
			}()
			make()
		}()
	}
}

// A resumable link notes which streams are resumed.
type resumable struct {
	script
	resumed []transport.Stream
}

func (r *resumable) Resume(stream transport.Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resumed = append(r.resumed, stream)
}

func (r *resumable) streams() []transport.Stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.resumed)
}

// A stream that has broken off is resumed after the delay that its link gives.
func TestAStreamIsResumedAfterItsDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		link := new(resumable)
		r := start(conn.New(opens(link), conn.Options{}))
		synctest.Wait()
		link.receiver.StreamLost(transport.StreamLoss{Stream: transport.Main, Reason: io.EOF, Resumable: true, Delay: 7 * time.Second})
		advance(7*time.Second - 1)
		if early := link.streams(); len(early) > 0 {
			t.Errorf("the streams %v were resumed before their time", early)
		}
		advance(time.Hour)
		if got := link.streams(); !slices.Equal(got, []transport.Stream{transport.Main}) {
			t.Errorf("the streams %v were resumed, want Main once", got)
		}
		r.Stop()
		<-r.ended
	})
}
