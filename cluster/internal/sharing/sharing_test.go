package sharing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

type text struct {
	Text string `json:"text"`
}

// Calls of several clients reach one server at the same time, and each gets its own answer and its
// own progress, although all clients use the same ids.
//
// Guarantees: G-0079.9
func TestEachClientGetsItsOwnAnswers(t *testing.T) {
	inEachEra(t, func(t *testing.T, era client.Options) {
		s := newServer(server.Options{Fallback: func(context.Context, *server.Request) (any, error) {
			return nil, &jsonrpc.Error{Code: -32099, Message: "no", Data: []byte(`{"a":1}`)}
		}})
		server.AddTool(s, protocol.Tool{Name: "echo"}, func(ctx context.Context, in text) (string, error) {
			server.Progress(ctx, 1, 2, in.Text)
			return in.Text, nil
		})
		w := newWorld(t, s, Options{})
		var calls sync.WaitGroup
		for c := range 5 {
			session := w.join(era)
			for i := range 20 {
				calls.Go(func() {
					want, progress := fmt.Sprintf("client %d call %d", c, i), ""
					session := session.With(client.CallOptions{OnProgress: func(p *protocol.ProgressParams) { progress = p.Message }})
					got, err := client.Call[string](t.Context(), session, "echo", text{want})
					if got != want || err != nil || progress != want {
						t.Errorf("got %q, %v with progress %q, want %q", got, err, progress, want)
					}
				})
			}
			calls.Go(func() {
				_, err := session.Request(t.Context(), "of/our/own", nil)
				var fault *jsonrpc.Error
				if !errors.As(err, &fault) || fault.Code != -32099 || fault.Message != "no" || string(fault.Data) != `{"a":1}` {
					t.Errorf("got %v, want the error of the server", err)
				}
			})
		}
		calls.Wait()
	})
}

// A client that cancels a call cancels its own call alone.
//
// Guarantees: G-0079.9
func TestAClientCancelsItsOwnCall(t *testing.T) {
	inEachEra(t, func(t *testing.T, era client.Options) {
		gate, s, cancelled := newGate(), newServer(server.Options{}), make(chan string, 10)
		server.AddTool(s, protocol.Tool{Name: "wait"}, func(ctx context.Context, in text) (string, error) {
			err := gate.pass(ctx, in.Text)
			if err != nil {
				cancelled <- in.Text
			}
			return in.Text, err
		})
		w := newWorld(t, s, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for c, ctx := range []context.Context{t.Context(), ctx} {
			session := w.join(era)
			calls.Go(func() {
				_, err := client.Call[string](ctx, session, "wait", text{fmt.Sprint(c)})
				if (err != nil) != (c == 1) {
					t.Errorf("client %d got %v", c, err)
				}
			})
			receive(t, gate.entered, "call")
		}
		cancel()
		if got := receive(t, cancelled, "cancellation"); got != "1" {
			t.Errorf("the call of client %s was cancelled, want that of client 1", got)
		}
		close(gate.open)
		calls.Wait()
	})
}

// Clients of other capabilities than the first cannot join, and are told why. Those with the same
// get what the first got.
//
// Guarantees: G-0079.9
func TestOthersJoinTheSessionOfTheFirst(t *testing.T) {
	initialized := make(chan struct{}, 10)
	s := newServer(server.Options{
		Instructions: "be kind",
		Middleware: []server.Middleware{func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				if r.Method == protocol.NotificationInitialized {
					initialized <- struct{}{}
				}
				return next(ctx, r)
			}
		}},
	})
	w := newWorld(t, s, Options{})
	select {
	case <-w.shared.Ready():
		t.Error("the server is ready before a client has come")
	default:
	}
	first := w.join(client.Options{ProtocolVersion: protocol.LatestLegacy})
	receive(t, w.shared.Ready(), "session")
	for _, version := range []string{protocol.LatestLegacy, ""} {
		if got := w.join(client.Options{ProtocolVersion: version}).Server(); got.Instructions != "be kind" || got.ProtocolVersion != first.Server().ProtocolVersion {
			t.Errorf("a client that joined got %+v, want %+v", got, first.Server())
		}
	}
	other := client.Options{ProtocolVersion: protocol.LatestLegacy, FailFast: true}
	other.Roots = func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, nil }
	_, err := client.New(protocol.Implementation{}, other).Connect(t.Context(), w)
	if err == nil || !strings.Contains(err.Error(), "all nodes must have the same") {
		t.Errorf("a client with other capabilities got %v, want that it is refused", err)
	}
	receive(t, initialized, "notification")
	if len(initialized) > 0 {
		t.Error("the server was told more than once that it is initialized")
	}
}

