// Package turn does the large pieces of a server's own work one after the other, each client in its turn. ADR-0085 gives the reasons.
// The turns of a connection's loop are something else: see internal/actor.
package turn

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Small is the cost up to which a piece of work does not wait.
const Small = 256 << 10

// A Scheduler decides whose piece of work is done next, among clients that a C tells apart. It is safe for concurrent use.
//
//   - At most one piece of each client is done at a time, and at most so many in all that one processor
//     is left for what is small.
//   - If pieces wait, the next is the one that would be done first if all clients with pieces were served at the
//     same time, at equal speed (weighted fair queueing). So a cheap piece of a client that has had little comes before
//     an expensive one, and each client gets the same amount of work done.
//   - The pieces of one client are done in the order in which they came.
type Scheduler[C comparable] struct {
	places int // how many pieces may be done at a time

	mu      sync.Mutex
	running int // how many pieces are done now
	clients map[C]*account
	waiting queue  // the clients for which a piece waits, and none is done
	served  int    // how much work has been done for each client that had pieces all the time
	pieces  uint64 // how many pieces have waited so far
	spare   *account
}

// An account says what is done for a client.
type account struct {
	running bool
	waiting []*piece // oldest first
	until   int      // what Scheduler.served will be when the pieces that have begun would be done at equal speed
	due     int      // the same, with the first one that waits
	place   int      // the index in Scheduler.waiting
}

// A piece of work waits to be done.
type piece struct {
	cost   int
	number uint64 // the order of arrival
	begins chan struct{}
}

// New returns a scheduler for so many processors.
func New[C comparable](processors int) *Scheduler[C] {
	return &Scheduler[C]{places: max(1, processors-1), clients: make(map[C]*account)}
}

// Do does a piece of work for a client when it is its turn. If ctx ends before that, Do returns its cause and
// the work is not done. The cost is in bytes; a piece of at most Small is done at once. Do calls waits, which may
// be nil, before it waits. Work must not wait for anything, and must not call Do.
func (s *Scheduler[C]) Do(ctx context.Context, c C, cost int, waits, work func()) error {
	return s.do(ctx, time.Time{}, c, cost, waits, work)
}

// ErrLate is the error of DoBefore if the work has not begun in time.
var ErrLate = errors.New("turn: too many pieces of work came before")

// DoBefore does what Do does for work that must begin before some time, if it has to wait. After that time the
// work is not done.
func (s *Scheduler[C]) DoBefore(ctx context.Context, due time.Time, c C, cost int, work func()) error {
	return s.do(ctx, due, c, cost, nil, work)
}

// do is Do if due is zero, and DoBefore otherwise.
func (s *Scheduler[C]) do(ctx context.Context, due time.Time, c C, cost int, waits, work func()) error {
	if cost > Small {
		if p := s.enter(c, cost); p != nil {
			if waits != nil {
				waits()
			}
			if !due.IsZero() {
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadlineCause(ctx, due, ErrLate)
				defer cancel()
			}
			if !s.await(ctx, c, p) {
				return context.Cause(ctx)
			}
		}
		defer s.leave(c)
	}
	work()
	return nil
}

// enter begins a piece of work and returns nil, or returns the piece if it has to wait.
func (s *Scheduler[C]) enter(c C, cost int) *piece {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accountOf(c)
	if s.running < s.places && !a.running { // then nobody waits who could begin
		s.begin(a, cost)
		return nil
	}
	s.pieces++
	p := &piece{cost, s.pieces, make(chan struct{})}
	if a.waiting = append(a.waiting, p); len(a.waiting) == 1 && !a.running {
		s.queue(a)
	}
	return p
}

// accountOf returns the account of a client. One that begins has had as much as all others: it need not catch up, and they need not wait for it.
func (s *Scheduler[C]) accountOf(c C) *account {
	a := s.clients[c]
	if a == nil {
		if a = s.spare; a == nil {
			a = new(account)
		}
		s.spare = nil
		a.until = s.served
		s.clients[c] = a
	}
	return a
}

// begin notes that a piece of a client is done now.
func (s *Scheduler[C]) begin(a *account, cost int) {
	s.running++
	a.running = true
	a.until += cost
	s.served += max(1, cost/(s.running+s.waiting.Len()))
}

// queue makes the first piece of a client wait for its turn.
func (s *Scheduler[C]) queue(a *account) {
	a.due = a.until + a.waiting[0].cost
	heap.Push(&s.waiting, a)
}

// await waits until a piece begins. It reports false if ctx ends before that.
func (s *Scheduler[C]) await(ctx context.Context, c C, p *piece) bool {
	select {
	case <-p.begins:
		return true
	case <-ctx.Done():
	}
	s.mu.Lock()
	a := s.clients[c]
	i := slices.Index(a.waiting, p)
	if i < 0 { // it has begun meanwhile
		s.mu.Unlock()
		s.leave(c)
		return false
	}
	defer s.mu.Unlock()
	a.waiting = slices.Delete(a.waiting, i, i+1)
	if i == 0 && !a.running {
		heap.Remove(&s.waiting, a.place)
		if len(a.waiting) > 0 {
			s.queue(a)
		}
	}
	s.forget(c, a)
	return false
}

// leave ends a piece of work, and begins the next.
func (s *Scheduler[C]) leave(c C) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.clients[c]
	s.running--
	if a.running = false; len(a.waiting) > 0 {
		s.queue(a)
	}
	s.forget(c, a)
	for s.running < s.places && s.waiting.Len() > 0 {
		next := heap.Pop(&s.waiting).(*account)
		p := next.waiting[0]
		next.waiting = slices.Delete(next.waiting, 0, 1)
		s.begin(next, p.cost)
		close(p.begins)
	}
}

// forget removes a client that has no pieces.
func (s *Scheduler[C]) forget(c C, a *account) {
	if a.running || len(a.waiting) > 0 {
		return
	}
	delete(s.clients, c)
	*a = account{waiting: a.waiting[:0]}
	s.spare = a
}

// A queue is a heap of clients, those first whose first piece would be done first.
type queue []*account

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	if q[i].due != q[j].due {
		return q[i].due < q[j].due
	}
	return q[i].waiting[0].number < q[j].waiting[0].number
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *queue) Push(a any) {
	a.(*account).place = len(*q)
	*q = append(*q, a.(*account))
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	a := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return a
}
