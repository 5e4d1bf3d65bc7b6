package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A distantNode is a node that a server asks for tasks, for its legacy clients.
type distantNode struct {
	answer func(ctx context.Context, m jsonrpc.Message) ([]byte, error)

	mu    sync.Mutex
	asked []string // "node method name" of each request
}

func (*distantNode) Events() bool            { return false }
func (*distantNode) Poll(time.Duration) bool { return false }

func (d *distantNode) Forward(ctx context.Context, node string, o transport.Outbound) ([]byte, error) {
	m, err := jsonrpc.Decode(o.Frame, jsonrpc.Limits{})
	if err != nil {
		return nil, err
	}
	said, modern, err := protocol.ModernContext(m.Params)
	if err != nil || !modern || o.Route.Version != protocol.Latest || o.Route.Method != m.Method || o.Route.ID != m.ID || !o.Last || said.ClientInfo == nil || said.ClientInfo.Name == "" {
		return nil, fmt.Errorf("%s is no request of %+v: %w", o.Frame, o.Route, err)
	}
	d.mu.Lock()
	d.asked = append(d.asked, node+" "+m.Method+" "+o.Route.Name)
	d.mu.Unlock()
	return d.answer(ctx, m)
}

// took returns what the node was asked, and forgets it.
func (d *distantNode) took() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked := strings.Join(d.asked, ", ")
	d.asked = nil
	return asked
}

// taskResult returns the answer of a node: a task in some state.
func taskResult(m jsonrpc.Message, id, members string) []byte {
	return jsonrpc.AppendResult(nil, m.ID, []byte(`{"resultType":"complete","taskId":"`+id+`","createdAt":"2026-01-01T00:00:00Z",`+
		`"lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":1000,"pollIntervalMs":1000,`+members+`}`))
}

// bubbleOfDistant runs a test with the server of node b, whose store has the task a.1 as it
// was before, and a client that has a session there.
func bubbleOfDistant(t *testing.T, a *distantNode, o server.TaskOptions, f func(*testing.T, *server.MemoryTaskStore, *rawPeer)) {
	t.Helper()
	testenv.Bubble(t, func(t *testing.T) {
		store := new(server.MemoryTaskStore)
		o.Store, o.Legacy = store, true
		s := newTaskNode("b", o)
		addTask(t, store, "a.1", "a")
		w := dialFrom(t, s.Server, &transport.Origin{RemoteAddr: "192.0.2.1:7", Exchange: a})
		w.session()
		f(t, store, w)
		s.Close(t.Context())
	})
}

// The server of a legacy client's session asks the node of a task for its state, and
// has that node cancel it, in the name of the client.
//
// Guarantees: G-0075.4
func TestALegacyClientReachesATaskOfAnotherNode(t *testing.T) {
	status := `"status":"working","statusMessage":"half"`
	a := &distantNode{answer: func(_ context.Context, m jsonrpc.Message) ([]byte, error) {
		if m.Method == protocol.MethodCancelTask {
			status = `"status":"cancelled"`
			return jsonrpc.AppendResult(nil, m.ID, []byte(`{"resultType":"complete"}`)), nil
		}
		return taskResult(m, "a.1", status), nil
	}}
	bubbleOfDistant(t, a, server.TaskOptions{}, func(t *testing.T, _ *server.MemoryTaskStore, w *rawPeer) {
		if got := w.ask(legacy(`1`, "tasks/get", `"taskId":"a.1"`)); string(got.Result["status"]) != `"working"` || string(got.Result["statusMessage"]) != `"half"` {
			t.Errorf("got %s, %v, want the state that the node has", got.Result, got.Error)
		}
		if asked := a.took(); asked != "a tasks/get a.1" {
			t.Errorf("the node was asked %q, want it asked once", asked)
		}
		if got := w.ask(legacy(`1`, "tasks/cancel", `"taskId":"a.1"`)); string(got.Result["status"]) != `"cancelled"` {
			t.Errorf("got %s, %v, want it cancelled", got.Result, got.Error)
		}
		if asked := a.took(); asked != "a tasks/get a.1, a tasks/cancel a.1, a tasks/get a.1" {
			t.Errorf("the node was asked %q, want the cancellation among it", asked)
		}
		w.wantFault(jsonrpc.CodeInvalidParams, legacy(`1`, "tasks/cancel", `"taskId":"a.1"`)) // it has ended
		a.took()
		for _, id := range []string{"b.1", "1", "a b.1", strings.Repeat("n", 65) + ".1"} {
			w.wantFault(jsonrpc.CodeInvalidParams, legacy(`1`, "tasks/get", `"taskId":"`+id+`"`))
		}
		if asked := a.took(); asked != "" {
			t.Errorf("the node was asked %q, want nothing: these tasks are none of another node", asked)
		}
		if w.send(withTasks(`2`, "tasks/get", `"taskId":"a.1"`)); !strings.Contains(w.next(), `"input_required"`) || a.took() != "" {
			t.Error("a request that was forwarded here is passed on, want an answer from the store")
		}
	})
}

