package client_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A tasksModel is two clients, one of each era, of the same tasks, and what should become of those who wait for them.
type tasksModel struct {
	*tasksWorld
	sides   []*taskSide
	waiters []*taskWaiter
}

// A taskWaiter waits for the outcome of a task: in a call, or with a handle.
type taskWaiter struct {
	side     *taskSide
	task     *servedTask
	isCall   bool
	rounds   int
	answered []string
	prompt   *taskPrompt // that the user has open
	cancel   func()
	done     chan taskEnd
}

// A taskEnd is how a wait has ended.
type taskEnd struct {
	text string
	err  error
}

const (
	modelRounds   = 2
	modelSettling = 15 * time.Second // a few polls, and less than half of the time in which a late cancellation is sent
)

// Clients of both eras call tools that become tasks, and wait for these, several at once. The server loses links after it has
// executed a request, answers late and twice, is away or overloaded, forgets tasks, asks and is asked. Each task is started once;
// each wait ends once, with the outcome of its task and no sooner; a call that is given up cancels its task, also later, and
// nothing else does; and each question gets one answer of each who waits.
//
// Guarantees: G-0032.10, G-0032.11, G-0032.12
func TestTasksAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := &tasksModel{tasksWorld: new(tasksWorld)}
			m.sides = []*taskSide{newTaskSide(t, m.tasksWorld, true), newTaskSide(t, m.tasksWorld, false)}
			m.all = m.sides
			defer m.end(t)
			t.Repeat(map[string]func(*rapid.T){
				"start": m.start, "start more": m.start, "wait": m.wait, "give up": m.giveUp, "cancel": m.cancel, "status": m.status,
				"finish": m.finish, "forget": m.forget, "ask": m.ask, "converse": m.converse, "reply": m.reply, "reply more": m.reply, "answer": m.answer,
				"cut": m.cut, "hold": m.hold, "overload": m.overload, "outage": m.outage, "back": m.back, "give up while away": m.giveUpAway,
				"": m.check,
			})
		})
	})
}

// check lets time pass, and compares everybody who waits and every server with the model.
func (m *tasksModel) check(t *rapid.T) {
	m.settle(modelSettling)
	for _, side := range m.sides {
		m.expire(side)
		side.cutAfter, side.holds = "", false
		for _, f := range side.held { // their requests have timed out
			side.say(f.fault(jsonrpc.CodeInvalidParams, `null`))
		}
		side.held = nil
	}
	synctest.Wait()
	m.notePrompts(t)
	m.waiters = slices.DeleteFunc(m.waiters, func(w *taskWaiter) bool { return m.hasEnded(t, w) })
	m.settle(time.Second)
	for _, one := range m.tasks {
		one.shown = ""
		one.checkCancels(t)
	}
}

// settle lets everybody do what they do meanwhile.
func (m *tasksModel) settle(d time.Duration) {
	m.mu.Lock() // what the model has done comes before what the servers do
	m.passed += d
	m.mu.Unlock()
	pass(d)
	synctest.Wait()
}

// notePrompts checks that users see only questions that they have not answered, each once.
func (m *tasksModel) notePrompts(t *rapid.T) {
	shown := make(map[string]bool)
	for _, p := range m.prompts {
		who := fmt.Sprintf("%p %p %s", p.side, p.waiter, p.key)
		if shown[who] {
			t.Fatalf("the question %s is shown twice", p.key)
		}
		shown[who] = true
		w := p.waiter
		if w == nil || w.prompt == p {
			continue
		}
		if w.prompt != nil || w.task != p.task || slices.Contains(w.answered, p.key) || !slices.Contains(m.waiters, w) {
			t.Fatalf("the question %s is shown for %+v", p.key, w)
		}
		w.prompt = p
		if w.rounds++; w.rounds > modelRounds {
			t.Fatalf("the question %s of %+v is shown, want the wait to end", p.key, w)
		}
	}
	for _, w := range m.waiters {
		if w.prompt != nil && !slices.Contains(m.prompts, w.prompt) {
			t.Fatalf("the question %s is not shown any more", w.prompt.key)
		}
	}
}

