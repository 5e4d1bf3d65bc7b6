package sharing

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// An end is an end of a link, whose frames a test reads and writes.
type end struct {
	peertest.Ignore
	transport.Link
	t      *testing.T
	frames chan string
	lost   chan transport.Loss
}

func newEnd(t *testing.T, link transport.Link) *end {
	e := &end{Link: link, t: t, frames: make(chan string, 4096), lost: make(chan transport.Loss, 1)}
	link.Bind(e)
	link.Grant(transport.Main, cap(e.frames))
	return e
}

func (e *end) Receive(in transport.Inbound) { e.frames <- string(in.Frame) }
func (e *end) Lost(loss transport.Loss)     { e.lost <- loss }

func (e *end) send(format string, args ...any) {
	e.t.Helper()
	if err := e.Send(transport.Outbound{Frame: fmt.Appendf(nil, format, args...)}); err != nil {
		e.t.Fatal(err)
	}
}

// A frame is what a frame contains.
type frame struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (e *end) next() (f frame) {
	e.t.Helper()
	raw := receive(e.t, e.frames, "frame")
	if err := json.Unmarshal([]byte(raw), &f); err != nil {
		e.t.Fatalf("%s: %v", raw, err)
	}
	return f
}

func (e *end) want(method, params string) frame {
	e.t.Helper()
	f := e.next()
	if f.Method != method || string(f.Params) != params {
		e.t.Fatalf("got %s %s, want %s %s", f.Method, f.Params, method, params)
	}
	return f
}

func (e *end) wantAnswer(id, result string) {
	e.t.Helper()
	if f := e.next(); string(f.ID) != id || string(f.Result) != result {
		e.t.Fatalf("got the answer %s of %s, want %s of %s", f.Result, f.ID, result, id)
	}
}

// A script is a Server whose clients and server a test plays.
type script struct {
	t      *testing.T
	shared *Server
	server *end
}

func newScript(t *testing.T) *script {
	near, far := inmem.Pipe(inmem.Options{})
	s := &script{t, New(near, Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}), newEnd(t, far)}
	t.Cleanup(func() {
		if err := s.shared.Close(0); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *script) join() *end {
	near, far := inmem.Pipe(inmem.Options{})
	s.shared.Serve(far)
	return newEnd(s.t, near)
}

// Messages pass unchanged, but for ids and tokens, which belong to one connection.
//
// Guarantees: G-0079.9
func TestMessagesPassUnchanged(t *testing.T) {
	s := newScript(t)
	a, b := s.join(), s.join()
	a.send(`{"jsonrpc":"2.0","id":"x","method":"ping"}`)
	ping := s.server.want("ping", "")
	s.server.send(`{"jsonrpc":"2.0","id":%s,"result":{"a":[1, 2]}}`, ping.ID)
	a.wantAnswer(`"x"`, `{"a":[1, 2]}`)
	b.send(`{"jsonrpc":"2.0","method":"notifications/own","params":{"b":1.50}}`)
	s.server.want("notifications/own", `{"b":1.50}`)
	s.server.send(`{"jsonrpc":"2.0","method":"notifications/own","params":{"c":1e3}}`)
	a.want("notifications/own", `{"c":1e3}`)
	b.want("notifications/own", `{"c":1e3}`)
	s.server.send(`[{"jsonrpc":"2.0","method":"notifications/own","params":{"d":1}},{"jsonrpc":"2.0","method":"notifications/own","params":{"d":2}}]`) // in a batch
	for _, c := range []*end{a, b} {
		c.want("notifications/own", `{"d":1}`)
		c.want("notifications/own", `{"d":2}`)
	}
	s.server.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	s.server.wantAnswer("1", "{}")
}

// wantError takes an error, and compares the whole text of it.
func (e *end) wantError(id string, code int, message string) {
	e.t.Helper()
	if f := e.next(); string(f.ID) != id || f.Error == nil || f.Error.Code != code || f.Error.Message != message {
		e.t.Fatalf("got %+v (%+v) of %s, want the error %d %s of %s", f, f.Error, f.ID, code, message, id)
	}
}

// The server sees the capabilities of the first client as that has written them. They are the same for another client that writes them in
// another way. Who has others, or asks for modern revisions, is refused, and the server is not asked.
//
// Guarantees: G-0079.9
func TestTheSessionIsThatOfTheFirst(t *testing.T) {
	const params = `{"capabilities":{ "sampling":{},"roots":{"listChanged":true} },"x":1}`
	s := newScript(t)
	a, b := s.join(), s.join()
	a.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":%s}`, params)
	f := s.server.want("initialize", params)
	s.server.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-7,"message":"not yet"}}`, f.ID)
	a.wantError("1", -7, "not yet")
	a.send(`{"jsonrpc":"2.0","id":2,"method":"initialize","params":%s}`, params)
	f = s.server.want("initialize", params)
	s.server.send(`{"jsonrpc":"2.0","id":%s,"result":{"of":"all"}}`, f.ID)
	s.server.want("notifications/initialized", "")
	a.wantAnswer("2", `{"of":"all"}`)
	b.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"y":2,"capabilities":{"roots":{"listChanged":true},"sampling":{}}}}`)
	b.wantAnswer("1", `{"of":"all"}`)
	b.send(`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}`)
	b.wantError("2", -32600, `the server is shared, and was opened by a client with the capabilities {"roots":{"listChanged":true},"sampling":{}}: all nodes must have the same`)
	b.send(`{"jsonrpc":"2.0","id":3,"method":"server/discover","params":{}}`)
	b.wantError("3", -32601, "method not found: server/discover")
	b.send(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)
	s.server.want("ping", "")
}

