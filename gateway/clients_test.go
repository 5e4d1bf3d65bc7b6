package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// These clients do what no good one does. The gateway and its other clients live on.

// A client whose connection is lost while its user is asked ends its call at the server; nothing is left of it, and the next one is asked again.
//
// Guarantees: G-0088.5, G-0088.6
func TestClientsThatDropInAQuestion(t *testing.T) {
	for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, back := range []string{protocol.LatestLegacy, protocol.Latest} {
			t.Run(front+" to "+back, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, ended := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{}), make(chan error, 9)
					server.AddTool(s, protocol.Tool{Name: "sample"}, func(ctx context.Context, _ struct{}) (string, error) {
						text, err := askForSample(ctx)
						ended <- err
						return text, err
					}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
					f := newFleet(t, back, map[string]*server.Server{"a": s, "b": named("b")})
					dropped, o := make(chan struct{}), user("leaves")
					o.Sample = func(ctx context.Context, _ *client.Session, _ *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
						close(dropped)
						<-ctx.Done()
						return nil, ctx.Err()
					}
					session := f.client(front, o)
					go session.CallTool(context.Background(), &protocol.CallToolParams{Name: "a__sample"})
					<-dropped
					now, cancel := context.WithCancel(t.Context())
					cancel()
					session.Close(now)
					other := f.client(front, user("other"))
					callWho(t, other, "b")
					pass(20 * time.Minute) // a call that was parked has expired
					synctest.Wait()
					if len(ended) != 1 || <-ended == nil {
						t.Error("the call still runs at the server, or was answered")
					}
					if r := f.Report(); len(r.Questions) != 0 || r.Servers[0].Calls != 0 {
						t.Errorf("what is left of it: %+v, %d calls", r.Questions, r.Servers[0].Calls)
					}
					if got, err := client.Call[string](t.Context(), other, "a__sample", nil); err != nil || got != "other" {
						t.Errorf("the next one: %q, %v", got, err)
					}
				})
			})
		}
	}
}

// A flood is a legacy server with the tools who and flood, which logs a hundred thousand times before it answers.
type flood struct {
	logged atomic.Int64
	ended  sync.WaitGroup // the goroutine of the server, which ends with its link, and those of calls, which it ends
}

// Open implements transport.Transport.
func (s *flood) Open(context.Context) (transport.Link, error) {
	ours, theirs := inmem.Pipe(inmem.Options{})
	requests := make(chan jsonrpc.Message, 1000)
	theirs.Bind(peertest.Receive(func(in transport.Inbound) {
		if m, err := jsonrpc.Decode(slices.Clone(in.Frame), jsonrpc.Limits{}); err == nil && m.Kind == jsonrpc.KindRequest {
			requests <- m
		}
	}))
	theirs.Grant(transport.Main, 1<<20)
	s.ended.Go(func() {
		for m := range requests {
			s.ended.Go(func() { s.answer(m, theirs) })
		}
	})
	return &endOfFlood{ours, requests}, nil
}

type endOfFlood struct {
	transport.Link
	requests chan jsonrpc.Message
}

func (l *endOfFlood) Close(grace time.Duration) error {
	close(l.requests)
	return l.Link.Close(grace)
}

func (s *flood) answer(m jsonrpc.Message, link transport.Link) {
	send := func(frame string) error {
		for {
			err := link.Send(transport.Outbound{Frame: []byte(frame)})
			if !errors.Is(err, transport.ErrBusy) {
				return err
			}
			pass(time.Millisecond)
		}
	}
	result := `{}`
	switch m.Method {
	case protocol.MethodDiscover:
		_ = send(string(jsonrpc.AppendError(nil, m.ID, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound})))
		return
	case protocol.MethodInitialize:
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"s","version":"1"}}`
	case protocol.MethodListTools:
		result = `{"tools":[{"name":"who","inputSchema":{"type":"object"}},{"name":"flood","inputSchema":{"type":"object"}}]}`
	case protocol.MethodCallTool:
		result = `{"content":[{"type":"text","text":"a and "}]}`
		for strings.Contains(string(m.Params), "flood") && s.logged.Load() < 100_000 {
			if send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"`+strings.Repeat("x", 1000)+`"}}`) != nil {
				return
			}
			s.logged.Add(1)
		}
	}
	_ = send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID.Append(nil), result))
}

