package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/cluster/internal/sharing"
	"github.com/bowline-mcp/bowline/internal/signal"
	"github.com/bowline-mcp/bowline/transport"
)

const (
	// provenAfter is how long a server runs before it counts as one that works on this node.
	provenAfter = 30 * time.Second

	// maxFailures is how often it may end before that, in a row, until this node lets others
	// try for givenUpFor.
	maxFailures = 3
	givenUpFor  = time.Minute

	// keptFor is how long a claim is kept while the server does not run: longer than a
	// connection waits before it tries again.
	keptFor = 40 * time.Second

	// releaseTimeout bounds the release of a claim. If it fails, the claim expires.
	releaseTimeout = 5 * time.Second

	// endGrace is how long a server may take to end that has no more calls.
	endGrace = 5 * time.Second

	// closeGrace is how long it may take when the node is closed without a drain.
	closeGrace = time.Second
)

// A carrier brings requests to other nodes, and serves those of others.
type carrier interface {
	mount(path string, h http.Handler) error
	roundTripper(node string) http.RoundTripper
}

// An exclusive is what this node knows of one exclusive server: whether it has the claim, and what
// runs.
type exclusive struct {
	node      *Node
	name, key string
	path      string
	begun     sync.Once
	closes    sync.Once
	mounted   error // why other nodes cannot reach the server here
	wakers    *wakers
	turn      chan struct{} // capacity one: full while somebody claims, starts, drains or closes
	ending    context.Context
	end       context.CancelFunc

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced when something here has changed, or a lease has
	run       *serverRun    // what runs, or has not ended entirely; nil: nothing
	stuck     error         // what has run did not end; nothing is started here any more
	claims    uint64        // how often this node has claimed the server
	lostClaim uint64        // the number of the last claim that was lost
	release   func(context.Context) error
	claiming  bool      // the next claim is being made
	held      bool      // the last claim was neither given up nor lost, as far as known
	keptUntil time.Time // a claim without a server is given up then; zero while there is one
	failures  int       // in a row
	givenUp   time.Time // until when other nodes may try
	closed    bool
}

// A serverRun is a server from its start to its end.
type serverRun struct {
	by     *upstream
	shared *sharing.Server
	began  time.Time
	asked  bool          // this node has ended it
	over   chan struct{} // closed when nothing of it is left
}

// serverPrefix begins the keys of claims of servers.
const serverPrefix = "srv."

// exclusive returns the server with a name.
func (n *Node) exclusive(name string) *exclusive {
	n.mu.Lock()
	e := n.exclusives[name]
	if e == nil {
		e = &exclusive{
			node: n, name: name, key: serverPrefix + encodeName(name), path: serverPath(name),
			wakers: newWakers(), turn: make(chan struct{}, 1), changed: make(chan struct{}), closed: n.closing,
		}
		e.ending, e.end = context.WithCancel(context.Background())
		n.exclusives[name] = e
		if !n.closing {
			n.running.Go(e.wakeWaiting)
		}
	}
	n.mu.Unlock()
	e.begun.Do(e.begin)
	return e
}

func (e *exclusive) begin() {
	e.node.onLease(e.leaseChanged)
	e.node.onReport(e.report)
	e.node.onDrain(e.drain)
	e.node.onClose(e.close)
	if e.mounted = e.node.carrier.mount(e.path, e); e.mounted != nil {
		e.mounted = fmt.Errorf("cluster: server %q: %w", e.name, e.mounted)
	}
	e.node.mu.Lock()
	closing := e.node.closing
	e.node.mu.Unlock()
	if closing { // perhaps before onClose
		e.close(e.ending)
	}
}

// leaseChanged looks at a change of the claim, or of a node: it may be reached now.
func (e *exclusive) leaseChanged(key string) {
	if key == e.key || strings.HasPrefix(key, nodePrefix) {
		e.wakers.change()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.change()
	}
}

// change tells those who wait within Open, or for this node. The caller holds e.mu.
func (e *exclusive) change() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// An exclusiveState is what Open decides by.
type exclusiveState struct {
	run    *serverRun
	asked  bool // this node ends what runs
	held   bool // the claim; or it is being made
	closed bool
	stuck  error
}

func (e *exclusive) state() (exclusiveState, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	in := exclusiveState{run: e.run, held: e.held || e.claiming, closed: e.closed, stuck: e.stuck}
	in.asked = in.run != nil && in.run.asked
	return in, e.changed
}

// may reports why no request may be passed to the server now, or nil.
func (e *exclusive) may() error {
	if e.node.holds(e.key) {
		return nil
	}
	return errLeaseExpired
}

// claim claims the server. If another node has it, the error matches ErrExists.
func (e *exclusive) claim(ctx context.Context) error {
	e.mu.Lock()
	e.claims++
	number := e.claims
	e.claiming = true
	e.mu.Unlock()
	release, err := e.node.claim(ctx, e.key, nil, func(err error) { e.lost(number, err) })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.claiming = false
	if err == nil && e.lostClaim == number {
		err = errLeaseExpired
	}
	if err == nil {
		e.release, e.held = release, true
		e.keep()
	}
	e.change()
	return err
}

// keep keeps the claim for some time, although nothing runs. The caller holds e.mu.
func (e *exclusive) keep() {
	e.keptUntil = time.Now().Add(keptFor)
	e.wakers.poke()
}

// lost ends the server when its claim is lost.
func (e *exclusive) lost(number uint64, why error) {
	e.mu.Lock()
	e.lostClaim = number
	e.release, e.held = nil, false
	run := e.run
	if run != nil {
		run.asked = true
	}
	e.change()
	e.mu.Unlock()
	if run != nil {
		e.node.log.Warn("cluster: a server is ended, since its claim is lost", "server", e.name, "err", why)
		_ = run.shared.Close(0) // follow sees the error, too
	}
}

