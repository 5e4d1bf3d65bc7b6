package cluster

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/transport/stdio"
)

// What the tests of this package, which are in another one, use of it.

const (
	LeaseBucket = leaseBucket
	LeaseTTL    = leaseTTL
	GiveGrace   = giveGrace
	LeaseHeld   = leaseHeld
	MaxControl  = maxControl
)

type (
	Owner   = owner
	Verdict = verdict
)

const (
	Unsure = unsure
	Alive  = alive
	Dead   = dead
)

// ForgetChallenges makes the node accept none of its challenges any more, as when they are old. Its next lease has a new one.
func (n *Node) ForgetChallenges() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.challenge = challenges{}
}

// Go runs f on a goroutine that Close waits for.
func (n *Node) Go(f func()) error { return n.goUnlessClosed(f) }

// Executable reports why the program of a command cannot be started here.
func Executable(c *stdio.Command) error { return executable(c) }

// SessionBucket returns the settings of the bucket of sessions.
func SessionBucket() BucketOptions { return sessionOptions() }

// A Clock is the clock of one node in a test.
type Clock struct {
	Percent int64         // how fast it runs; 0 means 100
	Wall    time.Duration // how far its time of day is ahead
	Epoch   string        // the epoch of the process, if it is a copy
	gap     atomic.Int64
}

// Jump lets time pass for the node alone, as if its process had been stopped meanwhile: none
// of its timers has fired yet.
func (c *Clock) Jump(d time.Duration) { c.gap.Add(int64(d)) }

// JoinWithClock does what Join does, with another clock.
func JoinWithClock(ctx context.Context, e Engine, o Options, c *Clock) (*Node, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	n := newNode(e, o)
	real := n.clock
	n.clock = func() instant {
		now := real()
		if c.Percent != 0 {
			now = now * instant(c.Percent) / 100
		}
		return now + instant(c.gap.Load())
	}
	n.wall = func() time.Time { return time.Now().Add(c.Wall) }
	n.since = n.wall()
	if c.Epoch != "" {
		n.epoch, n.view = c.Epoch, newView(owner{Node: o.Node, Epoch: c.Epoch})
	}
	if err := n.join(ctx); err != nil {
		n.cancel(err)
		return nil, err
	}
	return n, nil
}

// Alone returns a node that has not joined a cluster. It has no goroutines.
func Alone(o Options) *Node {
	o, err := o.check()
	if err != nil {
		panic(err)
	}
	return newNode(nil, o)
}

func (n *Node) Claim(ctx context.Context, key string, value []byte, lost func(error)) (func(context.Context) error, error) {
	return n.claim(ctx, key, value, lost)
}

func (n *Node) Holds(key string) bool { return n.holds(key) }

func (n *Node) Holder(key string) (Owner, []byte, bool) { return n.holder(key) }

func (n *Node) Self() Owner { return n.self() }

func (n *Node) Judge(o Owner) Verdict { return n.judge(o) }

func (n *Node) DoorRefused(ctx context.Context, o Owner) Verdict { return n.refused(ctx, o) }

func (n *Node) Refused() uint64 { return n.sealer.refused.Load() }

func (n *Node) Announce(address string) { n.announce(address) }

func (n *Node) OnLease(f func(string)) { n.onLease(f) }

func (n *Node) OnDrain(f func(context.Context) error) { n.onDrain(f) }

func (n *Node) OnReport(f func(*Report)) { n.onReport(f) }

func (n *Node) OnRenewal(key string, f func(time.Time)) { n.onRenewal(key, f) }

func (n *Node) Handle(op string, f func(context.Context, json.RawMessage) (any, error)) {
	n.handle(op, f)
}

func (n *Node) Ask(ctx context.Context, node, op string, args, into any) error {
	return n.ask(ctx, node, op, args, into)
}

func (n *Node) Seal(purpose, name string, plain []byte) []byte { return n.seal(purpose, name, plain) }

func (n *Node) Open(purpose, name string, sealed []byte) ([]byte, error) {
	return n.open(purpose, name, sealed)
}

// ControlSubject is the subject that a node answers.
func (n *Node) ControlSubject() string { return controlSubjectOf(n.options.Node, n.epoch) }

// Request returns a sealed control request to a member, as ask makes it.
func (n *Node) Request(node, op string, args any) (subject string, sealed []byte) {
	m, _ := n.Member(node)
	subject = controlSubjectOf(m.Name, m.Epoch)
	r, err := newRequest(op, args, map[string]string{node: m.challenge})
	if err != nil {
		panic(err)
	}
	return subject, n.seal(sealRequest, subject, encode(r))
}

// SealLease seals any value for the lease of a node.
func (n *Node) SealLease(node string, plain []byte) []byte {
	return n.seal(sealLease, leaseBucket+"/"+nodePrefix+node, plain)
}

// SealRequest seals any value as a control request to this node.
func (n *Node) SealRequest(plain []byte) []byte {
	return n.seal(sealRequest, n.ControlSubject(), plain)
}

func (n *Node) Answer(ctx context.Context, body []byte) []byte {
	return n.answer(ctx, n.ControlSubject(), body)
}

// Flush waits until the stores of a node have written everything.
func (n *Node) Flush(ctx context.Context) { n.hooks.close(ctx) }

func (n *Node) Mount(path string, h http.Handler) error { return n.mount(path, h) }

func (n *Node) RoundTripper(node string) http.RoundTripper { return n.roundTripper(node) }

// SawEnd makes a node know that a process has ended, as if it had seen the end of its lease.
func (n *Node) SawEnd(o Owner) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.view.nodes[o.Node]
	if s == nil {
		s = &sight{state: ended, owner: o}
		n.view.nodes[o.Node] = s
	}
	s.end(o)
}

// A Carrier is what brings requests from node to node.
type Carrier interface {
	Mount(path string, h http.Handler) error
	RoundTripper(node string) http.RoundTripper
}

// SetCarrier replaces the hop for servers.
func (n *Node) SetCarrier(c Carrier) { n.carrier = testCarrier{c} }

type testCarrier struct{ of Carrier }

func (c testCarrier) mount(path string, h http.Handler) error    { return c.of.Mount(path, h) }
func (c testCarrier) roundTripper(node string) http.RoundTripper { return c.of.RoundTripper(node) }

// RankOf is the place of a node among those that may run a server.
func RankOf(server, node string, members []Member, wanted map[string]string) int {
	return rankOf(server, node, members, wanted)
}
