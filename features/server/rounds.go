package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// AskingOptions bound calls that ask their client. The zero value of each field
// means its default.
type AskingOptions struct {
	// Secrets seal the states that travel through clients, each of at least 32
	// random bytes. The first one seals, all of them open: to replace one, put the
	// new one behind the old on every node, then before it, then leave the old one
	// out after Expiry. Default: one that is random for each process.
	Secrets [][]byte

	// Fleet says that any of several nodes may get the next round of a call. It
	// needs Secrets, and refuses features that wait.
	Fleet bool

	// Spent remembers the states that were used, for all nodes. Default: this node's
	// memory, of the latest 65,536.
	Spent Spent

	Expiry              time.Duration // of a question; 10 minutes
	CallExpiry          time.Duration // of a call with all of its rounds; 1 hour
	MaxRounds           int           // of a call; 32
	MaxWaiting          int           // calls whose handlers wait, in 2026-07-28; 1,024
	MaxWaitingPerClient int           // of them, those of one client; 32
	MaxWaitingBytes     int           // of the requests of all of them; 64 MiB
}

// Spent remembers the states that were used, so that each is good once.
type Spent interface {
	// Spend reports whether this is the first time that the state is used. It may
	// forget it at the given time. An error refuses the state.
	Spend(ctx context.Context, state [16]byte, until time.Time) (first bool, err error)
}

// rounds are the calls of a server that ask.
type rounds struct {
	options AskingOptions
	sealer  *sealer
	node    string
	ctx     context.Context // ends when the server is being closed
	end     context.CancelCauseFunc
	running sync.WaitGroup // of handlers that wait

	mu       sync.Mutex
	waiting  map[*waiting]struct{} // each holds a place
	tickets  map[[16]byte]*waiting // those that wait for their client
	bytes    int                   // of all of them
	arrivals uint64
	spent    map[[16]byte]time.Time // of Reruns and InputRequired
	order    [][16]byte             // oldest first
}

const (
	mostSpent      = 65_536
	bytesOfWaiting = 16 << 10 // that each waiting call counts for beside its request
)

func (rs *rounds) init(audience string, o AskingOptions) {
	if o.Fleet && len(o.Secrets) == 0 {
		panic("server: Asking: a Fleet needs Secrets")
	}
	if len(o.Secrets) == 0 {
		secret := make([]byte, 32)
		_, _ = rand.Read(secret) // never fails
		o.Secrets = [][]byte{secret}
	}
	o.Expiry = cmp.Or(max(o.Expiry, 0), 10*time.Minute)
	o.CallExpiry = cmp.Or(max(o.CallExpiry, 0), time.Hour)
	o.MaxRounds = cmp.Or(max(o.MaxRounds, 0), 32)
	o.MaxWaiting = cmp.Or(max(o.MaxWaiting, 0), 1024)
	o.MaxWaitingPerClient = cmp.Or(max(o.MaxWaitingPerClient, 0), 32)
	o.MaxWaitingBytes = cmp.Or(max(o.MaxWaitingBytes, 0), 64<<20)
	sealer, err := newSealer(audience, o.Secrets)
	if err != nil {
		panic(fmt.Sprintf("server: Asking: %v", err))
	}
	rs.options, rs.sealer, rs.node = o, sealer, rand.Text()
	rs.ctx, rs.end = context.WithCancelCause(context.Background())
	rs.waiting = make(map[*waiting]struct{})
	rs.tickets = make(map[[16]byte]*waiting)
	rs.spent = make(map[[16]byte]time.Time)
}

// check panics if a feature asks in a way that this server cannot serve.
func (rs *rounds) check(s *settings) {
	if s.asks != nil && s.asks.how == Waits && rs.options.Fleet {
		panic("in a Fleet the next round comes to any node: a handler cannot wait for it")
	}
}

// bound returns a context for one question of a legacy client.
func (rs *rounds) bound(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, expire := context.WithTimeoutCause(ctx, rs.options.Expiry, fmt.Errorf("%w: it took longer than %v", ErrUnanswered, rs.options.Expiry))
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(rs.ctx, func() { cancel(context.Cause(rs.ctx)) })
	return ctx, func(why error) {
		stop()
		cancel(why)
		expire()
	}
}

