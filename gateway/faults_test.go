package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// newFaulty starts a gateway over b, which works, and over servers that are reached in other ways. Sessions with these take the revision that
// they agree on.
func newFaulty(t *testing.T, others map[string]transport.Transport) *fleet {
	t.Helper()
	return newFaultyWith(t, others, client.Options{})
}

// newFaultyWith is newFaulty with options of the client that each server has.
func newFaultyWith(t *testing.T, others map[string]transport.Transport, of client.Options) *fleet {
	t.Helper()
	f := &fleet{
		t: t, servers: map[string]*server.Server{"b": named("b")}, links: make(map[string]transport.Link),
		broken: make(map[string]bool), opened: make(map[string]int),
	}
	f.Gateway = gateway.New(gateway.Options{Client: of, Each: func(s *mcpjson.Server, o *client.Options) {
		o.Conn.BackoffMin = 50 * time.Millisecond
		o.Conn.StopGrace = 20 * time.Second // on a busy machine, what is to end takes longer than it should
		if s.Transport = others[s.Name]; s.Transport == nil {
			s.Transport = &place{f, s.Name}
		}
	}})
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Errorf("the gateway ended with %v", err)
		}
		f.servers["b"].Close(context.Background())
	})
	names := []string{"b"}
	for name := range others {
		names = append(names, name)
	}
	f.apply(fileOf(t, names...))
	return f
}

// A script is a legacy server that answers each request but initialize as a test says: with a result, and with whatever it sends before that.
type script func(m jsonrpc.Message, send func(frame string)) (result string)

// Open implements transport.Transport.
func (answer script) Open(ctx context.Context) (transport.Link, error) {
	return inmem.New(func(link transport.Link) {
		send := func(frame string) { _ = link.Send(transport.Outbound{Frame: []byte(frame)}) } // the link may be gone
		link.Bind(peertest.Receive(func(in transport.Inbound) {
			m, err := jsonrpc.Decode(in.Frame, jsonrpc.Limits{})
			if err != nil || m.Kind != jsonrpc.KindRequest {
				return
			}
			result := `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}`
			switch m.Method {
			case protocol.MethodInitialize, protocol.MethodPing:
			case protocol.MethodDiscover:
				send(string(jsonrpc.AppendError(nil, m.ID, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound})))
				return
			default:
				result = answer(m, send)
			}
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID.Append(nil), result))
		}))
		link.Grant(transport.Main, 1<<20)
	}, inmem.Options{}).Open(ctx)
}

// Nobody waits for a list that its server has answered with something else.
//
// Guarantees: G-0088.3
func TestAListThatIsNone(t *testing.T) {
	for _, list := range []string{`{"tools":7}`, `{}`, `{"tools":[7]}`, `[]`} {
		synctest.Test(t, func(t *testing.T) {
			f := newFaulty(t, map[string]transport.Transport{"a": script(func(jsonrpc.Message, func(string)) string { return list })})
			session, began := f.client(protocol.LatestLegacy, client.Options{}), time.Now()
			names := toolNames(t, session)
			if took := time.Since(began); took > time.Second || !slices.Contains(names, "b__who") {
				t.Errorf("%s: after %v the tools are %q", list, took, names)
			}
		})
	}
}

// A server whose list has changed each time that it is read is read once a second in the end, and the report says so. Its calls, and those of
// others, do not wait for that. A notification that has no room beside those that wait meanwhile is dropped and counted.
//
// Guarantees: G-0088.19
func TestAListThatChangesWhenItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists atomic.Int64
		const most = 4 << 20 // bytes of the notifications that wait
		f := newFaultyWith(t, map[string]transport.Transport{"a": script(func(m jsonrpc.Message, send func(string)) string {
			if m.Method != protocol.MethodListTools {
				return `{"content":[{"type":"text","text":"done"}]}`
			}
			n := lists.Add(1)
			if n < 10_000 {
				send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			}
			if n == 20 {
				for _, size := range []int{most/4 + 1, 1, most} { // the first waits for the list, the second for the first
					send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test:///` + strings.Repeat("x", size) + `"}}`)
				}
			}
			return fmt.Sprintf(`{"tools":[{"name":"t","inputSchema":{"type":"object"}},{"name":"n%d","inputSchema":{"type":"object"}}]}`, n)
		})}, client.Options{Conn: conn.Tuning{MaxHeld: most}})
		session := f.client(protocol.LatestLegacy, client.Options{})
		toolNames(t, session)
		pass(time.Minute)
		before, began := lists.Load(), time.Now()
		for _, tool := range []string{"a__t", "b__who"} {
			if result, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: tool}); err != nil || result.IsError {
				t.Errorf("%s: %v, %v", tool, result, err)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the calls took %v", took)
		}
		pass(time.Minute)
		if n := lists.Load() - before; n < 30 || n > 61 {
			t.Errorf("in a minute the list was read %d times", n)
		}
		s, _ := f.Report().Server("a")
		for _, want := range []string{"change all the time", "1 of its notifications were dropped"} {
			if !strings.Contains(fmt.Sprint(s.Notices), want) {
				t.Errorf("the notices are %q, want %q", s.Notices, want)
			}
		}
		if names := toolNames(t, session); len(names) != 3 {
			t.Errorf("the tools are %q", names)
		}
	})
}

