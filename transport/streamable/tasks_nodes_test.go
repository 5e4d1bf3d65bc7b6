package streamable_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// The nodes of taskNodes share a store, and what the test lets happen.
type taskNodes struct {
	a, b   *namedNode
	store  server.MemoryTaskStore
	goOn   chan struct{} // lets a handler of work return
	ended  chan error    // why the handlers of work have ended
	aEnded atomic.Bool
}

func newTaskNodes(t *testing.T) *taskNodes {
	n := &taskNodes{goOn: make(chan struct{}), ended: make(chan error, 10)}
	n.a, n.b = newNamedNodes(t, func(node string) *server.Server {
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{
			Node: node, Tasks: &server.TaskOptions{
				Store: &n.store, Legacy: true, PollInterval: 20 * time.Millisecond,
				Gone: func(other string) bool { return other == "a" && n.aEnded.Load() },
			},
		})
		tool := func(name string) protocol.Tool {
			return protocol.Tool{Name: name, Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}}
		}
		server.AddTool(s, tool("work"), func(ctx context.Context, _ struct{}) (string, error) {
			server.Progress(ctx, 1, 2, "at "+node)
			select {
			case <-n.goOn:
				return "done at " + node, nil
			case <-ctx.Done():
				n.ended <- context.Cause(ctx)
				return "", context.Cause(ctx)
			}
		})
		server.AddTool(s, tool("asks"), func(ctx context.Context, _ struct{}) (string, error) {
			return "confirmed at " + node, server.Confirm(ctx, "Sure?")
		}, server.Asks(server.Waits, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))
		return s
	})
	return n
}

func taskClient(version string) client.Options {
	return client.Options{ProtocolVersion: version, Tasks: true, Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		return &protocol.ElicitResult{Action: protocol.ElicitAccept}, nil
	}}
}

func (n *taskNodes) start(t *testing.T, s *client.Session, tool string) string {
	t.Helper()
	task, err := s.StartTool(t.Context(), &protocol.CallToolParams{Name: tool})
	if err != nil || !strings.HasPrefix(task.ID(), "a.") {
		t.Fatalf("got %+v, %v, want a task of node a", task, err)
	}
	return task.ID()
}

// acrossEras runs a test for a task that was started in one revision at node a, with a client
// in another revision at node b.
func acrossEras(t *testing.T, test func(t *testing.T, n *taskNodes, begun, other *client.Session)) {
	t.Helper()
	for _, began := range []string{protocol.Version20251125, protocol.Version20260728} {
		for _, asks := range []string{protocol.Version20251125, protocol.Version20260728} {
			t.Run(began+" at a, "+asks+" at b", func(t *testing.T) {
				t.Parallel()
				n := newTaskNodes(t)
				begun, _ := n.a.connect(t, taskClient(began))
				other, _ := n.b.connect(t, taskClient(asks))
				test(t, n, begun, other)
			})
		}
	}
}

// A task of one node is seen at another one as it is now, and its result comes there.
//
// Guarantees: G-0075.4
func TestATaskIsFetchedAtAnotherNode(t *testing.T) {
	acrossEras(t, func(t *testing.T, n *taskNodes, begun, other *client.Session) {
		task := other.Task(n.start(t, begun, "work"))
		for { // until the handler has reported its progress, which no store has
			state, err := task.Status(t.Context())
			if err != nil || state.Status != protocol.TaskWorking {
				t.Fatalf("got %+v, %v, want a task that works", state, err)
			}
			if state.StatusMessage == "at a (1 of 2)" {
				break
			}
		}
		n.goOn <- struct{}{}
		if result, err := task.Wait(t.Context()); err != nil || result.Content.Text() != "done at a" {
			t.Errorf("got %+v, %v, want %q", result, err, "done at a")
		}
	})
}

// A task of one node is cancelled at another one: its handler ends at once, and both nodes
// say that it is cancelled.
//
// Guarantees: G-0075.4
func TestATaskIsCancelledAtAnotherNode(t *testing.T) {
	acrossEras(t, func(t *testing.T, n *taskNodes, begun, other *client.Session) {
		task := other.Task(n.start(t, begun, "work"))
		if err := task.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if cause := <-n.ended; !errors.Is(cause, server.ErrTaskCancelled) {
			t.Errorf("the handler has ended with %v, want %v", cause, server.ErrTaskCancelled)
		}
		for _, session := range []*client.Session{begun, other} {
			if _, err := session.Task(task.ID()).Wait(t.Context()); !errors.Is(err, client.ErrTaskCancelled) {
				t.Errorf("got %v, want %v", err, client.ErrTaskCancelled)
			}
		}
	})
}

// The questions of a task of one node are answered at another one.
//
// Guarantees: G-0075.4
func TestATaskIsAnsweredAtAnotherNode(t *testing.T) {
	acrossEras(t, func(t *testing.T, n *taskNodes, begun, other *client.Session) {
		if result, err := other.Task(n.start(t, begun, "asks")).Wait(t.Context()); err != nil || result.Content.Text() != "confirmed at a" {
			t.Errorf("got %+v, %v, want %q", result, err, "confirmed at a")
		}
	})
}

// A task of another client does not exist, wherever the client asks.
//
// Guarantees: G-0075.4
func TestATaskOfAnotherClientAtAnotherNode(t *testing.T) {
	acrossEras(t, func(t *testing.T, n *taskNodes, begun, _ *client.Session) {
		id := n.start(t, begun, "work")
		for _, version := range []string{protocol.Version20251125, protocol.Version20260728} {
			eve, _ := n.b.connectAs(t, "eve", taskClient(version))
			if state, err := eve.Task(id).Status(t.Context()); !errors.Is(err, client.ErrNoTask) {
				t.Errorf("%s: got %+v, %v, want %v", version, state, err, client.ErrNoTask)
			}
			if err := eve.Task(id).Cancel(t.Context()); err == nil {
				t.Errorf("%s: the task was cancelled, want an error", version)
			}
		}
		n.goOn <- struct{}{}
		if result, err := begun.Task(id).Wait(t.Context()); err != nil || result.Content.Text() != "done at a" {
			t.Errorf("got %+v, %v, want %q", result, err, "done at a")
		}
	})
}

// When the node of a task is killed, the task fails at the other node, and that is saved.
//
// Guarantees: G-0075.5
func TestTheNodeOfATaskIsKilled(t *testing.T) {
	const lost = "the node of the task has ended; its outcome is unknown"
	acrossEras(t, func(t *testing.T, n *taskNodes, begun, other *client.Session) {
		id := n.start(t, begun, "work")
		saved, err := n.store.Load(t.Context(), id)
		if err != nil || saved.Node != "a" {
			t.Fatalf("the store has %+v, %v, want a task of node a", saved, err)
		}
		n.a.kill(t)
		if err := n.store.Save(t.Context(), saved); err != nil { // a process that was killed saves nothing more
			t.Fatal(err)
		}
		n.aEnded.Store(true)
		if _, err := other.Task(id).Wait(t.Context()); err == nil || !strings.Contains(err.Error(), lost) {
			t.Errorf("got %v, want %q", err, lost)
		}
		if saved, err = n.store.Load(t.Context(), id); err != nil || saved.Task.Status != protocol.TaskFailed || saved.Task.StatusMessage != lost || saved.Node != "a" {
			t.Errorf("the store has %+v, %v, want the failure", saved, err)
		}
	})
}
