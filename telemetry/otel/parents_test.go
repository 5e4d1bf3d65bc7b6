package otel_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// The CLIENT span of a call is below the span in the context of its caller.
//
// Guarantees: G-0047.2
func TestACallIsBelowTheSpanOfItsCaller(t *testing.T) {
	for _, over := range []string{"memory", "http"} {
		for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
			s := newSite(t, over, version, otel.Options{})
			s.spans.Reset()
			ctx, program := s.traces.Tracer("program").Start(t.Context(), "program")
			if _, err := s.CallTool(ctx, &protocol.CallToolParams{Name: "add"}); err != nil {
				t.Fatal(err)
			}
			program.End()
			s.ended()
			calls := s.named(trace.SpanKindClient, "tools/call add")
			if len(calls) != 1 || !calls[0].Parent.Equal(program.SpanContext()) || calls[0].SpanContext.TraceID() != program.SpanContext().TraceID() {
				t.Errorf("%s, %s: the CLIENT spans are %v, want one below %v", over, version, calls, program.SpanContext())
			}
		}
	}
}

// Over HTTP, the parent of a SERVER span is the span that _meta names. It links to the span of the
// HTTP request. If _meta names none, the span of the HTTP request is the parent, without a link.
//
// Guarantees: G-0047.2
func TestAServerSpanLinksToThatOfTheHTTPRequest(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, traced := range []bool{true, false} {
			t.Run(fmt.Sprint(version, " traced: ", traced), func(t *testing.T) {
				s, told := telling(t)
				peer := newServer(told, &s.logs, func() {}, nil)
				defer peer.Close(context.Background())
				handler := streamable.NewHandler(peer, streamable.HandlerOptions{})
				defer handler.Close(0)
				var mu sync.Mutex
				requests := make(map[trace.SpanID]bool) // the spans of HTTP requests
				listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					ctx, span := s.traces.Tracer("http").Start(r.Context(), "HTTP")
					defer span.End()
					mu.Lock()
					requests[span.SpanContext().SpanID()] = true
					mu.Unlock()
					handler.ServeHTTP(w, r.WithContext(ctx))
				}))
				defer listener.Close()
				options := client.Options{ProtocolVersion: version}
				if traced {
					told.Instrument(&options)
				}
				c := client.New(protocol.Implementation{Name: "c", Version: "1"}, options)
				defer c.Close(context.Background())
				session, err := c.Connect(t.Context(), &streamable.Client{URL: listener.URL})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "add"}); err != nil {
					t.Fatal(err)
				}
				served := s.named(trace.SpanKindServer, "tools/call add")
				if len(served) != 1 {
					t.Fatalf("there are %d SERVER spans", len(served))
				}
				mu.Lock()
				defer mu.Unlock()
				parent, links := served[0].Parent, served[0].Links
				if !traced {
					if !requests[parent.SpanID()] || len(links) != 0 {
						t.Errorf("the SERVER span has the parent %v and the links %v, want the HTTP request's span as the parent", parent, links)
					}
					return
				}
				calls := s.named(trace.SpanKindClient, "tools/call add")
				if len(calls) != 1 || parent.SpanID() != calls[0].SpanContext.SpanID() || parent.TraceID() != calls[0].SpanContext.TraceID() || !parent.IsRemote() {
					t.Errorf("the SERVER span has the parent %v, and the CLIENT spans are %v", parent, calls)
				}
				if len(links) != 1 || !requests[links[0].SpanContext.SpanID()] {
					t.Errorf("the SERVER span has the links %v, want one to the span of its HTTP request", links)
				}
			})
		}
	}
}

