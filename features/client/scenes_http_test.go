package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// An observed RoundTripper notes what it sends and receives for somebody.
type observed struct {
	s    *conversation
	who  string
	next http.RoundTripper
}

func (o observed) RoundTrip(r *http.Request) (*http.Response, error) {
	place := o.who + " " + r.Method
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	o.s.notef(place, "%s %s %s", r.URL.Path, headers(r.Header), o.s.frame(body))
	w, err := o.next.RoundTrip(r)
	if err != nil {
		o.s.notef(place, "fails: %v", err)
		return nil, err
	}
	o.s.notef(place, "%s %s", w.Status, headers(w.Header))
	w.Body = &observedBody{ReadCloser: w.Body, note: func(line string) {
		if data, found := strings.CutPrefix(line, "data: "); found {
			line = "data: " + o.s.frame([]byte(data))
		}
		o.s.notef(place, "%s", line)
	}}
	return w, nil
}

// headers returns headers in order.
func headers(h http.Header) string {
	var all []string
	for name, values := range h {
		if name != "User-Agent" {
			all = append(all, name+": "+strings.Join(values, ", "))
		}
	}
	slices.Sort(all)
	return "[" + strings.Join(all, "; ") + "]"
}

// An observedBody notes each line of a body.
type observedBody struct {
	io.ReadCloser
	note func(string)

	mu   sync.Mutex
	line []byte
}

func (b *observedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.line = append(b.line, p[:n]...); ; {
		line, rest, found := bytes.Cut(b.line, []byte("\n"))
		if !found {
			break
		}
		if len(line) > 0 {
			b.note(string(line))
		}
		b.line = rest
	}
	if err == io.EOF && len(b.line) > 0 {
		b.note(string(b.line))
		b.line = nil
	}
	return n, err
}

// An office serves over HTTP on connections that need no network, and may be closed.
type office struct {
	s       *conversation
	handler *streamable.Handler
	http    *http.Server
	pipes   *pipeListener
	over    chan struct{}

	mu     sync.Mutex
	refuse func(http.ResponseWriter) // in place of an answer; nil: there is none
}

func (s *conversation) office(h *streamable.Handler) *office {
	o := &office{s: s, handler: h, pipes: newPipeListener(), over: make(chan struct{})}
	o.http = &http.Server{Handler: o}
	go func() {
		defer close(o.over)
		_ = o.http.Serve(o.pipes) // it ends with close
	}()
	return o
}

func (o *office) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	refuse := o.refuse
	o.mu.Unlock()
	if refuse != nil {
		refuse(w)
		return
	}
	o.handler.ServeHTTP(w, r)
}

func (o *office) refuses(with func(http.ResponseWriter)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refuse = with
}

func (o *office) client(who string) (*streamable.Client, *http.Transport) {
	pool := &http.Transport{DialContext: o.pipes.dial, DisableCompression: true}
	return &streamable.Client{URL: "http://post.example/mcp", HTTP: &http.Client{Transport: observed{o.s, who, pool}}}, pool
}

// Clients use a server over HTTP, in both eras; others send what it refuses.
func TestSceneOfHTTP(t *testing.T) {
	for _, version := range revisions[2:] {
		t.Run(version, func(t *testing.T) {
			play(t, "http-"+version, "Clients use a server over HTTP, in "+version, func(s *conversation) { s.overHTTP(version) })
		})
	}
}

