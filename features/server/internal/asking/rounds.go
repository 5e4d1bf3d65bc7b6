package asking

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Limits are those of calls that ask.
type Limits struct {
	Expiry     time.Duration // how long a question can be answered
	CallExpiry time.Duration // the time for a call, all rounds included
	MaxRounds  int
}

// Spent remembers which states were used; see server.Spent.
type Spent interface {
	Spend(ctx context.Context, state [16]byte, until time.Time) (first bool, err error)
}

// Rounds are what every call that asks needs of its server, whichever way it asks: how long it may take, and the states
// that clients store between rounds. No state is used twice, whichever node sees it first.
// A round deals with a state in this order:
//
//	Open       it belongs to this call and has not expired, and the answers are of a known kind. Nothing changes
//	MayGoOn    the call can go on here. From now on the state is used up, unless a handler waits: its ticket is, in Resume
//	the handler runs, or goes on
//	Ask        what it asks next is sealed into a new state
//
// Whatever a client can mend is refused before MayGoOn: it presents the same state again, with other answers.
type Rounds struct {
	limits  Limits
	sealer  *Sealer
	kept    Spent           // nil: spent is used
	process string          // identifies this process, among those that the node has had
	ctx     context.Context // ends when the server closes
	end     context.CancelCauseFunc

	mu    sync.Mutex
	spent map[[16]byte]time.Time // states of Reruns and InputRequired that were used
	order [][16]byte             // the keys of spent, oldest first
}

// mostSpent bounds the states that are remembered as used. Beyond it the oldest is forgotten, and if it has not
// expired, it could be used again.
const mostSpent = 65_536

// NewRounds returns rounds. If spent is nil, the states that were used are kept in memory.
func NewRounds(l Limits, sealer *Sealer, spent Spent) *Rounds {
	rs := &Rounds{limits: l, sealer: sealer, kept: spent, process: rand.Text(), spent: make(map[[16]byte]time.Time)}
	rs.ctx, rs.end = context.WithCancelCause(context.Background())
	return rs
}

// MaxRounds returns how often a call may ask.
func (rs *Rounds) MaxRounds() int { return rs.limits.MaxRounds }

// Bound returns a context with the time limit for one question to a legacy client.
// The time covers all questions that are asked together. The function must be called: it also lets go of the context
// of the server, which lives on.
func (rs *Rounds) Bound(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, expire := context.WithTimeoutCause(ctx, rs.limits.Expiry, fmt.Errorf("%w: it took longer than %v", ErrUnanswered, rs.limits.Expiry))
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(rs.ctx, func() { cancel(context.Cause(rs.ctx)) })
	return ctx, func(why error) {
		stop()
		cancel(why)
		expire()
	}
}

// BoundCall returns a context with the time limit for a call of a legacy client.
func (rs *Rounds) BoundCall(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := rs.limits.CallExpiry
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: the call took longer than %v", ErrUnanswered, limit))
}

// First returns the state of a call before its first round.
// The end of the call is fixed here. Later rounds take it over from the state, so no number of questions makes a call
// last longer.
func (rs *Rounds) First() *State { return &State{End: time.Now().Add(rs.limits.CallExpiry).Unix()} }

// Open opens the state that a client presents, and returns it with those of its answers that the call has asked for and does
// not have. It refuses answers that fit no question before the state can be used up.
func (rs *Rounds) Open(ctx context.Context, about Subject, given *protocol.InputParams) (*State, protocol.InputResponses, error) {
	st, err := rs.sealer.Open(about, *given.RequestState)
	if err != nil {
		return nil, nil, err
	}
	answers := make(protocol.InputResponses)
	for key, answer := range given.InputResponses {
		if _, asked := st.Asked[key]; asked && st.Answers[key] == nil {
			answers[key] = answer
		}
	}
	return st, answers, checkKinds(ctx, answers)
}

// MayGoOn refuses a state whose call cannot go on here. If waits, the handler of the call may still run, in the process that
// the state names, and nobody else can go on.
func (rs *Rounds) MayGoOn(ctx context.Context, st *State, waits bool) error {
	switch {
	// Requests with this state are sent to its node. So it came to the right one, and the process there is another
	// one than it was.
	case st.Process != "" && st.Process != rs.process && st.Node != "":
		return Refuse("the call is over, because its node has ended: make it anew")
	case st.Process != "" && (st.Process != rs.process || !st.Again && !waits):
		return Refuse("the call waits on another node, or is over: make it anew")
	case st.Process == "" || st.Again:
		switch first, err := rs.spend(ctx, st); {
		case err != nil:
			return Refuse("it is not known whether the requestState was used: make the call anew")
		case !first:
			return Refuse("the requestState was used: the call is over, make it anew")
		}
	}
	return nil
}

// spend reports whether a state is used for the first time.
func (rs *Rounds) spend(ctx context.Context, st *State) (bool, error) {
	id, until := [16]byte(st.ID), time.Unix(min(st.Until, st.End), 0)
	if rs.kept != nil {
		return rs.kept.Spend(ctx, id, until)
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if _, used := rs.spent[id]; used {
		return false, nil
	}
	now := time.Now()
	// By the order of use, not of expiry: one that expires late keeps others behind it in memory, up to mostSpent.
	for len(rs.order) > 0 && (len(rs.order) >= mostSpent || rs.spent[rs.order[0]].Before(now)) {
		delete(rs.spent, rs.order[0])
		rs.order = rs.order[1:]
	}
	rs.spent[id] = until
	rs.order = append(rs.order, id)
	return true, nil
}

// Require ends a round with questions that a handler has returned, and its own state. If here, the next round must come to this process.
func (rs *Rounds) Require(c Caller, about Subject, next *State, questions protocol.InputRequests, own []byte, here bool) (*protocol.InputRequired, error) {
	if len(questions) == 0 && own == nil {
		return nil, refusal.New(jsonrpc.CodeInternalError, "the handler requires input, and has neither question nor state")
	}
	// Only a modern client gets here, which gets questions as they are. So this checks that it may be asked, and
	// changes nothing.
	if _, err := c.Fitting(questions); err != nil {
		return nil, err
	}
	var asked Exchange
	if _, err := asked.Ask(questions, nil); err != nil { // nothing was said before
		return nil, err
	}
	next.Asked, next.Own = asked.Asked(), own
	if here {
		next.Process, next.Again = rs.process, true
	}
	return rs.Ask(about, next, questions)
}

// Ask ends a round with questions.
func (rs *Rounds) Ask(about Subject, next *State, open protocol.InputRequests) (*protocol.InputRequired, error) {
	// What counts is the number in the state, which the client cannot change: the rounds may have been on many nodes.
	if next.Round++; next.Round > rs.limits.MaxRounds {
		return nil, refusal.New(jsonrpc.CodeInternalError, "the call has asked %d times already", next.Round-1)
	}
	next.ID = newID() // of a call that waits, this is the ticket
	next.Until = time.Now().Add(rs.limits.Expiry).Unix()
	sealed, err := rs.sealer.Seal(about, next)
	if err != nil {
		return nil, err
	}
	return &protocol.InputRequired{InputRequests: open, RequestState: &sealed}, nil
}

func newID() []byte {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // rand.Read never fails
	return id
}
