package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// logStep draws a call that logs at several levels, for a client that wants some of them.
func logStep(t *rapid.T) step {
	levels := []protocol.LogLevel{protocol.LogEmergency, protocol.LogError, protocol.LogWarning, protocol.LogInfo, protocol.LogDebug}
	n := rapid.IntRange(0, len(levels)-1).Draw(t, "messages")
	level := levels[n]
	text := textOf(t, "text")
	return step{fmt.Sprintf("a call that logs %q, from %s", text, level), func(w *world) seen {
		w.malformed.Store(false)
		if err := w.session.SetLogLevel(w.ctx, level); err != nil {
			return w.see(nil, err)
		}
		s := w.see(w.session.Request(w.ctx, protocol.MethodCallTool, json.RawMessage(encoded(map[string]any{"name": w.prefix + "log", "arguments": map[string]any{"text": text}}))))
		for range n { // the client hears of them on another goroutine than of the result
			select {
			case message := <-w.logged:
				s.Logged = append(s.Logged, message)
			case <-w.ctx.Done():
				return s
			}
		}
		return s
	}}
}

// Tasks are the same through a gateway as directly, for clients of the era of their server: how they begin, what is said of them while they run and when they have
// ended, and their results; so are those that are cancelled, and those that nobody has.
//
// Guarantees: G-0096.1, G-0094.1
func TestTasksAreTransparent(t *testing.T) {
	path := fileOfOne(t)
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.SampledFrom([]string{protocol.LatestLegacy, protocol.Latest}).Draw(t, "version")
		c := cell{version, version, rapid.Bool().Draw(t, "pipes"), true}
		steps := rapid.OneOf(rapid.Custom(taskStep), rapid.Custom(taskStep), rapid.Custom(stepOf))
		compare(t, c, path, rapid.SliceOfN(steps, 1, 6).Draw(t, "steps"))
	})
}

// addTasks adds tools that can be tasks.
func addTasks(s *server.Server, w *world) {
	add := func(name string, support protocol.TaskSupport, end func(text string) (string, error)) {
		server.AddTool(s, protocol.Tool{Name: name, Execution: &protocol.ToolExecution{TaskSupport: support}}, func(ctx context.Context, in struct {
			Text string `json:"text"`
		}) (string, error) {
			select {
			case <-w.release:
				return end(in.Text)
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		})
	}
	add("task", protocol.TaskOptional, func(text string) (string, error) { return text, nil })
	add("only-task", protocol.TaskRequired, func(text string) (string, error) { return text, nil })
	add("task-fails", protocol.TaskOptional, func(text string) (string, error) { return "", errors.New(text) })
	add("task-breaks", protocol.TaskOptional, func(text string) (string, error) {
		return "", &jsonrpc.Error{Code: -32050, Message: text, Data: []byte(`{"why":[1]}`)}
	})
}

// taskStep draws the life of a task.
func taskStep(t *rapid.T) step {
	tool := rapid.SampledFrom([]string{"task", "only-task", "task-fails", "task-breaks", "echo", "nobody"}).Draw(t, "tool")
	cancels, text := rapid.Bool().Draw(t, "cancels"), textOf(t, "text")
	return step{fmt.Sprintf("a task of %s with %q, cancelled: %t", tool, text, cancels), func(w *world) seen {
		w.malformed.Store(false)
		params := map[string]any{"name": w.prefix + tool, "arguments": map[string]any{"text": text}}
		isModern := protocol.IsModern(w.session.Server().ProtocolVersion)
		if !isModern {
			params["task"] = map[string]any{"ttl": 60_000}
		}
		raw, err := w.session.Request(w.ctx, protocol.MethodCallTool, json.RawMessage(encoded(params)))
		var created struct {
			TaskID string `json:"taskId"`
			Task   struct{ TaskID string }
		}
		if err != nil || json.Unmarshal(raw, &created) != nil || created.TaskID+created.Task.TaskID == "" {
			return w.see(raw, err)
		}
		l := taskLife{world: w, id: created.TaskID + created.Task.TaskID}
		l.saw(raw, nil)
		l.ask(protocol.MethodGetTask)
		if cancels {
			l.ask(protocol.MethodCancelTask)
		} else {
			w.release <- struct{}{}
		}
		l.end()
		if !isModern {
			l.ask(protocol.MethodGetTaskResult)
		}
		l.ask(protocol.MethodCancelTask) // which is too late
		l.id = "nobody"
		l.ask(protocol.MethodGetTask)
		return seen{Result: l.all}
	}}
}

// A taskLife is what a client sees of a task.
type taskLife struct {
	*world
	id  string
	all []seen
}

// saw keeps what a request has led to, without what is of one hop or one moment.
func (l *taskLife) saw(raw json.RawMessage, err error) {
	s := l.see(json.RawMessage(strings.ReplaceAll(string(raw), l.id, "ID")), err)
	s.Message = strings.ReplaceAll(s.Message, l.id, "ID")
	withoutTimes(s.Result)
	l.all = append(l.all, s)
}

func (l *taskLife) ask(method string) {
	l.saw(l.session.Request(l.ctx, method, json.RawMessage(encoded(map[string]any{"taskId": l.id}))))
}

// end asks until the task has ended.
func (l *taskLife) end() {
	for {
		raw, err := l.session.Request(l.ctx, protocol.MethodGetTask, json.RawMessage(encoded(map[string]any{"taskId": l.id})))
		if err != nil || !strings.Contains(string(raw), `"`+string(protocol.TaskWorking)+`"`) {
			l.saw(raw, err)
			return
		}
	}
}

func withoutTimes(value any) {
	object, _ := value.(map[string]any)
	for name, member := range object {
		if name == "createdAt" || name == "lastUpdatedAt" {
			delete(object, name)
		}
		withoutTimes(member)
	}
}
