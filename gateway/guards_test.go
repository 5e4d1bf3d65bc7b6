package gateway_test

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/tokens"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A guardedCall is a call of a tool through a gateway.
type guardedCall struct {
	version string // of the client and the server
	open    bool   // without what guards the gateway of a team
	sync    bool   // the record of the call is in its file before the answer
	size    int    // of its arguments, in bytes; 0: 64
	tool    string // "": a__echo
	refused bool   // the call fails
}

// prepare returns what makes the call.
func (c guardedCall) prepare(b testing.TB) (call func()) {
	version, guards := c.version, !c.open
	path := filepath.Join(b.TempDir(), "tokens.json")
	token, err := tokens.Add(path, "ada", time.Time{})
	if err != nil {
		b.Fatal(err)
	}
	known, err := tokens.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	request.Header.Set("Authorization", "Bearer "+token)
	text, o := `{"mcpServers":{"a":{"command":"/bin/a"}}}`, gateway.Options{}
	if guards {
		text = strings.TrimSuffix(text, "}") + `,"bowline":{"policy":[{"deny":["a/tool-9*"]},{"allow":["*"]}],` +
			`"personas":{"team":{"who":["token ada"],"allow":["a/*"]},"all":{"who":["*"],"allow":["a/echo"]}}}}`
		key := []byte(strings.Repeat("k", 32))
		trail, err := audit.Open(filepath.Join(b.TempDir(), "audit.jsonl"), audit.Options{Key: key, Block: true, Sync: c.sync})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { trail.Close() })
		o.Audit, o.Digest = trail.Write, audit.Digest(key)
	}
	s := echoServer(b)
	o.Each = func(of *mcpjson.Server, o *client.Options) {
		o.ProtocolVersion, of.Transport = version, inmem.New(s.Accept, inmem.Options{})
	}
	g := gateway.New(o)
	b.Cleanup(func() { g.Close(context.Background()) })
	file, err := mcpjson.Parse("mcp.json", []byte(text))
	if err == nil {
		_, err = g.Apply(b.Context(), file)
	}
	if err != nil {
		b.Fatal(err)
	}
	session := benchClientOver(b, version, func(link transport.Link) {
		g.Server().Accept(peertest.From(&transport.Origin{Identity: "token ada"}, link))
	})
	params := &protocol.CallToolParams{
		Name: cmp.Or(c.tool, "a__echo"), Arguments: json.RawMessage(`{"message":"` + strings.Repeat("0", cmp.Or(c.size, 64)-len(`{"message":""}`)) + `"}`),
	}
	return func() {
		if guards {
			if _, denied := known.Check(request); denied != nil {
				b.Fatal(denied)
			}
		}
		if _, err := session.CallTool(b.Context(), params); (err != nil) != c.refused {
			b.Fatal(err)
		}
	}
}
