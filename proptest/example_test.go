package proptest_test

import (
	"context"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A transport without descriptors and processes is tested in virtual time. All suites are
// called in this way.
func ExampleCorrelation() {
	var t *testing.T // of a test

	peer := inmem.New(func(link transport.Link) { go proptest.Echo(link) }, inmem.Options{})
	proptest.Correlation(t, peer, proptest.Options{})
}

// The peer runs in its own process: the test binary, if its environment has the variable
// ECHO.
func ExampleEcho() {
	TestMain := func(m *testing.M) {
		if os.Getenv("ECHO") == "" {
			os.Exit(m.Run())
		}
		link, err := new(stdio.Server).Open(context.Background())
		if err != nil {
			panic(err)
		}
		proptest.Echo(link)
	}
	TestRestart := func(t *testing.T) {
		peer := &stdio.Command{Path: os.Args[0], Env: []string{"ECHO=1"}}
		proptest.Restart(t, peer, proptest.Options{
			RealTime: true, Iterations: 3, Concurrent: 10, Window: 5 * time.Millisecond,
			Conn: conn.Options{Tuning: conn.Tuning{RequestTimeout: 100 * time.Millisecond}},
		})
	}
	_, _ = TestMain, TestRestart
}

// An echoServer serves links with a handler that echoes.
type echoServer struct{}

func (echoServer) Accept(link transport.Link) {
	c := conn.Accept(link, conn.Options{Handler: proptest.EchoHandler()})
	c.Start(context.Background(), func(error) {})
}

func (echoServer) Close(context.Context) error { return nil }

// The peer is behind an HTTP handler. Each session begins with a handshake.
func ExampleEchoHandler() {
	var t *testing.T // of a test

	h := streamable.NewHandler(echoServer{}, streamable.HandlerOptions{})
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Close(time.Second)
		server.Close()
	})
	proptest.NoLeaks(t, &streamable.Client{URL: server.URL}, proptest.Options{
		RealTime: true, Iterations: 3, Concurrent: 10, Window: 5 * time.Millisecond,
		Conn: conn.Options{
			Handshake: func(ctx context.Context, i *conn.Incarnation) error {
				begin := conn.Request{Method: "initialize", Params: []byte(`{"protocolVersion":"2025-11-25"}`), Timeout: -1}
				if _, err := i.Call(ctx, begin); err != nil {
					return err
				}
				return i.Notify(ctx, "notifications/initialized", nil)
			},
			Tuning: conn.Tuning{
				RequestTimeout: 100 * time.Millisecond,
			},
		},
	})
}

// Here the peer serves with a handler that counts what it executes.
func ExampleSoak() {
	var t *testing.T // of a test

	peer := func(_ *testing.T, h conn.Handler) transport.Transport {
		return inmem.New(func(link transport.Link) {
			go conn.Accept(link, conn.Options{Handler: h}).Run(context.Background())
		}, inmem.Options{})
	}
	proptest.Soak(t, peer, proptest.Options{Calls: 100_000})
}
