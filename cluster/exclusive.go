package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/cluster/internal/sharing"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

const (
	// provenAfter is how long a server runs before it counts as one that works on this node.
	provenAfter = 30 * time.Second

	// maxFailures is how often it may end before that, in a row, until this node lets others
	// try for givenUpFor.
	maxFailures = 3
	givenUpFor  = time.Minute

	// keptFor is how long a claim is kept for a connection while the server does not run: longer
	// than it waits before it tries again.
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
	node            *Node
	name, key, path string
	moveKey         string // of the claim of a node that takes the server
	wakers          *wakers
	turn            chan struct{}   // capacity one: full while somebody claims, starts, drains or closes
	ending          context.Context // ends when the node is closed
	end             context.CancelFunc

	mu        sync.Mutex
	changed   wait.Changes // for those who wait within Open, or for this node: something here has changed, or a lease has
	claim     *serverClaim // which this node has, or is making; nil: none
	run       *serverRun   // what runs, or has not ended entirely; nil: nothing
	stuck     error        // what has run did not end; nothing is started here any more
	keptUntil time.Time    // a claim without a server is given up then
	failures  int          // in a row
	givenUp   time.Time    // until when other nodes may try
	failed    error        // why that is so; the server may have started since
	giving    bool         // for another node
	latest    *upstream    // the latest configuration
	closed    bool
}

// A serverClaim is the claim of a server by this node.
type serverClaim struct {
	release func(context.Context) error // nil while the claim is being made
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

// openServers has the node look after its exclusive servers.
func (n *Node) openServers() {
	n.carrier, n.exclusives = n, map[string]*exclusive{}
	n.onLease(func(key string) {
		for _, e := range n.servers() {
			e.leaseChanged(key)
		}
	})
	n.onReport(func(r *Report) {
		for _, e := range n.servers() {
			if in, _ := e.state(); in.run != nil {
				r.Exclusive = append(r.Exclusive, e.name)
			}
		}
		slices.Sort(r.Exclusive)
	})
	n.onDrain(func(ctx context.Context) error {
		return n.eachServer(func(e *exclusive) error { return e.drain(ctx) })
	})
	n.onClose(func(context.Context) {
		_ = n.eachServer(func(e *exclusive) error { e.close(); return nil }) // no function fails
	})
}

func (n *Node) servers() []*exclusive {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.exclusives))
}

