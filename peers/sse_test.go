//go:build npm

package peers

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/server"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The servers and clients of HTTP+SSE, the transport of 2024-11-05.

func overSSEBowline() (http.Handler, func(context.Context) error) {
	s := newBowlineServer()
	handler := sse.NewHandler(s, sse.HandlerOptions{})
	return handler, func(ctx context.Context) error { return errors.Join(s.Close(ctx), handler.Close(0)) }
}

func overSSEGoSDK() (http.Handler, func(context.Context) error) {
	s := newGoSDKServer()
	return mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil), func(context.Context) error { return nil }
}

func overSSEMCPGo() (http.Handler, func(context.Context) error) {
	handler := server.NewSSEServer(newMCPGoServer(), server.WithUseFullURLForMessageEndpoint(false))
	return handler, handler.Shutdown
}

func connectSSEBowline(ctx context.Context, at Endpoint, revision string) (Session, error) {
	return openBowline(ctx, &sse.Client{URL: at.URL, HTTP: &http.Client{Transport: newPool()}}, revision)
}

func connectSSEGoSDK(ctx context.Context, at Endpoint, revision string) (Session, error) {
	return openGoSDK(ctx, &mcp.SSEClientTransport{Endpoint: at.URL, HTTPClient: &http.Client{Transport: newPool()}}, revision)
}

func connectSSEMCPGo(ctx context.Context, at Endpoint, revision string) (Session, error) {
	t, err := transport.NewSSE(at.URL, transport.WithHTTPClient(&http.Client{Transport: newPool()}))
	if err != nil {
		return nil, err
	}
	return openMCPGo(ctx, t, revision)
}

// sseChecks are the columns.
var sseChecks = []struct {
	name string
	run  func(context.Context, *subject) (string, error)
}{
	{"tools/list", checkList},
	{"tools/call", checkSuccess},
	{"isError", checkFailure},
	{"an unknown tool", checkUnknown},
	{"progress", checkProgress},
	{"ping", checkPing},
}

// sseTable runs the checks with each pair, in the revision of the transport.
func sseTable(t *testing.T, goSDK, mcpGo string) string {
	bowline, theirs := site{handler: overSSEBowline}, everythingServer(HTTP)
	theirs.Server = command(append(theirs.Server("")[:2:2], "sse")...)
	bowlineServer := withOurTools(Peer{Role: ClientRole})
	theirServer := withOurTools(Peer{Role: ServerRole})
	columns := []string{"Bowline and"}
	for _, check := range sseChecks {
		columns = append(columns, check.name)
	}
	var table strings.Builder
	table.WriteString("\n## HTTP+SSE\n\nThe transport of 2024-11-05, in that revision.\n\n" + heading(columns))
	for _, pair := range []struct {
		name    string
		peer    Peer
		site    site
		connect Connect
	}{
		{goSDK + " as the server", theirServer, site{handler: overSSEGoSDK}, connectSSEBowline},
		{mcpGo + " as the server", theirServer, site{handler: overSSEMCPGo}, connectSSEBowline},
		{theirs.Name + " " + theirs.Version + " as the server", theirs, site{command: theirs.Server("")}, connectSSEBowline},
		{goSDK + " as the client", bowlineServer, bowline, connectSSEGoSDK},
		{mcpGo + " as the client", bowlineServer, bowline, connectSSEMCPGo},
		{typeScriptV1.title() + " as the client", bowlineServer, bowline, connectTypeScript(typeScriptV1)},
		{typeScriptClientV2.title() + " as the client", bowlineServer, bowline, connectTypeScript(typeScriptClientV2)},
	} {
		cells := []string{pair.name}
		t.Run("sse: "+pair.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(schemaContext(t), hangGuard)
			defer cancel()
			address := pair.site.address(ctx, t)
			session, err := pair.connect(ctx, Endpoint{URL: "http://" + address + "/sse"}, protocol.Version20241105)
			if err != nil {
				t.Fatal(err)
			}
			s := &subject{Peer: pair.peer, revision: protocol.Version20241105, session: session}
			for _, check := range sseChecks {
				seen, err := check.run(ctx, s)
				if err != nil {
					t.Errorf("%s: %v", check.name, err)
				}
				cells = append(cells, seen)
			}
			if err := session.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		table.WriteString(row(cells))
	}
	return table.String()
}
