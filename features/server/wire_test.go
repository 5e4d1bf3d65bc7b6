package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A rawPeer exchanges single frames with a server.
type rawPeer struct {
	t      *testing.T
	link   transport.Link
	frames chan string // what the server sends
}

func (w *rawPeer) Receive(in transport.Inbound)               { w.frames <- string(in.Frame) }
func (w *rawPeer) Writable()                                  {}
func (*rawPeer) StreamOpened(transport.Stream, transport.Tag) {}
func (*rawPeer) StreamLost(transport.StreamLoss)              {}
func (w *rawPeer) Failed(transport.Failure)                   {}
func (w *rawPeer) Ended()                                     {}
func (w *rawPeer) Lost(transport.Loss)                        { close(w.frames) }

// dial connects a raw peer for the length of a test.
func dial(t *testing.T, s *server.Server) *rawPeer {
	t.Helper()
	ours, theirs := inmem.Pipe(inmem.Options{})
	w := dialOn(t, s, ours, theirs)
	ours.Grant(transport.Main, cap(w.frames))
	return w
}

// dialOn is dial over a given link. The peer has granted no credit yet.
func dialOn(t *testing.T, s *server.Server, ours, theirs transport.Link) *rawPeer {
	t.Helper()
	served, watched := make(chan error, 1), specification.WatchServer(t)(theirs)
	go func() { served <- s.ServeLink(context.Background(), watched) }()
	w := &rawPeer{t: t, link: ours, frames: make(chan string, 100)}
	ours.Bind(w)
	t.Cleanup(func() {
		ours.Close(0)
		if err := <-served; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return w
}

func (w *rawPeer) send(frames ...string) {
	w.t.Helper()
	for _, frame := range frames {
		if err := w.link.Send(transport.Outbound{Frame: []byte(frame)}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// next returns the next frame of the server. It fails the test if none comes.
func (w *rawPeer) next() string {
	w.t.Helper()
	guard, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	select {
	case frame, ok := <-w.frames:
		if !ok {
			w.t.Fatal("the server has closed the link, want a frame")
		}
		return frame
	case <-guard.Done():
		w.t.Fatal("got no frame in time, want one")
	}
	return ""
}

// want checks that the next frame contains every fragment.
func (w *rawPeer) want(fragments ...string) {
	w.t.Helper()
	frame := w.next()
	for _, fragment := range fragments {
		if !strings.Contains(frame, fragment) {
			w.t.Errorf("got %s\nwant %s in it", frame, fragment)
		}
	}
}

// An answer is a response to tools/call.
type answer struct {
	Result protocol.CallToolResult `json:"result"`
	Error  struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// call calls a tool and reads the response.
func (w *rawPeer) call(tool, arguments string) answer {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`)
	var a answer
	w.read(&a)
	return a
}

// read decodes the next frame.
func (w *rawPeer) read(into any) {
	w.t.Helper()
	frame := w.next()
	if err := protocol.Unmarshal([]byte(frame), into); err != nil {
		w.t.Fatalf("%s: %v", frame, err)
	}
}

// result decodes the result of a request.
func result[R any](w *rawPeer, method, params string) (r R) {
	w.t.Helper()
	w.send(modern(`1`, method, params))
	var got struct {
		Result *R     `json:"result"`
		Error  *fault `json:"error"`
	}
	if err := protocol.Unmarshal([]byte(w.next()), &got); err != nil || got.Result == nil {
		w.t.Fatalf("%s: %v, %v, want got.Result != nil", method, got.Error, err)
	}
	return *got.Result
}

const initializeFrame = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":` +
	`{"protocolVersion":"VERSION","capabilities":{},"clientInfo":{"name":"raw","version":"0"}}}`

func (w *rawPeer) initialize(version string) {
	w.t.Helper()
	w.send(strings.Replace(initializeFrame, "VERSION", version, 1))
	w.want(`"id":"init"`, `"protocolVersion":"`+version+`"`, `"serverInfo"`)
	w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func echoServer() *server.Server {
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	type message struct {
		Message string `json:"message"`
	}
	server.AddTool(s, protocol.Tool{Name: "echo"}, func(_ context.Context, in message) (string, error) {
		return in.Message, nil
	})
	server.AddTool(s, protocol.Tool{Name: "hang"}, func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "too late", nil
	})
	return s
}

func TestServerAnswersBeforeAndAfterInitialize(t *testing.T) {
	w := dial(t, echoServer())
	w.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	w.want(`"id":1`, `"result":{}`)
	w.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	w.want(`"id":2`, `-32600`, `before initialize`)
	w.initialize(protocol.Version20251125)
	w.send(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
	w.want(`"id":3`, `"name":"echo"`, `"inputSchema":{`)
	w.send(initializeFrame)
	w.want(`"id":"init"`, `-32600`, `already`)
}

func TestRequestsBehindInitializeBelongToItsSession(t *testing.T) {
	for range 100 {
		w := dial(t, echoServer())
		w.send(
			strings.Replace(initializeFrame, "VERSION", protocol.Version20250618, 1),
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"at once"}}}`,
		)
		w.want(`"id":"init"`, `"result"`)
		w.want(`"id":1`, `at once`)
	}
}

func TestServerRefusesWhatItCannotServe(t *testing.T) {
	w := dial(t, echoServer())
	w.initialize(protocol.Version20251125)
	for _, test := range []struct{ frame, id, code string }{
		{`{"jsonrpc":"2.0","id":"a","method":"no/such"}`, `"id":"a"`, `-32601`},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":1}}`, `"id":7`, `-32602`},
		{`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"nope"}}`, `"id":8`, `-32602`},
		{`{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{"cursor":"xyz"}}`, `"id":9`, `-32602`},
		{`{"jsonrpc":"2.0","id":18446744073709551615,"method":"no/such"}`, `"id":18446744073709551615`, `-32601`},
		{`{"jsonrpc":"1.0","id":10,"method":"ping"}`, `"id":10`, `-32600`},
		{`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, `"error"`, `-32600`},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `"error"`, `-32600`},
		{`garbage`, `"error"`, `-32700`},
		{`[{"jsonrpc":"2.0","id":11,"method":"ping"}]`, `"error"`, `-32600`},
	} {
		w.send(test.frame)
		w.want(test.id, test.code)
	}
	w.send(`{"jsonrpc":"2.0","id":12,"method":"ping"}`)
	w.want(`"id":12`, `"result":{}`)
}

func TestNotificationsAreNeverAnswered(t *testing.T) {
	w := dial(t, echoServer())
	w.initialize(protocol.Version20251125)
	w.send(
		`{"jsonrpc":"2.0","method":"no/such/notification"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"never made"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":"not an object"}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[],"progress":1}}`,
		`{"jsonrpc":"2.0","id":4711,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
	)
	w.want(`"id":1,`) // the next frame, so the notifications had no response
	w.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	w.want(`"id":2,`)
}

func TestCancelledCallIsNotAnswered(t *testing.T) {
	w := dial(t, echoServer())
	w.initialize(protocol.Version20251125)
	w.send(
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"hang"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`,
		`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"echo","arguments":{"message":"next"}}}`,
	)
	w.want(`"id":6`, `next`)
	w.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":{"message":"again"}}}`)
	w.want(`"id":5`, `again`) // the next frame, so the cancelled call had no response
}

func TestBatchesAreReadWhereTheRevisionHasThem(t *testing.T) {
	w := dial(t, echoServer())
	w.initialize(protocol.Version20250326)
	w.send(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":2,"method":"ping"},7]`)
	w.want(`[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}},{`, `-32600`)
	w.send(`[]`)
	w.want(`-32600`)
	w.send(`[{"jsonrpc":"2.0","method":"x"}]`, `{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	w.want(`"id":3`) // the next frame, so nothing came before
}

// A batch that follows initialize immediately is served, in revisions that have
// batches.
//
// Guarantees: G-0019.9
func TestABatchRightBehindInitialize(t *testing.T) {
	const batch = `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"message":"at once"}}}]`
	for range 100 {
		w := dial(t, echoServer())
		w.send(strings.Replace(initializeFrame, "VERSION", protocol.Version20250326, 1), batch)
		w.want(`"id":"init"`, `"protocolVersion":"2025-03-26"`)
		w.want(`[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":`, `at once`)
	}
	for _, version := range []string{protocol.Version20241105, protocol.Version20250618} {
		w := dial(t, echoServer())
		w.send(strings.Replace(initializeFrame, "VERSION", version, 1), batch)
		first, second := w.next(), w.next()
		if !strings.Contains(first+second, `-32600`) || !strings.Contains(first+second, version) {
			t.Errorf("%s: %s %s, want %q in it and %v in it", version, first, second, `-32600`, version)
		}
	}
	for only, want := range map[string]string{protocol.Version20250326: `},{"jsonrpc":"2.0","id":2,`, protocol.Version20250618: `-32600`, protocol.Version20251125: `-32600`} {
		w := dial(t, newServer(server.Options{ProtocolVersions: []string{only}}))
		w.send(strings.Replace(initializeFrame, "VERSION", protocol.Version20250326, 1), batch)
		if frames := w.next() + w.next(); !strings.Contains(frames, want) || !strings.Contains(frames, only) {
			t.Errorf("a server of %s: got %s, want %s in it", only, frames, want)
		}
	}
}

// pass lets time pass in a bubble of testing/synctest.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// A peer that writes null for absent members, and integers as floating point, is served
// as any other peer.
func TestNullIsAbsentAndNumbersAreEqual(t *testing.T) {
	seesNone := func(next server.Handler) server.Handler {
		return func(ctx context.Context, r *server.Request) (any, error) {
			if p, ok := r.Params.(*protocol.CallToolParams); ok && p.Arguments != nil {
				t.Errorf("middleware sees the arguments %s", p.Arguments)
			}
			return next(ctx, r)
		}
	}
	s := newServer(server.Options{Middleware: []server.Middleware{seesNone}})
	server.AddTool(s, protocol.Tool{Name: "raw", InputSchema: anyObject}, func(_ context.Context, p *protocol.CallToolParams) (string, error) {
		return "got " + string(p.Arguments), nil
	})
	server.AddTool(s, protocol.Tool{Name: "typed"}, func(_ context.Context, in struct {
		Name string `json:"name,omitempty" default:"nobody"`
	}) (string, error) {
		return "got " + in.Name, nil
	})
	server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(_ context.Context, p *protocol.GetPromptParams) (string, error) {
		return "prompt", nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	for request, want := range map[string]string{
		`"method":"ping","params":null`:                                                             `"result":{}`,
		`"method":"tools/list","params":null`:                                                       `"name":"raw"`,
		`"method":"tools/list","params":{"cursor":null,"_meta":null}`:                               `"name":"raw"`,
		`"method":"tools/call","params":{"name":"raw","arguments":null}`:                            `"got {}"`,
		`"method":"tools/call","params":{"name":"typed","arguments":null,"_meta":null,"task":null}`: `"got `,
		`"method":"prompts/get","params":{"name":"p","arguments":null}`:                             `"prompt"`,
		`"method":"no/method","params":null`:                                                        `-32601`,
	} {
		w.send(`{"jsonrpc":"2.0","id":70e-1,` + request + `}`)
		w.want(`"id":7,`, want)
	}
}

func TestCompletionOfAnUnknownReferenceIsRefused(t *testing.T) {
	w := dial(t, reviewServer())
	w.initialize(protocol.Version20251125)
	w.send(`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/none"},"argument":{"name":"a","value":""}}}`)
	w.want(`"id":1`, `-32602`)
}

// A server none of whose features completes anything has no completion/complete, also in 2024-11-05, which has no
// capability for it.
func TestServerWithoutCompletionsRefusesThem(t *testing.T) {
	for _, version := range []string{protocol.Version20241105, protocol.Version20251125} {
		s := newServer(server.Options{})
		server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, *protocol.GetPromptParams) (string, error) { return "prompt", nil })
		w := dial(t, s)
		w.initialize(version)
		w.send(`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}}}`)
		w.want(`"id":1`, `-32601`)
	}
}

// Middleware sees the params of a notification as they came, of any method.
func TestMiddlewareSeesTheParamsOfNotifications(t *testing.T) {
	seen := make(chan string, 8)
	s := newServer(server.Options{Middleware: []server.Middleware{func(next server.Handler) server.Handler {
		return func(ctx context.Context, r *server.Request) (any, error) {
			if raw, _ := r.Params.(json.RawMessage); r.Notification {
				seen <- r.Method + string(raw)
			}
			return next(ctx, r)
		}
	}}})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	w.send(`{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1}}`, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	w.want(`"id":1`)
	for _, want := range []string{"notifications/initialized", `notifications/x{"a":1}`} {
		if got := testenv.Receive(t, seen, want); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
