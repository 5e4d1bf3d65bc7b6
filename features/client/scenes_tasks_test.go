package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A failingStore is a store of tasks that can be away.
type failingStore struct {
	server.TaskStore
	s    *conversation
	away atomic.Bool
}

var errStore = errors.New("the store is away")

func (f *failingStore) Save(ctx context.Context, r *server.TaskRecord) error {
	if f.away.Load() {
		f.s.notef("post store", "Save fails")
		return errStore
	}
	return f.TaskStore.Save(ctx, r)
}

func (f *failingStore) Load(ctx context.Context, id string) (*server.TaskRecord, error) {
	if f.away.Load() {
		return nil, errStore
	}
	return f.TaskStore.Load(ctx, id)
}

// Calls become tasks, with every end, in both eras.
func TestSceneOfTasks(t *testing.T) {
	for _, version := range revisions[2:] {
		t.Run(version, func(t *testing.T) {
			play(t, "tasks-"+version, "Calls become tasks, in "+version, func(s *conversation) { s.tasks(version) })
		})
	}
}

func (s *conversation) taskServer(store server.TaskStore) *server.Server {
	post := s.server("post", server.Options{Tasks: &server.TaskOptions{
		Legacy: true, TTL: time.Minute, PollInterval: 2 * time.Second, MaxRunning: 2, Store: store,
	}})
	for _, support := range []protocol.TaskSupport{protocol.TaskOptional, protocol.TaskRequired, protocol.TaskForbidden} {
		server.AddTool(post, protocol.Tool{Name: "dig_" + string(support), Execution: &protocol.ToolExecution{TaskSupport: support}},
			func(ctx context.Context, in struct {
				How string `json:"how"`
			}) (string, error) {
				server.Progress(ctx, 1, 2, "digging")
				timer := time.NewTimer(5 * time.Second)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-ctx.Done():
					s.notef("post tool", "ended: %s", s.failure(context.Cause(ctx)))
					return "", context.Cause(ctx)
				}
				switch in.How {
				case "fail":
					return "", errors.New("a stone")
				case "deny":
					return "", &jsonrpc.Error{Code: 7, Message: "no digging"}
				case "panic":
					panic("secret")
				case "ask":
					err := server.Confirm(ctx, "Dig on?")
					return "asked", err
				case "long":
					<-ctx.Done()
					s.notef("post tool", "ended: %s", s.failure(context.Cause(ctx)))
					return "", context.Cause(ctx)
				}
				return "a hole", nil
			}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
	}
	return post
}

func (s *conversation) tasks(version string) {
	s.brief = true
	store := &failingStore{TaskStore: new(server.MemoryTaskStore), s: s}
	post := s.taskServer(store)
	s.Step("Ada connects, who knows tasks, and Ben, who does not")
	options := s.answering("ada", version)
	options.Tasks = true
	ada := s.client("ada", options)
	a := s.connect("ada", ada, to(post))
	s.pass(time.Second)
	ben := s.client("ben", client.Options{ProtocolVersion: version})
	b := s.connect("ben", ben, to(post))
	s.call("ada", "ListTools", func(ctx context.Context) (any, error) { return a.ListTools(ctx, nil) })
	dig := func(tool, how string) *protocol.CallToolParams {
		return &protocol.CallToolParams{Name: "dig_" + tool, Arguments: json.RawMessage(`{"how":"` + how + `"}`)}
	}
	for _, one := range []struct{ tool, how string }{{"optional", ""}, {"required", "fail"}, {"forbidden", ""}, {"optional", "deny"}, {"optional", "panic"}, {"required", "ask"}} {
		s.Step("Ada digs, and waits: " + one.tool + " " + one.how)
		s.call("ada", "CallTool", func(ctx context.Context) (any, error) { return a.CallTool(ctx, dig(one.tool, one.how)) })
		s.pass(time.Second)
	}
	s.Step("Ben digs")
	for _, tool := range []string{"optional", "required", "forbidden"} {
		s.call("ben", "CallTool", func(ctx context.Context) (any, error) { return b.CallTool(ctx, dig(tool, "")) })
	}
	start := func(how string) (task *client.Task) {
		s.call("ada", "StartTool "+how, func(ctx context.Context) (_ any, err error) {
			if task, err = a.StartTool(ctx, dig("optional", how)); err != nil {
				return nil, err
			}
			return fmt.Sprintf(`"taskId":%q`, task.ID()), nil
		})
		s.pass(100 * time.Millisecond)
		return task
	}
	status := func(who string, task *client.Task) {
		s.call(who, "Status", func(ctx context.Context) (any, error) { return task.Status(ctx) })
	}
	s.Step("Ada starts two tasks, and a third, which is one too many")
	one, two := start("long"), start("ask")
	_ = start("long")
	s.pass(6 * time.Second)
	s.Step("Both look at them")
	status("ada", one)
	status("ada", two)
	status("ben", b.Task(one.ID()))
	status("ada", a.Task("nonsense"))
	s.Step("Ada answers one, wrongly and well, and cancels the other, twice")
	for _, key := range []string{"wrong", "1"} {
		s.call("ada", "Answer "+key, func(ctx context.Context) (any, error) {
			return nil, two.Answer(ctx, protocol.InputResponses{key: &protocol.ElicitResult{Action: protocol.ElicitAccept}})
		})
		s.pass(time.Second)
	}
	for range 2 {
		s.call("ada", "Cancel", func(ctx context.Context) (any, error) { return nil, one.Cancel(ctx) })
		s.pass(time.Second)
	}
	s.call("ada", "Wait for the one", func(ctx context.Context) (any, error) { return one.Wait(ctx) })
	s.call("ada", "Wait for the other", func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return two.Wait(ctx)
	})
	s.call("ada", "Tasks", func(ctx context.Context) (any, error) {
		var all []*protocol.Task
		for task, err := range a.Tasks(ctx) {
			if err != nil {
				return all, err
			}
			all = append(all, task)
		}
		return all, nil
	})
	s.Step("Ada leaves a call that has become a task")
	leave, wait := s.start("ada", "CallTool", func(ctx context.Context) (any, error) { return a.CallTool(ctx, dig("optional", "long")) })
	s.pass(3100 * time.Millisecond)
	leave(errors.New("ada has gone"))
	wait()
	s.pass(2 * time.Second)
	s.Step("A task that nobody ends expires")
	three := start("long")
	s.pass(59 * time.Second)
	status("ada", three)
	s.pass(2 * time.Second)
	status("ada", three)
	status("ada", two)
	s.Step("The store is away when a task begins")
	store.away.Store(true)
	_ = start("")
	store.away.Store(false)
	s.Step("The store is away when a task ends, and comes back")
	four := start("")
	store.away.Store(true)
	s.pass(6 * time.Second)
	status("ada", four)
	store.away.Store(false)
	s.pass(5 * time.Second)
	status("ada", four)
	s.call("ada", "Wait", func(ctx context.Context) (any, error) { return four.Wait(ctx) })
	s.Step("The server closes while a task runs")
	_ = start("long")
	s.Sort() // sessions and tasks end at the same time
	s.call("post", "Close", func(ctx context.Context) (any, error) { return nil, post.Close(ctx) })
	s.Step("Both close")
	s.call("ada", "Close", func(ctx context.Context) (any, error) { return nil, ada.Close(ctx) })
	s.call("ben", "Close", func(ctx context.Context) (any, error) { return nil, ben.Close(ctx) })
}
