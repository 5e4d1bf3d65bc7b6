package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/tools/nodes"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// books count how often each call was executed, and where.
type books struct {
	mu    sync.Mutex
	times map[string]int
	last  string // the node that has executed a call last
}

func (b *books) note(call, node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.times[call]++
	b.last = node
}

// balance checks that each call that was answered was executed once, and no other one twice.
func (b *books) balance(t *testing.T, answered []string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for call, times := range b.times {
		if times > 1 {
			t.Errorf("call %s was executed %d times", call, times)
		}
	}
	for _, call := range answered {
		if b.times[call] != 1 {
			t.Errorf("call %s was answered, and executed %d times", call, b.times[call])
		}
	}
}

// A servingSite is some nodes that serve one endpoint, on real sockets.
type servingSite struct {
	t       *testing.T
	service *clustertest.Service
	books   books
	calling sync.RWMutex   // held by calls of TestRollingRestartUnderLoad
	nodes   []*servingNode // nil: it is not there
	front   *nodes.Balancer
	url     string // of the balancer

	mu       sync.Mutex
	refusals map[string]int // calls without an answer, by what came instead
}

// A servingNode is one process.
type servingNode struct {
	testNode
	server  *server.Server
	handler *streamable.Handler
	public  *httptest.Server
}

func newServingSite(t *testing.T, size int) *servingSite {
	s := &servingSite{t: t, service: clustertest.New(clustertest.Options{}), books: books{times: map[string]int{}}, refusals: map[string]int{}}
	s.nodes, s.front = make([]*servingNode, size), nodes.NewBalancer(size)
	front := httptest.NewServer(s.front)
	s.url = front.URL
	for i := range size {
		s.start(i)
	}
	t.Cleanup(func() {
		for i := range s.nodes {
			s.shutDown(i)
		}
		front.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return s
}

// start starts a node, and waits until the others know it.
func (s *servingSite) start(i int) {
	s.t.Helper()
	name := string(rune('a' + i))
	e := s.service.Engine()
	n, err := cluster.Join(context.Background(), e, options(name))
	if err != nil {
		s.t.Fatal(err)
	}
	v := &servingNode{testNode: testNode{Node: n, engine: e}}
	v.server = server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Node: n.Name(), Changes: n.Changes()})
	server.AddTool(v.server, protocol.Tool{Name: "note"}, func(_ context.Context, in struct {
		Call string `json:"call"`
	}) (string, error) {
		s.books.note(in.Call, name)
		return name, nil
	})
	v.handler = streamable.NewHandler(v.server, streamable.HandlerOptions{Router: n.Router(), Sessions: n.Sessions()})
	serve(s.t, v.testNode, v.handler)
	v.public = httptest.NewServer(v.handler)
	s.nodes[i] = v
	at, err := url.Parse(v.public.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	s.front.Set(i, at)
	for j, other := range s.nodes {
		if other != nil && j != i {
			other.reaches(s.t, name)
			v.reaches(s.t, other.Name())
		}
	}
}

// kill ends a node as kill -9 does: it is cut off, and frees nothing.
func (s *servingSite) kill(i int) {
	s.t.Helper()
	v := s.nodes[i]
	s.nodes[i] = nil
	v.engine.Cut()
	_ = v.Node.Close(ended()) // it says what it has left behind
	v.public.Listener.Close()
	v.public.CloseClientConnections()
	_ = v.server.Close(ended())
	_ = v.handler.Close(0)
	v.public.Close()
	if err := v.engine.Close(); err != nil {
		s.t.Error(err)
	}
}

// shutDown ends a node in the right order: it frees its sessions.
func (s *servingSite) shutDown(i int) {
	s.t.Helper()
	v := s.nodes[i]
	if v == nil {
		return
	}
	s.nodes[i] = nil
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- v.Drain(ctx) }()
	for _, end := range []func() error{
		func() error { return v.handler.Shutdown(ctx, nil) }, func() error { return <-drained },
		func() error {
			s.leave(i) // only now does the balancer learn of it
			v.public.Close()
			return nil
		},
		func() error { return v.Node.Close(ctx) }, v.engine.Close,
	} {
		if err := end(); err != nil {
			s.t.Errorf("node %s: %v", v.Name(), err)
		}
	}
}

