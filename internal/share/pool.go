// Package share divides what a process has little of among its clients, so that none can take the rest.
// ADR-0083 gives the reasons.
package share

import (
	"context"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"sync"
)

// A Client is whose share it is: an identity, or the network of a client without one.
type Client struct {
	Identity string
	Network  string // an IPv4 address, the first 64 bits of an IPv6 address with "/64", or what else tells clients apart
}

// Wide returns the /48 that a client without an identity belongs to. It is invalid if there is none, or if the
// address is a private one.
func (c Client) Wide() netip.Prefix {
	if c.Identity != "" || !strings.HasSuffix(c.Network, "/64") {
		return netip.Prefix{}
	}
	narrow, err := netip.ParsePrefix(c.Network)
	if err != nil || !narrow.Addr().Is6() || !narrow.Addr().IsGlobalUnicast() || narrow.Addr().IsPrivate() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(narrow.Addr(), 48).Masked()
}

// A Pool is an amount that clients share, in bytes or in places. It is safe for concurrent use.
//
//   - A client may hold at most as much as is free then: one client alone half of the pool, N greedy
//     ones 1/(N+1) of it each. So a newcomer finds as much as each of them has.
//   - In a pool whose claims last (see [NewLasting]), a client may hold only that part of it which is the square
//     of the free part: one client alone 38 %, and after N greedy clients more than 1/(N+1) is free, even
//     if none of them ever gives anything back.
//   - A client may hold one piece whenever that is free. If it is not, its claim waits, and what others give
//     back is kept for it.
//   - Claims within one piece are granted first, the oldest of them before the others; then those of
//     clients that hold least.
//   - The clients of one /48 of IPv6 together hold at most what one client may, and one of them a quarter of that.
//     Four pieces of theirs are within one piece each; claims beyond that wait behind each other, and for their share.
type Pool struct {
	limit   int
	piece   int
	lasting bool
	stopped <-chan struct{}

	mu       sync.Mutex
	free     int // what nobody holds, without what is kept
	kept     int // what is kept for the first claim, if it is within one piece
	clients  map[Client]*account
	networks map[netip.Prefix]*account
	waiting  queue
	events   uint64     // counts claims that wait, and accounts whose first claim comes within one piece
	spare    []*account // up to two unused accounts, for reuse
}

// A Claim waits until its pool grants it.
type Claim struct {
	pool    *Pool
	client  Client
	of      *account
	n       int
	number  uint64 // the order of arrival
	granted chan struct{}
}

// New returns a pool of so much, and says what one piece is: where claims wait, the most that one request
// needs. After stopped has been closed, no claim waits any more; nil: never.
func New(limit, piece int, stopped <-chan struct{}) *Pool {
	return &Pool{
		limit: limit, piece: min(limit, piece), stopped: stopped, free: limit,
		clients: make(map[Client]*account), networks: make(map[netip.Prefix]*account),
	}
}

// NewLasting returns a pool like New, for claims that last so long that nobody can wait for their end.
func NewLasting(limit, piece int) *Pool {
	p := New(limit, piece, nil)
	p.lasting = true
	return p
}

// NewPlaces returns a lasting pool of so many places. Fewer than 64 go to whom comes first, so that a program
// which allows a few for the one client that it has can use them all.
func NewPlaces(n int) *Pool {
	if n < 64 {
		return NewLasting(n, n)
	}
	return NewLasting(n, 1)
}

// Take takes n for a client. It reports false, and takes nothing, if the client may not have that now.
func (p *Pool) Take(c Client, n int) bool {
	if n <= 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.enter(c)
	taken := p.take(a, n)
	p.leave(c, a)
	return taken
}

// Extend takes n for a client if so much is free, whatever its share is.
func (p *Pool) Extend(c Client, n int) bool {
	return p.extend(c, n, func(*account) bool { return n <= p.free })
}

// Grow takes n for something that a client has and that grows. It may have more than its share for that, up
// to half of the pool, but leaves the last eighth to what is new.
func (p *Pool) Grow(c Client, n int) bool {
	return p.extend(c, n, func(a *account) bool { return n <= p.free-p.limit/8 && a.owner().held+n <= p.limit/2 })
}

func (p *Pool) extend(c Client, n int, may func(*account) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.enter(c)
	fits := may(a) || p.allows(a, n, p.free, p.within(a, n))
	if fits {
		p.hold(a, n)
		p.grant(0)
	}
	p.leave(c, a)
	return fits
}

// Claim takes n for a client and returns nil. If the client may not have that now, Claim returns
// a claim; the caller calls its Wait.
func (p *Pool) Claim(c Client, n int) *Claim {
	if n <= 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.enter(c)
	if p.take(a, n) {
		return nil
	}
	p.events++
	claim := &Claim{pool: p, client: c, of: a, n: n, number: p.events, granted: make(chan struct{})}
	a.claims = append(a.claims, claim)
	p.reorder(a)
	if p.grant(0); claim.isGranted() { // it is the first now, and may have what was kept for another
		return nil
	}
	return claim
}

func (c *Claim) isGranted() bool {
	select {
	case <-c.granted:
		return true
	default:
		return false
	}
}

// Wait waits until the claim is granted. It reports false, and the client gets nothing, if ctx ends
// or the pool is stopped before that.
func (c *Claim) Wait(ctx context.Context) bool {
	select {
	case <-c.granted:
		return true
	case <-ctx.Done():
	case <-c.pool.stopped:
	}
	c.Withdraw()
	return false
}

