package changes

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/internal/share"
)

// A Hub passes changes to the listeners of one server. Tasks change often and have few
// listeners, so these are found by the task's id: a change of a task must not cost more because many
// clients are connected.
//
// The server outlives its clients, so what Add and Watch begin must end: Remove forgets a listener with everything
// that it watches, and nothing can be watched for it afterwards.
type Hub struct {
	nodes *nodes      // nil: the server is alone. Set before the hub is used
	room  *share.Pool // of what sessions are subscribed to; a listening request holds the room of its link

	mu     sync.Mutex
	all    map[*Listener]map[string]struct{} // all listeners, with the tasks that each of them watches
	ofTask map[string]map[*Listener]struct{}
	owners map[*Listener]Owner // of those that have subscribed to a resource: most sessions have not
}

// An Owner is whose listener it is.
type Owner struct {
	Identity string // "": nobody was authenticated
	Session  any    // nil: a modern client has none

	Listening context.Context // of the request of a modern client; nil: a legacy one makes none
}

// NewHub returns a hub without listeners. The room is in bytes.
func NewHub(room *share.Pool) *Hub {
	return &Hub{room: room, all: make(map[*Listener]map[string]struct{}), ofTask: make(map[string]map[*Listener]struct{})}
}

// Add adds a listener, until Remove.
// It must come before Watch, and before the first change that the listener may not miss.
func (h *Hub) Add(l *Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[l] = nil
}

// Remove removes a listener, and what it watches. It may be called again.
func (h *Hub) Remove(l *Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.all[l] {
		h.forget(l, id)
	}
	delete(h.all, l)
	delete(h.owners, l)
}

// SetOwner says whose a listener is that was added, for TellIf. It does nothing for one that was removed.
func (h *Hub) SetOwner(l *Listener, owner Owner) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, listens := h.all[l]; !listens {
		return
	}
	if h.owners == nil {
		h.owners = make(map[*Listener]Owner)
	}
	h.owners[l] = owner
}

// Watch tells a listener of a task from now on. It does nothing for one that was removed, which would
// otherwise never be forgotten.
func (h *Hub) Watch(l *Listener, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	mine, listens := h.all[l]
	if !listens {
		return
	}
	if mine == nil {
		mine = make(map[string]struct{})
		h.all[l] = mine
	}
	if h.ofTask[id] == nil {
		h.ofTask[id] = make(map[*Listener]struct{})
	}
	mine[id], h.ofTask[id][l] = struct{}{}, struct{}{}
}

// Unwatch ends what Watch began.
func (h *Hub) Unwatch(l *Listener, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all[l], id)
	h.forget(l, id)
}

// forget removes a task again. The caller holds the mutex.
func (h *Hub) forget(l *Listener, id string) {
	delete(h.ofTask[id], l)
	if len(h.ofTask[id]) == 0 {
		delete(h.ofTask, id)
	}
}

// who returns the listeners that may want a change. The caller holds the mutex.
func (h *Hub) who(c Change) iter.Seq[*Listener] {
	if c.task != "" {
		return maps.Keys(h.ofTask[c.task])
	}
	return maps.Keys(h.all)
}

// Tell tells the listeners of this server of a change, and those of other nodes.
// To publish is only scheduled: the carrier between nodes runs on the goroutine of a timer, never on the caller's.
func (h *Hub) Tell(c Change) {
	h.TellHere(c)
	if h.nodes != nil {
		h.nodes.publish(c)
	}
}

// TellHere tells the listeners of this server alone, of what no other node could report: it must be
// somewhere that all nodes can read.
// A change that another node has published comes in here, too, and must not be published again.
func (h *Hub) TellHere(c Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for listener := range h.who(c) {
		listener.add(c)
	}
}

// TellIf tells those listeners of this server of a change whose owners may know of it. One without an owner has subscribed to nothing.
func (h *Hub) TellIf(c Change, may func(Owner) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for listener := range h.who(c) {
		if owner, known := h.owners[listener]; known && may(owner) {
			listener.add(c)
		}
	}
}

// everybody returns all listeners, in no order. Those that leave later are told nothing, because they have ended.
func (h *Hub) everybody() []*Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.all))
}

// Listening returns how many listeners there are: one for each session and each listening request, and no more.
func (h *Hub) Listening() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// Watched returns how many tasks are watched. A task that has ended, or whose listeners have, is not among them.
func (h *Hub) Watched() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ofTask)
}
