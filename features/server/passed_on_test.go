package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// sessionsOf returns options of a server, and where its legacy sessions come in.
func sessionsOf(o server.Options) (server.Options, chan *server.Session) {
	sessions := make(chan *server.Session, 10)
	o.SessionContext = func(ctx context.Context, s *server.Session) context.Context {
		sessions <- s
		return ctx
	}
	return o, sessions
}

// initializeWith begins a legacy session whose client declares capabilities.
func (w *rawPeer) initializeWith(version, capabilities string) {
	w.t.Helper()
	w.send(strings.Replace(strings.Replace(initializeFrame, "VERSION", version, 1), `"capabilities":{}`, `"capabilities":`+capabilities, 1))
	w.want(`"id":"init"`, `"result"`)
	w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// A program that lets another server have its tools checks the headers of a call as the server does for its own tools: only of modern
// requests over HTTP, and only as the tool says.
//
// Guarantees: G-0089.1
func TestHeadersOfAToolOfAnotherServer(t *testing.T) {
	tool := ""
	route := map[string]server.RawHandler{protocol.MethodCallTool: func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
		if err := server.CheckHeaders(ctx, json.RawMessage(tool), params); err != nil {
			return nil, err
		}
		return json.RawMessage(`{"content":[{"type":"text","text":"passed on"}]}`), nil
	}}
	s := newServer(server.Options{Route: route, Capabilities: everyCapability()})
	url := site(t, s, func(h http.Handler) http.Handler { return h })
	pool := &http.Transport{}
	defer pool.CloseIdleConnections()
	const mirrored = `{"name":"t","inputSchema":{"type":"object","properties":{` +
		`"a":{"type":"string","x-mcp-header":"A"},"n":{"type":"integer","x-mcp-header":"N"},"b":{"type":"boolean","x-mcp-header":"B"}}}}`
	for _, test := range []struct {
		tool, arguments string
		headers         []string // of Mcp-Param
		fits            bool
	}{
		{mirrored, `{"a":"x"}`, []string{"A", "x"}, true},
		{mirrored, `{"a":"x"}`, []string{"a", "x"}, true}, // case does not matter
		{mirrored, `{"a":"x"}`, nil, false},
		{mirrored, `{"a":"x"}`, []string{"A", "y"}, false},
		{mirrored, `{}`, []string{"A", "x"}, false},
		{mirrored, `{}`, nil, true},
		{mirrored, `{"n":7}`, []string{"N", "7.0"}, true},
		{mirrored, `{"n":0}`, []string{"N", "none"}, false},
		{mirrored, `{"n":100000}`, []string{"N", "100001"}, false},
		{mirrored, `{"b":true}`, []string{"B", "true"}, true},
		{mirrored, `{"b":false}`, []string{"B", "0"}, false},
		{mirrored, `{"b":true}`, []string{"B", "false"}, false},
		{`{"name":"t","inputSchema":{"type":"object"}}`, `{"a":"x"}`, nil, true},
		{`{"name":"t","description":"x-mcp-header"}`, `{"a":"x"}`, nil, true},
		{`{"name":"t","inputSchema":{"type":"object","properties":{"a":{"type":"array","x-mcp-header":"A"}}}}`, `{"a":"x"}`, nil, true}, // clients mirror nothing
	} {
		tool = test.tool
		r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(modern(`1`, "tools/call", `"name":"t","arguments":`+test.arguments)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json,text/event-stream"},
			"Mcp-Protocol-Version": {protocol.Latest}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"t"},
		}
		for pair := range slices.Chunk(test.headers, 2) {
			r.Header["Mcp-Param-"+pair[0]] = []string{pair[1]}
		}
		response, err := (&http.Client{Transport: pool}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if fits := strings.Contains(string(body), `passed on`); fits != test.fits || !fits && !strings.Contains(string(body), `-32020`) {
			t.Errorf("%+v: got %s %s", test, response.Status, body)
		}
	}
	tool = mirrored
	w := dial(t, s) // without HTTP there are no headers
	if got := w.ask(modern(`1`, "tools/call", `"name":"t","arguments":{"a":"x"}`)); got.Error != nil {
		t.Errorf("without HTTP: got %+v", got.Error)
	}
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		session := open(t, &streamable.Client{URL: url}, client.Options{ProtocolVersion: version})
		_, err := session.Request(t.Context(), protocol.MethodCallTool, map[string]any{"name": "t", "arguments": map[string]string{"a": "x"}})
		if (err == nil) != (version == protocol.LatestLegacy) {
			t.Errorf("%s: got %v; only modern clients mirror arguments", version, err)
		}
	}
	if err := server.CheckHeaders(context.Background(), json.RawMessage(mirrored), json.RawMessage(`{"arguments":{"a":"x"}}`)); err != nil {
		t.Errorf("outside of a request: got %v", err)
	}
}

