package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

func (m *tasksModel) side(t *rapid.T) *taskSide { return m.sides[rapid.IntRange(0, 1).Draw(t, "side")] }

// pick draws a task.
func (m *tasksModel) pick(t *rapid.T, which func(*servedTask) bool) *servedTask {
	some := slices.DeleteFunc(slices.Clone(m.tasks), func(one *servedTask) bool { return !which(one) })
	if len(some) == 0 {
		t.Skip("no such task")
	}
	return some[rapid.IntRange(0, len(some)-1).Draw(t, "task")]
}

func isOpen(one *servedTask) bool { return !one.forgotten && !one.status.Ended() }

// begin lets a caller wait for a task.
func (m *tasksModel) begin(side *taskSide, task *servedTask, isCall bool, f func(context.Context) (*protocol.CallToolResult, error)) *taskWaiter {
	w := &taskWaiter{side: side, task: task, isCall: isCall, done: make(chan taskEnd, 1)}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.WithValue(context.Background(), waiterKey{}, w))
	go func() {
		r, err := f(ctx)
		if err != nil {
			w.done <- taskEnd{err: err}
			return
		}
		w.done <- taskEnd{text: r.Content.Text()}
	}()
	synctest.Wait()
	return w
}

// start calls a tool. The link may break when the task has begun: then nobody knows it.
func (m *tasksModel) start(t *rapid.T) {
	side, isCall, cut := m.side(t), rapid.Bool().Draw(t, "call"), rapid.IntRange(0, 5).Draw(t, "cut") == 0
	before := len(m.tasks)
	if cut && !side.away {
		side.cutAfter = protocol.MethodCallTool
	}
	params := &protocol.CallToolParams{Name: "make"}
	var task *client.Task
	w := m.begin(side, nil, isCall, func(ctx context.Context) (*protocol.CallToolResult, error) {
		if isCall {
			return side.CallTool(ctx, params)
		}
		var err error
		if task, err = side.StartTool(ctx, params); err != nil {
			return nil, err
		}
		return new(protocol.CallToolResult), nil
	})
	switch {
	case side.away:
		w.wantError(t, client.ErrUnavailable, true)
	case len(m.tasks) != before+1:
		t.Fatalf("the call has begun %d tasks, want one", len(m.tasks)-before)
	case cut:
		w.wantError(t, client.ErrLost, false)
	case isCall:
		w.task = m.tasks[before]
		m.waiters = append(m.waiters, w)
	default:
		w.want(t, "")
		if task.ID() != m.tasks[before].id {
			t.Fatalf("the task is %q, want %q", task.ID(), m.tasks[before].id)
		}
		m.waiters = append(m.waiters, m.begin(side, m.tasks[before], false, task.Wait))
	}
}

// wait waits for a task that may have ended, or that nobody knows.
func (m *tasksModel) wait(t *rapid.T) {
	side, task := m.side(t), m.pick(t, func(*servedTask) bool { return true })
	m.waiters = append(m.waiters, m.begin(side, task, false, side.Task(task.id).Wait))
}

// giveUp ends the context of one who waits. The task of a call is cancelled, as soon as the server can be reached.
func (m *tasksModel) giveUp(t *rapid.T) {
	if len(m.waiters) == 0 {
		t.Skip("nobody waits")
	}
	w := m.waiters[rapid.IntRange(0, len(m.waiters)-1).Draw(t, "waiter")]
	m.waiters = slices.DeleteFunc(m.waiters, func(other *taskWaiter) bool { return other == w })
	if !w.side.away && rapid.IntRange(0, 3).Draw(t, "cut") == 0 {
		w.side.cutAfter = protocol.MethodCancelTask
	}
	w.cancel()
	m.settle(time.Second)
	w.wantError(t, context.Canceled, false)
	m.abandoned(w)
}

// giveUpAway ends the contexts of all calls of a client while its server is away, for less or more than a minute.
func (m *tasksModel) giveUpAway(t *rapid.T) {
	side := m.side(t)
	if side.away {
		t.Skip("it is away already")
	}
	side.away = true
	m.lost(side)
	synctest.Wait()
	m.waiters = slices.DeleteFunc(m.waiters, func(w *taskWaiter) bool {
		if w.side == side && w.isCall {
			w.cancel()
			w.wantError(t, context.Canceled, false)
			m.abandoned(w)
		}
		return w.side == side && w.isCall
	})
	m.settle(rapid.SampledFrom([]time.Duration{time.Second, 50 * time.Second, 70 * time.Second}).Draw(t, "time"))
	m.backAgain(side)
}

