package streamable

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// The suites pass with a session over a real socket. Each request has its own stream.
func TestSuitesOfASession(t *testing.T) {
	runSuites(t, func(t *testing.T) transport.Transport { return &Client{URL: serveEcho(t)} }, proptest.Options{
		Conn: conn.Options{Handshake: beginSession},
	})
}

func TestSuitesWithoutASession(t *testing.T) {
	runSuites(t, func(t *testing.T) transport.Transport { return &Client{URL: serveEcho(t)} }, proptest.Options{
		Params:  modernParams,
		Version: protocol.Version20260728,
		Conn:    conn.Options{Dialect: streamDialect{}},
	})
}

// The suites pass if the server calls and the client answers: over the GET stream of a
// session, and with POSTs.
func TestSuitesOfAServer(t *testing.T) {
	runSuites(t, func(t *testing.T) transport.Transport { return serverTransport{newOpener(t)} }, proptest.Options{})
}

func TestSoakOfASession(t *testing.T) {
	o := atWork(proptest.Options{Asks: true, Conn: conn.Options{Handshake: beginSession}})
	o.Calls, o.Window, o.Conn.RequestTimeout = 500, 50*time.Millisecond, 500*time.Millisecond
	proptest.Soak(t, func(t *testing.T, h conn.Handler) transport.Transport {
		return &Client{URL: serveWith(t, h, hangingUp)}
	}, o)
}

// atWork returns options for a real socket, where responses come soon or never. Each
// suite has one history per run; -bowline.iterations asks for more.
func atWork(o proptest.Options) proptest.Options {
	o.RealTime, o.Iterations, o.Concurrent, o.Window = true, 1, 10, 5*time.Millisecond
	o.Conn.RequestTimeout = 100 * time.Millisecond
	return o
}

func runSuites(t *testing.T, from func(*testing.T) transport.Transport, o proptest.Options) {
	for name, suite := range map[string]func(*testing.T, transport.Transport, proptest.Options){
		"Correlation":      proptest.Correlation,
		"NoLeaks":          proptest.NoLeaks,
		"CancelIdempotent": proptest.CancelIdempotent,
		"StopAnywhere":     proptest.StopAnywhere,
		"Restart":          proptest.Restart,
	} {
		t.Run(name, func(t *testing.T) { suite(t, from(t), atWork(o)) })
	}
}

func serveEcho(t *testing.T) (url string) {
	t.Helper()
	return serveWith(t, proptest.EchoHandler(), func(h http.Handler) http.Handler { return h })
}

// serveWith serves a handler, and returns its address.
func serveWith(t *testing.T, handler conn.Handler, through func(http.Handler) http.Handler) (url string) {
	t.Helper()
	h := NewHandler(accepting(func(link transport.Link) {
		c := conn.Accept(link, conn.Options{Handler: handler})
		c.Start(context.Background(), func(error) {})
	}), HandlerOptions{})
	s := httptest.NewServer(through(h))
	t.Cleanup(func() {
		h.Close(time.Second)
		s.Close()
	})
	return s.URL
}

// hangingUp executes one POST in eight and closes the connection without a response.
func hangingUp(h http.Handler) http.Handler {
	var posts atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && posts.Add(1)%8 == 0 {
			h.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	})
}

// beginSession performs the handshake of a legacy session.
func beginSession(ctx context.Context, i *conn.Incarnation) error {
	params := json.RawMessage(fmt.Sprintf(`{"protocolVersion":%q}`, protocol.LatestLegacy))
	if _, err := i.Call(ctx, conn.Request{Method: protocol.MethodInitialize, Params: params, Timeout: -1, Silent: true}); err != nil {
		return err
	}
	return i.Notify(ctx, protocol.NotificationInitialized, nil)
}

// modernParams returns the params of a call that names its revision.
func modernParams(n int) json.RawMessage {
	return fmt.Appendf(nil, `{"call":%d,"_meta":{%q:%q,%q:{}}}`,
		n, protocol.MetaProtocolVersion, protocol.Version20260728, protocol.MetaClientCapabilities)
}

// streamDialect is a dialect in which the end of its stream cancels a request.
type streamDialect struct{}

func (streamDialect) Classify(jsonrpc.Message) conn.Class   { return conn.Class{} }
func (streamDialect) Cancel(jsonrpc.ID, error) conn.Message { return conn.Message{} }
func (streamDialect) Probe() conn.Message                   { return conn.Message{} }
func (streamDialect) Batches() bool                         { return false }

// serverTransport is a transport with the server's links, whose peers are clients.
type serverTransport struct{ opener *opener }

func (c serverTransport) Open(context.Context) (transport.Link, error) {
	client, server, err := c.opener.open()
	if err != nil {
		return nil, err
	}
	echo := conn.Accept(client, conn.Options{Handler: proptest.EchoHandler(), Tuning: conn.Tuning{BackoffMin: time.Millisecond}})
	go echo.Run(context.Background())
	return server, nil
}
