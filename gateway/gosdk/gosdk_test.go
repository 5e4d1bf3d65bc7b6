package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/gosdk"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A process of the test is a server of the SDK.
const serverVariable = "GOSDK_TEST_SERVER"

// Tools whose names a gateway changes otherwise: some clients accept neither such characters nor such a length.
var oddNames = []string{"a.b.c", strings.Repeat("n", 100)}

// With this variable it kills itself when it is asked for its tools, unless a file of that name exists.
const mortalVariable = "GOSDK_TEST_MORTAL"

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" {
		if err := newServer().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

type text struct {
	Text string `json:"text"`
}

func killSelf() error {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	return err
}

// dieOnce kills this process when it is asked for its tools, if it can make the file. It then waits for its end.
func dieOnce(file string) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if file != "" && method == "tools/list" && os.Mkdir(file, 0o700) == nil {
				return nil, errors.Join(killSelf(), errors.New("killed"))
			}
			return next(ctx, method, r)
		}
	}
}

func newServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "child", Version: "1"}, nil)
	s.AddReceivingMiddleware(dieOnce(os.Getenv(mortalVariable)))
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, text, error) {
		return nil, in, nil
	})
	for _, name := range oddNames {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, text, error) {
			return nil, text{name}, nil
		})
	}
	mcp.AddTool(s, &mcp.Tool{Name: "pid"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, map[string]int, error) {
		return nil, map[string]int{"pid": os.Getpid()}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "die"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, killSelf()
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, text, error) {
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Well?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}})
		if err != nil {
			return nil, text{}, err
		}
		return nil, text{answer.Action}, nil
	})
	return s
}

func command(t *testing.T) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), serverVariable+"=1")
	return c
}

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func said(r *mcp.CallToolResult) string {
	var all []string
	for _, c := range r.Content {
		if c, ok := c.(*mcp.TextContent); ok {
			all = append(all, c.Text)
		}
	}
	return strings.Join(all, "\n")
}

// outcomeOf reads what became of a call that was not answered, as a program does.
func outcomeOf(t *testing.T, result *mcp.CallToolResult) (outcome gateway.Outcome) {
	t.Helper()
	raw, err := json.Marshal(result.Meta[gateway.MetaOutcome])
	if err = errors.Join(err, json.Unmarshal(raw, &outcome)); err != nil {
		t.Error(err)
	}
	return outcome
}

// A client of the SDK has one session, over all lives of its server. A call during which the server dies says what is known of it.
//
// Guarantees: G-0107.1, G-0107.4
func TestAClientOfTheSDKSurvivesItsServer(t *testing.T) {
	ctx := timeout(t)
	c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	})
	session, err := c.Connect(ctx, &gosdk.Supervised{
		Transport: &stdio.Command{Cmd: command(t)},
		Options:   gateway.Options{Client: client.Options{ProtocolVersion: protocol.LatestLegacy}}, // the SDK's server asks this way in no later one
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	call := func(tool string, arguments any) *mcp.CallToolResult {
		t.Helper()
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		return result
	}
	pid := func() string {
		t.Helper()
		result := call("pid", nil)
		if result.IsError {
			t.Fatalf("pid: %s", said(result))
		}
		return said(result)
	}
	before := pid()
	for range 3 {
		died := call("die", nil)
		if outcome := outcomeOf(t, died); !died.IsError || !strings.Contains(said(died), "may have been executed") || outcome.Delivery != conn.Unknown || outcome.Server != "server" {
			t.Errorf("a call during which the server died: %q, %+v", said(died), outcome)
		}
		after := pid()
		if after == before {
			t.Fatalf("the server is still %s", after)
		}
		before = after
	}
	if got := said(call("echo", text{"x"})); got != `{"text":"x"}` {
		t.Errorf("echo says %q", got)
	}
	if got := said(call("ask", nil)); got != `{"text":"decline"}` {
		t.Errorf("who was asked has said %q", got)
	}
	var names []string
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	for _, name := range oddNames {
		if got := said(call(name, nil)); got != `{"text":"`+name+`"}` {
			t.Errorf("%s says %q", name, got)
		}
	}
	if got := strings.Join(names, " "); got != oddNames[0]+" ask die echo "+oddNames[1]+" pid" {
		t.Errorf("the tools are %q", got)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

// An opening is a transport that a test chooses.
type opening func(context.Context) (transport.Link, error)

// Open implements transport.Transport.
func (o opening) Open(ctx context.Context) (transport.Link, error) { return o(ctx) }

// block waits for the end of a context.
func block(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.NewTimer(d).C }

// lister is a server of this process, with what it does when it is asked for its tools.
func lister(t *testing.T, list server.RawHandler) transport.Transport {
	s := server.New(protocol.Implementation{Name: "lister", Version: "7"}, server.Options{
		Instructions: "Ask twice.",
		Capabilities: protocol.ServerCapabilities{Tools: &protocol.ListCapability{}},
		Route: map[string]server.RawHandler{
			protocol.MethodListTools: list,
			protocol.MethodCallTool: func(context.Context, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(`{"content":[]}`), nil
			},
		},
	})
	t.Cleanup(func() { s.Close(context.Background()) })
	return inmem.New(s.Accept, inmem.Options{})
}

// Connect fails at once if waiting for the server would not help, and otherwise when its context ends. Nothing is left then.
//
// Guarantees: G-0107.2
func TestASupervisedServerThatIsNotThere(t *testing.T) {
	for name, c := range map[string]struct {
		over transport.Transport
		list server.RawHandler // of a lister, without another transport
		took time.Duration
		is   error
		text string
	}{
		"no transport":  {text: "no Transport"},
		"not installed": {over: &stdio.Command{Path: "no-such-command"}, is: exec.ErrNotFound, text: "no-such-command"},
		"not there":     {over: &stdio.Command{Path: "/nowhere/at-all"}, is: fs.ErrNotExist, text: "at-all"},
		"out of order": {
			over: opening(func(context.Context) (transport.Link, error) { return nil, errors.New("no route") }),
			took: 20 * time.Second, is: context.DeadlineExceeded, text: "no route",
		},
		"it does not start": {
			over: opening(func(ctx context.Context) (transport.Link, error) { return nil, block(ctx) }),
			took: 20 * time.Second, is: context.DeadlineExceeded,
		},
		"it refuses to list": {
			list: func(context.Context, json.RawMessage) (json.RawMessage, error) {
				return nil, errors.New("the disk is full")
			},
			text: "the disk is full",
		},
		"it does not list": {
			list: func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) { return nil, block(ctx) },
			took: 20 * time.Second, is: context.DeadlineExceeded, text: "has not said yet what it offers",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if c.list != nil {
					c.over = lister(t, c.list)
				}
				began := time.Now()
				_, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).Connect(ctx, &gosdk.Supervised{Name: `a "b"`, Transport: c.over}, nil)
				if took := time.Since(began); err == nil || took < c.took || took > c.took+5*time.Second || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("after %v, %v", took, err)
				}
			})
		})
	}
}