// A server that was replaced by another program has another revision, another name and other tools. The client is told once, and finds the new
// ones.
//
// Guarantees: G-0088.7
func TestAServerThatIsAnotherAfterItsDeath(t *testing.T) {
	for _, versions := range [][2]string{{protocol.LatestLegacy, protocol.Latest}, {protocol.Latest, protocol.LatestLegacy}} {
		synctest.Test(t, func(t *testing.T) {
			var links []transport.Link
			var all []*server.Server
			for i, version := range versions {
				s := server.New(protocol.Implementation{Name: fmt.Sprint("s", i), Version: "1"}, server.Options{ProtocolVersions: []string{version}})
				for _, tool := range []string{"both", fmt.Sprint("only", i)} {
					server.AddTool(s, protocol.Tool{Name: tool}, func(context.Context, struct{}) (string, error) { return fmt.Sprint("s", i), nil })
				}
				all = append(all, s)
				defer s.Close(context.Background())
			}
			f := newFaulty(t, map[string]transport.Transport{"a": inmem.New(func(link transport.Link) {
				now := all[min(len(links), 1)]
				links = append(links, link)
				now.Accept(link)
			}, inmem.Options{})})
			var told atomic.Int64
			session := f.client(protocol.LatestLegacy, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
				if _, ok := e.(*client.ToolsChanged); ok {
					told.Add(1)
				}
			}})
			if names := toolNames(t, session); !slices.Equal(names, []string{"a__both", "a__only0", "b__who"}) {
				t.Errorf("the tools are %q", names)
			}
			pass(5 * time.Second)
			told.Store(0)
			links[len(links)-1].Close(0)
			synctest.Wait()
			if text, err := client.Call[string](t.Context(), session, "a__both", nil); err != nil || text != "s1" {
				t.Errorf("after the change: %q, %v", text, err)
			}
			pass(5 * time.Second)
			if names := toolNames(t, session); told.Load() != 1 || !slices.Equal(names, []string{"a__both", "a__only1", "b__who"}) {
				t.Errorf("told %d times; the tools are %q", told.Load(), names)
			}
		})
	}
}

// hostile is what a server lists that is no good citizen: each entry is offered, or left out with a notice, and hides no other.
var hostile = []struct{ name, entry, notice string }{
	{"schema that is no object", `{"name":"text","inputSchema":"none"}`, "text"},
	{"cyclic schema", `{"name":"cyclic","inputSchema":{"type":"object","properties":{"a":{"$ref":"#"}}}}`, ""},
	{"schema that is itself", `{"name":"self","inputSchema":{"type":"object","$ref":"#"}}`, ""},
	{"schema of another document", `{"name":"remote","inputSchema":{"type":"object"},"outputSchema":{"$ref":"https://example.com/a"}}`, "remote"},
	{"expression that explodes", `{"name":"pattern","inputSchema":{"type":"object","properties":{"a":{"type":"string","pattern":"^(a+)+$"}}}}`, ""},
	{"huge description", `{"name":"long","description":"` + strings.Repeat("x", 1<<20-200) + `","inputSchema":{"type":"object"}}`, "long"},
	{"no name", `{"inputSchema":{"type":"object"}}`, "name"},
}