// A notification carries the trace context of what it belongs to: one of a client that of the
// caller's context, and progress and log messages of a server that of its SERVER span.
//
// Guarantees: G-0047.1
func TestNotificationsCarryTheTrace(t *testing.T) {
	for _, over := range []string{"memory", "http"} {
		for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
			t.Run(over+"/"+version, func(t *testing.T) {
				s, told := telling(t)
				came := make(chan notice, 10) // on either side
				var options server.Options
				told.InstrumentServer(&options)
				options.Middleware = append(options.Middleware, func(next server.Handler) server.Handler {
					return func(ctx context.Context, r *server.Request) (any, error) {
						if r.Notification && !r.Outgoing && r.Method == protocol.NotificationRootsListChanged {
							came <- noticeOf(r.Method, r.Params)
						}
						return next(ctx, r)
					}
				})
				peer := server.New(protocol.Implementation{Name: "s", Version: "1"}, options)
				defer peer.Close(context.Background())
				server.AddTool(peer, protocol.Tool{Name: "report"}, func(ctx context.Context, _ struct{}) (string, error) {
					server.Progress(ctx, 1, 2, "half")
					server.Logger(ctx).InfoContext(ctx, "hello")
					return "", nil
				})
				to := inmem.New(peer.Accept, inmem.Options{})
				if over == "http" {
					handler := streamable.NewHandler(peer, streamable.HandlerOptions{})
					listener := httptest.NewServer(handler)
					defer listener.Close()
					defer handler.Close(0)
					to = &streamable.Client{URL: listener.URL}
				}
				calling := client.Options{
					ProtocolVersion: version, LogLevel: protocol.LogInfo, Conn: conn.Tuning{BackoffMin: time.Millisecond},
					Roots: func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, nil },
				}
				told.Instrument(&calling)
				calling.Middleware = append(calling.Middleware, func(next client.Handler) client.Handler {
					return func(ctx context.Context, r *client.Request) (any, error) {
						if r.Notification && r.Incoming {
							came <- noticeOf(r.Method, r.Params)
						}
						return next(ctx, r)
					}
				})
				c := client.New(protocol.Implementation{Name: "c", Version: "1"}, calling)
				defer c.Close(context.Background())
				session, err := c.Connect(t.Context(), to)
				if err != nil {
					t.Fatal(err)
				}
				if err := session.SetLogLevel(t.Context(), protocol.LogInfo); err != nil { // a legacy server learns it now
					t.Fatal(err)
				}
				view := session.With(client.CallOptions{OnProgress: func(p *protocol.ProgressParams) {
					came <- noticeOf(protocol.NotificationProgress, p) // it passes no middleware
				}})
				if _, err := view.CallTool(t.Context(), &protocol.CallToolParams{Name: "report"}); err != nil {
					t.Fatal(err)
				}
				served := s.named(trace.SpanKindServer, "tools/call report")
				if len(served) != 1 {
					t.Fatalf("there are %d SERVER spans", len(served))
				}
				above := map[string]trace.SpanContext{
					protocol.NotificationProgress: served[0].SpanContext, protocol.NotificationMessage: served[0].SpanContext,
				}
				if version != protocol.Latest { // in which clients notify of nothing but cancellations
					ctx, program := s.traces.Tracer("program").Start(t.Context(), "program")
					if err := session.Notify(ctx, protocol.NotificationRootsListChanged, nil); err != nil {
						t.Fatal(err)
					}
					program.End()
					above[protocol.NotificationRootsListChanged] = program.SpanContext()
				}
				guard, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				for len(above) > 0 {
					select {
					case n := <-came:
						want, waited := above[n.method]
						if !waited {
							continue
						}
						delete(above, n.method)
						if text := fmt.Sprintf(`"00-%s-%s-01"`, want.TraceID(), want.SpanID()); n.parent != text {
							t.Errorf("%s has the traceparent %s, want %s", n.method, n.parent, text)
						}
					case <-guard.Done():
						t.Fatalf("some did not come: %v", above)
					}
				}
			})
		}
	}
}

// A notice is a notification that came in.
type notice struct{ method, parent string }

func noticeOf(method string, params any) notice {
	return notice{method, string(protocol.MetaOf(params)[protocol.MetaTraceparent])}
}
