package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// An opening is a transport that is nothing but its Open.
type opening func(context.Context) (transport.Link, error)

// Open implements transport.Transport.
func (open opening) Open(ctx context.Context) (transport.Link, error) { return open(ctx) }

// A call waits for a server that is away for ten seconds, and not at all if a person has to do something first. Then it is not executed.
//
// Guarantees: G-0088.2
func TestHowLongACallWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		open opening
		want time.Duration
	}{
		{"never answers", func(ctx context.Context) (transport.Link, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 10 * time.Second},
		{"is not installed", func(context.Context) (transport.Link, error) { return nil, exec.ErrNotFound }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			servers := two()
			f := newFleet(t, protocol.Latest, servers)
			session := f.client(protocol.Latest, client.Options{})
			toolNames(t, session)
			f.mu.Lock()
			f.opens = c.open
			f.mu.Unlock()
			f.kill("a", true)
			synctest.Wait()
			if c.want == 0 { // the first attempt after the loss finds out
				_, _ = session.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__who"})
			}
			began := time.Now()
			result, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__who"})
			if err != nil || !result.IsError || !strings.Contains(result.Content.Text(), "It was not executed") {
				t.Errorf("a server that %s: %v, %v", c.name, result, err)
			}
			if took := time.Since(began); took != c.want {
				t.Errorf("a call of a server that %s took %v, want %v", c.name, took, c.want)
			}
		})
	}
}

// A list of 100 pages is read whole, and a client may keep it for five minutes if its legacy server tells of changes.
//
// Guarantees: G-0088.1, G-0090.12
func TestAListOfManyPages(t *testing.T) {
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{PageSize: 1})
	for i := range 100 {
		server.AddTool(s, protocol.Tool{Name: fmt.Sprintf("t%02d", i)}, func(context.Context, struct{}) (string, error) { return "", nil })
	}
	session := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s}).client(protocol.Latest, client.Options{})
	if names := toolNames(t, session); len(names) != 100 || names[99] != "a__t99" {
		t.Errorf("%d tools are listed: %q", len(names), names)
	}
	page, err := session.ListTools(timeout(t), new(protocol.ListToolsParams))
	if err != nil || page.TTLMs == nil || *page.TTLMs != (5*time.Minute).Milliseconds() {
		t.Errorf("the list may be kept for %v ms, %v", page.TTLMs, err)
	}
}

// A server that has resources, and does not know the method for their templates, has none: nobody waits for them.
//
// Guarantees: G-0088.1
func TestAListThatAServerDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Route: map[string]server.RawHandler{
			protocol.MethodListResourceTemplates: func(context.Context, json.RawMessage) (json.RawMessage, error) {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}
			},
		}})
		server.AddResource(s, protocol.Resource{URI: "a:/one", Name: "one"}, func(context.Context) (string, error) { return "1", nil })
		session := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s}).client(protocol.LatestLegacy, client.Options{})
		began := time.Now()
		for template, err := range session.ResourceTemplates(t.Context()) {
			t.Errorf("%v, %v", template, err)
		}
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("the list came after %s", waited)
		}
	})
}

// The program says how long a name may be, and the file says it in its place.
//
// Guarantees: G-0088.8
func TestTheFileSaysHowLongNamesAre(t *testing.T) {
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	own := strings.Repeat("x", 50)
	server.AddTool(s, protocol.Tool{Name: own}, func(context.Context, struct{}) (string, error) { return "", nil })
	f := newFleetWith(t, protocol.Latest, map[string]*server.Server{"a": s}, gateway.Options{MaxName: 64})
	session := f.client(protocol.Latest, client.Options{})
	if names := toolNames(t, session); !slices.Equal(names, []string{"a__" + own}) {
		t.Errorf("got %q", names)
	}
	f.apply(load(t, `{"mcpServers":{"a":{"command":"/bin/a"}},"bowline":{"maxName":32}}`))
	if names := toolNames(t, session); len(names) != 1 || len(names[0]) != 32 {
		t.Errorf("with maxName 32: %q", names)
	}
}

