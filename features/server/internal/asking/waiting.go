package asking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/places"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Calls are a server's calls that wait: those whose handler runs, and those between two rounds. They may outlive every request, so
// they have places, and the server waits for them at its end.
type Calls struct {
	*Rounds
	running sync.WaitGroup // counts the goroutines of handlers that wait
	places  places.Places

	mu       sync.Mutex
	handlers map[*Waiting]struct{} // the calls whose handler runs
	tickets  map[[16]byte]*Waiting // the calls that wait for their client, by ticket
}

// NewCalls returns no calls, and places for them.
// It starts nothing: no goroutine and no timer is there before the first Begin.
func NewCalls(rs *Rounds, of places.Places) *Calls {
	return &Calls{Rounds: rs, places: of, handlers: make(map[*Waiting]struct{}), tickets: make(map[[16]byte]*Waiting)}
}

// A Waiting is the courier of a modern call of a feature that Waits. Its handler runs once, on a
// separate goroutine, through all rounds.
//
// Between two rounds it has a ticket, which the next round presents. It ends when its
// handler has returned and a round has taken the outcome, or no round will. So it is in one of these states:
//
//	served   a round waits in Await: for questions, for the outcome, or until the client leaves, which ends the call
//	parked   no round waits; the ticket says which one goes on. A ticket is good for one round, and for Expiry
//	left     the call has ended while no round waited, or its last round could not be parked: nobody takes the outcome
//	over     its place was given back, which happens once, and never while the handler runs and a round may still come
//
// The goroutine of the handler writes result and err, and closes done then. Whoever reads them has seen it closed.
type Waiting struct {
	calls  *Calls
	from   share.Client
	size   int
	about  Subject
	id     string    // Caller.CallID
	expiry time.Time // when the call expires

	ctx    context.Context
	cancel context.CancelCauseFunc
	expire context.CancelFunc
	round  atomic.Pointer[Caller] // the present round, or the last one

	questions chan *Parked  // questions for the present round
	done      chan struct{} // closed when the handler has returned
	result    any
	err       error

	Conversation

	// Guarded by calls.mu.
	ticket [16]byte
	parked bool    // the call waits between two rounds, with a ticket
	left   bool    // the call has ended, and no round waits for its outcome
	over   bool    // the call no longer has a place
	count  int     // how many rounds the call has had
	asked  *Parked // what the client must answer
	timer  *time.Timer
}

const bytesOfWaiting = 16 << 10 // how many bytes a waiting call counts in addition to its request

// Begin reserves a place for a call whose request takes so many bytes, or refuses it. Run must follow.
// It is called on the goroutine of the first round's request. What is refused here has had no effect.
func (cs *Calls) Begin(c Caller, about Subject, from share.Client, size int, early protocol.InputResponses) (*Waiting, error) {
	w := &Waiting{
		calls: cs, from: from, about: about, id: c.CallID(),
		size: bytesOfWaiting + size, expiry: time.Now().Add(cs.limits.CallExpiry),
		questions: make(chan *Parked), done: make(chan struct{}),
	}
	// Before the handler runs, since that may ask at once, on any of its goroutines.
	w.Conversation.Begin(w)
	w.SetEarly(early, false)
	if err := cs.enter(w); err != nil {
		return nil, err
	}
	// The contexts come after the place: a timer of a call that was refused would run until its expiry, for nobody.
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.ctx, w.expire = context.WithDeadlineCause(w.ctx, w.expiry, fmt.Errorf("%w: the call took longer than %v", ErrUnanswered, cs.limits.CallExpiry))
	// Before Run: the handler looks for its request in the present round.
	w.join(c)
	return w, nil
}

// Run runs the handler on a goroutine of its own, with a context that ends with the call, and not with a round.
func (w *Waiting) Run(handler func(context.Context) (any, error)) {
	c := w.Round()
	// The deferred functions run from below: the outcome is known and the place settled before the timer of the call
	// goes, and the server stops waiting for it last.
	go func() { // calls.running counts it
		defer w.calls.running.Done()
		defer w.expire()
		defer w.handlerOver()
		// What stays if the handler ends its goroutine: then only deferred functions run, and the round would find
		// neither a result nor an error.
		w.err = ErrGoexit
		w.err = c.Guarded(w.about.Method, func() (err error) {
			w.result, err = handler(w.ctx)
			return err
		})
	}()
}