// A message of another server reaches the client of a call, or of a session, as it is, if the client wants its level. What the client
// wants the program can read, and hears of changes.
//
// Guarantees: G-0029.7
func TestLogMessagesArePassedOn(t *testing.T) {
	o, sessions := sessionsOf(server.Options{})
	levels := make(chan protocol.LogLevel, 10)
	o.OnLogLevel = func(_ context.Context, s *server.Session) { levels <- s.LogLevel() }
	s := newServer(o)
	message := func(level protocol.LogLevel) *protocol.LogMessageParams {
		return &protocol.LogMessageParams{Level: level, Logger: "theirs", Data: json.RawMessage(`{"as":"it is"}`)}
	}
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
		server.Log(ctx, message(protocol.LogNotice))
		server.Log(ctx, message(protocol.LogInfo))
		return fmt.Sprintf("<%s>", server.LogLevel(ctx)), nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	session := testenv.Receive(t, sessions, "a session")
	w.send(legacy(`1`, "tools/call", `"name":"t"`))
	w.want(`"id":1`, `<>`) // nothing came before
	session.Log(t.Context(), message(protocol.LogEmergency))
	if level := session.LogLevel(); level != "" {
		t.Errorf("the client has chosen nothing, and wants %s", level)
	}
	for _, level := range []protocol.LogLevel{"notice", "notice", "debug", "notice"} { // the second time nothing changes
		w.ask(legacy(`2`, "logging/setLevel", `"level":"`+string(level)+`"`))
	}
	for _, want := range []protocol.LogLevel{"notice", "debug", "notice"} {
		if got := testenv.Receive(t, levels, "a level"); got != want {
			t.Errorf("the program heard of %s, want %s", got, want)
		}
	}
	if len(levels) > 0 || session.LogLevel() != protocol.LogNotice {
		t.Errorf("the program heard of %d more; the client wants %s", len(levels), session.LogLevel())
	}
	w.send(legacy(`3`, "tools/call", `"name":"t"`))
	w.want(`"notifications/message"`, `"level":"notice"`, `"logger":"theirs"`, `"data":{"as":"it is"}`)
	w.want(`"id":3`, `<notice>`)
	session.Log(t.Context(), message(protocol.LogInfo))
	session.Log(t.Context(), message(protocol.LogError))
	w.want(`"notifications/message"`, `"level":"error"`, `"logger":"theirs"`)
	modernLog := strings.Replace(modern(`4`, "tools/call", `"name":"t"`), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"info",`, 1)
	w.send(modernLog)
	w.want(`"level":"notice"`)
	w.want(`"level":"info"`)
	w.want(`"id":4`, `<info>`)
}

// Outside of a request nothing is logged, noted, reported or asked, and nothing fails but a question.
func TestOutsideOfARequest(t *testing.T) {
	ctx := context.Background()
	server.Log(ctx, &protocol.LogMessageParams{Level: protocol.LogAlert})
	server.Note(ctx, "nothing")
	server.Progress(ctx, 1, 2, "nothing")
	server.Logger(ctx).Error("nothing")
	if server.Logger(ctx).Enabled(ctx, 100) || server.LogLevel(ctx) != "" || server.RequestFrom(ctx) != nil {
		t.Error("there is a request, or a level")
	}
	if err := server.Confirm(ctx, "?"); !errors.Is(err, server.ErrNoRequest) {
		t.Errorf("got %v, want %v", err, server.ErrNoRequest)
	}
	for name, started := range map[string]bool{"Poll": server.Poll(ctx, time.Second), "Stream": server.Stream(ctx)} {
		if started {
			t.Errorf("%s has returned true", name)
		}
	}
	made := new(server.Request) // of a test of the program
	if found, err := made.State(new(int)); found || err != nil || made.CallID() != "" || made.Target() != "" || !made.ID().IsZero() {
		t.Errorf("a request that nobody sent has a state (%v), a call %q, a target %q or the id %v", err, made.CallID(), made.Target(), made.ID())
	}
}

// What a handler notes is in the record of its request, the last time, and in no other.
//
// Guarantees: G-0071.2
func TestNotesOfAHandler(t *testing.T) {
	records := make(chan server.Record, 10)
	s := newServer(server.Options{Audit: func(_ context.Context, r server.Record) { records <- r }})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, in struct{ Note bool }) (string, error) {
		if in.Note {
			server.Note(ctx, "first")
			server.Note(ctx, "second")
		}
		return "", nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	testenv.Receive(t, records, "the record of initialize")
	for arguments, want := range map[string]any{`{"Note":true}`: "second", `{"Note":false}`: nil} {
		w.call("t", arguments)
		if got := testenv.Receive(t, records, "a record"); got.Note != want || got.Name != "t" {
			t.Errorf("%s: got %+v, want the note %v", arguments, got, want)
		}
	}
}

// A session can be asked for its roots outside of a call: through the middleware, not without the capability, and for no longer than
// the program waits.
//
// Guarantees: G-0031.3
func TestRootsOfASession(t *testing.T) {
	o, sessions := sessionsOf(server.Options{})
	seen := make(chan string, 100)
	o.Middleware = []server.Middleware{func(next server.Handler) server.Handler {
		return func(ctx context.Context, r *server.Request) (any, error) {
			result, err := next(ctx, r)
			if r.Outgoing {
				seen <- fmt.Sprint(r.Method, " ", r.Client.Info.Name, " ", r.Session != nil, " ", !r.ID().IsZero())
				if roots, ok := result.(*protocol.ListRootsResult); ok && len(roots.Roots) == 0 {
					return "something else", nil
				}
			}
			return result, err
		}
	}}
	w := dial(t, newServer(o))
	w.initializeWith(protocol.Version20251125, `{"roots":{}}`)
	session := testenv.Receive(t, sessions, "a session")
	type found struct {
		roots []protocol.Root
		err   error
	}
	answers := make(chan found, 100)
	list := func(ctx context.Context) {
		roots, err := session.Roots(ctx)
		answers <- found{roots, err}
	}
	answer := func(rest string) found {
		go list(t.Context())
		var asked struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if w.read(&asked); asked.Method != protocol.MethodListRoots {
			t.Fatalf("got the question %+v", asked)
		}
		w.send(`{"jsonrpc":"2.0","id":` + string(asked.ID) + `,` + rest + `}`)
		return testenv.Receive(t, answers, "the roots")
	}
	if got := answer(`"result":{"roots":[{"uri":"file:///a","name":"a"}]}`); got.err != nil || len(got.roots) != 1 || got.roots[0].URI != "file:///a" {
		t.Errorf("got %+v, want the root of the client", got)
	}
	if got := <-seen; got != "roots/list raw true true" {
		t.Errorf("the middleware saw %s", got)
	}
	for rest, want := range map[string]string{
		`"error":{"code":-32603,"message":"no disk"}`: "no disk", `"error":{"code":-1,"message":"not now"}`: "user declined",
		`"result":{"roots":7}`: "roots/list", `"result":{"roots":[]}`: "it is a string",
	} {
		if got := answer(rest); got.err == nil || !strings.Contains(got.err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", rest, got.err, want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	go list(ctx)
	w.want(`"roots/list"`)
	cancel(errors.New("no longer"))
	if got := testenv.Receive(t, answers, "an error"); !errors.Is(got.err, server.ErrUnanswered) {
		t.Errorf("after the end of its context: got %v, want %v", got.err, server.ErrUnanswered)
	}
	w.want(`"notifications/cancelled"`)
	for range 32 { // as many questions as one client can have
		go list(t.Context())
		w.want(`"roots/list"`)
	}
	for range 2 {
		if _, err := session.Roots(t.Context()); !errors.Is(err, server.ErrUnanswered) || !strings.Contains(err.Error(), "32") {
			t.Errorf("the 33rd question: got %v, want %v", err, server.ErrUnanswered)
		}
	}
	w.link.Close(0)
	for range 32 {
		testenv.Receive(t, answers, "the end of a question")
	}

	without := dial(t, newServer(o))
	without.initialize(protocol.Version20251125)
	if _, err := testenv.Receive(t, sessions, "a session").Roots(t.Context()); !errors.Is(err, server.ErrUnsupported) || !strings.Contains(err.Error(), "roots/list") {
		t.Errorf("without the capability: got %v, want %v", err, server.ErrUnsupported)
	}
}

// The state of a task of the program's own reaches only clients of the revision that has it.
func TestStateOfATaskOfTheProgram(t *testing.T) {
	o, sessions := sessionsOf(server.Options{})
	status := &protocol.TaskStatusParams{LegacyTask: protocol.LegacyTask{TaskID: "t7", Status: protocol.TaskWorking, CreatedAt: "2026-01-02T03:04:05Z", LastUpdatedAt: "2026-01-02T03:04:05Z"}}
	for version, has := range map[string]bool{protocol.Version20251125: true, protocol.Version20250618: false} {
		w := dial(t, newServer(o))
		w.initialize(version)
		err := testenv.Receive(t, sessions, "a session").TaskStatus(t.Context(), status)
		if has != (err == nil) || !has && (!errors.Is(err, server.ErrUnsupported) || !strings.Contains(err.Error(), "notifications/tasks/status")) {
			t.Errorf("%s: got %v", version, err)
		}
		if has {
			w.want(`"notifications/tasks/status"`, `"t7"`)
		}
		w.send(legacy(`1`, "ping", ``))
		w.want(`"id":1`)
	}
}

// An update of a resource is told to those subscribers of which the program says so, by their identity and session.
//
// Guarantees: G-0029.4
func TestResourceUpdatedFor(t *testing.T) {
	s := newServer(server.Options{OnSubscribe: func(context.Context, string) error { return nil }})
	peers := map[string]*rawPeer{}
	for _, who := range []string{"ada", "bob", "eve"} {
		w := dialFrom(t, s, &transport.Origin{Identity: who})
		if peers[who] = w; who == "eve" {
			w.send(modern(`9`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["x://a"]}`))
			w.want(`"notifications/subscriptions/acknowledged"`)
			continue
		}
		w.initialize(protocol.Version20251125)
		w.ask(legacy(`1`, "resources/subscribe", `"uri":"x://a"`))
	}
	asked := make(chan string, 10)
	s.ResourceUpdatedFor("x://a", func(ctx context.Context, identity string, session *server.Session) bool {
		asked <- fmt.Sprint(identity, " ", session != nil, " ", server.RequestFrom(ctx) != nil)
		return identity != "ada"
	})
	for _, who := range []string{"bob", "eve"} {
		peers[who].want(`"notifications/resources/updated"`, `"x://a"`)
	}
	var got []string
	for range 3 {
		got = append(got, testenv.Receive(t, asked, "a subscriber"))
	}
	if slices.Sort(got); !slices.Equal(got, []string{"ada true false", "bob true false", "eve false true"}) {
		t.Errorf("the program was asked for %q", got)
	}
	s.ResourceUpdated("x://a")
	peers["ada"].want(`"notifications/resources/updated"`) // the first for her, or "bob" would have had both
	peers["ada"].send(legacy(`2`, "ping", ``))
	peers["ada"].want(`"id":2`)
}