// When the server is lost, calls in flight end as lost and perhaps executed, for every client.
// The local client learns why.
//
// Guarantees: G-0079.9
func TestALostServerLosesEveryCall(t *testing.T) {
	inEachEra(t, func(t *testing.T, era client.Options) {
		gate, s := newGate(), newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "wait"}, func(ctx context.Context, in text) (string, error) { return "", gate.pass(ctx, in.Text) })
		w := newWorld(t, s, Options{})
		era.FailFast = true
		sessions := []*client.Session{w.joinBy(localOf{w}, era), w.join(era), w.join(era)}
		var calls sync.WaitGroup
		for _, session := range sessions {
			for range 10 {
				calls.Go(func() {
					_, err := client.Call[string](t.Context(), session, "wait", text{})
					var call *conn.CallError
					if !errors.As(err, &call) || call.Cause != conn.LinkLost || call.Delivery != conn.Unknown {
						t.Errorf("got %v, want that the link was lost and the delivery is unknown", err)
					}
				})
			}
		}
		for range 30 {
			receive(t, gate.entered, "call")
		}
		w.far.Close(0)
		calls.Wait()
		receive(t, w.shared.Done(), "end")
		for who, err := range map[string]error{"the server": w.shared.Reason(), "the local client": sessions[0].Wait()} {
			var exit *transport.ExitError
			if !errors.As(err, &exit) || exit.Status != 3 {
				t.Errorf("%s has ended with %v, want the exit of the server", who, err)
			}
		}
	})
}

// While a request may not be passed on, it is refused as not executed, and the server does not see
// it.
//
// Guarantees: G-0079.8
func TestRequestsThatMayNotBePassedOn(t *testing.T) {
	var mu sync.Mutex
	var lost error
	called := 0
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "count"}, func(context.Context, text) (string, error) { called++; return "", nil })
	w := newWorld(t, s, Options{May: func() error {
		mu.Lock()
		defer mu.Unlock()
		return lost
	}})
	session := w.join(client.Options{})
	if _, err := client.Call[string](t.Context(), session, "count", text{}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	lost = errors.New("the claim is lost")
	mu.Unlock()
	_, err := client.Call[string](t.Context(), session, "count", text{})
	if !client.NotExecuted(err) || !strings.Contains(err.Error(), "the claim is lost") || called != 1 {
		t.Errorf("got %v after %d calls, want that it was not executed", err, called)
	}
	if _, err := session.Request(t.Context(), protocol.MethodPing, nil); !client.NotExecuted(err) {
		t.Errorf("a ping got %v, want that it was not executed", err)
	}
}

// A drain lets calls end, refuses others as not executed, and then ends server and clients.
//
// Guarantees: G-0079.7
func TestDrainLetsCallsEnd(t *testing.T) {
	inEachEra(t, func(t *testing.T, era client.Options) {
		gate, s := newGate(), newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "wait"}, func(ctx context.Context, in text) (string, error) { return "done", gate.pass(ctx, in.Text) })
		w := newWorld(t, s, Options{})
		era.FailFast = true
		sessions := []*client.Session{w.joinBy(localOf{w}, era), w.join(era)}
		var calls sync.WaitGroup
		for _, session := range sessions {
			calls.Go(func() {
				if got, err := client.Call[string](t.Context(), session, "wait", text{}); got != "done" || err != nil {
					t.Errorf("a call under way got %q, %v", got, err)
				}
			})
			receive(t, gate.entered, "call")
		}
		drained := make(chan error, 1)
		go func() { drained <- w.shared.Drain(t.Context(), 0) }()
		for _, session := range sessions {
			for {
				_, err := client.Call[string](t.Context(), session, "unknown", text{})
				if client.NotExecuted(err) {
					break
				}
			}
		}
		if link := openOf(t, w); link != nil {
			t.Error("a client was served while the server drains")
		}
		close(gate.open)
		if err := receive(t, drained, "end of the drain"); err != nil {
			t.Error(err)
		}
		calls.Wait()
		if link := openOf(t, w); link != nil {
			t.Error("a client was served after the drain")
		}
	})
}

