package gateway_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// twoNodes returns the URL of two gateways, between which the requests of a client alternate, and which forward to each other. Each has a server "s", which of returns.
func twoNodes(t *testing.T, of func(node string) *server.Server, back string) (url string) {
	t.Helper()
	path := fileOfOne(t)
	endpoints := make(map[string]*streamable.Handler)
	secret := []byte(strings.Repeat("k", 32))
	for _, node := range []string{"a", "b"} {
		s := of(node)
		g := gateway.New(gateway.Options{
			Each: func(m *mcpjson.Server, o *client.Options) {
				o.ProtocolVersion, m.Transport = back, inmem.New(s.Accept, inmem.Options{})
			},
			Server: server.Options{Node: node, Asking: server.AskingOptions{Fleet: true, Secrets: func() [][]byte { return [][]byte{secret} }}},
		})
		t.Cleanup(func() { failOn(t, g.Close(context.Background())) })
		file, err := mcpjson.Load(path)
		failOn(t, err)
		_, err = g.Apply(t.Context(), file)
		failOn(t, err)
		others := make(map[string]http.Handler)
		for _, other := range []string{"a", "b"} {
			if other != node {
				others[other] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { endpoints[other].ServeHTTP(w, streamable.Forwarded(r)) })
			}
		}
		endpoints[node] = streamable.NewHandler(g.Server(), streamable.HandlerOptions{Router: &streamable.Nodes{Self: node, Others: others}})
	}
	var requests atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endpoints[[]string{"a", "b"}[requests.Add(1)%2]].ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		for _, h := range endpoints {
			h.Close(0)
		}
		web.Close()
	})
	return web.URL
}

// The requests of a client may come to any gateway of a cluster: answers to a question, and requests about a task, reach the one that has it.
//
// Guarantees: G-0104.3
func TestRequestsReachTheGatewayThatHasTheCall(t *testing.T) {
	for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, back := range []string{protocol.LatestLegacy, protocol.Latest} {
			t.Run(front+" to "+back, func(t *testing.T) {
				s, release := taskServer()
				t.Cleanup(func() { s.Close(context.Background()) })
				addAskers(s)
				session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, withVersion(taskUser("me"), front)).
					Connect(timeout(t), &streamable.Client{URL: twoNodes(t, func(string) *server.Server { return s }, back)})
				failOn(t, err)
				t.Cleanup(func() { session.Close(context.Background()) })
				for range 4 {
					if got, err := client.Call[string](timeout(t), session, "s__form-waits", map[string]any{"Ask": []string{"first", "second"}}); err != nil || got != "me:first,me:second" {
						t.Errorf("questions: %q, %v", got, err)
					}
				}
				if front != back {
					return // tasks are those of one era
				}
				task := start(t, session, "s__hold")
				for range 4 {
					if status, err := task.Status(timeout(t)); err != nil || status.Status != protocol.TaskWorking {
						t.Errorf("a task that runs: %+v, %v", status, err)
					}
				}
				close(release)
				if got, err := task.Wait(timeout(t)); outcome(got, err) != "held" {
					t.Errorf("a task that has ended: %s", outcome(got, err))
				}
			})
		}
	}
}

// A session finds the tasks of the node where it is. Who asks for one that another node has is told which that is.
//
// Guarantees: G-0104.3
func TestATaskOfAnotherNodeIsNotFound(t *testing.T) {
	taskEras(t, func(t *testing.T, version string) {
		s, release := taskServer()
		close(release)
		f := newFleetFor(t, version, map[string]*server.Server{"s": s}, gateway.Options{Server: server.Options{
			Node: "b", Asking: server.AskingOptions{Fleet: true, Secrets: func() [][]byte { return [][]byte{make([]byte, 32)} }},
		}}, load(t, `{"mcpServers":{"s":{"command":"/bin/s"}}}`))
		session := f.client(version, taskUser("me"))
		elsewhere := `"a", and this session is at "b": ask in a session that begins at the node of the task`
		if protocol.IsModern(version) {
			elsewhere = `"a", which has ended or cannot be reached`
		}
		for id, want := range map[string]string{"a.X": ": its id names the node " + elsewhere, "b.X": "", "X": ""} {
			_, err := session.Request(timeout(t), protocol.MethodGetTask, json.RawMessage(fmt.Sprintf(`{"taskId":%q}`, id)))
			if want = fmt.Sprintf("unknown task %q", id) + want; err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("of %s: %v, want %s", id, err, want)
			}
		}
	})
}

