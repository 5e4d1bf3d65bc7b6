package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/features/skills"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

const featuresPreamble = `# Features

This page lists every request and notification of MCP, by protocol revision, with [every field](#fields), and says whether
Bowline's client and server support it. A side supports a message if it can send it, or can handle it when the other side
sends it.

- **both**: client and server support it. **client**, **server**: only that side does.
- **in results**: in this revision the question is not a separate request. The server returns it as the result of the
  call that it belongs to, and the client calls again with the answer. Both sides support that.
- **no**: neither side supports it. A program can still send such a request with ` + "`client.Session.Request`" + `, and can
  serve a request that is not part of MCP with ` + "`server.AddMethod`" + `.
- **–**: the revision does not have it.

In 2025-11-25 a server may also ask a client to answer a question as a task. Bowline's servers do not ask for that, and its
clients do not declare it.

This page is generated from the code of ` + "`features/client` and `features/server`" + `: ` + "`make docs`" + ` rewrites it, and a
test fails if it is outdated. Two more tests send every request to a server and to a client, and compare the results with
this page.
`

// TestFeaturesPageIsFresh compares docs/features.md with the code. With -update it
// rewrites the page.
func TestFeaturesPageIsFresh(t *testing.T) {
	constants := methodConstants(t)
	shared := namedMethods(t, constants, "features/internal/dialect")
	byClient := append(namedMethods(t, constants, "features/client"), shared...)
	byServer := slices.Concat(namedMethods(t, constants, "features/server"), namedMethods(t, constants, "features/skills"), shared)

	var page strings.Builder
	page.WriteString(featuresPreamble)
	for _, part := range []struct {
		title         string
		notifications bool
	}{{"Requests", false}, {"Notifications", true}} {
		fmt.Fprintf(&page, "\n## %s\n\n| Method | Sent by | %s |\n| --- | --- |%s\n", part.title,
			strings.Join(protocol.Versions(), " | "), strings.Repeat(" --- |", len(protocol.Versions())))
		for _, m := range protocol.Methods() {
			if m.Notification != part.notifications {
				continue
			}
			fmt.Fprintf(&page, "| `%s` | %s |", m.Name, sender(m))
			for _, version := range protocol.Versions() {
				fmt.Fprintf(&page, " %s |", offer(m, version, slices.Contains(byClient, m.Name), slices.Contains(byServer, m.Name)))
			}
			page.WriteString("\n")
		}
	}
	writeProofs(t, &page)
	writeFields(t, &page)
	checkPage(t, "docs/features.md", func(string) (string, error) { return page.String(), nil })
}

func sender(m protocol.Method) string {
	return map[protocol.Sender]string{protocol.ByClient: "client", protocol.ByServer: "server", protocol.ByBoth: "either"}[m.Sender]
}

// offer is one cell of the page.
func offer(m protocol.Method, version string, client, server bool) string {
	questions := []string{protocol.MethodElicit, protocol.MethodCreateMessage, protocol.MethodListRoots} // see protocol.InputRequest
	switch {
	case slices.Contains(questions, m.Name) && protocol.IsModern(version) && client && server:
		return "in results"
	case !m.In(version):
		return "–"
	case client && server:
		return "both"
	case client:
		return "client"
	case server:
		return "server"
	default:
		return "no"
	}
}

// methodConstants returns the names of methods by the names of their constants.
func methodConstants(t *testing.T) map[string]string {
	t.Helper()
	constants := map[string]string{}
	ast.Inspect(parse(t, filepath.Join(root, "protocol", "method.go")), func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
			name, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			constants[spec.Names[0].Name] = name
		}
		return true
	})
	for _, m := range protocol.Methods() {
		if !slices.Contains(slices.Collect(maps.Values(constants)), m.Name) {
			t.Fatalf("protocol/method.go has no constant for %s", m.Name)
		}
	}
	return constants
}

// namedMethods returns the methods whose constants the code of a package names.
func namedMethods(t *testing.T, constants map[string]string, folder string) (methods []string) {
	t.Helper()
	files, one := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
	rooms, more := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "internal", "*", "*.go"))
	if err := errors.Join(one, more); err != nil {
		t.Fatal(err)
	}
	for _, file := range slices.Concat(files, rooms) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		ast.Inspect(parse(t, file), func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok {
				if from, ok := selector.X.(*ast.Ident); ok && from.Name == "protocol" {
					if method, ok := constants[selector.Sel.Name]; ok {
						methods = append(methods, method)
					}
				}
			}
			return true
		})
	}
	if len(methods) == 0 {
		t.Fatalf("%s names no method: the wrong folder was read", folder)
	}
	return methods
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestServerOffersWhatThePageSays sends every request that a client can send to a
// server with one feature of each kind, in every revision. The server answers
// "method not found" exactly where docs/features.md does not list it.
func TestServerOffersWhatThePageSays(t *testing.T) {
	constants := methodConstants(t)
	named := slices.Concat(namedMethods(t, constants, "features/server"), namedMethods(t, constants, "features/skills"), namedMethods(t, constants, "features/internal/dialect"))
	s := server.New(protocol.Implementation{Name: "everything", Version: "1.0"}, server.Options{
		OnSubscribe: func(context.Context, string) error { return nil }, Tasks: &server.TaskOptions{Legacy: true},
	})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { return "", nil })
	server.AddResource(s, protocol.Resource{URI: "a://b", Name: "r"}, func(context.Context) (string, error) { return "", nil })
	server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, struct {
		Style string `json:"style" enum:"short,long"`
	}) (string, error) {
		return "", nil
	})
	skill := fstest.MapFS{"a/SKILL.md": {Data: []byte("---\nname: a\ndescription: b\n---\n")}}
	if err := skills.New(s).Add(skill); err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())

	for _, m := range protocol.Methods() {
		if m.Notification || m.Sender&protocol.ByClient == 0 {
			continue
		}
		for _, version := range protocol.Versions() {
			want := m.In(version) && slices.Contains(named, m.Name)
			if got := offers(t, s, m.Name, version); got != want {
				t.Errorf("%s in %s: the server offers it: %v, want %v", m.Name, version, got, want)
			}
		}
	}
}

