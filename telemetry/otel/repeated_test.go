package otel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// twice is a trace context that no encoder of ours can write.
const twice = `"traceparent":` + goodParent + `,"traceparent":` + goodParent

// telling returns a site of which only the telemetry is used.
func telling(t *testing.T) (*site, *otel.Telemetry) {
	t.Helper()
	s := &site{spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader()}
	s.traces = sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
	told, err := otel.New(otel.Options{TracerProvider: s.traces, MeterProvider: metric.NewMeterProvider(metric.WithReader(s.reader))})
	if err != nil {
		t.Fatal(err)
	}
	return s, told
}

// refused returns how many trace contexts were refused.
func (s *site) refused(t *testing.T) int64 {
	t.Helper()
	m, there := s.collect(t)["bowline.debug.trace.refused"]
	if !there {
		return 0
	}
	return numbers64(m)
}

// checkRoots checks that the spans of one kind and name are new roots, without links.
func (s *site) checkRoots(t *testing.T, name string, want int) {
	t.Helper()
	served := s.named(trace.SpanKindServer, name)
	if len(served) != want {
		t.Errorf("%s has %d SERVER spans, want %d", name, len(served), want)
	}
	for _, span := range served {
		if span.Parent.IsValid() || len(span.Links) != 0 || span.SpanContext.TraceID().String() == "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("the SERVER span of %s has the parent %v and the links %v, want a new root", name, span.Parent, span.Links)
		}
	}
}

// A request that has two traceparents is served. Both are ignored and counted, and its span is a
// new root.
//
// Guarantees: G-0047.4
func TestTwoTraceparents(t *testing.T) {
	const modern = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},`
	for over, exchange := range map[string]func(*testing.T, *otel.Telemetry, string) string{"memory": overRawLink, "http": overRawPost} {
		t.Run(over, func(t *testing.T) {
			s, told := telling(t)
			for i, meta := range []string{modern + twice, modern + `"k":1,"tracep\u0061rent":7,` + `"traceparent":` + goodParent} {
				answer := exchange(t, told, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{`+meta+`},"name":"add","arguments":{}}}`)
				if !strings.Contains(answer, secret+"-result") {
					t.Errorf("the answer is %s", answer)
				}
				s.checkRoots(t, "tools/call add", i+1)
				if refused := s.refused(t); refused != int64(i+1) {
					t.Errorf("%d traces were refused, want %d", refused, i+1)
				}
			}
			if answer := exchange(t, told, `{"jsonrpc":"2.0","id":2,"method":"nobody/knows","params":{"_meta":{`+modern+twice+`}}}`); !strings.Contains(answer, "-32601") {
				t.Errorf("the answer is %s", answer)
			}
			s.checkRoots(t, "nobody/knows", 1)
			if refused := s.refused(t); refused != 3 {
				t.Errorf("%d traces were refused, want 3", refused)
			}
		})
	}
}

// overRawLink sends a request to a server in memory, and returns its answer.
func overRawLink(t *testing.T, told *otel.Telemetry, request string) string {
	peer := newServer(told, io.Discard, func() {}, nil)
	defer peer.Close(context.Background())
	ours, theirs := inmem.Pipe(inmem.Options{})
	peer.Accept(theirs)
	defer ours.Close(0)
	p := peertest.Bind(t, ours)
	p.Send(request)
	return p.Next()
}

// overRawPost posts a request to a server, and returns the body of the response.
func overRawPost(t *testing.T, told *otel.Telemetry, request string) string {
	peer := newServer(told, io.Discard, func() {}, nil)
	defer peer.Close(context.Background())
	handler := streamable.NewHandler(peer, streamable.HandlerOptions{})
	defer handler.Close(0)
	listener := httptest.NewServer(handler)
	defer listener.Close()
	post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, listener.URL, strings.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Method string `json:"method"`
		Params struct {
			Name string `json:"name"`
		} `json:"params"`
	}
	if err := json.Unmarshal([]byte(request), &m); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": protocol.Latest,
		"Mcp-Method": m.Method, "Mcp-Name": m.Params.Name,
	} {
		if value != "" {
			post.Header.Set(key, value)
		}
	}
	response, err := listener.Client().Do(post)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// A question of a server that has two traceparents is answered, as is what it notifies of. Both
// traceparents are ignored and counted.
//
// Guarantees: G-0047.4
func TestTwoTraceparentsOfAServer(t *testing.T) {
	s, told := telling(t)
	notified := make(chan protocol.Meta, 1)
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
		ProtocolVersion: protocol.LatestLegacy,
		Roots:           func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, nil },
		Middleware: []client.Middleware{told.Client(), func(next client.Handler) client.Handler {
			return func(ctx context.Context, r *client.Request) (any, error) {
				if r.Method == protocol.NotificationMessage {
					notified <- protocol.MetaOf(r.Params)
				}
				return next(ctx, r)
			}
		}},
	})
	defer c.Close(context.Background())
	peers := make(chan *peertest.Peer, 1)
	var serving *peertest.Peer
	go func() {
		p := <-peers
		for frame := range p.Frames {
			var m struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			if err := json.Unmarshal([]byte(frame), &m); err != nil || m.Method != protocol.MethodInitialize {
				continue
			}
			_ = p.Link.Send(transport.Outbound{Frame: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"s","version":"1"}}}`, m.ID)})
			return
		}
	}()
	if _, err := c.Connect(t.Context(), inmem.New(func(link transport.Link) {
		serving = peertest.Bind(t, link)
		peers <- serving
	}, inmem.Options{})); err != nil {
		t.Fatal(err)
	}
	serving.Send(`{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{"_meta":{` + twice + `}}}`)
	for answer := range serving.Frames {
		if strings.Contains(answer, `"q"`) {
			if !strings.Contains(answer, `"roots":[]`) {
				t.Errorf("the answer is %s", answer)
			}
			break
		}
	}
	s.checkRoots(t, protocol.MethodListRoots, 1)
	if refused := s.refused(t); refused != 1 {
		t.Errorf("%d traces were refused, want 1", refused)
	}
	serving.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1,"_meta":{` + twice + `}}}`)
	guard, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case meta := <-notified:
		if string(meta[protocol.MetaTraceparent]) != "[]" {
			t.Errorf("the notification has the traceparent %s", meta[protocol.MetaTraceparent])
		}
	case <-guard.Done():
		t.Error("the notification was dropped")
	}
}