// openOf returns a link to the server, or nil if it was closed at once.
func openOf(t *testing.T, w *world) transport.Link {
	t.Helper()
	link, err := w.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := make(lostReceiver, 1)
	link.Bind(lost)
	if len(lost) == 0 {
		return link
	}
	link.Close(0)
	return nil
}

type lostReceiver chan transport.Loss

func (lostReceiver) Receive(transport.Inbound)                    {}
func (lostReceiver) Writable()                                    {}
func (lostReceiver) StreamOpened(transport.Stream, transport.Tag) {}
func (lostReceiver) StreamLost(transport.StreamLoss)              {}
func (lostReceiver) Failed(transport.Failure)                     {}
func (lostReceiver) Ended()                                       {}
func (r lostReceiver) Lost(loss transport.Loss)                   { r <- loss }

// Close of a local link ends the server.
//
// Guarantees: G-0079.9
func TestTheLocalClientOwnsTheServer(t *testing.T) {
	w := newWorld(t, newServer(server.Options{}), Options{})
	link := w.shared.Local()
	if is := transport.LinkTraitsOf(link); !is.RecordsReads || !is.LastRead.Equal(time.Unix(1, 0)) {
		t.Errorf("the local link has the traits %+v, want what the link to the server says", is)
	}
	session := w.joinBy(localOf{w}, client.Options{ProtocolVersion: protocol.LatestLegacy})
	guest := w.join(client.Options{ProtocolVersion: protocol.LatestLegacy, FailFast: true})
	if err := session.Close(t.Context()); err != nil {
		t.Error(err)
	}
	receive(t, w.shared.Done(), "end of the server")
	link.Close(0)
	receive(t, guest.Conn().Done(), "end of the guest")
}

// events collects the events of a client.
type events struct {
	mu    sync.Mutex
	all   []string
	added chan struct{}
}

func newEvents() *events { return &events{added: make(chan struct{}, 1000)} }

func (e *events) add(_ context.Context, _ *client.Session, event client.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch event := event.(type) {
	case *client.ResourceUpdated:
		e.all = append(e.all, "updated "+event.URI)
	case *client.LogMessage:
		e.all = append(e.all, "log "+string(event.Level))
	case *client.ToolsChanged:
		e.all = append(e.all, "tools")
	default:
		return
	}
	e.added <- struct{}{}
}

func (e *events) await(t *testing.T, want string) {
	t.Helper()
	for {
		e.mu.Lock()
		found := slices.Contains(e.all, want)
		e.mu.Unlock()
		if found {
			return
		}
		receive(t, e.added, want)
	}
}

// What the server reports reaches all clients. A resource stays subscribed until all who want it
// have unsubscribed.
//
// Guarantees: G-0079.9
func TestChangesReachAllClients(t *testing.T) {
	inEachEra(t, func(t *testing.T, era client.Options) {
		var mu sync.Mutex
		subscribed := map[string]int{}
		count := func(uri string, change int) {
			mu.Lock()
			defer mu.Unlock()
			subscribed[uri] += change
		}
		ended := make(chan string, 10)
		s := newServer(server.Options{
			OnSubscribe:   func(_ context.Context, uri string) error { count(uri, 1); return nil },
			OnUnsubscribe: func(_ context.Context, uri string) { count(uri, -1); ended <- uri },
		})
		server.AddTool(s, protocol.Tool{Name: "first"}, func(context.Context, text) (string, error) { return "", nil })
		w := newWorld(t, s, Options{})
		var sessions []*client.Session
		var all []*events
		for range 3 {
			all = append(all, newEvents())
			options := era
			options.OnEvent = all[len(all)-1].add
			sessions = append(sessions, w.join(options))
		}
		for _, session := range sessions[:2] {
			if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///a"}); err != nil {
				t.Fatal(err)
			}
		}
		s.ResourceUpdated("file:///a")
		all[0].await(t, "updated file:///a")
		all[1].await(t, "updated file:///a")
		server.AddTool(s, protocol.Tool{Name: "second"}, func(context.Context, text) (string, error) { return "", nil })
		for _, e := range all {
			e.await(t, "tools")
		}
		if err := sessions[0].Unsubscribe(t.Context(), &protocol.UnsubscribeParams{URI: "file:///a"}); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		left := subscribed["file:///a"]
		mu.Unlock()
		if left < 1 {
			t.Error("the server thinks that nobody is subscribed, though a client is")
		}
		if err := sessions[1].Unsubscribe(t.Context(), &protocol.UnsubscribeParams{URI: "file:///a"}); err != nil {
			t.Fatal(err)
		}
		for {
			receive(t, ended, "end of the subscription")
			mu.Lock()
			left := subscribed["file:///a"]
			mu.Unlock()
			if left == 0 {
				break
			}
		}
	})
}

