package streamable

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A site is a handler behind a real HTTP server.
type site struct {
	t       testing.TB
	handler *Handler
	*acceptor
	server *httptest.Server
	ctx    context.Context
}

func newSite(t testing.TB, o HandlerOptions) *site {
	return newScriptedSite(t, o, newAcceptor(respond))
}

func newScriptedSite(t testing.TB, o HandlerOptions, a *acceptor) *site {
	ctx, cancel := context.WithTimeout(context.Background(), hangLimit)
	h := NewHandler(a, o)
	s := &site{t: t, handler: h, acceptor: a, server: httptest.NewServer(h), ctx: ctx}
	t.Cleanup(func() {
		if err := h.Close(0); err != nil {
			t.Errorf("Close: %v", err)
		}
		cancel()
		s.server.Close()
		a.finish(t)
		if small, large := h.unread.Small.Held(), h.unread.Large.Held(); small != 0 || large != 0 {
			t.Errorf("%d and %d bytes are charged at the end, want none", small, large)
		}
		h.served.wantHeld(t, 0)
	})
	return s
}

// A header consists of "Name: value" lines.
type header []string

func (s *site) request(ctx context.Context, method, body string, lines header) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, s.server.URL+"/mcp", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Add(name, value)
		}
	}
	return r
}

// begin sends a request, and returns its response once the status has arrived.
func (s *site) begin(ctx context.Context, method, body string, lines header) *http.Response {
	s.t.Helper()
	response, err := s.server.Client().Do(s.request(ctx, method, body, lines))
	if err != nil {
		s.t.Fatal(err)
	}
	return response
}

// A reply is a complete response.
type reply struct {
	status int
	header http.Header
	body   string
}

func (s *site) do(method, body string, lines header) reply {
	s.t.Helper()
	return s.whole(s.begin(s.ctx, method, body, lines))
}

func (s *site) whole(response *http.Response) reply {
	s.t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatalf("read the body: %v", err)
	}
	return reply{response.StatusCode, response.Header, string(body)}
}

// post sends a message with the headers that each POST needs.
func (s *site) post(body string, lines ...string) reply {
	s.t.Helper()
	return s.do("POST", body, append(posting(), lines...))
}

func posting() header {
	return header{"Content-Type: application/json", "Accept: application/json, text/event-stream"}
}

// initialize begins a session, and returns the header line that names it.
func (s *site) initialize(version string, lines ...string) (session string) {
	s.t.Helper()
	r := s.post(initializeBody(version), lines...)
	id := r.header.Get("Mcp-Session-Id")
	if r.status != 200 || id == "" {
		s.t.Fatalf("initialize: got %+v", r)
	}
	return "Mcp-Session-Id: " + id
}