// What a child asks, it alone knows: an answer that another gateway gets comes to the gateway of that child, whether the children share the secret of their
// states or not.
//
// Guarantees: G-0104.3
func TestAnswersReachTheChildThatHasAsked(t *testing.T) {
	shared := [][]byte{[]byte(strings.Repeat("s", 32))}
	for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, back := range []string{protocol.LatestLegacy, protocol.Latest} {
			for _, secrets := range []func() [][]byte{nil, func() [][]byte { return shared }} {
				t.Run(fmt.Sprintf("%s to %s, shared %t", front, back, secrets != nil), func(t *testing.T) {
					url := twoNodes(t, func(string) *server.Server {
						s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Asking: server.AskingOptions{Secrets: secrets}})
						t.Cleanup(func() { s.Close(context.Background()) })
						addAskers(s)
						return s
					}, back)
					session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, withVersion(user("me"), front)).Connect(timeout(t), &streamable.Client{URL: url})
					failOn(t, err)
					t.Cleanup(func() { session.Close(context.Background()) })
					for _, tool := range []string{"s__form-waits", "s__form-reruns"} {
						for range 3 {
							got, err := client.Call[string](timeout(t), session, tool, map[string]any{"Ask": []string{"first", "second"}})
							if err != nil || got != "me:first,me:second" {
								t.Errorf("%s: %q, %v", tool, got, err)
							}
						}
					}
				})
			}
		}
	}
}

func withVersion(o client.Options, version string) client.Options {
	o.ProtocolVersion = version
	return o
}

// A server of which all nodes have one is reached as the program says, under its name, and only if all users may share its connection.
//
// Guarantees: G-0104.2
func TestServersOfWhichThereIsOne(t *testing.T) {
	for text, want := range map[string]string{
		`{"instances":"one","share":"all"}`:  "",
		`{"instances":"one","share":"user"}`: `give it "share": "all"`,
		`{"instances":"one"}`:                `give it "share": "all"`,
		`{"instances":"each"}`:               "none",
	} {
		var asked atomic.Value
		asked.Store("none")
		patient := func(_ *mcpjson.Server, o *client.Options) { o.Conn.StopGrace = 20 * time.Second } // a busy machine starts a process slowly
		g := gateway.New(gateway.Options{Share: "user", Each: patient, Exclusive: func(name string, own transport.Transport) transport.Transport {
			asked.Store(name)
			return inmem.New(named(name).Accept, inmem.Options{})
		}})
		path := filepath.Join(t.TempDir(), "mcp.json")
		failOn(t, os.WriteFile(path, []byte(`{"mcpServers":{"one":{"command":"/bin/false","bowline":`+text+`}}}`), 0o600))
		file, err := mcpjson.Load(path)
		failOn(t, err)
		switch err := g.Check(file); {
		case strings.HasPrefix(want, "give"):
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", text, err, want)
			}
		case err != nil:
			t.Errorf("%s: %v", text, err)
		default:
			_, err := g.Apply(timeout(t), file)
			failOn(t, err)
			_, err = g.Apply(timeout(t), file) // which waits for the first
			failOn(t, err)
			if got := asked.Load(); got != cmp.Or(want, "one") {
				t.Errorf("%s: it was asked for %q", text, got)
			}
		}
		failOn(t, g.Close(context.Background()))
	}
}