// handlerOver records that the handler has returned. If no round waits, the outcome is
// kept for the next round until the question expires.
func (w *Waiting) handlerOver() {
	cs := w.calls
	cs.mu.Lock()
	defer cs.mu.Unlock()
	// No round will take the outcome of a call that was given up or has expired between two rounds, nor of one whose
	// last round could not be parked. In all other cases a round gives the place back, or the timer does.
	if w.ctx.Err() != nil && w.parked || w.left {
		cs.release(w)
	}
	delete(cs.handlers, w)
	// Under the mutex, under which park, issue and abandon look at it: exactly one of them and this function gives the
	// place back.
	close(w.done)
}

// join makes a request the present round. Whatever the handler does from now on belongs to that: what it sends goes to the stream of this
// request, and not to one that was answered.
func (w *Waiting) join(c Caller) {
	// The order matters. A handler that sees the new request may ask in it at once, and finds who asks without a
	// lock: storing the round is what makes that visible.
	c.Joined(w, w.id)
	w.round.Store(&c)
}

// Round returns the request of the present round, or of the last one.
func (w *Waiting) Round() Caller { return *w.round.Load() }

// State returns the state of the call for a round after this one.
// Only the goroutine of the present round calls it, which is also the only one that counts rounds.
func (w *Waiting) State() *State { return &State{Call: w.id, Round: w.count, End: w.expiry.Unix()} }

// Await serves one round, until the handler asks or returns.
// A round that ends with a question keeps the place, since the handler goes on. One whose client cancels or leaves
// takes the call with it: nobody would come for another round.
func (w *Waiting) Await(ctx context.Context) (any, *protocol.InputRequired, error) {
	select {
	case asked := <-w.questions:
		return w.park(asked)
	case <-w.done:
	case <-ctx.Done():
		w.cancel(context.Cause(ctx))
		<-w.done // its outcome is the answer, if anybody still wants it
	}
	// The handler has returned, so the place is free before the answer is sent: a client that calls again at once is
	// not refused because of its own call.
	w.calls.mu.Lock()
	w.calls.release(w)
	w.calls.mu.Unlock()
	w.cancel(nil)
	return w.result, nil, w.err
}

