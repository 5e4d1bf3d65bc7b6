package tasks

import (
	"cmp"
	"context"
	"fmt"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// questions are the present questions of a task. A client of 2025-11-25 may refuse them.
type questions struct {
	*asking.Parked                 // guarded by task.mu
	attended       bool            // a client of 2025-11-25 is being asked
	ctx            context.Context // ends when they are no longer open
}

// Progress makes a report the status message of the task. If the call is not a task, it
// reports false, and the report is progress of the call. Progress does not save it, since a
// handler may report often, and a store may be slow. A later save takes it along.
func (t *Task) Progress(done, total float64, message string) bool {
	if !t.HasBegun() {
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
		t.changed.Announce()
	}
	t.mu.Unlock()
	t.tasks.TellHere(t.state.Task.TaskID) // the message is not saved, so other nodes do not learn of it
	return true
}

// Ask implements asking.Questioner. It runs on goroutines of the handler.
func (t *Task) Ask(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error) {
	if answers, err, done := t.askInRound(ctx, asked); done {
		return answers, err
	}
	return t.Conversation.Ask(ctx, asked) // the question appears in the status of the task
}

// A question before the call is a task, and one after, must not be mixed: a round that ends with a
// question takes the call with it. So making is held while the round asks, and a call does not
// become a task meanwhile.
//
// askInRound asks before the call has become a task. If the handler Waits, the call becomes a task.
func (t *Task) askInRound(ctx context.Context, asked protocol.InputRequests) (_ protocol.InputResponses, _ error, done bool) {
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
	answers, err := t.inRound.Ask(ctx, asked)
	t.over = t.over || err != nil // the round ends, and the call with it
	return answers, err, true
}

// Fitting implements asking.Courier. What the client can be asked, its call has said.
func (t *Task) Fitting(asked protocol.InputRequests) (protocol.InputRequests, error) {
	return t.job.Fitting(asked)
}

// Deliver shows questions to the client and waits for all answers. It uses keys that no
// earlier question of the task had.
func (t *Task) Deliver(ctx context.Context, open protocol.InputRequests) (protocol.InputResponses, error) {
	if before, may := t.Round(t.tasks.MaxRounds); !may {
		return nil, fmt.Errorf("%w: the task has asked %d times already", asking.ErrUnanswered, before)
	}
	asked := &questions{Parked: asking.Park(asking.PoseAs(open, t.used))}
	var closed context.CancelFunc
	asked.ctx, closed = context.WithCancel(context.Background())
	defer closed()
	if err := t.pose(asked); err != nil {
		return nil, err
	}
	answers, why := asked.Await(ctx, t.ctx, t.tasks.ctx)
	if why != nil {
		t.withdraw(asked)
		return nil, why
	}
	return answers, nil
}

// pose shows questions in the status of the task. A task that has ended asks nothing more, whatever
// its handler still does.
func (t *Task) pose(asked *questions) error {
	t.mu.Lock()
	if t.state.Task.Status.Ended() {
		t.mu.Unlock()
		return asking.UnansweredBy(cmp.Or(context.Cause(t.ctx), ErrExpired)) // its context may only be about to end
	}
	t.asked = asked
	t.show(protocol.TaskInputRequired, asked.Open())
	t.mu.Unlock()
	t.publish()
	return nil
}

// withdraw ends questions that nobody has answered, unless the task has ended or asks others by
// now.
func (t *Task) withdraw(asked *questions) {
	t.mu.Lock()
	if t.asked == asked {
		t.noQuestion()
	}
	t.mu.Unlock()
	t.publish()
}

// noQuestion records that no question is open. The caller holds the mutex, and publishes
// afterwards.
func (t *Task) noQuestion() {
	t.asked = nil
	t.show(protocol.TaskWorking, nil)
}

// show sets the status of a task that has not ended, and what it asks. The caller holds the mutex.
func (t *Task) show(status protocol.TaskStatus, open protocol.InputRequests) {
	t.state.Task.Status, t.state.Task.InputRequests, t.state.Task.LastUpdatedAt = status, open, now()
	t.changed.Announce()
}

// publish saves the task, and tells the receivers of changes. The caller does not hold the mutex,
// which a store would keep for long.
func (t *Task) publish() {
	t.save()
	t.tasks.Tell(t.state.Task.TaskID)
}

// update accepts answers to open questions, and ignores others. If one answer does not fit its
// question, update accepts none. A client that learns of a mistake can then send all of them again.
func (t *Task) update(ctx context.Context, answers protocol.InputResponses) error {
	t.mu.Lock()
	if t.asked == nil {
		t.mu.Unlock()
		return nil
	}
	taken, err := t.asked.Take(answers, asking.Fitting(ctx))
	switch {
	case err != nil || !taken:
		t.mu.Unlock()
		if err != nil {
			return refusal.New(jsonrpc.CodeInvalidParams, "%v", err)
		}
		return nil
	case t.asked.Settle():
		t.noQuestion()
	default:
		t.show(protocol.TaskInputRequired, t.asked.Open())
	}
	t.mu.Unlock()
	t.publish()
	return nil
}
