package streamable_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// userKey is the context key of the user.
type userKey struct{}

// authenticate is ordinary net/http middleware: it adds the user of a request to the
// request's context.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer token-of-")
		if !ok {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

// newWhoAmI returns a server whose tool returns its caller.
func newWhoAmI() *server.Server {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "whoami"},
		func(ctx context.Context, _ struct{}) (string, error) {
			user, _ := ctx.Value(userKey{}).(string)
			return "You are " + user + ".", nil
		})
	return s
}

// whoAmI calls the tool as a user, in a protocol revision.
func whoAmI(ctx context.Context, url, user, version string) (string, error) {
	to := &streamable.Client{
		URL:    url,
		Header: http.Header{"Authorization": {"Bearer token-of-" + user}},
	}
	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{ProtocolVersion: version})
	session, err := c.Connect(ctx, to)
	if err != nil {
		return "", err
	}
	defer session.Close(ctx)
	result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "whoami"})
	if err != nil {
		return "", err
	}
	if text, ok := result.Content[0].(*protocol.TextContent); ok {
		return text.Text, nil
	}
	return "", errors.New("no text")
}

// A handler behind authentication. The tool gets the user from its context, and a
// session can be used only by the user who began it.
func ExampleNewHandler() {
	s := newWhoAmI()
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{
		Identify: func(r *http.Request) string {
			user, _ := r.Context().Value(userKey{}).(string)
			return user
		},
	})
	site := httptest.NewServer(authenticate(endpoint)) // a real program has an http.Server
	defer site.Close()
	defer endpoint.Close(time.Second)
	defer s.Close(context.Background())

	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, user := range []string{"Ada", "Grace"} {
			fmt.Println(whoAmI(context.Background(), site.URL, user, version))
		}
	}
	// Output:
	// You are Ada. <nil>
	// You are Grace. <nil>
	// You are Ada. <nil>
	// You are Grace. <nil>
}

// A server for clients with an API key. Its tools know the owner of the key.
func ExampleNewCaller() {
	keys := map[string]string{"Bearer token-of-Ada": "Ada"}
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "whoami"}, func(ctx context.Context, _ struct{}) (string, error) {
		return "You are " + server.RequestFrom(ctx).Origin.Identity + ".", nil
	})
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{
		Check: func(r *http.Request) (streamable.Caller, *streamable.Denial) {
			if user, known := keys[r.Header.Get("Authorization")]; known {
				return streamable.NewCaller(user), nil
			}
			return nil, &streamable.Denial{Status: http.StatusUnauthorized, Header: http.Header{"WWW-Authenticate": {"Bearer"}}}
		},
	})
	site := httptest.NewServer(endpoint)
	defer site.Close()
	defer endpoint.Close(time.Second)
	defer s.Close(context.Background())

	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		fmt.Println(whoAmI(context.Background(), site.URL, "Ada", version))
		_, err := whoAmI(context.Background(), site.URL, "Grace", version)
		fmt.Println("Grace is denied:", errors.Is(err, client.ErrDenied))
	}
	// Output:
	// You are Ada. <nil>
	// Grace is denied: true
	// You are Ada. <nil>
	// Grace is denied: true
}

// A program that serves until it is interrupted. It then lets its calls finish and
// exits.
func ExampleHandler_ListenAndServe() {
	mux := http.NewServeMux()
	endpoint := streamable.NewHandler(newWhoAmI(), streamable.HandlerOptions{})
	mux.Handle("/mcp", authenticate(endpoint))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	time.AfterFunc(10*time.Millisecond, stop) // in place of Ctrl-C
	fmt.Println(endpoint.ListenAndServe(ctx, &http.Server{Addr: "127.0.0.1:0", Handler: mux}))
	// Output: <nil>
}

// A client that sends a token with every request.
func ExampleClient() {
	s := newWhoAmI()
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
	site := httptest.NewServer(authenticate(endpoint))
	defer site.Close()
	defer endpoint.Close(time.Second)
	defer s.Close(context.Background())

	to := &streamable.Client{
		URL:    site.URL,
		Header: http.Header{"Authorization": {"Bearer token-of-Ada"}},
	}
	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{})
	session, err := c.Connect(context.Background(), to)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(context.Background())
	fmt.Println(session.Server().ProtocolVersion)
	// Output: 2026-07-28
}

// A server that shuts down properly: a call that runs when the program is interrupted
// still gets its result.
func ExampleHandler_Serve() {
	ctx, interrupt := context.WithCancel(context.Background()) // a program uses signal.NotifyContext
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "slow"}, func(context.Context, struct{}) (string, error) {
		interrupt()
		return "finished all the same", nil
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
	go func() { served <- endpoint.Serve(ctx, &http.Server{Handler: endpoint}, listener) }()

	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{FailFast: true})
	session, err := c.Connect(context.Background(), &streamable.Client{URL: "http://" + listener.Addr().String()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(context.Background())
	fmt.Println(client.Call[string](context.Background(), session, "slow", nil))
	fmt.Println(<-served)
	// Output:
	// finished all the same <nil>
	// <nil>
}

// A program with its own http.Server shuts down with one call: running calls finish,
// streams end, and then the http.Server shuts down.
func ExampleHandler_Shutdown() {
	endpoint := streamable.NewHandler(newWhoAmI(), streamable.HandlerOptions{})
	mux := http.NewServeMux()
	mux.Handle("/mcp", authenticate(endpoint))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	srv, ended := &http.Server{Handler: mux}, make(chan error, 1)
	go func() { ended <- srv.Serve(listener) }()
	ctx := context.Background()
	fmt.Println(whoAmI(ctx, "http://"+listener.Addr().String()+"/mcp", "ada", protocol.Latest))
	fmt.Println(endpoint.Shutdown(ctx, srv))
	fmt.Println(<-ended)
	// Output:
	// You are ada. <nil>
	// <nil>
	// http: Server closed
}