// park ends a round with questions. The next round presents the ticket. The call may end while its state is sealed, without the mutex:
// if its handler has returned, that outcome ends the round.
func (w *Waiting) park(asked *Parked) (any, *protocol.InputRequired, error) {
	cs := w.calls
	open := asked.Open()
	next := w.State()
	// The process is what sends each later round here: MayGoOn refuses this state in any other one, where nobody
	// waits.
	next.Process, next.Asked = cs.process, make(map[string]Digest)
	for key := range open {
		next.Asked[key] = Digest{} // the digest is not needed, because this node stores the question itself
	}
	cs.mu.Lock()
	w.asked = asked
	w.count++
	cs.mu.Unlock()
	required, err := cs.Ask(w.about, next, open)
	if err != nil { // the handler's question fails with this error
		// No client will have a ticket for this call. So this round waits for the handler, which cleans up, and gives
		// the place back itself.
		w.cancel(err)
		<-w.done
		cs.mu.Lock()
		cs.release(w)
		cs.mu.Unlock()
		return nil, nil, err
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if wait.IsClosed(w.done) { // the handler has not waited for the answers
		cs.release(w)
		return w.result, nil, w.err
	}
	w.issue([16]byte(next.ID))
	return nil, required, nil
}

// issue gives the call a new ticket. The caller holds the mutex of the calls.
func (w *Waiting) issue(ticket [16]byte) {
	cs := w.calls
	if w.ctx.Err() != nil {
		w.left = true // a ticket would lead nowhere; handlerOver gives the place back
		return
	}
	w.ticket, w.parked = ticket, true
	cs.tickets[ticket] = w
	// The timer knows its ticket. Stop does not wait for one that fires already, and that one must not end a call
	// which has another ticket by then.
	w.timer = time.AfterFunc(cs.limits.Expiry, func() { w.abandon(ticket) })
}

// abandon ends a call whose client did not come back.
// It runs on the goroutine of the timer. A handler that still cleans up keeps the ticket until it returns: a client
// that comes back meanwhile gets its outcome.
func (w *Waiting) abandon(ticket [16]byte) {
	cs := w.calls
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !w.parked || w.ticket != ticket {
		return
	}
	w.cancel(fmt.Errorf("%w: it took longer than %v", ErrUnanswered, cs.limits.Expiry))
	if wait.IsClosed(w.done) {
		cs.release(w)
	} // otherwise handlerOver releases the call
}

// Resume serves the next round of a call.
// It refuses a state before the ticket is used up wherever the client can mend what is wrong: an answer that does not
// fit leaves the call as it was.
func (cs *Calls) Resume(ctx context.Context, c Caller, st *State, answers protocol.InputResponses) (*Waiting, any, *protocol.InputRequired, error) {
	cs.mu.Lock()
	w := cs.tickets[[16]byte(st.ID)]
	if w == nil {
		cs.mu.Unlock()
		return nil, nil, nil, Refuse("the requestState was used, or the call is over: make it anew")
	}
	// Under the mutex, in one step with unpark: of two rounds with the same ticket, only one may bring answers.
	if _, err := w.asked.Take(answers, Fitting(ctx)); err != nil {
		cs.mu.Unlock() // the ticket stays valid
		return nil, nil, nil, refusal.New(jsonrpc.CodeInvalidParams, "%v", err)
	}
	cs.unpark(w)
	// From here on no other round can come, so what follows needs no mutex.
	asked := w.asked
	cs.mu.Unlock()
	w.join(c) // before the handler goes on, which may look at its request
	serve := w.Await
	// Some questions have no answer yet. The round ends at once with these, under a new ticket; the handler has not
	// noticed it.
	if !asked.Settle() {
		serve = func(context.Context) (any, *protocol.InputRequired, error) { return w.park(asked) }
	}
	result, required, err := serve(ctx)
	return w, result, required, err
}

// Fitting implements Courier.
func (w *Waiting) Fitting(asked protocol.InputRequests) (protocol.InputRequests, error) {
	return w.Round().Fitting(asked)
}

// Deliver passes questions to the present round, and waits for the answers. While the
// server closes, it fails.
// It runs on a goroutine of the handler that has the turn of the Conversation. Between two rounds it waits for the
// next one: a question whose own context has ended may leave the call parked, and the handler may ask again.
func (w *Waiting) Deliver(ctx context.Context, open protocol.InputRequests) (protocol.InputResponses, error) {
	asked := Park(pose(open))
	select {
	// Nothing is buffered: a round that leaves takes no question along, and waits for the handler instead.
	case w.questions <- asked:
		return asked.Await(ctx, w.ctx, w.calls.ctx)
	case <-ctx.Done():
	case <-w.ctx.Done():
	case <-w.calls.ctx.Done():
	}
	return asked.Await(ctx, w.ctx, w.calls.ctx) // nobody will answer: it returns why
}

// enter reserves a place.
func (cs *Calls) enter(w *Waiting) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	// Stop ends this context first, and takes the mutex then. So each call is refused here, or counted before Wait
	// begins.
	if cs.ctx.Err() != nil {
		return refusal.New(jsonrpc.CodeOverloaded, "overloaded: shutting down")
	}
	if err := cs.places.Enter(w.from, w.size); err != nil {
		return err
	}
	cs.handlers[w] = struct{}{}
	cs.running.Add(1)
	return nil
}

// release releases a place, once: a round, the handler's end and the timer may all find that nobody needs it. The caller holds the mutex.
func (cs *Calls) release(w *Waiting) {
	if w.over {
		return
	}
	w.over = true
	cs.unpark(w)
	cs.places.Leave(w.from, w.size)
}

// unpark makes a ticket invalid. The caller holds the mutex.
func (cs *Calls) unpark(w *Waiting) {
	if w.parked {
		w.parked = false
		delete(cs.tickets, w.ticket)
		w.timer.Stop()
	}
}

// Stop makes all waiting questions fail, and all later ones. Why is told to the handlers.
// The context comes first: no call begins any more, and the questions of calls with a round fail; their rounds take
// the outcomes. Of the others nobody will take one, so they end here. Their places are given back while their
// handlers may still run: no call can enter any more.
func (cs *Calls) Stop(why error) {
	cs.end(UnansweredBy(why))
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, w := range cs.tickets {
		cs.release(w)
		w.cancel(context.Cause(cs.ctx))
	}
}

// Wait waits for the handlers of waiting calls, as places.Await does.
func (cs *Calls) Wait(ctx context.Context, grace time.Duration) []string {
	return places.Await(ctx, grace, &cs.running, func() (names []string) {
		cs.mu.Lock()
		defer cs.mu.Unlock()
		for w := range cs.handlers {
			names = append(names, w.about.Method+" "+refusal.Shorten(w.about.Name, refusal.LongestName))
		}
		return names
	})
}

// ErrGoexit is the error of a handler that called runtime.Goexit, as t.FailNow does.
var ErrGoexit = errors.New("server: the handler has ended its goroutine")
