package gateway_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A call whose headers differ from the tool that it names, or from the arguments that they mirror, reaches no server.
//
// Guarantees: G-0088.17
func TestHeadersOfACallAreCompared(t *testing.T) {
	for _, back := range []string{protocol.LatestLegacy, protocol.Latest} {
		s, runs := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{}), 0
		for _, name := range []string{"t", "other"} {
			server.AddTool(s, protocol.Tool{Name: name}, func(_ context.Context, _ struct {
				Region string `json:"region" header:"Region"`
			}) (string, error) {
				runs++
				return "", nil
			})
		}
		f := newFleet(t, back, map[string]*server.Server{"a": s, "b": named("b")})
		web := httptest.NewServer(streamable.NewHandler(f.Server(), streamable.HandlerOptions{}))
		defer web.Close()
		for _, row := range []struct {
			name, region string
			status       int
		}{
			{"a__t", "eu", http.StatusOK}, {"a__t", "us", http.StatusBadRequest}, {"a__t", "", http.StatusBadRequest},
			{"a__other", "eu", http.StatusBadRequest}, {"b__who", "eu", http.StatusBadRequest}, {"t", "eu", http.StatusBadRequest}, {"", "eu", http.StatusBadRequest},
		} {
			before := runs
			r, err := http.NewRequestWithContext(timeout(t), http.MethodPost, web.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{
				"name":"a__t","arguments":{"region":"eu"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
				"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`))
			failOn(t, err)
			for name, value := range map[string]string{
				"Content-Type": "application/json", "Accept": "application/json,text/event-stream",
				"Mcp-Protocol-Version": protocol.Latest, "Mcp-Method": "tools/call", "Mcp-Name": row.name, "Mcp-Param-Region": row.region,
			} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			response, err := web.Client().Do(r)
			failOn(t, err)
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if ran := runs > before; response.StatusCode != row.status || ran != (row.status == http.StatusOK) || !ran && !strings.Contains(string(body), "-32020") {
				t.Errorf("%s, name %q, region %q: got %s %s, and the tool ran: %v", back, row.name, row.region, response.Status, body, ran)
			}
		}
	}
}