// eachServer calls f for all servers at the same time, and waits.
func (n *Node) eachServer(f func(*exclusive) error) error {
	all := n.servers()
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, e := range all {
		group.Go(func() { errs[i] = f(e) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// exclusive returns the server with a name.
func (n *Node) exclusive(name string) *exclusive {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.exclusives[name]
	if e == nil {
		e = &exclusive{
			node: n, name: name, key: serverPrefix + encodeName(name), path: serverPath(name), moveKey: movePrefix + encodeName(name),
			wakers: newWakers(), turn: make(chan struct{}, 1), closed: n.closing,
		}
		e.ending, e.end = context.WithCancel(n.ctx)
		n.exclusives[name] = e
		if !n.closing {
			n.running.Go(e.wakeWaiting)
		}
	}
	return e
}

// leaseChanged looks at a change of the claim, or of a node: it may be reached now.
func (e *exclusive) leaseChanged(key string) {
	if key == e.key || key == e.moveKey || strings.HasPrefix(key, nodePrefix) {
		e.wakers.change()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.changed.Announce()
	}
}

// An exclusiveState is what Open decides by.
type exclusiveState struct {
	run     *serverRun
	asked   bool // this node ends what runs
	claimed bool // by this node, or it is being claimed
	closed  bool
	stuck   error
	failed  error // why this node has let others try last
}

func (e *exclusive) state() (exclusiveState, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	in := exclusiveState{run: e.run, claimed: e.claim != nil, closed: e.closed, stuck: e.stuck, failed: e.failed}
	in.asked = in.run != nil && in.run.asked
	return in, e.changed.Next()
}

// may reports why no request may be passed to the server now, or nil.
func (e *exclusive) may() error {
	if e.node.holds(e.key) {
		return nil
	}
	return errLeaseExpired
}

// makeClaim claims the server. If another node has it, the error matches ErrExists. The claim may
// be lost again when makeClaim returns. The caller has the turn.
func (e *exclusive) makeClaim(ctx context.Context) error {
	c := new(serverClaim)
	e.mu.Lock()
	e.claim = c
	e.mu.Unlock()
	release, err := e.node.claim(ctx, e.key, nil, func(err error) { e.lost(c, err) })
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		c.release = release
		e.keep()
	} else if e.claim == c {
		e.claim = nil
	}
	e.changed.Announce()
	return err
}

// keep keeps the claim for some time, although nothing runs. The caller holds e.mu.
func (e *exclusive) keep() {
	e.keptUntil = time.Now().Add(keptFor)
	e.wakers.poke()
}

// lost ends the server when its claim is lost.
func (e *exclusive) lost(c *serverClaim, why error) {
	e.mu.Lock()
	run := e.run
	if e.claim != c { // it was given up at the same time
		run = nil
	} else {
		e.claim = nil
		e.changed.Announce()
	}
	if run != nil {
		run.asked = true
	}
	e.mu.Unlock()
	if run != nil {
		e.node.log.Warn("cluster: a server is ended, since its claim is lost", "server", e.name, "err", why)
		_ = run.shared.Close(0) // follow sees the error, too
	}
}

// free gives the claim up. Nothing runs, and the caller has the turn, so nothing starts.
func (e *exclusive) free() {
	e.mu.Lock()
	c := e.claim
	e.claim = nil
	e.changed.Announce()
	e.mu.Unlock()
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := c.release(ctx); err != nil {
		e.node.log.Warn("cluster: the claim of a server could not be given up, and expires", "server", e.name, "err", err)
	}
}

// follow handles the end of a server.
func (e *exclusive) follow(run *serverRun) {
	<-run.shared.Done()
	stuck := run.shared.Close(0)
	e.mu.Lock()
	lived := time.Since(run.began) >= provenAfter
	left := wait.IsClosed(run.shared.Ready()) && run.shared.Reason() == transport.ErrClosed // its client has closed the link
	if lived {
		e.failures = 0
	}
	e.run, e.stuck = nil, stuck
	e.keep()
	close(run.over)
	e.changed.Announce()
	failed := !lived && !left && stuck == nil
	e.mu.Unlock()
	if stuck != nil {
		e.node.log.Error("cluster: a server has not ended; its claim is kept until this node ends", "server", e.name, "err", stuck)
	}
	if failed {
		e.fail(run.shared.Reason())
	}
}

// fail counts a failure of the server on this node. If others should try, giveUpUnused gives the
// claim up.
func (e *exclusive) fail(why error) {
	e.mu.Lock()
	e.failures++
	giveUp := isMissing(why) || e.failures >= maxFailures
	if giveUp {
		e.failed = why
		e.changed.Announce()
		e.failures, e.givenUp, e.keptUntil = 0, time.Now().Add(givenUpFor), time.Time{}
		e.wakers.poke()
	}
	e.mu.Unlock()
	if giveUp {
		e.node.log.Warn("cluster: a server fails on this node, which lets others try", "server", e.name, "for", givenUpFor)
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
	by, _, moves := e.node.holder(e.moveKey)
	switch {
	case moves && !e.node.holds(e.moveKey): // which sees the end of the old claim after this key, too
		return fmt.Errorf("cluster: server %q is being moved to node %q", e.name, by.Node)
	case !self.fits(wanted):
		return fmt.Errorf("cluster: no node runs server %q, and this one is draining or lacks the labels for it", e.name)
	case wait > 0 && e.node.othersFit(wanted):
		return fmt.Errorf("cluster: no node runs server %q, which has failed on this one: it tries again in %v", e.name, wait.Round(time.Second))
	}
	return nil
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

// withEnding returns a context that also ends when the node is closed.
func (e *exclusive) withEnding(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.ending, func() { cancel(errClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// drain lets the calls of the server end, ends it, and gives the claim up.
func (e *exclusive) drain(ctx context.Context) error {
	ctx, cancel := e.withEnding(ctx)
	defer cancel()
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
func (e *exclusive) close() {
	e.end()
	e.turn <- struct{}{} // for ever: nothing is started after this
	e.mu.Lock()
	e.closed = true
	e.changed.Announce()
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
	timer := time.NewTimer(0)
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
		timer.Stop()
		if again, kept := e.wakers.wake(), e.giveUpUnused(); again || kept {
			timer.Reset(wakeStep)
		}
	}
}

// giveUpUnused gives a claim up without which nothing runs: if no connection of this node uses the
// server any more, or if none has started it for long. It reports whether there is still one.
func (e *exclusive) giveUpUnused() (kept bool) {
	e.mu.Lock()
	kept = e.claim != nil && e.run == nil && e.stuck == nil
	wanted := time.Now().Before(e.keptUntil)
	e.mu.Unlock()
	if !kept || wanted && e.wakers.areThere() {
		return kept
	}
	select {
	case e.turn <- struct{}{}:
		defer e.unlockTurn()
		if in, _ := e.state(); in.run == nil && in.stuck == nil {
			e.free()
		}
		return false
	default: // somebody is starting it
		return true
	}
}

// isMissing reports whether a server could not be started because its program is not there.
func isMissing(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}
