package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

const (
	opTake = "take" // an exclusive server, from the node that runs it
	opGive = "give" // an exclusive server up, for the node that takes it

	// MoveTimeout is how long a node tries to take an exclusive server from another one.
	MoveTimeout = 30 * time.Second

	// giveGrace is how long calls may go on of a server that is given up.
	giveGrace = 5 * time.Second

	// answerWithin is how long a node waits for the end of a move before it answers who has asked.
	answerWithin = controlTimeout / 2

	// movePrefix begins the keys of claims of nodes that take a server. No other node claims the server while there is one: a node
	// that sees that the server was given up has seen this key before, since one watch shows both.
	movePrefix = "move."
)

// moves are the moves of exclusive servers to this node, and who is told of moves.
type moves struct {
	mu      sync.Mutex
	prepare func(ctx context.Context, server string) error
	moved   func(server, to string, err error)
	latest  map[*exclusive]*move
}

// A move is the attempt of this node to take a server from another one.
type move struct {
	ids  []string // of the requests that have begun or joined it
	done chan struct{}
	err  error // once it is done
}

// A moveRequest asks a node to take a server, or to give it up.
type moveRequest struct {
	ID     string `json:"id,omitempty"` // of the attempt to take it: who asks again asks for its end
	Server string `json:"server"`
	To     string `json:"to,omitempty"` // who takes it
}

// A moveAnswer says how far a node is that takes a server.
type moveAnswer struct {
	Done bool `json:"done"`
}

// A moveError says why a server was not moved.
type moveError struct {
	server, node string
	err          error
}

// Error implements error. What a node has refused is said in its own words.
func (e *moveError) Error() string {
	why := e.err.Error()
	if refused := (*ControlError)(nil); errors.As(e.err, &refused) {
		why = refused.Reason
	}
	return fmt.Sprintf("cluster: server %q was not moved to node %q: %s", e.server, e.node, why)
}

func (e *moveError) Unwrap() error { return e.err }

// A move has three parties. Who wants it asks the node that shall run the server, again and again, until that says how it has ended. That
// node asks the one that runs the server to give it up, and does not believe its answer: it sees in the leases what has happened. So each of
// them may be killed at any time, and what is left is an exclusive server that somebody runs, as ever.

// OnMove says what to do when exclusive servers are moved. Prepare is called at the node that shall run a server, before the node that
// runs it is asked to give it up: it sees to it that a connection of this node is there, which starts the server, or returns why this node cannot
// run it. It must not take longer than a second. Moved is called when this node has taken a server or failed to, or has given it up for
// another node. Each may be nil.
func (n *Node) OnMove(prepare func(ctx context.Context, server string) error, moved func(server, to string, err error)) {
	n.moves.mu.Lock()
	defer n.moves.mu.Unlock()
	n.moves.prepare, n.moves.moved = prepare, moved
}

// MoveServer has a node run an exclusive server, which the node that runs it gives up first: its calls have five seconds to finish, and what the
// server keeps in its memory is lost. It returns when the server is ready at the node, or why it is not, after some more than MoveTimeout at most. If nobody
// runs the server, the node starts it, and if the node runs it already, nothing is done.
func (n *Node) MoveServer(ctx context.Context, server, node string) error {
	ctx, cancel := context.WithTimeout(ctx, MoveTimeout+2*controlTimeout)
	defer cancel()
	if err := n.persist(ctx, func(ctx context.Context) error { return n.mustKnow(ctx, node) }); err != nil {
		return &moveError{server, node, err}
	}
	request := moveRequest{ID: rand.Text(), Server: server}
	for {
		var answer moveAnswer
		err := n.askUntilAnswered(ctx, node, opTake, request, &answer)
		if err != nil {
			return &moveError{server, node, err}
		}
		if answer.Done {
			return nil
		}
	}
}

// mustKnow returns nil if this node knows a member, and an error that matches ErrUnavailable if it will soon.
func (n *Node) mustKnow(ctx context.Context, node string) error {
	if _, there := n.Member(node); there {
		return nil
	}
	switch _, err := n.readLease(ctx, node); {
	case err == nil: // the watch is late
		return ErrUnavailable
	case errors.Is(err, ErrNoResponder):
		return errors.New("the cluster has no such node; bowline nodes lists them")
	default:
		return err
	}
}

// handleMoves registers the operations of moves. Who asks a node to take a server asks the node that knows whether it can, and that has to
// do most of it: so a move goes on when the one who wanted it has ended.
func (n *Node) handleMoves() {
	n.moves.latest = map[*exclusive]*move{}
	n.handle(opTake, func(ctx context.Context, args json.RawMessage) (any, error) {
		var r moveRequest
		if err := json.Unmarshal(args, &r); err != nil {
			return nil, err
		}
		return n.answerTake(ctx, r)
	})
	n.handle(opGive, func(_ context.Context, args json.RawMessage) (any, error) {
		var r moveRequest
		if err := json.Unmarshal(args, &r); err != nil {
			return nil, err
		}
		return nil, n.give(r)
	})
}