// Granted returns a channel that is closed when the claim is granted. A caller that does not wait for that any
// more calls Withdraw.
func (c *Claim) Granted() <-chan struct{} { return c.granted }

// Give returns n of what a client holds.
func (p *Pool) Give(c Client, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.clients[c]; a != nil && n > 0 {
		p.hold(a, -n)
		p.leave(c, a)
		p.grant(n)
	}
}

// Refused says why a client was refused n, as the end of a sentence.
func (p *Pool) Refused(n int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > p.free {
		return "there is no room for more"
	}
	return "this client has its share of them"
}

// Fit returns n, or what a client gets at most if nobody else holds anything.
func (p *Pool) Fit(c Client, n int) int {
	if n <= p.piece {
		return n
	}
	parts := 1
	if c.Wide().IsValid() {
		parts = 4
	}
	return max(p.piece, sort.Search(n, func(n int) bool { return n >= p.limit || n+1 > p.most(p.limit-n-1)/parts }))
}

// Limit returns the size of the pool.
func (p *Pool) Limit() int { return p.limit }

// Held returns how much all clients hold together.
func (p *Pool) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit - p.free - p.kept
}

// enter returns the account of a client.
func (p *Pool) enter(c Client) *account {
	if a := p.clients[c]; a != nil {
		return a
	}
	a := p.open()
	p.clients[c] = a
	if wide := c.Wide(); wide.IsValid() {
		if a.network = p.networks[wide]; a.network == nil {
			a.network = p.open()
			a.network.prefix = wide
			p.networks[wide] = a.network
		}
	}
	return a
}

// leave forgets the account of a client that holds nothing and for which no claim waits, and that of its network
// if it was the last.
func (p *Pool) leave(c Client, a *account) {
	if a.held > 0 || a.waits() {
		return
	}
	delete(p.clients, c)
	if of := a.network; of != nil && of.held == 0 && !of.waits() {
		delete(p.networks, of.prefix)
		p.close(of)
	}
	p.close(a)
}

// open returns an unused account.
func (p *Pool) open() *account {
	last := len(p.spare) - 1
	if last < 0 {
		return new(account)
	}
	a := p.spare[last]
	p.spare = p.spare[:last]
	return a
}

func (p *Pool) close(a *account) {
	if *a = (account{claims: a.claims[:0], members: a.members[:0]}); len(p.spare) < 2 {
		p.spare = append(p.spare, a)
	}
}

// hold changes what a client holds.
func (p *Pool) hold(a *account, n int) {
	a.held += n
	if a.network != nil {
		a.network.held += n
	}
	p.free -= n
	p.reorder(a)
}

// allows reports whether a client may take n if so much is free.
func (p *Pool) allows(a *account, n, free int, within bool) bool {
	if n > free || within {
		return n <= free
	}
	if most := p.most(free - n); a.network == nil {
		return a.held+n <= most
	} else {
		return a.network.held+n <= most && a.held+n <= most/4
	}
}

// most returns how much a client may hold if so much is free then.
func (p *Pool) most(free int) int {
	if p.lasting {
		return int(min(float64(free)*float64(free)/float64(p.limit), float64(free))) // the product may exceed an int
	}
	return free
}

// take takes n for a client if it may have that now, and no claim that waits comes first.
func (p *Pool) take(a *account, n int) bool {
	within := p.within(a, n)
	if !p.allows(a, n, p.free, within) || !within && p.isBehind(a) {
		return false
	}
	p.hold(a, n)
	p.grant(0) // the client's own claims may be none within one piece any more
	return true
}

// isBehind reports whether a claim that waits comes before a new one of a client above one piece.
func (p *Pool) isBehind(a *account) bool {
	if len(p.waiting) == 0 {
		return false
	}
	first := p.waiting[0]
	if first.within || first.leaf().compare(a) <= 0 {
		return true
	}
	return a.network != nil && a.network.waits() && a.network.members[0].within
}

// grant grants claims in their order, after so much was given back. That is kept for the first claim that
// stays, if it is within one piece, so that later claims can take only what was free before.
func (p *Pool) grant(returned int) {
	for len(p.waiting) > 0 {
		within, a := p.waiting[0].within, p.waiting[0].leaf()
		c := a.claims[0]
		if !within {
			p.keep(0)
		}
		if !p.allows(a, c.n, p.free+p.kept, within) {
			if within {
				p.keep(p.kept + min(returned, p.free)) // less than the claim, or it would be granted
			}
			return
		}
		p.keep(0)
		p.remove(a, 0)
		p.hold(a, c.n)
		close(c.granted)
	}
	p.keep(0)
}

func (p *Pool) keep(n int) {
	p.free += p.kept - n
	p.kept = n
}

// remove removes a claim that waits.
func (p *Pool) remove(a *account, i int) {
	a.claims = slices.Delete(a.claims, i, i+1)
	p.reorder(a)
}

// Withdraw removes a claim for which nobody waits any more. If it has been granted meanwhile, Withdraw
// gives its amount back.
func (c *Claim) Withdraw() {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	returned := p.kept
	if i := slices.Index(c.of.claims, c); i >= 0 {
		p.keep(0)
		p.remove(c.of, i)
	} else {
		returned = c.n
		p.hold(c.of, -c.n)
	}
	p.leave(c.client, c.of)
	p.grant(returned)
}