// A list is one of those that the server has, and clients are told which one has changed.
func TestListChangedKnowsItsKinds(t *testing.T) {
	s := newServer(server.Options{Capabilities: everyCapability()})
	w := dial(t, s)
	w.initialize(protocol.LatestLegacy)
	for kind, list := range map[string]string{server.KindTool: "tools", server.KindPrompt: "prompts", server.KindResource: "resources", server.KindTemplate: "resources"} {
		s.ListChanged(kind)
		w.want(`"method":"notifications/` + list + `/list_changed"`)
	}
	for name, tell := range map[string]func(){
		"ListChanged":    func() { s.ListChanged("skill") },
		"ListChangedFor": func() { s.ListChangedFor("", func(context.Context) bool { return true }) },
	} {
		wantPanic(t, name, "no kind of feature", tell)
	}
}

// A RawHandler sees neither the state of a round nor the answers that come with it, also where only one of the two comes, and what is no object
// never comes to it.
//
// Guarantees: G-0089.3, G-0089.1
func TestARouteSeesNothingOfItsRounds(t *testing.T) {
	seen := make(chan string, 10)
	o := server.Options{Capabilities: everyCapability(), Route: map[string]server.RawHandler{
		protocol.MethodCallTool: func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
			seen <- string(params)
			if found, _ := server.RequestFrom(ctx).State(new(int)); !found {
				return nil, &server.InputRequired{State: 7} // come again
			}
			return json.RawMessage(`{"content":[]}`), nil
		},
	}}
	w := dial(t, newServer(o))
	again := result[protocol.CallToolResult](w, "tools/call", `"name":"t","arguments":{"a":1}`)
	if again.InputRequired == nil || again.InputRequired.RequestState == nil {
		t.Fatalf("got %+v, want a state", again)
	}
	if done := result[protocol.CallToolResult](w, "tools/call", `"name":"t","arguments":{"a":1},"requestState":`+string(mustEncode(*again.InputRequired.RequestState))); done.InputRequired != nil {
		t.Errorf("got %+v, want the result", done)
	}
	result[protocol.CallToolResult](w, "tools/call", `"name":"t","inputResponses":{"q":{"action":"decline"}},"arguments":{"a":1}`)
	for range 3 {
		if params := testenv.Receive(t, seen, "params"); strings.Contains(params, "requestState") || strings.Contains(params, "inputResponses") || !strings.Contains(params, `"arguments":{"a":1}`) {
			t.Errorf("the handler saw %s", params)
		}
	}
	w.initialize(protocol.Version20251125)
	for _, params := range []string{`[]`, `7`, `{"name":"t","_meta":7}`, `{"name":"t","_meta":[]}`, `{"name":"t","_meta":{"progressToken":{}}}`} {
		w.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":` + params + `}`)
		w.want(`"id":3`, `"error"`)
	}
	if len(seen) > 0 {
		t.Errorf("the handler saw %s", <-seen)
	}
}