// leave takes a node out, when the calls that were sent there are over.
func (s *servingSite) leave(i int) {
	s.calling.Lock()
	defer s.calling.Unlock()
	s.front.Set(i, nil)
}

// post sends a message of a session to a node.
func (s *servingSite) post(at, session, body string) (status int, header http.Header, answer []byte) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), guard)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", at, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
		r.Header.Set("MCP-Protocol-Version", "2025-11-25")
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Error(err)
		return 0, nil, nil
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		s.t.Error(err)
	}
	return response.StatusCode, response.Header, answer
}

// begin begins a session at a node, and waits until it is stored.
func (s *servingSite) begin(i int) string {
	s.t.Helper()
	at := s.nodes[i].public.URL
	status, header, answer := s.post(at, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	if status != http.StatusOK {
		s.t.Fatalf("initialize got %d %s", status, answer)
	}
	session := header.Get("Mcp-Session-Id")
	if status, _, answer := s.post(at, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); status != http.StatusAccepted {
		s.t.Fatalf("initialized got %d %s", status, answer)
	}
	s.save(i)
	return session
}

func (s *servingSite) save(i int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	s.nodes[i].Flush(ctx)
}

// call calls the tool, and returns the node that has executed it; "" with another status than 200.
func (s *servingSite) call(at, session, call string) (status int, by string) {
	s.t.Helper()
	status, _, answer := s.post(at, session, fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"note","arguments":{"call":%q}}}`, call))
	if status != http.StatusOK {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refusals[fmt.Sprintf("%d %.200s", status, answer)]++
		return status, ""
	}
	_, data, events := bytes.Cut(answer, []byte("data: {"))
	if events {
		answer = append([]byte("{"), data...)
	}
	var response struct {
		Result struct {
			Content []struct{ Text string }
		}
	}
	if err := json.NewDecoder(bytes.NewReader(answer)).Decode(&response); err != nil || len(response.Result.Content) != 1 {
		s.t.Errorf("call %s got %s, %v", call, answer, err)
		return status, ""
	}
	return status, response.Result.Content[0].Text
}

// wantCall calls the tool, and checks which node executes it.
func (s *servingSite) wantCall(i int, session, call, by string) {
	s.t.Helper()
	if status, got := s.call(s.nodes[i].public.URL, session, call); status != http.StatusOK || got != by {
		s.t.Errorf("call %s at node %s: got %d from %q, want node %s; refused until now: %v", call, s.nodes[i].Name(), status, got, by, s.refusals)
	}
}

// When a node is killed, the next request takes its session, at whichever node it arrives, with the
// same id, and without waiting for the lease. If the lease may have ended meanwhile, on a busy machine, it is tried again; so it is
// if the request was written to a connection whose end had not come yet, since then nobody can say whether it was executed.
//
// Guarantees: G-0082.1
func TestSessionOfAKilledNode(t *testing.T) {
	t.Parallel()
	var took time.Duration
	for range 5 {
		if took = takesSessionsOfAKilledNode(t); took > 0 && took <= cluster.LeaseTTL/2 {
			return
		}
	}
	t.Errorf("the sessions were taken after %v; 0s: the first request was not answered", took)
}

// takesSessionsOfAKilledNode returns how long it took until others served the sessions of a node, or 0 if it is not known what became of the
// first request.
func takesSessionsOfAKilledNode(t *testing.T) (took time.Duration) {
	t.Helper()
	s := newServingSite(t, 3)
	sessions := []string{s.begin(0), s.begin(0), s.begin(0)}
	for i, session := range sessions {
		s.wantCall(i, session, fmt.Sprint("before ", i), "a")
	}
	s.kill(0)
	began := time.Now()
	switch status, by := s.call(s.nodes[1].public.URL, sessions[0], "b takes it"); {
	case status == http.StatusBadGateway:
		return 0
	case status != http.StatusOK || by != "b":
		t.Errorf("call b takes it: got %d from %q, want node b", status, by)
	}
	s.wantCall(2, sessions[0], "b has it", "b")
	s.wantCall(2, sessions[1], "c takes it", "c")
	s.wantCall(1, sessions[1], "c has it", "c")
	s.wantCall(1, sessions[1], "b remembers that", "c")
	took = time.Since(began)
	s.start(0) // again, under the same name
	s.wantCall(0, sessions[0], "a learns that b has it", "b")
	s.wantCall(0, sessions[2], "a takes it back", "a")
	if status, _ := s.call(s.nodes[1].public.URL, "a.unknown", "unknown"); status != http.StatusNotFound {
		t.Errorf("got %d of an unknown session, want 404", status)
	}
	s.books.balance(t, []string{"b takes it", "b has it", "c takes it", "c has it", "b remembers that", "a learns that b has it", "a takes it back"})
	return took
}

// All nodes are restarted one after the other, and a session goes on with the same id: that of a
// client of Bowline, which makes one initialize, and one over plain HTTP.
//
// Guarantees: G-0082.1
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	s := newServingSite(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 3*guard)
	defer cancel()
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{ProtocolVersion: protocol.LatestLegacy}).
		Connect(ctx, &streamable.Client{URL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(ctx)
	raw := s.begin(0)
	var answered []string
	calls := func(when string) {
		t.Helper()
		for n := range 4 {
			call := fmt.Sprintf("client %s %d", when, n)
			arguments, err := json.Marshal(map[string]string{"call": call})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "note", Arguments: arguments}); err != nil {
				t.Errorf("%s: %v", call, err)
			}
			answered = append(answered, call)
			call = fmt.Sprintf("raw %s %d", when, n)
			if status, _ := s.call(s.url, raw, call); status != http.StatusOK {
				t.Errorf("%s: got %d", call, status)
			}
			answered = append(answered, call)
		}
	}
	calls("at first")
	for i := range s.nodes {
		s.shutDown(i)
		calls(fmt.Sprintf("without %d", i))
		s.start(i)
		calls(fmt.Sprintf("with %d again", i))
	}
	if epoch := epochOf(ctx, session); epoch != 1 {
		t.Errorf("the client has connected %d times, want once", epoch)
	}
	s.books.balance(t, answered)
}

// epochOf returns how often a client has initialized.
func epochOf(ctx context.Context, session *client.Session) uint64 {
	for status := range session.Changes(ctx) {
		return status.Epoch
	}
	return 0
}

// Two requests of a session arrive at two nodes at the same time, just when its node has ended. One
// node takes it, and serves both.
//
// Guarantees: G-0082.1
func TestTwoNodesTakeOneSession(t *testing.T) {
	t.Parallel()
	s := newServingSite(t, 3)
	const rounds = 100
	var sessions []string
	for range rounds {
		sessions = append(sessions, s.begin(0))
	}
	s.kill(0)
	var mu sync.Mutex
	var answered []string
	for round, session := range sessions {
		by := make([]string, 2)
		var work sync.WaitGroup
		for i := range by {
			work.Go(func() {
				call := fmt.Sprintf("%d at %d", round, i)
				status, got := s.call(s.nodes[1+i].public.URL, session, call)
				if status == http.StatusOK {
					by[i] = got
					mu.Lock()
					answered = append(answered, call)
					mu.Unlock()
				} else {
					t.Errorf("call %s got %d", call, status)
				}
			})
		}
		work.Wait()
		if by[0] != "" && by[1] != "" && by[0] != by[1] {
			t.Errorf("round %d: the requests were served by %v, want one node", round, by)
		}
		_, owner := s.call(s.nodes[1].public.URL, session, fmt.Sprintf("%d afterwards", round))
		if owner == "" || by[0] != "" && by[0] != owner {
			t.Errorf("round %d: node %q has it afterwards, and %v served it before", round, owner, by)
		}
	}
	s.books.balance(t, answered)
}

// In the steady state a call sends the engine no message, at the node of its session or at another.
// cluster/nats/embedded has a test with NATS.
//
// Guarantees: G-0077.7
func TestCallsSendNoMessages(t *testing.T) {
	s := newServingSite(t, 2)
	session := s.begin(0)
	s.wantCall(1, session, "first", "a")
	count := func() (all uint64) {
		for _, v := range s.nodes {
			sent, received := v.engine.Messages()
			all += sent + received
		}
		return all
	}
	before, began := count(), time.Now()
	const calls = 300
	for n := range calls {
		s.wantCall(n%2, session, fmt.Sprint("call ", n), "a")
	}
	renewals := 1 + uint64(time.Since(began)/(5*time.Second)) // each node writes its lease, and both see it
	if n := count() - before; n > 8*renewals {
		t.Errorf("%d calls sent and received %d messages, want those of %d renewals", calls, n, renewals)
	}
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// What a node has freed is not known to the others at once. Its calls wait for that, at whichever node
// they arrive.
//
// Guarantees: G-0073.10
func TestCallWaitsForNewsOfADrain(t *testing.T) {
	t.Parallel()
	s := newServingSite(t, 3)
	sessions := []string{s.begin(0), s.begin(0)}
	s.nodes[0].engine.Faults(func(op clustertest.Operation) clustertest.Fault {
		if op.Name == "update" && op.Subject == "session" {
			return clustertest.Fault{Delay: 300 * time.Millisecond}
		}
		return clustertest.Fault{}
	})
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	if err := s.nodes[0].handler.Shutdown(ctx, nil); err != nil {
		t.Error(err)
	}
	var calling sync.WaitGroup
	for i, session := range sessions {
		calling.Go(func() {
			if status, by := s.call(s.nodes[i].public.URL, session, session); status != http.StatusOK || by == "a" {
				t.Errorf("at node %s: got %d from %q", s.nodes[i].Name(), status, by)
			}
		})
	}
	calling.Wait()
	for what, n := range s.refusals {
		t.Errorf("%d calls got %s", n, what)
	}
}

// A node that drains names others that do not, the same one for a session each time.
func TestAnotherNode(t *testing.T) {
	service := clustertest.New(clustertest.Options{})
	a, b, c := join(t, service, "a"), join(t, service, "b"), join(t, service, "c")
	router := a.Router()
	if got := router.Another("s"); got != "" {
		t.Errorf("got %q, which serves nobody", got)
	}
	serve(t, b, http.NotFoundHandler())
	serve(t, c, http.NotFoundHandler())
	a.reaches(t, "b")
	a.reaches(t, "c")
	first := router.Another("s")
	if second := router.Another("s", first, ""); first == "" || second == "" || first == second || router.Another("s") != first {
		t.Errorf("got %q, then %q, and then %q", first, second, router.Another("s"))
	}
	draining := map[string]testNode{"b": b, "c": c}[first]
	if err := draining.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	a.await(t, first+" drains", func() bool { return router.Another("s") != first })
	if got := router.Another("s", "b", "c"); got != "" {
		t.Errorf("got %q of no nodes", got)
	}
}

// All nodes are restarted one after the other, while many sessions call all the time through a
// balancer that learns of it later. No call that comes after a drain has begun is refused, and each is
// executed once.
//
// Guarantees: G-0073.10
func TestRollingRestartUnderLoad(t *testing.T) {
	t.Parallel()
	s := newServingSite(t, 3)
	const sessions = 12
	var mu sync.Mutex
	var answered []string
	over := make(chan struct{})
	var calling sync.WaitGroup
	for i := range sessions {
		session := s.begin(i % 3)
		calling.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				call := fmt.Sprintf("%d of session %d", n, i)
				s.calling.RLock() // a node that closes its listener breaks connections, which is not what this is about
				status, _ := s.call(s.url, session, call)
				s.calling.RUnlock()
				mu.Lock()
				if status == http.StatusOK {
					answered = append(answered, call)
				}
				mu.Unlock()
			}
		})
	}
	for range 2 {
		for i := range s.nodes {
			s.shutDown(i)
			s.start(i)
		}
	}
	close(over)
	calling.Wait()
	for what, n := range s.refusals {
		// A call that comes when the drain begins may meet it half-way: it is refused, or nobody says whether it was
		// executed. The books say that it was not executed twice.
		halfWay := strings.Contains(what, "shutting down") || strings.Contains(what, "the session has ended before the response came")
		if !halfWay || n > 6 {
			t.Errorf("%d of %d calls got %s", n, len(answered), what)
		}
	}
	t.Logf("%d calls were answered", len(answered))
	s.books.balance(t, answered)
}