// A client that reads nothing, while its call logs without a pause, delays no other client of the same server, and what is kept for it is bounded.
//
// Guarantees: G-0088.19
func TestClientThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(flood)
		t.Cleanup(s.ended.Wait)
		f := newFaulty(t, map[string]transport.Transport{"c": s})
		pass(time.Second)
		ours, theirs := inmem.Pipe(inmem.Options{})
		f.Server().Accept(theirs)
		ours.Bind(peertest.Ignore{}) // and grants nothing
		for _, frame := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"deaf","version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}`,
			`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"c__flood","arguments":{}}}`,
		} {
			failOn(t, ours.Send(transport.Outbound{Frame: []byte(frame)}))
		}
		pass(time.Second)
		other := f.client(protocol.LatestLegacy, client.Options{})
		for range 100 {
			callWho(t, other, "c")
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		if s.logged.Load() == 0 || m.HeapAlloc > 50<<20 {
			t.Errorf("after %d messages of a kilobyte, %d MiB are in use", s.logged.Load(), m.HeapAlloc>>20)
		}
		ours.Close(0)
		pass(time.Minute)
		if r := f.Report(); len(r.Clients) != 1 || r.Servers[1].Calls != 0 {
			t.Errorf("when it has left, there are %d clients, and %d calls of %s", len(r.Clients), r.Servers[1].Calls, r.Servers[1].Name)
		}
	})
}

// A crowd is clients of a gateway over HTTP, without a network.
type crowd struct {
	t *testing.T
	h *streamable.Handler
}

// serve serves a request of a client. The body "" makes it a GET, which lasts as long as the context.
func (c *crowd) serve(ctx context.Context, w http.ResponseWriter, address, session, body string) {
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	r := httptest.NewRequestWithContext(ctx, method, "http://127.0.0.1/mcp", strings.NewReader(body))
	r.RemoteAddr = address + ":1234"
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	c.h.ServeHTTP(w, r)
}

func (c *crowd) post(address, session, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	c.serve(c.t.Context(), w, address, session, body)
	return w
}

// A stream is a response that says when it has begun.
type stream struct {
	*httptest.ResponseRecorder
	began func()
}

func (s *stream) Flush() { s.began() }

// One client opens 10,000 sessions and listens in each of them: it gets a part of the places, and is told that it has no more; others are served.
//
// Guarantees: G-0088.19
func TestClientWithManySessions(t *testing.T) {
	f := newFleet(t, protocol.LatestLegacy, two())
	h := streamable.NewHandler(f.Server(), streamable.HandlerOptions{})
	defer h.Close(0)
	ctx, end := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	defer listening.Wait()
	defer end()
	const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	all, refused := &crowd{t, h}, 0
	for i := range 10_000 {
		w := all.post("10.0.0.1", "", begin)
		if w.Code == http.StatusServiceUnavailable && strings.Contains(w.Body.String(), "sessions") {
			refused++
			continue
		}
		if w.Code != http.StatusOK {
			t.Fatalf("session %d: %d %s", i+1, w.Code, w.Body)
		}
		began := make(chan struct{})
		listening.Go(func() {
			all.serve(ctx, &stream{httptest.NewRecorder(), sync.OnceFunc(func() { close(began) })}, "10.0.0.1", w.Header().Get("Mcp-Session-Id"), "")
		})
		<-began
	}
	if n := len(f.Report().Clients); n > 4_000 || n+refused != 10_000 {
		t.Errorf("it has %d sessions, and %d were refused", n, refused)
	}
	w := all.post("10.0.0.2", "", begin)
	w = all.post("10.0.0.2", w.Header().Get("Mcp-Session-Id"), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a__who","arguments":{"you":"me"}}}`)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "a and me") {
		t.Errorf("another client: %d %s", w.Code, w.Body)
	}
}