// A server that has a Fallback still calls invalid what it could not read.
//
// Guarantees: G-0071.2
func TestRecordsOfInvalidRequestsWithAFallback(t *testing.T) {
	records := make(chan server.Record, 10)
	s := newServer(server.Options{
		Audit:    func(_ context.Context, r server.Record) { records <- r },
		Fallback: func(context.Context, *server.Request) (any, error) { return nil, errors.New("not today") },
	})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { return "", nil })
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	testenv.Receive(t, records, "the record of initialize")
	for frame, want := range map[string]server.Outcome{
		legacy(`1`, "tools/call", `"name":7`): server.OutcomeInvalid,
		legacy(`1`, "own/method", ``):         server.OutcomeFailed,
	} {
		w.ask(frame)
		if got := testenv.Receive(t, records, "a record"); got.Outcome != want {
			t.Errorf("%s: got %v, want %v", frame, got.Outcome, want)
		}
	}
}

// Messages that were dropped beyond the rate are counted once, also when what would say so finds the connection busy.
//
// Guarantees: G-0029.19
func TestDroppedMessagesAreCountedWhenBusy(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := logsOften(server.Options{LogRate: 20})
		ours, theirs := inmem.Pipe(inmem.Options{QueueFrames: 10})
		s.Accept(theirs)
		w := &rawPeer{t, ours, make(chan string, 100)}
		ours.Bind(w)
		defer s.Close(t.Context())
		ours.Grant(transport.Main, 2)
		w.initialize(protocol.Version20251125)
		w.ask(legacy(`1`, "logging/setLevel", `"level":"info"`))
		var session *server.Session
		for session = range s.Sessions() {
		}
		for range 50 { // 10 wait in the queue, 10 find it full, and 30 are beyond the rate
			session.Logger().Info("one of many")
		}
		pass(time.Second)
		session.Logger().Info("finds it full")
		ours.Grant(transport.Main, cap(w.frames))
		for range 10 {
			w.want(`"one of many"`)
		}
		session.Logger().Info("at last")
		w.want(`"41 log messages were dropped: there were more than 20 a second, and the connection was busy"`)
		w.want(`"at last"`)
	})
}