// abandoned notes that a waiter has given up its task.
func (m *tasksModel) abandoned(w *taskWaiter) {
	if w.isCall {
		w.task.cancels = append(w.task.cancels, abandonment{w.side, time.Now()})
	}
}

// cancel cancels a task.
func (m *tasksModel) cancel(t *rapid.T) {
	side, task := m.side(t), m.pick(t, func(*servedTask) bool { return true })
	ended := task.status.Ended()
	err := side.Task(task.id).Cancel(t.Context())
	switch {
	case side.away:
		if !errors.Is(err, client.ErrUnavailable) || !client.NotExecuted(err) {
			t.Fatalf("cancelling returned %v, want %v", err, client.ErrUnavailable)
		}
		return
	case (err == nil) != (!task.forgotten && (side.modern || !ended)):
		t.Fatalf("cancelling %+v returned %v", task, err)
	}
	task.direct++
}

func (m *tasksModel) status(t *rapid.T) {
	side, task := m.side(t), m.pick(t, func(*servedTask) bool { return true })
	got, err := side.Task(task.id).Status(t.Context())
	switch {
	case side.away:
		if !errors.Is(err, client.ErrUnavailable) {
			t.Fatalf("the status is %v, want %v", err, client.ErrUnavailable)
		}
	case task.forgotten:
		if !errors.Is(err, client.ErrNoTask) {
			t.Fatalf("the status is %v, want %v", err, client.ErrNoTask)
		}
	case err != nil || got.Status != task.status || got.TaskID != task.id:
		t.Fatalf("the status is %+v, %v, want %+v", got, err, task)
	}
}

// finish ends a task, in the way of its tool.
func (m *tasksModel) finish(t *rapid.T) {
	task := m.pick(t, isOpen)
	task.code = rapid.SampledFrom([]int64{0, 0, 7, jsonrpc.CodeInternalError, jsonrpc.CodeInvalidParams}).Draw(t, "code")
	if m.ends(task, protocol.TaskCompleted); task.code != 0 {
		task.status = protocol.TaskFailed
	}
	m.tellWaiting(task)
}

func (m *tasksModel) forget(t *rapid.T) {
	task := m.pick(t, func(one *servedTask) bool { return !one.forgotten })
	task.forgotten, task.key = true, ""
	m.tellWaiting(task)
}

// ask lets a task ask for something.
func (m *tasksModel) ask(t *rapid.T) {
	task := m.pick(t, func(one *servedTask) bool { return isOpen(one) && one.key == "" })
	task.slow = rapid.Bool().Draw(t, "slow")
	m.asks(task)
}

// converse lets a task ask until some of those who wait have been asked too often.
func (m *tasksModel) converse(t *rapid.T) {
	task := m.pick(t, isOpen)
	for range rapid.IntRange(1, modelRounds+1).Draw(t, "questions") {
		if m.check(t); !isOpen(task) {
			return
		}
		if task.key == "" {
			m.asks(task)
			m.check(t)
		}
		for _, p := range slices.Clone(m.prompts) {
			m.settle(time.Second) // the answer before may have cost the link
			if p.task == task && !p.side.away && slices.Contains(m.prompts, p) {
				m.replyTo(t, p, protocol.ElicitAccept)
			}
		}
	}
}

// asks opens a question.
func (m *tasksModel) asks(one *servedTask) {
	m.keys++
	one.key, one.status = fmt.Sprint(one.id, "-", m.keys), protocol.TaskInputRequired
	m.sides[1].askFor(one)
}

// reply is what a user does with a question that he was asked.
func (m *tasksModel) reply(t *rapid.T) {
	if len(m.prompts) == 0 {
		t.Skip("nobody is asked")
	}
	p := m.prompts[rapid.IntRange(0, len(m.prompts)-1).Draw(t, "prompt")]
	m.replyTo(t, p, rapid.SampledFrom([]string{protocol.ElicitAccept, protocol.ElicitAccept, protocol.ElicitDecline, "fails"}).Draw(t, "action"))
}

