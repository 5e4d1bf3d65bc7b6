package streamable

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// BenchmarkHandlerRoundTrip makes one request at a time on a kept connection. The floor
// decodes the same request and returns it.
func BenchmarkHandlerRoundTrip(b *testing.B) {
	h := NewHandler(accepting(func(link transport.Link) { newEcho(link) }), HandlerOptions{})
	defer h.Close(0)
	routed := NewHandler(accepting(func(link transport.Link) { newEcho(link) }), HandlerOptions{Router: &Nodes{Self: "here"}})
	defer routed.Close(0)
	session := fuzzed(h, "POST", "Content-Type: application/json", initializeBody("2025-06-18")).Header().Get("Mcp-Session-Id")
	pad := strings.Repeat("x", 64)
	for _, test := range []struct {
		name    string
		handler http.Handler
		body    string
		lines   []string
	}{
		{"floor", http.HandlerFunc(floor), `{"jsonrpc":"2.0","id":5,"method":"echo","params":{"a":"` + pad + `"}}`, nil},
		{"session", h, `{"jsonrpc":"2.0","id":5,"method":"echo","params":{"a":"` + pad + `"}}`, []string{"Mcp-Session-Id: " + session}},
		{"stateless", h, modernBody("echo", `"a":"`+pad+`",`), modernHeader("echo")},
		{"stateless, one of several nodes", routed, modernBody("echo", `"a":"`+pad+`",`), modernHeader("echo")},
		{"stateless, events", h, modernBody("notify", `"a":"`+pad+`",`), modernHeader("notify")},
	} {
		b.Run(test.name, func(b *testing.B) {
			server := httptest.NewServer(test.handler)
			defer server.Close()
			s := &site{t: b, server: server, ctx: b.Context()}
			lines := append(posting(), test.lines...)
			b.ReportAllocs()
			for b.Loop() {
				response, err := server.Client().Do(s.request(s.ctx, "POST", test.body, lines))
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, response.Body)
				if response.Body.Close(); response.StatusCode != 200 {
					b.Fatal(response.Status)
				}
			}
		})
	}
}

func floor(w http.ResponseWriter, r *http.Request) {
	var request struct {
		ID     json.RawMessage
		Params json.RawMessage
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, request.ID, request.Params)
}

// An echo is a receiver that answers on one goroutine.
type echo struct {
	link transport.Link
	acts chan func()
}

func newEcho(link transport.Link) {
	e := &echo{link, make(chan func(), 1000)}
	go func() {
		for act := range e.acts {
			act()
		}
	}()
	link.Bind(e)
	e.acts <- func() { link.Grant(transport.Main, math.MaxInt32) }
}

func (e *echo) StreamOpened(stream transport.Stream, _ transport.Tag) {
	e.acts <- func() { e.link.Grant(stream, 1) }
}

func (e *echo) Receive(in transport.Inbound) {
	e.acts <- func() {
		m := *in.Message
		if m.Kind != jsonrpc.KindRequest {
			return
		}
		if m.Method == "initialize" {
			m.Params = []byte(`{"protocolVersion":"2025-06-18"}`)
		}
		e.link.Send(transport.Outbound{Stream: in.Stream, Last: m.Method != "notify", Frame: jsonrpc.AppendResult(nil, m.ID, m.Params),
			Route: transport.Route{Kind: jsonrpc.KindResult, ID: m.ID}})
		e.link.End(in.Stream)
		in.Room.Release()
	}
}
func (e *echo) StreamLost(transport.StreamLoss) {}
func (e *echo) Writable()                       {}
func (e *echo) Failed(transport.Failure)        {}
func (e *echo) Ended()                          {}
func (e *echo) Lost(transport.Loss)             { close(e.acts) }

// BenchmarkIdleSession measures the cost of an idle session without its receiver.
func BenchmarkIdleSession(b *testing.B) {
	const sessions = 10_000
	for b.Loop() {
		h := NewHandler(accepting(func(link transport.Link) { link.Bind(&mute{link: link}) }), HandlerOptions{MaxSessions: 3 * sessions})
		goroutines, bytes := resources()
		for range sessions {
			fuzzed(h, "POST", "Content-Type: application/json", initializeBody("2025-06-18"))
		}
		moreGoroutines, moreBytes := resources()
		b.ReportMetric(float64(moreBytes-bytes)/sessions, "B/session")
		b.ReportMetric(float64(moreGoroutines-goroutines)/sessions, "goroutines/session")
		if len(h.table.sessions) != sessions {
			b.Fatalf("%d sessions", len(h.table.sessions))
		}
		h.Close(0)
	}
}

func resources() (goroutines int, bytes uint64) {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return runtime.NumGoroutine(), stats.HeapAlloc
}

// mute answers initialize and nothing else. It uses the link where a receiver must not:
// its only stream is the one of initialize, whose goroutine holds no lock of the link
// at that time.
type mute struct{ link transport.Link }

func (m *mute) StreamOpened(stream transport.Stream, _ transport.Tag) { m.link.Grant(stream, 1) }
func (m *mute) Receive(in transport.Inbound) {
	m.link.Send(answering(in.Stream, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}`))
	in.Room.Release()
}
func (m *mute) StreamLost(transport.StreamLoss) {}
func (m *mute) Writable()                       {}
func (m *mute) Failed(transport.Failure)        {}
func (m *mute) Ended()                          {}
func (m *mute) Lost(transport.Loss)             {}
