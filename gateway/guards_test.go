package gateway_test

import (
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

// guardedCall returns what makes a call through a gateway, with or without what guards that of a team.
func guardedCall(b testing.TB, version string, guards bool) (call func()) {
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
		trail, err := audit.Open(filepath.Join(b.TempDir(), "audit.jsonl"), audit.Options{Key: key, Block: true})
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
	params := &protocol.CallToolParams{Name: "a__echo", Arguments: json.RawMessage(`{"message":"0123456789012345678901234567890123456789012345"}`)}
	return func() {
		if guards {
			if _, denied := known.Check(request); denied != nil {
				b.Fatal(denied)
			}
		}
		if _, err := session.CallTool(b.Context(), params); err != nil {
			b.Fatal(err)
		}
	}
}