// hasEnded checks whether a waiter should have ended, and how.
func (m *tasksModel) hasEnded(t *rapid.T, w *taskWaiter) bool {
	task := w.task
	unseen := cmp.Or(task.key, task.shown)
	if unseen == "" && task.status == protocol.TaskCancelled {
		// It may have been seen before a call that was asked too often has cancelled the task, also if somebody else has answered it since.
		unseen = cmp.Or(task.last, w.answeredByOthers())
	}
	tooMany := w.side.modern && unseen != "" && !slices.Contains(w.answered, unseen) && w.rounds == modelRounds
	switch {
	case w.prompt != nil || w.side.away:
		w.wantNothing(t)
		return false
	case task.forgotten:
		w.wantError(t, client.ErrNoTask, false)
	case tooMany && (task.key != "" || errors.Is(w.peek(), client.ErrTooMany)):
		w.wantError(t, client.ErrTooMany, false)
		m.abandoned(w)
	case task.status == protocol.TaskCompleted:
		w.want(t, "made "+task.id)
	case task.status == protocol.TaskFailed:
		w.wantError(t, &jsonrpc.Error{Code: task.code}, false)
	case task.status == protocol.TaskCancelled:
		w.wantError(t, client.ErrTaskCancelled, false)
	default:
		w.wantNothing(t)
		if !w.isAsked(m) {
			t.Fatalf("the question %s of %+v is not shown", task.key, w)
		}
		return false
	}
	return true
}

// answeredByOthers returns a question of the task that others have answered, and not this user.
func (w *taskWaiter) answeredByOthers() string {
	for key := range w.task.given {
		if !slices.Contains(w.answered, key) {
			return key
		}
	}
	return ""
}

// isAsked reports whether the user knows what the task asks for.
func (w *taskWaiter) isAsked(m *tasksModel) bool {
	key := w.task.key
	return key == "" || w.side.modern && slices.Contains(w.answered, key) ||
		!w.side.modern && slices.ContainsFunc(m.prompts, func(p *taskPrompt) bool { return p.side == w.side && p.key == key })
}

// peek returns the error of a wait that has ended.
func (w *taskWaiter) peek() error {
	if len(w.done) == 0 {
		return nil
	}
	end := <-w.done
	w.done <- end
	return end.err
}

func (w *taskWaiter) wantNothing(t *rapid.T) {
	if len(w.done) > 0 {
		t.Fatalf("%+v has ended with %+v, want it to wait for %+v", w, <-w.done, w.task)
	}
}

func (w *taskWaiter) want(t *rapid.T, text string) {
	if len(w.done) == 0 {
		t.Fatalf("%+v waits for %+v, want %q", w, w.task, text)
	}
	if got := <-w.done; got.err != nil || got.text != text {
		t.Fatalf("%+v ended with %q, %v, want %q", w, got.text, got.err, text)
	}
}

// wantError checks that a wait has ended with an error, which says whether the server may have executed the call.
func (w *taskWaiter) wantError(t *rapid.T, want error, unsent bool) {
	synctest.Wait()
	if len(w.done) == 0 {
		t.Fatalf("%+v waits for %+v, want %v", w, w.task, want)
	}
	got := <-w.done
	if _, input := want.(*client.InputError); got.err == nil || !input && !errors.Is(got.err, want) || input && !errors.As(got.err, new(*client.InputError)) {
		t.Fatalf("%+v of %+v ended with %q, %v, want %v", w, w.task, got.text, got.err, want)
	}
	if client.NotExecuted(got.err) != unsent || errors.Is(got.err, client.ErrInvalid) {
		t.Fatalf("%+v ended with %v, which says that it was not executed: %t, invalid: %t", w, got.err, client.NotExecuted(got.err), errors.Is(got.err, client.ErrInvalid))
	}
}

// expire forgets cancellations that are too old to be sent.
func (m *tasksModel) expire(side *taskSide) {
	for _, one := range m.tasks {
		one.cancels = slices.DeleteFunc(one.cancels, func(a abandonment) bool {
			return a.side == side && side.away && time.Since(a.at) > time.Minute
		})
	}
}

// checkCancels checks that servers were asked to cancel a task by whom the model says, and by nobody else.
func (one *servedTask) checkCancels(t *rapid.T) {
	one.cancels = slices.DeleteFunc(one.cancels, func(a abandonment) bool {
		if !a.side.away {
			one.direct++
		}
		return !a.side.away
	})
	if one.got < one.direct || one.got > one.direct+one.extra {
		t.Fatalf("servers were asked %d times to cancel %+v, want %d", one.got, one, one.direct)
	}
}

// end closes the clients, which ends every wait and cancels no task.
func (m *tasksModel) end(t *rapid.T) {
	for _, side := range m.sides {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = side.c.Close(now)
		side.fakeServer.close()
	}
	synctest.Wait()
	for _, w := range m.waiters {
		if len(w.done) == 0 && !t.Failed() {
			t.Errorf("%+v waits after Close", w)
		}
		w.cancel()
	}
}
