package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

var (
	clientInfo = protocol.Implementation{Name: "test client", Version: "1"}
	serverInfo = protocol.Implementation{Name: "test server", Version: "1"}
)

type numbers struct {
	A int64 `json:"a"`
	B int64 `json:"b"`
}

type sum struct {
	Sum int64 `json:"sum"`
}

// newServer returns a server with a few tools.
func newServer(o server.Options) *server.Server {
	s := server.New(serverInfo, o)
	server.AddTool(s, protocol.Tool{Name: "add"}, func(_ context.Context, in numbers) (sum, error) {
		return sum{in.A + in.B}, nil
	})
	server.AddTool(s, protocol.Tool{Name: "fail"}, func(context.Context, struct{}) (string, error) {
		return "", errors.New("out of cheese")
	})
	server.AddTool(s, protocol.Tool{Name: "panic"}, func(context.Context, struct{}) (string, error) {
		panic("secret")
	})
	server.AddTool(s, protocol.Tool{Name: "hang"}, func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	server.AddTool(s, protocol.Tool{Name: "count"}, func(ctx context.Context, _ struct{}) (string, error) {
		for i := range 3 {
			server.Progress(ctx, i+1, 3, "counting")
		}
		return "three", nil
	})
	return s
}

// A network connects clients to a server, and can cut their links.
type network struct {
	t       testing.TB // checks the messages; nil for a measurement
	server  *server.Server
	serving sync.WaitGroup
	mu      sync.Mutex
	cut     []context.CancelFunc
}

func (n *network) transport() transport.Transport {
	watch := func(link transport.Link) transport.Link { return link }
	if n.t != nil {
		watch = specification.WatchServer(n.t)
	}
	return inmem.New(func(link transport.Link) {
		ctx, cancel := context.WithCancel(context.Background())
		n.mu.Lock()
		n.cut = append(n.cut, cancel)
		n.mu.Unlock()
		n.serving.Go(func() { n.server.ServeLink(ctx, watch(link)) })
	}, inmem.Options{})
}

// cutAll closes every link from the server's side.
func (n *network) cutAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, cancel := range n.cut {
		cancel()
	}
}

func (n *network) close() {
	n.cutAll()
	n.serving.Wait()
}

// open connects a client to a server for the length of a test.
func open(t *testing.T, s *server.Server, o client.Options) (*client.Session, *network) {
	t.Helper()
	n := &network{t: t, server: s}
	session, err := client.New(clientInfo, o).Connect(t.Context(), specification.WatchClient(t, n.transport()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		session.Close(context.Background())
		n.close()
	})
	return session, n
}

func callTool(t *testing.T, s *client.Session, name, arguments string) (*protocol.CallToolResult, error) {
	t.Helper()
	params := &protocol.CallToolParams{Name: name}
	if arguments != "" {
		params.Arguments = json.RawMessage(arguments)
	}
	return s.CallTool(t.Context(), params)
}