// Connect waits for a server that is slow. The client then knows the server's own name, version, instructions and tools, also while the server is away.
//
// Guarantees: G-0107.2, G-0107.4
func TestASupervisedServerThatIsSlow(t *testing.T) {
	for _, versions := range [][]string{nil, {protocol.LatestLegacy}} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			to := lister(t, func(context.Context, json.RawMessage) (json.RawMessage, error) {
				pass(6 * time.Second)
				return json.RawMessage(`{"tools":[{"name":"a.b/c","inputSchema":{"type":"object"}}]}`), nil
			})
			var last transport.Link
			over := opening(func(ctx context.Context) (_ transport.Link, err error) {
				if last != nil {
					return nil, exec.ErrNotFound
				}
				pass(8 * time.Second)
				last, err = to.Open(ctx)
				return last, err
			})
			began := time.Now()
			c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
			session, err := c.Connect(ctx, &gosdk.Supervised{Transport: over, Options: gateway.Options{Server: server.Options{ProtocolVersions: versions}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != 14*time.Second {
				t.Errorf("Connect took %v", took)
			}
			said := session.InitializeResult()
			if said.ServerInfo == nil || said.ServerInfo.Name != "lister" || said.ServerInfo.Version != "7" || said.Instructions != "Ask twice." || versions != nil && said.ProtocolVersion != versions[0] {
				t.Errorf("the server says %+v, %+v", said, said.ServerInfo)
			}
			call := func() *mcp.CallToolResult {
				result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "a.b/c"})
				if err != nil {
					t.Fatal(err)
				}
				return result
			}
			if result := call(); result.IsError {
				t.Errorf("the tool fails: %+v", result)
			}
			last.Close(0)
			synctest.Wait()
			if result, err := session.ListTools(ctx, nil); err != nil || len(result.Tools) != 1 || result.Tools[0].Name != "a.b/c" {
				t.Errorf("without its server: %+v, %v", result, err)
			}
			result := call()
			if outcome := outcomeOf(t, result); !result.IsError || outcome.Delivery != conn.NotSent || outcome.State != conn.Backoff {
				t.Errorf("without its server: %+v", outcome)
			}
			if err := session.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A client of Bowline over a transport of the SDK survives its server, too: each connection has a new one.
//
// Guarantees: G-0107.3
func TestAClientOfBowlineOverTheSDK(t *testing.T) {
	ctx := timeout(t)
	over := gosdk.Over(func() mcp.Transport { return &mcp.CommandTransport{Command: command(t)} })
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{}).Connect(ctx, over)
	if err != nil {
		t.Fatal(err)
	}
	session = session.With(client.CallOptions{WaitForReady: true})
	pid := func() (pid int) {
		t.Helper()
		out, err := client.Call[map[string]int](ctx, session, "pid", nil)
		if err != nil {
			t.Fatal(err)
		}
		return out["pid"]
	}
	before := pid()
	if _, err := client.Call[any](ctx, session, "die", nil); err == nil || client.NotExecuted(err) {
		t.Errorf("a call during which the server died: %v", err)
	}
	if after := pid(); after == before {
		t.Errorf("the server is still %d", after)
	}
	if out, err := client.Call[text](ctx, session, "echo", text{strings.Repeat("x", 1<<20)}); err != nil || len(out.Text) != 1<<20 {
		t.Errorf("%d bytes, %v", len(out.Text), err)
	}
	if err := session.Close(ctx); err != nil {
		t.Error(err)
	}
}
