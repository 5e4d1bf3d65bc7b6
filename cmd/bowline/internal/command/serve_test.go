package command

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

const initialize = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`

// TestServeAnswersAllThenEnds checks that all requests from a pipe that ends are answered,
// that each line of standard output is a message, and that the status is 0.
func TestServeAnswersAllThenEnds(t *testing.T) {
	o := bowline(t, initialize+`
this is not JSON
{"jsonrpc":"2.0","id":"ping","method":"ping"}
{"jsonrpc":"2.0","id":"list","method":"tools/list"}
{"jsonrpc":"2.0","id":"echo","method":"tools/call","params":{"name":"echo","arguments":{"message":"a\nb"}}}
{"jsonrpc":"2.0","id":"slow","method":"tools/call","params":{"name":"slow","arguments":{"seconds":0.05},"_meta":{"progressToken":"slow"}}}
{"jsonrpc":"2.0","id":"fail","method":"tools/call","params":{"name":"fail","arguments":{"message":"x"}}}
{"jsonrpc":"2.0","id":"none","method":"tools/call","params":{"name":"none"}}
{"jsonrpc":"2.0","id":"what","method":"what"}
`, "serve", "--stdio")
	o.want(t, 0, "", "")
	answers, results := make(map[string]int), 0
	for line := range strings.Lines(o.stdout) {
		m, err := jsonrpc.Decode([]byte(line), jsonrpc.Limits{})
		if err != nil {
			t.Errorf("not a message: %q: %v", line, err)
		}
		if m.Kind == jsonrpc.KindResult {
			results++
		}
		if m.Kind == jsonrpc.KindResult || m.Kind == jsonrpc.KindError {
			answers[string(m.ID.Append(nil))]++
		}
	}
	for _, id := range []string{"init", "ping", "list", "echo", "slow", "fail", "none", "what"} {
		if n := answers[`"`+id+`"`]; n != 1 {
			t.Errorf("%q has %d answers", id, n)
		}
	}
	if results != 6 { // all but of an unknown tool and an unknown method
		t.Errorf("%d results:\n%s", results, o.stdout)
	}
}

func TestServeOfNothingEnds(t *testing.T) {
	if o := bowline(t, "", "serve", "--stdio"); o != (outcome{}) {
		t.Errorf("status %d, standard output %q, standard error %q", o.status, o.stdout, o.stderr)
	}
}

// A subscription that is read just before the end of the input is acknowledged, and ends
// with a result.
//
// Guarantees: G-0020.7
func TestServeEndsASubscriptionInGoodOrder(t *testing.T) {
	o := bowline(t, `{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`+"\n", "serve", "--stdio")
	o.want(t, 0, "notifications/subscriptions/acknowledged", "")
	o.want(t, 0, `"id":"s","result":`, "")
	if strings.Contains(o.stdout, `"error"`) {
		t.Errorf("standard output: %s", o.stdout)
	}
}

// Proxies are addresses or ranges, and only a server over HTTP has any.
func TestServeTrustsProxies(t *testing.T) {
	trusted, err := parseProxies([]string{"10.0.0.0/8", "192.0.2.1", "2001:db8::1"})
	if got, want := fmt.Sprint(trusted), "[10.0.0.0/8 192.0.2.1/32 2001:db8::1/128]"; got != want || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	bowline(t, "", "serve", "--stdio", "--trusted-proxy", "10.0.0.1").want(t, process.ExitUsage, "", "--trusted-proxy needs --http")
	bowline(t, "", "serve", "--http", "127.0.0.1:0", "--trusted-proxy", "proxy").want(t, process.ExitUsage, "", "--trusted-proxy proxy: use an address")
}