func TestTypedToolAnswers(t *testing.T) {
	session, _ := open(t, newServer(server.Options{}), client.Options{})
	result, err := callTool(t, session, "add", `{"a":9007199254740992,"b":1}`)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"sum":9007199254740993}`
	if string(result.StructuredContent) != want || result.Content.Text() != want || result.IsError {
		t.Errorf("got %+v, want string(result.StructuredContent) == %v and result.Content.Text() == %v", result, want, want)
	}
}

func TestEveryLegacyRevisionIsNegotiated(t *testing.T) {
	for _, version := range protocol.LegacyVersions() {
		session, _ := open(t, newServer(server.Options{}), client.Options{ProtocolVersion: version})
		if got := session.Server().ProtocolVersion; got != version {
			t.Errorf("got revision %s, want %s", got, version)
		}
		if result, err := callTool(t, session, "add", `{"a":1,"b":2}`); err != nil || result.IsError {
			t.Errorf("%s: got %+v, %v, want no error", version, result, err)
		}
	}
}

func TestOlderRevisionIsAccepted(t *testing.T) {
	old := server.Options{ProtocolVersions: []string{protocol.Version20241105}}
	session, _ := open(t, newServer(old), client.Options{})
	if got := session.Server().ProtocolVersion; got != protocol.Version20241105 {
		t.Errorf("got %s, want %v", got, protocol.Version20241105)
	}
}

func TestToolFailureIsAResult(t *testing.T) {
	session, _ := open(t, newServer(server.Options{}), client.Options{})
	result, err := callTool(t, session, "fail", "")
	if err != nil || !result.IsError || result.Content.Text() != "out of cheese" {
		t.Errorf("got %+v, %v, want a tool error and result.Content.Text() == %q", result, err, "out of cheese")
	}
}

func TestToolPanicIsContainedAndNotLeaked(t *testing.T) {
	session, _ := open(t, newServer(server.Options{}), client.Options{})
	_, err := callTool(t, session, "panic", "")
	if !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeInternalError}) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	if err := session.Ping(t.Context()); err != nil {
		t.Errorf("after the panic: %v", err)
	}
}

func TestUnknownToolIsAProtocolError(t *testing.T) {
	session, _ := open(t, newServer(server.Options{}), client.Options{})
	_, err := callTool(t, session, "nope", "")
	if !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}) || !strings.Contains(err.Error(), "nope") {
		t.Errorf("got %v", err)
	}
}

func TestInvalidArgumentsNeverReachTheTool(t *testing.T) {
	for _, arguments := range []string{`{}`, `{"a":1}`, `{"a":"1","b":2}`, `{"a":1,"b":2,"c":3}`, `{"A":1,"B":2}`, `{"a":1.5,"b":2}`} {
		session, _ := open(t, newServer(server.Options{}), client.Options{})
		result, err := callTool(t, session, "add", arguments)
		if err != nil || !result.IsError || !strings.Contains(result.Content.Text(), "invalid arguments") {
			t.Errorf("%s: got %+v, %v, want a tool error and %q in it", arguments, result, err, "invalid arguments")
		}
		old, _ := open(t, newServer(server.Options{}), client.Options{ProtocolVersion: protocol.Version20250618})
		if _, err := callTool(t, old, "add", arguments); !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}) {
			t.Errorf("%s before 2025-11-25: got %v", arguments, err)
		}
	}
}

func TestToolsRangesOverAllPages(t *testing.T) {
	s := server.New(serverInfo, server.Options{PageSize: 7})
	var want []string
	for i := range 30 {
		name := fmt.Sprintf("tool-%02d", i)
		want = append(want, name)
		server.AddTool(s, protocol.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error) { return nil, nil })
	}
	session, _ := open(t, s, client.Options{})
	var got []string
	for tool, err := range session.Tools(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, tool.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	bad := "nonsense"
	_, err := session.ListTools(t.Context(), &protocol.ListToolsParams{Cursor: &bad})
	if !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}) {
		t.Errorf("a foreign cursor got %v", err)
	}
}

func TestListToolsNeedsTheCapability(t *testing.T) {
	session, _ := open(t, server.New(serverInfo, server.Options{}), client.Options{ProtocolVersion: protocol.LatestLegacy})
	var missing *client.CapabilityError
	if _, err := session.ListTools(t.Context(), nil); !errors.As(err, &missing) || missing.Capability != "tools" {
		t.Errorf("got %v, want a *client.CapabilityError and missing.Capability == %q", err, "tools")
	}
}

func TestProgressArrivesBeforeTheResult(t *testing.T) {
	session, _ := open(t, newServer(server.Options{}), client.Options{})
	var seen []float64
	view := session.With(client.CallOptions{OnProgress: func(p *protocol.ProgressParams) { seen = append(seen, p.Progress) }})
	result, err := callTool(t, view, "count", "")
	if err != nil || result.Content.Text() != "three" {
		t.Fatalf("got %+v, %v, want %q", result, err, "three")
	}
	if len(seen) == 0 || seen[len(seen)-1] != 3 || !slices.IsSorted(seen) {
		t.Errorf("progress was %v", seen)
	}
}

func TestCancellationReachesTheTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session, n := open(t, newServer(server.Options{}), client.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "hang"})
			result <- err
		}()
		synctest.Wait()
		cancel()
		var failed *conn.CallError
		if err := <-result; !errors.As(err, &failed) || failed.Cause != conn.Cancelled || failed.Delivery != conn.Unknown {
			t.Errorf("got %v, want a *conn.CallError, failed.Cause == %v and failed.Delivery == %v", err, conn.Cancelled, conn.Unknown)
		}
		synctest.Wait() // the bubble never ends unless the tool returns
		session.Close(t.Context())
		n.close()
	})
}

func TestSessionSurvivesItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session, n := open(t, newServer(server.Options{}), client.Options{})
		n.cutAll()
		synctest.Wait()
		if _, err := callTool(t, session, "add", `{"a":1,"b":2}`); !conn.NotExecuted(err) {
			t.Errorf("without a server: got %v", err)
		}
		waiting := session.With(client.CallOptions{WaitForReady: true})
		if result, err := callTool(t, waiting, "add", `{"a":1,"b":2}`); err != nil || string(result.StructuredContent) != `{"sum":3}` {
			t.Errorf("got %+v, %v, want %q", result, err, `{"sum":3}`)
		}
		if epoch := session.Conn().Status().Epoch; epoch != 2 {
			t.Errorf("epoch is %d, want 2", epoch)
		}
		session.Close(t.Context())
		n.close()
	})
}

func TestSilentServerFailsToConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent []transport.Link
		mute := inmem.New(func(link transport.Link) { silent = append(silent, link) }, inmem.Options{})
		_, err := client.New(clientInfo, client.Options{FailFast: true}).Connect(t.Context(), mute)
		var reason conn.Reason
		if !errors.As(err, &reason) || reason.Kind != conn.InitTimedOut {
			t.Errorf("got %v, want a conn.Reason and reason.Kind == %v", err, conn.InitTimedOut)
		}
		for _, link := range silent {
			link.Close(0)
		}
	})
}

func TestConnectEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := client.New(clientInfo, client.Options{}).Connect(ctx, openFunc(func(context.Context) (transport.Link, error) { return nil, refused }))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, refused) {
			t.Errorf("got %v, want the error %v and the error %v", err, context.DeadlineExceeded, refused)
		}
	})
}

type openFunc func(context.Context) (transport.Link, error)

func (o openFunc) Open(ctx context.Context) (transport.Link, error) { return o(ctx) }

// With the right options, progress extends the timeout of a call, up to a limit.
//
// Guarantees: G-0003.13
func TestProgressKeepsACallAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "slow"}, func(ctx context.Context, _ struct{}) (string, error) {
			for step := range 5 {
				timer := time.NewTimer(20 * time.Second)
				select {
				case <-timer.C:
				case <-ctx.Done():
					return "", ctx.Err()
				}
				server.Progress(ctx, step+1, 5, "")
			}
			return "done", nil
		})
		session, n := open(t, s, client.Options{})
		params := &protocol.CallToolParams{Name: "slow"}
		if _, err := session.CallTool(t.Context(), params); !errors.Is(err, conn.ErrTimedOut) {
			t.Errorf("without extension: %v, want %v", err, conn.ErrTimedOut)
		}
		if _, err := session.With(client.CallOptions{ProgressRestarts: true}).CallTool(t.Context(), params); err != nil {
			t.Errorf("with progress: %v", err)
		}
		if _, err := session.With(client.CallOptions{ProgressRestarts: true, MaxTimeout: time.Minute}).CallTool(t.Context(), params); !errors.Is(err, conn.ErrTimedOut) {
			t.Errorf("beyond the limit: %v, want %v", err, conn.ErrTimedOut)
		}
		session.Close(t.Context())
		n.close()
	})
}

// A modern server that declares tools may add its first one later.
func TestFirstToolOfAModernServerIsFound(t *testing.T) {
	s := server.New(serverInfo, server.Options{Capabilities: protocol.ServerCapabilities{Tools: &protocol.ListCapability{ListChanged: true}}})
	session, _ := open(t, s, client.Options{ProtocolVersion: protocol.Latest})
	if names, err := toolNames(t, session); err != nil || len(names) > 0 {
		t.Errorf("%q, %v, want none", names, err)
	}
	server.AddTool(s, protocol.Tool{Name: "late"}, func(context.Context, struct{}) (string, error) { return "", nil })
	if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "late"}); err != nil {
		t.Error(err)
	}
}
