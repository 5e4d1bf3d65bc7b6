//go:build npm

package peers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/mark3labs/mcp-go/server"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A proxy forwards connections to a server, and can cut them.
type proxy struct {
	listener net.Listener
	to       string
	serving  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	sent  bytes.Buffer // by clients
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &proxy{listener: listener, to: to, conns: make(map[net.Conn]struct{})}
	c.serving.Go(c.accept)
	t.Cleanup(func() {
		listener.Close()
		c.cut()
		c.serving.Wait()
	})
	return c
}

func (c *proxy) accept() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return // it was closed
		}
		far, err := net.Dial("tcp", c.to)
		if err != nil {
			near.Close()
			continue
		}
		c.mu.Lock()
		c.conns[near], c.conns[far] = struct{}{}, struct{}{}
		c.mu.Unlock()
		c.serving.Go(func() { c.forward(far, io.TeeReader(near, c), near) })
		c.serving.Go(func() { c.forward(near, far, far) })
	}
}

func (c *proxy) forward(to net.Conn, from io.Reader, end net.Conn) {
	_, _ = io.Copy(to, from) // until a connection is closed
	to.Close()
	end.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, end)
}

// Write records what a client has sent.
func (c *proxy) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.Write(p)
}

// cut closes all connections. New ones can be opened immediately.
func (c *proxy) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		conn.Close()
	}
	clear(c.conns)
}

// calls counts the calls of a tool in the recorded requests.
func (c *proxy) calls(tool string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Count(c.sent.Bytes(), []byte(`"name":"`+tool+`"`))
}

// resumableGoSDK and resumableMCPGo return servers of these SDKs with their own event stores.
func resumableGoSDK() (http.Handler, func(context.Context) error) {
	s := newGoSDKServer()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)})
	return handler, func(context.Context) error { return nil }
}

func resumableMCPGo() (http.Handler, func(context.Context) error) {
	handler := server.NewStreamableHTTPServer(newMCPGoServer(), server.WithEventStore(server.NewInMemoryEventStore()))
	return handler, handler.Shutdown
}

// A site is a server over HTTP for one test.
type site struct {
	handler func() (http.Handler, func(context.Context) error) // nil: the process
	command []string
}

// address runs the server until the end of the test, and returns its address.
func (s site) address(ctx context.Context, t *testing.T) string {
	t.Helper()
	if s.handler == nil {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		served, err := serve(ctx, s.command, port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(served.close)
		return "127.0.0.1:" + port
	}
	handler, end := s.handler()
	web := httptest.NewServer(handler)
	t.Cleanup(func() {
		web.CloseClientConnections()
		if err := end(context.Background()); err != nil {
			t.Error(err)
		}
		web.Close()
	})
	return strings.TrimPrefix(web.URL, "http://")
}

// A cutPair is a client and a server whose connection is cut.
type cutPair struct {
	name    string
	site    site
	connect Connect
	slow    Call
	lacks   string // why the answer is lost
}

func cutPairs(goSDK, mcpGo string) []cutPair {
	bowline := site{handler: func() (http.Handler, func(context.Context) error) { return handleBowline(nil) }}
	slow, theirs := withOurTools(Peer{}).Slow, everythingServer(HTTP)
	return []cutPair{
		{goSDK + " as the server", site{handler: resumableGoSDK}, connectBowline, slow, ""},
		{mcpGo + " as the server", site{handler: resumableMCPGo}, connectBowline, slow,
			"it sends progress on the GET stream and begins its response with the answer, so that there is nothing to resume: Bowline tells the caller that the call may have been executed"},
		{theirs.Name + " " + theirs.Version + " as the server", site{command: theirs.Server("")}, connectBowline, theirs.Slow, ""},
		{goSDK + " as the client", bowline, connectGoSDK, slow, ""},
		{mcpGo + " as the client", bowline, connectMCPGo, slow, "it does not come back for the answer, which Bowline keeps for it"},
		{typeScriptV1.title() + " as the client", bowline, connectTypeScript(typeScriptV1), slow, ""},
		{typeScriptClientV2.title() + " as the client", bowline, connectTypeScript(typeScriptClientV2), slow, ""},
	}
}

// cutTable cuts each connection between the progress of a call and its answer.
func cutTable(t *testing.T, goSDK, mcpGo string) string {
	revisions := []string{protocol.Version20250618, protocol.Version20251125}
	var table strings.Builder
	table.WriteString("\n## A connection that is cut in mid-answer\n\nThe TCP connection is cut at the first progress of a call. ✓ the answer arrives all the same, and the call was sent once.\n\n")
	table.WriteString(heading(append([]string{"Bowline and"}, revisions...)))
	var reasons strings.Builder
	for _, pair := range cutPairs(goSDK, mcpGo) {
		cells := []string{pair.name}
		for _, revision := range revisions {
			t.Run("cut: "+pair.name+"/"+revision, func(t *testing.T) { cells = append(cells, pair.beCut(t, revision)) })
		}
		table.WriteString(row(cells))
		if pair.lacks != "" {
			fmt.Fprintf(&reasons, "\n- *%s*: %s.", pair.name, pair.lacks)
		}
	}
	return table.String() + reasons.String() + "\n"
}

func (p *cutPair) beCut(t *testing.T, revision string) string {
	ctx, cancel := context.WithTimeout(schemaContext(t), hangGuard)
	defer cancel()
	line := newProxy(t, p.site.address(ctx, t))
	session, err := p.connect(ctx, Endpoint{URL: "http://" + line.listener.Addr().String() + "/mcp"}, revision)
	if err != nil {
		t.Fatal(err)
	}
	call := p.slow
	call.OnProgress = sync.OnceFunc(line.cut)
	result, err := session.CallTool(ctx, call)
	answered := err == nil && !result.IsError
	if answered != (p.lacks == "") {
		t.Errorf("the call returned %+v, %v", result, err)
	}
	if sent := line.calls(call.Tool); sent != 1 {
		t.Errorf("the call was sent %d times", sent)
	}
	closing := session.Close(ctx)
	if closing != nil && answered {
		t.Error(closing)
	}
	if !answered {
		return "–"
	}
	return Held
}
