package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// One server, over HTTP, for clients of every revision. This client uses 2026-07-28,
// where each request describes its client.
func ExampleServer_Accept() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	type person struct {
		Name string `json:"name"`
	}
	server.AddTool(s, protocol.Tool{Name: "greet"},
		func(_ context.Context, in person) (string, error) {
			return "Hello, " + in.Name + "!", nil
		})

	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
	defer endpoint.Close(0)
	defer s.Close(context.Background())
	site := httptest.NewServer(endpoint) // a program has its http.Server
	defer site.Close()

	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Grace"},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	request, err := http.NewRequest(http.MethodPost, site.URL, strings.NewReader(call))
	if err != nil {
		fmt.Println(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Mcp-Protocol-Version", "2026-07-28")
	request.Header.Set("Mcp-Method", "tools/call")
	request.Header.Set("Mcp-Name", "greet")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		fmt.Println(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	fmt.Println(response.Status, err)
	fmt.Println(strings.Contains(string(answer), `"text":"Hello, Grace!"`))
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// 200 OK <nil>
	// true
}

// A tool that knows its caller. The middleware of net/http puts the subject of the
// Authorization header into the context of the request. The context of the handler has
// the same values, for this call only, in both eras.
func ExampleRequestFrom() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "whoami"}, func(ctx context.Context, _ struct{}) (string, error) {
		subject, _ := ctx.Value(userKey{}).(string)
		return subject + " from " + server.RequestFrom(ctx).Origin.Header("X-Region"), nil
	})
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
	defer endpoint.Close(0)
	defer s.Close(context.Background())
	site := httptest.NewServer(authenticate(endpoint)) // a program has its http.Server
	defer site.Close()

	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, subject := range []string{"ada", "grace"} {
			c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{ProtocolVersion: version})
			session, err := c.Connect(context.Background(), &streamable.Client{
				URL:    site.URL,
				Header: http.Header{"Authorization": {"Bearer " + subject}, "X-Region": {"eu"}},
			})
			if err != nil {
				fmt.Println(err)
				return
			}
			who, err := client.Call[string](context.Background(), session, "whoami", nil)
			fmt.Println(version, who, err, session.Close(context.Background()))
		}
	}
	// Output:
	// 2025-11-25 ada from eu <nil> <nil>
	// 2025-11-25 grace from eu <nil> <nil>
	// 2026-07-28 ada from eu <nil> <nil>
	// 2026-07-28 grace from eu <nil> <nil>
}

// A log of every request, also of those that were denied.
func ExampleOptions_audit() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{
		Audit: func(_ context.Context, r server.Record) {
			fmt.Println(r.Origin.Identity, r.Method, r.Name, r.Outcome, r.Err)
		},
	})
	server.AddTool(s, protocol.Tool{Name: "status"}, func(context.Context, struct{}) (string, error) { return "ok", nil })
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{
		Check: func(r *http.Request) (streamable.Caller, *streamable.Denial) {
			user, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ") // a program verifies a token here
			if !found {
				return nil, &streamable.Denial{Status: http.StatusUnauthorized, Text: "log in first"}
			}
			return streamable.NewCaller(user), nil
		},
	})
	defer endpoint.Close(0)
	defer s.Close(context.Background())
	site := httptest.NewServer(endpoint)
	defer site.Close()

	for _, header := range []http.Header{{"Authorization": {"Bearer ada"}}, {}} {
		c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{ProtocolVersion: protocol.Version20260728})
		session, err := c.Connect(context.Background(), &streamable.Client{URL: site.URL, Header: header})
		if err != nil {
			continue // without a login
		}
		_, _ = client.Call[string](context.Background(), session, "status", nil)
		_, _ = client.Call[string](context.Background(), session, "stop", nil)
		_ = session.Close(context.Background())
	}
	// Output:
	// ada server/discover  answered <nil>
	// ada tools/call status answered <nil>
	// ada tools/call stop failed jsonrpc: error -32602: unknown tool "stop"
	//    denied log in first
}

// A tool that only administrators see and can call.
func ExampleOptions_visible() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{
		Visible: func(ctx context.Context, f server.Feature) bool {
			return f.Name != "restart" || server.RequestFrom(ctx).Origin.Identity == "ada"
		},
	})
	for _, name := range []string{"restart", "status"} {
		server.AddTool(s, protocol.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "ok", nil })
	}
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{
		Identify: func(r *http.Request) string { // a program verifies a token here
			return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		},
	})
	defer endpoint.Close(0)
	defer s.Close(context.Background())
	site := httptest.NewServer(endpoint)
	defer site.Close()

	for _, user := range []string{"ada", "grace"} {
		c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{})
		session, err := c.Connect(context.Background(), &streamable.Client{URL: site.URL, Header: http.Header{"Authorization": {"Bearer " + user}}})
		if err != nil {
			fmt.Println(err)
			return
		}
		for tool, err := range session.Tools(context.Background()) {
			fmt.Println(user, "sees", tool.Name, err)
		}
		_, err = client.Call[string](context.Background(), session, "restart", nil)
		fmt.Println(err, session.Close(context.Background()))
	}
	// Output:
	// ada sees restart <nil>
	// ada sees status <nil>
	// <nil> <nil>
	// grace sees status <nil>
	// tools/call: jsonrpc: error -32602: unknown tool "restart" <nil>
}
