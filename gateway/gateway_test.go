package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A fleet is a gateway over servers in this process.
type fleet struct {
	*gateway.Gateway
	t       *testing.T
	version string // of the sessions with servers

	identity  string            // of the clients that come next; "": they have no login
	principal any               // what that login says
	who       *transport.Origin // the login of the last one, which may change while none of its requests is under way

	mu      sync.Mutex
	servers map[string]*server.Server
	links   map[string]transport.Link // the last one of each server
	broken  map[string]bool           // cannot be reached
	each    func() *server.Server     // makes the server of each further connection; nil: it is the same one
	opens   opening                   // how servers are reached from now on; nil: in this process
	opened  map[string]int            // how often each was started
}

// newFleet starts a gateway whose sessions speak one revision, over these servers.
func newFleet(t *testing.T, version string, servers map[string]*server.Server) *fleet {
	t.Helper()
	return newFleetWith(t, version, servers, gateway.Options{})
}

func newFleetWith(t *testing.T, version string, servers map[string]*server.Server, o gateway.Options) *fleet {
	t.Helper()
	return newFleetFor(t, version, servers, o, fileOf(t, keys(servers)...))
}

func newFleetFor(t *testing.T, version string, servers map[string]*server.Server, o gateway.Options, file *mcpjson.File) *fleet {
	t.Helper()
	f := &fleet{t: t, version: version, servers: servers, links: make(map[string]transport.Link), broken: make(map[string]bool), opened: make(map[string]int)}
	given := o.Each
	o.Each = func(s *mcpjson.Server, o *client.Options) {
		o.ProtocolVersion = version
		o.Conn.BackoffMin = time.Hour // nothing but a call makes a server try again
		o.Conn.BackoffMax = time.Hour
		o.Conn.StopGrace = 20 * time.Second // on a busy machine, what is to end takes longer than it should
		if given != nil {
			given(s, o)
		}
		s.Transport = (*place)(&struct {
			*fleet
			name string
		}{f, s.Name})
	}
	f.Gateway = gateway.New(o)
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Errorf("the gateway ended with %v", err)
		}
		for _, s := range f.servers {
			s.Close(context.Background())
		}
	})
	f.apply(file)
	return f
}

// A place is where one server is reached.
type place struct {
	*fleet
	name string
}

// Open implements transport.Transport.
func (p *place) Open(ctx context.Context) (transport.Link, error) {
	p.mu.Lock()
	open := p.opens
	p.mu.Unlock()
	if open != nil {
		return open(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened[p.name]++
	if p.broken[p.name] {
		return nil, errors.New("out of order")
	}
	ours, theirs := inmem.Pipe(inmem.Options{})
	p.links[p.name] = theirs
	if p.each != nil {
		p.servers[fmt.Sprint(p.name, " ", p.opened[p.name])] = p.each()
		p.servers[fmt.Sprint(p.name, " ", p.opened[p.name])].Accept(theirs)
		return ours, nil
	}
	p.servers[p.name].Accept(theirs)
	return ours, nil
}

// kill ends the connection with a server, as if its process had died. Unless it may come back, it cannot be reached any more.
func (f *fleet) kill(name string, comesBack bool) {
	f.mu.Lock()
	link := f.links[name]
	f.broken[name] = !comesBack
	f.mu.Unlock()
	link.Close(0)
}

func keys(servers map[string]*server.Server) (names []string) {
	for name := range servers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// fileOf returns a file with these servers.
func fileOf(t *testing.T, names ...string) *mcpjson.File {
	t.Helper()
	var entries []string
	for _, name := range names {
		entries = append(entries, fmt.Sprintf(`%q:{"command":%q}`, name, "/bin/"+name))
	}
	return load(t, `{"mcpServers":{`+strings.Join(entries, ",")+`}}`)
}

func load(t *testing.T, text string) *mcpjson.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := mcpjson.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func (f *fleet) apply(file *mcpjson.File) {
	f.t.Helper()
	if _, err := f.Apply(f.t.Context(), file); err != nil {
		f.t.Fatal(err)
	}
}

// client connects a client of a revision.
func (f *fleet) client(version string, o client.Options) *client.Session {
	f.t.Helper()
	o.ProtocolVersion, o.FailFast = version, true
	who := &transport.Origin{Identity: f.identity, Principal: f.principal}
	f.who = who
	accept := func(link transport.Link) {
		if who.Identity != "" {
			link = peertest.From(who, link)
		}
		f.Server().Accept(link)
	}
	over := specification.WatchClient(f.t, inmem.New(accept, inmem.Options{}))
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, o).Connect(timeout(f.t), over)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { session.Close(context.Background()) })
	return session
}

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// eras runs a test for each pair of a client's and a server's revision.
func eras(t *testing.T, test func(t *testing.T, front, back string)) {
	for _, front := range []string{protocol.Version20241105, protocol.LatestLegacy, protocol.Latest} {
		for _, back := range []string{protocol.Version20241105, protocol.LatestLegacy, protocol.Latest} {
			t.Run(front+" to "+back, func(t *testing.T) { test(t, front, back) })
		}
	}
}

// named returns a server with a feature of each kind, whose results contain its name.
func named(name string) *server.Server {
	s := server.New(protocol.Implementation{Name: name, Version: "1"}, server.Options{OnSubscribe: func(context.Context, string) error { return nil }})
	server.AddTool(s, protocol.Tool{Name: "who"}, func(_ context.Context, in struct {
		You string `json:"you,omitzero"`
	}) (string, error) {
		return name + " and " + in.You, nil
	})
	server.AddResource(s, protocol.Resource{URI: name + ":/one", Name: "one"}, func(context.Context) (string, error) { return name, nil })
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: name + ":/all/{N}", Name: "all"}, func(_ context.Context, in struct{ N string }) (string, error) {
		return name + in.N, nil
	})
	server.AddPrompt(s, protocol.Prompt{Name: "greet"}, func(_ context.Context, in struct{ Name string }) (string, error) {
		return name + " greets " + in.Name, nil
	}, server.Completion{Argument: "Name", Values: func(context.Context, string, map[string]string) ([]string, error) { return []string{name}, nil }})
	return s
}

