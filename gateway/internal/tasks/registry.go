// Package tasks knows the tasks that clients of a gateway have started: whose each one is, and at which server.
//
// A task lives at its server. Of it, a Registry keeps who may see it and where it is, under an id of the gateway. It has no
// goroutine and no clock; any goroutine may use it.
package tasks

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
)

const (
	// MostRunning is how many tasks of a gateway may run.
	MostRunning = 1024
	// MostEnded is how many tasks are kept that have ended. Of the client that has most of them, the one that ended first is forgotten.
	MostEnded = 4096
	// Longest is how long a task is kept whose server keeps it for longer, or does not say.
	Longest = 24 * time.Hour
)

// A Task is a task of a server. It does not change.
type Task struct {
	ID      string // among those of the gateway: a secret, since who has no login has nothing else
	Own     string // among those of its server
	Server  string
	Of      any             // what knows the server; another value is another server
	Share   string          // who used one connection with it then
	Over    any             // the connection on which it was started
	Run     uint64          // of the server over that connection
	Owner   string          // identity; "": none
	Payer   share.Client    // whose share of the running ones it takes
	Modern  bool            // it belongs to the extension, and not to 2025-11-25
	Session *server.Session // of the client that has started it; nil: a modern one
	Created json.RawMessage // the task as the server described it first
	Ends    time.Time       // when it is forgotten
	Release func()          // called once, when it does not run any more
}

type own struct {
	over any
	id   string
}

// A Registry has the tasks of a gateway. Make one with New.
type Registry struct {
	node    string
	running *share.Pool

	mu    sync.Mutex
	tasks map[string]*Task
	owns  map[own]*Task
	runs  map[*Task]bool
	last  map[*Task]protocol.TaskStatus // in which one has ended, if its server has said so
	ended []*Task                       // the first one ended first
}

// New returns a Registry without tasks. Their ids have the name of this node, "" for none, so that requests about them find it.
func New(node string) *Registry {
	// shared: running tasks of servers behind a gateway | 1024 places | one | a legacy client is refused with -32050; of a modern one's call no task is made | -
	return &Registry{node: node, running: share.NewPlaces(MostRunning), tasks: make(map[string]*Task), owns: make(map[own]*Task), runs: make(map[*Task]bool), last: make(map[*Task]protocol.TaskStatus)}
}

// Enter takes a place for a call that may become a task, or says why there is none. What is over by then gives its place back.
func (r *Registry) Enter(of share.Client, now time.Time) (refused string) {
	if r.running.Take(of, 1) {
		return ""
	}
	r.Sweep(now)
	if r.running.Take(of, 1) {
		return ""
	}
	return r.running.Refused(1)
}

// Leave gives a place back whose call has not become a task.
func (r *Registry) Leave(of share.Client) { r.running.Give(of, 1) }

// Add keeps a task, whose place was taken, and returns its id.
func (r *Registry) Add(t Task) (id string) {
	t.ID = nodename.Join(r.node, rand.Text())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks[t.ID], r.owns[own{t.Over, t.Own}], r.runs[&t] = &t, &t, true
	return t.ID
}

// Find returns a task that its client names by its id; nil: it has none.
func (r *Registry) Find(id, owner string, modern bool, now time.Time) *Task {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tasks[id]; t != nil && t.Owner == owner && t.Modern == modern && now.Before(t.Ends) {
		return t
	}
	return nil
}

// FindOwn returns a task that its server names by its own id; nil: no client has started it.
func (r *Registry) FindOwn(over any, id string, now time.Time) *Task {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.owns[own{over, id}]; t != nil && now.Before(t.Ends) {
		return t
	}
	return nil
}

// List returns tasks of 2025-11-25 of an owner with greater ids that he sees, in the order of these: most at most.
func (r *Registry) List(owner, after string, most int, now time.Time, sees func(*Task) bool) (all []*Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tasks {
		if t.Owner == owner && !t.Modern && t.ID > after && now.Before(t.Ends) && sees(t) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *Task) int { return cmp.Compare(a.ID, b.ID) })
	return all[:min(len(all), most)]
}

// End notes that a task has ended. It is kept, since its client has yet to fetch the result.
func (r *Registry) End(t *Task) {
	r.mu.Lock()
	ended := r.end(t)
	r.mu.Unlock()
	if ended {
		r.release(t)
	}
}

// Finish notes in which state a task has ended at its server, which never changes.
func (r *Registry) Finish(t *Task, in protocol.TaskStatus) {
	r.mu.Lock()
	if r.tasks[t.ID] == t && r.last[t] == "" {
		r.last[t] = in
	}
	r.mu.Unlock()
	r.End(t)
}

// Last returns in which state a task has ended at its server; "": it has not, as far as is known.
func (r *Registry) Last(t *Task) protocol.TaskStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[t]
}

// IsReplaced reports whether the server has given the id of a task to another one since: it has forgotten this one.
func (r *Registry) IsReplaced(t *Task) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owns[own{t.Over, t.Own}] != t
}

// EndLost ends the tasks that are lost, and returns them.
func (r *Registry) EndLost(isLost func(*Task) bool) (lost []*Task) {
	r.mu.Lock()
	for t := range r.runs {
		if isLost(t) && r.end(t) {
			lost = append(lost, t)
		}
	}
	r.mu.Unlock()
	r.release(lost...)
	return lost
}

// end takes a task out of those that run. The caller holds mu, and calls release without it.
func (r *Registry) end(t *Task) bool {
	if !r.runs[t] {
		return false
	}
	delete(r.runs, t)
	if r.ended = append(r.ended, t); len(r.ended) > MostEnded {
		r.forgetOne()
	}
	return true
}

// forgetOne forgets the task that is missed least: the first one of the client with most. The caller holds mu.
func (r *Registry) forgetOne() {
	of, most := make(map[share.Client]int), share.Client{}
	for _, t := range r.ended {
		if of[t.Payer]++; of[t.Payer] > of[most] {
			most = t.Payer
		}
	}
	i := slices.IndexFunc(r.ended, func(t *Task) bool { return t.Payer == most })
	r.forget(r.ended[i])
	r.ended = slices.Delete(r.ended, i, i+1)
}

func (r *Registry) release(ended ...*Task) {
	for _, t := range ended {
		r.running.Give(t.Payer, 1)
		t.Release()
	}
}

// Sweep forgets the tasks whose time is over, and returns when that of the next one is that runs; never is the zero time.
func (r *Registry) Sweep(now time.Time) (next time.Time) {
	var over []*Task
	r.mu.Lock()
	isOver := func(t *Task) bool { return !now.Before(t.Ends) }
	for _, t := range r.tasks {
		runs := r.runs[t]
		switch {
		case !isOver(t):
			if runs && (next.IsZero() || t.Ends.Before(next)) {
				next = t.Ends
			}
			continue
		case runs:
			over = append(over, t)
			delete(r.runs, t)
		}
		r.forget(t)
	}
	r.ended = slices.DeleteFunc(r.ended, isOver)
	r.mu.Unlock()
	r.release(over...)
	return next
}

// forget removes a task that does not run. The caller holds mu.
func (r *Registry) forget(t *Task) {
	delete(r.tasks, t.ID)
	delete(r.last, t)
	if key := (own{t.Over, t.Own}); r.owns[key] == t { // a server that was restarted may give the same id again
		delete(r.owns, key)
	}
}
