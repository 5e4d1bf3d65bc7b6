package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A waiting is a modern call of a feature that Waits. Its handler runs once, on a
// separate goroutine, through all rounds. A waiting is also a questioner.
//
// Between two rounds it has a ticket, which the next round presents. It ends when its
// handler has returned and a round has taken the outcome, or no round will.
type waiting struct {
	rounds *rounds
	from   share.Client
	name   string
	size   int
	about  asking.Subject
	id     string    // Request.CallID
	expiry time.Time // when the call expires

	ctx    context.Context
	cancel context.CancelCauseFunc
	round  atomic.Pointer[Request] // the present round, or the last one

	questions chan *openQuestions // questions for the present round
	done      chan struct{}       // closed when the handler has returned
	result    any
	err       error

	conversation

	// Guarded by rounds.mu.
	ticket [16]byte
	parked bool           // the call waits between two rounds, with a ticket
	left   bool           // the call has ended, and no round waits for its outcome
	over   bool           // the call no longer has a place
	count  int            // how many rounds the call has had
	asked  *openQuestions // what the client must answer
	timer  *time.Timer
}

// An openQuestions contains the questions that a handler asks together, and a channel for
// the answers.
type openQuestions struct {
	*asking.Questions
	answers chan protocol.InputResponses // holds one element, so the round with the answers never waits
}

// A waitingContext is the context of a handler that waits. It ends with the call, not
// with a round. It has the values of the first round, but its Request is that of the
// present round.
type waitingContext struct {
	context.Context
	first   context.Context
	waiting *waiting
}

func (c waitingContext) Value(key any) any {
	if key == (requestKey{}) {
		return c.waiting.round.Load()
	}
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.first.Value(key)
}

// start reserves a place for a call and runs its handler.
func (rs *rounds) start(ctx context.Context, c *call, about asking.Subject, early protocol.InputResponses, run func(context.Context) (any, error)) (any, *protocol.InputRequired, error) {
	w := &waiting{
		rounds: rs, from: c.client(), name: c.Method + " " + refusal.Shorten(about.Name, refusal.LongestName), about: about, id: c.CallID(),
		size: bytesOfWaiting + c.size, expiry: time.Now().Add(rs.options.CallExpiry),
		questions: make(chan *openQuestions), done: make(chan struct{}),
	}
	w.begin(func() *Client { return w.round.Load().Client }, w.deliver)
	w.SetEarly(early, false)
	if err := rs.enter(w); err != nil {
		c.noPlace = true
		return nil, nil, err
	}
	var expire context.CancelFunc
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.ctx, expire = context.WithDeadlineCause(w.ctx, w.expiry, fmt.Errorf("%w: the call took longer than %v", ErrUnanswered, rs.options.CallExpiry))
	w.join(c)
	first := context.WithoutCancel(ctx)
	go func() { // rounds.running counts it
		defer rs.running.Done()
		defer expire()
		defer rs.handlerOver(w)
		w.err = errGoexit
		w.err = c.peer.guarded(c.Method, func() (err error) {
			w.result, err = run(waitingContext{w.ctx, first, w})
			return err
		})
	}()
	return w.await(ctx, c)
}

// handlerOver records that the handler has returned. If no round waits, the outcome is
// kept for the next round until the question expires.
func (rs *rounds) handlerOver(w *waiting) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if w.ctx.Err() != nil && w.parked || w.left {
		rs.release(w)
	}
	delete(rs.handlers, w)
	close(w.done)
}

// join makes a request the present round.
func (w *waiting) join(c *call) {
	c.mu.Lock()
	c.asked.questioner, c.asked.id = w, w.id
	c.mu.Unlock()
	w.round.Store(&c.Request)
}

// await serves one round, until the handler asks or returns.
func (w *waiting) await(ctx context.Context, c *call) (any, *protocol.InputRequired, error) {
	select {
	case asked := <-w.questions:
		return w.park(c, asked)
	case <-w.done:
	case <-ctx.Done():
		w.cancel(context.Cause(ctx))
		<-w.done // its outcome is the answer, if anybody still wants it
	}
	w.rounds.mu.Lock()
	w.rounds.release(w)
	w.rounds.mu.Unlock()
	w.cancel(nil)
	var required *InputRequired
	if errors.As(w.err, &required) {
		questions, err := w.rounds.require(c, w.about, &asking.State{Call: w.id, Round: w.count, End: w.expiry.Unix()}, required)
		return nil, questions, err
	}
	return w.result, nil, w.err
}