// spend reports whether a state is used for the first time.
func (rs *rounds) spend(ctx context.Context, st *state) (bool, error) {
	id, until := [16]byte(st.ID), time.Unix(min(st.Until, st.End), 0)
	if rs.options.Spent != nil {
		return rs.options.Spent.Spend(ctx, id, until)
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if _, used := rs.spent[id]; used {
		return false, nil
	}
	now := time.Now()
	for len(rs.order) > 0 && (len(rs.order) >= mostSpent || rs.spent[rs.order[0]].Before(now)) {
		delete(rs.spent, rs.order[0])
		rs.order = rs.order[1:]
	}
	rs.spent[id] = until
	rs.order = append(rs.order, id)
	return true, nil
}

// close ends all waiting, and waits for the handlers until ctx ends.
func (rs *rounds) close(ctx context.Context) error {
	rs.end(fmt.Errorf("%w: %w", ErrUnanswered, ErrClosed))
	rs.mu.Lock()
	var names []string
	for w := range rs.waiting {
		names = append(names, w.name)
		if w.parked {
			rs.release(w)
			w.cancel(context.Cause(rs.ctx))
		}
	}
	rs.mu.Unlock()
	over := make(chan struct{})
	go func() { // it ends with the last handler, however long that takes
		rs.running.Wait()
		close(over)
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		slices.Sort(names)
		return &conn.StuckError{Tasks: names}
	}
}

// converse runs a feature whose handler may ask. It returns the handler's result,
// or what the client has to answer first.
func (c *call) converse(ctx context.Context, of *settings, given *protocol.InputParams, about subject, run func(context.Context) (any, error)) (any, *protocol.InputRequired, error) {
	if c.asked == nil {
		c.asked = new(asked)
	}
	if of.asks != nil {
		if err := of.asks.can(c.Client); err != nil {
			return nil, nil, err
		}
	}
	if c.modern {
		return c.converseModern(ctx, of, given, about, run)
	}
	if of.asks == nil {
		result, err := run(ctx)
		if err == nil || !requiresInput(err) {
			return result, nil, err
		}
		result, err = c.goOn(ctx, of, result, err, run)
		return result, nil, err
	}
	result, err := c.converseLegacy(ctx, of, run)
	return result, nil, err
}

// converseLegacy runs a feature in place: its questions are requests.
func (c *call) converseLegacy(ctx context.Context, of *settings, run func(context.Context) (any, error)) (any, error) {
	limit := c.peer.server.rounds.options.CallExpiry
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: the call took longer than %v", ErrUnanswered, limit))
	defer cancel()
	var result any
	var err error
	if of.asks.how == Waits {
		c.asked.asker = &direct{call: c}
		result, err = run(ctx)
	} else {
		a := &rerun{call: c}
		c.asked.asker = a
		questions := &direct{call: c}
		for result, err = a.run(ctx, run); len(a.open) > 0; result, err = a.run(ctx, run) {
			answers, err := questions.ask(ctx, a.open)
			if err != nil {
				return nil, err
			}
			a.before.give(answers)
		}
	}
	if err != nil && requiresInput(err) {
		return c.goOn(ctx, of, result, err, run)
	}
	return result, err
}

// goOn answers a legacy handler that returns InputRequired, and runs it again.
func (c *call) goOn(ctx context.Context, of *settings, result any, err error, run func(context.Context) (any, error)) (any, error) {
	questions := &direct{call: c}
	for {
		var required *InputRequired
		if !errors.As(err, &required) {
			return result, err
		}
		if len(required.Requests) == 0 {
			return nil, errors.New("busy, try again")
		}
		questions.before = askedBefore{} // a key is another question's in the next round
		answers, failed := questions.ask(ctx, required.Requests)
		if failed != nil {
			return nil, failed
		}
		c.Answers = answers
		if c.asked.state, failed = required.state(); failed != nil {
			return nil, failed
		}
		result, err = run(ctx)
	}
}

// state returns the handler's own state; nil if there is none.
func (r *InputRequired) state() (json.RawMessage, error) {
	if r.State == nil {
		return nil, nil
	}
	return protocol.Marshal(r.State)
}

// converseModern serves one round.
func (c *call) converseModern(ctx context.Context, of *settings, given *protocol.InputParams, about subject, run func(context.Context) (any, error)) (any, *protocol.InputRequired, error) {
	rs := &c.peer.server.rounds
	st := &state{Round: 0, End: time.Now().Add(rs.options.CallExpiry).Unix()}
	answers := given.InputResponses
	if given.RequestState != nil {
		var err error
		if st, err = rs.sealer.open(c, about, *given.RequestState); err != nil {
			return nil, nil, err
		}
		answers = make(protocol.InputResponses)
		for key, answer := range given.InputResponses {
			if _, asked := st.Asked[key]; asked && st.Answers[key] == nil {
				answers[key] = answer
			}
		}
		if err := checkKinds(ctx, answers); err != nil {
			return nil, nil, err
		}
		c.asked.id = st.Call
	}
	waits := of.asks != nil && of.asks.how == Waits
	switch {
	case waits && given.RequestState == nil:
		return rs.start(ctx, c, about, answers, run)
	case st.Node != "" && (!waits || st.Node != rs.node):
		return nil, nil, refuseState("the call waits on another node, or is over: make it anew")
	case st.Node != "":
		return rs.resume(ctx, c, about, st, answers)
	case given.RequestState != nil:
		if first, err := rs.spend(ctx, st); err != nil || !first {
			return nil, nil, refuseState("the requestState was used: the call is over, make it anew")
		}
	}
	a := &rerun{call: c, before: askedBefore{digests: st.Asked, answers: st.Answers}}
	a.before.give(answers)
	c.Answers, c.asked.state = answers, st.Own
	var result any
	var err error
	if of.asks != nil && !waits {
		c.asked.asker = a
		result, err = a.run(ctx, run)
	} else {
		result, err = run(ctx)
	}
	next := &state{Call: c.CallID(), Round: st.Round, End: st.End}
	var required *InputRequired
	switch {
	case errors.As(err, &required):
		return c.require(about, next, required)
	case len(a.open) > 0:
		next.Asked, next.Answers = a.before.digests, a.answered()
		return c.ask(about, next, a.open)
	default:
		return result, nil, err
	}
}

// checkKinds refuses answers that fit no question at all, before a state is spent.
func checkKinds(ctx context.Context, answers protocol.InputResponses) error {
	for key, answer := range answers {
		switch answer := answer.(type) {
		case *protocol.UnknownInputResponse:
			return refuse(jsonrpc.CodeInvalidParams, "%v", &AnswerError{key, errors.New("it is no answer to any question")})
		case *protocol.ElicitResult:
			if err := checkElicited(ctx, &protocol.ElicitParams{}, answer); err != nil {
				return refuse(jsonrpc.CodeInvalidParams, "%v", &AnswerError{key, err})
			}
		}
	}
	return nil
}

// require ends a round with what the handler returned.
func (c *call) require(about subject, next *state, required *InputRequired) (any, *protocol.InputRequired, error) {
	if len(required.Requests) == 0 && required.State == nil {
		return nil, nil, refuse(jsonrpc.CodeInternalError, "the handler requires input, and has neither question nor state")
	}
	if err := canBeAsked(c.Client, required.Requests); err != nil {
		return nil, nil, err
	}
	asked := new(askedBefore)
	if _, err := asked.take(required.Requests); err != nil {
		return nil, nil, err
	}
	next.Asked = asked.digests
	var err error
	if next.Own, err = required.state(); err != nil {
		return nil, nil, err
	}
	return c.ask(about, next, required.Requests)
}

// ask ends a round with questions.
func (c *call) ask(about subject, next *state, open protocol.InputRequests) (any, *protocol.InputRequired, error) {
	rs := &c.peer.server.rounds
	if next.Round++; next.Round > rs.options.MaxRounds {
		return nil, nil, refuse(jsonrpc.CodeInternalError, "the call has asked %d times already", next.Round-1)
	}
	if next.ID == nil {
		next.ID = make([]byte, 16)
		_, _ = rand.Read(next.ID) // never fails
	}
	next.Until = time.Now().Add(rs.options.Expiry).Unix()
	sealed, err := rs.sealer.seal(c, about, next)
	if err != nil {
		return nil, nil, err
	}
	return nil, &protocol.InputRequired{InputRequests: open, RequestState: &sealed}, nil
}

// A rerun is an asker for one round of a feature that Reruns.
type rerun struct {
	call *call

	mu     sync.Mutex
	before askedBefore            // of all rounds
	now    askedBefore            // of this run
	number int                    // of questions in this run
	open   protocol.InputRequests // asked in this run, not answered
	broken error                  // ends the call, whatever the handler returns
	end    context.CancelCauseFunc
}

// run runs the handler once, from its start.
func (a *rerun) run(ctx context.Context, run func(context.Context) (any, error)) (any, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	a.mu.Lock()
	a.now, a.number, a.open, a.end = askedBefore{}, 0, nil, end
	a.mu.Unlock()
	result, err := run(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken != nil {
		a.open = nil
		return nil, a.broken
	}
	return result, err
}

func (a *rerun) nextKey() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.number++
	return fmt.Sprint(a.number)
}

func (a *rerun) ask(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken != nil || len(a.open) > 0 {
		return nil, cmp.Or(a.broken, ErrInputRequired)
	}
	if err := canBeAsked(a.call.Client, asked); err != nil {
		return nil, err
	}
	if _, err := a.now.take(asked); err != nil {
		return nil, err
	}
	open, err := a.before.take(asked)
	if err != nil { // in another round it was another question
		return nil, a.stop(refuse(jsonrpc.CodeInternalError, "the handler asks differently when it runs again: %v", err))
	}
	for key, q := range asked {
		if answer, ok := a.before.answers[key]; ok {
			if err := checkAnswer(ctx, key, q, answer); err != nil {
				return nil, a.stop(err)
			}
		}
	}
	if len(open) > 0 {
		a.open = open
		a.end(ErrInputRequired)
		return nil, ErrInputRequired
	}
	return a.before.to(asked), nil
}

// stop ends the call with an error of its own.
func (a *rerun) stop(err error) error {
	a.broken = err
	a.end(err)
	return err
}

// answered returns the answers to what was asked, and no others.
func (a *rerun) answered() protocol.InputResponses {
	all := make(protocol.InputResponses)
	for key := range a.before.digests {
		if answer, ok := a.before.answers[key]; ok {
			all[key] = answer
		}
	}
	return all
}

// clientKey names the client of a modern call, as well as that is known.
func (c *call) clientKey() any {
	if c.Origin.Identity != "" {
		return c.Origin.Identity
	}
	if host, _, err := net.SplitHostPort(c.Origin.RemoteAddr); err == nil {
		return "address " + host
	}
	return c.peer
}
