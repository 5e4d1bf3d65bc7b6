//bowline:pure
package cluster

import (
	"cmp"
	"slices"
)

// An owner is a node as it writes itself into what it owns: the epoch is new for each start
// of the process, and the term is raised whenever it has to make its lease again.
type owner struct {
	Node  string `json:"node"`
	Epoch string `json:"epoch"`
	Term  uint64 `json:"term"`
}

// A verdict says whether an owner lives.
type verdict uint8

const (
	unsure verdict = iota // nobody can tell yet
	alive
	dead // its lease has ended, and does not come back
)

// A view is what the watch of the bucket of leases has shown to a node. It may be old. So it
// calls an owner dead only in these cases:
//
//   - the view has seen the lease of the owner, and later its end, or the lease of another
//     epoch;
//   - the view has looked for that lease for leaseTTL, did not see it, and was current:
//     it has shown the newest renewal of this node, which was sent after that time. An
//     owner that lives writes its lease more often than that;
//   - the owner had the name of this node, which holds the lease of that name now;
//   - the door of the owner is not there any more, and nobody answers its control requests,
//     and no renewal of its lease was shown since.
//
// A node that does not hold its own lease calls nobody dead, since what it took would be
// taken from it.
type view struct {
	self  owner // its term does not count
	nodes map[string]*sight
	asked map[owner]instant // since when the view looks for owners that it does not see

	wrote     uint64  // the revision of the newest own renewal that was accepted
	sent      instant // when that was sent
	shown     uint64  // the revision of the newest own renewal that was shown
	confirmed instant // when the newest own renewal was sent that was shown before the next was accepted

	number uint64 // of the changes of sights
}

// A sight is what was seen of one node.
type sight struct {
	state    sightState
	owner    owner // the latest that was seen
	revision uint64
	since    instant // when the state became missing
	denied   bool    // by door and control, and not seen since
	ended    []owner // owners whose end was seen, the newest last
	number   uint64  // of the last change
}

type sightState uint8

const (
	seen       sightState = iota
	unreadable            // the key has a value that does not open, or of another version
	missing               // it was seen, and is not shown any more; perhaps the view is old
	ended                 // its end was seen
)

const (
	maxEnded = 8    // of one node
	maxAsked = 1024 // owners that the view looks for
	maxGone  = 1024 // nodes without a lease that the view remembers
)

func newView(self owner) view {
	return view{self: self, nodes: map[string]*sight{}, asked: map[owner]instant{}}
}

// show records a value of a node's lease. A nil owner is one that cannot be read.
func (v *view) show(node string, o *owner, revision uint64) {
	s := v.nodes[node]
	if s == nil {
		s = &sight{revision: revision}
		v.nodes[node] = s
	}
	if revision > s.revision {
		s.denied = false
		if o != nil && o.Epoch != s.owner.Epoch { // a lease is made only after the one before has ended
			s.end(s.owner)
		}
	}
	s.revision, s.number = revision, v.count()
	if o == nil {
		s.state, s.owner = unreadable, owner{Node: node}
		return
	}
	s.state, s.owner = seen, *o
	if s.hasEnded(*o) { // an older state is shown again
		s.state = ended
		return
	}
	for asked := range v.asked {
		if asked.Epoch == o.Epoch { // whoever is seen is looked for no longer
			delete(v.asked, asked)
		}
	}
}

// hide records that a node's lease has no value any more. If revision is not higher than
// that of the value which was seen, an older state may be shown.
func (v *view) hide(now instant, node string, revision uint64) {
	s := v.nodes[node]
	if s == nil || s.state == ended || s.state == missing && revision <= s.revision {
		return
	}
	s.number = v.count()
	if revision <= s.revision {
		s.state, s.since = missing, now
		return
	}
	s.end(s.owner)
	s.state, s.revision = ended, revision
	v.forget()
}

