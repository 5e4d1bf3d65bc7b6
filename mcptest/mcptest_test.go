package mcptest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/mcptest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop is a server with a tool that asks the user, one that does not, and a custom method.
func shop() *server.Server {
	s := server.New(protocol.Implementation{Name: "shop", Version: "1"}, server.Options{})
	elicitation := protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{Form: &protocol.Capability{}}}
	server.AddTool(s, protocol.Tool{Name: "order"}, func(ctx context.Context, _ struct{}) (string, error) {
		size, err := server.Elicit[struct {
			Size string `json:"size"`
		}](ctx, "Which size?")
		return "ordered " + size.Size, err
	}, server.Asks(server.Waits, elicitation))
	server.AddTool(s, protocol.Tool{Name: "add"}, func(_ context.Context, in struct{ A, B int }) (int, error) {
		return in.A + in.B, nil
	})
	return s
}

func answering(answer string) mcptest.Options {
	return mcptest.Options{Client: client.Options{
		Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return client.Accept(map[string]any{"size": answer})
		},
	}}
}

func order(t *testing.T, session *client.Session) {
	t.Helper()
	got, err := client.Call[string](t.Context(), session, "order", nil)
	if err != nil || got != "ordered small" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestEras(t *testing.T) {
	var spoken []string
	mcptest.Eras(t, shop(), answering("small"), func(t *testing.T, session *client.Session) {
		spoken = append(spoken, session.Server().ProtocolVersion)
		order(t, session)
	})
	if got := strings.Join(spoken, " "); got != protocol.LatestLegacy+" "+protocol.Latest {
		t.Error(got)
	}
}

// A failureRecorder is a testing.TB that records failures.
type failureRecorder struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (t *failureRecorder) Helper()          {}
func (t *failureRecorder) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }
func (t *failureRecorder) Errorf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

func (t *failureRecorder) end() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
}

// invalidTools answers a list of tools with invalid tools.
func invalidTools(next server.Handler) server.Handler {
	return func(ctx context.Context, r *server.Request) (any, error) {
		if r.Method == protocol.MethodListTools {
			return &protocol.ListToolsResult{Tools: []*protocol.Tool{{Name: "bad"}}}, nil
		}
		return next(ctx, r)
	}
}

// violateSchema makes a server send a tool without a schema, and its client a request of
// another era.
func violateSchema(t *testing.T, o mcptest.Options) *failureRecorder {
	t.Helper()
	trial := &failureRecorder{TB: t}
	synctest.Test(t, func(t *testing.T) {
		trial.TB = t
		s := server.New(protocol.Implementation{Name: "bad", Version: "1"}, server.Options{Middleware: []server.Middleware{invalidTools}})
		session := mcptest.Connect(trial, s, o)
		if _, err := session.Request(context.Background(), protocol.MethodListTools, nil); err != nil {
			t.Error(err)
		}
		if _, err := session.Request(context.Background(), protocol.MethodSetLogLevel, map[string]any{"level": "info"}); err == nil {
			t.Error("a modern server has accepted a log level")
		}
		trial.end()
	})
	return trial
}

func TestMessagesThatBreakTheSchemaFailTheTest(t *testing.T) {
	bad := violateSchema(t, mcptest.Options{})
	if len(bad.failures) != 2 ||
		!strings.Contains(bad.failures[0], "ListToolsResult of 2026-07-28") || !strings.Contains(bad.failures[1], "has no logging/setLevel") {
		t.Errorf("%q", bad.failures)
	}
	if any := violateSchema(t, mcptest.Options{AnyMessage: true}); len(any.failures) > 0 {
		t.Errorf("%q", any.failures)
	}
}

// A frame that a fault has corrupted does not count as sent by the server.
func TestFaultsAreNoViolations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var faults *fault.Transport
		session := mcptest.Connect(t, shop(), mcptest.Options{
			Client: client.Options{Calls: client.CallOptions{Timeout: time.Second}},
			Through: func(inner transport.Transport) transport.Transport {
				faults = fault.New(inner, fault.Plan{Seed: 1, Faults: []fault.Fault{
					{Kind: fault.Corrupt, Direction: fault.Inbound, At: []int{2}}, {Kind: fault.Corrupt, Direction: fault.Outbound, At: []int{4}},
				}})
				return faults
			},
		})
		failed := 0
		for range 4 {
			if _, err := client.Call[int](t.Context(), session, "add", map[string]int{"A": 1, "B": 2}); err != nil {
				failed++
			}
		}
		if len(faults.Log()) == 0 || failed == 0 || failed == 4 {
			t.Errorf("%d of 4 calls failed:\n%v", failed, faults.Log())
		}
	})
}

