package streamable_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Without sessions, any of several independent nodes serves the requests of every
// revision, and no node keeps anything.
//
// Guarantees: G-0022.18
func TestStateless(t *testing.T) {
	var nodes []*streamable.Handler
	for range 3 {
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
		server.AddTool(s, protocol.Tool{Name: "greet"}, func(_ context.Context, in struct {
			Name string `json:"name"`
		}) (string, error) {
			return "hello " + in.Name, nil
		})
		h := streamable.NewHandler(s, streamable.HandlerOptions{Stateless: true})
		nodes = append(nodes, h)
		defer h.Close(0)
		defer s.Close(context.Background())
	}
	turn := make(chan int, 1)
	turn <- 0
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := <-turn
		turn <- n + 1
		if r.Header.Get("Mcp-Session-Id") != "" {
			t.Error("a client names a session, want none")
		}
		nodes[n%len(nodes)].ServeHTTP(w, r)
	}))
	defer site.Close()
	for _, version := range []string{protocol.Version20250326, protocol.Version20250618, protocol.Version20251125, protocol.Version20260728} {
		t.Run(version, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), guard)
			defer cancel()
			session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{ProtocolVersion: version}).
				Connect(ctx, &streamable.Client{URL: site.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
			if got := session.Server().ProtocolVersion; got != version {
				t.Errorf("got revision %s, want %v", got, version)
			}
			for range 7 {
				result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "greet", Arguments: []byte(`{"name":"you"}`)})
				if err != nil || result.IsError {
					t.Fatalf("%+v, %v, want no error", result, err)
				}
			}
		})
	}
	for _, method := range []string{"GET", "DELETE"} {
		r, _ := http.NewRequest(method, site.URL, nil)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 405 {
			t.Errorf("%s: got status %d, want 405", method, response.StatusCode)
		}
	}
	site.Close() // all requests are over
	for n, h := range nodes {
		if kept := h.Stats().Sessions; kept > 0 {
			t.Errorf("node %d keeps %d sessions, want none", n, kept)
		}
	}
}

// Requests for which no session is begun are refused like those with one.
//
// Guarantees: G-0022.18
func TestStatelessRefusals(t *testing.T) {
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	h := streamable.NewHandler(s, streamable.HandlerOptions{Stateless: true})
	defer h.Close(0)
	defer s.Close(context.Background())
	for name, test := range map[string]struct {
		header, value, body string
		status              int
		want                string
	}{
		"a session":        {"Mcp-Session-Id", "x", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 404, "session not found"},
		"a wrong revision": {"Mcp-Protocol-Version", "2020-01-01", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 400, "supported"},
		"a batch":          {"Mcp-Protocol-Version", "2025-11-25", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, 400, "batch"},
		"a batch then":     {"Mcp-Protocol-Version", "2025-03-26", `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]`, 200, `"id":2`},
		"no method":        {"Mcp-Protocol-Version", "2025-11-25", `{"jsonrpc":"2.0","id":1,"method":"none"}`, 200, "-32601"},
		"a notification":   {"Mcp-Protocol-Version", "2025-11-25", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, 202, ""},
	} {
		r := httptest.NewRequest("POST", "http://localhost/", strings.NewReader(test.body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set(test.header, test.value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body, _ := io.ReadAll(w.Body)
		if w.Code != test.status || !strings.Contains(string(body), test.want) || w.Header().Get("Mcp-Session-Id") != "" {
			t.Errorf("%s: got %d %s", name, w.Code, body)
		}
		if kept := h.Stats().Sessions; kept > 0 {
			t.Errorf("%s: %d sessions are kept, want none", name, kept)
		}
	}
}

// A request of a revision that the server does not have is refused, and not served in
// another revision.
//
// Guarantees: G-0022.18
func TestStatelessServesNoOtherRevision(t *testing.T) {
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{ProtocolVersions: []string{protocol.Version20250618}})
	h := streamable.NewHandler(s, streamable.HandlerOptions{Stateless: true})
	defer h.Close(0)
	defer s.Close(context.Background())
	for version, want := range map[string]int{"": 400, protocol.Version20250618: 200, protocol.Version20251125: 400} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "http://localhost/", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if version != "" {
			r.Header.Set("Mcp-Protocol-Version", version)
		}
		refused := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"the revision of the request is %s, and the server speaks \"2025-06-18\""}}`,
			cmp.Or(version, protocol.Version20250326))
		if h.ServeHTTP(w, r); w.Code != want || want == 400 && w.Body.String() != refused {
			t.Errorf("%q: got %d %s", version, w.Code, w.Body)
		}
	}
}