// What no client could use is left out or cut, with a notice, and a tool with a costly schema can be called. One with a reference that
// clients refuse is offered, with a notice.
//
// Guarantees: G-0090.9, G-0090.15
func TestListsOfHostileServers(t *testing.T) {
	var entries []string
	for _, h := range hostile {
		entries = append(entries, h.entry)
	}
	f := newFaulty(t, map[string]transport.Transport{"a": script(func(m jsonrpc.Message, _ func(string)) string {
		if m.Method == protocol.MethodListTools {
			return `{"tools":[` + strings.Join(entries, ",") + `]}`
		}
		return `{"content":[{"type":"text","text":"done"}]}`
	})})
	session := f.client(protocol.Latest, client.Options{})
	names := toolNames(t, session)
	if !slices.Equal(names, []string{"a__cyclic", "a__long", "a__pattern", "a__remote", "a__self", "b__who"}) {
		t.Errorf("the tools are %q", names)
	}
	s, _ := f.Report().Server("a")
	for _, h := range hostile {
		if !strings.Contains(strings.Join(s.Notices, "\n"), h.notice) {
			t.Errorf("%s: no notice in %q", h.name, s.Notices)
		}
	}
	for _, name := range names {
		arguments := json.RawMessage(`{"a":"` + strings.Repeat("a", 60) + `!"}`)
		if result, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: name, Arguments: arguments}); err != nil || result.IsError && name != "b__who" {
			t.Errorf("%s: %v, %v", name, result, err)
		}
	}
}

// The log says once that clients may refuse an input schema, and that results are not checked since the output schema is refused, also if its server lists the tool again, and again after the list has changed it.
//
// Guarantees: G-0090.15
func TestTheLogSaysOnceThatASchemaMayBeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lists := new(journal), make(chan string, 1)
		tell, current := make(chan func(string), 1), `{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}`
		a := script(func(m jsonrpc.Message, send func(string)) string {
			if m.Method != protocol.MethodListTools {
				tell <- send
				return `{"content":[{"type":"text","text":"done"}]}`
			}
			select {
			case current = <-lists:
			default:
			}
			return `{"tools":[` + current + `]}`
		})
		f := newFaultyWith(t, map[string]transport.Transport{"a": a}, client.Options{Conn: conn.Tuning{Log: slog.New(slog.NewTextHandler(log, nil))}})
		session := f.client(protocol.LatestLegacy, client.Options{})
		toolNames(t, session)
		if _, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__t"}); err != nil {
			t.Fatal(err)
		}
		send := <-tell
		said := func(what string) int { return strings.Count(log.String(), what) }
		for i, step := range []struct {
			schema, beside string
			said           int
		}{
			{`{"type":"object"}`, "", 0},
			{`{"$ref":"https://example.com/a"}`, "", 1},
			{`{"$ref":"https://example.com/a"}`, `,{"name":"u","inputSchema":{"type":"object"}}`, 1},
			{`{"$ref":"https://example.com/b"}`, "", 2},
			{`{"type":"object"}`, "", 2},
			{`{"$ref":"https://example.com/b"}`, "", 3},
		} {
			lists <- `{"name":"t","inputSchema":` + step.schema + `,"outputSchema":` + step.schema + `}` + step.beside
			send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			<-time.NewTimer(5 * time.Second).C
			synctest.Wait()
			for _, what := range []string{`server=a notice="the inputSchema of \"t\" may be refused by clients`, `"bowline: results are not checked" conn=a tool=t`} {
				if n := said(what); n != step.said {
					t.Errorf("after the list %d the log has said %s %d times, want %d:\n%s", i, what, n, step.said, log)
				}
			}
		}
	})
}

// A list without an end is read until a bound, and that is said; the other servers' tools are all there.
//
// Guarantees: G-0088.19, G-0090.9
func TestListsWithoutAnEnd(t *testing.T) {
	for what, page := range map[string]func(n int64) string{
		"the same cursor": func(int64) string {
			return `{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"nextCursor":"same"}`
		},
		"pages without an end": func(n int64) string {
			return fmt.Sprintf(`{"tools":[{"name":"t%05d","inputSchema":{"type":"object"}}],"nextCursor":"%d"}`, n, n)
		},
		"too many tools": func(n int64) string {
			var all []string
			for i := range 2000 {
				all = append(all, fmt.Sprintf(`{"name":"t%02d%04d","inputSchema":{"type":"object"}}`, n, i))
			}
			return `{"tools":[` + strings.Join(all, ",") + fmt.Sprintf(`],"nextCursor":"%d"}`, n)
		},
	} {
		t.Run(what, func(t *testing.T) {
			var lists atomic.Int64
			f := newFaulty(t, map[string]transport.Transport{"a": script(func(m jsonrpc.Message, _ func(string)) string { return page(lists.Add(1)) })})
			f.cut("a")
			names := toolNames(t, f.client(protocol.Latest, client.Options{}))
			if n := lists.Load(); n > 100 || len(names) > 10_001 || !slices.Contains(names, "b__who") {
				t.Errorf("%d pages were read, %d tools are offered", n, len(names))
			}
		})
	}
}