func two() map[string]*server.Server {
	return map[string]*server.Server{"a": named("a"), "b": named("b")}
}

// Every feature of every server is offered once, and reaches its server, whatever the revisions are.
//
// Guarantees: G-0088.1
func TestFeaturesOfAllServers(t *testing.T) {
	eras(t, func(t *testing.T, front, back string) {
		session := newFleet(t, back, two()).client(front, client.Options{})
		ctx := timeout(t)
		var got []string
		for tool, err := range session.Tools(ctx) {
			got = append(got, tool.Name)
			failOn(t, err)
		}
		for prompt, err := range session.Prompts(ctx) {
			got = append(got, prompt.Name)
			failOn(t, err)
		}
		for resource, err := range session.Resources(ctx) {
			got = append(got, resource.URI)
			failOn(t, err)
		}
		for template, err := range session.ResourceTemplates(ctx) {
			got = append(got, template.URITemplate)
			failOn(t, err)
		}
		for _, name := range []string{"a", "b"} {
			text, err := client.Call[string](ctx, session, name+"__who", map[string]string{"you": "me"})
			got = append(got, text)
			failOn(t, err)
			prompt, err := session.GetPrompt(ctx, &protocol.GetPromptParams{Name: name + "__greet", Arguments: map[string]string{"Name": "you"}})
			failOn(t, err)
			got = append(got, prompt.Messages[0].Content.(*protocol.TextContent).Text)
			for _, uri := range []string{name + ":/one", name + ":/all/7"} {
				resource, err := session.ReadResource(ctx, &protocol.ReadResourceParams{URI: uri})
				failOn(t, err)
				got = append(got, *resource.Contents[0].Text)
			}
			completed, err := session.Complete(ctx, &protocol.CompleteParams{
				Ref: protocol.CompleteReference{Name: name + "__greet"}, Argument: protocol.CompleteArgument{Name: "Name"},
			})
			failOn(t, err)
			got = append(got, completed.Completion.Values...)
		}
		want := []string{
			"a__who", "b__who", "a__greet", "b__greet", "a:/one", "b:/one", "a:/all/{N}", "b:/all/{N}",
			"a and me", "a greets you", "a", "a7", "a", "b and me", "b greets you", "b", "b7", "b",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		for what, err := range map[string]error{
			"tool":     second(client.Call[string](ctx, session, "a__nothing", nil)),
			"own name": second(client.Call[string](ctx, session, "who", nil)),
			"prompt":   second(session.GetPrompt(ctx, &protocol.GetPromptParams{Name: "b__nothing"})),
		} {
			if fault := (*jsonrpc.Error)(nil); !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInvalidParams {
				t.Errorf("an unknown %s: %v", what, err)
			}
		}
		if _, err := session.ReadResource(ctx, &protocol.ReadResourceParams{URI: "c:/one"}); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("an unknown resource: %v", err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func failOn(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A call wakes a server that has died. If it does not come back, the answer says so, and the list stays.
//
// Guarantees: G-0088.2, G-0088.3
func TestServerThatIsAway(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		f := newFleet(t, version, two())
		session := f.client(version, client.Options{})
		ctx := timeout(t)
		call := func(tool string) *protocol.CallToolResult {
			result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: tool})
			failOn(t, err)
			return result
		}
		call("a__who")
		if _, err := session.ReadResource(ctx, &protocol.ReadResourceParams{URI: "a:/one"}); err != nil { // waits until it is known who has it
			t.Fatal(err)
		}
		f.kill("a", true)
		f.await("a", admin.Backoff)
		if result := call("a__who"); result.IsError {
			t.Errorf("a server that can come back: %s", result.Content.Text())
		}
		f.kill("a", false)
		f.await("a", admin.Backoff)
		result := call("a__who")
		meta := string(result.Meta[gateway.MetaOutcome])
		if !result.IsError || !strings.Contains(meta, `"server":"a","state":"backoff"`) || !strings.Contains(meta, `"delivery":"not sent"`) || !strings.Contains(result.Content.Text(), "not executed") {
			t.Errorf("a server that is away: %s %s", result.Content.Text(), meta)
		}
		if names := toolNames(t, session); !slices.Equal(names, []string{"a__who", "b__who"}) {
			t.Errorf("the list is %q", names)
		}
		if result := call("b__who"); result.IsError {
			t.Error("the other server is concerned, too")
		}
		_, err := session.ReadResource(ctx, &protocol.ReadResourceParams{URI: "a:/one"})
		if fault := (*jsonrpc.Error)(nil); !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInternalError || !strings.Contains(string(fault.Data), `"not sent"`) {
			t.Errorf("a resource of a server that is away: %v", err)
		}
	}
}

// await waits until a server is in a state.
func (f *fleet) await(name string, state admin.State) {
	f.t.Helper()
	ctx := timeout(f.t)
	for {
		changed := f.Changed()
		s, _ := f.Report().Server(name)
		if s.State == state {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			f.t.Fatalf("%s is %s, want %s", name, s.State, state)
		}
	}
}

func toolNames(t *testing.T, session *client.Session) (names []string) {
	t.Helper()
	for tool, err := range session.With(client.CallOptions{Fresh: true}).Tools(timeout(t)) {
		failOn(t, err)
		names = append(names, tool.Name)
	}
	return names
}
