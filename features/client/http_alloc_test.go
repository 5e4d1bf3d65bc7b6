//go:build !race

package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A call over HTTP allocates at most this much more than a POST of the same size with
// net/http: in client, server and transport together, including its handler and its
// result.
//
// Guarantees: G-0050.4
func TestCallOverHTTPAllocates(t *testing.T) {
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":` + echoArguments + `}}`)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Write(body)
	}))
	defer plain.Close()
	floor := testing.AllocsPerRun(500, func() {
		response, err := plain.Client().Post(plain.URL, "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
	})
	for version, most := range map[string]float64{protocol.LatestLegacy: 31, protocol.Latest: 45} {
		t.Run(version, func(t *testing.T) {
			s := echoServer(false)
			h := streamable.NewHandler(s, streamable.HandlerOptions{})
			site := httptest.NewServer(h)
			defer site.Close()
			defer h.Close(0)
			defer s.Close(context.Background())
			session, err := client.New(clientInfo, client.Options{ProtocolVersion: version}).Connect(t.Context(), &streamable.Client{URL: site.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
			params := &protocol.CallToolParams{Name: "echo", Arguments: json.RawMessage(echoArguments)}
			allocated := testing.AllocsPerRun(500, func() {
				if _, err := session.CallTool(context.Background(), params); err != nil {
					t.Fatal(err)
				}
			})
			t.Logf("%v allocations beside the %v of net/http", allocated-floor, floor)
			if allocated-floor > most {
				t.Fatalf("%v allocations beside the %v of net/http, want %v at most", allocated-floor, floor, most)
			}
		})
	}
}