func (s *conversation) overHTTP(version string) {
	s.brief = true
	for _, who := range []string{"ada", "ben", "eve"} {
		s.Places(who+" POST", who+" GET", who+" DELETE", who+" PUT")
	}
	s.Mask(`Mcp-Session-Id: ([0-9A-Za-z_-]{43})`, "secret")
	post := s.tourServer()
	o := s.office(streamable.NewHandler(post, streamable.HandlerOptions{
		SessionIdle: time.Hour, MaxBody: 4 << 10, MaxSessions: 3, KeepAlive: 20 * time.Second, Log: s.log("post"), AllowedHosts: []string{"post.example"},
		EventStore: &streamable.MemoryStore{},
	}))
	s.Step("Ada connects over HTTP")
	toA, poolA := o.client("ada")
	ada := s.client("ada", client.Options{ProtocolVersion: version, LogLevel: protocol.LogInfo, Conn: conn.Tuning{Liveness: -1}})
	a := s.connect("ada", ada, toA)
	s.pass(time.Second)
	s.Step("Ben connects over HTTP")
	toB, poolB := o.client("ben")
	silent := s.options("ben", client.Options{ProtocolVersion: version, Conn: conn.Tuning{Liveness: -1}})
	silent.OnEvent = nil
	ben := client.New(protocol.Implementation{Name: "ben", Version: "2.0"}, silent)
	b := s.connect("ben", ben, toB)
	s.pass(time.Second)
	s.Step("Ada weighs, with progress on the stream of her call, and Ben sends")
	watching := a.With(client.CallOptions{OnProgress: func(p *protocol.ProgressParams) { s.notef("ada progress", "%v of %v", p.Progress, p.Total) }})
	s.call("ada", "weigh", func(ctx context.Context) (any, error) {
		return client.Call[string](ctx, watching, "weigh", parcel{To: "Eve", Grams: 2})
	})
	s.call("ben", "send", func(ctx context.Context) (any, error) { return client.Call[parcel](ctx, b, "send", parcel{To: "Eve"}) })
	s.call("ben", "deny", func(ctx context.Context) (any, error) { return client.Call[string](ctx, b, "deny", nil) })
	s.Step("Ada subscribes, and the resource changes")
	s.call("ada", "Subscribe", func(ctx context.Context) (any, error) {
		return nil, a.Subscribe(ctx, &protocol.SubscribeParams{URI: "box://a"})
	})
	s.pass(2 * time.Second)
	post.ResourceUpdated("box://a")
	s.pass(time.Second)
	s.Step("Ben sends a lot, and then too much")
	s.call("ben", "send a lot", func(ctx context.Context) (any, error) {
		return client.Call[parcel](ctx, b, "send", parcel{To: strings.Repeat("x", 3<<10)})
	})
	s.call("ben", "send too much", func(ctx context.Context) (any, error) {
		return client.Call[parcel](ctx, b, "send", parcel{To: strings.Repeat("x", 5<<10)})
	})
	for _, status := range []int{401, 403, 404, 429, 500, 502, 503} {
		s.Step(fmt.Sprint("Ben gets status ", status))
		s.Sort() // a session may end while another begins
		o.refuses(func(w http.ResponseWriter) {
			if status == 429 || status == 503 {
				w.Header().Set("Retry-After", "3")
			}
			http.Error(w, "not today", status)
		})
		patient := b.With(client.CallOptions{Retries: 1, OnAttempt: func(conn.Attempt) { o.refuses(nil) }})
		s.call("ben", "Ping", func(ctx context.Context) (any, error) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return nil, patient.Ping(ctx)
		})
		o.refuses(nil)
		s.pass(5 * time.Second)
	}
	s.strangers(o, version)
	s.Step("Both close, and the server")
	s.call("ada", "Close", func(ctx context.Context) (any, error) { return nil, ada.Close(ctx) })
	s.pass(time.Second)
	s.call("ben", "Close", func(ctx context.Context) (any, error) { return nil, ben.Close(ctx) })
	s.pass(time.Second)
	stats := o.handler.Stats()
	s.notef("post counts", "%+v", stats)
	s.call("post", "Close", func(ctx context.Context) (any, error) { return nil, o.handler.Close(time.Second) })
	s.call("post", "Close", func(ctx context.Context) (any, error) { return nil, post.Close(ctx) })
	poolA.CloseIdleConnections()
	poolB.CloseIdleConnections()
	_ = o.http.Close()
	<-o.over
}

// strangers send requests that are refused.
func (s *conversation) strangers(o *office, version string) {
	pool := &http.Transport{DialContext: o.pipes.dial, DisableCompression: true}
	defer pool.CloseIdleConnections()
	eve := &http.Client{Transport: observed{s, "eve", pool}}
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + modern + `,"name":"send","arguments":{"to":"x"}}}`
	usual := "Content-Type: application/json|Accept: application/json, text/event-stream|MCP-Protocol-Version: " + version
	named := usual + "|Mcp-Method: tools/call|Mcp-Name: send"
	for _, one := range []struct{ method, header, body string }{
		{"PUT", usual, call}, {"POST", "", call}, {"POST", "Content-Type: text/plain|Accept: */*", call}, {"POST", "Content-Type: application/json|Accept: text/html", call},
		{"POST", usual, ""}, {"POST", usual, "x"}, {"POST", usual, call}, {"POST", named, call}, {"POST", strings.Replace(named, "send", "wait", 1), call},
		{"POST", strings.Replace(named, "tools/call", "ping", 1), call}, {"POST", strings.Replace(usual, version, "1999-01-01", 1), call},
		{"POST", usual, "[" + call + "]"}, {"POST", usual, `{"jsonrpc":"2.0","method":"notifications/none"}`}, {"POST", usual, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"POST", usual + "|Mcp-Session-Id: none-such", `{"jsonrpc":"2.0","id":1,"method":"ping"}`}, {"POST", usual + "|Origin: http://elsewhere.example", call},
		{"POST", usual + "|Host: elsewhere.example", call}, {"POST", usual, strings.Repeat(" ", 5<<10)}, {"GET", "", ""}, {"GET", "Accept: text/event-stream", ""},
		{"GET", "Accept: text/event-stream|Mcp-Session-Id: none-such", ""}, {"GET", "Accept: text/event-stream|Last-Event-ID: x", ""}, {"DELETE", "", ""},
		{"DELETE", "Mcp-Session-Id: none-such", ""},
		{"POST", usual, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"eve","version":"1"}}}`},
		{"POST", usual, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"eve","version":"1"}}}`},
	} {
		s.Step("Eve sends " + one.method + " with " + one.header)
		if strings.Contains(one.body, "initialize") {
			s.Sort() // it may end another session
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		r, err := http.NewRequestWithContext(ctx, one.method, "http://post.example/mcp", strings.NewReader(one.body))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, line := range strings.Split(one.header, "|") {
			name, value, _ := strings.Cut(line, ": ")
			if name == "Host" {
				r.Host = value
			} else if name != "" {
				r.Header.Set(name, value)
			}
		}
		if w, err := eve.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, w.Body)
			w.Body.Close()
		}
		cancel()
		s.pass(time.Second)
	}
}