// The server is ready when it has said which revisions it speaks, and not when it has refused to.
func TestWhenTheServerIsReady(t *testing.T) {
	s := newScript(t)
	a := s.join()
	for id, answer := range []string{`"error":{"code":-7,"message":"not yet"}`, `"result":{}`} {
		select {
		case <-s.shared.Ready():
			t.Error("the server is ready, though it has answered nothing but an error")
		default:
		}
		a.send(`{"jsonrpc":"2.0","id":%d,"method":"server/discover","params":{}}`, id)
		f := s.server.want("server/discover", "{}")
		s.server.send(`{"jsonrpc":"2.0","id":%s,%s}`, f.ID, answer)
		a.next()
	}
	receive(t, s.shared.Ready(), "session")
}

// What the server has refused counts for nobody: the next client that wants it asks again.
//
// Guarantees: G-0079.9
func TestWhatTheServerHasRefused(t *testing.T) {
	const refusal = `{"jsonrpc":"2.0","id":%s,"error":{"code":-7,"message":"no"}}`
	s := newScript(t)
	a, b := s.join(), s.join()
	for _, c := range []struct{ method, params, others string }{
		{"resources/subscribe", `{"uri":"x:y"}`, `{"uri":"x:y"}`}, {"logging/setLevel", `{"level":"debug"}`, `{"level":"error"}`}, {"logging/setLevel", `{"level":"loud"}`, `{"level":"loud"}`},
	} {
		a.send(`{"jsonrpc":"2.0","id":1,"method":"%s","params":%s}`, c.method, c.params)
		s.server.send(refusal, s.server.want(c.method, c.params).ID)
		a.wantError("1", -7, "no")
		b.send(`{"jsonrpc":"2.0","id":2,"method":"%s","params":%s}`, c.method, c.others)
		s.server.send(refusal, s.server.want(c.method, c.others).ID)
		b.wantError("2", -7, "no")
	}
}

// Two clients use the same progress token and the same id. The server sees others, and each gets
// its own back, in any form of the JSON.
//
// Guarantees: G-0079.9
func TestTokensAreMapped(t *testing.T) {
	s := newScript(t)
	ends := []*end{s.join(), s.join()}
	calls := []frame{}
	for i, e := range ends {
		e.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"x":{}, "progress\u0054oken" : "p" ,"y":%d}}}`, i)
		f := s.server.next()
		if want := fmt.Sprintf(`{"name":"t","_meta":{"x":{}, "progress\u0054oken" : %s ,"y":%d}}`, f.ID, i); string(f.Params) != want {
			t.Fatalf("the server got %s, want %s", f.Params, want)
		}
		calls = append(calls, f)
	}
	for i, e := range ends {
		s.server.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken": %s, "progress":%d}}`, calls[i].ID, i)
		e.want("notifications/progress", fmt.Sprintf(`{"progressToken": "p", "progress":%d}`, i))
	}
	ends[1].send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	s.server.want("notifications/cancelled", fmt.Sprintf(`{"requestId":%s,"reason":"cancelled"}`, calls[1].ID))
	ends[0].send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{}}`)
	quiet := s.server.want("tools/call", "{}")
	s.server.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken": %s, "progress":1}}`, quiet.ID) // nobody has asked for it
	s.server.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, quiet.ID)
	ends[0].wantAnswer("2", "{}")
	s.server.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, calls[0].ID)
	ends[0].wantAnswer("1", "{}")
	if len(ends[0].frames)+len(ends[1].frames) > 0 {
		t.Error("a client got more than is for it")
	}
}

