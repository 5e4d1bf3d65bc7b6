package share

import (
	"cmp"
	"container/heap"
	"net/netip"
)

// An account says what a client or a network holds, and which of its claims wait.
type account struct {
	held    int
	network *account     // of a client that belongs to one
	prefix  netip.Prefix // of a network
	claims  []*Claim     // of a client, oldest first
	members queue        // of a network: its clients for which claims wait
	place   int          // one more than the index in the queue; 0: it is in none
	within  bool         // its first claim is within one piece
	since   uint64       // the number of the event by which it came within one piece
}

func (a *account) waits() bool { return len(a.claims) > 0 || len(a.members) > 0 }

// leaf returns the client whose claim is the first of an account for which claims wait.
func (a *account) leaf() *account {
	if len(a.members) > 0 {
		return a.members[0]
	}
	return a
}

// owner returns the network of a client, or the client if it belongs to none.
func (a *account) owner() *account { return cmp.Or(a.network, a) }

// counts returns how much a client counts as holding: in a network all that this holds, or four times its own.
func (a *account) counts() int {
	if a.network == nil {
		return a.held
	}
	return max(a.network.held, 4*a.held)
}

// compare compares how much two clients hold.
func (a *account) compare(b *account) int {
	return cmp.Or(cmp.Compare(a.counts(), b.counts()), cmp.Compare(a.held, b.held))
}

// A queue is a heap of accounts for which claims wait: first those whose first claim is within one piece, by
// age, then those that hold least. The clients of a network have a queue of their own, in which the network does
// not matter, and are together one account in that of the pool.
type queue []*account

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	a, b := q[i], q[j]
	if a.within != b.within {
		return a.within
	}
	x, y := a.leaf(), b.leaf()
	if !a.within {
		if order := x.compare(y); order != 0 {
			return order < 0
		}
	}
	return max(a.since, x.since, x.claims[0].number) < max(b.since, y.since, y.claims[0].number)
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i+1, j+1
}

func (q *queue) Push(a any) {
	*q = append(*q, a.(*account))
	a.(*account).place = len(*q)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	a := (*q)[last]
	a.place, (*q)[last] = 0, nil
	*q = (*q)[:last]
	return a
}

// reorder puts an account into its queue, where it belongs now or out of it, and then its network. A claim that
// comes within one piece by what has changed follows those that have been so for longer.
func (p *Pool) reorder(a *account) {
	q, within := &p.waiting, false
	if a.network != nil {
		q = &a.network.members
	}
	if a.waits() {
		leaf := a.leaf()
		n := leaf.claims[0].n
		within = leaf.held+n <= p.piece && (leaf == a || a.held+n <= p.pieces(4))
	}
	if within && !a.within {
		p.events++
		a.since = p.events
	}
	switch a.within = within; {
	case a.waits() && a.place == 0:
		heap.Push(q, a)
	case a.waits():
		heap.Fix(q, a.place-1)
	case a.place > 0:
		heap.Remove(q, a.place-1)
	}
	if a.network != nil {
		p.reorder(a.network)
	}
}

// pieces returns how much n pieces are, and at most the limit.
func (p *Pool) pieces(n int) int {
	if p.piece > p.limit/n {
		return p.limit
	}
	return n * p.piece
}

// within reports whether a client that takes n more holds at most one piece and its network four, without those
// that a claim within one piece of another client there waits for.
func (p *Pool) within(a *account, n int) bool {
	if a.held+n > p.piece || a.network == nil {
		return a.held+n <= p.piece
	}
	others := a.network.held
	if a.network.waits() && a.network.members[0].within {
		others += a.network.members[0].claims[0].n
	}
	return others+n <= p.pieces(4)
}