// A method that the server has itself, and a notification, are nobody else's to add.
func TestMethodsThatCannotBeAdded(t *testing.T) {
	s := newServer(server.Options{})
	serve := func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }
	for _, name := range []string{"", protocol.MethodCallTool, protocol.NotificationProgress, protocol.NotificationTask, protocol.NotificationTaskStatus, protocol.MethodGetTask, "ping", protocol.MethodListRoots} {
		wantPanic(t, name, fmt.Sprintf("method %q", name), func() { server.AddMethod(s, name, serve) })
	}
	wantPanic(t, "no function", "a function", func() { server.AddMethod[struct{}, struct{}](s, "own/method", nil) })
	w := dial(t, s)
	w.wantFault(jsonrpc.CodeMethodNotFound, modern(`1`, "own/method", ``))
	server.AddMethod(s, "own/method", serve)
	if got := w.ask(modern(`1`, "own/method", ``)); got.Error != nil {
		t.Errorf("got %+v", got.Error)
	}
}

// A method of MCP that the server does not offer, because it has no such feature, goes to the Fallback as any other that it does not have, in both eras.
//
// Guarantees: G-0029.9
func TestTheFallbackGetsMethodsThatAreNotOffered(t *testing.T) {
	s := newServer(server.Options{Fallback: func(_ context.Context, r *server.Request) (any, error) {
		return map[string]any{"fallback": r.Method, "prompts": []any{}, "ttlMs": 0, "cacheScope": "private"}, nil
	}})
	addNamed(s, "t")
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	for _, frame := range []string{legacy(`1`, "prompts/list", ``), modern(`2`, "prompts/list", ``)} {
		if got := w.ask(frame); got.text("fallback") != `"prompts/list"` {
			t.Errorf("%s: got %s, %v, want what the Fallback says", frame, got.Result, got.Error)
		}
	}
}

