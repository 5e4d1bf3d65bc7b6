package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/cluster/internal/hop"
	"github.com/bowline-mcp/bowline/internal/seal"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// A Node is one process of a cluster. Join makes one, Close ends it. Its methods may be
// called from any goroutine.
//
// A Node writes its lease every 5 s, and nothing else by itself: a call of the program sends
// the Engine nothing.
type Node struct {
	options Options
	engine  Engine
	leases  Bucket
	sealer  *sealer
	hashKey []byte // of Node.hashed
	log     *slog.Logger
	began   time.Time        // when Join was called; its monotonic reading is the zero of the node's clock
	asleep  time.Duration    // how long the machine had slept by then
	slept   atomic.Int64     // and since then; see suspendedSince
	clock   func() instant   // tests replace it
	wall    func() time.Time // and this

	controls controls
	hooks    hooks
	changes  changes
	moves    moves

	generations generations // of Keys
	observes    bool        // it is an Observer, and no member

	hop       *hop.Hop // nil before join
	peers     peers
	carrier   carrier    // the hop; tests replace it
	listening sync.Mutex // held while mount begins to listen
	listens   bool

	ctx     context.Context // ends when Close begins
	cancel  context.CancelCauseFunc
	running sync.WaitGroup // everything that the Node has started

	messages  atomic.Uint64                          // control messages that were refused
	describes atomic.Pointer[func() json.RawMessage] // see Describe

	mu        sync.Mutex
	epoch     string
	since     time.Time
	address   string
	spki      []byte
	draining  bool
	drains    chan struct{} // closed when draining becomes true
	challenge challenges
	table     map[string]*entry // the keys that this node holds, and its own lease
	claims    uint64            // how many claims this node has made
	left      map[string][]byte // by key: what a claim has tried to write that failed without an answer
	highest   uint64            // the highest revision that a write of this node has got
	pauseTill instant           // no new claims before this: the Engine has lost leases
	kick      chan struct{}     // capacity one: the table has changed

	view    view
	members map[string]Member     // of the leases that were read
	others  map[string]otherClaim // keys of other kinds, of all nodes
	current chan struct{}         // closed when the watch has shown everything once, or has ended
	unread  map[string]error      // by key: why a value could not be read

	exclusives map[string]*exclusive // by name

	state      State
	leaseSince instant      // since when the node holds its lease
	hasLapsed  bool         // it has been without one since it joined
	changed    wait.Changes // of the state
	closing    bool         // Close was called
}

var errClosed = errors.New("cluster: the node is closed")

// Join makes this process a node of a cluster. When it returns, the lease of its name is
// held, and all members are known.
//
// If a process with this name has ended without its Close, Join waits until its lease has
// expired, at most 20 s. If the process lives, the error is a *NameTakenError. Join tries
// again while the Engine cannot be reached, until ctx ends.
//
// The Node uses the Engine until Close returns, and does not close it.
func Join(ctx context.Context, e Engine, o Options) (*Node, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	n := newNode(e, o)
	if err := n.join(ctx); err != nil {
		n.cancel(err)
		return nil, err
	}
	return n, nil
}

func newNode(e Engine, o Options) *Node {
	n := &Node{
		options: o, engine: e, sealer: newSealer(o.Cluster, o.Key), hashKey: deriveKey(o, "hash"), log: o.Log.With("node", o.Node),
		began: time.Now(), asleep: suspended(),
		epoch: rand.Text(), wall: time.Now,
		table: map[string]*entry{}, left: map[string][]byte{}, kick: make(chan struct{}, 1),
		members: map[string]Member{}, others: map[string]otherClaim{}, current: make(chan struct{}), unread: map[string]error{},
		state: Ready, drains: make(chan struct{}),
	}
	n.since = n.wall().UTC().Round(time.Millisecond)
	n.view = newView(owner{Node: o.Node, Epoch: n.epoch})
	n.clock = func() instant { return time.Since(n.began) + n.suspendedSince() }
	n.changes.node = n
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	n.peers = newPeers(n)
	n.onLease(n.peers.update)
	n.openServers()
	return n
}

// suspendedSince returns for how long the machine has slept since Join was called, but for less
// than suspendedNoise. It never falls, so that the clock does not either.
func (n *Node) suspendedSince() time.Duration {
	for {
		known := n.slept.Load()
		now := int64(suspended() - n.asleep)
		if now < known+int64(suspendedNoise) {
			return time.Duration(known)
		}
		if n.slept.CompareAndSwap(known, now) {
			return time.Duration(now)
		}
	}
}

// suspendedNoise is by how much two readings may differ although the machine did not sleep.
const suspendedNoise = 20 * time.Millisecond

func (n *Node) join(ctx context.Context) (err error) {
	if n.leases, err = n.openLeases(ctx); err != nil {
		return err
	}
	if err := n.openHop(); err != nil {
		return err
	}
	if err := n.takeName(ctx); err != nil {
		return err
	}
	n.running.Go(n.renew)
	n.running.Go(n.follow)
	n.handleOwn()
	n.handleMoves()
	if err = n.answerControl(ctx); err == nil {
		err = await(ctx, n.current)
	}
	if err == nil {
		err = n.checkKey()
	}
	if err != nil {
		return errors.Join(err, n.leave(context.WithoutCancel(ctx)))
	}
	return nil
}

// checkKey fails if there are other nodes, and all have another key.
func (n *Node) checkKey() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var others []string
	for key, err := range n.unread {
		if name, isNode := strings.CutPrefix(key, nodePrefix); isNode && errors.Is(err, seal.ErrOpen) {
			others = append(others, name)
		}
	}
	if len(others) == 0 || len(n.members) > 0 {
		return nil
	}
	slices.Sort(others)
	return &KeyError{Bytes: len(n.options.Key), Nodes: others}
}

// await waits for a channel to be closed.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// goUnlessClosed runs f on a goroutine that Close waits for. After Close has begun it runs nothing.
func (n *Node) goUnlessClosed(f func()) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() != nil {
		return errClosed
	}
	n.running.Go(f)
	return nil
}

// Name returns Options.Node.
func (n *Node) Name() string { return n.options.Node }

// self returns this node as the owner of what it writes now. A value with an earlier term
// may have been taken by another node meanwhile.
func (n *Node) self() owner {
	n.mu.Lock()
	defer n.mu.Unlock()
	return owner{n.options.Node, n.epoch, n.term()}
}

// Close waits until the requests of other nodes are over, gives up the leases of this node, so
// that other nodes can have them at once, and ends its goroutines. The program should have
// stopped serving before; see Drain. An error says what was cut off, and what could not be given
// up: it expires. If ctx ends, Close returns when nothing runs any more all the same. Further
// calls do nothing.
func (n *Node) Close(ctx context.Context) error {
	n.mu.Lock()
	first := !n.closing
	n.closing = true
	n.mu.Unlock()
	if !first {
		<-n.ctx.Done()
		n.running.Wait()
		return nil
	}
	n.hooks.close(ctx)
	err := n.hop.Close(ctx)
	n.mu.Lock()
	n.cancel(errClosed)
	n.setState(Closed)
	n.mu.Unlock()
	return errors.Join(err, n.leave(ctx))
}

// leave ends what runs, and deletes the keys of this node.
func (n *Node) leave(ctx context.Context) error {
	n.cancel(errClosed)
	n.controls.stop()
	n.running.Wait()
	if err := n.releaseAll(ctx); err != nil {
		return fmt.Errorf("cluster: a lease of node %q could not be given up, and expires within %v: %w", n.options.Node, leaseTTL, err)
	}
	return nil
}