// If a node cannot be asked, a task is seen as it was saved last. It cannot be cancelled, and
// the client is told so.
//
// Guarantees: G-0075.6
func TestANodeThatCannotBeAsked(t *testing.T) {
	for name, answer := range map[string]func(context.Context, jsonrpc.Message) ([]byte, error){
		"it is not there": func(context.Context, jsonrpc.Message) ([]byte, error) { return nil, errors.New("not there") },
		"it refuses": func(_ context.Context, m jsonrpc.Message) ([]byte, error) {
			return jsonrpc.AppendError(nil, m.ID, &jsonrpc.Error{Code: -32602, Message: "unknown task"}), nil
		},
		"no JSON":       func(context.Context, jsonrpc.Message) ([]byte, error) { return []byte("{"), nil },
		"not an answer": func(context.Context, jsonrpc.Message) ([]byte, error) { return []byte(legacy("1", "ping", "")), nil },
		"to another request": func(context.Context, jsonrpc.Message) ([]byte, error) {
			return taskResult(jsonrpc.Message{ID: jsonrpc.IntegerID(7)}, "a.1", `"status":"working"`), nil
		},
		"another result": func(_ context.Context, m jsonrpc.Message) ([]byte, error) {
			return jsonrpc.AppendResult(nil, m.ID, []byte(`{"status":7}`)), nil
		},
		"another task": func(_ context.Context, m jsonrpc.Message) ([]byte, error) {
			return taskResult(m, "a.2", `"status":"working"`), nil
		},
		"it hangs": func(ctx context.Context, _ jsonrpc.Message) ([]byte, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := &distantNode{answer: answer}
			bubbleOfDistant(t, a, server.TaskOptions{}, func(t *testing.T, store *server.MemoryTaskStore, w *rawPeer) {
				begun := time.Now()
				if got := w.ask(legacy(`1`, "tasks/get", `"taskId":"a.1"`)); string(got.Result["status"]) != `"input_required"` || time.Since(begun) > 10*time.Second {
					t.Errorf("got %s, %v after %v, want what was saved", got.Result, got.Error, time.Since(begun))
				}
				if got := w.ask(legacy(`1`, "tasks/cancel", `"taskId":"a.1"`)); !got.Error.is(jsonrpc.CodeInternalError, "another node") && name != "another result" && name != "another task" {
					t.Errorf("got %s, %v, want the error %d with %q", got.Result, got.Error, jsonrpc.CodeInternalError, "another node")
				}
				w.send(legacy(`"result"`, "tasks/result", `"taskId":"a.1"`))
				synctest.Wait()
				r, err := store.Load(t.Context(), "a.1")
				if err != nil {
					t.Fatal(err)
				}
				r.Task.Status, r.Task.InputRequests, r.Task.FinalResult = protocol.TaskCompleted, nil, []byte(`{"content":[{"type":"text","text":"done"}]}`)
				if err := store.Save(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				if frame := w.nextAfter(11 * time.Second); !strings.Contains(frame, `"done"`) {
					t.Errorf("got %s, want the result, and no question whose answer would reach nobody", frame)
				}
			})
		})
	}
}