// The record of a modern request names its own client and no session, also on the link of a session.
//
// Guarantees: G-0071.2
func TestRecordsOfBothErasOnOneLink(t *testing.T) {
	records := make(chan server.Record, 10)
	s := newServer(server.Options{Audit: func(_ context.Context, r server.Record) { records <- r }})
	addNamed(s, "t")
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	testenv.Receive(t, records, "the record of initialize")
	w.ask(modern(`1`, "tools/list", ``))
	if got := testenv.Receive(t, records, "a record"); got.Session != nil || got.Client.ProtocolVersion != protocol.Latest {
		t.Errorf("a modern request: got the session %v and the client %+v", got.Session, got.Client)
	}
	w.ask(legacy(`2`, "tools/list", ``))
	if got := testenv.Receive(t, records, "a record"); got.Session == nil || got.Client.ProtocolVersion != protocol.Version20251125 {
		t.Errorf("a legacy request: got the session %v and the client %+v", got.Session, got.Client)
	}
}

// A server with an Audit keeps nothing of a request whose record is made.
func TestNothingOfAnAuditedRequestIsKept(t *testing.T) {
	s := newServer(server.Options{Audit: func(context.Context, server.Record) {}})
	var seen []weak.Pointer[server.Request]
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
		seen = append(seen, weak.Make(server.RequestFrom(ctx)))
		return "", nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	const calls = 20
	for range calls {
		w.call("t", `{}`)
	}
	runtime.GC()
	kept := 0
	for _, r := range seen {
		if r.Value() != nil {
			kept++
		}
	}
	if kept > calls/2 { // the last ones may still be used
		t.Errorf("%d of %d requests are kept", kept, calls)
	}
}