// A recorded session can be replayed without its server.
func TestRecordAndScript(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		golden := filepath.Join("testdata", "order-"+version+".txt")
		converse := func(t *testing.T, connect func(mcptest.Options) *client.Session) {
			o := answering("small")
			o.Client.ProtocolVersion = version
			session := connect(o)
			if _, err := session.ListTools(t.Context(), nil); err != nil {
				t.Error(err)
			}
			order(t, session)
		}
		t.Run("record "+version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				converse(t, func(o mcptest.Options) *client.Session {
					o.Through = func(inner transport.Transport) transport.Transport { return mcptest.Record(t, inner, golden) }
					return mcptest.Connect(t, shop(), o)
				})
			})
		})
		t.Run("play "+version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				converse(t, func(o mcptest.Options) *client.Session {
					session, err := client.New(protocol.Implementation{Name: "mcptest", Version: "1"}, o.Client).
						Connect(t.Context(), mcptest.Check(t, mcptest.Script(t, golden)))
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { session.Close(context.Background()) })
					return session
				})
			})
		})
	}
}

func TestRecordFailsOnAnotherConversation(t *testing.T) {
	golden := filepath.Join(t.TempDir(), "golden")
	if err := os.WriteFile(golden, []byte("= opened\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	trial := &failureRecorder{TB: t}
	synctest.Test(t, func(t *testing.T) {
		trial.TB = t
		mcptest.Connect(trial, shop(), mcptest.Options{Through: func(inner transport.Transport) transport.Transport {
			return mcptest.Record(trial, inner, golden)
		}})
		trial.end()
	})
	if len(trial.failures) != 1 || !strings.Contains(trial.failures[0], "server/discover") {
		t.Errorf("%q", trial.failures)
	}
}

func TestScriptFailsOnAnotherConversation(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   string
	}{
		"another frame":       {"= opened\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n= lost: transport: link closed\n", `expect {"jsonrpc":"2.0","id":1,"method":"ping"}: got {`},
		"an unexpected frame": {"= opened\n= lost: transport: link closed\n", "expect loss: got {"},
		"not played":          {"= opened\n= lost: transport: peer closed the link\n2= opened\n2= lost: transport: peer closed the link\n", "has 2 connections, and 1 came"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "script")
			if err := os.WriteFile(file, []byte(test.script), 0o600); err != nil {
				t.Fatal(err)
			}
			trial := &failureRecorder{TB: t}
			synctest.Test(t, func(t *testing.T) {
				_, err := client.New(protocol.Implementation{Name: "c"}, client.Options{FailFast: true, ProtocolVersion: protocol.LatestLegacy}).Connect(t.Context(), mcptest.Script(trial, file))
				if err == nil {
					t.Error("Connect succeeded")
				}
				trial.end()
			})
			if len(trial.failures) != 1 || !strings.Contains(trial.failures[0], test.want) {
				t.Errorf("%q", trial.failures)
			}
		})
	}
}

func TestLogShowsEveryFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		session := mcptest.Connect(t, shop(), mcptest.Options{Through: func(inner transport.Transport) transport.Transport {
			return mcptest.Log(&text, inner)
		}})
		if _, err := client.Call[int](t.Context(), session, "add", map[string]int{"A": 1, "B": 2}); err != nil {
			t.Error(err)
		}
		if err := errors.Join(session.Close(t.Context())); err != nil {
			t.Error(err)
		}
		for _, part := range []string{"+0.000s = opened\n", "+0.000s > {", `"method": "tools/call"`, "+0.000s < {", "= lost: transport: link closed"} {
			if !strings.Contains(text.String(), part) {
				t.Errorf("%s\nhas no %s", &text, part)
			}
		}
	})
}
