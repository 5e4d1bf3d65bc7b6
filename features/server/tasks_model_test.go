package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A taskModel is a server with a tool that does what the model says, the clients of two users in both eras, and the tasks
// that the server should have.
type taskModel struct {
	server  *server.Server
	store   *moodyStore
	clients []*taskClient
	started chan *taskRun
	runs    []*taskRun // that have not returned
	tasks   []*modelTask
}

// A taskRun is one run of the tool.
type taskRun struct {
	ctx     context.Context
	orders  chan taskOrder
	answers chan string // what its question got; empty: no answer
	user    string
}

// A taskOrder is what a run does next: it asks, reports progress, returns or fails.
type taskOrder struct{ do, text string }

type modelTask struct {
	id, user        string
	legacy          bool
	starter         *taskClient // is notified of its changes, until it has lost its link
	run             *taskRun
	status          protocol.TaskStatus
	result, message string    // what it returned, or why it failed; the last progress
	why             error     // why its handler should end
	expires         time.Time // its end
	asks            string    // the text of the open question
	key             string    // the key of the open question, as the server chose it
	given           []string  // what it has asked and got an answer for
	used            []string  // the keys of earlier questions
	waiters         []*taskWaiter
}

// A taskWaiter is a tasks/result without an answer.
type taskWaiter struct {
	client   *taskClient
	id       string
	question string // the id of the question that its client was asked
	since    time.Time
}

const (
	modelTTL     = time.Hour
	modelRunning = 4                // handlers in all
	modelAnswers = 10 * time.Minute // how long a client may take to answer
)

// Whatever two users do with tasks in both eras, over links that break, with a store that is full or broken, with handlers that
// do not listen, each task is in the state that the model says, for its owner, and unknown to everybody else.
//
// Guarantees: G-0032.1, G-0032.2, G-0032.3, G-0032.4, G-0032.5, G-0032.6, G-0032.7, G-0032.12
func TestTasksAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := newTaskModel()
			m.clients = []*taskClient{{user: "ada"}, {user: "ada", legacy: true}, {user: "ada", legacy: true}, {user: "bob"}, {user: "bob", legacy: true}}
			for _, c := range m.clients {
				c.dial(m.server)
			}
			defer m.end(t)
			t.Repeat(map[string]func(*rapid.T){
				"start":  m.start,
				"again":  m.start,
				"return": m.ret,
				"ask":    m.ask,
				"answer": m.answer,
				"cancel": m.cancel,
				"wait":   m.wait,
				"both":   m.askAndWait,
				"tell":   m.tell,
				"lose":   func(t *rapid.T) { m.lose(m.draw(t)) },
				"store": func(t *rapid.T) {
					m.store.mood = rapid.SampledFrom([]error{nil, nil, server.ErrTaskStoreFull, errBroken}).Draw(t, "store")
				},
				"pass": func(t *rapid.T) {
					pass(rapid.SampledFrom([]time.Duration{time.Second, time.Second, time.Minute, modelTTL / 2}).Draw(t, "time"))
				},
				"": m.check,
			})
		})
	})
}

func newTaskModel() *taskModel {
	m := &taskModel{store: &moodyStore{}, started: make(chan *taskRun, 10)}
	m.server = newServer(server.Options{Tasks: &server.TaskOptions{Legacy: true, TTL: modelTTL, MaxRunning: modelRunning, Store: m.store}})
	server.AddTool(m.server, protocol.Tool{Name: "work", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}}, m.work, server.Asks(server.Waits, forms))
	return m
}

