package peers

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	ours "github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// protect runs a protected server until the end of the test. Whoami needs the scope read, and
// change needs write as well.
func protect(t *testing.T) (string, *authtest.Server) {
	t.Helper()
	listening := httptest.NewUnstartedServer(nil)
	address := "http://" + listening.Listener.Addr().String() + "/mcp"
	as := authtest.Start(t, authtest.Options{Resource: address})
	guard, err := resource.New(resource.Options{
		URL: address, Issuers: []resource.Issuer{{URL: as.Issuer()}}, Scopes: []string{"read"},
		Needs: func(op streamable.Operation) []string {
			if op.Name() == "change" {
				return []string{"read", "write"}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	tools := server.New(protocol.Implementation{Name: "protected", Version: "1"}, server.Options{})
	server.AddTool(tools, protocol.Tool{Name: "whoami"}, func(ctx context.Context, _ struct{}) (string, error) {
		return resource.PrincipalFrom(ctx).Subject, nil
	})
	server.AddTool(tools, protocol.Tool{Name: "change"}, func(ctx context.Context, _ struct{}) (string, error) {
		return "changed by " + resource.PrincipalFrom(ctx).Subject, nil
	})
	endpoint := streamable.NewHandler(tools, streamable.HandlerOptions{Check: guard.Check})
	mux := http.NewServeMux()
	mux.Handle("/mcp", endpoint)
	mux.Handle("/.well-known/", guard.Metadata())
	listening.Config.Handler = mux
	listening.Start()
	t.Cleanup(func() {
		if err := endpoint.Shutdown(context.Background(), nil); err != nil {
			t.Error(err)
		}
		listening.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return address, as
}

// A browser opens a page, and returns where a client is that reads the address.
type browser = func(ctx context.Context, page string) (*url.URL, error)

// goSDKLogin logs the official Go SDK in.
func goSDKLogin(t *testing.T, visit browser) auth.OAuthHandler {
	t.Helper()
	login, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: "go-sdk", RedirectURIs: []string{authtest.Redirect}, TokenEndpointAuthMethod: "none",
		}},
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			back, err := visit(ctx, args.URL)
			if err != nil {
				return nil, err
			}
			query := back.Query()
			return &auth.AuthorizationResult{Code: query.Get("code"), State: query.Get("state"), Iss: query.Get("iss")}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return login
}

// TestGoSDKLogsInToOurServer makes the official Go SDK find the authorization server, register, log
// in, call a tool, and log in again for a tool that needs more.
func TestGoSDKLogsInToOurServer(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			address, as := protect(t)
			pool := newPool()
			defer pool.CloseIdleConnections()
			transport := &mcp.StreamableClientTransport{Endpoint: address, HTTPClient: &http.Client{Transport: pool}, OAuthHandler: goSDKLogin(t, authtest.Visit)}
			session, err := mcp.NewClient(goSDK, nil).Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			for tool, want := range map[string]string{"whoami": "user", "change": "changed by user"} {
				result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
				if err != nil {
					t.Fatalf("%s: %v", tool, err)
				}
				if text, ok := result.Content[0].(*mcp.TextContent); !ok || result.IsError || text.Text != want {
					t.Errorf("%s: %+v, want %q", tool, result.Content[0], want)
				}
			}
			if n := len(as.Sink.Requests(authtest.Authorize)); n != 2 {
				t.Errorf("%d logins, want one, and one for the scope write", n)
			}
		})
	}
}

// TestWeLogInToAGoSDKServer tests Bowline's client with the bearer check of the official Go SDK.
func TestWeLogInToAGoSDKServer(t *testing.T) {
	listening := httptest.NewUnstartedServer(nil)
	root := "http://" + listening.Listener.Addr().String()
	as := authtest.Start(t, authtest.Options{Resource: root + "/mcp"})
	s := mcp.NewServer(goSDK, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "whoami"}, func(_ context.Context, r *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r.Extra.TokenInfo.UserID}}}, nil, nil
	})
	mux := http.NewServeMux()
	mux.Handle("/.well-known/oauth-protected-resource/mcp", auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: root + "/mcp", AuthorizationServers: []string{as.Issuer()}, ScopesSupported: []string{"read"},
	}))
	guard, err := resource.New(resource.Options{URL: root + "/mcp", Issuers: []resource.Issuer{{URL: as.Issuer()}}})
	if err != nil {
		t.Fatal(err)
	}
	verify := func(_ context.Context, _ string, r *http.Request) (*auth.TokenInfo, error) {
		caller, denied := guard.Check(r)
		if denied != nil {
			return nil, auth.ErrInvalidToken
		}
		p := caller.(*resource.Principal)
		return &auth.TokenInfo{UserID: p.Subject, Scopes: p.Scopes, Expiration: p.Expires}, nil
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	mux.Handle("/mcp", auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{
		ResourceMetadataURL: root + "/.well-known/oauth-protected-resource/mcp", Scopes: []string{"read"},
	})(handler))
	listening.Config.Handler = mux
	listening.Start()
	defer listening.Close()
	defer http.DefaultClient.CloseIdleConnections()
	login := ours.New(ours.Options{Interact: func(ctx context.Context, i ours.Interaction) (*url.URL, error) {
		return authtest.Consent(ctx, i.Start)
	}})
	defer login.Close()
	c := client.New(protocol.Implementation{Name: "bowline", Version: "1"}, client.Options{})
	session, err := c.Connect(t.Context(), &streamable.Client{URL: root + "/mcp", Authorizer: login})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	who, err := client.Call[string](t.Context(), session, "whoami", nil)
	if err != nil || who != "user" {
		t.Errorf("%q, %v", who, err)
	}
}