func (m *tasksModel) replyTo(t *rapid.T, p *taskPrompt, action string) {
	wanted := p.task.key == p.key
	if !p.side.away && action != "fails" && rapid.IntRange(0, 3).Draw(t, "cut") == 0 && p.waiter != nil {
		p.side.cutAfter = protocol.MethodUpdateTask
	}
	p.reply <- action
	synctest.Wait()
	switch w := p.waiter; {
	case w == nil && action == "fails":
		action = protocol.ElicitCancel
	case w == nil:
	case action == "fails":
		w.wantError(t, new(client.InputError), false)
		m.waiters = slices.DeleteFunc(m.waiters, func(other *taskWaiter) bool { return other == w })
		m.abandoned(w)
		return
	default:
		w.prompt, w.answered = nil, append(w.answered, p.key)
		if p.side.away { // it is sent later
			return
		}
	}
	if wanted && p.task.given[p.key] != action {
		t.Fatalf("the task got the answer %q to %s, want %q", p.task.given[p.key], p.key, action)
	}
}

// answer answers a question without a wait. Whoever has asked the user, too, is too late.
func (m *tasksModel) answer(t *rapid.T) {
	side, task := m.sides[0], m.pick(t, func(one *servedTask) bool { return one.key != "" && !one.forgotten })
	key := task.key
	err := side.Task(task.id).Answer(t.Context(), protocol.InputResponses{key: &protocol.ElicitResult{Action: protocol.ElicitAccept}})
	if side.away != (err != nil) || !side.away && (task.key != "" || task.given[key] != protocol.ElicitAccept) {
		t.Fatalf("answering returned %v; the server got %q", err, task.given[key])
	}
}

// cut breaks a link, at once or after the server has executed a request.
func (m *tasksModel) cut(t *rapid.T) {
	side := m.side(t)
	if side.away {
		t.Skip("it is away")
	}
	if when := rapid.SampledFrom([]string{"", protocol.MethodGetTask, protocol.MethodGetTaskResult}).Draw(t, "after"); when != "" {
		side.cutAfter = when
	} else {
		m.lost(side)
	}
}

// hold holds the next answer to a poll back, until its request has timed out.
func (m *tasksModel) hold(t *rapid.T) {
	side := m.side(t)
	if side.away {
		t.Skip("it is away")
	}
	side.holds = true
}

// overload refuses polls for a while: once or twice too short to give up, or long enough.
func (m *tasksModel) overload(t *rapid.T) {
	side, code := m.side(t), rapid.SampledFrom([]int64{jsonrpc.CodeOverloaded, jsonrpc.CodeInternalError}).Draw(t, "code")
	if side.away {
		t.Skip("it is away")
	}
	for _, long := range rapid.SampledFrom([][]bool{{false}, {false, false}, {true}}).Draw(t, "long") {
		m.check(t)
		side.refuses = code
		if m.settle(7 * time.Second); long {
			m.settle(20 * time.Second)
			m.wantRefused(t, side)
		}
		side.refuses = 0
	}
}

// wantRefused checks that everybody has given up whose polls are refused. A request for a result is not.
func (m *tasksModel) wantRefused(t *rapid.T, side *taskSide) {
	waiting := 0
	m.waiters = slices.DeleteFunc(m.waiters, func(w *taskWaiter) bool {
		switch {
		case w.side != side || w.prompt != nil:
			return false
		case len(w.done) == 0:
			waiting++
			return false
		}
		w.wantError(t, &jsonrpc.Error{Code: side.refuses}, false)
		return true
	})
	if waiting != len(side.results) {
		t.Fatalf("%d wait in spite of the errors, want %d", waiting, len(side.results))
	}
}

func (m *tasksModel) outage(t *rapid.T) {
	side := m.side(t)
	if side.away {
		t.Skip("it is away")
	}
	side.away = true
	m.lost(side)
}

func (m *tasksModel) back(t *rapid.T) {
	side := m.side(t)
	if !side.away {
		t.Skip("it is there")
	}
	m.settle(rapid.SampledFrom([]time.Duration{0, 10 * time.Minute}).Draw(t, "time"))
	m.backAgain(side)
}

// backAgain lets a server accept links again.
func (m *tasksModel) backAgain(side *taskSide) {
	m.expire(side)
	side.away = false
	side.Wake()
}
