package streamable

import (
	"cmp"
	"container/heap"
)

// Which link makes room is found without looking at all of them: a table of 10,000 sessions is full
// when it is attacked, and then every request would pay for it.

// A population is the links of one client, of the clients of one /48, or of all. The idle links of a client are in
// lists, where the one that is idle longest is first.
// The table's mu guards it.
type population struct {
	links, places int
	idle          [3]idleList // of a client: by worth
	within        *population // nil: of all
	members       int         // the populations that are part of this one, and have links
	byUse         ranking     // those of them that have idle links
	rank          int         // the index in within.byUse; noRank: no link is idle
}

// add counts so many more links and places, and follows what has changed.
func (p *population) add(links, places int) {
	had := p.links > 0
	p.links += links
	p.places += places
	if p.within == nil {
		return
	}
	switch has := p.links > 0; {
	case has && !had:
		p.within.members++
	case had && !has:
		p.within.members--
	}
	// From the inside out: the rank of what is around depends on this one.
	p.within.byUse.update(p)
	p.within.add(links, places)
}

// spare returns the idle link that makes room for a client which needs so many places, or nil: one of the client that has
// most places, even if the new link counts; otherwise one of its own. A client does not lose its only link while another
// one has several. A /48 is one client compared to others, and within it its clients are compared.
func (p *population) spare(of *population, n int) *serverLink {
	if p == of {
		return p.dispensable()
	}
	if len(p.byUse) == 0 {
		return nil
	}
	own := of
	for own.within != p {
		own = own.within
	}
	switch most := p.byUse[0]; {
	// Not if both had as many then: two clients would take places from each other in turn.
	case most.links > 1 && most.places > own.places+n:
		return most.dispensable()
	case own.dispensable() != nil:
		return own.spare(of, n)
	case p.members == p.links && most.places >= own.places+n: // all have one link
		return most.dispensable()
	default:
		return nil
	}
}

const noRank = -1

// worth says in which order idle links make room: first a session that its client has never used; then a shared
// link, whose client loses nothing; then other sessions.
func (l *serverLink) worth() int {
	switch {
	case l.isShared():
		return 1
	case !l.use.confirmed:
		return 0
	default:
		return 2
	}
}

// dispensable returns the idle link that makes room first, or nil.
func (p *population) dispensable() *serverLink {
	if len(p.byUse) > 0 {
		return p.byUse[0].dispensable()
	}
	return cmp.Or(p.idle[0].first, p.idle[1].first, p.idle[2].first)
}

// A ranking is a heap of populations that have idle links: first those with several links, then those with most places,
// then those that use theirs least.
type ranking []*population

// update puts a client where it belongs, after its links have changed.
// Call it after each change on which Less depends.
func (r *ranking) update(p *population) {
	switch isIdle := p.dispensable() != nil; {
	// Only who has an idle link can make room, so nobody else is in the heap.
	case isIdle && p.rank == noRank:
		heap.Push(r, p)
	case isIdle:
		heap.Fix(r, p.rank)
	case p.rank != noRank:
		heap.Remove(r, p.rank)
	}
}

func (r ranking) Len() int { return len(r) }

// Less implements heap.Interface. All populations in the heap have an idle link, so dispensable returns
// one.
func (r ranking) Less(i, j int) bool {
	p, q := r[i], r[j]
	if (p.links > 1) != (q.links > 1) {
		return p.links > 1
	}
	if p.places != q.places {
		return p.places > q.places
	}
	l, m := p.dispensable(), q.dispensable()
	if c := cmp.Compare(l.worth(), m.worth()); c != 0 {
		return c < 0
	}
	return l.use.since.Before(m.use.since)
}

func (r ranking) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].rank, r[j].rank = i, j
}

func (r *ranking) Push(p any) {
	p.(*population).rank = len(*r)
	*r = append(*r, p.(*population))
}

func (r *ranking) Pop() any {
	last := len(*r) - 1
	p := (*r)[last]
	(*r)[last] = nil
	*r, p.rank = (*r)[:last], noRank
	return p
}

// An idleList contains idle links; the one that is idle longest is first. An idle link
// is in one list of the table and in one of its client. It stores its places in them
// itself, because it is added and removed with each request. The zero value is empty.
type idleList struct{ first, last *serverLink }

// These say which of a link's two places a list uses.
const (
	ofTable = iota
	ofClient
)

// append adds a link that has just become idle.
func (d *idleList) append(l *serverLink, which int) {
	l.use.places[which].before = d.last
	if d.last == nil {
		d.first = l
	} else {
		d.last.use.places[which].after = l
	}
	d.last = l
}

// remove removes a link that is in the list.
func (d *idleList) remove(l *serverLink, which int) {
	at := &l.use.places[which]
	if at.before == nil {
		d.first = at.after
	} else {
		at.before.use.places[which].after = at.after
	}
	if at.after == nil {
		d.last = at.before
	} else {
		at.after.use.places[which].before = at.before
	}
	*at = idlePlace{}
}