// cut waits until the report says that a list of a server was cut.
func (f *fleet) cut(name string) {
	f.t.Helper()
	ctx := timeout(f.t)
	for {
		changed := f.Changed()
		if s, _ := f.Report().Server(name); len(s.Notices) > 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			f.t.Fatal("the report does not say that the list was cut")
		}
	}
}

// What a client means is found as soon as its server has said what it has, although others hang.
//
// Guarantees: G-0088.3
func TestServersThatHangAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, hang := named("slow"), opening(func(ctx context.Context) (transport.Link, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		defer slow.Close(context.Background())
		others := map[string]transport.Transport{"slow": opening(func(ctx context.Context) (transport.Link, error) {
			pass(time.Second)
			return inmem.New(slow.Accept, inmem.Options{}).Open(ctx)
		})}
		for i := range 50 {
			others[fmt.Sprint("hangs", i)] = hang
		}
		f := newFaulty(t, others)
		session := f.client(protocol.LatestLegacy, client.Options{})
		began := time.Now()
		callWho(t, session, "slow")
		failOn(t, second(session.ReadResource(timeout(t), &protocol.ReadResourceParams{URI: "slow:/one"})))
		if took := time.Since(began); took != time.Second {
			t.Errorf("a server that started in a second answered after %v", took)
		}
	})
}

// A remote is a server over HTTP with a fault that the test chooses.
type remote struct {
	*httptest.Server
	fault    atomic.Pointer[http.HandlerFunc] // nil: it works
	sessions atomic.Int64                     // that were begun
	ran      atomic.Int64                     // tools
}

func newRemote(t *testing.T) *remote {
	r, s := new(remote), server.New(protocol.Implementation{Name: "far", Version: "1"}, server.Options{ProtocolVersions: []string{protocol.LatestLegacy}})
	server.AddTool(s, protocol.Tool{Name: "who"}, func(context.Context, struct{}) (string, error) { r.ran.Add(1); return "far", nil })
	h := streamable.NewHandler(s, streamable.HandlerOptions{})
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if fault := r.fault.Load(); fault != nil {
			(*fault)(w, q)
			return
		}
		if q.Method == http.MethodPost && q.Header.Get("Mcp-Session-Id") == "" {
			r.sessions.Add(1)
		}
		h.ServeHTTP(w, q)
	}))
	t.Cleanup(func() {
		s.Close(context.Background())
		h.Close(0)
		r.Server.Close()
	})
	return r
}

// A fault of a server over HTTP ends or delays the calls to it alone, with the reason; what the client had goes on, and when the fault is over
// the server answers.
//
// Guarantees: G-0088.3, G-0088.20
func TestFaultsOfRemoteServers(t *testing.T) {
	var strangers atomic.Int64
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strangers.Add(1) }))
	defer stranger.Close()
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, q *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
		}
	}
	for what, c := range map[string]struct {
		fault http.HandlerFunc
		want  []string // in the answer while it lasts
	}{
		"401": {status(http.StatusUnauthorized), []string{"401", "not executed"}},
		"429": {status(http.StatusTooManyRequests, "Retry-After", "7"), []string{"429", "try again in 7 s", "not executed"}},
		"503": {status(http.StatusServiceUnavailable, "Retry-After", "7"), []string{"503", "try again in 7 s", "not executed"}},
		"redirect": {func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, stranger.URL, http.StatusTemporaryRedirect)
		}, []string{"redirect"}},
		"another page": {status(http.StatusOK, "Content-Type", "text/html"), nil},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			far := newRemote(t)
			f := newFaulty(t, map[string]transport.Transport{"a": &streamable.Client{URL: far.URL}})
			session := f.client(protocol.Latest, client.Options{})
			call := func(name string) *protocol.CallToolResult {
				t.Helper()
				result, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: name})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				return result
			}
			toolNames(t, session)
			if result := call("a__who"); result.IsError {
				t.Fatal(result.Content.Text())
			}
			far.fault.Store(&c.fault)
			before := far.ran.Load()
			for range 2 { // the first may find the fault
				result := call("a__who")
				text := result.Content.Text()
				if !result.IsError || strings.Count(text, "executed") != 1 { // what became of the call is said once
					t.Errorf("the answer is %q", text)
				}
				for _, fragment := range c.want {
					if !strings.Contains(text, fragment) {
						t.Errorf("the answer is %q, want %q in it", text, fragment)
					}
				}
				if call("b__who").IsError {
					t.Error("the other server is concerned")
				}
			}
			far.fault.Store(nil)
			failOn(t, f.Do(timeout(t), "a", admin.Wake))
			f.await("a", admin.Ready)
			if result := call("a__who"); result.IsError || far.ran.Load() != before+1 {
				t.Errorf("after the fault: %s, and the tool has run %d times", result.Content.Text(), far.ran.Load()-before)
			}
		})
	}
	t.Cleanup(func() {
		if strangers.Load() != 0 {
			t.Error("a redirect to another host was followed")
		}
	})
}