// What a client was told of once, it is not told of again because of another list.
//
// Guarantees: G-0088.7
func TestAChangeIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := two()
		f := newFleet(t, protocol.Latest, servers)
		told := make(map[string]int)
		session := f.client(protocol.Latest, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) { told[fmt.Sprintf("%T", e)]++ }})
		toolNames(t, session)
		<-time.After(5 * time.Second)
		synctest.Wait()
		clear(told)
		server.AddTool(servers["a"], protocol.Tool{Name: "x"}, func(context.Context, struct{}) (string, error) { return "", nil })
		<-time.After(5 * time.Second)
		server.AddPrompt(servers["a"], protocol.Prompt{Name: "x"}, func(context.Context, struct{}) (string, error) { return "", nil })
		<-time.After(5 * time.Second)
		synctest.Wait()
		if told["*client.ToolsChanged"] != 1 || told["*client.PromptsChanged"] != 1 {
			t.Errorf("the client was told %v", told)
		}
	})
}

// Who looks sees why a file was not applied, and that the catalogue is not kept.
//
// Guarantees: G-0088.10
func TestTheReportSaysWhatIsWrongWithTheGateway(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	failOn(t, os.WriteFile(folder, nil, 0o600)) // so that there can be no file in it
	f := newFleetWith(t, protocol.Latest, two(), gateway.Options{Catalogue: filepath.Join(folder, "catalogue")})
	defer os.Remove(folder) // so that the gateway can keep it in the end
	f.NotApplied(errors.New("first\nsecond"))
	if got := f.Report().Mistakes; !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("the mistakes are %q", got)
	}
	for {
		changed := f.Changed()
		if f.Report().Notices != nil {
			break
		}
		select {
		case <-changed:
		case <-timeout(t).Done():
			t.Fatal("who looks is not told that the catalogue is not kept")
		}
	}
	if notices := f.Report().Notices; len(notices) != 1 || !strings.Contains(notices[0], "is not kept") {
		t.Errorf("the notices are %q", notices)
	}
	f.apply(fileOf(t, "a"))
	if got := f.Report().Mistakes; got != nil {
		t.Errorf("after a file that was applied the mistakes are %q", got)
	}
}

// How long a list may be kept is a time that every client understands, whatever a server says.
//
// Guarantees: G-0090.12
func TestLifetimeOfAListThatIsTooLong(t *testing.T) {
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{
		Capabilities: protocol.ServerCapabilities{Tools: &protocol.ListCapability{}},
		Route: map[string]server.RawHandler{protocol.MethodListTools: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"cacheScope":"public","ttlMs":9300000000000}`), nil
		}},
	})
	session := newFleet(t, protocol.Latest, map[string]*server.Server{"a": s}).client(protocol.Latest, client.Options{})
	raw, err := session.Request(timeout(t), protocol.MethodListTools, json.RawMessage(`{}`))
	var page protocol.ListToolsResult
	if err := errors.Join(err, json.Unmarshal(raw, &page)); err != nil || page.TTLMs == nil || *page.TTLMs != (24*time.Hour).Milliseconds() {
		t.Errorf("the list is %.200s, %v", raw, err)
	}
}

// Close says that a call of a client was cut short, also if all servers have ended properly.
func TestCloseSaysWhatWasCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stuck := func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				if r.Method == protocol.MethodCallTool {
					<-release
				}
				return next(ctx, r)
			}
		}
		f := newFleetWith(t, protocol.LatestLegacy, two(), gateway.Options{Server: server.Options{Middleware: []server.Middleware{stuck}}})
		session := f.client(protocol.LatestLegacy, client.Options{})
		over := make(chan struct{})
		go func() {
			defer close(over)
			_, _ = session.CallTool(t.Context(), &protocol.CallToolParams{Name: "a__who"})
		}()
		synctest.Wait()
		if err := f.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "1 of the peer's were unfinished") {
			t.Errorf("it has ended with %v", err)
		}
		close(release)
		<-over
	})
}