// What the server sends for a subscriptions/listen reaches the client that made it, under its id.
// What is for no subscription that was passed on reaches nobody.
//
// Guarantees: G-0079.9
func TestListeningsAreMapped(t *testing.T) {
	const note = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`
	s := newScript(t)
	a, b := s.join(), s.join()
	a.send(`{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{}}`)
	listen := s.server.want("subscriptions/listen", "{}")
	s.server.send(note, listen.ID)
	a.want("notifications/tools/list_changed", `{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}`)
	s.server.send(note, "99")
	s.server.send(note, `"7"`)
	s.server.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, listen.ID)
	a.wantAnswer("7", "{}")
	s.server.send(note, listen.ID)
	s.server.send(`{"jsonrpc":"2.0","method":"notifications/last"}`)
	a.want("notifications/last", "")
	b.want("notifications/last", "")
}

// A question of the server is answered by the client, with progress, and can be cancelled.
//
// Guarantees: G-0079.9
func TestAQuestionIsPassedOn(t *testing.T) {
	s := newScript(t)
	a := s.join()
	s.server.send(`{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{"_meta":{"progressToken":5}}}`)
	q := a.next()
	a.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, q.ID)
	s.server.want("notifications/progress", `{"progressToken":5,"progress":1}`)
	s.server.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`)
	a.want("notifications/cancelled", fmt.Sprintf(`{"requestId":%s,"reason":"cancelled"}`, q.ID))
	left := s.join()
	left.Close(0)
	<-left.lost
	for len(s.shared.all()) > 1 { // until it is forgotten
		runtime.Gosched()
	}
	s.server.send(`{"jsonrpc":"2.0","id":0,"method":"roots/list"}`)
	q = a.want("roots/list", "")
	a.send(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[]}}`, q.ID)
	s.server.wantAnswer("0", `{"roots":[]}`)
	b := s.join()
	s.server.send(`{"jsonrpc":"2.0","id":2,"method":"roots/list"}`)
	if f := s.server.next(); f.Error == nil || !strings.Contains(f.Error.Message, "nobody knows which of 2 clients") {
		t.Errorf("got %+v, want that the question is refused", f)
	}
	for range 2 { // the failed call leaves nothing behind
		a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
		call := s.server.want("tools/call", "{}")
		s.server.send(`{"jsonrpc":"2.0","id":3,"method":"roots/list"}`)
		q = a.want("roots/list", "")
		a.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-5,"message":"no"}}`, q.ID)
		if f := s.server.next(); f.Error == nil || f.Error.Code != -5 || f.Error.Message != "no" {
			t.Errorf("got %+v, want the error of the client", f)
		}
		s.server.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-6,"message":"failed"}}`, call.ID)
		if f := a.next(); f.Error == nil || f.Error.Code != -6 {
			t.Errorf("got %+v, want the error of the server", f)
		}
	}
	b.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
	s.server.want("tools/call", "{}")
	s.server.send(`{"jsonrpc":"2.0","id":4,"method":"roots/list"}`)
	b.want("roots/list", "")
}

// A question to a client that leaves fails, and a client that only asks whether the server lives is
// not in the way of a question to another one.
//
// Guarantees: G-0079.9
func TestAQuestionToAClientThatLeaves(t *testing.T) {
	s := newScript(t)
	a, b := s.join(), s.join()
	b.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	s.server.want("ping", "")
	a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
	s.server.want("tools/call", "{}")
	s.server.send(`{"jsonrpc":"2.0","id":3,"method":"roots/list"}`)
	a.want("roots/list", "")
	a.Close(0)
	for {
		if f := s.server.next(); f.Method == "" {
			if string(f.ID) != "3" || f.Error == nil {
				t.Errorf("got %+v, want that the question fails", f)
			}
			return
		}
	}
}

// While a client changes the log level, others wait: what they want may be less verbose.
//
// Guarantees: G-0079.9
func TestLogLevelsThatAreSetAtTheSameTime(t *testing.T) {
	s := newScript(t)
	a, b := s.join(), s.join()
	a.send(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`)
	f := s.server.want("logging/setLevel", `{"level":"debug"}`)
	b.send(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}`)
	for id := range 10 {
		b.send(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, id+2)
		s.server.want("ping", "")
	}
	s.server.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, f.ID)
	a.wantAnswer("1", "{}")
	b.wantAnswer("1", "{}")
}

// The session that a client has begun to open is opened: MCP knows no end of that, and no cancellation.
//
// Guarantees: G-0079.9
func TestAClientThatLeavesWhileItOpensTheSession(t *testing.T) {
	s := newScript(t)
	a, b := s.join(), s.join()
	a.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	s.server.want("initialize", "{}")
	a.Close(0)
	<-a.lost
	for len(s.shared.all()) > 1 { // until it is forgotten
		runtime.Gosched()
	}
	for id := range 10 {
		b.send(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, id+1)
		s.server.want("ping", "")
	}
}

// A resource that only clients which have left subscribed to is not subscribed any more.
//
// Guarantees: G-0079.9
func TestSubscriptionsEndWithTheirClient(t *testing.T) {
	s := newScript(t)
	a, b := s.join(), s.join()
	for _, c := range []*end{a, b} {
		c.send(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"x:y"}}`)
		if c == a { // later ones need not reach the server
			f := s.server.want("resources/subscribe", `{"uri":"x:y"}`)
			s.server.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, f.ID)
		}
		c.wantAnswer("1", "{}")
	}
	a.Close(0)
	<-a.lost
	for len(s.shared.all()) > 1 { // until it is forgotten
		runtime.Gosched()
	}
	b.send(`{"jsonrpc":"2.0","id":2,"method":"resources/unsubscribe","params":{"uri":"x:y"}}`)
	f := s.server.want("resources/unsubscribe", `{"uri":"x:y"}`)
	s.server.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, f.ID)
	b.wantAnswer("2", "{}")
}