// answerTake begins to take a server, and says whether it was taken. A control request has two seconds, and a move takes longer, so who has
// asked is told to ask again.
func (n *Node) answerTake(ctx context.Context, r moveRequest) (moveAnswer, error) {
	m, err := n.beginMove(ctx, r)
	if err != nil {
		return moveAnswer{}, err
	}
	timer := time.NewTimer(answerWithin)
	defer timer.Stop()
	select {
	case <-m.done:
		return moveAnswer{Done: true}, m.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return moveAnswer{}, nil
}

// beginMove begins to take a server, unless this node is taking it already, or has answered this request.
func (n *Node) beginMove(ctx context.Context, r moveRequest) (*move, error) {
	e := n.knownExclusive(r.Server)
	n.moves.mu.Lock()
	prepare, m := n.moves.prepare, n.moves.latest[e].join(r.ID)
	n.moves.mu.Unlock()
	if m != nil {
		return m, nil
	}
	err := n.prepareMove(ctx, prepare, e, r.Server)
	if err == nil {
		m, err = n.startMove(e, r.ID)
	}
	if err != nil {
		n.tellMoved(r.Server, n.options.Node, err)
	}
	return m, err
}

// prepareMove reports why this node cannot take a server. Its program is asked last, since it starts something; e is nil for a server of which
// this package knows nothing, and the program may know why.
func (n *Node) prepareMove(ctx context.Context, prepare func(context.Context, string) error, e *exclusive, server string) error {
	if e != nil {
		if err := e.mayTake(); err != nil {
			return err
		}
	}
	if prepare != nil {
		if err := prepare(ctx, server); err != nil {
			return err
		}
	}
	if e == nil {
		return fmt.Errorf("the node has no exclusive server %q", server)
	}
	return nil
}

// maxJoined is how many requests share a move.
const maxJoined = 64

// join returns the move if a request belongs to it, or can join it because it is under way; else nil.
func (m *move) join(id string) *move {
	switch {
	case m == nil:
		return nil
	case slices.Contains(m.ids, id):
		return m
	case wait.IsClosed(m.done):
		return nil
	}
	if len(m.ids) < maxJoined { // who is not remembered begins another one when it asks again
		m.ids = append(m.ids, id)
	}
	return m
}

// startMove takes a server on a goroutine of its own, unless another request has begun that meanwhile.
func (n *Node) startMove(e *exclusive, id string) (*move, error) {
	n.moves.mu.Lock()
	defer n.moves.mu.Unlock()
	if m := n.moves.latest[e].join(id); m != nil {
		return m, nil
	}
	m := &move{ids: []string{id}, done: make(chan struct{})}
	err := n.goUnlessClosed(func() {
		ctx, cancel := context.WithTimeoutCause(n.ctx, MoveTimeout, errMoveTimeout)
		defer cancel()
		m.err = e.take(ctx)
		close(m.done)
		n.tellMoved(e.name, n.options.Node, m.err)
	})
	if err == nil {
		n.moves.latest[e] = m // one for each server, until the next
	}
	return m, err
}

// tellMoved tells the program of a move, on the goroutine of its caller.
func (n *Node) tellMoved(server, to string, err error) {
	n.moves.mu.Lock()
	moved := n.moves.moved
	n.moves.mu.Unlock()
	if moved != nil {
		moved(server, to, err)
	}
}

// knownExclusive returns the exclusive server with a name; nil if this node has none.
func (n *Node) knownExclusive(name string) *exclusive {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.exclusives[name]
}

var (
	errMoveTimeout = fmt.Errorf("that has not happened within %v", MoveTimeout)
	errDrains      = errors.New("the node is draining: name another one")
)

// mayTake reports why this node cannot run the server, as far as can be told without starting it: it is asked while the server runs elsewhere, which
// should go on if the move is in vain.
func (e *exclusive) mayTake() error {
	e.mu.Lock()
	own, on := e.latest.own, e.latest.on
	e.mu.Unlock()
	self, _ := e.node.Member(e.node.options.Node)
	switch {
	case self.Draining:
		return errDrains
	case !self.fits(on):
		return errors.New("the node lacks the labels that the server wants: name one that has them")
	}
	if checked, ok := transport.As[transport.Checked](own); ok {
		if err := checked.Check(); err != nil {
			return err
		}
	}
	command, ok := own.(*stdio.Command)
	if !ok {
		return nil
	}
	return executable(command)
}

// executable reports why the program of a command cannot be started, if it is not there. The directory of a command counts for a program that is named
// by a relative path, as it does at the start.
func executable(c *stdio.Command) error {
	path, dir := c.Path, c.Dir
	if c.Cmd != nil {
		path, dir = c.Cmd.Path, cmp.Or(c.Dir, c.Cmd.Dir)
	}
	if dir != "" && filepath.Base(path) != path && !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if _, err := exec.LookPath(path); err != nil {
		return fmt.Errorf("the node cannot run it: %w: install the program there, or name another node", err)
	}
	return nil
}

// take has the node that runs the server give it up, and waits until a connection of this node has started it.
func (e *exclusive) take(ctx context.Context) error {
	release, err := e.node.claim(ctx, e.moveKey, nil, func(error) {}) // if it is lost, another node may come first
	if errors.Is(err, ErrExists) {
		by, _, _ := e.node.holder(e.moveKey)
		return fmt.Errorf("it is being moved to node %q: wait for that", by.Node)
	}
	if err != nil {
		return fmt.Errorf("the cluster could not be asked: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_ = release(ctx) // else it expires
	}()
	e.forgetFailures()
	return e.takeFrom(ctx)
}

// takeFrom asks whoever has the server for it until this node runs it. It looks at the state again whenever a lease or the server has changed, and
// starts nothing itself: a connection of this node does that, as after any other end of the claim.
func (e *exclusive) takeFrom(ctx context.Context) error {
	var asked owner // for the server
	for {
		in, changed := e.state()
		by, _, held := e.node.holder(e.key)
		if ready, err := e.isTaken(in); ready || err != nil {
			return err
		}
		switch {
		case !held:
			asked = owner{} // it may have the server again
		case by.Node != e.node.options.Node && by != asked:
			if err := e.node.askUntilAnswered(ctx, by.Node, opGive, moveRequest{Server: e.name, To: e.node.options.Node}, nil); err != nil && ctx.Err() == nil {
				return fmt.Errorf("node %q, which runs it, does not give it up: %w", by.Node, err)
			}
			asked = by
		}
		if e.awaitMove(ctx, in.run, changed) != nil {
			return e.untaken(ctx, by, held)
		}
	}
}

// isTaken reports whether the server is ready on this node, or why it will not be.
func (e *exclusive) isTaken(in exclusiveState) (ready bool, err error) {
	switch {
	case in.closed:
		return false, errClosed
	case wait.IsClosed(e.node.drains):
		return false, errDrains
	case in.stuck != nil:
		return false, fmt.Errorf("it has run on this node and not ended: %w", in.stuck)
	case in.run != nil && !in.asked && wait.IsClosed(in.run.shared.Ready()):
		return true, nil
	case in.failed != nil:
		return false, fmt.Errorf("it does not start there, so that the node lets others run it: %w", in.failed)
	}
	return false, nil
}

// awaitMove waits until a move may go on.
func (e *exclusive) awaitMove(ctx context.Context, run *serverRun, changed <-chan struct{}) error {
	var ready <-chan struct{}
	if run != nil && !wait.IsClosed(run.shared.Ready()) {
		ready = run.shared.Ready()
	}
	select {
	case <-changed:
	case <-ready:
	case <-e.node.drains:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// untaken says why a move was not taken in time.
func (e *exclusive) untaken(ctx context.Context, by owner, held bool) error {
	switch why := context.Cause(ctx); {
	case held && by.Node == e.node.options.Node:
		return fmt.Errorf("the node has it now, but it is not ready: %w: see the log of the node", why)
	case held:
		return fmt.Errorf("node %q, which runs it, has not given it up: %w: see the log of that node", by.Node, why)
	default:
		return fmt.Errorf("nobody runs it, and no connection of the node has started it: %w: see the log of the node", why)
	}
}

// forgetFailures lets this node try again, since a person wants that.
func (e *exclusive) forgetFailures() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures, e.givenUp, e.failed = 0, time.Time{}, nil
}

// give begins to give up a server for another node, as a drain does. It does nothing if this node does not have it. Who has asked does not wait for an answer
// that says more: it sees the end of the claim.
func (n *Node) give(r moveRequest) error {
	e := n.knownExclusive(r.Server)
	if e == nil || !e.beginGiving() {
		return nil
	}
	err := n.goUnlessClosed(func() {
		defer e.given()
		ctx, cancel := context.WithTimeout(n.ctx, giveGrace)
		defer cancel()
		err := e.drain(ctx)
		if err != nil {
			n.log.Warn("cluster: a server was given up for another node before its calls had ended", "server", e.name, "to", r.To, "err", err)
		}
		n.tellMoved(e.name, r.To, err)
	})
	if err != nil {
		e.given()
	}
	return err
}

// beginGiving reports whether there is a claim to give up that nobody gives up yet: an answer may be lost, and the request come again.
func (e *exclusive) beginGiving() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.claim == nil || e.giving {
		return false
	}
	e.giving = true
	return true
}

// given notes that the attempt to give up the server has ended, whether or not all has ended that ran.
func (e *exclusive) given() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.giving = false
}