// offers reports whether a server answers a request otherwise than with "method not
// found".
func offers(t *testing.T, s *server.Server, method, version string) bool {
	t.Helper()
	peer, link := inmem.Pipe(inmem.Options{})
	s.Accept(&known{link})
	w := wire{peertest.Bind(t, peer)}
	defer peer.Close(0)
	params := "{}"
	if protocol.IsModern(version) {
		params = fmt.Sprintf(`{"_meta":{%q:%q,%q:{}}}`, protocol.MetaProtocolVersion, version, protocol.MetaClientCapabilities)
	} else if method != protocol.MethodInitialize {
		w.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, version)
		w.next()
	}
	w.send(`{"jsonrpc":"2.0","id":2,"method":%q,"params":%s}`, method, params)
	return found(w.next())
}

// A known link has a principal, because only such links may list tasks.
type known struct{ transport.Link }

func (k *known) Bind(r transport.Receiver) { k.Link.Bind(&knowing{r}) }

type knowing struct{ transport.Receiver }

func (k *knowing) Receive(in transport.Inbound) {
	in.Origin = &transport.Origin{Identity: "somebody"}
	k.Receiver.Receive(in)
}

// TestClientOffersWhatThePageSays sends every request that a server can send to a
// client with all handlers, in every revision that has such requests.
func TestClientOffersWhatThePageSays(t *testing.T) {
	constants := methodConstants(t)
	named := append(namedMethods(t, constants, "features/client"), namedMethods(t, constants, "features/internal/dialect")...)
	c := client.New(protocol.Implementation{Name: "everything", Version: "1.0"}, client.Options{
		FailFast: true,
		Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return client.Decline()
		},
		Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			return new(protocol.CreateMessageResult), nil
		},
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, nil },
	})
	defer c.Close(context.Background())
	for _, version := range protocol.LegacyVersions() {
		w := connect(t, c, version)
		for _, m := range protocol.Methods() {
			if m.Notification || m.Sender&protocol.ByServer == 0 || !m.In(version) {
				continue
			}
			w.send(`{"jsonrpc":"2.0","id":"q","method":%q,"params":{}}`, m.Name)
			want := slices.Contains(named, m.Name) && !strings.HasPrefix(m.Name, "tasks/") // the client makes no task of a question
			if got := found(w.next()); got != want {
				t.Errorf("%s in %s: the client offers it: %v, want %v", m.Name, version, got, want)
			}
		}
	}
}

// connect connects the client to a server that speaks one legacy revision, and
// returns the server's end.
func connect(t *testing.T, c *client.Client, version string) wire {
	t.Helper()
	accepted := make(chan wire, 1)
	network := inmem.New(func(link transport.Link) { accepted <- wire{peertest.Bind(t, link)} }, inmem.Options{})
	if _, err := c.Start(context.Background(), version, network); err != nil { // it does not wait for the server
		t.Fatal(err)
	}
	w := <-accepted
	for {
		switch m := w.next(); m.Method {
		case protocol.MethodDiscover:
			w.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID.Append(nil))
		case protocol.MethodInitialize:
			w.send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`, m.ID.Append(nil), version)
		case protocol.NotificationInitialized:
			return w
		}
	}
}

// found reports whether an answer is another than "method not found".
func found(answer jsonrpc.Message) bool {
	return answer.Error == nil || answer.Error.Code != jsonrpc.CodeMethodNotFound
}

// A wire is a link whose messages the test reads and writes.
type wire struct{ *peertest.Peer }

func (w wire) send(format string, args ...any) {
	w.T.Helper()
	w.Send(fmt.Sprintf(format, args...))
}

// next returns the next message, and fails the test if none comes.
func (w wire) next() jsonrpc.Message {
	w.T.Helper()
	m, err := jsonrpc.Decode([]byte(w.Next()), jsonrpc.Limits{})
	if err != nil {
		w.T.Fatal(err)
	}
	return m
}