// A session that the server has forgotten is begun again at once, once, and the call is answered. The client does not notice.
//
// Guarantees: G-0088.20
func TestASessionThatTheServerHasForgotten(t *testing.T) {
	far := newRemote(t)
	f := newFaulty(t, map[string]transport.Transport{"a": &streamable.Client{URL: far.URL}})
	session := f.client(protocol.Latest, client.Options{})
	toolNames(t, session)
	before := far.sessions.Load()
	var once sync.Once
	forget := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		once.Do(func() { far.fault.Store(nil) })
		w.WriteHeader(http.StatusNotFound)
	})
	far.fault.Store(&forget)
	if text, err := client.Call[string](timeout(t), session, "a__who", nil); err != nil || text != "far" {
		t.Errorf("got %q, %v", text, err)
	}
	if begun := far.sessions.Load() - before; begun != 1 || far.ran.Load() != 1 {
		t.Errorf("%d sessions were begun, and the tool has run %d times", begun, far.ran.Load())
	}
}

// A server that takes connections and never says a word, or that cannot show who it is, is not ready, and nobody else waits for it.
//
// Guarantees: G-0088.3
func TestServersThatNeverBecomeReady(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	failOn(t, err)
	defer mute.Close()
	unknown := httptest.NewTLSServer(http.NotFoundHandler())
	defer unknown.Close()
	f := newFaulty(t, map[string]transport.Transport{
		"mute": &streamable.Client{URL: "http://" + mute.Addr().String()}, "unknown": &streamable.Client{URL: unknown.URL},
	})
	session := f.client(protocol.Latest, client.Options{})
	if text, err := client.Call[string](timeout(t), session, "b__who", nil); err != nil || text != "b and " {
		t.Errorf("%q, %v", text, err)
	}
	f.await("unknown", admin.Backoff)
	if s, _ := f.Report().Server("unknown"); !strings.Contains(s.LastFailure, "certificate") {
		t.Errorf("the reason is %q", s.LastFailure)
	}
	f.await("mute", admin.Starting)
}

// A list that a server cannot say keeps none of its others back.
func TestAListThatFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				if r.Method == protocol.MethodListTools {
					return nil, &jsonrpc.Error{Code: 7, Message: "no tools today"}
				}
				return next(ctx, r)
			}
		}
		s := server.New(protocol.Implementation{Name: "a", Version: "1"}, server.Options{Middleware: []server.Middleware{fails}})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { return "", nil })
		server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, struct{}) (string, error) { return "", nil })
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		session := f.client(protocol.LatestLegacy, client.Options{})
		result, err := session.ListPrompts(timeout(t), nil)
		if err != nil || len(result.Prompts) != 1 || result.Prompts[0].Name != "a__p" {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

// That the catalogue cannot be kept is in the report for as long as that is so.
func TestACatalogueThatCannotBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "catalogue")
		failOn(t, os.MkdirAll(filepath.Join(path, "in the way"), 0o700))
		servers := two()
		f := newFleetWith(t, protocol.LatestLegacy, servers, gateway.Options{Catalogue: path, Client: client.Options{Conn: conn.Tuning{Log: slog.New(slog.DiscardHandler)}}})
		pass(5 * time.Second)
		if notices := f.Report().Notices; len(notices) != 1 || !strings.Contains(notices[0], "is not kept for the next start") {
			t.Errorf("it cannot be kept: %q", notices)
		}
		failOn(t, os.RemoveAll(path))
		server.AddTool(servers["a"], protocol.Tool{Name: "another"}, func(context.Context, struct{}) (string, error) { return "", nil })
		pass(5 * time.Second)
		if notices := f.Report().Notices; len(notices) != 0 {
			t.Errorf("it is kept: %q", notices)
		}
	})
}
