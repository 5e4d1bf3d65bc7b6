package server

import (
	"context"
	"fmt"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// taskQuestions contains the present questions of a task.
type taskQuestions struct {
	openQuestions                 // replaced when some of them are answered. Guarded by task.mu
	refused       chan error      // holds one error: the client of 2025-11-25 does not answer
	attended      bool            // a client of 2025-11-25 is being asked
	ctx           context.Context // ends when they are no longer open
}

// progress makes a report the status message of the task. If the call is not a task, it
// reports false, and the report is progress of the call.
func (t *task) progress(done, total float64, message string) bool {
	if !t.hasBegun() {
		return false
	}
	text := fmt.Sprint(done)
	if total > 0 {
		text = fmt.Sprintf("%v of %v", done, total)
	}
	if message != "" {
		text = fmt.Sprintf("%s (%s)", refusal.Shorten(message, refusal.LongestMessage), text)
	}
	t.mu.Lock()
	if !t.state.Task.Status.Ended() {
		t.state.Task.StatusMessage, t.state.Task.LastUpdatedAt = text, now()
		t.wake()
	}
	t.mu.Unlock()
	t.tasks.server.subscriptions.TellHere(changes.Task(t.state.Task.TaskID)) // the message is not saved, so other nodes do not learn of it
	return true
}

// ask implements questioner. It runs on goroutines of the handler.
func (t *task) ask(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error) {
	if answers, err, done := t.askInRound(ctx, asked); done {
		return answers, err
	}
	return t.conversation.ask(ctx, asked) // the question appears in the status of the task
}

// askInRound asks before the call has become a task. If the handler Waits, the call
// becomes a task.
func (t *task) askInRound(ctx context.Context, asked protocol.InputRequests) (_ protocol.InputResponses, _ error, done bool) {
	if t.inRound == nil {
		if err := t.make(); err != nil {
			return nil, err, true
		}
		return nil, nil, false
	}
	t.making.Lock()
	defer t.making.Unlock()
	if t.made {
		return nil, nil, false
	}
	answers, err := t.inRound.ask(ctx, asked)
	t.over = t.over || err != nil // the round ends, and the call with it
	return answers, err, true
}

// deliver shows questions to the client and waits for all answers. It uses keys that no
// earlier question of the task had.
func (t *task) deliver(ctx context.Context, open protocol.InputRequests) (protocol.InputResponses, error) {
	if before, may := t.Round(t.tasks.server.rounds.options.MaxRounds); !may {
		return nil, fmt.Errorf("%w: the task has asked %d times already", ErrUnanswered, before)
	}
	asked := &taskQuestions{
		openQuestions: openQuestions{asking.PoseAs(open, t.used), make(chan protocol.InputResponses, 1)},
		refused:       make(chan error, 1),
	}
	var closed context.CancelFunc
	asked.ctx, closed = context.WithCancel(context.Background())
	defer closed()
	t.mu.Lock()
	if t.state.Task.Status.Ended() {
		t.mu.Unlock()
		return nil, unansweredBy(t.ctx)
	}
	t.asked = asked
	t.state.Task.Status, t.state.Task.InputRequests, t.state.Task.LastUpdatedAt = protocol.TaskInputRequired, asked.Open(), now()
	t.wake()
	t.mu.Unlock()
	t.save()
	t.tell()
	var why error
	select {
	case answers := <-asked.answers:
		return answers, nil
	case why = <-asked.refused:
	case <-ctx.Done():
		why = unansweredBy(ctx)
	case <-t.ctx.Done():
		why = unansweredBy(t.ctx)
	}
	t.mu.Lock()
	if t.asked == asked {
		t.noQuestion()
	}
	t.mu.Unlock()
	t.save()
	t.tell()
	return nil, why
}

// noQuestion records that no question is open. The caller holds the mutex.
func (t *task) noQuestion() {
	t.asked = nil
	t.state.Task.Status, t.state.Task.InputRequests, t.state.Task.LastUpdatedAt = protocol.TaskWorking, nil, now()
	t.wake()
}

// update accepts answers to open questions, and ignores others. If one answer does not
// fit its question, update accepts none.
func (t *task) update(ctx context.Context, answers protocol.InputResponses) error {
	t.mu.Lock()
	if t.asked == nil {
		t.mu.Unlock()
		return nil
	}
	left, taken, err := t.asked.Answer(answers, fitting(ctx))
	if err != nil || !taken {
		t.mu.Unlock()
		if err != nil {
			return refusal.New(jsonrpc.CodeInvalidParams, "%v", err)
		}
		return nil
	}
	t.asked.Questions = left
	if got, all := left.Answered(); all {
		t.asked.answers <- got
		t.noQuestion()
	} else {
		t.state.Task.InputRequests, t.state.Task.LastUpdatedAt = left.Open(), now()
		t.wake()
	}
	t.mu.Unlock()
	t.save()
	t.tell()
	return nil
}