// park ends a round with questions. The next round presents the ticket.
func (w *waiting) park(c *call, asked *openQuestions) (any, *protocol.InputRequired, error) {
	rs := w.rounds
	open := asked.Open()
	next := &asking.State{ID: make([]byte, 16), Call: w.id, End: w.expiry.Unix(), Process: rs.process, Asked: make(map[string]asking.Digest)}
	_, _ = rand.Read(next.ID) // rand.Read never fails
	for key := range open {
		next.Asked[key] = asking.Digest{} // the digest is not needed, because this node stores the question itself
	}
	rs.mu.Lock()
	w.asked = asked
	next.Round = w.count
	w.count++
	rs.mu.Unlock()
	required, err := rs.ask(c, w.about, next, open)
	if err != nil { // the handler's question fails with this error
		w.cancel(err)
		<-w.done
		rs.mu.Lock()
		rs.release(w)
		rs.mu.Unlock()
		return nil, nil, err
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	w.issue([16]byte(next.ID))
	return nil, required, nil
}

// issue gives the call a new ticket. The caller holds the mutex of the rounds.
func (w *waiting) issue(ticket [16]byte) {
	rs := w.rounds
	if w.ctx.Err() != nil {
		if w.left = true; wait.IsClosed(w.done) {
			rs.release(w)
		}
		return
	}
	w.ticket, w.parked = ticket, true
	rs.tickets[ticket] = w
	w.timer = time.AfterFunc(rs.options.Expiry, func() { w.expire(ticket) })
}

// expire ends a call whose client did not come back.
func (w *waiting) expire(ticket [16]byte) {
	rs := w.rounds
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !w.parked || w.ticket != ticket {
		return
	}
	w.cancel(fmt.Errorf("%w: it took longer than %v", ErrUnanswered, rs.options.Expiry))
	select {
	case <-w.done:
		rs.release(w)
	default: // handlerOver releases the call
	}
}

// resume serves the next round of a call.
func (rs *rounds) resume(ctx context.Context, c *call, about asking.Subject, st *asking.State, answers protocol.InputResponses) (any, *protocol.InputRequired, error) {
	rs.mu.Lock()
	w := rs.tickets[[16]byte(st.ID)]
	if w == nil {
		rs.mu.Unlock()
		return nil, nil, asking.Refuse("the requestState was used, or the call is over: make it anew")
	}
	left, _, err := w.asked.Answer(answers, fitting(ctx))
	if err != nil {
		rs.mu.Unlock() // the ticket stays valid
		return nil, nil, refusal.New(jsonrpc.CodeInvalidParams, "%v", err)
	}
	rs.unpark(w)
	asked := &openQuestions{left, w.asked.answers}
	rs.mu.Unlock()
	w.join(c)
	got, all := left.Answered()
	if !all {
		return w.park(c, asked)
	}
	asked.answers <- got
	return w.await(ctx, c)
}

// deliver passes questions to the present round, and waits for the answers. While the
// server closes, it fails.
func (w *waiting) deliver(ctx context.Context, open protocol.InputRequests) (protocol.InputResponses, error) {
	asked := &openQuestions{asking.Pose(open), make(chan protocol.InputResponses, 1)}
	select {
	case w.questions <- asked:
	case <-ctx.Done():
		return nil, unansweredBy(ctx)
	case <-w.ctx.Done():
		return nil, unansweredBy(w.ctx)
	case <-w.rounds.ctx.Done():
		return nil, unansweredBy(w.rounds.ctx)
	}
	select {
	case answers := <-asked.answers:
		return answers, nil
	case <-ctx.Done():
		return nil, unansweredBy(ctx)
	case <-w.ctx.Done():
		return nil, unansweredBy(w.ctx)
	case <-w.rounds.ctx.Done():
		return nil, unansweredBy(w.rounds.ctx)
	}
}
