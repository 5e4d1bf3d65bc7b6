package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
)

// withRoots has a client with capabilities, whose tools "waits" and "reruns" say which roots it has, and whose tool "tells" asks with a _meta.
func withRoots(t *testing.T, capabilities string) (*rawPeer, *server.Session) {
	o, sessions := sessionsOf(server.Options{})
	s := newServer(o)
	list := func(ctx context.Context, _ struct{}) (string, error) {
		var uris []string
		for range 2 { // the second question of a call is one of its own
			roots, err := server.Roots(ctx)
			if err != nil {
				return "", err
			}
			for _, root := range roots {
				uris = append(uris, root.URI)
			}
		}
		return strings.Join(uris, " "), nil
	}
	server.AddTool(s, protocol.Tool{Name: "waits"}, list, server.Asks(server.Waits, protocol.ClientCapabilities{}))
	server.AddTool(s, protocol.Tool{Name: "reruns"}, list, server.Asks(server.Reruns, protocol.ClientCapabilities{}))
	server.AddTool(s, protocol.Tool{Name: "tells"}, func(ctx context.Context, _ struct{}) (string, error) {
		asked := new(protocol.ListRootsParams)
		asked.SetMeta("why", json.RawMessage(`"because"`))
		_, err := server.Ask(ctx, protocol.InputRequests{"roots": asked})
		return "", err
	}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
	w := dial(t, s)
	w.initializeWith(protocol.Version20251125, capabilities)
	return w, testenv.Receive(t, sessions, "a session")
}

// answerRoots reads a question for the roots and answers it.
func (w *rawPeer) answerRoots(roots string) {
	w.t.Helper()
	var asked struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if w.read(&asked); asked.Method != protocol.MethodListRoots {
		w.t.Fatalf("got %+v, want a question for the roots", asked)
	}
	w.send(`{"jsonrpc":"2.0","id":` + string(asked.ID) + `,"result":{"roots":[` + roots + `]}}`)
}

func (w *rawPeer) callForRoots(tool string) {
	w.send(`{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"` + tool + `","arguments":{}}}`)
}

// A client that reports changes of its roots is asked once by calls and by the session together, and by the first call that it makes behind a report.
//
// Guarantees: G-0106.6
func TestRootsAreAskedForOnceAndAfterAChange(t *testing.T) {
	w, session := withRoots(t, `{"roots":{"listChanged":true}}`)
	for i, uri := range []string{"file:///a", "file:///b", "file:///c"} {
		if i > 0 {
			w.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		}
		for j, tool := range []string{"waits", "reruns", "waits"} {
			w.callForRoots(tool)
			if j == 0 {
				w.answerRoots(`{"uri":"` + uri + `"}`)
			}
			w.want(`"id":"call"`, `"text":"`+uri+" "+uri+`"`)
		}
		for range 2 {
			roots, err := session.Roots(t.Context())
			if err != nil || len(roots) != 1 || roots[0].URI != uri {
				t.Fatalf("the session: got %v, %v, want %s", roots, err, uri)
			}
			roots[0].URI = "file:///changed/by/the/program"
		}
	}
}

// A report that comes while the client is asked makes the next call ask again, since the answer may be from before it.
//
// Guarantees: G-0106.6
func TestRootsThatChangeDuringAQuestionAreAskedForAgain(t *testing.T) {
	w, _ := withRoots(t, `{"roots":{"listChanged":true}}`)
	w.callForRoots("waits")
	frame := w.next()
	w.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	var asked struct {
		ID json.RawMessage `json:"id"`
	}
	if err := json.Unmarshal([]byte(frame), &asked); err != nil {
		t.Fatal(err)
	}
	w.send(`{"jsonrpc":"2.0","id":` + string(asked.ID) + `,"result":{"roots":[{"uri":"file:///old"}]}}`)
	w.answerRoots(`{"uri":"file:///new"}`)
	w.want(`"id":"call"`, `"text":"file:///old file:///new"`)
	w.callForRoots("waits")
	w.want(`"id":"call"`, `"text":"file:///new file:///new"`)
}

// A client that does not report changes, or whose answer was an error or is large, is asked each time. So is a client that the program tells something in the question.
//
// Guarantees: G-0106.6
func TestRootsThatAreNotKeptAreAskedForEachTime(t *testing.T) {
	for name, test := range map[string]struct{ capabilities, root string }{
		"no reports": {`{"roots":{}}`, `{"uri":"file:///a"}`},
		"large":      {`{"roots":{"listChanged":true}}`, `{"uri":"file:///a","_meta":{"x":"` + strings.Repeat("x", 4096) + `"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := withRoots(t, test.capabilities)
			for _, tool := range []string{"waits", "reruns"} {
				w.callForRoots(tool)
				w.answerRoots(test.root)
				w.answerRoots(test.root)
				w.want(`"id":"call"`, `"text":"file:///a file:///a"`)
			}
		})
	}
	w, _ := withRoots(t, `{"roots":{"listChanged":true}}`)
	w.callForRoots("waits")
	w.answerRoots(`7`)
	w.want(`"id":"call"`, `"isError":true`)
	w.callForRoots("waits")
	w.answerRoots(`{"uri":"file:///a"}`)
	w.want(`"id":"call"`, `"text":"file:///a file:///a"`)
	w.callForRoots("tells")
	w.want(`"roots/list"`, `"_meta":{"why":"because"}`)
}