func (s *sight) end(o owner) {
	if o.Epoch == "" || s.hasEnded(o) {
		return
	}
	s.ended = append(s.ended, o)
	if len(s.ended) > maxEnded {
		s.ended = slices.Delete(s.ended, 0, 1)
	}
}

// hasEnded reports whether the end of this owner was seen.
func (s *sight) hasEnded(o owner) bool {
	return slices.ContainsFunc(s.ended, func(e owner) bool { return e.Epoch == o.Epoch && e.Term >= o.Term })
}

// present reports whether the node has a lease as far as the view knows.
func (s *sight) present() bool { return (s.state == seen || s.state == missing) && !s.denied }

// renewed records that a renewal of this node's own lease was accepted.
func (v *view) renewed(sent instant, revision uint64) {
	v.wrote, v.sent = revision, sent
	v.confirm()
}

// showOwn records that the view has shown a value of this node's own lease.
func (v *view) showOwn(revision uint64) {
	v.shown = revision
	v.confirm()
}

func (v *view) confirm() {
	if v.shown == v.wrote {
		v.confirmed = v.sent
	}
}

// deny records that the door of an owner is not there any more, and nobody answers its control
// requests. It reports whether the view sees this owner; otherwise it records nothing.
func (v *view) deny(o owner) (seen bool) {
	s := v.nodes[o.Node]
	if s == nil || s.owner.Epoch != o.Epoch {
		return false
	}
	s.denied, s.number = true, v.count()
	return true
}

// judge says whether an owner lives. If the view cannot tell, the question begins the time
// for which it looks for the owner. The second argument says whether this node holds its own
// lease.
func (v *view) judge(now instant, holding bool, o owner) verdict {
	s := v.nodes[o.Node]
	switch {
	case o.Node == v.self.Node && o.Epoch == v.self.Epoch:
		return alive
	case !holding:
		return unsure
	case o.Node == v.self.Node:
		return dead // an earlier process
	case s == nil:
		return v.await(now, o)
	case s.hasEnded(o):
		return dead
	case s.state == unreadable:
		return unsure
	case s.owner.Epoch != o.Epoch, s.state == ended:
		return v.await(now, o)
	case s.denied:
		return dead
	case s.state == missing:
		return v.after(s.since)
	default:
		return alive
	}
}

// await judges an owner that was never seen.
func (v *view) await(now instant, o owner) verdict {
	since, asked := v.asked[o]
	if asked {
		return v.after(since)
	}
	if len(v.asked) >= maxAsked {
		for other, since := range v.asked {
			if now-since > 3*leaseTTL {
				delete(v.asked, other)
			}
		}
	}
	if len(v.asked) < maxAsked {
		v.asked[o] = now
	}
	return unsure
}

func (v *view) after(since instant) verdict {
	if v.confirmed >= since+leaseTTL {
		return dead
	}
	return unsure
}

// gone reports whether no process has the name of another node any more. Its arguments are
// those of judge.
func (v *view) gone(now instant, holding bool, node string) bool {
	s := v.nodes[node]
	switch {
	case node == v.self.Node, !holding:
		return false
	case s == nil:
		return v.await(now, owner{Node: node}) == dead
	case s.state == unreadable:
		return false
	case s.state == ended, s.denied:
		return true
	case s.state == missing:
		return v.after(s.since) == dead
	default:
		return false
	}
}

func (v *view) count() uint64 {
	v.number++
	return v.number
}

// forget removes the nodes that have ended first, if there are many.
func (v *view) forget() {
	var gone []*sight
	for _, s := range v.nodes {
		if s.state == ended {
			gone = append(gone, s)
		}
	}
	if len(gone) <= maxGone {
		return
	}
	slices.SortFunc(gone, func(a, b *sight) int { return cmp.Compare(a.number, b.number) })
	for _, s := range gone[:len(gone)-maxGone] {
		delete(v.nodes, s.owner.Node)
	}
}