func initializeBody(version string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q}}`, version)
}

// modernBody is a message with its revision.
func modernBody(method, more string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, method, more)
}

func modernHeader(method string, more ...string) []string {
	return append([]string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}, more...)
}

func (s *site) modern(method, more string, lines ...string) reply {
	s.t.Helper()
	return s.post(modernBody(method, more), modernHeader(method, lines...)...)
}

// wantError checks the JSON-RPC error in a body: its code, its id as JSON, and its text if one is given. Only what the handler or its server has
// too much of is to be sent again.
func (r reply) wantError(t testing.TB, status int, code int64, id string, text ...string) {
	t.Helper()
	var body struct {
		ID    json.RawMessage
		Error *struct {
			Code    int64
			Message string
		}
	}
	if err := json.Unmarshal([]byte(r.body), &body); err != nil || body.Error == nil {
		t.Errorf("got status %d and the body %.200q, want an error", r.status, r.body)
		return
	}
	if r.status != status || body.Error.Code != code || string(body.ID) != id {
		t.Errorf("got status %d, body %s; want %d, code %d, id %q", r.status, r.body, status, code, id)
	}
	if again := r.header.Get("Retry-After"); (again == soon) != (code == jsonrpc.CodeOverloaded) || again != soon && again != "" {
		t.Errorf("got Retry-After %q with the code %d", again, code)
	}
	if len(text) > 0 && body.Error.Message != text[0] {
		t.Errorf("got the text %q, want %q", body.Error.Message, text[0])
	}
	if r.header.Get("Content-Type") != "application/json" || body.Error.Message == "" || len(r.body) > 1000 {
		t.Errorf("got %q, %d bytes: %s", r.header.Get("Content-Type"), len(r.body), r.body)
	}
}

// An eventReader reads the events of a response.
type eventReader struct {
	t      testing.TB
	body   io.ReadCloser
	lines  *bufio.Reader
	cancel context.CancelFunc

	id, retry string // of the last event that had one
}

// listen begins a request whose response is a stream of events.
func (s *site) listen(method, body string, lines header) *eventReader {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	response := s.begin(ctx, method, body, lines)
	l := &eventReader{t: s.t, body: response.Body, lines: bufio.NewReader(response.Body), cancel: cancel}
	s.t.Cleanup(l.leave)
	if kind := response.Header.Get("Content-Type"); response.StatusCode != 200 || kind != "text/event-stream" {
		s.t.Fatalf("got status %d, %s, want response.StatusCode == 200 and kind == %q", response.StatusCode, kind, "text/event-stream")
	}
	if h := response.Header; h.Get("Cache-Control") != "no-cache" || h.Get("X-Accel-Buffering") != "no" {
		s.t.Errorf("got the headers %v for an event stream", h)
	}
	return l
}

func (s *site) get(session string, lines ...string) *eventReader {
	s.t.Helper()
	l := s.listen("GET", "", append(header{"Accept: text/event-stream", session}, lines...))
	l.wantComment()
	return l
}

func (l *eventReader) leave() {
	l.cancel()
	l.body.Close()
}

// next returns the next block of lines without its id and retry, or "" at a proper end.
// An event with only those counts as a comment.
func (l *eventReader) next() string {
	l.t.Helper()
	var block bytes.Buffer
	for {
		line, err := l.lines.ReadString('\n')
		if err == io.EOF && block.Len() == 0 && line == "" {
			return ""
		}
		if err != nil {
			l.t.Fatalf("the events were cut off after %q: %v", block.String()+line, err)
		}
		id, isID := strings.CutPrefix(line, "id: ")
		retry, isRetry := strings.CutPrefix(line, "retry: ")
		switch {
		case isID:
			l.id = strings.TrimSpace(id)
		case isRetry:
			l.retry = strings.TrimSpace(retry)
		case line == "\n" && block.String() == "data: \n":
			return ":\n"
		case line == "\n":
			return block.String()
		default:
			block.WriteString(line)
		}
	}
}

func (l *eventReader) wantComment() {
	l.t.Helper()
	if got := l.next(); got != ":\n" {
		l.t.Fatalf("got %q, want a comment", got)
	}
}

func (l *eventReader) want(data string) {
	l.t.Helper()
	for got := l.next(); got != "data: "+data+"\n"; got = l.next() {
		if got != ":\n" {
			l.t.Fatalf("got %q, want %q", got, data)
		}
	}
}

func (l *eventReader) wantEnd() {
	l.t.Helper()
	for got := l.next(); got != ""; got = l.next() {
		if got != ":\n" {
			l.t.Fatalf("got %q, want the end", got)
		}
	}
}

// wantAbort checks that the stream is aborted, so that it does not look complete.
func (l *eventReader) wantAbort() {
	l.t.Helper()
	if rest, err := io.ReadAll(l.lines); len(strings.Trim(string(rest), ":\n")) > 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
		l.t.Fatalf("got %q, %v, want an abort", rest, err)
	}
}

// pending sends a request, and returns a channel for its response.
func (s *site) pending(ctx context.Context, body string, lines ...string) <-chan reply {
	replies := make(chan reply, 1)
	request := s.request(ctx, "POST", body, append(posting(), lines...))
	go func() {
		defer close(replies)
		response, err := s.server.Client().Do(request)
		if err != nil {
			return
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err == nil {
			replies <- reply{response.StatusCode, response.Header, string(text)}
		}
	}()
	return replies
}

func (s *site) receive(replies <-chan reply) reply {
	s.t.Helper()
	select {
	case r := <-replies:
		return r
	case <-s.ctx.Done():
		s.t.Fatal("got no response in time")
		return reply{}
	}
}