// free gives the claim up. Nothing runs.
func (e *exclusive) free() {
	e.mu.Lock()
	release := e.release
	e.release, e.held, e.keptUntil = nil, false, time.Time{}
	e.change()
	e.mu.Unlock()
	if release == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := release(ctx); err != nil {
		e.node.log.Warn("cluster: the claim of a server could not be given up, and expires", "server", e.name, "err", err)
	}
}

// follow handles the end of a server.
func (e *exclusive) follow(run *serverRun) {
	<-run.shared.Done()
	stuck := run.shared.Close(0)
	e.mu.Lock()
	lived := time.Since(run.began) >= provenAfter
	left := signal.IsClosed(run.shared.Ready()) && run.shared.Reason() == transport.ErrClosed // its client has closed the link
	if lived {
		e.failures = 0
	}
	e.run, e.stuck = nil, stuck
	e.keep()
	close(run.over)
	e.change()
	failed := !lived && !left && !run.asked && stuck == nil
	e.mu.Unlock()
	if stuck != nil {
		e.node.log.Error("cluster: a server has not ended; its claim is kept until this node ends", "server", e.name, "err", stuck)
	}
	if failed {
		e.fail(false)
	}
}

// fail counts a failure of the server on this node, and gives the claim up if others should try.
func (e *exclusive) fail(missing bool) {
	e.mu.Lock()
	e.failures++
	giveUp := missing || e.failures >= maxFailures
	if giveUp {
		e.failures, e.givenUp = 0, time.Now().Add(givenUpFor)
	}
	e.mu.Unlock()
	if giveUp {
		e.node.log.Warn("cluster: a server fails on this node, which lets others try", "server", e.name, "for", givenUpFor)
		e.free()
	}
}

// othersFit reports whether another node may run a server.
func (n *Node) othersFit(wanted map[string]string) bool {
	return slices.ContainsFunc(n.Members(), func(m Member) bool { return m.Name != n.options.Node && m.fits(wanted) })
}

// mayClaim reports why this node must not claim the server now, or nil.
func (e *exclusive) mayClaim(wanted map[string]string) error {
	self, _ := e.node.Member(e.node.options.Node)
	e.mu.Lock()
	wait := time.Until(e.givenUp)
	e.mu.Unlock()
	switch {
	case self.Draining:
		return fmt.Errorf("cluster: no node runs server %q, and this one is draining", e.name)
	case !self.fits(wanted):
		return fmt.Errorf("cluster: no node runs server %q, and this one lacks the labels for it", e.name)
	case wait > 0 && e.node.othersFit(wanted):
		return fmt.Errorf("cluster: no node runs server %q, which has failed on this one: it tries again in %v", e.name, wait.Round(time.Second))
	}
	return nil
}

// report adds the server to the report of this node, if it runs here.
func (e *exclusive) report(r *Report) {
	if in, _ := e.state(); in.run != nil {
		r.Exclusive = append(r.Exclusive, e.name)
		slices.Sort(r.Exclusive)
	}
}

// lockTurn waits for the turn.
func (e *exclusive) lockTurn(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *exclusive) unlockTurn() { <-e.turn }

// drain lets the calls of the server end, ends it, and gives the claim up.
func (e *exclusive) drain(ctx context.Context) error {
	if err := e.lockTurn(ctx); err != nil {
		return err
	}
	defer e.unlockTurn()
	var err error
	if run := e.askedRun(); run != nil {
		if err = run.shared.Drain(ctx, endGrace); err != nil {
			err = fmt.Errorf("cluster: server %q: %w", e.name, err)
		}
		<-run.over
	}
	if in, _ := e.state(); in.stuck == nil {
		e.free()
	}
	return err
}

// close ends the server for good. The claim is given up with all others of the node.
func (e *exclusive) close(context.Context) { e.closes.Do(e.closeOnce) }

func (e *exclusive) closeOnce() {
	e.end()
	e.turn <- struct{}{} // for ever: nothing is started after this
	e.mu.Lock()
	e.closed = true
	e.change()
	e.mu.Unlock()
	if run := e.askedRun(); run != nil {
		_ = run.shared.Close(closeGrace) // follow logs the error
		<-run.over
	}
}

// askedRun returns what runs, and notes that this node ends it.
func (e *exclusive) askedRun() *serverRun {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.run != nil {
		e.run.asked = true
	}
	return e.run
}

// wakeWaiting wakes connections, and gives up a claim that nobody uses, until the node is closed.
func (e *exclusive) wakeWaiting() {
	timer := time.NewTimer(keptFor)
	defer timer.Stop()
	for {
		_, changed := e.node.State()
		select {
		case <-e.node.ctx.Done():
			return
		case <-e.wakers.kick:
		case <-changed:
			e.wakers.change()
		case <-timer.C:
		}
		wait := keptFor
		if e.wakers.wake() {
			wait = wakeStep
		}
		timer.Reset(min(wait, e.giveUpUnused()))
	}
}

// giveUpUnused gives the claim up if it was kept for long enough. It returns when to look again.
func (e *exclusive) giveUpUnused() time.Duration {
	e.mu.Lock()
	kept := !e.keptUntil.IsZero() && e.run == nil && e.held && e.stuck == nil
	left := time.Until(e.keptUntil)
	e.mu.Unlock()
	if !kept {
		return keptFor
	}
	if left > 0 {
		return left
	}
	select {
	case e.turn <- struct{}{}:
		defer e.unlockTurn()
		if in, _ := e.state(); in.run == nil {
			e.free()
		}
	default: // somebody is starting it
	}
	return keptFor
}

// isMissing reports whether a server could not be started because its program is not there.
func isMissing(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}