func (m *taskModel) work(ctx context.Context, _ struct{}) (string, error) {
	r := &taskRun{ctx, make(chan taskOrder), make(chan string, 1), server.RequestFrom(ctx).Origin.Identity}
	m.started <- r
	for done := 1.0; ; done++ {
		switch o := <-r.orders; o.do {
		case "ask":
			answers, err := server.Ask(ctx, question(o.text))
			if r.answers <- textOf(answers, o.text); err == nil && textOf(answers, o.text) == "" {
				panic("a question has neither an answer nor an error")
			}
		case "tell":
			server.Progress(ctx, 1, 0, o.text)
		case "return":
			return o.text, nil
		case "fail":
			return "", &jsonrpc.Error{Code: 7, Message: o.text}
		}
	}
}

func (m *taskModel) draw(t *rapid.T) *taskClient {
	return rapid.SampledFrom(m.clients).Draw(t, "client")
}

// pick draws one of the tasks that are of a kind.
func (m *taskModel) pick(t *rapid.T, kind func(*modelTask) bool) *modelTask {
	var some []*modelTask
	for _, one := range m.tasks {
		if kind(one) {
			some = append(some, one)
		}
	}
	if len(some) == 0 {
		t.Skip("there is no such task")
	}
	return rapid.SampledFrom(some).Draw(t, "task")
}

func isThere(one *modelTask) bool { return one.status != "" }

func (one *modelTask) runs() bool { return one.run != nil && one.asks == "" }

// start calls the tool as a task, which is refused if there is no place for it.
func (m *taskModel) start(t *rapid.T) {
	c, ttl := m.draw(t), modelTTL
	params := `"name":"work","arguments":{}`
	if c.legacy {
		ttl = rapid.SampledFrom([]time.Duration{modelTTL, time.Minute}).Draw(t, "ttl")
		params += fmt.Sprintf(`,"task":{"ttl":%d}`, ttl.Milliseconds())
	}
	got := c.ask("tools/call", params)
	switch {
	case len(m.runs) >= modelRunning:
		got.refused(t, jsonrpc.CodeOverloaded, "handlers are running")
	case errors.Is(m.store.mood, server.ErrTaskStoreFull):
		got.refused(t, jsonrpc.CodeOverloaded, "cannot become a task")
	case m.store.mood != nil:
		got.refused(t, jsonrpc.CodeInternalError, "cannot become a task")
	default:
		one := &modelTask{id: got.taskID(t, c.legacy), user: c.user, legacy: c.legacy, starter: c, status: protocol.TaskWorking, expires: time.Now().Add(ttl)}
		one.run = <-m.started
		m.runs, m.tasks = append(m.runs, one.run), append(m.tasks, one)
	}
	if len(m.started) > 0 {
		t.Fatal("a handler runs that should not")
	}
}

// ret lets a run return, whether its task has ended or not.
func (m *taskModel) ret(t *rapid.T) {
	one := m.pick(t, (*modelTask).runs)
	o := taskOrder{rapid.SampledFrom([]string{"return", "return", "fail"}).Draw(t, "how"), fmt.Sprint("text", len(m.tasks))}
	m.order(one, o)
	m.runs = slices.DeleteFunc(m.runs, func(r *taskRun) bool { return r == one.run })
	one.run = nil
	if one.status != protocol.TaskWorking {
		return // nobody gets the result
	}
	one.status, one.result = protocol.TaskCompleted, o.text
	switch {
	case o.do == "fail":
		one.status = protocol.TaskFailed
	case errors.Is(m.store.mood, server.ErrTaskStoreFull):
		one.status, one.result = protocol.TaskFailed, "executed, and its result was dropped"
	}
}

func (m *taskModel) order(one *modelTask, o taskOrder) {
	one.run.orders <- o
	synctest.Wait()
}

// tell reports progress, which becomes the message of the task.
func (m *taskModel) tell(t *rapid.T) {
	one := m.pick(t, (*modelTask).runs)
	text := rapid.SampledFrom([]string{"half", "most"}).Draw(t, "message")
	if m.order(one, taskOrder{"tell", text}); one.status == protocol.TaskWorking {
		one.message = text + " (1)"
	}
}