// The server's log has the most verbose level that a client wants.
//
// Guarantees: G-0079.9
func TestTheMostVerboseLogLevelCounts(t *testing.T) {
	levels := make(chan string, 10)
	s := newServer(server.Options{
		Capabilities: protocol.ServerCapabilities{Logging: new(protocol.Capability)},
		Middleware: []server.Middleware{func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				if params, ok := r.Params.(*protocol.SetLogLevelParams); ok {
					levels <- string(params.Level)
				}
				return next(ctx, r)
			}
		}},
	})
	w := newWorld(t, s, Options{})
	a, b := w.join(client.Options{ProtocolVersion: protocol.LatestLegacy}), w.join(client.Options{ProtocolVersion: protocol.LatestLegacy})
	for _, step := range []struct {
		by    *client.Session
		level protocol.LogLevel
		want  string // "": the server is told nothing
	}{
		{a, protocol.LogWarning, "warning"}, {b, protocol.LogError, ""}, {b, protocol.LogDebug, "debug"},
		{a, protocol.LogEmergency, ""}, {b, protocol.LogInfo, "info"}, {b, protocol.LogEmergency, "emergency"},
		{a, protocol.LogDebug, "debug"}, {b, protocol.LogError, ""}, {a, protocol.LogError, "error"},
		{b, protocol.LogDebug, "debug"}, {a, protocol.LogWarning, ""}, {b, protocol.LogError, "warning"}, // that of the other one
	} {
		if err := step.by.SetLogLevel(t.Context(), step.level); err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(levels) > 0 {
			got = <-levels
		}
		if got != step.want {
			t.Errorf("%s: the server was told %q, want %q", step.level, got, step.want)
		}
	}
}

// A question of the server goes to the client whose call is under way. If several have one, it is
// refused.
//
// Guarantees: G-0079.9
func TestQuestionsReachTheCaller(t *testing.T) {
	inEachEra(t, func(t *testing.T, era client.Options) {
		gate, s := newGate(), newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "ask"}, func(ctx context.Context, in text) (string, error) {
			answer, err := server.Elicit[text](ctx, "who are you?")
			return answer.Text, err
		}, server.Asks(server.Reruns, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))
		server.AddTool(s, protocol.Tool{Name: "wait"}, func(ctx context.Context, in text) (string, error) { return "", gate.pass(ctx, in.Text) })
		w := newWorld(t, s, Options{})
		answering := func(name string) *client.Session {
			options := era
			options.Elicit = func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
				return client.Accept(text{name})
			}
			return w.join(options)
		}
		sessions := map[string]*client.Session{"a": answering("a"), "b": answering("b"), "c": answering("c")}
		for name, session := range sessions {
			if got, err := client.Call[string](t.Context(), session, "ask", text{}); got != name || err != nil {
				t.Errorf("%s was asked as %q, %v", name, got, err)
			}
		}
		var calls sync.WaitGroup
		calls.Go(func() { client.Call[string](t.Context(), sessions["a"], "wait", text{}) })
		receive(t, gate.entered, "call")
		got, err := client.Call[string](t.Context(), sessions["b"], "ask", text{})
		if era.ProtocolVersion == protocol.Latest { // there a question is an answer
			if got != "b" || err != nil {
				t.Errorf("b was asked as %q, %v", got, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), "nobody knows which of 3 clients") {
			t.Errorf("got %q, %v while another client had a call, want that the question is refused", got, err)
		}
		close(gate.open)
		calls.Wait()
	})
}