// A legacy client that waits for the result of a task of another node is asked its questions,
// once. The answers go to that node, as soon as it can be reached, and the result comes.
//
// Guarantees: G-0075.4
func TestALegacyClientWaitsForATaskOfAnotherNode(t *testing.T) {
	status, polls, updates, unreachable := `"status":"working"`, 0, []string(nil), true
	a := &distantNode{}
	a.answer = func(_ context.Context, m jsonrpc.Message) ([]byte, error) {
		switch {
		case m.Method == protocol.MethodUpdateTask && unreachable:
			unreachable = false
			return nil, errors.New("not now")
		case m.Method == protocol.MethodUpdateTask:
			var params struct{ InputResponses json.RawMessage }
			err := json.Unmarshal(m.Params, &params)
			updates = append(updates, string(params.InputResponses))
			status, polls = `"status":"input_required","inputRequests":`+string(mustEncode(question("a"))), 0 // the old state, for two looks
			return jsonrpc.AppendResult(nil, m.ID, []byte(`{"resultType":"complete"}`)), err
		}
		if polls++; polls == 3 {
			switch {
			case len(updates) == 0:
				status = `"status":"input_required","inputRequests":` + string(mustEncode(question("a")))
			default:
				status = `"status":"completed","result":{"resultType":"complete","content":[{"type":"text","text":"done"}]}`
			}
		}
		return taskResult(m, "a.1", status), nil
	}
	bubbleOfDistant(t, a, server.TaskOptions{PollInterval: time.Minute}, func(t *testing.T, _ *server.MemoryTaskStore, w *rawPeer) {
		begun := time.Now()
		w.send(legacy(`"result"`, "tasks/result", `"taskId":"a.1"`))
		var asked struct {
			ID     jsonrpc.ID      `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		frame := w.nextAfter(3 * time.Minute)
		if err := protocol.Unmarshal([]byte(frame), &asked); err != nil || asked.Method != "elicitation/create" || !strings.Contains(frame, `"io.modelcontextprotocol/related-task":{"taskId":"a.1"}`) {
			t.Fatalf("got %s, %v, want a question of the task", frame, err)
		}
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"a":"yes"}}}`, asked.ID.Append(nil)))
		frame = w.nextAfter(3 * time.Minute)
		for _, want := range []string{`"id":"result"`, `"text":"done"`, `"io.modelcontextprotocol/related-task":{"taskId":"a.1"}`} {
			if !strings.Contains(frame, want) {
				t.Errorf("got %s, want %q in it", frame, want)
			}
		}
		if strings.Contains(frame, "resultType") || len(updates) != 1 || !strings.Contains(updates[0], `"a":"yes"`) {
			t.Errorf("got %s after the answers %q, want one answer", frame, updates)
		}
		if took := time.Since(begun); took != 5*time.Minute {
			t.Errorf("it took %v, want five poll intervals", took)
		}
	})
}

// A client that cannot answer a question is not asked. It gets the result nevertheless.
//
// Guarantees: G-0075.4
func TestALegacyClientWithoutFormsWaits(t *testing.T) {
	polls := 0
	a := &distantNode{answer: func(_ context.Context, m jsonrpc.Message) ([]byte, error) {
		if polls++; polls < 5 {
			return taskResult(m, "a.1", `"status":"input_required","inputRequests":`+string(mustEncode(question("a")))), nil
		}
		return taskResult(m, "a.1", `"status":"failed","error":{"code":7,"message":"no"}`), nil
	}}
	testenv.Bubble(t, func(t *testing.T) {
		s := newTaskNode("b", server.TaskOptions{Legacy: true})
		w := dialFrom(t, s.Server, &transport.Origin{RemoteAddr: "192.0.2.1:7", Exchange: a})
		w.initialize(protocol.Version20251125)
		w.send(legacy(`"result"`, "tasks/result", `"taskId":"a.1"`))
		if frame := w.nextAfter(5 * time.Second); !strings.Contains(frame, `"code":7`) {
			t.Errorf("got %s, want the error of the task", frame)
		}
		s.Close(t.Context())
	})
}

// A question that its client refuses ends the wait with an error. Nothing is passed on.
//
// Guarantees: G-0075.4
func TestARefusedQuestionOfATaskOfAnotherNode(t *testing.T) {
	a := &distantNode{answer: func(_ context.Context, m jsonrpc.Message) ([]byte, error) {
		return taskResult(m, "a.1", `"status":"input_required","inputRequests":`+string(mustEncode(question("a")))), nil
	}}
	bubbleOfDistant(t, a, server.TaskOptions{}, func(t *testing.T, _ *server.MemoryTaskStore, w *rawPeer) {
		w.send(legacy(`"result"`, "tasks/result", `"taskId":"a.1"`))
		var asked struct {
			ID jsonrpc.ID `json:"id"`
		}
		if err := protocol.Unmarshal([]byte(w.next()), &asked); err != nil {
			t.Fatal(err)
		}
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"no"}}`, asked.ID.Append(nil)))
		w.want(`"id":"result"`, `"error"`)
		if asked := a.took(); strings.Contains(asked, "update") {
			t.Errorf("the node was asked %q, want no update", asked)
		}
	})
}

// nextAfter returns the next frame of the server, which may take so long.
func (w *rawPeer) nextAfter(atMost time.Duration) string {
	w.t.Helper()
	timer := time.NewTimer(atMost + time.Second)
	defer timer.Stop()
	select {
	case frame := <-w.frames:
		return frame
	case <-timer.C:
		w.t.Fatal("got no frame in time, want one")
		return ""
	}
}

func mustEncode(value any) []byte {
	raw, err := protocol.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}