// ask lets a run ask. It has the answer if it has asked the same before, and none if its task has ended.
func (m *taskModel) ask(t *rapid.T) {
	m.askOne(t, m.pick(t, func(one *modelTask) bool { return one.runs() && len(one.used) < 9 }))
}

// askAndWait lets a legacy task ask, and its owner's clients wait for its result.
func (m *taskModel) askAndWait(t *rapid.T) {
	one := m.pick(t, func(one *modelTask) bool { return isThere(one) && one.legacy && one.runs() && len(one.used) < 9 })
	m.askOne(t, one)
	for range 2 {
		m.waitFor(t, one)
	}
}

func (m *taskModel) askOne(t *rapid.T, one *modelTask) {
	one.asks = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "question")
	m.order(one, taskOrder{"ask", one.asks})
	switch {
	case one.status == protocol.TaskWorking && slices.Contains(one.given, one.asks):
		one.wantAnswer(t, "yes")
	case one.status != protocol.TaskWorking:
		one.wantAnswer(t, "", "yes") // the answer that it has, or none
	default:
		one.status = protocol.TaskInputRequired
	}
}

// wantAnswer checks that the question of a task has ended, and with which answer.
func (one *modelTask) wantAnswer(t *rapid.T, want ...string) {
	synctest.Wait()
	if len(one.run.answers) == 0 {
		t.Fatalf("the question of %+v waits, want the answer %q", one, want)
	}
	got := <-one.run.answers
	if !slices.Contains(want, got) {
		t.Fatalf("the question of %+v got %q, want %q", one, got, want)
	}
	if got != "" {
		one.given = append(one.given, one.asks)
	}
	one.asks, one.key = "", ""
}

// answer answers the question of a task twice, or one that is not open.
func (m *taskModel) answer(t *rapid.T) {
	one := m.pick(t, func(one *modelTask) bool { return isThere(one) && len(one.used) > 0 })
	if one.legacy {
		m.answerLegacy(t, one)
		return
	}
	key := rapid.SampledFrom(one.used).Draw(t, "key")
	content, name := `{"action":"accept","content":{%q:"yes"}}`, one.asks
	wrong := rapid.IntRange(0, 3).Draw(t, "wrong") == 0
	if wrong {
		content = `{"action":"accept","content":{%q:7}}`
	}
	params := fmt.Sprintf(`"taskId":%q,"inputResponses":{%q:`+content+`}`, one.id, key, name)
	for _, c := range m.clients {
		switch {
		case c.legacy: // has no such method
		case c.user != one.user:
			c.ask("tasks/update", params).refused(t, jsonrpc.CodeInvalidParams, "unknown task")
		case wrong && key == one.key:
			c.ask("tasks/update", params).refused(t, jsonrpc.CodeInvalidParams, "")
		default:
			c.ask("tasks/update", params).accepted(t)
			if key == one.key {
				one.status = protocol.TaskWorking
				one.wantAnswer(t, "yes")
			}
			c.ask("tasks/update", params).accepted(t)
		}
	}
}

// cancel cancels a task, for its owner.
func (m *taskModel) cancel(t *rapid.T) {
	one, c := m.pick(t, isThere), m.draw(t)
	got := c.ask("tasks/cancel", fmt.Sprintf(`"taskId":%q`, one.id))
	switch {
	case c.user != one.user:
		got.refused(t, jsonrpc.CodeInvalidParams, "unknown task")
		return
	case !one.status.Ended():
		got.accepted(t)
		one.stop(t, protocol.TaskCancelled, server.ErrTaskCancelled)
	case c.legacy:
		got.refused(t, jsonrpc.CodeInvalidParams, "has ended")
	default:
		got.accepted(t)
	}
}

// stop ends a task before its handler.
func (one *modelTask) stop(t *rapid.T, status protocol.TaskStatus, why error) {
	one.status, one.why, one.result, one.message = status, why, "", "cancelled by the client"
	if one.asks != "" {
		one.wantAnswer(t, "")
	}
}
