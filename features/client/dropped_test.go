package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A roomless serves two tools whose large answers find no room, because another answer is not read. One of them
// begins an event stream.
type roomless struct {
	url  string
	runs atomic.Int64
}

func serveRoomless(t *testing.T) *roomless {
	r := new(roomless)
	s := server.New(serverInfo, server.Options{})
	type in struct {
		Size int `json:"size"`
	}
	server.AddTool(s, protocol.Tool{Name: "large"}, func(_ context.Context, in in) (string, error) {
		r.runs.Add(1)
		return strings.Repeat("x", in.Size), nil
	})
	server.AddTool(s, protocol.Tool{Name: "progress"}, func(ctx context.Context, in in) (string, error) {
		r.runs.Add(1)
		server.Progress(ctx, 1, 2, "half")
		return strings.Repeat("x", in.Size), nil
	})
	server.AddTool(s, protocol.Tool{Name: "unread"}, func(context.Context, in) (string, error) { return strings.Repeat("x", 15<<20), nil })
	h := streamable.NewHandler(s, streamable.HandlerOptions{MaxUnread: 1 << 20})
	site := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Close(0)
		site.Close()
	})
	r.url = site.URL
	session := r.begin(t, protocol.LatestLegacy)
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"unread","arguments":{"size":1}}}`
	response := r.open(t, "POST", call, "Mcp-Session-Id", session, "Mcp-Protocol-Version", protocol.LatestLegacy)
	t.Cleanup(func() { response.Body.Close() })
	for some, text := make([]byte, 1), ""; !strings.HasSuffix(text, "xxx"); text += string(some) { // until the answer has taken its room
		if _, err := response.Body.Read(some); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// open sends a message of a session, or asks for its events, and returns the response, which is not read.
func (r *roomless) open(t *testing.T, method, body string, header ...string) *http.Response {
	request, err := http.NewRequestWithContext(t.Context(), method, r.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// send reads the response as well.
func (r *roomless) send(t *testing.T, method, body string, header ...string) (*http.Response, string) {
	response := r.open(t, method, body, header...)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

// begin begins a session of a revision.
func (r *roomless) begin(t *testing.T, version string) (session string) {
	response, _ := r.send(t, "POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	return response.Header.Get("Mcp-Session-Id")
}

// The client of a call that was executed, and whose answer finds no room, learns that, in every revision, as
// JSON and in an event stream. It does not call again, and goes on calling.
//
// Guarantees: G-0087.2
func TestCallWhoseAnswerIsDroppedWasExecuted(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, tool := range []string{"large", "progress"} {
			t.Run(version+" "+tool, func(t *testing.T) {
				r := serveRoomless(t)
				session, err := client.New(clientInfo, client.Options{ProtocolVersion: version}).Connect(t.Context(), &streamable.Client{URL: r.url})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { session.Close(context.WithoutCancel(t.Context())) })
				view := session.With(client.CallOptions{Retries: 3, Repeatable: true, OnProgress: func(*protocol.ProgressParams) {}})
				_, err = client.Call[string](t.Context(), view, tool, map[string]int{"size": 2 << 20})
				failed := new(client.CallError)
				if !errors.Is(err, client.ErrDropped) || client.NotExecuted(err) || !errors.As(err, &failed) || len(failed.Attempts) != 0 || strings.Contains(err.Error(), "session") {
					t.Errorf("got %v, want one attempt that was executed, and its answer dropped", err)
				}
				if n := r.runs.Load(); n != 1 {
					t.Errorf("the tool ran %d times, want once", n)
				}
				if got, err := client.Call[string](t.Context(), view, tool, map[string]int{"size": 3}); err != nil || got != "xxx" {
					t.Errorf("a short answer: got %q, %v", got, err)
				}
			})
		}
	}
}

const droppedCode = `"code":-32051`

// Of a batch, only the answers that find no room are dropped.
//
// Guarantees: G-0087.3
func TestBatchLosesOnlyWhatFindsNoRoom(t *testing.T) {
	r := serveRoomless(t)
	session := r.begin(t, protocol.Version20250326)
	call := `{"jsonrpc":"2.0","id":"l","method":"tools/call","params":{"name":"large","arguments":{"size":2097152}}}`
	response, text := r.send(t, "POST", `[{"jsonrpc":"2.0","id":"p","method":"ping"},`+call+`]`, "Mcp-Session-Id", session)
	items, err := jsonrpc.DecodeBatch([]byte(text), jsonrpc.Limits{})
	if response.StatusCode != 200 || err != nil || len(items) != 2 {
		t.Fatalf("got %s and %d bytes, %v; want an array of two", response.Status, len(text), err)
	}
	for _, item := range items {
		if m := item.Message; (m.ID == jsonrpc.StringID("p")) != (m.Error == nil) || m.Error != nil && m.Error.Code != jsonrpc.CodeAnswerDropped {
			t.Errorf("id %v: got the error %v, want one for the tool alone", m.ID, m.Error)
		}
	}
}

// A client that comes back for a stream gets the same error again.
//
// Guarantees: G-0087.4
func TestReplayHasTheSameError(t *testing.T) {
	r := serveRoomless(t)
	session := r.begin(t, protocol.LatestLegacy)
	call := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"progress","arguments":{"size":2097152},"_meta":{"progressToken":1}}}`
	response, text := r.send(t, "POST", call, "Mcp-Session-Id", session, "Mcp-Protocol-Version", protocol.LatestLegacy)
	_, last, found := strings.Cut(text, "id: ")
	first, _, _ := strings.Cut(last, "\n")
	if response.StatusCode != 200 || !found || !strings.Contains(text, droppedCode) {
		t.Fatalf("got %s and %.300q, want a stream that ends with an error", response.Status, text)
	}
	_, again := r.send(t, "GET", "", "Mcp-Session-Id", session, "Mcp-Protocol-Version", protocol.LatestLegacy, "Last-Event-ID", first)
	if _, rest, _ := strings.Cut(text, "\n\n"); again != rest {
		t.Errorf("the replay is %q, want %q", again, rest)
	}
}