// One client more than there may be is turned away, and the others stay.
func TestClientsAreBounded(t *testing.T) {
	s := newScript(t)
	first := s.join()
	for range maxClients - 1 {
		near, far := inmem.Pipe(inmem.Options{})
		s.shared.Serve(far)
		near.Bind(&end{t: t, lost: make(chan transport.Loss, 1)})
	}
	receive(t, s.join().lost, "loss")
	first.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
	s.server.want("tools/call", "{}")
}

// A client that takes no notifications is cut off, and the others get all of them.
//
// Guarantees: G-0079.9
func TestASlowClientIsCutOff(t *testing.T) {
	s := newScript(t)
	near, far := inmem.Pipe(inmem.Options{})
	s.shared.Serve(far)
	slow := &end{t: t, Link: near, frames: make(chan string, 4096), lost: make(chan transport.Loss, 1)}
	near.Bind(slow) // and grants nothing
	quick := s.join()
	n := 0
	for ; len(slow.lost) == 0; n++ {
		if n > 100_000 {
			t.Fatal("the slow client was not cut off")
		}
		s.server.send(`{"jsonrpc":"2.0","method":"notifications/own","params":{"n":%d}}`, n)
		quick.want("notifications/own", fmt.Sprintf(`{"n":%d}`, n))
		quick.Grant(transport.Main, 1)
	}
	near.Close(0)
	if n < 256 {
		t.Errorf("the client was cut off after %d notifications", n)
	}
}

// Params that cannot be read are refused, or left to the server.
func TestBadParams(t *testing.T) {
	s := newScript(t)
	a := s.join()
	for _, params := range []string{`{"_meta":{"progressToken":1,"progressToken":2}}`, `{"_meta":"progressToken"}`, `["progressToken"]`} {
		a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}`, params)
		f := s.server.next()
		s.server.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, f.ID)
		a.wantAnswer("1", "{}")
	}
	for _, method := range []string{"resources/subscribe", "logging/setLevel"} {
		a.send(`{"jsonrpc":"2.0","id":1,"method":"%s","params":[1]}`, method)
		if f := a.next(); f.Error == nil || f.Error.Code != -32602 {
			t.Errorf("%s: got %+v, want invalid params", method, f)
		}
	}
}

// While the link to the server ends, requests are refused as not executed.
//
// Guarantees: G-0079.8
func TestRequestsAfterTheEndOfTheServer(t *testing.T) {
	near, far := inmem.Pipe(inmem.Options{})
	held := &heldOpen{near, make(chan struct{}), make(chan struct{})}
	s := &script{t, New(held, Options{Log: slog.New(slog.DiscardHandler)}), newEnd(t, far)}
	a := s.join()
	far.Close(0)
	<-held.closing
	a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
	if f := a.next(); f.Error == nil || f.Error.Code != -32050 {
		t.Errorf("got %+v, want that the request was not executed", f)
	}
	close(held.open)
	if err := s.shared.Close(0); err != nil {
		t.Error(err)
	}
	<-a.lost
}

// A heldOpen link says when it is closed, and takes its time.
type heldOpen struct {
	transport.Link
	closing, open chan struct{}
}

func (h *heldOpen) Close(grace time.Duration) error {
	select {
	case <-h.closing:
	default:
		close(h.closing)
	}
	<-h.open
	return h.Link.Close(grace)
}
